"""How often a verb goes through files and makes them durable; the bench counts its calls (``tools/bench/many.py``)."""

from __future__ import annotations

import ctypes
import errno
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from krepair.commit.begin import Target
from krepair.commit.executor import KeptFile
from krepair.commit.folder import ROOT
from krepair.commit.journal import FileState
from krepair.durable import medium, real_disk
from krepair.durable.tree import Tree
from krepair.errors import ExitCode, UnwritableError
from krepair.fixes import second_readings
from krepair.fixes.staging import Staging
from krepair.ops import purge as purge_module
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.undo import KeptOriginal, bad_copies, undo
from krepair.options import EngineName, Options
from krepair.plan.model import FileFingerprint, PartitionPlan, Plan, ReplaceFile, RewriteSegments
from krepair.plan.space import verify_seconds
from tests.builders import NOW_MS, LogDir, commit, data
from tests.ops.conftest import memory_dir
from tests.ops.scene import tree
from tests.ops.written import padded
from tests.plan.plans import fingerprint, good_plan, nothing, replaced_file

__all__ = ["memory_dir"]


def test_apply_and_undo_of_swaps_and_other_changes_list_the_folder_of_a_change_alone_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixes = ("index=regenerate", "markers")
    options = Options(engine=EngineName.INLINE, now_ms=NOW_MS + 10**12, fixes=fixes)
    listed: Counter[str] = Counter()
    real = Tree.entries

    def listing(tree: Tree, path: str) -> list[tuple[str, os.stat_result]]:
        listed["folders"] += path.rpartition("/")[0] == str(root)
        return real(tree, path)

    monkeypatch.setattr(Tree, "entries", listing)
    for number in (2, 6):
        made = LogDir(tmp_path / str(number))
        for one in range(number):
            partition = made.partition("__consumer_offsets", one)
            for base in (0, 12, 24):
                partition.segment(*(commit(base + at, pid=base + at) for at in range(11)), data(base + 11))
            partition.segment(data(36))
        root = made.write()
        for index in root.glob(f"*/{36:020d}.timeindex"):
            index.write_bytes(b"wrong")
        plan = make_plan(str(root), options)
        kinds = Counter(type(change) for part in plan.partitions for change in part.changes)
        assert kinds == {RewriteSegments: number, ReplaceFile: number}
        for verb, most in (("apply", 4 * number), ("undo", 4 * number)):
            listed.clear()
            assert (apply if verb == "apply" else undo)(plan, options).exit_code is ExitCode.DONE
            assert 0 < listed["folders"] <= most, verb


# -- The files of a partition are gone through once for all of its changes, not once for each of them.

FEW, MANY = 2, 6


class Files(tuple[FileFingerprint, ...]):
    """Counts how often somebody goes through it."""

    times = 0

    def __iter__(self) -> Iterator[FileFingerprint]:
        Files.times += 1
        return super().__iter__()


def changing(number: int) -> PartitionPlan:
    """A partition with so many changes; its files are counted."""
    names = [f"{base:020d}.index" for base in range(number)]
    changes = tuple(replaced_file(name) for name in names)
    files = Files(fingerprint(name, 8) for name in names)
    return replace(nothing(), status="change", files=files, changes=changes)


def names_of(partition: PartitionPlan) -> list[str]:
    return [change.name for change in partition.changes if isinstance(change, ReplaceFile)]


def verified(partition: PartitionPlan) -> None:
    assert verify_seconds(replace(good_plan(), partitions=(partition,))) > 0


def carried_out(partition: PartitionPlan) -> None:
    folder: Any = None
    target = Target(folder, partition, "P1")
    assert all(name in target.planned for name in names_of(partition))


def read_again(partition: PartitionPlan) -> None:
    tree = SimpleNamespace(is_folder=lambda path: True, is_there=lambda path: False, status=lambda path: None)
    folder: Any = SimpleNamespace(private="/private", at=lambda name: name, tree=tree)
    staging = Staging(partition, None, folder, partition.changes)
    for change, name in zip(partition.changes, names_of(partition), strict=True):
        assert second_readings.check_removed(staging, change, (name,)).files == 1


def kept(partition: PartitionPlan) -> None:
    folder: Any = SimpleNamespace(
        state=lambda path: "there", at=lambda path: path, names=SimpleNamespace(keep=lambda: "keep")
    )
    files = [
        KeptOriginal(
            partition,
            folder,
            str(base),
            KeptFile("p", FileState(name=f"{base:020d}.log", size=1, mtime_ns=1)),
        )
        for base in range(len(partition.changes))
    ]
    engine: Any = SimpleNamespace(map=lambda function, items: iter(()))
    bad_copies(good_plan(), files, engine)


@pytest.mark.parametrize("work", [verified, carried_out, read_again, kept])
def test_files_of_a_partition_are_gone_through_as_often_for_many_changes_as_for_few(
    work: Callable[[PartitionPlan], None],
) -> None:
    times = []
    for number in (FEW, MANY):
        Files.times = 0
        work(changing(number))
        times.append(Files.times)
    assert times == [1, 1]


@pytest.mark.parametrize("number", [FEW, MANY])
def test_what_was_purged_before_is_gone_through_for_the_root_alone(number: int) -> None:
    class Results(list[Any]):
        times = 0

        def __iter__(self) -> Iterator[Any]:
            Results.times += 1
            return super().__iter__()

    failed = Results([SimpleNamespace(failed=True, partition="t-0")])
    tree = SimpleNamespace(is_folder=lambda path: True)
    for name in [*(f"t-{one}" for one in range(number)), ROOT]:
        folder: Any = SimpleNamespace(folder=name, tree=tree, private="/private")
        assert (purge_module._why_root_stays(folder, failed) is not None) == (name == ROOT)
    assert Results.times == 1


# -- Where much is staged at once, one barrier for the file system stands for an fsync of each file and folder.

# A partition has as many syncs whatever it holds.
PER_PARTITION = 9
"""Of a recovery: 4 of the journal, and one each for the names of the journal, of what is kept, and of what is new,
which is replaced files first, then the empty segment."""
UNDO_PER_PARTITION = 13
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


def test_a_partition_costs_nine_syncs_where_one_barrier_serves_what_is_staged(
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
