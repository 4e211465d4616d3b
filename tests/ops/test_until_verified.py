"""``plan --keep until-verified``: each group is verified and freed before the next one is begun, whatever stops it.

Stopped at calls that tell something new. All scenes, at every call: ``KREPAIR_EVERY_CALL=1 make test
ARGS=tests/ops/test_until_verified.py``.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode
from krepair.journal.actions.table import action_for
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import read_partition
from krepair.ops.apply import apply
from krepair.ops.kept import kept_report
from krepair.ops.purge import purge
from krepair.ops.reports import ApplyReport
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.plan.keep import is_freed_by_apply
from krepair.plan.model import FreeWhenVerified, KeepOriginal, RewriteSegments
from tests.durable.disks import FILE_CHANGING, Call, RecordingDisk, SimulatedCrash, StoppingDisk
from tests.ops.stops import telling_stops
from tools.torture.scenes import (
    FREEING,
    Placed,
    Scene,
    Tree,
    build,
    differences,
    look,
    private,
    visible,
)

AT_EVERY_CALL = FREEING if os.environ.get("KREPAIR_EVERY_CALL") == "1" else FREEING[::3]


def run(verb: str, scene: Scene, placed: Placed, disk: object = None) -> ApplyReport:
    verbs = {"apply": apply, "undo": undo, "purge": purge}
    return verbs[verb](placed.plan, scene.options, disk=disk)  # type: ignore[operator, no-any-return]


def seen(placed: Placed) -> Tree:
    """What a broker sees."""
    return visible(look(placed.path))


def freed_wholly(scene: Scene) -> bool:
    return scene.plan.root is None and all(
        isinstance(change.undo, FreeWhenVerified)
        for partition in scene.plan.partitions
        for change in partition.changes
    )


def applied(scene: Scene, folder: Path) -> Tree:
    """What it has to come to: what a plan of the same that keeps all in place makes."""
    name = scene.name
    whole = build(name, scene.seed)
    placed = whole.place(folder)
    assert run("apply", whole, placed).exit_code == ExitCode.DONE
    return seen(placed)


class Place:
    """Fresh copies of a scene, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.number = 0

    def fresh(self, scene: Scene) -> Placed:
        shutil.rmtree(self.folder / str(self.number), ignore_errors=True)
        self.number += 1
        (self.folder / str(self.number)).mkdir()
        return scene.place(self.folder / str(self.number))


@pytest.fixture
def place(memory_dir: Path) -> Place:
    return Place(memory_dir)


def recorded(scene: Scene, placed: Placed) -> list[Call]:
    recording = RecordingDisk(RealDisk())
    assert run("apply", scene, placed, recording).exit_code == ExitCode.DONE
    return recording.calls


def calls_of(scene: Scene, placed: Placed) -> int:
    return sum(call.kind in FILE_CHANGING for call in recorded(scene, placed))


def check_prefix(scene: Scene, placed: Placed, before: Tree, after: Tree, where: object) -> None:
    """Of each partition the first changes are made, the others are not, and no file is anything else."""
    now = seen(placed)
    for name in sorted(now.keys() | before.keys() | after.keys()):
        assert now.get(name) in (before.get(name), after.get(name)), (where, name)
    for partition in scene.plan.partitions:
        made = []
        for change in partition.changes:
            names = [f"{partition.folder}/{name}" for name in action_for(change).told_by(change)]
            old = all(now.get(name) == before.get(name) for name in names)
            new = all(now.get(name) == after.get(name) for name in names)
            assert old or new, (where, change.change_id)
            if old != new:
                made.append(new)
        assert made == sorted(made, reverse=True), (where, partition.folder, made)


