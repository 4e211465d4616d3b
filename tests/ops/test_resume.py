"""Apply and undo of a whole real log directory, stopped at many calls and run again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode
from krepair.ops.verify import verify_plan
from krepair.plan.model import Plan
from tests.durable.disks import FILE_CHANGING, RecordingDisk, SimulatedCrash, StoppingDisk
from tests.ops.scene import TV2, Scene, outcomes, scene, tree
from tests.ops.stops import stops


def result(one: Scene) -> dict[str, tuple[object, ...]]:
    """What a broker sees, without krepair's own sub-folders and an empty ``.lock`` that a crash leaves."""
    return {name: row for name, row in tree(one.path, private=False).items() if name != ".lock"}


def fresh(root: Path) -> tuple[Scene, Plan]:
    """A copy and its plan; each copy has its own, since a plan names inodes."""
    one = scene(root, TV2)
    return one, one.plan()


@pytest.mark.slow
def test_apply_stopped_at_a_call_and_run_again_ends_at_the_same_tree(memory_dir: Path) -> None:
    one, plan = fresh(memory_dir / "whole")
    recording = RecordingDisk(RealDisk())
    assert one.apply(plan, recording).exit_code == ExitCode.DONE
    expected = result(one)
    calls = sum(call.kind in FILE_CHANGING for call in recording.calls)
    assert calls > 60
    resumed: set[str] = set()
    for stop in stops(calls):
        one, plan = fresh(memory_dir / str(stop))
        disk = StoppingDisk(RealDisk(), stop)
        with pytest.raises(SimulatedCrash):
            one.apply(plan, disk)
        again = one.apply(plan)
        assert again.exit_code == ExitCode.DONE, (disk.stopped_at, again.results)
        resumed |= {outcome for each in outcomes(again).values() for outcome in each}
        assert result(one) == expected, disk.stopped_at
        assert verify_plan(plan, one.options(originals=True)).problems == (), disk.stopped_at
        shutil.rmtree(memory_dir / str(stop))
    assert resumed == {"committed", "already"}


@pytest.mark.slow
def test_undo_stopped_at_a_call_and_run_again_gives_every_byte_and_time_back(memory_dir: Path) -> None:
    one, plan = fresh(memory_dir / "whole")
    before = tree(one.path)
    one.apply(plan)
    recording = RecordingDisk(RealDisk())
    assert one.undo(plan, recording).exit_code == ExitCode.DONE
    assert tree(one.path) == before
    calls = sum(call.kind in FILE_CHANGING for call in recording.calls)
    assert calls > 20
    for stop in stops(calls):
        one, plan = fresh(memory_dir / str(stop))
        before = result(one)
        one.apply(plan)
        disk = StoppingDisk(RealDisk(), stop)
        with pytest.raises(SimulatedCrash):
            one.undo(plan, disk)
        again = one.undo(plan)
        assert again.exit_code == ExitCode.DONE, (disk.stopped_at, again.results)
        assert result(one) == before, disk.stopped_at
        assert not list(one.path.glob("*/krepair~*")), disk.stopped_at
        shutil.rmtree(memory_dir / str(stop))


@pytest.mark.slow
def test_apply_stopped_at_a_call_can_be_undone_instead(memory_dir: Path) -> None:
    one, plan = fresh(memory_dir / "whole")
    recording = RecordingDisk(RealDisk())
    one.apply(plan, recording)
    calls = sum(call.kind in FILE_CHANGING for call in recording.calls)
    for stop in stops(calls, 12):
        one, plan = fresh(memory_dir / str(stop))
        before = result(one)
        with pytest.raises(SimulatedCrash):
            one.apply(plan, StoppingDisk(RealDisk(), stop))
        one.undo(plan)
        assert result(one) == before, stop
        shutil.rmtree(memory_dir / str(stop))


def test_applied_twice_does_nothing_the_second_time_and_undone_it_applies_again(memory_dir: Path) -> None:
    one, plan = fresh(memory_dir / "once")
    before = tree(one.path)
    one.apply(plan)
    applied = result(one)
    again = one.apply(plan)
    assert (again.exit_code, {o for each in outcomes(again).values() for o in each}) == (0, {"already"})
    assert again.bytes_freed == 0
    assert result(one) == applied
    one.undo(plan)
    assert tree(one.path) == before
    assert one.apply(plan).exit_code == ExitCode.DONE
    assert result(one) == applied
