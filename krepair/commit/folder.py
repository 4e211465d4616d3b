"""Partition folder for apply and undo, which identifies files and records which folders must be synced.

A file is identified by its content (see ``PartitionFolder.holds``), so that krepair can also continue in a copy of the
directory. Inodes are compared only between two names that exist at the same moment.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from krepair.commit.journal import COPY_NAME, JOURNAL_NAME, FileState, Journal, Order
from krepair.commit.steps import Names
from krepair.durable.disk import Disk
from krepair.durable.tree import Tree
from krepair.errors import RefusedError, StalePlanError
from krepair.formats.filenames import (
    FOLDER_SUFFIXES,
    parse_folder_name,
    partition_folder,
    private_folder,
    root_private_folder,
)
from krepair.logdir.fingerprint import digest_batches, digest_content
from krepair.logdir.reading import kind_of
from krepair.next_command import Next
from krepair.plan.model import FileFingerprint, PartitionPlan, RootPlan

ROOT: Final = "."
"""Name that stands for the root of the log directory where a partition folder's name is expected."""
_Key = tuple[int, int, int]
SYNCED_WHEN_OPENED: Final = 5
"""Number of folders that ``PartitionFolder.sync_all`` syncs in a partition begun by an earlier run."""


class PartitionFolder:
    """Partition folder, with the plan's work folder inside.

    Args:
        folder: name of the partition folder.
        plan_id: id of the plan, which names the work folder.
    """

    def __init__(self, disk: Disk, log_dir: str, folder: str, plan_id: str) -> None:
        self.disk = disk
        self.tree = disk.tree
        self.log_dir = log_dir
        self.folder = folder
        self.plan_id = plan_id
        self.path = f"{log_dir}/{folder}"
        self.names = Names(private_folder(plan_id))
        self.private = f"{self.path}/{self.names.private}"
        self.holder = self.path
        """Path of the partition folder that holds the work folder."""
        self.order: Order | None = None
        """Order of the renames for the present broker; None for the order in which the change began."""
        self._dirty: set[str] = set()
        self._new: list[str] = []
        """Folders of a new work folder that are not durable yet, outer folders first."""
        self._was_made_here = False
        self._has_private_folders = False
        self._digests: dict[_Key, str] = {}
        self._fronts: dict[FileState, str] = {}
        self._verified: set[_Key] = set()
        """Keys of new files that this run has renamed out of ``stage/`` or has read."""

    def at(self, relative: str) -> str:
        """Return the absolute path of a path in the partition folder."""
        return f"{self.path}/{relative}" if relative else self.path

    def relative(self, name: str) -> str:
        """Return the path of a file of the partition, relative to the log directory."""
        return self.at(name).removeprefix(f"{self.log_dir}/")

    def state(self, relative: str) -> FileState | None:
        """Return size and time of a file, without a digest; None if the file does not exist.

        Raises:
            StalePlanError: something else than a regular file has the name.
            OSError: the file's status could not be read.
        """
        status = self._status(relative)
        if status is None:
            return None
        name = relative.rpartition("/")[2]
        return FileState(name=name, size=status.st_size, mtime_ns=status.st_mtime_ns)

    def _status(self, relative: str) -> os.stat_result | None:
        status = self.tree.status(self.at(relative))
        if status is not None and not stat.S_ISREG(status.st_mode):
            raise StalePlanError(
                f"{self.at(relative)}: expected a regular file; the partition is left as it is"
            )
        return status

    def digested(self, relative: str, state: FileState) -> FileState:
        """Return a state completed by the file's digest; each file is read once per run.

        Raises:
            OSError: the file could not be read.
        """
        return replace(state, digest=self._digest(relative, self._status(relative)))

    def _digest(self, relative: str, status: os.stat_result | None) -> str:
        key = None if status is None else _key_of(status)
        digest = self._digests.get(key, "") if key is not None else ""
        if not digest:
            digest = digest_content(self.at(relative), self.tree)
            if key is not None:
                self._digests[key] = digest
        return digest

    def _forget(self, relative: str) -> None:
        """Discard the remembered facts about a file before it loses this name: another file may get the inode."""
        status = self.tree.status(self.at(relative))
        if status is not None:
            self._digests.pop(_key_of(status), None)
            self._verified.discard(_key_of(status))

    def file_names(self) -> list[str]:
        """Return the sorted names of everything in the partition folder except directories."""
        return self.tree.file_names(self.path)

    def owner(self) -> tuple[int, int]:
        """Return uid and gid of the partition folder, which krepair gives to every new file in this folder.

        Raises:
            StalePlanError: the folder is gone.
            OSError: the folder's status could not be read.
        """
        like = self._like()
        return like.st_uid, like.st_gid

    def _like(self) -> os.stat_result:
        """Return the status of the partition folder, whose owner and mode krepair's own folders get."""
        like = self.tree.status(self.holder)
        if like is None:
            raise StalePlanError(f"{self.holder}: is gone since the plan was made")
        return like

    def journal(self, *, to_write: bool = False) -> Journal:
        """Read the plan's journal of this folder; return an empty journal if no file exists.

        Args:
            to_write: whether records will be appended; a new journal then belongs to the partition folder's owner.

        Raises:
            RefusedError: the journal is damaged, or belongs to another plan or version.
            StalePlanError: the journal is to be written, but the partition folder is gone.
            OSError: the journal could not be read.
        """
        owner = self.owner() if to_write else None
        name = parse_folder_name(self.folder)
        marked = name.kind in FOLDER_SUFFIXES  # a broker renamed the folder since
        folder = partition_folder(name.topic, name.partition) if marked else self.folder
        return Journal(self.disk, self.private, self.plan_id, folder, owner)

    def make_private_folders(self) -> None:
        """Create the work folder and its sub-folders where they are missing.

        If the work folder exists already, its journal may hold records, so new sub-folders are synced at once. A new
        work folder need not be durable before its first record: ``sync_new`` makes the folder durable together with its
        files. Later calls do nothing.
        """
        if self._has_private_folders:
            return
        like = self._like()
        mode, owner = stat.S_IMODE(like.st_mode) | 0o700, (like.st_uid, like.st_gid)
        missing = list(self._private_folders())
        if is_made(self.disk, self.private, mode, owner):
            missing = [path for path in missing[1:] if not is_made(self.disk, path, mode, owner)]
        for path in missing:
            self.disk.make_dir(path, mode, owner)
        if self.private in missing:
            self._was_made_here, self._new = True, missing
        elif missing:
            for path in (*missing, self.private, self.holder):
                self.disk.sync_dir(path)
        self._has_private_folders = True

    def has_private_folders(self) -> bool:
        """Return whether the work folder exists; once the folder was found, the file system is not asked again.

        Raises:
            OSError: the folder's status could not be read.
        """
        return self._has_private_folders or self.tree.is_folder(self.private)

    def was_begun(self) -> bool:
        """Return whether an earlier run left a work folder; False after an error, which a later step will report."""
        with contextlib.suppress(OSError):
            return self.tree.is_folder(self.private)
        return False

    @property
    def is_unsynced(self) -> bool:
        """True if this object made the work folder and ``sync_new`` must still make the folder durable."""
        return bool(self._new)

    def sync_new(self) -> None:
        """Sync a new work folder and its parent folder, unless both are synced already.

        Call this before the first record is written: after a power cut, a record in a lost folder would be lost too.

        Raises:
            OSError: a folder could not be synced.
        """
        for path in reversed(self._new):
            self.disk.sync_dir(path)
        if self._new:
            self.disk.sync_dir(self.holder)
        self.everything_is_synced()

    def everything_is_synced(self) -> None:
        """Record that a sync of the whole file system made ``sync_new`` unnecessary."""
        self._new = []

    def _private_folders(self) -> tuple[str, ...]:
        return (self.private, *(f"{self.private}/{name}" for name in ("stage", "keep", "out")))

    def sync_all(self) -> None:
        """Make the renames of an interrupted run durable, before later steps rely on them.

        A work folder that this object created needs no sync, because no earlier run left anything in that folder. A run
        that removed its work folder had already synced every restored file.
        """
        if self._was_made_here:
            return
        *inner, private = reversed(self._private_folders())
        for path in dict.fromkeys((*inner, private, self.holder, self.path)):
            if self.tree.is_folder(path):
                self.disk.sync_dir(path)
        self._dirty.clear()

    def check_no_links(self) -> None:
        """Check that krepair's own folders are real folders and its own files are regular files.

        Raises:
            RefusedError: one of these names is a link or another kind of file, which another program put there.
            OSError: the status of one of them could not be read.
        """
        with self.tree.keeping_folders():
            self._check_no_links()

    def _check_no_links(self) -> None:
        if not _must_be(self.tree, self.private, stat.S_ISDIR, "folder"):
            return
        files = [f"{self.private}/{JOURNAL_NAME}", f"{self.private}/{COPY_NAME}"]
        for path in (*self._private_folders()[1:], f"{self.private}/fence"):
            _must_be(self.tree, path, stat.S_ISDIR, "folder")
            files += self._files_in(path)
        for path in files:
            _must_be(self.tree, path, stat.S_ISREG, "regular file")

    def _files_in(self, path: str) -> list[str]:
        if not self.tree.is_folder(path):
            return []
        return [
            f"{path}/{name}" for name, status in self.tree.entries(path) if not stat.S_ISREG(status.st_mode)
        ]

    # -- which file is which

    def holds(self, relative: str, known: FileState | None) -> bool:
        """Return whether a path holds a known file under any name; for None, whether nothing has the path.

        Size and modification time must be equal. Both together are not enough: a new index has the time of the old
        index, and may have the same size. So the content is compared as well wherever a digest is known.

        Raises:
            StalePlanError: something else than a regular file has the name.
            OSError: the file could not be read.
        """
        status = self._status(relative)
        if status is None or known is None:
            return status is None and known is None
        if (status.st_size, status.st_mtime_ns) != (known.size, known.mtime_ns):
            return False
        return not known.digest or self._digest(relative, status) == known.digest

    def begins_with(self, log: FileState, planned: FileFingerprint) -> bool:
        """Return whether a log begins with the batches that the plan recorded; each log is read once per run.

        Raises:
            OSError: the log could not be read.
        """
        known = self._fronts.get(log)
        if known is None:
            base_offset = int(log.name.partition(".")[0])
            known = digest_batches(self.at(log.name), base_offset, self.tree, size=planned.size)
            self._fronts[log] = known
        return known == planned.digest

    def is_one_file(self, one: str, other: str) -> bool:
        """Return whether two names belong to the same file at this moment."""
        status, beside = self._status(one), self._status(other)
        return status is not None and beside is not None and os.path.samestat(status, beside)

    def is_verified(self, relative: str, judge: Callable[[], bool]) -> bool:
        """Return whether this run renamed a file out of ``stage/``, or ``judge`` accepts the file; each is judged once.

        Raises:
            OSError: the file could not be read.
        """
        status = self._status(relative)
        if status is None:
            return False
        if _key_of(status) not in self._verified and judge():
            self._verified.add(_key_of(status))
        return _key_of(status) in self._verified

    # -- operations of which steps consist

    def changed(self, *paths: str) -> None:
        """Record that names in the folders of these paths changed, so that ``sync`` will sync these folders."""
        self._dirty.update(path.rpartition("/")[0] for path in paths)

    def sync(self, path: str) -> None:
        """Make the names in a folder durable, if any name has changed.

        Raises:
            OSError: the folder could not be synced, and is still recorded as changed.
        """
        if path in self._dirty:
            self.disk.sync_dir(self.at(path))
            self._dirty.discard(path)

    def remove(self, path: str) -> None:
        """Remove one of krepair's own files, if the file exists."""
        if self.tree.is_there(self.at(path)):
            self._forget(path)
            self.disk.unlink(self.at(path))
            self.changed(path)

    def rename(self, source: str, target: str) -> None:
        """Move a file."""
        self._forget(target)
        status = self._status(source)
        if status is not None and source.startswith(self.names.stage()):
            self._verified.add(_key_of(status))
        self.disk.rename(self.at(source), self.at(target))
        self.changed(source, target)

    def give(self, source: str, target: str, via: str = "") -> None:
        """Give a file a second name: by a link, or by a copy that is renamed from ``via`` once the copy is complete."""
        if via:
            self.remove(via)
            self.disk.copy(self.at(source), self.at(via))
            self.rename(via, target)
        else:
            self.disk.link(self.at(source), self.at(target))
            self.changed(target)

    def written_since(self, name: str) -> StalePlanError:
        """Return the error for an undo of a file that another program changed or removed since apply."""
        verb = "is gone" if self.state(name) is None else "was written"
        return StalePlanError(f"{self.at(name)}: {verb} since the plan was applied")

    def swap_of_others(self, swap: str) -> StalePlanError:
        """Return the error for another program's pending swap, which may hold the only copy of records."""
        return StalePlanError(
            f"{self.at(swap)}: another plan, or a broker, was stopped while it replaced these segments; resume "
            "that plan, or undo it, first; without a plan start the broker and stop it: it completes the swap",
            next_command=Next.of("undo", self.log_dir),
        )


