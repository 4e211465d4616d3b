"""Where much is staged at once, one barrier for the file system stands for an fsync of each file and folder.

A partition has as many syncs whatever it holds.
"""

from __future__ import annotations

import ctypes
import errno
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.durable import medium, real_disk
from krepair.errors import ExitCode, UnwritableError
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from krepair.options import EngineName, Options
from krepair.plan.model import Plan
from tests.builders import NOW_MS, LogDir, data
from tests.ops.conftest import memory_dir
from tests.ops.scene import tree
from tests.ops.written import padded

__all__ = ["memory_dir"]

PER_PARTITION = 8
"""Of a recovery: 4 of the journal, and one each for the names of the journal, of what is kept, and of what is new,
which is replaced files first, then the empty segment."""
UNDO_PER_PARTITION = 12
STAGED = 6 + 5
"""Two indexes, a snapshot, the three files of the empty segment; krepair's four folders, and the partition folder."""


class Many:
    """Partitions of three small segments each, all above the recovery points, of a broker that was killed."""

    def __init__(self, root: Path, partitions: int, fixes: str = "recovery") -> None:
        log_dir = LogDir(root)
        rng = random.Random(7)
        for number in range(partitions):
            one = log_dir.partition("t", number)
            for base in (0, 10, 20):
                one.segment(data(base, 10, timestamp=NOW_MS + rng.randint(0, 9)))
        self.path = log_dir.write(clean_stop=False)
        for number in range(partitions):
            folder = self.path / f"t-{number}"
            for base in (0, 10):
                (folder / f"{base:020d}.timeindex").write_bytes(bytes(12 * 64))
            for snapshot in folder.glob("*.snapshot"):
                snapshot.unlink()
        rows = [f"t {number} 0" for number in range(partitions)]
        (self.path / "recovery-point-offset-checkpoint").write_text(
            "\n".join(["0", str(partitions), *rows]) + "\n"
        )
        (self.path / ".lock").touch()  # a killed broker leaves it
        self.options = Options(fixes=(fixes,), now_ms=NOW_MS, engine=EngineName.INLINE)
        self.plan: Plan = make_plan(str(self.path), self.options)
        self.before = tree(self.path)


