"""Verbs that were stopped, or of which a call failed, on every kind of change: the next run ends as without it."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import pytest

from krepair.commit.by_disk import telling
from krepair.commit.kept import kept_report
from krepair.durable import medium
from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode, KrepairError
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import read_partition
from krepair.ops.verify import verify_plan
from krepair.plan.keep import is_freed_by_apply
from krepair.plan.model import FreeWhenVerified, KeepOriginal, RewriteSegments
from tests.durable.disks import ALL_KINDS, FILE_CHANGING, FailingDisk, SimulatedCrash, StoppingDisk
from tests.ops.journeys import EVERY_SCENE, OWN, Journey, built, scene_of, seen
from tests.ops.stops import EVERY_CALL, telling_stops
from tools.torture.scenes import FREEING, ONE_BARRIER, differences, look, private

IN_THE_GATE = ("without-fence-2.2", "forgotten-and-recovery", "set-aside", "swap-over-damage")
"""One of each order of commit, with the root and without: of each kind of change ``commit/test_every_kind`` is the
proof, and ``torture`` kills whole verbs of the other scenes."""

NAMES = EVERY_SCENE if EVERY_CALL else IN_THE_GATE
FREED = FREEING if EVERY_CALL else ("xattrs-and-tail~until-verified",)
ONCE, FOR_EVER = (errno.EIO, False), (errno.ENOSPC, True)
FAILING = [("tail-cut", ONCE), ("set-aside", FOR_EVER), ("recovery~one-barrier", ONCE)]


@pytest.fixture
def journey(request: pytest.FixtureRequest, memory_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Journey:
    if request.param in ONE_BARRIER:
        monkeypatch.setattr(medium, "MANY", 1)
    return Journey(request.param, memory_dir)


@pytest.mark.slow
@pytest.mark.parametrize("then", ["apply", "undo"])
@pytest.mark.parametrize("journey", [*NAMES, *FREED], indirect=True)
def test_a_stopped_apply_goes_on_or_is_taken_back(journey: Journey, then: str) -> None:
    undone = set()
    told = telling_stops(journey.calls["apply"])
    # What follows a stop is tried in turns: after one apply, after the next one undo.
    for stop in told if EVERY_CALL or journey.frees else told[then == "undo" :: 2]:
        placed = journey.fresh()
        disk = StoppingDisk(RealDisk(), stop)
        with pytest.raises(SimulatedCrash):
            journey.run("apply", placed, disk)
        where = (stop, disk.stopped_at)
        journey.check_old_or_new(placed, where)
        if then == "apply":
            journey.ends("apply", placed, where)
            if journey.frees == "":
                journey.ends("undo", placed, where)
        else:
            undone.add(journey.undo_as_far_as_it_goes(placed, where))
            if journey.frees:
                journey.ends("apply", placed, where)
    assert len(undone) > 1 or not (journey.frees and undone)


@pytest.mark.slow
@pytest.mark.parametrize("journey", FREED, indirect=True)
def test_where_originals_are_freed_a_stopped_apply_may_be_purged_and_goes_on(journey: Journey) -> None:
    for stop in telling_stops(journey.calls["apply"])[:: 1 if EVERY_CALL else 3]:
        placed = journey.fresh()
        with pytest.raises(SimulatedCrash):
            journey.run("apply", placed, StoppingDisk(RealDisk(), stop))
        journey.run("undo", placed)  # ends what is half done, and goes back as far as it can
        assert journey.run("purge", placed).exit_code == ExitCode.DONE, stop
        assert private(look(placed.path)) == [], stop
        journey.ends("apply", placed, stop)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["undo", "purge"])
@pytest.mark.parametrize("journey", NAMES, indirect=True)
def test_a_stopped_undo_or_purge_goes_on(journey: Journey, verb: str) -> None:
    for stop in telling_stops(journey.calls[verb]):
        placed = journey.applied()
        disk = StoppingDisk(RealDisk(), stop)
        with pytest.raises(SimulatedCrash):
            journey.run(verb, placed, disk)
        where = (stop, disk.stopped_at)
        journey.check_old_or_new(placed, where)
        journey.ends(verb, placed, where)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["apply", "undo"])
@pytest.mark.parametrize(
    ("journey", "fault"),
    FAILING,
    ids=[f"{name}, {errno.errorcode[number]}" for name, (number, _) in FAILING],
    indirect=["journey"],
)
def test_a_call_that_fails_is_told_and_the_next_run_ends_right(
    journey: Journey, fault: tuple[int, bool], verb: str
) -> None:
    number, forever = fault
    for fails in telling_stops(journey.calls[verb], ALL_KINDS):
        placed = journey.fresh() if verb == "apply" else journey.applied()
        disk = FailingDisk(RealDisk(), fails, number, forever=forever, kinds=ALL_KINDS)
        where = (fails, disk.failed)
        with contextlib.suppress(OSError, KrepairError):  # of the lock's file itself
            report = journey.run(verb, placed, disk)
            told = any(os.strerror(number) in one.why for one in report.results)
            assert told or report.exit_code == ExitCode.DONE, (where, report.results)
            if any("/fence" in call.path for call in disk.failed):
                assert report.exit_code != ExitCode.DONE, where
            if any(one.exit_code == ExitCode.PARTLY for one in report.results):  # something is half done
                assert str(report.next_command) == f"krepair {verb} PLAN", where
        assert disk.failed
        journey.ends(verb, placed, where)
        if verb == "apply":
            journey.ends("undo", placed, where)


def test_scenes_of_the_tests_alone_go_in_the_orders_that_they_are_there_for() -> None:
    commits = {name: scene_of(name).plan.commit for name in OWN}
    assert {name: (commit.order, commit.fence) for name, commit in commits.items()} == {
        "forgotten": ("P1", True),
        "forgotten-and-recovery": ("P1", True),
        "swap-of-active": ("P1", True),
        "swap-before-3.0": ("P1", False),
        "swap-over-damage": ("P2", False),
    }


# -- ``plan --keep until-verified``: each group is verified and freed before the next one is begun.

# Where it is stopped, ``test_stopped`` looks at each kind of call.


@pytest.fixture
def markers(memory_dir: Path) -> Journey:
    return Journey("markers~until-verified", memory_dir)


@pytest.mark.parametrize("name", FREEING)
def test_a_plan_that_frees_what_it_verified_makes_the_same_tree_and_leaves_only_what_was_lost_by_consent(
    memory_dir: Path, name: str
) -> None:
    expected = Journey(name.partition("~")[0], memory_dir / "other", seed=2).after
    journey = Journey(name, memory_dir, seed=2)
    assert differences(journey.after, expected) == ""
    scene, placed = journey.scene, journey.fresh()
    report = journey.run("apply", placed)
    assert (report.exit_code, [one.why for one in report.results if one.why]) == (ExitCode.DONE, [])
    kept = [entry for entry in private(look(placed.path)) if "/keep/" in entry]
    assert verify_plan(placed.plan, scene.options).problems == ()
    journey.ends("apply", placed, "once more")
    by_consent = [
        change for part in scene.plan.partitions for change in part.changes if not is_freed_by_apply(change)
    ]
    assert bool(kept) == bool(by_consent or scene.plan.root)
    journey.ends("purge", placed, "at last")


def test_groups_are_freed_and_what_is_lost_by_consent_is_kept() -> None:
    scene = built("xattrs-and-tail~until-verified")
    kinds = {type(change): type(change.undo) for part in scene.plan.partitions for change in part.changes}
    assert kinds[RewriteSegments] is FreeWhenVerified
    assert KeepOriginal in kinds.values()


def test_a_partition_that_cannot_be_read_again_keeps_its_originals_and_the_next_apply_ends_right(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journey = Journey("everything~until-verified", memory_dir)
    placed, whole = journey.fresh(), read_partition

    def broken(view: LogDir, folder: str) -> Partition | None:
        found = whole(view, folder)
        return found and found._replace(segments=(), unreadable=f"{folder}: Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("krepair.ops.apply.read_partition", broken)
        report = journey.run("apply", placed)
    assert report.exit_code == ExitCode.PARTLY
    assert "Input/output error; what it kept was not freed" in " ".join(one.why for one in report.results)
    journey.ends("apply", placed, "")


def test_what_is_read_again_and_is_wrong_is_taken_back_and_nothing_is_freed(
    markers: Journey, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed = markers.fresh()
    groups = [change for part in placed.plan.partitions for change in part.changes]
    assert len(groups) > 1
    from krepair.ops.apply import _Apply

    real = _Apply._read_again
    second = groups[1].change_id

    def lying(self: _Apply, staging: object, changes: object) -> dict[str, str]:
        found = real(self, staging, changes)  # type: ignore[arg-type]
        return {second: "a bit is another"} if changes[0].change_id == second else found  # type: ignore[index]

    with monkeypatch.context() as patch:
        patch.setattr(_Apply, "_read_again", lying)
        report = markers.run("apply", placed)
    assert report.exit_code == ExitCode.PARTLY
    bad = next(one for one in report.results if one.change_id == second)
    assert (bad.outcome, bad.exit_code) == ("failed", ExitCode.VERIFY_FAILED)
    assert "a bit is another; its originals are back" in bad.why
    # undo would take away what is right, and refuse what is freed
    assert str(report.next_command) == "krepair verify PLAN"
    now = seen(placed)
    ours = [f"b-0/{file.name}" for group in groups[1:] for file in telling(group)]
    assert {name: now.get(name) for name in ours} == {name: markers.before[name] for name in ours}
    markers.ends("apply", placed, "")


def test_the_log_that_rots_on_the_disk_before_it_is_read_again_is_found_out(
    markers: Journey, monkeypatch: pytest.MonkeyPatch
) -> None:
    from krepair.ops import apply as module

    placed = markers.fresh()

    def rot(path: str, tree: object) -> None:
        if path.endswith(".log"):
            found = os.stat(path)
            with open(path, "r+b") as file:
                file.seek(70)
                file.write(b"\xff")
            os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))

    monkeypatch.setattr(module, "drop_from_cache", rot)
    report = markers.run("apply", placed)
    assert report.exit_code != ExitCode.DONE
    assert not any(one.outcome == "committed" for one in report.results)
    assert differences(seen(placed), markers.before) == ""
    assert "its originals are back" in report.results[0].why


def test_what_an_interrupted_run_freed_is_listed_as_not_to_be_undone(markers: Journey) -> None:
    calls = sum(call.kind in FILE_CHANGING for call in markers.calls["apply"])
    placed = markers.fresh()
    with pytest.raises(SimulatedCrash):
        markers.run("apply", placed, StoppingDisk(RealDisk(), calls * 3 // 4))
    markers.run("undo", placed)
    listed = kept_report(str(placed.path), markers.scene.options.now_ms)
    assert [(one.plan_id, one.undo) for one in listed.plans] == [(placed.plan.plan_id, "no")]
    assert "were freed" in listed.plans[0].why_not
