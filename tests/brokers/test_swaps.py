"""Kafka's own loader at every instant of completing a pending swap and of taking that back: always the new records."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.options import Options
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from krepair.plan.model import CompleteSwap, Plan
from tests.durable.disks import NAME_CHANGING, SimulatedCrash, StoppingDisk
from tests.journal.scene import UnsyncedDisk, tree
from tests.journal.test_commit_broker import StatesDisk, load, verdict, verdicts
from tests.lab.judge import Judge
from tests.ops import pending
from tests.ops.pending import FOLDER, options
from tests.ops.scene import part

pytestmark = [pytest.mark.broker, pytest.mark.slow]

VERSIONS = ("2.2.1", "3.9.2", "4.3.1")
JudgeOf = Callable[[str], Judge]
CASES = [pytest.param("fenced", version, id=f"fenced, {version}") for version in VERSIONS] + [
    pytest.param("by version", version, id=f"by version, {version}") for version in VERSIONS
]


def scene(root: Path, order: str, version: str) -> tuple[Options, Plan]:
    """M pending over 100 and 300, with 200 already set aside; without the fence where damage is in reach."""
    pending.write(root, deleted=(200,), damage_elsewhere=order != "fenced")
    chosen = options(broker_version="" if order == "fenced" else version, partitions=(("t", 0),))
    plan = make_plan(str(root), chosen)
    assert next(type(change) for change in part(plan, FOLDER).changes) is CompleteSwap
    assert plan.commit.fence is (order == "fenced")
    return chosen, plan


@pytest.mark.parametrize("version", VERSIONS)
def test_every_broker_finishes_the_pending_swap_itself_to_the_new_records(
    judge: JudgeOf, tmp_path: Path, version: str
) -> None:
    root = pending.write(tmp_path / "logs", deleted=(200,))
    assert verdict(load(judge(version), root)) == "NEW"


@pytest.mark.parametrize(("order", "version"), CASES)
def test_a_broker_started_at_any_instant_of_apply_or_undo_serves_the_new_records(
    judge: JudgeOf, tmp_path: Path, order: str, version: str
) -> None:
    root = tmp_path / "logs"
    chosen, plan = scene(root, order, version)
    before = tree(root)
    disk = StatesDisk(root, tmp_path / "apply")
    assert apply(plan, chosen, disk=disk).exit_code == ExitCode.DONE
    found = verdicts(judge(version), disk)
    assert {state: said for state, said in found.items() if said != "NEW"} == {}
    assert len(found) >= 15
    disk = StatesDisk(root, tmp_path / "undo")
    assert undo(plan, chosen, disk=disk).exit_code == ExitCode.DONE
    found = verdicts(judge(version), disk)
    assert {state: said for state, said in found.items() if said != "NEW"} == {}
    assert len(found) >= 15
    assert before == tree(root)


@pytest.mark.parametrize(("order", "version"), CASES)
def test_after_a_crash_and_a_broker_at_any_call_apply_and_undo_end_with_the_new_records(
    judge: JudgeOf, tmp_path: Path, order: str, version: str
) -> None:
    """A broker that was killed after loading: what it did to the folder stays, the marker is gone."""
    stops = 0
    ended: set[int] = set()
    while True:
        stops += 1
        root = tmp_path / str(stops)
        chosen, plan = scene(root, order, version)
        try:
            apply(plan, chosen, disk=StoppingDisk(UnsyncedDisk(), stops, NAME_CHANGING))
            break
        except SimulatedCrash:
            pass
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
    assert ended <= {int(ExitCode.DONE), int(ExitCode.STALE_PLAN), int(ExitCode.PARTLY)}
    assert stops > 25
