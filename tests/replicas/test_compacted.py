"""A topic that only krepair has compacted is recognized by its log and krepair's plan; what is lost stays lost."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from krepair.cli.views.comparisons import compare_view
from krepair.fixes.replicas import parse_brokers
from krepair.ops.compare import compare
from krepair.ops.facts import facts
from krepair.options import EngineName, Options
from krepair.plan.model import Plan
from krepair.rules.replicas import model as m
from tests.builders import NOW_MS, LogDir, Record, data
from tests.compaction.directories import Verbs, options
from tests.pages import words_of

TOPIC = "changelog"
SEGMENTS = 8
DAY_MS = 86_400_000
OPTIONS = Options(engine=EngineName.INLINE)


def three(root: Path, *, whole: bool) -> dict[int, Path]:
    """Three brokers whose cleaners never ran, with the same log.

    Args:
        root: gets their log directories.
        whole: whether batches are superseded whole or not at all; else some of their records are.
    """
    directory = LogDir(root / "1")
    partition = directory.partition(TOPIC)
    for number in range(SEGMENTS):
        own = [Record(b"only-%d" % number, b"once")]
        records = [Record(b"key-%d" % key, b"%d" % number * 50) for key in range(9)]
        time = NOW_MS - (SEGMENTS + 1 - number) * DAY_MS
        batches = [records, own] if whole else [own + records]
        base = 10 * number
        made = []
        for batch in batches:
            made.append(data(base, batch, timestamp=time))
            base += len(batch)
        partition.segment(*made, mtime_ms=time)
    partition.segment(data(10 * SEGMENTS, 2))
    paths = {1: directory.write()}
    for broker in (2, 3):
        paths[broker] = root / str(broker)
        shutil.copytree(paths[1], paths[broker])
    for broker, path in paths.items():
        meta = path / "meta.properties"
        meta.write_text(meta.read_text().replace("broker.id=0", f"broker.id={broker}"))
    return paths


def compacted(root: Path, log_dir: Path) -> tuple[Verbs, Plan]:
    verbs = Verbs(log_dir, options(root, TOPIC, settings={"segment.bytes": "400"}, partitions=((TOPIC, 0),)))
    plan = verbs.plan()
    verbs.apply(plan)
    return verbs, plan


def said(paths: dict[int, Path], facts_of: int = 0) -> m.PartitionVerdict:
    sides = [f"{broker}={path}" for broker, path in paths.items()]
    if facts_of:
        out = f"{paths[facts_of]}.facts"
        facts([str(paths[facts_of])], out, OPTIONS)
        sides = [f"{facts_of}={out}" if side.startswith(f"{facts_of}=") else side for side in sides]
    [verdict] = compare(parse_brokers(sides), OPTIONS).partitions
    return verdict


@pytest.mark.parametrize("brokers", [(1,), (1, 3)])
def test_batches_with_fewer_records_than_offsets_show_that_krepair_compacted(
    brokers: tuple[int, ...], tmp_path: Path
) -> None:
    paths = three(tmp_path, whole=False)
    for broker in brokers:
        verbs, plan = compacted(tmp_path, paths[broker])
        verbs.purge(plan)
    for facts_of in (0, 1, 2):
        verdict = said(paths, facts_of)
        assert (verdict.verdict, verdict.disagreements) == (m.HARMLESS, ())
        assert "cleaned-further" in verdict.harmless


def test_the_plan_that_is_kept_shows_that_krepair_compacted(tmp_path: Path) -> None:
    paths = three(tmp_path, whole=True)
    verbs, plan = compacted(tmp_path, paths[1])
    before = said(paths)
    assert before.verdict == m.HARMLESS
    assert not any("lost" in words for words in before.harmless)
    verbs.purge(plan)
    after = said(paths)
    assert after.verdict == m.DIVERGED  # batches that are gone whole may as well be lost
    assert "--topic-config" in after.disagreements[0].text


@pytest.mark.parametrize("policy", ["", "delete", "compact"])
@pytest.mark.parametrize("facts_of", [0, 1])
def test_what_is_missing_where_no_cleaner_was_is_told_unless_somebody_says_that_the_topic_is_compacted(
    facts_of: int, policy: str, tmp_path: Path
) -> None:
    """The topic was compacted once: a line of the cleaner stays. Its records have no keys, so none is judged by key."""
    sides = []
    for broker in (1, 2):
        directory = LogDir(tmp_path / str(broker))
        partition = directory.partition(TOPIC)
        for base in range(0, 8, 2):
            partition.segment(*(data(one, [Record(None, b"v")]) for one in (base, base + 1)))
        directory.write(broker=broker)
        (tmp_path / str(broker) / "cleaner-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 2\n")
        sides.append(f"{broker}={tmp_path / str(broker)}")
    (tmp_path / "2" / f"{TOPIC}-0" / f"{4:020d}.log").unlink()
    if facts_of:
        facts([str(tmp_path / "1")], str(tmp_path / "1.facts"), OPTIONS)
        sides[0] = f"1={tmp_path}/1.facts"
    given = replace(OPTIONS, settings=(("cleanup.policy", policy),) if policy else ())
    report = compare(parse_brokers(sides), given)
    [verdict] = report.partitions
    if policy == "delete":
        assert [(one.kind, one.brokers, one.offset) for one in verdict.disagreements] == [(m.LOST, (2,), 4)]
    else:
        told = [words for words in verdict.harmless if "broker 2 lacks 2 records from offset 4 on" in words]
        assert (verdict.verdict, len(told)) == (m.HARMLESS, int(not policy))
        page = words_of(compare_view(report))
        assert (f"{TOPIC}-0: broker 2 lacks 2 records from offset 4 on" in page) is (not policy)


def test_a_segment_that_is_lost_where_krepair_compacted_is_never_called_harmless(tmp_path: Path) -> None:
    """Each segment holds the only record of a key."""
    paths = three(tmp_path, whole=False)
    verbs, plan = compacted(tmp_path, paths[1])
    verbs.purge(plan)
    logs = sorted((paths[1] / f"{TOPIC}-0").glob("*.log"))
    assert len(logs) > 3
    for log in logs[1:-1]:
        kept = {file: file.read_bytes() for file in log.parent.glob(f"{log.stem}.*")}
        for file in kept:
            file.unlink()
        verdict = said(paths)
        for file, content in kept.items():
            file.write_bytes(content)
        assert verdict.verdict in {m.DIVERGED, m.CANNOT_TELL}, verdict
        assert {one.brokers for one in verdict.disagreements} == {(1,)}, verdict
        assert 1 not in verdict.right
