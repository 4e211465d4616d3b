"""Two plans, or two krepairs, in one directory: no verb of one takes away what the other one needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from krepair.commit.kept import kept_report
from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode, KrepairError, LockedError, RefusedError
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.purge import purge, purge_by_id
from krepair.ops.undo import undo, undo_by_id
from krepair.ops.verify import verify_plan
from krepair.options import Options
from krepair.plan.model import Plan
from krepair.plan.objection import Objection
from krepair.plan.planfile import write_plan
from tests.builders import NOW_MS, LogDir, Record, commit, data
from tests.compaction.directories import Verbs, options
from tests.lab.waiting import LIMIT_S
from tests.ops.replica_scenes import EXPIRED, OLD
from tests.ops.replicas_read import broker, verbs, whole
from tests.ops.scene import tree
from tests.ops.stops import EVERY_CALL

pytestmark = pytest.mark.replicas
SWAP = f"t-0/{0:020d}.log.swap"
Planned = tuple[Plan, Options]


class Killed(RealDisk):
    """The process ends before or behind a call of one kind.

    Args:
        when: ``before`` or ``behind`` it.
        call: ``rename`` or ``link``.
        end: how its target ends, or its source if it begins with ``from``.
        number: which one of such calls.
    """

    def __init__(self, when: str, call: str, end: str, number: int = 1) -> None:
        super().__init__()
        self._when, self._call, self._left = when, call, number
        self._of_source, self._end = end.startswith("from "), end.removeprefix("from ")

    def rename(self, source: str, target: str) -> None:
        self._around("rename", source, target, super().rename)

    def link(self, source: str, target: str) -> None:
        self._around("link", source, target, super().link)

    def _around(self, call: str, source: str, target: str, real: Callable[[str, str], None]) -> None:
        counts = call == self._call and (source if self._of_source else target).endswith(self._end)
        self._left -= counts
        ends = counts and self._left == 0
        if ends and self._when == "before":
            os._exit(9)
        real(source, target)
        if ends:
            os._exit(9)


Disk = Callable[[], RealDisk]
AT_SWAP: Disk = partial(Killed, "before", "rename", ".log.swap")
BEFORE_ITS_NAME: Disk = partial(Killed, "before", "rename", "from .log.swap")
BEHIND_ITS_NAME: Disk = partial(Killed, "behind", "rename", "from .log.swap")  # before the old snapshots go
WHILE_KEEPING: Disk = partial(Killed, "before", "link", ".log", 3)
ALL_IS_STAGED: Disk = partial(Killed, "before", "rename", "/journal")


def run(verb: Callable[..., Any], planned: Planned, disk: Disk = RealDisk) -> int:
    """How a verb ends in a process of its own."""
    child = os.fork()
    if not child:
        try:
            code = int(verb(*planned, disk=disk()).exit_code)
        except KrepairError as error:
            code = int(error.exit_code)
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Four segments that are compacted, one that is not, and the active one."""
    made, offset = LogDir(tmp_path / "b1"), 0
    partition = made.partition("t", index_interval_bytes=200)
    for segment in range(4):
        batches = []
        for _ in range(3):
            batches += [
                data(offset, [Record(b"k%d" % (offset % 4), b"v")], timestamp=OLD),
                data(offset + 1, [Record(b"x", b"v")], pid=7 + segment, txn=True, timestamp=OLD),
                commit(offset + 2, pid=7 + segment, timestamp=OLD),
            ]
            offset += 3
        partition.segment(*batches, mtime_ms=OLD + segment * 1000)
    partition.segment(data(offset, [Record(b"late", b"1")], timestamp=OLD), mtime_ms=NOW_MS - 1000)
    partition.segment(data(offset + 1, [Record(b"active", b"1")]))
    return made.write()


class FailingSecond(RealDisk):
    """The first group is replaced, and then no other one can be."""

    def rename(self, source: str, target: str) -> None:
        if target.endswith(".log.swap") and not target.endswith(SWAP):
            raise OSError(28, "no space", target)
        super().rename(source, target)


def planned(log_dir: Path, segment_bytes: str, **more: str) -> Planned:
    verbs = Verbs(
        log_dir,
        options(
            log_dir.parent,
            **{
                "delete_horizon": "newest",
                "assume_high_watermark": "",
                "only_replica": ("t",),
                "fixes": ("compact",),
                "settings_given": (*EXPIRED, ("segment.bytes", segment_bytes)),
                **more,
            },
        ),
    )
    return verbs.plan(), verbs.given


