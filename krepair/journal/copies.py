"""Copies of originals in a folder on another file system: ``plan --keep DIR``.

They lie in ``DIR/krepair~<plan id>/<partition folder>/``, under the names that they had. A copy is synced and read back
before the original goes, and read again after it was brought back, so nothing that happens to the folder meanwhile is
believed. Like the private sub-folders, that folder is the owner's of the partition.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping, Sequence

from krepair.durable.attributes import read_attributes
from krepair.durable.disk import Disk
from krepair.durable.writeback import drop_from_cache
from krepair.errors import KrepairError, RefusedError, StalePlanError, VerifyFailedError
from krepair.formats.filenames import META_PROPERTIES, private_folder
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import FileState
from krepair.journal.root import ROOT
from krepair.logdir.fingerprint import digest_content

_ANOTHER = "name a folder on another file system with krepair plan --keep DIR"


def check_place(path: str, log_dir: str) -> None:
    """Checks that a folder is a place for copies.

    Args:
        path: of the folder, absolute.
        log_dir: whose originals are copied.

    Raises:
        RefusedError: it is not there, on the file system of the log directory, or in a log directory.
        OSError: it could not be looked at.
    """
    if not os.path.isdir(path) or os.path.realpath(path) != path:
        raise RefusedError(_not_there(path))
    if os.stat(path).st_dev == os.stat(log_dir).st_dev:
        raise RefusedError(
            f"{path}: is on the same file system as {log_dir}; copies there take more space than originals that stay "
            f"where they are (--keep inplace); {_ANOTHER}"
        )
    above = path
    while above != "/":
        if os.path.lexists(f"{above}/{META_PROPERTIES}"):
            raise RefusedError(
                f"{path}: {above} is a log directory; a broker would take a folder of krepair's there for a partition "
                f"and not start; {_ANOTHER}"
            )
        above = os.path.dirname(above)


def _not_there(path: str) -> str:
    return (
        f"{path}: is not there, or is a link; copies of originals belong into this folder (mount its file system); "
        "nothing was changed"
    )


class Copies:
    """The copies of one plan.

    Args:
        disk: what writes in the folder.
        path: absolute path of the folder.
        plan_id: of the plan.
    """

    def __init__(self, disk: Disk, path: str, plan_id: str) -> None:
        self.path = path
        self._disk = disk
        self._own = f"{path}/{private_folder(plan_id)}"

    def check_there(self) -> None:
        """Checks that the folder is there.

        Raises:
            RefusedError: it is not.
            OSError: it could not be looked at.
        """
        if not os.path.isdir(self.path):
            raise RefusedError(_not_there(self.path))

    def place(self, folder: PartitionFolder) -> str:
        """Absolute path of the folder for the originals of a partition."""
        return f"{self._own}/{folder.folder}"

    def keep(self, folder: PartitionFolder, originals: Sequence[FileState]) -> dict[str, str]:
        """Copies originals, syncs the copies and reads them back; may be repeated.

        Args:
            folder: the partition folder.
            originals: each of them in its place, or in ``keep/``.

        Returns:
            Name -> digest of what it holds.

        Raises:
            StalePlanError: an original is not there.
            VerifyFailedError: a copy is not what was copied; the original stays.
            RefusedError: the file system cannot hold owner, mode, times or attributes; or the folder is somebody's.
            OSError: a call failed.
        """
        place = self._make_folders(folder)
        digests = {}
        for original in originals:
            digests[original.name] = self._keep(folder, original, f"{place}/{original.name}")
        self._disk.sync_dir(place)
        return digests

    def _make_folders(self, folder: PartitionFolder) -> str:
        self.check_there()
        place, owner = self.place(folder), folder.owner()
        for path in (self._own, place):
            found = self._disk.tree.status(path)
            if found is None:
                self._disk.make_dir(path, 0o700, owner)
                self._disk.sync_dir(os.path.dirname(path))
            elif not stat.S_ISDIR(found.st_mode) or found.st_uid not in {owner[0], os.geteuid(), 0}:
                raise RefusedError(
                    f"{path}: expected a folder of krepair's own, found something of user {found.st_uid}; somebody put "
                    "it there, and nothing was changed"
                )
        return place

    def _keep(self, folder: PartitionFolder, original: FileState, copy: str) -> str:
        kept = folder.names.keep(original.name)
        source = kept if folder.state(kept) is not None else original.name
        found = folder.state(source)
        if found is None or found.size != original.size:
            raise StalePlanError(f"{folder.at(source)}: is not the original of {original.size} bytes")
        digest = digest_content(folder.at(source), folder.tree)
        if self._disk.tree.is_there(copy) and self._problem(copy, folder.at(source), digest, folder):
            self._disk.unlink(copy)
        if not self._disk.tree.is_there(copy):
            self._disk.copy(folder.at(source), copy, folder.tree)
            drop_from_cache(copy, self._disk.tree)
            problem = self._problem(copy, folder.at(source), digest, folder)
            if problem:
                raise VerifyFailedError(f"{copy}: {problem}; the original stays, and nothing was changed")
        return digest

    def _problem(self, copy: str, source: str, digest: str, folder: PartitionFolder) -> str:
        """What differs between an original and its copy, or empty."""
        here = read_attributes(copy, self._disk.tree)
        there = read_attributes(source, folder.tree)
        for name in ("uid", "gid", "mode", "mtime_ns", "xattrs"):
            if getattr(here, name) != getattr(there, name):
                return f"its file system does not keep {name} of the original ({_ANOTHER})"
        return (
            ""
            if digest_content(copy, self._disk.tree) == digest
            else "its bytes are not those that were copied"
        )

    def digests(self, folder: PartitionFolder, originals: Sequence[FileState]) -> dict[str, str]:
        """Name -> digest of each copy as it is; empty unless all are there, with size and time of the originals.

        Raises:
            OSError: one cannot be read.
        """
        digests, tree = {}, self._disk.tree
        for original in originals:
            copy = f"{self.place(folder)}/{original.name}"
            found = tree.status(copy) if tree.is_folder(self.place(folder)) else None
            if found is None or (found.st_size, found.st_mtime_ns) != (original.size, original.mtime_ns):
                return {}
            digests[original.name] = digest_content(copy, tree)
        return digests

    def restore(
        self, folder: PartitionFolder, originals: Sequence[FileState], digests: Mapping[str, str]
    ) -> list[FileState]:
        """Brings copies back into ``keep/``, synced and read again; may be repeated.

        Args:
            folder: the partition folder.
            originals: as they were.
            digests: name -> digest of what each held.

        Returns:
            What is in ``keep/`` now, in the same order.

        Raises:
            RefusedError: the folder, or a copy, is not there.
            VerifyFailedError: a copy is not what was kept; it was not brought back.
            OSError: a call failed.
        """
        self.check_there()
        folder.make_private_folders()
        states: list[FileState] = []
        try:
            for original in originals:
                states.append(self._bring(folder, original, digests.get(original.name, "")))
        except (KrepairError, OSError):
            # What came back takes space that the disk may not have, and nobody needs it.
            with contextlib.suppress(OSError):
                for original in originals:
                    _remove(folder, folder.names.keep(original.name))
            raise
        folder.disk.sync_dir(folder.at(folder.names.keep()))
        return states

    def _bring(self, folder: PartitionFolder, original: FileState, digest: str) -> FileState:
        copy, kept = f"{self.place(folder)}/{original.name}", folder.names.keep(original.name)
        if not self._disk.tree.is_there(copy):
            raise RefusedError(f"{copy}: is not there; the new file stays, and nothing more is undone")
        _remove(folder, kept)
        folder.disk.copy(copy, folder.at(kept), self._disk.tree)
        state = folder.state(kept)
        whole = digest_content(folder.at(kept), folder.tree) == digest
        if state is None or not whole or state.mtime_ns != original.mtime_ns:
            raise VerifyFailedError(
                f"{copy}: is not the original that was copied there; the new file stays, and nothing more is undone"
            )
        return state

    def remove(self, folder: PartitionFolder) -> int:
        """Removes the copies of a partition; nothing, if there are none, as of the root: it keeps its own.

        Returns:
            Bytes of the files that went.

        Raises:
            RefusedError: the folder is not there.
            OSError: a call failed; run it again.
        """
        self.check_there()
        place, tree = self.place(folder), self._disk.tree
        freed = 0
        if folder.folder != ROOT and tree.is_folder(self._own) and tree.is_folder(place):
            for name, found in tree.entries(place):
                self._disk.unlink(f"{place}/{name}")
                freed += found.st_size
            self._disk.remove_dir(place)
            self._disk.sync_dir(self._own)
        if tree.is_folder(self._own) and not tree.names(self._own):
            self._disk.remove_dir(self._own)
            self._disk.sync_dir(self.path)
        return freed


def _remove(folder: PartitionFolder, relative: str) -> None:
    if folder.tree.is_there(folder.at(relative)):
        folder.disk.unlink(folder.at(relative))
