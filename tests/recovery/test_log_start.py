"""A log start inside the log, as DeleteRecords leaves it: what a recovery makes of the batches below it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from krepair.formats import producer_snapshot
from krepair.formats.checkpoint import decode_epochs
from krepair.formats.producer_snapshot import ProducerEntry, ProducerSnapshot
from tests.builders import NOW_MS, LogDir, Partition
from tests.lab.jars import LOADER_VERSIONS
from tests.lab.judge import Judge, Loaded, ProducerState
from tests.recovery.scene import Verbs
from tests.strategies import Shape, history

SEEDS = range(24)
POLICIES = ("compact", "delete")


def producers(file: Path) -> set[ProducerEntry]:
    decoded = producer_snapshot.decode(file.read_bytes())
    assert isinstance(decoded, ProducerSnapshot)
    return set(decoded.entries)


def epochs(folder: Path) -> tuple[tuple[int, int], ...]:
    return tuple((one.epoch, one.start_offset) for one in decode_epochs(
        (folder / "leader-epoch-checkpoint").read_bytes()
    ).entries)  # fmt: skip


def drawn(partition: Partition, seed: int) -> tuple[int, int]:
    """Log start and recovery point: anywhere in the log, more often in one segment than not."""
    chance = random.Random(seed)
    first, end = partition.segments[0].base_offset, partition.log_end
    start = chance.randint(first + 1, end - 1)
    bases = [one.base_offset for one in partition.segments]
    holder = max(base for base in bases if base <= start)
    return start, chance.choice([holder, start, first, end, chance.choice(bases)])


def written(root: Path) -> tuple[LogDir, dict[str, tuple[int, int]]]:
    """One partition for each seed, of a broker that was killed; each with a log start and a recovery point."""
    directory = LogDir(root)
    for seed in SEEDS:
        shape = Shape(segments=1 + seed % 4, producers=2 + seed % 3)
        history(seed, shape).fill(directory.partition("t", seed))
    found = {one.folder.name: drawn(one, one.number) for one in directory.partitions}
    path = directory.write(clean_stop=False, log_starts={name: start for name, (start, _) in found.items()})
    rows = [f"t {name.rpartition('-')[2]} {point}" for name, (_, point) in found.items()]
    (path / "recovery-point-offset-checkpoint").write_text("\n".join(["0", str(len(rows)), *rows]) + "\n")
    (path / ".lock").touch()
    for one in directory.partitions:
        start, _ = found[one.folder.name]
        if one.number % 2:  # as after DeleteRecords: the broker moves the entry up to the log start
            old = decode_epochs((one.folder / "leader-epoch-checkpoint").read_bytes()).entries
            last = max((each for each in old if each.start_offset <= start), default=None)
            kept = [each for each in old if each.start_offset > start]
            lines = ([f"{last.epoch} {start}"] if last else []) + [
                f"{e.epoch} {e.start_offset}" for e in kept
            ]
            text = "\n".join(["0", str(len(lines)), *lines]) + "\n"
            (one.folder / "leader-epoch-checkpoint").write_text(text)
        for file in one.folder.glob("*.snapshot"):
            if one.number % 3 == 0:
                file.unlink()
    return directory, found


@pytest.mark.broker
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("version", LOADER_VERSIONS)
def test_producers_and_epochs_are_those_that_a_start_makes_and_none_is_dropped(
    tmp_path: Path, judge: Callable[[str], Judge], version: str, policy: str
) -> None:
    directory, found = written(tmp_path / "ours")
    assert recovered_as_by_a_start(tmp_path, judge(version), version, policy, directory, found) > 5


@pytest.mark.broker
@pytest.mark.parametrize("version", LOADER_VERSIONS)
def test_a_recovery_loads_producers_below_the_first_segment_where_no_log_start_is_recorded(
    tmp_path: Path, judge: Callable[[str], Judge], version: str
) -> None:
    directory, found = written_without_beginning(tmp_path / "ours")
    recovered_as_by_a_start(tmp_path, judge(version), version, "compact", directory, found)


def test_the_twin_says_the_same_of_producers_below_the_first_segment(tmp_path: Path) -> None:
    directory, _ = written_without_beginning(tmp_path)
    settings = (("cleanup.policy", "compact"),)
    verbs = Verbs(directory.root, now_ms=NOW_MS, broker_version="2.2.1", settings=settings)
    plan = verbs.plan()
    verbs.apply(plan)
    assert verbs.wrong(plan) == []


def written_without_beginning(root: Path) -> tuple[LogDir, dict[str, tuple[int, int]]]:
    """The same partitions without a recorded log start, and without their first segment, which somebody has removed."""
    directory, found = written(root)
    (directory.root / "log-start-offset-checkpoint").write_text("0\n0\n")
    for one in directory.partitions:
        for file in one.folder.glob(f"{one.segments[0].base_offset:020d}.*") if one.segments[1:] else ():
            file.unlink()
    return directory, {name: (0, point) for name, (_, point) in found.items()}


def recovered_as_by_a_start(
    tmp_path: Path,
    judge: Judge,
    version: str,
    policy: str,
    directory: LogDir,
    found: dict[str, tuple[int, int]],
) -> int:
    """Recover, and compare with what Kafka makes; return how many producers lie below the log start."""
    theirs = tmp_path / "theirs"
    shutil.copytree(directory.root, theirs)
    settings = {"cleanup.policy": policy}
    verbs = Verbs(directory.root, now_ms=NOW_MS, broker_version=version, settings=tuple(settings.items()))
    plan = verbs.plan()
    assert [(one.folder, one.code, one.why) for one in plan.partitions if one.status == "left alone"] == []
    verbs.apply(plan)
    assert verbs.wrong(plan) == []
    below = 0
    for one in directory.partitions:
        name, (start, point) = one.folder.name, found[one.folder.name]
        where = (name, start, point)
        ask = {"log_start": start, "settings": settings, "now_ms": NOW_MS}
        plain = judge.load(theirs / name, clean=False, recovery_point=point, **ask)  # type: ignore[arg-type]
        wrote = theirs / name / f"{one.log_end:020d}.snapshot"
        made = one.folder / wrote.name
        if made.exists() and wrote.exists():
            assert known(producers(made), version, start) == known(producers(wrote), version, start), where
            below += sum(each.last_offset < start for each in producers(made))
        ready = judge.load(
            one.folder,
            clean=False,
            recovery_point=points_of_number(directory.root, one.number),
            **ask,  # type: ignore[arg-type]
        )
        assert loaded(ready, version) == loaded(plain, version), where
        assert (ready.stable_offset, ready.served) == (plain.stable_offset, plain.served), where
        assert epochs(one.folder) == epochs(theirs / name), where
    return below


def known(found: set[ProducerEntry], version: str, start: int) -> set[ProducerEntry]:
    """What the version still knows of a snapshot after it has loaded it.

    2.2 forgets a producer below the log start whenever it loads a snapshot (KAFKA-7190), so between two segments too:
    then the coordinator epoch of its last marker is gone, which krepair keeps.
    """
    if version != "2.2.1":
        return found
    return {one._replace(coordinator_epoch=-1) for one in found if one.last_offset >= start}


def loaded(found: Loaded, version: str) -> list[ProducerState]:
    """The producers, by id."""
    old = version == "2.2.1"
    rows = [replace(one, coordinator_epoch=-1) if old else one for one in found.producers]
    return sorted(rows, key=lambda one: one.producer_id)


def points_of_number(root: Path, number: int) -> int:
    rows = (root / "recovery-point-offset-checkpoint").read_text().split("\n")[2:]
    return next(int(row.split()[2]) for row in rows if row.split()[1:2] == [str(number)])
