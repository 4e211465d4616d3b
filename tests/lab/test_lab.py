"""The lab itself: what judges krepair must be right first."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests import naive
from tests.builders import NOW_MS, LogDir, Replay
from tests.lab import client, jars
from tests.lab.broker import Broker, Topic
from tests.lab.judge import Judge, JudgeError
from tests.strategies import History, Shape, histories, history

OTHERS = ("2.3.1", "2.8.2", "3.0.2")
CONFIG = {"cleanup.policy": "compact", "segment.bytes": "100000", "index.interval.bytes": "200"}


def some_history(target: Path, seed: int = 7) -> Path:
    shape = Shape(segments=6, stamps=False, tombstones=True)
    return history(seed, shape).fill(LogDir(target).partition("t", index_interval_bytes=200)).write()


@pytest.mark.broker
@pytest.mark.parametrize(
    "version", [*jars.VERSIONS, *(pytest.param(v, marks=pytest.mark.slow) for v in OTHERS)]
)
def test_every_version_reads_a_built_history_alike(
    judge: Callable[[str], Judge], tmp_path: Path, version: str
) -> None:
    reference = judge("3.9.2").load(
        some_history(tmp_path / "a"), settings=CONFIG, now_ms=NOW_MS, list_records=True
    )
    loaded = judge(version).load(some_history(tmp_path / "b"), settings=CONFIG, now_ms=NOW_MS)
    assert loaded.complaints == ()
    assert loaded.served == reference.served
    assert (loaded.log_end, loaded.stable_offset) == (reference.log_end, reference.stable_offset)
    assert reference.uncommitted.count == len(reference.uncommitted.records) > reference.committed.count > 0


def comparable(suffix: str, content: bytes) -> object:
    """Kafka writes the producers of a snapshot in the order of its hash table."""
    if suffix != ".snapshot":
        return content
    return sorted(content[place : place + 46] for place in range(10, len(content), 46))


@pytest.mark.broker
@pytest.mark.parametrize("version", jars.VERSIONS)
def test_built_companions_are_those_that_kafka_rebuilds(
    judge: Callable[[str], Judge], tmp_path: Path, version: str
) -> None:
    folder = some_history(tmp_path)
    built = {p.name: p.read_bytes() for p in folder.iterdir()}
    for path in folder.iterdir():
        if path.suffix != ".log":
            path.unlink()
    assert judge(version).recover(folder, CONFIG, now_ms=NOW_MS).complaints == ()
    # 2.2.1 also enters abort markers without data, and holds no timestamp of a marker
    later = {".txnindex", ".snapshot"} if version != "2.2.1" else set()
    for name, content in built.items():
        suffix = Path(name).suffix
        if suffix in {".index", ".timeindex", *later} and (folder / name).exists():
            assert comparable(suffix, (folder / name).read_bytes()) == comparable(suffix, content), name
    assert sorted(n for n in built if n.endswith("index")) == sorted(
        p.name for p in folder.glob("*index") if p.stat().st_size or p.name in built
    )


@pytest.mark.broker
def test_judge_tells_the_trace_of_what_kafka_throws_and_goes_on(
    judge: Callable[[str], Judge], tmp_path: Path
) -> None:
    folder = some_history(tmp_path)
    with pytest.raises(JudgeError, match="ConfigException"):
        judge("3.9.2").load(folder, settings={"segment.bytes": "no number"})
    assert judge("3.9.2").load(folder, settings=CONFIG).complaints == ()


@pytest.mark.broker
def test_judge_hears_what_kafka_complains_about(judge: Callable[[str], Judge], tmp_path: Path) -> None:
    folder = some_history(tmp_path)
    last = max(folder.glob("*.log"))
    last.write_bytes(last.read_bytes() + b"\0" * 100)
    loaded = judge("3.9.2").load(folder, clean=False, recovery_point=0, settings=CONFIG)
    assert any(last.stem in line for line in loaded.complaints)


@pytest.mark.broker
def test_judge_that_does_not_answer_in_time_is_ended(tmp_path: Path) -> None:
    with Judge("3.9.2", timeout_s=0.01) as hasty, pytest.raises(JudgeError, match="no answer"):
        hasty.load(some_history(tmp_path), settings=CONFIG)


@pytest.mark.broker
@pytest.mark.parametrize("version", jars.VERSIONS)
def test_broker_and_judge_serve_the_same_records_of_a_built_log_dir(
    judge: Callable[[str], Judge], tmp_path: Path, version: str
) -> None:
    directory = LogDir(tmp_path / "logs")
    history(11, Shape(segments=4, open_at_end=True)).fill(directory.partition("t"))
    directory.write()
    copy = shutil.copytree(tmp_path / "logs", tmp_path / "copy")
    expected = judge(version).load(copy / "t-0", settings=CONFIG, now_ms=NOW_MS)
    with Broker(version, directory.root, {"log.cleaner.enable": "false"}, {"t": Topic(1, CONFIG)}) as broker:
        uncommitted = client.read_all(broker.bootstrap, "t", isolation="read_uncommitted")
        committed = client.read_all(broker.bootstrap, "t", isolation="read_committed")
        broker.stop()
        complaints = broker.complaints()
    assert client.digest(uncommitted) == expected.uncommitted.digest
    assert client.digest(committed) == expected.committed.digest
    assert [line for line in complaints if re.search(r"\bt-0\b", line.replace("pytest-0", ""))] == []


@pytest.mark.broker
def test_tv2_fixture_has_an_epoch_for_every_marker_stamps_and_an_open_transaction(
    judge: Callable[[str], Judge], log_dir_of: Callable[[str], Path]
) -> None:
    root = log_dir_of("offsets-tv2-4.3.1")
    open_transactions = stamped = 0
    for number in range(2):
        folder = root / f"__consumer_offsets-{number}"
        segments, _ = naive.read_partition(folder)
        batches = [b for s in segments for b in naive.parse(s.log)]
        of_one = [b.epoch for b in batches if b.ends_transaction and b.producer_id == batches[-1].producer_id]
        assert of_one == sorted(set(of_one)), "KIP-890 raises the epoch with every marker"
        assert {b.stamped for b in batches if b.ends_transaction} == {True, False}
        stamped += sum(b.stamped for b in batches)
        loaded = judge(jars.LATEST).load(folder, now_ms=segments[-1].mtime_ms)
        assert loaded.complaints == ()
        open_transactions += sum(p.open_from is not None for p in loaded.producers)
    assert stamped > 100
    assert open_transactions == 1


def test_broker_test_without_kafka_is_skipped_and_under_ci_fails(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    root = Path(__file__).parents[2]
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(Path(__file__))]
    argv += ["-k", "test_judge_hears_what_kafka_complains_about"]
    env = {
        "PATH": str(tools),
        "XDG_CACHE_HOME": str(tmp_path),
        "HOME": str(tmp_path),
        "PYTHONPATH": str(root),
    }
    outside = subprocess.run(argv, cwd=root, env=env, capture_output=True, text=True, check=False)
    inside = subprocess.run(
        argv, cwd=root, env=env | {"CI": "true"}, capture_output=True, text=True, check=False
    )
    assert outside.returncode == 0, outside.stdout + outside.stderr
    assert "1 skipped" in outside.stdout
    assert "java, javac, mvn" in outside.stdout
    assert inside.returncode == 1
    assert "skipped under CI" in inside.stdout


def test_same_seed_gives_the_same_history_and_another_seed_another() -> None:
    one, again, other = (history(seed).batches for seed in (3, 3, 4))
    assert [b.raw for b in one] == [b.raw for b in again]
    assert [b.raw for b in one] != [b.raw for b in other]


@settings(max_examples=60, deadline=None)
@given(histories())
def test_twin_parses_what_the_builders_encode_and_replays_to_the_same_state(each: History) -> None:
    replay = Replay()
    for batch in each.batches:
        replay.take(batch)
    parsed = naive.parse(b"".join(batch.raw for batch in each.batches))
    assert [(b.base_offset, b.last_offset, b.records, b.control_type) for b in parsed] == [
        (b.base_offset, b.last_offset, b.records, b.marker) for b in each.batches
    ]
    state = naive.replay(parsed)
    assert {pid: (p.epoch, p.last_data_offset, p.timestamp, p.open_from) for pid, p in state.items()} == {
        pid: (
            p.epoch,
            p.last_offset if p.last_offset >= 0 else None,
            p.timestamp,
            p.open_from if p.open_from >= 0 else None,
        )
        for pid, p in replay.producers.items()
    }
    assert [e.producer_id for e in naive.parse_snapshot(replay.snapshot())] == sorted(replay.producers)


def test_jars_of_a_cached_version_need_no_maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "krepair-brokers" / "9.9.9").mkdir(parents=True)
    (tmp_path / "krepair-brokers" / "9.9.9" / ".complete").touch()
    java = tmp_path / "bin"
    java.mkdir()
    for tool in ("java", "javac"):
        (java / tool).write_text("#!/bin/sh\n")
        (java / tool).chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path))
    monkeypatch.setenv("PATH", os.fspath(java))
    assert jars.missing_tools("9.9.9") == ""
    assert "mvn" in jars.missing_tools("9.9.8")
