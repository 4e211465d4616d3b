"""Purge beside a broker, another krepair, a partition that goes at that moment, on a full disk, and after damage."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from krepair.commit.kept import kept_originals
from krepair.commit.reports import ApplyReport
from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode, KrepairError, LockedError, RefusedError, UnreadableError
from krepair.logdir.view import read_log_dir
from krepair.ops.apply import apply
from krepair.ops.purge import purge, purge_by_id
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.options import Options
from krepair.plan.model import Plan, RewriteSegments
from tests.calls import fail_to_open
from tests.durable.disks import ALL_KINDS, Call, PassingDisk, RecordingDisk
from tests.flips import flip
from tests.ops.by_hand import type_lines
from tests.ops.full_disks import file_system, fill_up
from tests.ops.journeys import built
from tests.ops.scene import Scene, outcomes, scene, tree
from tests.ops.stops import calls_of, stopped, telling_stops
from tools.torture.scenes import Placed, look
from tools.torture.scenes import Scene as TortureScene

FOLDERS = ("__consumer_offsets-0", "__consumer_offsets-1")
_WHOLE_FILE_FOR_WRITING = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


@pytest.fixture
def bloat(memory_dir: Path) -> Scene:
    return scene(memory_dir)


def applied(bloat: Scene) -> Plan:
    plan = bloat.plan(partitions=tuple((name.rpartition("-")[0], int(name[-1])) for name in FOLDERS))
    assert bloat.apply(plan).exit_code is ExitCode.DONE
    return plan


@contextmanager
def broker_holds(log_dir: Path) -> Iterator[None]:
    """The lock that a running broker holds."""
    with (log_dir / ".lock").open("ab") as lock:
        fcntl.fcntl(lock, fcntl.F_OFD_SETLK, _WHOLE_FILE_FOR_WRITING)
        yield


def by_plan(bloat: Scene, plan: Plan, disk: object = None) -> ApplyReport:
    return purge(plan, bloat.options(), disk=disk)  # type: ignore[arg-type]


def by_id(bloat: Scene, plan: Plan, disk: object = None) -> ApplyReport:
    return purge_by_id(str(bloat.path), plan.plan_id, bloat.options(), disk=disk)  # type: ignore[arg-type]


BOTH = pytest.mark.parametrize("verb", [by_plan, by_id])
Purge = Callable[..., ApplyReport]


@BOTH
def test_a_broker_that_holds_its_lock_is_in_nobodys_way_and_only_what_krepair_keeps_goes(
    bloat: Scene, verb: Purge
) -> None:
    plan = applied(bloat)
    with broker_holds(bloat.path):
        before = tree(bloat.path, private=False)
        with pytest.raises(LockedError):
            bloat.undo(plan)
        report = verb(bloat, plan)
        assert report.exit_code is ExitCode.DONE
        assert report.bytes_freed > 0
        assert tree(bloat.path) == before


def test_a_purge_that_works_keeps_apply_and_undo_out(bloat: Scene) -> None:
    plan = applied(bloat)
    met: list[type[KrepairError]] = []

    class Meeting(RecordingDisk):
        def _before(self, call: Call) -> None:
            if not met:
                for run in (bloat.apply, bloat.undo):
                    with pytest.raises(KrepairError) as refused:
                        run(plan)
                    met.append(refused.type)
            super()._before(call)

    assert by_plan(bloat, plan, Meeting(RealDisk())).exit_code is ExitCode.DONE
    assert met == [LockedError, LockedError]


@BOTH
def test_while_one_change_is_half_done_nothing_of_the_whole_plan_is_freed(bloat: Scene, verb: Purge) -> None:
    plan = applied(bloat)
    bloat.undo(plan)
    calls = calls_of(partial(bloat.apply, plan))
    bloat.undo(plan)
    last_swap = max(i for i, call in enumerate(calls, 1) if call.target.endswith(".log.swap"))
    stopped(partial(bloat.apply, plan), last_swap + 1)
    before = tree(bloat.path)
    with broker_holds(bloat.path), pytest.raises(RefusedError, match="nothing is purged") as refused:
        verb(bloat, plan)
    assert str(refused.value.next_command) == "krepair apply PLAN"
    assert tree(bloat.path) == before
    assert bloat.apply(plan).exit_code is ExitCode.DONE
    assert verb(bloat, plan).exit_code is ExitCode.DONE


@BOTH
@pytest.mark.parametrize("lost", ["the end", "all", "the middle"])
def test_where_a_journal_has_lost_records_the_other_partition_is_purged_and_this_one_keeps_all(
    bloat: Scene, verb: Purge, lost: str
) -> None:
    plan = applied(bloat)
    damaged, other = (bloat.path / folder for folder in FOLDERS)
    journal = damaged / f"krepair~{plan.plan_id}" / "journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    left = {"the end": lines[:1], "all": [], "the middle": [lines[0], b"x" + lines[1][1:], *lines[2:]]}[lost]
    journal.write_bytes(b"".join(left))
    before = tree(damaged)
    report = verb(bloat, plan)
    assert report.exit_code is ExitCode.PARTLY
    results = {one.partition: one for one in report.results}
    assert {name: (one.outcome, one.exit_code) for name, one in results.items()} == {
        FOLDERS[0]: ("failed", ExitCode.REFUSED),
        FOLDERS[1]: ("purged", 0),
    }
    assert str(journal) in results[FOLDERS[0]].why
    assert str(report.next_command) == f"krepair undo {bloat.path} --plan-id {plan.plan_id}"
    assert tree(damaged) == before
    assert tree(other) == tree(other, private=False)
    type_lines(undo(plan, bloat.options()))
    assert verb(bloat, plan).exit_code is ExitCode.DONE
    assert tree(damaged) == tree(damaged, private=False)


class RemovingBroker(PassingDisk):
    """A broker that marks a partition folder for deletion right before the call of that number.

    Args:
        folder: of the partition.
        at: number of the call.
        again: whether the topic is made again at once under the same name.
    """

    def __init__(self, folder: Path, at: int, *, again: bool) -> None:
        super().__init__(RealDisk())
        self.folder, self.marked = folder, folder.with_name(f"{folder.name}.0123456789abcdef-delete")
        self.left, self.again = at, again
        self.seen: dict[str, tuple[object, ...]] = {}

    def _before(self, call: Call) -> None:
        self.left -= 1
        if self.left == 0:
            self.folder.rename(self.marked)
            self.seen = tree(self.marked)
            if self.again:
                self.folder.mkdir()
                (self.folder / f"{0:020d}.log").write_bytes(b"")


def copy_into(source: Path, target: Path) -> None:
    """Make a folder, whose own inode stays, hold the same as another, hard links being hard links again."""
    target.mkdir(exist_ok=True)
    for path in target.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    subprocess.run(["cp", "-a", f"{source}/.", str(target)], check=True)


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("again", [False, True])
def test_in_a_folder_that_a_broker_marks_for_deletion_at_any_call_nothing_more_is_touched(
    bloat: Scene, verb: Purge, again: bool
) -> None:
    plan = applied(bloat)
    counting = RecordingDisk(RealDisk())
    kept = bloat.path.parent / "apart" / "kept"
    kept.parent.mkdir()
    copy_into(bloat.path, kept)
    verb(bloat, plan, counting)
    for at in telling_stops(counting.calls, ALL_KINDS):
        copy_into(kept, bloat.path)
        disk = RemovingBroker(bloat.path / FOLDERS[0], at, again=again)
        report = verb(bloat, plan, disk)
        assert report.exit_code is ExitCode.DONE, report
        assert disk.seen
        assert tree(disk.marked) == disk.seen
        # in a folder that the broker has made anew meanwhile nothing is kept
        assert outcomes(report)[FOLDERS[0]] <= {"gone", "purged", "already"}
        assert outcomes(report)[FOLDERS[1]] == {"purged"}
        assert not list((bloat.path / FOLDERS[1]).glob("krepair~*"))


def test_what_lies_in_a_folder_marked_for_deletion_is_left_to_the_broker(bloat: Scene) -> None:
    plan = applied(bloat)
    marked = bloat.path / f"{FOLDERS[0]}.0123456789abcdef-delete"
    (bloat.path / FOLDERS[0]).rename(marked)
    before = tree(marked)
    for verb in (by_plan, by_id):
        report = verb(bloat, plan)
        assert report.exit_code is ExitCode.DONE
        gone = [result for result in report.results if result.outcome == "gone"]
        assert len(gone) == 1
        assert "a broker has deleted this folder, or will" in gone[0].why
        assert tree(marked) == before


def test_a_log_directory_that_another_one_has_replaced_is_not_purged(bloat: Scene) -> None:
    plan = applied(bloat)
    moved = bloat.path.with_name("moved")

    class Replacing(RecordingDisk):
        def _before(self, call: Call) -> None:
            if call.kind == "remove_dir" and call.path.endswith(plan.plan_id) and not moved.exists():
                bloat.path.rename(moved)
                bloat.path.mkdir()
            super()._before(call)

    report = by_plan(bloat, plan, Replacing(RealDisk()))
    assert report.exit_code is not ExitCode.DONE
    assert list(bloat.path.iterdir()) == []


def test_where_a_folder_cannot_be_locked_purge_wants_the_broker_stopped(
    bloat: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = applied(bloat)

    def unsupported(*_: object) -> None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    before = tree(bloat.path)
    with broker_holds(bloat.path), pytest.raises(LockedError, match="is locked by process"):
        by_plan(bloat, plan)
    assert tree(bloat.path) == before
    assert by_plan(bloat, plan).exit_code is ExitCode.DONE


@BOTH
def test_a_disk_without_one_free_block_is_no_reason_not_to_free_any(tmp_path: Path, verb: Purge) -> None:
    with file_system("tmpfs", tmp_path, 24 << 20) as small:
        bloat = scene(small)
        plan = applied(bloat)
        fill_up(small)
        report = verb(bloat, plan)
        assert report.exit_code is ExitCode.DONE, report
        assert report.bytes_freed > 1 << 20
        assert kept_originals(read_log_dir(str(bloat.path)), bloat.now_ms) == ()


# -- Purge does not free the originals of a new segment that was damaged since; what a broker does is no damage.


def purge_by_file(scene: TortureScene, placed: Placed) -> ApplyReport:
    return purge(placed.plan, scene.options)


def purge_by_plan_id(scene: TortureScene, placed: Placed) -> ApplyReport:
    return purge_by_id(str(placed.path), placed.plan.plan_id, scene.options)


PurgeScene = Callable[[TortureScene, Placed], ApplyReport]
BOTH_WAYS = pytest.mark.parametrize("verb", [purge_by_file, purge_by_plan_id])


@pytest.fixture(params=["partitions", "keys"])
def placed(request: pytest.FixtureRequest, memory_dir: Path) -> tuple[TortureScene, Placed]:
    scene = built(request.param)
    placed = scene.place(memory_dir)
    assert apply(placed.plan, scene.options).exit_code is ExitCode.DONE
    return scene, placed


def new_log(placed: Placed) -> Path:
    """The first segment that apply made; others follow it."""
    return next(
        placed.path / part.folder / f"{change.base_offset:020d}.log"
        for part in placed.plan.partitions
        for change in part.changes
        if isinstance(change, RewriteSegments)
    )


def flip_last(log: Path) -> None:
    flip(log, -1)
    os.utime(log)


def append_rubbish(log: Path) -> None:
    with log.open("ab") as file:
        file.write(b"rubbish" * 20)


@BOTH_WAYS
@pytest.mark.parametrize("damage", [append_rubbish, flip_last])
def test_the_partition_keeps_its_originals_and_the_others_go_on(
    damage: Callable[[Path], None], verb: PurgeScene, placed: tuple[TortureScene, Placed]
) -> None:
    scene, placed = placed
    log = new_log(placed)
    good = log.stat().st_size
    damage(log)
    assert verify_plan(placed.plan, scene.options).exit_code is ExitCode.FOUND
    kept = log.parent / f"krepair~{placed.plan.plan_id}"
    before = look(kept / "keep")
    report = verb(scene, placed)
    (failed,) = [
        one for one in report.results if one.outcome == "failed" and one.partition == log.parent.name
    ]
    assert failed.exit_code == ExitCode.REFUSED
    assert failed.why.startswith(f"{log}: was written since apply and is damaged at byte ")
    if damage is append_rubbish:
        assert f"at byte {good} " in failed.why
    assert report.exit_code in (ExitCode.PARTLY, ExitCode.REFUSED)
    assert str(report.next_command) == f"krepair check {placed.path}"
    assert look(kept / "keep") == before
    others = [one for one in placed.path.glob("*/krepair~*") if one.parent != log.parent]
    assert not [one for one in others if not one.name.endswith("root")]


@BOTH_WAYS
def test_what_a_broker_makes_of_a_closed_segment_is_no_damage(
    verb: PurgeScene, placed: tuple[TortureScene, Placed]
) -> None:
    scene, placed = placed
    log = new_log(placed)
    cleaned = log.with_suffix(".log.cleaned")
    cleaned.write_bytes(log.read_bytes())
    cleaned.replace(log)
    assert verb(scene, placed).exit_code is ExitCode.DONE


@BOTH_WAYS
def test_a_new_time_alone_is_read_and_found_good(
    verb: PurgeScene, placed: tuple[TortureScene, Placed]
) -> None:
    scene, placed = placed
    os.utime(new_log(placed))
    assert verb(scene, placed).exit_code is ExitCode.DONE


@BOTH_WAYS
def test_a_segment_that_retention_deleted_is_in_nobodys_way(
    verb: PurgeScene, placed: tuple[TortureScene, Placed]
) -> None:
    scene, placed = placed
    new_log(placed).unlink()
    assert verb(scene, placed).exit_code is ExitCode.DONE


@pytest.mark.usefixtures("through_os_open")
@pytest.mark.parametrize("folder", FOLDERS)
def test_by_id_nothing_is_freed_where_a_folder_cannot_be_looked_into(
    bloat: Scene, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """It was passed over as if it kept nothing, and what the root keeps for its undo went."""
    plan = applied(bloat)
    before = tree(bloat.path)
    with monkeypatch.context() as patch:
        fail_to_open(patch, folder, errno.EIO)
        with pytest.raises(UnreadableError, match=f"{folder}: could not be read: Input/output error"):
            purge_by_id(str(bloat.path), plan.plan_id, Options())
    assert tree(bloat.path) == before
    assert purge_by_id(str(bloat.path), plan.plan_id, Options()).exit_code is ExitCode.DONE
