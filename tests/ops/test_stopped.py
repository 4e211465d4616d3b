"""Verbs that were stopped, or of which a call failed, on every kind of change: the next run ends as without it.

At calls that tell something new; at every call of all scenes with ``KREPAIR_EVERY_CALL=1``.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import pytest

from krepair.durable import medium
from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode, KrepairError
from tests.durable.disks import ALL_KINDS, FailingDisk, SimulatedCrash, StoppingDisk
from tests.ops.journeys import EVERY_SCENE, OWN, Journey, scene_of
from tests.ops.stops import EVERY_CALL, telling_stops
from tools.torture.scenes import FREEING, ONE_BARRIER, look, private

IN_THE_GATE = (
    "markers",
    "without-fence-2.2",
    "without-fence-3.9",
    "indexes",
    "derived",
    "leftovers",
    "removals",
    "tail-cut",
    "excise",
    "set-aside",
    "forgotten",
    "forgotten-and-recovery",
    "swap-of-active",
    "swap-before-3.0",
    "swap-over-damage",
)
NAMES = EVERY_SCENE if EVERY_CALL else IN_THE_GATE
FREED = FREEING if EVERY_CALL else ("markers~auto", "xattrs-and-tail~until-verified")
ONCE, FOR_EVER = (errno.EIO, False), (errno.ENOSPC, True)
FAILING = [
    *((name, fault) for name in ("tail-cut", "set-aside") for fault in (ONCE, FOR_EVER)),
    *((name, ONCE) for name in ("markers", "removals", "recovery~one-barrier")),
]


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
