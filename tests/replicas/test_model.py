"""The model of a cluster behaves like Kafka's classes on the logs it writes, and knows which clusters are healthy."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.ops.check import check
from krepair.options import EngineName, Options
from tests import naive
from tests.lab.judge import Judge
from tests.replicas.directories import PLANTED, SETTINGS, TOPIC, read_back, written
from tests.replicas.model import HOUR_MS, Cluster, healthy_clusters, kind_of, wild_clusters

OF_HEALTHY = {"KR101", "KR103", "KR107", "KR306"}
"""Markers that may go, open transactions, old formats."""
OF_KILLED = {"KR301", "KR312", "KR404", "KR801"}
"""Tests plan an only replica: what it has lost below its high watermark nobody can bring back (KR312)."""
"""A torn tail, a high watermark above a lost one, and what the next start reads again."""
MORE = int(os.environ.get("KREPAIR_REPLICA_HISTORIES", "0"))


def stopped(seed: int, **fixed: object) -> Cluster:
    cluster = Cluster(seed, kind_of(seed, **fixed)).play()
    cluster.stop_all()
    return cluster


@pytest.mark.slow
def test_calm_clusters_are_healthy_and_have_been_cleaned_killed_and_truncated() -> None:
    seen: Counter[str] = Counter()
    for seed in range(80):
        cluster = Cluster(seed).play()
        seen["healthy"] += cluster.healthy
        seen["truncated"] += any("loses" in line for line in cluster.story)
        seen["elections"] += sum("leads" in line for line in cluster.story)
        seen["replaced"] += any("takes the place" in line or "folder" in line for line in cluster.story)
        for replica in cluster.replicas.values():
            seen["cleaned"] += replica.cleaned > 0
            shadow = sum(len(entry.records) for entry in replica.shadow)
            seen["records gone"] += shadow - sum(len(entry.records) for entry in replica.entries)
    assert seen["healthy"] >= 76
    assert min(seen["truncated"], seen["replaced"], seen["cleaned"]) > 10
    assert seen["elections"] > 100
    assert seen["records gone"] > 1000


@pytest.mark.slow
def test_kafka_alone_lets_clusters_diverge_whose_brokers_are_away_for_too_long() -> None:
    why: Counter[str] = Counter()
    for cluster in wild_clusters(6, first=1000, retention_ms=HOUR_MS, steps=150):
        found = [*cluster.diverged().values(), *cluster.will_diverge().values()]
        why.update(reason.split()[0] for reason in found)
    assert set(why) == {"stable", "keys"}


def test_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        written(stopped(7), tmp_path / name)
    files = sorted(
        path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file()
    )
    assert len(files) > 20
    for path in files:
        assert (tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes()


def test_what_is_written_is_no_damage_to_krepair_and_comes_back_as_it_was(tmp_path: Path) -> None:
    for number, cluster in enumerate(healthy_clusters(12 + MORE // 10, first=50)):
        cluster.stop_all()
        for broker, log_dir in written(cluster, tmp_path / str(number)).items():
            replica = cluster.replicas[broker]
            options = Options(
                engine=EngineName.INLINE, settings=tuple(SETTINGS.items()), now_ms=cluster.now_ms
            )
            [report] = check([str(log_dir)], options).log_dirs
            found = {finding.rule for finding in report.findings}
            assert found <= OF_HEALTHY | (set() if replica.clean else OF_KILLED), cluster.story
            if cluster.kind.magic == 2:
                before = [entry.raw for entry in replica.entries]
                answer = replica.answer()
                read_back(replica, log_dir)
                assert [entry.raw for entry in replica.entries] == before
                assert replica.answer() == answer


@pytest.mark.parametrize("kind", sorted(PLANTED))
def test_planted_divergences_are_real(kind: str) -> None:
    done = 0
    for seed, cluster in enumerate(healthy_clusters(30, first=300, magic=2)):
        cluster.stop_all()
        before = {broker: replica.answer() for broker, replica in cluster.replicas.items()}
        found = PLANTED[kind](cluster, random.Random(seed))
        if found is None:
            continue
        done += 1
        changed = {
            broker for broker, replica in cluster.replicas.items() if replica.answer() != before[broker]
        }
        assert changed <= {found[0]}
    assert done >= 5


@pytest.mark.broker
@pytest.mark.parametrize("version", ["2.2.1", "3.9.2"])
def test_kafkas_classes_serve_what_the_model_says(
    version: str, judge: Callable[[str], Judge], tmp_path: Path
) -> None:
    compared = 0
    for number, seed in enumerate(range(2000, 2006 + MORE // 20)):
        wild = kind_of(seed, version=version, calm=False, retention_ms=HOUR_MS, steps=120)
        cluster = Cluster(seed, wild).play()
        cluster.stop_all()
        for broker, log_dir in written(cluster, tmp_path / str(number)).items():
            replica = cluster.replicas[broker]
            if not replica.entries:
                continue
            answer = replica.answer()
            said = judge(version).load(
                log_dir / f"{TOPIC}-0",
                clean=replica.clean,
                recovery_point=min(replica.flushed, replica.end),
                log_start=replica.start,
                settings={"cleanup.policy": "compact"},
                now_ms=cluster.now_ms,
                list_records=True,
            )
            assert (said.log_end, said.stable_offset) == (answer.end, answer.stable), cluster.story
            table: dict[str | None, str | None] = {}
            for record in said.committed.records:
                if record.offset >= replica.start:
                    table[record.key] = record.value
            mine = {
                None if key is None else key.hex(): value.hex() for key, (_, value) in answer.table.items()
            }
            assert {key: value for key, value in table.items() if value is not None} == mine, cluster.story
            compared += 1
    assert compared >= 15


def test_naive_reads_what_entries_write() -> None:
    cluster = stopped(4, magic=2)
    for replica in cluster.replicas.values():
        log = b"".join(entry.raw for entry in replica.entries)
        assert [one.base_offset for one in naive.parse(log)] == [one.base for one in replica.entries]