@pytest.mark.parametrize("name", FREEING)
def test_a_plan_that_frees_what_it_verified_makes_the_same_tree_and_leaves_only_what_was_lost_by_consent(
    place: Place, memory_dir: Path, name: str
) -> None:
    scene = build(name, seed=2)
    (memory_dir / "other").mkdir()
    expected = applied(scene, memory_dir / "other")
    placed = place.fresh(scene)
    report = run("apply", scene, placed)
    assert (report.exit_code, [one.why for one in report.results if one.why]) == (ExitCode.DONE, [])
    assert differences(seen(placed), expected) == ""
    kept = [entry for entry in private(look(placed.path)) if "/keep/" in entry]
    if freed_wholly(scene):
        assert private(look(placed.path)) == []
    assert verify_plan(placed.plan, scene.options).problems == ()
    assert run("apply", scene, placed).exit_code == ExitCode.DONE
    by_consent = [
        change for part in scene.plan.partitions for change in part.changes if not is_freed_by_apply(change)
    ]
    assert bool(kept) == bool(by_consent or scene.plan.root)
    assert run("purge", scene, placed).exit_code == ExitCode.DONE
    assert private(look(placed.path)) == []
    assert differences(seen(placed), expected) == ""


def test_groups_are_freed_and_what_is_lost_by_consent_is_kept() -> None:
    scene = build("xattrs-and-tail~until-verified")
    kinds = {type(change): type(change.undo) for part in scene.plan.partitions for change in part.changes}
    assert kinds[RewriteSegments] is FreeWhenVerified
    assert KeepOriginal in kinds.values()


@pytest.mark.slow
@pytest.mark.parametrize("name", AT_EVERY_CALL)
def test_stopped_at_any_call_it_goes_on_to_the_same_tree(place: Place, memory_dir: Path, name: str) -> None:
    scene = build(name)
    (memory_dir / "other").mkdir()
    expected = applied(scene, memory_dir / "other")
    for stop in telling_stops(recorded(scene, place.fresh(scene))):
        placed = place.fresh(scene)
        disk = StoppingDisk(RealDisk(), stop)
        with pytest.raises(SimulatedCrash):
            run("apply", scene, placed, disk)
        again = run("apply", scene, placed)
        assert again.exit_code == ExitCode.DONE, (stop, disk.stopped_at, again.results)
        assert differences(seen(placed), expected) == "", (stop, disk.stopped_at)
        assert not freed_wholly(scene) or private(look(placed.path)) == [], (stop, disk.stopped_at)


@pytest.mark.slow
@pytest.mark.parametrize("name", AT_EVERY_CALL)
def test_stopped_at_any_call_undo_goes_back_as_far_as_the_first_freed_change(
    place: Place, memory_dir: Path, name: str
) -> None:
    scene = build(name)
    (memory_dir / "other").mkdir()
    after = applied(scene, memory_dir / "other")
    codes = set()
    for stop in telling_stops(recorded(scene, place.fresh(scene))):
        placed = place.fresh(scene)
        before = seen(placed)
        disk = StoppingDisk(RealDisk(), stop)
        with pytest.raises(SimulatedCrash):
            run("apply", scene, placed, disk)
        where = (stop, disk.stopped_at)
        report = run("undo", scene, placed)
        codes.add(report.exit_code)
        if report.exit_code == ExitCode.DONE:
            assert differences(seen(placed), before) == "", where
        else:
            why = " ".join(one.why for one in report.results)
            assert "were freed" in why or "no journal of this plan is here" in why, (where, report.results)
            check_prefix(scene, placed, before, after, where)
        again = run("apply", scene, placed)
        assert again.exit_code == ExitCode.DONE, (where, again.results)
        assert differences(seen(placed), after) == "", where
    assert codes <= {ExitCode.DONE, ExitCode.PARTLY, ExitCode.REFUSED}
    assert len(codes) > 1


