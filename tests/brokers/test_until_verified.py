"""A real broker is started in the middle of an apply that frees what it has verified: krepair is killed, a broker
serves every record, then krepair goes on, or back.

All instants and versions: ``KREPAIR_EVERY_BROKER=1 make test ARGS=tests/brokers/test_until_verified.py``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.commit.kept import kept_report
from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from krepair.ops.verify import verify_log_dir
from krepair.plan.model import Plan
from tests.brokers.serving import PASSIVE, Ends, Records, ends_of, read_all_of, topics_of
from tests.durable.disks import Call, PassingDisk
from tests.lab import jars
from tests.lab.broker import Broker
from tests.ops.scene import Scene, scene

pytestmark = [pytest.mark.broker, pytest.mark.slow]

EVERY = os.environ.get("KREPAIR_EVERY_BROKER") == "1"
VERSIONS = jars.VERSIONS if EVERY else ("3.9.2",)


def _freed(call: Call) -> bool:
    return call.kind == "unlink" and "/keep/" in call.path


def _committed(call: Call) -> bool:
    return call.kind == "rename" and call.target.endswith(".log.swap")


INSTANTS: dict[str, tuple[Callable[[Call], bool], int]] = {
    "the first group has just been committed": (_committed, 1),
    "the originals of the first group are half freed": (_freed, 2),
    "the second group has just been committed": (_committed, 2),
    "the third group has just been committed": (_committed, 3),
}
"""What has happened -> the last call of the process, and the how many of its kind it is."""


class KillingDisk(PassingDisk):
    """The process gets SIGKILL right after a call."""

    def __init__(self, is_it: Callable[[Call], bool], number: int) -> None:
        super().__init__(RealDisk())
        self.is_it = is_it
        self.left = number

    def _before(self, call: Call) -> None:
        return

    def _after(self, call: Call) -> None:
        self.left -= self.is_it(call)
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)


def killed_apply(one: Scene, plan: Plan, instant: str) -> None:
    """An apply in a process of its own that is killed."""
    child = os.fork()
    if not child:
        try:
            one.apply(plan, KillingDisk(*INSTANTS[instant]))
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, instant


def served(version: str, log_dir: Path, ends: Ends) -> Records:
    """What a broker that is started there serves, up to where the directory ended; then it is stopped."""
    with Broker(version, log_dir, PASSIVE, topics_of(log_dir)) as broker:
        records = read_all_of(broker, ends)
        broker.stop()
    return records


CASES = [
    pytest.param(version, instant, verb, id=f"{version}, {instant}, then {verb}")
    for version in VERSIONS
    for instant in INSTANTS
    for verb in ("apply", "undo")
    if EVERY or (instant, verb) == ("the originals of the first group are half freed", "apply")
]


@pytest.mark.parametrize(("version", "instant", "verb"), CASES)
def test_killed_while_it_frees_a_broker_serves_everything_and_the_next_run_keeps_it(
    tmp_path: Path, version: str, instant: str, verb: str
) -> None:
    one = scene(tmp_path, settings={"segment.bytes": "1500", "delete.retention.ms": "1000"})
    ends = ends_of(one.path)
    (tmp_path / "whole").mkdir()
    before = served(version, scene(tmp_path / "whole").path, ends)
    assert any(before.values())
    plan = one.plan(keep="until-verified", broker_version=version)
    assert max(len(partition.changes) for partition in plan.partitions) == 2
    killed_apply(one, plan, instant)
    assert served(version, one.path, ends) == before
    report = {"apply": apply, "undo": undo}[verb](plan, one.options(broker_version=version))
    assert report.exit_code in {ExitCode.DONE, ExitCode.PARTLY, ExitCode.STALE_PLAN, ExitCode.REFUSED}, report
    # A start under the fence has rebuilt the indexes of the groups to come, so that the plan is stale for them.
    why = " ".join(one.why for one in report.results)
    expected = ("changed since the plan", "were freed", "no journal of this plan is here")
    assert report.exit_code == ExitCode.DONE or any(words in why for words in expected), report
    assert not EVERY or served(version, one.path, ends) == before
    # Whatever is left of the first plan ends, and another one brings the rest.
    assert apply(plan, one.options()).exit_code is not ExitCode.BUG
    undo(plan, one.options())
    assert purge(plan, one.options()).exit_code is ExitCode.DONE
    assert kept_report(str(one.path), one.now_ms).plans == ()
    again = one.plan(keep="until-verified", broker_version=version)
    assert apply(again, one.options(broker_version=version)).exit_code is ExitCode.DONE
    assert purge(again, one.options()).exit_code is ExitCode.DONE
    assert verify_log_dir(str(one.path), one.options()).problems == ()
    assert served(version, one.path, ends) == before