class Syncs:
    """Counts the fsyncs of this process, and those of whole file systems."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of: Counter[str] = Counter()
        real, real_all = os.fsync, medium._SYNCFS
        assert real_all is not None

        def counting(descriptor: int) -> None:
            where = os.readlink(f"/proc/self/fd/{descriptor}").split("/logs/")[-1]
            self.of[where.split("/")[0]] += 1
            self.of["folders" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "files"] += 1
            real(descriptor)

        def counting_all(descriptor: int) -> int:
            self.of["all"] += 1
            return real_all(descriptor)

        monkeypatch.setattr(os, "fsync", counting)
        monkeypatch.setattr(medium, "_SYNCFS", counting_all)

    def taken(self) -> tuple[int, int]:
        """(of files, of folders) since the last time."""
        taken = self.of["files"], self.of["folders"]
        self.of.clear()
        return taken

    def partitions(self) -> set[int]:
        """How many a partition had, of those that have no part in the work of the root."""
        return {count for name, count in self.of.items() if name.startswith("t-") and name != "t-0"}


def test_a_partition_costs_eight_syncs_where_one_barrier_serves_what_is_staged(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(medium, "MANY", 20)
    many = Many(memory_dir / "logs", 6)
    syncs = Syncs(monkeypatch)
    assert apply(many.plan, many.options).exit_code == ExitCode.DONE
    assert syncs.partitions() == {PER_PARTITION}
    assert syncs.of["all"] == 2  # of what was there, and of what is staged
    syncs.of.clear()
    assert undo(many.plan, many.options).exit_code == ExitCode.DONE
    assert syncs.partitions() == {UNDO_PER_PARTITION}
    assert syncs.of["all"] == 1
    assert tree(many.path) == many.before


@pytest.mark.parametrize("why", ["few", "unknown file system", "no such call"])
def test_without_the_barrier_each_staged_file_and_folder_is_synced_by_itself(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(medium, "MANY", 1000 if why == "few" else 1)
    many = Many(memory_dir / "logs", 3)
    assert {len(part.changes) for part in many.plan.partitions} == {4}
    syncs = Syncs(monkeypatch)
    if why == "unknown file system":
        monkeypatch.setattr(medium, "_ALL_IS_WRITTEN_BY_SYNCFS", frozenset())
    if why == "no such call":
        monkeypatch.setattr(medium, "_SYNCFS", failing(errno.ENOSYS))
    assert apply(many.plan, many.options).exit_code == ExitCode.DONE
    if why == "few":
        assert syncs.partitions() == {PER_PARTITION + STAGED}
    else:  # what was there before is synced file by file, too
        assert min(syncs.partitions()) > PER_PARTITION + STAGED


def failing(number: int) -> Callable[[int], int]:
    """A ``syncfs`` that fails."""

    def fail(descriptor: int) -> int:
        del descriptor
        ctypes.set_errno(number)
        return -1

    return fail


@pytest.mark.parametrize("fixes", ["index", "recovery"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_barrier_that_fails_stops_every_partition_and_nothing_is_changed(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch, number: int, fixes: str
) -> None:
    """Of a recovery it is the barrier before anything is staged."""
    monkeypatch.setattr(medium, "MANY", 1)
    many = Many(memory_dir / "logs", 3, fixes=fixes)
    assert len(many.plan.partitions) == 3
    with monkeypatch.context() as patch:
        patch.setattr(medium, "_SYNCFS", failing(number))
        report = apply(many.plan, many.options)
    codes = {one.exit_code for one in report.results if one.partition.startswith("t-")}
    assert codes == {ExitCode.UNWRITABLE}  # the root of a recovery has no partition that is ready
    assert {one.outcome for one in report.results} == {"failed"}
    assert tree(many.path) == many.before
    assert apply(many.plan, many.options).exit_code == ExitCode.DONE
    assert undo(many.plan, many.options).exit_code == ExitCode.DONE
    assert tree(many.path) == many.before


def test_barrier_that_fails_before_an_undo_refuses_it_and_the_next_one_ends(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(medium, "MANY", 1)
    many = Many(memory_dir / "logs", 3)
    assert apply(many.plan, many.options).exit_code == ExitCode.DONE
    after = tree(many.path)
    for verb in (undo, apply):
        with monkeypatch.context() as patch:
            patch.setattr(medium, "_SYNCFS", failing(errno.EIO))
            with pytest.raises(UnwritableError, match="nothing was changed"):
                verb(many.plan, many.options)
        assert tree(many.path) == after
    assert undo(many.plan, many.options).exit_code == ExitCode.DONE
    assert tree(many.path) == many.before


def test_file_that_the_barrier_did_not_write_stops_its_partition_and_no_other(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels before 5.8 do not tell of it when the barrier is made."""
    monkeypatch.setattr(medium, "MANY", 1)
    many = Many(memory_dir / "logs", 3, fixes="index")
    real = real_disk.make_sure_it_is_written

    def fails(descriptor: int, *, barrier: bool) -> None:
        assert not barrier
        if "/t-1/" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor, barrier=barrier)

    monkeypatch.setattr(real_disk, "make_sure_it_is_written", fails)
    report = apply(many.plan, many.options)
    assert {one.partition: one.outcome for one in report.results}["t-1"] == "failed"
    assert {one.outcome for one in report.results if one.partition != "t-1"} == {"committed"}
    assert {path: seen for path, seen in tree(many.path).items() if path.startswith("t-1")} == {
        path: seen for path, seen in many.before.items() if path.startswith("t-1")
    }


@pytest.mark.parametrize("verb", ["replaced", "removed"])
def test_each_new_file_is_synced_once_and_a_partition_so_often_whatever_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    figures = []
    for segments in (5, 45):
        root = padded(tmp_path / f"{segments}", segments)
        fixes = ("index",)
        if verb == "removed":
            fixes = ("leftovers",)
            for number in range(segments):
                (root / "t-0" / f"{number * 10:020d}.log.deleted").write_bytes(b"set aside")
        options = Options(fixes=fixes, now_ms=1_700_000_000_000)
        plan = make_plan(str(root), options)
        changes = sum(len(partition.changes) for partition in plan.partitions)
        syncs = Syncs(monkeypatch)
        assert apply(plan, options).exit_code == ExitCode.DONE
        applied = syncs.taken()
        assert undo(plan, options).exit_code == ExitCode.DONE
        figures.append((changes, applied, syncs.taken()))
        monkeypatch.undo()
    (few, applied_few, undone_few), (many, applied_many, undone_many) = figures
    assert many > few * 8
    new_files = 0 if verb == "removed" else many - few
    assert applied_many[0] - applied_few[0] == new_files
    assert applied_many[1] == applied_few[1]
    assert undone_many == undone_few
    assert applied_few[1] < 20
    assert sum(undone_few) < 20
