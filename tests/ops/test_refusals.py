"""What apply, plan and undo refuse as a whole, and that nothing is changed then; half-done partitions go on."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from dataclasses import replace as with_options
from pathlib import Path

import pytest

from krepair.commit.reports import ApplyReport
from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode, KrepairError, LockedError, RefusedError, StalePlanError, UnreadableError
from krepair.ops import apply as apply_module
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from krepair.options import Options
from krepair.plan.model import Plan
from tests.durable.disks import FailingDisk, RecordingDisk, SimulatedCrash, StoppingDisk
from tests.lab.broker import Broker
from tests.ops.journeys import built
from tests.ops.scene import TV2, Scene, scene, tree
from tools.torture.resealed import changed
from tools.torture.scenes import Placed, look, visible
from tools.torture.scenes import Scene as TortureScene


@pytest.fixture
def one(memory_dir: Path) -> Scene:
    return scene(memory_dir, TV2)


def test_forged_plan_with_a_good_seal_is_refused_by_the_review(one: Scene) -> None:
    plan = one.plan()
    number = next(number for number, part in enumerate(plan.partitions) if part.changes)
    forged = changed(plan, [(("partitions", number, "changes", 0, "mtime_ns"), 5)])
    assert forged is not None
    before = tree(one.path)
    for verb in (one.apply, one.undo):
        with pytest.raises(RefusedError, match="the review of the plan objects"):
            verb(forged)
    assert tree(one.path) == before


def test_plan_of_a_directory_that_is_not_there_is_refused(one: Scene, memory_dir: Path) -> None:
    plan = one.plan()
    moved = memory_dir / "moved"
    one.path.rename(moved)
    with pytest.raises(StalePlanError, match="Is the disk mounted"):
        one.apply(plan)
    moved.rename(one.path)
    assert one.apply(plan).exit_code == ExitCode.DONE


@pytest.mark.broker
@pytest.mark.slow
def test_running_broker_is_named_with_its_pid_and_nothing_is_changed(tmp_path: Path) -> None:
    from tests.brokers.serving import PASSIVE, topics_of

    one = scene(tmp_path)
    plan = one.plan()
    with Broker("2.2.1", one.path, PASSIVE, topics_of(one.path)) as broker:
        assert broker._process is not None
        pid = str(broker._process.pid)
        for verb in (
            one.plan,
            lambda: one.apply(plan),
            lambda: one.undo(plan),
        ):
            with pytest.raises(LockedError) as refused:
                verb()  # type: ignore[operator]
            assert refused.value.exit_code == ExitCode.LOCKED
            assert pid in refused.value.message
        assert not list(one.path.glob("*/krepair~*"))


def test_no_plan_is_made_of_a_path_that_a_plan_cannot_hold(memory_dir: Path) -> None:
    named = memory_dir / os.fsdecode(b"a\xff")
    named.mkdir()
    path = scene(named, TV2).path
    with pytest.raises(RefusedError, match=r"this path is not UTF-8 \(character \d+\).*mount --bind"):
        make_plan(str(path), Options(engine="inline"))


# -- Half-done partitions: several groups, several partitions and fences at once, and the same command ends right.
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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_partition_that_is_a_mount_point_cannot_have_the_fence(memory_dir: Path) -> None:
    """Nothing can be renamed into it from the root, so ``plan`` says so, and ``apply`` and ``undo`` do not begin."""
    made, other = built("partitions"), "b-1"
    placed = made.place(memory_dir)
    folder = placed.path / other
    why = re.escape(f"{folder}: is a mount point of its own")

    def refused(report: ApplyReport) -> bool:
        results = [result for result in report.results if result.partition == other and result.failed]
        return results[0].exit_code == ExitCode.REFUSED and bool(re.match(why, results[0].why))

    subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
    try:
        before = visible(look(folder))
        planned = make_plan(str(placed.path), made.options)
        part = next(part for part in planned.partitions if part.folder == other)
        assert (part.code, part.changes) == ("not-begun", ())
        assert re.match(why, part.why)
        assert refused(apply(placed.plan, made.options))
        assert visible(look(folder)) == before
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    assert apply(placed.plan, made.options).exit_code == ExitCode.DONE
    subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
    try:
        before = visible(look(folder))
        assert refused(undo(placed.plan, made.options))
        assert visible(look(folder)) == before
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    assert undo(placed.plan, made.options).exit_code == ExitCode.DONE


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


# -- What apply refuses as a whole leaves nothing of krepair's own in the log directory.

NAMES = ("keys", "markers", "indexes")


@pytest.fixture(params=NAMES)
def placed(request: pytest.FixtureRequest, memory_dir: Path) -> tuple[TortureScene, Placed]:
    scenario = built(request.param)
    return scenario, scenario.place(memory_dir)


@pytest.mark.parametrize("where", ["in the log directory", "not there"])
def test_a_scratch_folder_that_will_not_do(
    where: str, placed: tuple[TortureScene, Placed], tmp_path: Path
) -> None:
    scenario, site = placed
    before = look(site.path)
    scratch = site.path if where == "in the log directory" else tmp_path / "missing"
    with pytest.raises(KrepairError) as refused:
        apply(site.plan, with_options(scenario.options, scratch=str(scratch)))
    assert refused.value.exit_code is ExitCode.REFUSED
    assert look(site.path) == before


def test_what_stops_the_whole_plan_after_all_was_staged(
    placed: tuple[TortureScene, Placed], monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, site = placed
    real, before = apply_module.stage_all, look(site.path)

    def staged(*given: object) -> None:
        real(*given)  # type: ignore[arg-type]
        raise UnreadableError("a worker is gone")

    monkeypatch.setattr(apply_module, "stage_all", staged)
    with pytest.raises(UnreadableError):
        apply(site.plan, scenario.options)
    assert look(site.path) == before
    (report,) = check([str(site.path)], scenario.options).log_dirs
    assert "KR901" not in {finding.rule for finding in report.findings}
    monkeypatch.undo()
    assert apply(site.plan, scenario.options).exit_code is ExitCode.DONE
