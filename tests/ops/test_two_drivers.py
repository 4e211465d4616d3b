"""Two krepairs at once on one log directory: the second is refused at any point; a killed one keeps nobody out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode, LockedError
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.options import Options
from krepair.plan.model import Plan
from krepair.plan.planfile import write_plan
from tests.lab.waiting import LIMIT_S
from tests.ops.replicas_read import broker, verbs, whole
from tests.ops.scene import tree
from tests.ops.stops import EVERY_CALL

pytestmark = pytest.mark.replicas
ROOT = Path(__file__).parents[2]
FIRST_DRIVER = """
import sys
from krepair.ops.{verb} import {verb}
from krepair.plan.planfile import read_plan
from krepair.options import EngineName, Options
from tests.durable.disks import FILE_CHANGING, PassingDisk
from tests.commit.scene import UnsyncedDisk

class Pausing(PassingDisk):
    seen = 0

    def _before(self, call):
        Pausing.seen += call.kind in FILE_CHANGING
        if call.kind in FILE_CHANGING and Pausing.seen == int(sys.argv[2]):
            print("here", flush=True)
            sys.stdin.readline()

report = {verb}(read_plan(sys.argv[1]), Options(engine=EngineName.INLINE), disk=Pausing(UnsyncedDisk()))
print(int(report.exit_code), flush=True)
"""


class Scene:
    """One log directory, its plan, and another plan for it."""

    def __init__(self, root: Path) -> None:
        self.log_dir = broker(root, 1, whole())
        self.given: Options = verbs(root, "compact", only_replica=("*",)).given
        self.plan = make_plan(str(self.log_dir), self.given)
        self.other = make_plan(str(self.log_dir), replace(self.given, merge=False, keep="until-verified"))
        assert self.plan.plan_id != self.other.plan_id
        self.path = root / "first.krplan"
        write_plan(str(self.path), self.plan, RealDisk())

    @contextmanager
    def first_driver(self, verb: str, at: int) -> Iterator[subprocess.Popen[str]]:
        """Another process, which waits before its call number ``at``."""
        argv = [sys.executable, "-c", FIRST_DRIVER.format(verb=verb), str(self.path), str(at)]
        with subprocess.Popen(
            argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "here\n"
            yield process
            process.kill()

    def second_is_refused(self) -> None:
        """Whatever the second one is told to do."""
        there = tree(self.log_dir)
        second: tuple[tuple[Callable[..., object], Plan], ...] = (
            (apply, self.plan),
            (apply, self.other),
            (undo, self.plan),
            (undo, self.other),
            (purge, self.plan),
        )
        for verb, plan in second:
            with pytest.raises(LockedError, match="another krepair is at work here"):
                verb(plan, self.given)
        assert tree(self.log_dir) == there


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def without_lock(log_dir: Path) -> dict[str, object]:
    return {name: row for name, row in tree(log_dir, private=False).items() if name != ".lock"}


@pytest.mark.parametrize("at", [8, 2, 14] if EVERY_CALL else [8])
def test_the_second_is_refused_and_the_first_ends_as_if_it_was_alone(scene: Scene, at: int) -> None:
    before = without_lock(scene.log_dir)
    with scene.first_driver("apply", at) as first:
        scene.second_is_refused()
        said, _ = first.communicate("\n", timeout=LIMIT_S)
        assert said == "0\n"
    assert verify_plan(scene.plan, scene.given).exit_code is ExitCode.DONE
    assert undo(scene.plan, scene.given).exit_code is ExitCode.DONE
    assert without_lock(scene.log_dir) == before


@pytest.mark.parametrize("at", [8, 2, 14] if EVERY_CALL else [8])
def test_where_the_first_was_killed_the_second_goes_on_at_once(scene: Scene, at: int) -> None:
    before = without_lock(scene.log_dir)
    with scene.first_driver("apply", at) as first:
        first.kill()
        first.wait(LIMIT_S)
        assert apply(scene.plan, scene.given).exit_code is ExitCode.DONE
    assert verify_plan(scene.plan, scene.given).exit_code is ExitCode.DONE
    assert undo(scene.plan, scene.given).exit_code is ExitCode.DONE
    assert without_lock(scene.log_dir) == before


def test_an_undo_keeps_the_second_out_as_an_apply_does(scene: Scene) -> None:
    before = without_lock(scene.log_dir)
    assert apply(scene.plan, scene.given).exit_code is ExitCode.DONE
    with scene.first_driver("undo", 3) as first:
        scene.second_is_refused()
        said, _ = first.communicate("\n", timeout=LIMIT_S)
        assert said == "0\n"
    assert without_lock(scene.log_dir) == before
