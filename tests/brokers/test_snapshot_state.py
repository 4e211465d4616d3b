"""Random histories: the producer state that krepair writes is the one that Kafka's own log classes write."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.options import EngineName, Options
from tests.builders import NOW_MS, LogDir, Partition, Replay
from tests.lab.jars import LOADER_VERSIONS
from tests.lab.judge import Judge
from tests.ops.snapshots import entries
from tests.strategies import Shape, history
from tests.twins.of_plan import twin_problems

pytestmark = pytest.mark.broker

SEEDS = range(36)
WHOLE_LOG, INNER_SNAPSHOT, LATER_START = range(3)


def shape_of(seed: int) -> Shape:
    return Shape(
        segments=1 + seed % 5,
        producers=1 + seed % 4,
        emptied=seed % 4 == 0,
        epoch_per_marker=seed % 5 == 0,
        stamps=seed % 7 == 0,
    )


def starts(partition: Partition, seed: int) -> tuple[int, bytes | None]:
    """Log start, and the one snapshot that is left (at the offset that follows it), for a third of the seeds each."""
    batches = [batch for segment in partition.segments for batch in segment.batches]
    chance = random.Random(seed)
    if seed % 3 == LATER_START:
        batch = chance.choice(batches)
        return chance.randint(batch.base_offset, batch.last_offset), None
    first = partition.segments[0].base_offset
    if seed % 3 == WHOLE_LOG or len(batches) < 2:
        return first, None
    replay = Replay()
    cut = chance.randint(1, len(batches) - 1)
    for batch in batches[:cut]:
        replay.take(batch)
    name = f"{batches[cut].base_offset:020d}.snapshot"
    return first, name.encode() + replay.snapshot()


@pytest.mark.parametrize("version", LOADER_VERSIONS)
def test_state_of_random_histories_is_the_one_that_kafka_writes(
    tmp_path: Path, judge: Callable[[str], Judge], version: str
) -> None:
    directory = LogDir(tmp_path / "ours")
    for seed in SEEDS:
        history(seed, shape_of(seed)).fill(directory.partition("t", seed))
    found = {partition.folder.name: starts(partition, partition.number) for partition in directory.partitions}
    ours = directory.write(log_starts={name: start for name, (start, _) in found.items()})
    theirs = tmp_path / "theirs"
    for partition in directory.partitions:
        folder, (_, left) = partition.folder, found[partition.folder.name]
        for path in folder.glob("*.snapshot"):
            path.unlink()
        if left is not None:
            (folder / left[:29].decode()).write_bytes(left[29:])
        # without any, a clean start reads nothing; with one that cannot be read it reads the log
        (folder / f"{partition.log_end:020d}.snapshot").write_bytes(b"")
        shutil.copytree(folder, theirs / folder.name)
    options = Options(
        engine=EngineName.INLINE, now_ms=NOW_MS, fixes=("snapshots",), broker_version=version, settings=()
    )
    plan = make_plan(str(ours), options)
    assert apply(plan, options).exit_code == ExitCode.DONE
    assert twin_problems(plan) == []

    producers = 0
    for partition in directory.partitions:
        name, start = partition.folder.name, found[partition.folder.name][0]
        at_end = f"{partition.log_end:020d}.snapshot"
        judge(version).load(theirs / name, log_start=start, now_ms=NOW_MS)
        wrote = entries(theirs / name / at_end)
        if version == "2.2.1":  # which forgets at the next loading whom it knows by a marker alone
            wrote = {entry for entry in wrote if entry.last_offset >= 0 or entry.has_open_txn}
        made = entries(ours / name / at_end)
        assert made == wrote, (name, start)
        again = judge(version).load(theirs / name, log_start=start, now_ms=NOW_MS)
        mine = judge(version).load(ours / name, log_start=start, now_ms=NOW_MS)
        assert sorted(mine.producers, key=lambda one: one.producer_id) == sorted(
            again.producers, key=lambda one: one.producer_id
        )
        assert mine.stable_offset == again.stable_offset
        assert mine.complaints == ()
        producers += len(made)
    assert producers > 70


@pytest.mark.parametrize("version", LOADER_VERSIONS)
def test_after_an_unclean_stop_recovery_makes_the_same_of_the_mended_folder_and_has_nothing_to_say(
    tmp_path: Path, judge: Callable[[str], Judge], version: str
) -> None:
    directory = LogDir(tmp_path / "ours")
    partition = history(7, Shape(segments=4)).fill(directory.partition("t"))
    ours = directory.write(clean_stop=False)
    kept, lost = partition.segments[1].base_offset, partition.segments[2].base_offset
    (partition.folder / f"{lost:020d}.snapshot").write_bytes(b"\0" * 40)
    shutil.copytree(partition.folder, tmp_path / "theirs" / "t-0")
    options = Options(engine=EngineName.INLINE, now_ms=NOW_MS, fixes=("snapshots",), broker_version=version)
    plan = make_plan(str(ours), options)
    assert apply(plan, options).exit_code == ExitCode.DONE
    assert twin_problems(plan) == []
    point = partition.segments[3].base_offset
    theirs = judge(version).load(
        tmp_path / "theirs" / "t-0", clean=False, recovery_point=point, now_ms=NOW_MS
    )
    mine = judge(version).load(partition.folder, clean=False, recovery_point=point, now_ms=NOW_MS)
    assert mine == replace(theirs, complaints=())
    assert (partition.folder / f"{kept:020d}.snapshot").exists()
    assert mine.producers


@pytest.mark.parametrize("version", LOADER_VERSIONS)
@pytest.mark.parametrize("clean", [True, False])
def test_which_snapshots_a_start_reads_and_removes_is_as_forecast(
    tmp_path: Path, judge: Callable[[str], Judge], version: str, clean: bool
) -> None:
    """One damaged snapshot, at each offset in turn; the recovery point in each segment in turn."""
    for seed in range(4):
        partition = history(seed, Shape(segments=4)).fill(LogDir(tmp_path / "nowhere").partition("t"))
        names = sorted(name for name in partition.files() if name.endswith(".snapshot"))
        bases = [segment.base_offset for segment in partition.segments]
        for number, name in enumerate(names):
            directory = LogDir(tmp_path / f"{seed}-{number}", [partition])
            partition.folder = directory.root / "t-0"
            root = directory.write(clean_stop=clean)
            (partition.folder / name).write_bytes(b"\0" * 40)
            point = bases[(seed + number) % len(bases)]
            (root / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {point}\n")
            options = Options(engine=EngineName.INLINE, now_ms=NOW_MS, broker_version=version)
            told = check([str(root)], options).log_dirs[0].forecast[0].text
            loaded = judge(version).load(partition.folder, clean=clean, recovery_point=point, now_ms=NOW_MS)
            said = [line for line in loaded.complaints if "Failed to load producer snapshot" in line]
            assert (f"snapshots {name[:20]} as unreadable" in told) == any(name in line for line in said), (
                told
            )
            assert len(said) == len({line for line in said if name in line})