class RootFolder(PartitionFolder):
    """Root of a log directory, whose checkpoint files are replaced one by one.

    A broker does not start if the root contains one of krepair's folders. So the root's staged files and backups lie in
    a work folder inside one partition folder, like the files of the guard. This work folder has its own journal, and is
    created and removed independently of the partition's own work folder. A root file is replaced like an index: a hard
    link keeps the original, then the new file is renamed over the original, so that at every instant the old file or
    the new file exists.

    Args:
        keeper: name of the partition folder that holds the root's work folder.
        plan_id: id of the plan, which names the work folder.
    """

    def __init__(self, disk: Disk, log_dir: str, keeper: str, plan_id: str) -> None:
        super().__init__(disk, log_dir, ROOT, plan_id)
        self.path = log_dir
        self.names = Names(f"{keeper}/{root_private_folder(plan_id)}")
        self.private = f"{log_dir}/{self.names.private}"
        self.holder = f"{log_dir}/{keeper}"


def as_partition(root: RootPlan) -> PartitionPlan:
    """Return the root's changes in the form of a plan's part for one partition."""
    return PartitionPlan(
        topic="",
        partition=0,
        folder=ROOT,
        status="change",
        files=root.files,
        changes=root.changes,
        notes=root.notes,
    )


def is_made(disk: Disk, path: str, mode: int, owner: tuple[int, int]) -> bool:
    """Return whether one of krepair's own folders exists; an unfinished folder is removed, to be created again.

    A killed run may leave a folder without its final owner and mode, in which the broker's user could not undo anything
    later. Such a folder is empty. A folder that is not empty is never removed.

    Args:
        mode: required mode.
        owner: required (uid, gid).

    Raises:
        OSError: the folder's status could not be read, or the folder could not be removed.
    """
    status = disk.tree.status(path)
    if status is None or not stat.S_ISDIR(status.st_mode):
        return False
    if (stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid)) == (mode, owner):
        return True
    try:
        disk.remove_dir(path)
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
            raise
        return True
    return False


def _must_be(tree: Tree, path: str, is_kind: Callable[[int], bool], kind: str) -> bool:
    """Check that a path is free or has a file of the right kind; return whether the path exists."""
    status = tree.status(path)
    if status is not None and not is_kind(status.st_mode):
        raise RefusedError(
            f"{path}: expected a {kind} of krepair's own, found a {kind_of(status.st_mode)}; another program put it "
            "there, and nothing was changed"
        )
    return status is not None


def _key_of(status: os.stat_result) -> _Key:
    """Return the key of a file, which stays the same while no other program changes the folder."""
    return status.st_ino, status.st_size, status.st_mtime_ns
