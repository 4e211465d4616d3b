"""A swap of the active segment: the fence watches its files, and krepair's own change of them is not a broker's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from krepair.options import Options
from krepair.plan.model import Plan
from tests.journal import txfixture
from tests.journal.scene import UnsyncedDisk
from tests.ops.pending import FOLDER, name, options
from tests.ops.scene import tree
from tests.ops.stops import each_stop

MARKER, POINTS = ".kafka_cleanshutdown", "recovery-point-offset-checkpoint"


def scene(root: Path) -> tuple[Path, Options, Plan]:
    """``t-0``, cleanly stopped, with a swap pending of its last segment alone."""
    txfixture.write_log_dir(root)
    (root / ".lock").touch()
    (root / MARKER).touch()
    log = root / FOLDER / name(400)
    shutil.copy2(log, f"{log}.swap")
    chosen = options()
    plan = make_plan(str(root), chosen)
    assert plan.commit.fence
    return root, chosen, plan


def of_the_root(root: Path) -> tuple[bool, bytes]:
    """Whether the clean-shutdown marker is there, and the recovery points."""
    return (root / MARKER).exists(), (root / POINTS).read_bytes()


def test_marker_and_recovery_point_come_back_after_apply_and_after_undo(tmp_path: Path) -> None:
    root, chosen, plan = scene(tmp_path / "logs")
    before, root_before = tree(root), of_the_root(root)
    assert apply(plan, chosen).exit_code == ExitCode.DONE
    assert not (root / FOLDER / f"{name(400)}.swap").exists()
    assert of_the_root(root) == root_before
    assert undo(plan, chosen).exit_code == ExitCode.DONE
    assert tree(root) == before


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["apply", "undo"])
def test_marker_and_recovery_point_come_back_wherever_it_was_stopped(tmp_path: Path, verb: str) -> None:
    run = {"apply": apply, "undo": undo}[verb]
    for stop in each_stop():
        stops = stop.number
        root, chosen, plan = scene(tmp_path / str(stops))
        before, root_before = tree(root), of_the_root(root)
        if verb == "undo":
            apply(plan, chosen, disk=UnsyncedDisk())
        with stop as disk:
            run(plan, chosen, disk=disk)
        if not stop.happened:
            break
        if verb == "apply" and stops % 2:
            assert apply(plan, chosen, disk=UnsyncedDisk()).exit_code == ExitCode.DONE, stops
            assert of_the_root(root) == root_before, stops
        assert undo(plan, chosen, disk=UnsyncedDisk()).exit_code == ExitCode.DONE, stops
        assert tree(root) == before, stops
        shutil.rmtree(root)
    assert stops > 30