def test_a_partition_that_cannot_be_read_again_keeps_its_originals_and_the_next_apply_ends_right(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = build("everything~until-verified")
    placed = place.fresh(scene)
    whole = read_partition

    def broken(view: LogDir, folder: str) -> Partition | None:
        found = whole(view, folder)
        return found and found._replace(segments=(), unreadable=f"{folder}: Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("krepair.ops.apply.read_partition", broken)
        report = run("apply", scene, placed)
    assert report.exit_code == ExitCode.PARTLY
    assert "Input/output error; what it kept was not freed" in " ".join(one.why for one in report.results)
    assert run("apply", scene, placed).exit_code == ExitCode.DONE


def test_what_is_read_again_and_is_wrong_is_taken_back_and_nothing_is_freed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = build("markers~until-verified")
    placed = place.fresh(scene)
    before = seen(placed)
    groups = [change for part in scene.plan.partitions for change in part.changes]
    assert len(groups) > 1
    from krepair.ops.apply import _Apply

    real = _Apply._read_again
    second = groups[1].change_id

    def lying(self: _Apply, staging: object, changes: object) -> dict[str, str]:
        found = real(self, staging, changes)  # type: ignore[arg-type]
        return {second: "a bit is another"} if changes[0].change_id == second else found  # type: ignore[index]

    monkeypatch.setattr(_Apply, "_read_again", lying)
    report = run("apply", scene, placed)
    assert report.exit_code == ExitCode.PARTLY
    bad = next(one for one in report.results if one.change_id == second)
    assert (bad.outcome, bad.exit_code) == ("failed", ExitCode.VERIFY_FAILED)
    assert "a bit is another; its originals are back" in bad.why
    # undo would take away what is right, and refuse what is freed
    assert report.next_command == "krepair verify PLAN"
    now = seen(placed)
    ours = [f"b-0/{name}" for group in groups[1:] for name in action_for(group).told_by(group)]
    assert {name: now.get(name) for name in ours} == {name: before[name] for name in ours}
    monkeypatch.undo()
    assert run("apply", scene, placed).exit_code == ExitCode.DONE


def test_the_log_that_rots_on_the_disk_before_it_is_read_again_is_found_out(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from krepair.ops import apply as module

    scene = build("markers~until-verified")
    placed = place.fresh(scene)
    before = seen(placed)

    def rot(path: str, tree: object) -> None:
        if path.endswith(".log"):
            found = os.stat(path)
            with open(path, "r+b") as file:
                file.seek(70)
                file.write(b"\xff")
            os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))

    monkeypatch.setattr(module, "drop_from_cache", rot)
    report = run("apply", scene, placed)
    assert report.exit_code != ExitCode.DONE
    assert not any(one.outcome == "committed" for one in report.results)
    assert differences(seen(placed), before) == ""
    assert "its originals are back" in report.results[0].why


@pytest.mark.slow
@pytest.mark.parametrize("name", ["markers~until-verified", "everything~until-verified"])
def test_purged_in_the_middle_apply_goes_on_with_what_is_left(
    place: Place, memory_dir: Path, name: str
) -> None:
    scene = build(name)
    (memory_dir / "other").mkdir()
    expected = applied(scene, memory_dir / "other")
    calls = calls_of(scene, place.fresh(scene))
    for stop in range(5, calls, 7):
        placed = place.fresh(scene)
        with pytest.raises(SimulatedCrash):
            run("apply", scene, placed, StoppingDisk(RealDisk(), stop))
        run("undo", scene, placed)  # ends what is half done, and goes back as far as it can
        assert run("purge", scene, placed).exit_code == ExitCode.DONE, stop
        assert private(look(placed.path)) == [], stop
        again = run("apply", scene, placed)
        assert again.exit_code == ExitCode.DONE, (stop, again.results)
        assert differences(seen(placed), expected) == "", stop


def test_what_an_interrupted_run_freed_is_listed_as_not_to_be_undone(place: Place) -> None:
    scene = build("markers~until-verified")
    calls = calls_of(scene, place.fresh(scene))
    placed = place.fresh(scene)
    with pytest.raises(SimulatedCrash):
        run("apply", scene, placed, StoppingDisk(RealDisk(), calls * 3 // 4))
    run("undo", scene, placed)
    listed = kept_report(str(placed.path), scene.options.now_ms)
    assert [(one.plan_id, one.undo) for one in listed.plans] == [(placed.plan.plan_id, "no")]
    assert "were freed" in listed.plans[0].why_not
