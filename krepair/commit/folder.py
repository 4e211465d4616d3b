"""One partition folder as commit and undo see it: which file is which, and which folders are to be synced.

Files are known by what they hold, so that a copy of the directory is as good as the directory: see ``holds``. Two names
are compared as one file only at one moment.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from enum import Enum
from typing import Final

from msgspec.structs import replace

from krepair.checks.parts import has_parts
from krepair.commit.journal import COPY_NAME, JOURNAL_NAME, FileState, Intent, Journal, Order
from krepair.commit.steps import CLEANED, Names, litter_names, staged_extensions
from krepair.durable.disk import Disk
from krepair.durable.tree import Tree
from krepair.errors import RefusedError, StalePlanError
from krepair.formats.filenames import (
    FOLDER_SUFFIXES,
    SEGMENT_SUFFIXES,
    SWAP,
    parse_folder_name,
    partition_folder,
    private_folder,
    root_private_folder,
    segment_name,
)
from krepair.logdir.fingerprint import digest_batches, digest_content
from krepair.logdir.reading import kind_of
from krepair.next_command import Next
from krepair.plan.model import FileFingerprint, PartitionPlan, RootPlan

ROOT: Final = "."
"""What stands for the root where a partition folder has its name."""
_Key = tuple[int, int, int]
SYNCED_WHEN_OPENED: Final = 5
"""Folders of a partition that an earlier run has left, see ``PartitionFolder.sync_all``."""


class Whereabouts(Enum):
    """Place of the new ``.log`` of a group."""

    STAGED = "staged"
    CLEANED = "cleaned"
    SWAP = "swap"
    FINAL = "final"
    OUT = "out"
    GONE = "gone"


class PartitionFolder:
    """A partition folder and the private sub-folder in it.

    Args:
        folder: name of the partition folder.
        plan_id: names the private sub-folder.
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
        """The partition folder that holds the private sub-folder."""
        self.order: Order | None = None
        """Order of the renames for the broker that is there; None: that in which a change began."""
        self._dirty: set[str] = set()
        self._new: list[str] = []
        """The folders of a private sub-folder that was made here and is not durable yet, outer ones first."""
        self._was_made_here = False
        self._has_private_folders = False
        self._originals: tuple[Intent, dict[str, FileState]] | None = None
        self._digests: dict[_Key, str] = {}
        self._fronts: dict[FileState, str] = {}
        self._ours: set[_Key] = set()
        """New logs that were staged in this run, or were read in it."""

    def at(self, relative: str) -> str:
        """Return the absolute path of a path in the partition folder."""
        return f"{self.path}/{relative}" if relative else self.path

    def relative(self, name: str) -> str:
        """Return the path of a file of the partition, relative to the log directory."""
        return self.at(name).removeprefix(f"{self.log_dir}/")

    def state(self, relative: str) -> FileState | None:
        """Return size and time of a file without its digest; None if the file does not exist.

        Raises:
            StalePlanError: something else than a regular file has the name.
            OSError: it could not be looked at.
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
        """Return a state with the digest of the file; each file is read once per run.

        Raises:
            OSError: it could not be read.
        """
        return replace(state, digest=self._digest(relative, self._status(relative)))

    def _digest(self, relative: str, found: os.stat_result | None) -> str:
        key = None if found is None else _key_of(found)
        digest = self._digests.get(key, "") if key is not None else ""
        if not digest:
            digest = digest_content(self.at(relative), self.tree)
            if key is not None:
                self._digests[key] = digest
        return digest

    def _forget(self, relative: str) -> None:
        """Forget a file that is about to lose this name, because another file may get its inode."""
        status = self.tree.status(self.at(relative))
        if status is not None:
            self._digests.pop(_key_of(status), None)
            self._ours.discard(_key_of(status))

    def file_names(self) -> list[str]:
        """Return the sorted names of everything in the partition folder except directories."""
        return self.tree.file_names(self.path)

    def owner(self) -> tuple[int, int]:
        """Return owner and group of the partition folder, which all that krepair leaves in it gets.

        Raises:
            StalePlanError: the folder is gone.
            OSError: it could not be looked at.
        """
        like = self._like()
        return like.st_uid, like.st_gid

    def _like(self) -> os.stat_result:
        """Return the status of the partition folder, whose owner and mode krepair's own folders take over."""
        like = self.tree.status(self.holder)
        if like is None:
            raise StalePlanError(f"{self.holder}: is gone since the plan was made")
        return like

    def journal(self, *, to_write: bool = False) -> Journal:
        """Return the journal of this folder as it is now; an empty one if there is none.

        Args:
            to_write: whether records are going to be appended: they belong to the owner of the partition folder.

        Raises:
            RefusedError: it is damaged or of another plan or version.
            StalePlanError: it is to be written, and the partition folder is gone.
            OSError: it could not be read.
        """
        owner = self.owner() if to_write else None
        name = parse_folder_name(self.folder)
        marked = name.kind in FOLDER_SUFFIXES  # a broker gave the folder another name since
        folder = partition_folder(name.topic, name.partition) if marked else self.folder
        return Journal(self.disk, self.private, self.plan_id, folder, owner)

    def make_private_folders(self) -> None:
        """Create the work folder and its sub-folders where they are missing.

        They are durable at once where the private sub-folder was there before: its journal may hold records. A new one
        holds nothing that anybody needs before its first record; ``sync_new`` makes it durable with what was put there.
        What this object has made, or seen, is not looked at again.
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
        """Return whether the work folder exists; one that this object made or saw is not checked again.

        Raises:
            OSError: it could not be looked at.
        """
        return self._has_private_folders or self.tree.is_folder(self.private)

    def was_begun(self) -> bool:
        """Return whether an earlier run left a work folder. If it cannot be reached, its own run says why."""
        with contextlib.suppress(OSError):
            return self.tree.is_folder(self.private)
        return False

    @property
    def is_unsynced(self) -> bool:
        """True if the work folder was made here and is not durable yet: ``sync_new`` is still due."""
        return bool(self._new)

    def sync_new(self) -> None:
        """Make a work folder that was made here durable: its content, owners, modes, and its name.

        To be called before the first record is written; nothing is done where it is durable.

        Raises:
            OSError: that could not be done.
        """
        for path in reversed(self._new):
            self.disk.sync_dir(path)
        if self._new:
            self.disk.sync_dir(self.holder)
        self.everything_is_synced()

    def everything_is_synced(self) -> None:
        """Note that one barrier for the whole file system replaced ``sync_new``."""
        self._new = []

    def _private_folders(self) -> tuple[str, ...]:
        return (self.private, *(f"{self.private}/{name}" for name in ("stage", "keep", "out")))

    def sync_all(self) -> None:
        """Make durable what an interrupted run renamed, before anything is built on it.

        No earlier run has left anything in a private sub-folder that was made here. A run that removed one had synced
        all that it put back before.
        """
        if self._was_made_here:
            return
        *inner, private = reversed(self._private_folders())
        for path in dict.fromkeys((*inner, private, self.holder, self.path)):
            if self.tree.is_folder(path):
                self.disk.sync_dir(path)
        self._dirty.clear()

    def check_no_links(self) -> None:
        """Check that krepair's own folders are folders, and its own files are files.

        Raises:
            RefusedError: one is a link or something else; somebody put it there.
            OSError: one could not be looked at.
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

    def is_original(self, group: Intent, name: str) -> bool:
        """Return whether the file of this name in the partition folder is the original of this name."""
        if self._originals is None or self._originals[0] is not group:
            self._originals = (group, {state.name: state for state in group.originals})
        current = self.state(name)
        original = self._originals[1].get(name)
        if current is None or original is None:
            return False
        kept = self.names.keep(name)
        if name not in group.copied and self.is_one_file(name, kept):
            return True
        if not self.holds(name, original):
            return False
        # An index that was right already is made again just so. Then the new one is here once it has left ``stage/``.
        new = next((made for made in group.made if name in (made.name, made.name + SWAP)), None)
        is_made_so = new is not None and replace(new, name=name) == original
        if new is None or not is_made_so or self.state(kept) is None:
            return True
        return self.state(self.names.stage(new.name)) is not None

    def missing_logs(self, group: Intent) -> list[str]:
        """Return the names of the original ``.log`` files that are not in their places."""
        logs = [state.name for state in group.originals if state.name.endswith(".log")]
        return [name for name in logs if not self.is_original(group, name)]

    def whereabouts(self, group: Intent) -> Whereabouts:
        """Return where the new ``.log`` is; a broker that started in between may have moved or removed it."""
        log = group.log.name
        places = {
            self.names.stage(log): Whereabouts.STAGED,
            log + CLEANED: Whereabouts.CLEANED,
            log + SWAP: Whereabouts.SWAP,
            log: Whereabouts.FINAL,
            self.names.out(log): Whereabouts.OUT,
        }
        return next(
            (where for path, where in places.items() if self._is_new_log(path, group)), Whereabouts.GONE
        )

    def is_committed(self, group: Intent) -> bool:
        """Return whether an apply of the group, in the order of its intent, has passed its commit."""
        where = self.whereabouts(group)
        if where is not Whereabouts.SWAP:
            return where is Whereabouts.FINAL
        if group.order == "P1":
            return True
        last = segment_name(group.base_offset, staged_extensions(group)[-1])
        return self.state(self.names.stage(last)) is None and self.state(last + CLEANED) is None

    def staged_are_there(self, group: Intent) -> bool:
        """Return whether each staged file still exists somewhere; a broker removes ``.cleaned``."""
        return all(
            any(
                self.holds(path, merged)
                for path in (self.names.stage(merged.name), merged.name + CLEANED, merged.name + SWAP)
            )
            for merged in group.made
        )

    def holds(self, relative: str, known: FileState | None) -> bool:
        """Return whether a path holds a known file, under whatever name; for None, whether the path is free.

        Size and time have to be those of the file. They are not enough: a new index has the time of the old one, and
        may have its size. So what it holds decides, wherever a digest is known.

        Raises:
            StalePlanError: something else than a regular file has the name.
            OSError: it could not be read.
        """
        status = self._status(relative)
        if status is None or known is None:
            return status is None and known is None
        if (status.st_size, status.st_mtime_ns) != (known.size, known.mtime_ns):
            return False
        return not known.digest or self._digest(relative, status) == known.digest

    def begins_with(self, log: FileState, planned: FileFingerprint) -> bool:
        """Return whether a log begins with the batches that the plan saw; each log is read once per run.

        Raises:
            OSError: it could not be read.
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

    def _is_new_log(self, path: str, group: Intent) -> bool:
        """Return whether a path holds the new log of a group.

        A broker's cleaner gives its log the same time, and a name that ours has on its way. There it is read, unless
        this run has put it there. Another plan, or a cleaner that finds nothing to clean, may make the very same log:
        it is not ours as long as ours is still in ``stage/``, or in its place already.
        """
        new, status = group.log, self._status(path)
        if status is None or not path.endswith((CLEANED, SWAP)):
            return self.holds(path, new)
        staged, key = self.names.stage(new.name), _key_of(status)
        if self.state(staged) is not None and not self.is_one_file(staged, path):
            return False
        if self.holds(new.name, new) and not self.is_original(group, new.name):
            return False
        if not group.parts:
            return self.holds(path, new)
        if (
            key not in self._ours
            and status.st_size == new.size
            and has_parts(self.at(path), group.parts, self.tree)
        ):
            self._ours.add(key)
        return key in self._ours

    # -- what steps are made of

    def changed(self, *paths: str) -> None:
        """Note that names in the folders of these paths changed, so that a later step syncs them."""
        self._dirty.update(path.rpartition("/")[0] for path in paths)

    def sync(self, path: str) -> None:
        """Make the names in a folder durable, if any has changed.

        Raises:
            OSError: that could not be done; it counts as changed.
        """
        if path in self._dirty:
            self.disk.sync_dir(self.at(path))
            self._dirty.discard(path)

    def remove(self, path: str) -> None:
        """Remove a file of ours, if it exists."""
        if self.tree.is_there(self.at(path)):
            self._forget(path)
            self.disk.unlink(self.at(path))
            self.changed(path)

    def rename(self, source: str, target: str) -> None:
        """Move a file."""
        self._forget(target)
        status = self._status(source)
        if status is not None and source.startswith(self.names.stage()):
            self._ours.add(_key_of(status))
        self.disk.rename(self.at(source), self.at(target))
        self.changed(source, target)

    def put_over(self, source: str, target: str) -> None:
        """Rename a file over another one, where only the target's folder has to be synced."""
        self._forget(target)
        self.disk.rename(self.at(source), self.at(target))
        self.changed(target)

    def give(self, source: str, target: str, via: str = "") -> None:
        """Link ``source``, or copy it by way of ``via``: ``target`` is never half a file."""
        if via:
            self.remove(via)
            self.disk.copy(self.at(source), self.at(via))
            self.rename(via, target)
        else:
            self.disk.link(self.at(source), self.at(target))
            self.changed(target)

    def check_log(self, path: str, group: Intent) -> None:
        """Refuse a ``.log`` that is neither the original nor the new one.

        Raises:
            StalePlanError: it is neither.
        """
        current = self.state(path)
        if (
            current is None
            or "/" in path
            or not path.removesuffix(SWAP).removesuffix(CLEANED).endswith(".log")
        ):
            return
        if not self.is_original(group, path) and not self._is_new_log(path, group):
            raise StalePlanError(
                f"{self.at(path)}: expected the original, or the file that this plan made ({group.log.size} "
                f"bytes); found another one ({current.size} bytes): it was written since"
            )

    def litter(self, group: Intent) -> list[str]:
        """Return the ``.swap`` and ``.cleaned`` of a group that exist, without those of other programs.

        The log tells whose they are: krepair does not change one that it renames. A broker that was stopped while it
        cleaned leaves one of its own, with its indexes beside it.
        """
        log = group.log.name
        theirs = tuple(suffix for suffix in (CLEANED, SWAP) if self.is_of_somebody_else(log + suffix, group))
        names = [name for name in litter_names(group) if self.state(name) is not None]
        return [name for name in names if not name.endswith(theirs)]

    def is_of_somebody_else(self, path: str, group: Intent) -> bool:
        """Return whether a ``.log.swap`` or ``.log.cleaned`` exists that is not the new log of a group."""
        return self.state(path) is not None and not self._is_new_log(path, group)

    def written_since(self, name: str) -> StalePlanError:
        """Return the refusal to take back a file that another program changed or removed since apply."""
        verb = "is gone" if self.state(name) is None else "was written"
        return StalePlanError(f"{self.at(name)}: {verb} since the plan was applied")

    def swap_of_others(self, swap: str) -> StalePlanError:
        """Return the refusal to continue beside a foreign swap, which may hold the only records of its segments."""
        return StalePlanError(
            f"{self.at(swap)}: another plan, or a broker, was stopped while it replaced these segments; go on with "
            "that plan, or undo it, first; without one start the broker and stop it: it completes the swap",
            next_command=Next.of("undo", self.log_dir),
        )

    def remove_litter(self, group: Intent) -> None:
        """Remove a group's ``.swap`` and ``.cleaned``, and kept originals that a broker renamed.

        Across an upgrade such a file would be renamed over a good index.
        """
        for name in self.litter(group):
            self.remove(name)
        self.remove_set_aside(group)

    def remove_set_aside(self, group: Intent) -> None:
        """Remove the ``.deleted`` names that a broker gave to originals, which are kept."""
        for original in group.originals:
            aside = f"{original.name}.deleted"
            if original.name in group.copied or self.state(aside) is None:
                continue
            # A run that was killed while it kept the originals has not come to all of them.
            places = [
                path for path in (original.name, self.names.keep(original.name)) if self.holds(path, original)
            ]
            if any(self.is_one_file(aside, path) for path in places) or (
                places and self.holds(aside, original)
            ):
                self.remove(aside)
        self.sync("")

    def check_logs(self, group: Intent) -> None:
        """Check that every ``.log`` under a name of the group is an original or the new one.

        Raises:
            StalePlanError: somebody else wrote one; the message names it.
        """
        for base_offset in group.sources:
            for suffix in ("", SWAP, CLEANED):
                self.check_log(segment_name(base_offset, ".log") + suffix, group)

    def check_finished(self, group: Intent) -> None:
        """Check that the new segment is in its place and alone.

        Raises:
            StalePlanError: it is not; the message names the file.
        """
        for merged in group.made:
            current = self.state(merged.name)
            if current is None and (merged.size or not merged.name.endswith(".txnindex")):
                raise StalePlanError(
                    f"{self.at(merged.name)}: is gone: removed by a broker started in between"
                )
        self.check_log(group.log.name, group)
        finals = {segment_name(group.base_offset, extension) for extension in SEGMENT_SUFFIXES}
        for original in group.originals:
            if original.name not in finals and self.state(original.name) is not None:
                raise StalePlanError(f"{self.at(original.name)}: was written since the plan was made")


