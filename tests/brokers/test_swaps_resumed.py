"""A crash and a broker in the middle of completing a swap, or of taking that back: the next run ends right."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.undo import undo
from tests.brokers.swaps import CASES, scene
from tests.commit.scene import UnsyncedDisk
from tests.commit.states_disk import load, verdict
from tests.durable.disks import NAME_CHANGING
from tests.lab.jars import VERSIONS
from tests.lab.judge import Judge
from tests.ops.stops import EVERY_CALL, Stop, each_stop

pytestmark = [pytest.mark.broker, pytest.mark.slow]

JudgeOf = Callable[[str], Judge]


def stops_of(version: str) -> Iterator[Stop]:
    """Every call with ``KREPAIR_EVERY_CALL=1``; in the gate the versions take turns, each at every third one."""
    first, step = (1, 1) if EVERY_CALL else (1 + VERSIONS.index(version) % 3, 3)
    return each_stop(kinds=NAME_CHANGING, first=first, step=step)


@pytest.mark.parametrize(("order", "version"), CASES)
def test_after_a_crash_and_a_broker_at_any_call_apply_and_undo_end_with_the_new_records(
    judge: JudgeOf, tmp_path: Path, order: str, version: str
) -> None:
    """A broker that was killed after loading: what it did to the folder stays, the marker is gone."""
    ended: set[int] = set()
    for stop in stops_of(version):
        stops = stop.number
        root = tmp_path / str(stops)
        chosen, plan = scene(root, order, version)
        with stop as disk:
            apply(plan, chosen, disk=disk)
        if not stop.happened:
            break
        assert verdict(load(judge(version), root)) == "NEW", stops
        (root / ".kafka_cleanshutdown").unlink(missing_ok=True)
        # With an odd number it is taken back instead: what the broker finished stays, and is read.
        report = (undo if stops % 2 else apply)(plan, chosen, disk=UnsyncedDisk())
        ended.add(int(report.exit_code))
        copy = tmp_path / "copy"
        shutil.copytree(root, copy)
        assert verdict(load(judge(version), copy)) == "NEW", (stops, report)
        shutil.rmtree(copy)
        shutil.rmtree(root)
    # Refused: nothing had been kept yet, and the broker finished what was pending: there is nothing to put back.
    assert ended <= {
        int(code) for code in (ExitCode.DONE, ExitCode.STALE_PLAN, ExitCode.PARTLY, ExitCode.REFUSED)
    }
    assert stops > 25


@pytest.mark.parametrize(("order", "version"), CASES)
def test_after_a_crash_and_a_broker_at_any_call_of_undo_the_new_records_are_served(
    judge: JudgeOf, tmp_path: Path, order: str, version: str
) -> None:
    refused = 0
    for stop in stops_of(version):
        stops = stop.number
        root = tmp_path / str(stops)
        chosen, plan = scene(root, order, version)
        apply(plan, chosen, disk=UnsyncedDisk())
        with stop as disk:
            undo(plan, chosen, disk=disk)
        if not stop.happened:
            break
        assert verdict(load(judge(version), root)) == "NEW", stops
        (root / ".kafka_cleanshutdown").unlink(missing_ok=True)
        report = undo(plan, chosen, disk=UnsyncedDisk())
        # Refused: the undo was over but for its folder, and the broker finished what was pending again.
        allowed = {ExitCode.DONE, ExitCode.STALE_PLAN, ExitCode.PARTLY, ExitCode.REFUSED}
        assert int(report.exit_code) in {int(code) for code in allowed}, (stops, report)
        refused += report.exit_code == ExitCode.REFUSED
        assert verdict(load(judge(version), root)) == "NEW", (stops, report)
        shutil.rmtree(root)
    assert stops > 25
    assert refused <= 2
