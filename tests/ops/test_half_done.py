"""Half-done partitions: several groups, several partitions and fences at once, and the same command ends right."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode, RefusedError
from krepair.plan.model import Plan
from tests.durable.disks import FailingDisk, RecordingDisk, SimulatedCrash, StoppingDisk
from tests.ops.scene import TV2, Scene, outcomes, scene, tree

MARKER = ".kafka_cleanshutdown"
POINTS = "recovery-point-offset-checkpoint"


def fresh(root: Path) -> tuple[Scene, Plan]:
    """Two partitions with two groups in each, cleanly stopped."""
    one = scene(root, TV2)
    (one.path / MARKER).write_bytes(b"")
    os.utime(one.path / MARKER, ns=(7, 7))
    plan = one.plan(merge=False)
    assert sorted(len(part.changes) for part in plan.partitions if part.changes) == [2, 2]
    return one, plan


def served(one: Scene) -> dict[str, tuple[object, ...]]:
    return {name: row for name, row in tree(one.path, private=False).items() if name != ".lock"}


def half_done(root: Path) -> tuple[Scene, Plan, str]:
    """A directory whose first partition stopped between the commit of its first group and its end, fence up."""
    whole, plan = fresh(root / "other")
    recording = RecordingDisk(RealDisk())
    whole.apply(plan, recording)
    renames = [call for call in recording.calls if call.kind == "rename"]
    stop, call = next((n, call) for n, call in enumerate(renames, 1) if call.path.endswith(".log.swap"))
    one, plan = fresh(root / "logs")
    with pytest.raises(SimulatedCrash):
        one.apply(plan, StoppingDisk(RealDisk(), stop, {"rename"}))
    assert list(one.path.glob("*/krepair~*/fence"))
    return one, plan, Path(call.path).parent.name


def no_room(*_: object) -> None:
    raise RefusedError("there is no room")


def test_what_was_finished_is_told_although_the_rest_is_refused_as_stale(memory_dir: Path) -> None:
    """A plan that is stale says that nothing was changed (12): here a group was finished, so it is 3."""
    one, plan, folder = half_done(memory_dir)
    part = next(each for each in plan.partitions if each.folder == folder)
    active = max(file.name for file in part.files if file.name.endswith(".log"))
    last = one.path / folder / f"{part.changes[-1].base_offset:020d}.log"  # type: ignore[union-attr]
    assert last.name != active
    os.utime(last, ns=(5, 5))
    for other in plan.partitions:
        if other.changes and other.folder != folder:
            shutil.rmtree(one.path / other.folder)
    before = served(one)
    report = one.apply(plan)
    assert served(one) != before
    assert report.exit_code == ExitCode.PARTLY
    assert [result.outcome for result in report.results if result.partition == folder] == [
        "failed",
        "committed",
    ]


def test_what_was_finished_is_told_although_there_is_no_room_for_the_rest(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, plan, folder = half_done(memory_dir)
    before = served(one)
    monkeypatch.setattr("krepair.ops.apply.check_fits", no_room)
    report = one.apply(plan)
    assert served(one) != before
    assert report.exit_code == ExitCode.PARTLY
    assert {result.why for result in report.results if result.outcome == "failed"} == {"there is no room"}
    assert folder in {result.partition for result in report.results if result.outcome == "committed"}


def test_while_a_fence_stands_another_partition_is_changed_and_nothing_is_lost(memory_dir: Path) -> None:
    """The second plan cuts a torn tail in an active segment, which is what a broker's start does, too."""
    before = served(fresh(memory_dir / "before")[0])
    one, plan, folder = half_done(memory_dir)
    other = next(part.folder for part in plan.partitions if part.changes and part.folder != folder)
    log = sorted((one.path / other).glob("*.log"))[-1]
    with log.open("ab") as file:
        file.write(b"\0" * 7 + b"torn")
    tail = one.plan(fixes=("tail",), partitions=((other.rpartition("-")[0], int(other.rpartition("-")[2])),))
    assert one.apply(tail).exit_code == ExitCode.DONE
    assert list(one.path.glob("*/krepair~*/fence"))
    assert one.undo(tail).exit_code == ExitCode.DONE
    assert one.undo(plan).exit_code == ExitCode.DONE
    root = served(one)
    assert (root[MARKER], root[POINTS]) == (before[MARKER], before[POINTS])


@pytest.mark.parametrize("fail_at", [7, 19])
def test_what_stays_half_done_names_the_command_that_ends_it(memory_dir: Path, fail_at: int) -> None:
    one, plan = fresh(memory_dir / "logs")
    assert one.apply(plan).exit_code == ExitCode.DONE
    failed = one.undo(plan, FailingDisk(RealDisk(), fail_at, errno.EIO, kinds={"rename"}))
    assert (failed.exit_code, str(failed.next_command)) == (ExitCode.PARTLY, "krepair undo PLAN")
    over_it = one.apply(plan)
    assert (over_it.exit_code, str(over_it.next_command)) == (ExitCode.PARTLY, "krepair undo PLAN"), (
        over_it.results
    )
    assert one.undo(plan).exit_code == ExitCode.DONE


def test_applied_twice_does_nothing_the_second_time_and_undone_it_applies_again(memory_dir: Path) -> None:
    one, plan = fresh(memory_dir / "once")
    before = tree(one.path)
    one.apply(plan)
    applied = served(one)
    again = one.apply(plan)
    assert (again.exit_code, {o for each in outcomes(again).values() for o in each}) == (0, {"already"})
    assert again.bytes_freed == 0
    assert served(one) == applied
    one.undo(plan)
    assert tree(one.path) == before
    assert one.apply(plan).exit_code == ExitCode.DONE
    assert served(one) == applied