class RootFolder(PartitionFolder):
    """The root of a log directory: its checkpoint files, replaced one by one.

    A folder of ours in the root would keep every broker from starting, so what is staged and kept lies in a sub-folder
    of one partition folder, as the fence's files do; it has a journal of its own and lives and goes by itself. A root
    file is replaced as an index is: kept by a hard link, then renamed over, so that every instant has the old file or
    the new one.

    Args:
        keeper: name of the partition folder that holds the private sub-folder.
        plan_id: names the private sub-folder.
    """

    def __init__(self, disk: Disk, log_dir: str, keeper: str, plan_id: str) -> None:
        super().__init__(disk, log_dir, ROOT, plan_id)
        self.path = log_dir
        self.names = Names(f"{keeper}/{root_private_folder(plan_id)}")
        self.private = f"{log_dir}/{self.names.private}"
        self.holder = f"{log_dir}/{keeper}"


def as_partition(root: RootPlan) -> PartitionPlan:
    """Return the root's changes as the part of a plan for one partition."""
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
    """Return whether one of krepair's own folders exists; an unfinished one is removed, to be created again.

    A run that is killed may leave a folder that has not got its owner and mode yet: the broker's user could not undo
    what is in it later. Such a folder is empty. One that holds something stays as it is.

    Args:
        mode: required mode.
        owner: (uid, gid) that it has to have.

    Raises:
        OSError: it could not be looked at, or removed.
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
    """Refuse a file of another kind; return whether the path exists."""
    status = tree.status(path)
    if status is not None and not is_kind(status.st_mode):
        raise RefusedError(
            f"{path}: expected a {kind} of krepair's own, found a {kind_of(status.st_mode)}; somebody put it there, "
            "and nothing was changed"
        )
    return status is not None


def _key_of(found: os.stat_result) -> _Key:
    """Return what identifies a file while a run holds its folder."""
    return found.st_ino, found.st_size, found.st_mtime_ns