def content(log_dir: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in (log_dir / "t-0").iterdir()
        if path.is_file() and path.name != ".lock"
    }


def _unasked(monkeypatch: pytest.MonkeyPatch, log_dir: Path, segment_bytes: str) -> Planned:
    """A plan by an earlier krepair, which did not ask whether ``apply`` would begin with it."""
    with monkeypatch.context() as earlier:
        earlier.setattr("krepair.ops.plan.why_not_begun", lambda *_: {})
        return planned(log_dir, segment_bytes)


@pytest.mark.parametrize("verb", [undo, apply])
def test_a_second_plan_is_not_begun_while_another_is_half_done(
    log_dir: Path, verb: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(log_dir)
    first = planned(log_dir, "700")
    assert run(apply, first, AT_SWAP) == 9
    [part] = planned(log_dir, "1500")[0].partitions
    assert (part.code, part.changes, part.next_command) == ("not-begun", (), f"krepair undo {log_dir}")
    second = _unasked(monkeypatch, log_dir, "1500")
    half_done = content(log_dir)
    report = apply(*second)
    assert {one.outcome for one in report.results} == {"failed"}
    assert f"of plan {first[0].plan_id} is half done here" in report.results[0].why
    assert str(report.next_command) == f"krepair undo {log_dir}"
    assert content(log_dir) == half_done
    assert run(verb, first) == 0
    if verb is undo:
        assert content(log_dir) == before
        assert run(apply, second) == 0


@pytest.mark.parametrize("last", [undo, apply])
def test_the_swap_of_another_plan_stays_until_that_plan_is_undone(
    log_dir: Path, last: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(log_dir)
    first = planned(log_dir, "700")
    assert run(apply, first, AT_SWAP) == 9
    second = _unasked(monkeypatch, log_dir, "1500")
    with monkeypatch.context() as earlier:  # an earlier krepair began a second plan there
        earlier.setattr("krepair.commit.ready.why_not_ended", lambda *_, **__: "")
        assert run(apply, second, BEFORE_ITS_NAME) == 9
    half_done = content(log_dir)
    assert (log_dir / SWAP).exists()
    assert run(last, first) in {3, 12}
    assert content(log_dir) == half_done
    assert run(undo, second) == 0
    assert run(undo, first) == 0
    assert content(log_dir) == before
    assert not list(log_dir.glob("t-0/krepair~*"))


@pytest.mark.parametrize("last", [undo, apply])
def test_the_swap_that_a_brokers_cleaner_left_stays(log_dir: Path, last: Callable[..., Any]) -> None:
    """A broker that is stopped while its cleaner replaces segments has set the old ones aside by then."""
    plan = planned(log_dir, "1500")
    assert run(apply, plan, AT_SWAP) == 9
    folder = log_dir / "t-0"
    logs = sorted(folder.glob("*.log"))[:4]
    (log_dir / SWAP).write_bytes(b"".join(log.read_bytes() for log in logs))
    for log in logs:
        shutil.move(log, f"{log}.deleted")
    half_done = content(log_dir)
    assert run(last, plan) in {3, 12}
    assert {name: half_done[name] for name in half_done if ".log" in name} == {
        name: data for name, data in content(log_dir).items() if ".log" in name
    }
    assert list(folder.glob("krepair~*/keep/*.log"))


def test_a_plan_is_not_begun_beside_equal_files_of_another_one(log_dir: Path) -> None:
    """Else the undo of the other one takes them away, and nothing ends the second plan."""
    before = content(log_dir)
    first, second = planned(log_dir, "400"), planned(log_dir, "400", assume_high_watermark="log-end")
    assert first[0].plan_id != second[0].plan_id
    ids = [change.change_id for change in first[0].partitions[0].changes]
    assert len(ids) > 1
    assert ids == [change.change_id for change in second[0].partitions[0].changes]
    assert run(apply, first, FailingSecond) == 3
    half = content(log_dir)
    report = apply(*second)
    assert report.exit_code == 13
    assert f"plan {first[0].plan_id} has begun here and has not ended" in report.results[0].why
    assert str(report.next_command) == f"krepair undo {log_dir}"
    assert content(log_dir) == half
    assert run(undo, first) == 0
    assert run(apply, second) == 0
    assert run(undo, second) == 0
    assert content(log_dir) == before
    assert not list(log_dir.glob("t-0/krepair~*"))


@pytest.mark.parametrize("last", [undo, apply])
def test_a_log_that_a_broker_set_aside_before_it_was_kept_stays(
    log_dir: Path, last: Callable[..., Any]
) -> None:
    plan = planned(log_dir, "1500")
    assert run(apply, plan, WHILE_KEEPING) == 9
    folder = log_dir / "t-0"
    assert len(list(folder.glob("krepair~*/keep/*.log"))) == 2
    log = sorted(folder.glob("*.log"))[3]
    aside, was = Path(f"{log}.deleted"), log.read_bytes()
    log.rename(aside)
    run(last, plan)
    assert aside.read_bytes() == was


def test_a_plan_that_only_staged_its_files_ends_where_another_one_made_equal_files(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it was done, so its journal has lost no record."""
    first = planned(log_dir, "400")
    second = planned(log_dir, "400", keep="until-verified")
    assert run(apply, first, ALL_IS_STAGED) == 9
    assert list(log_dir.glob("t-0/krepair~*/stage/*.log"))
    staged = content(log_dir)
    report = apply(*second)
    assert report.exit_code == 13
    assert f"plan {first[0].plan_id} has begun here and has not ended" in report.results[0].why
    assert content(log_dir) == staged
    with monkeypatch.context() as earlier:  # an earlier krepair did not look at what waits to be committed
        earlier.setattr("krepair.commit.ready.why_not_ended", lambda *_, **__: "")
        assert run(apply, second) == 0
    made = content(log_dir)
    assert run(undo, first) == 0
    assert content(log_dir) == made
    assert not list(log_dir.glob("t-0/krepair~*"))


def test_nothing_is_told_as_done_while_another_plan_is_half_done_with_it(log_dir: Path) -> None:
    first, second = planned(log_dir, "700"), planned(log_dir, "700", assume_high_watermark="log-end")
    assert run(apply, first, BEHIND_ITS_NAME) == 9
    assert run(apply, second) == 13
    assert run(apply, first) == 0
    assert run(apply, second) == 0


@pytest.mark.parametrize("last", [undo, apply])
@pytest.mark.parametrize("killed", [AT_SWAP, BEFORE_ITS_NAME, WHILE_KEEPING, BEHIND_ITS_NAME])
def test_what_a_brokers_cleaner_has_begun_stays(
    log_dir: Path, killed: Disk, last: Callable[..., Any]
) -> None:
    """It is not of the plan: a broker was here, and nothing goes on or back until it is gone."""
    before = content(log_dir)
    plan = planned(log_dir, "700")
    assert run(apply, plan, killed) == 9
    theirs = log_dir / f"t-0/{0:020d}.log.cleaned"
    theirs.write_bytes(b"of a cleaner")
    half = content(log_dir)
    assert run(last, plan) == 12
    assert content(log_dir) == half
    theirs.unlink()
    assert run(undo, plan) == 0
    assert content(log_dir) == before
    assert not list(log_dir.glob("t-0/krepair~*"))


def test_undo_beside_what_a_brokers_cleaner_has_begun_names_a_way_that_works(log_dir: Path) -> None:
    before = content(log_dir)
    plan = planned(log_dir, "700")
    assert run(apply, plan) == 0
    (log_dir / f"t-0/{0:020d}.log.cleaned").write_bytes(b"of a cleaner")
    after = content(log_dir)
    report = undo(*plan)
    assert report.exit_code == 12
    assert "start the broker and stop it" in report.results[0].why
    assert content(log_dir) == after
    (log_dir / f"t-0/{0:020d}.log.cleaned").unlink()  # as a start does
    assert run(undo, plan) == 0
    assert content(log_dir) == before


@pytest.mark.parametrize(
    ("came", "why"),
    [
        (f"{35:020d}.log", "begins among the offsets of the kept originals"),
        (f"{37:020d}.log.swap", "another plan, or a broker, was stopped"),
    ],
    ids=["rolled inside", "swap elsewhere"],
)
def test_no_undo_is_begun_where_a_broker_has_gone_on_among_its_offsets(
    log_dir: Path, came: str, why: str
) -> None:
    """It truncated the log behind what the new segment holds. Beside two swaps, one of 3.x deletes what is between."""
    plan = planned(log_dir, "700")
    assert run(apply, plan) == 0
    theirs = log_dir / "t-0" / came
    theirs.write_bytes(data(35, [Record(b"new", b"1")]).raw)
    after = content(log_dir)
    assert why in kept_report(str(log_dir), 0).plans[0].why_not
    report = undo(*plan)
    assert report.exit_code == 12
    assert report.results[-1].why.startswith(f"{theirs}: ")
    assert why in report.results[-1].why
    assert content(log_dir) == after
    theirs.unlink()
    assert run(undo, plan) == 0


def test_an_undo_ends_beside_what_a_brokers_cleaner_has_begun_elsewhere(log_dir: Path) -> None:
    before = content(log_dir)
    plan = planned(log_dir, "700")
    assert run(apply, plan) == 0
    theirs = log_dir / f"t-0/{37:020d}.log.cleaned"
    theirs.write_bytes(b"of a cleaner")
    assert run(undo, plan) == 0
    theirs.unlink()
    assert content(log_dir) == before
    assert not list(log_dir.glob("t-0/krepair~*"))


def test_no_swap_is_begun_beside_what_a_brokers_cleaner_has_begun(log_dir: Path) -> None:
    """Every broker that starts would throw it away."""
    before = content(log_dir)
    plan = planned(log_dir, "400")
    assert len(plan[0].partitions[0].changes) > 1
    assert run(apply, plan, BEFORE_ITS_NAME) == 9
    theirs = log_dir / f"t-0/{0:020d}.log.cleaned"
    theirs.write_bytes(b"of a cleaner")
    report = apply(*plan)
    assert report.exit_code == 12
    assert f"{theirs}: appeared since " in report.results[0].why
    assert theirs.read_bytes() == b"of a cleaner"
    theirs.unlink()
    assert run(undo, plan) == 0
    assert content(log_dir) == before


@pytest.mark.parametrize("fate", ["cleaned", "deleted by retention"])
def test_what_a_broker_finished_and_then_wrote_has_a_way_out(log_dir: Path, fate: str) -> None:
    """Nothing of the group is left as krepair knows it: no verb may wait for it for ever."""
    plan = planned(log_dir, "700")
    assert run(apply, plan, BEFORE_ITS_NAME) == 9
    log = log_dir / SWAP.removesuffix(".swap")
    (log_dir / SWAP).rename(log)  # as a broker's start does
    if fate == "cleaned":
        log.rename(log.with_suffix(".old"))
        log.write_bytes(log.with_suffix(".old").read_bytes()[:71])  # its first batch
        log.with_suffix(".old").unlink()
    else:
        log.unlink()
    left = content(log_dir)
    assert run(purge, plan) == 13
    report = undo(*plan)
    assert report.exit_code == 12
    assert str(report.next_command) == f"krepair purge {log_dir} --plan-id {plan[0].plan_id}"
    with pytest.raises(RefusedError, match=r"may be the last copy .* type mv .*\.log.* DIRECTORY"):
        purge(*plan)
    for kept in log_dir.glob("t-0/krepair~*/keep/*"):
        kept.unlink()
    assert run(purge, plan) == 0
    assert content(log_dir) == left
    assert not list(log_dir.glob("**/krepair~*"))


# -- Two krepairs at once on one log directory: the second is refused at any point; a killed one keeps nobody out.

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

    def second_is_refused(self, pid: int) -> None:
        """Whatever the second one is told to do; the first one is named."""
        there, plans = tree(self.log_dir), (self.plan, self.other)
        second: list[Callable[[], object]] = [
            *(partial(verb, plan, self.given) for verb in (apply, undo, purge) for plan in plans),
            *(
                partial(verb, str(self.log_dir), self.plan.plan_id, self.given)
                for verb in (undo_by_id, purge_by_id)
            ),
        ]
        for run_second in second:
            with pytest.raises(LockedError, match=f"another krepair is at work here.*process {pid} "):
                run_second()
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
        scene.second_is_refused(first.pid)
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
        scene.second_is_refused(first.pid)
        said, _ = first.communicate("\n", timeout=LIMIT_S)
        assert said == "0\n"
    assert without_lock(scene.log_dir) == before


def test_a_plan_that_its_own_review_refuses_is_not_made(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objection = Objection("RV21", "t-0/00000000000000000000", "no batch would be left")
    monkeypatch.setattr(
        "krepair.commit.ready.review", lambda plan: [objection] if plan.partitions[0].changes else []
    )
    [part] = planned(log_dir, "700")[0].partitions
    assert (part.status, part.code, part.changes) == ("left alone", "review", ())
    assert "RV21" in part.why
