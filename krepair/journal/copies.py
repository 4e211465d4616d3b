"""Copies of originals in a folder on another file system: ``plan --keep DIR``.

They lie in ``DIR/krepair~<plan id>/<partition folder>/``, under the names that they had. A copy is synced and read back
before the original is replaced, read once more right before the original goes, and read again after it was brought
back. So nothing that happens to the folder meanwhile is believed. Like the private sub-folders, that folder is the
owner's of the partition.

The file ``DIR/krepair~<plan id>/identity`` says which folder this is. It holds a number that is drawn when the folder
is made. It is written before the first copy, each journal whose originals are copied names it, and it goes after the
last of these journals. So a mount point without its file system is not taken for a folder that has no copies.

Beside it each log directory that uses the copies has a file, see ``krepair.journal.users_of_copies``. While another
directory may need them, no copy is removed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from krepair.durable.attributes import read_attributes
from krepair.durable.disk import Disk
from krepair.durable.writeback import drop_from_cache
from krepair.errors import RefusedError, StalePlanError, VerifyFailedError
from krepair.formats.filenames import META_PROPERTIES, private_folder
from krepair.journal.folder import PartitionFolder, is_made
from krepair.journal.record import CopiesKept, FileState, Here
from krepair.journal.root import ROOT
from krepair.journal.users_of_copies import Noted, is_users, strike_out, users_in, write_down
from krepair.logdir.fingerprint import digest_content

IDENTITY_NAME: Final = "identity"
_NEW_IDENTITY: Final = "identity.new"
_MAGIC: Final = "krepair copies"
_IDENTITY_BYTES: Final = 16
_MOST_IDENTITY_BYTES: Final = 1 << 16
_ANOTHER = "name a folder on another file system with krepair plan --keep DIR"
_WITH_HOLES: Final = (".index", ".timeindex")
_SECTOR: Final = 512
_IS_IT_MOUNTED: Final = "is its file system mounted?"


class Identity(Struct, frozen=True, kw_only=True):
    """What tells the folder of one plan's copies from any other folder at the same path.

    Attributes:
        magic: ``_MAGIC``.
        plan_id: of the plan.
        log_dir: whose originals are copied.
        identity: 32 hex digits, drawn when the folder was made.
    """

    magic: str
    plan_id: str
    log_dir: str
    identity: str


class Restored(NamedTuple):
    """What is in ``keep/`` after a restore.

    Attributes:
        states: of the originals, in the order in which they were asked for.
        brought: names of those that were not there before.
    """

    states: list[FileState]
    brought: tuple[str, ...]


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
        f"{path}: is not there, or is a link; copies of originals belong into this folder; {_IS_IT_MOUNTED} Nothing "
        "was changed"
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
        self._plan_id = plan_id
        self._own = f"{path}/{private_folder(plan_id)}"
        self._known = ""
        self._here: Here | None = None
        self._is_written_down = False
        self.needed_by: tuple[str, ...] = ()
        """Why no copy may be removed: other log directories that may need them."""
        self.why_it_stays = ""
        """Why the folder of the plan could not be removed at the end; empty if it was, or is still needed."""

    # -- which folder it is

    def check_there(self) -> None:
        """Checks that the folder is there, and is the one that this run has opened.

        Raises:
            RefusedError: it is not.
            OSError: it could not be looked at.
        """
        if not os.path.isdir(self.path) or os.path.realpath(self.path) != self.path:
            raise RefusedError(_not_there(self.path))
        here, opened = os.stat(self.path), self._disk.tree.status(self.path)
        if opened is None or (here.st_dev, here.st_ino) != (opened.st_dev, opened.st_ino):
            raise RefusedError(
                f"{self.path}: is no longer the folder that it was when this run began: somebody exchanged it, or "
                f"unmounted its file system; {_IS_IT_MOUNTED} Nothing more is changed"
            )
        if self._known and self._identity() != self._known:
            raise RefusedError(self._not_ours())

    def is_there(self) -> bool:
        """Whether there is a folder for copies, whichever it is."""
        return os.path.isdir(self.path)

    def check_is(self, identity: str) -> None:
        """Checks that the folder is the one that the journals of the plan name, now and from now on.

        Args:
            identity: as the journals name it.

        Raises:
            RefusedError: it is not there, or is another one.
            OSError: it could not be looked at.
        """
        self._known = identity
        self.check_there()

    def _not_ours(self) -> str:
        return (
            f"{self._own}/{IDENTITY_NAME}: expected the identity {self._known} that the journals of plan "
            f"{self._plan_id} name, it is not there; {_IS_IT_MOUNTED} Nothing was changed"
        )

    def _identity(self, log_dir: str = "") -> str:
        """Identity that the folder has; empty if it has none that can be read.

        Raises:
            RefusedError: it is that of another log directory.
        """
        if not self._disk.tree.is_folder(self._own):
            return ""
        data = self._disk.tree.read(f"{self._own}/{IDENTITY_NAME}", _MOST_IDENTITY_BYTES)
        try:
            found = msgspec.json.decode(data or b"", type=Identity)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return ""
        if log_dir and found.log_dir != log_dir:
            raise RefusedError(
                f"{self._own}: holds copies of originals of {found.log_dir}, not of {log_dir}; nothing was changed"
            )
        return found.identity if (found.magic, found.plan_id) == (_MAGIC, self._plan_id) else ""

    # -- who uses it

    def users(self) -> list[Noted]:
        """Every log directory that is written down as a user of these copies.

        Raises:
            OSError: the folder could not be looked at.
        """
        return users_in(self._disk, self._own)

    def used_by(self, here: Here, needed_by: tuple[str, ...]) -> None:
        """Says which log directory this run works in, and who else may need the copies.

        In a folder whose identity was checked the directory is written down at once, else before the first copy.

        Args:
            here: the log directory.
            needed_by: see the attribute.

        Raises:
            OSError: a call failed.
        """
        self._here, self.needed_by = here, needed_by
        if self._known:
            owner = self._disk.tree.status(self._own)
            write_down(self._disk, self._own, here, None if owner is None else (owner.st_uid, owner.st_gid))
            self._is_written_down = True

    @property
    def own(self) -> str:
        """Absolute path of the plan's folder in the folder for copies."""
        return self._own

    def has_own_folder(self) -> bool:
        """Whether there is a folder of this plan in the folder for copies.

        Raises:
            OSError: it could not be looked at.
        """
        return self._disk.tree.is_folder(self._own)

    def record(self) -> CopiesKept | None:
        """What a journal says of the folder; None while it has no identity.

        Raises:
            OSError: it could not be read.
        """
        identity = self._known or self._identity()
        return CopiesKept(path=self.path, identity=identity) if identity else None

    def place(self, folder: PartitionFolder) -> str:
        """Absolute path of the folder for the originals of a partition."""
        return f"{self._own}/{folder.folder}"

    # -- forward

    def keep(
        self, folder: PartitionFolder, originals: Sequence[FileState], *, recorded: bool = False
    ) -> dict[str, str]:
        """Copies originals, syncs the copies and reads them back; may be repeated.

        Args:
            folder: the partition folder.
            originals: each of them in its place, or in ``keep/``.
            recorded: whether the journal tells of the change. Then an earlier run has synced these copies, and one that
                is still right is used. Else that run may have met an error in its sync, after which a later sync says
                nothing (Rebello et al., ATC'20): such a copy is made anew.

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
            copy = f"{place}/{original.name}"
            digests[original.name] = self._keep(folder, original, copy, recorded=recorded)
        self._disk.sync_dir(place)
        return digests

    def _make_folders(self, folder: PartitionFolder) -> str:
        self.check_there()
        place, owner = self.place(folder), folder.owner()
        self._make_folder(self._own, owner)
        self._make_identity(folder.log_dir, owner)
        self._make_folder(place, owner)
        return place

    def _make_folder(self, path: str, owner: tuple[int, int]) -> None:
        found = self._disk.tree.status(path)
        own = {owner[0], os.geteuid(), 0}
        if found is not None and not (stat.S_ISDIR(found.st_mode) and found.st_uid in own):
            raise RefusedError(
                f"{path}: expected a folder of krepair's own, found something of user {found.st_uid}; somebody put "
                "it there, and nothing was changed"
            )
        if not is_made(self._disk, path, 0o700, owner):
            self._disk.make_dir(path, 0o700, owner)
            self._disk.sync_dir(os.path.dirname(path))

    def _make_identity(self, log_dir: str, owner: tuple[int, int]) -> None:
        """Before the first copy: from then on a journal may name it."""
        self._known = self._known or self._identity(log_dir)
        if self._known:
            self._write_user_down(owner)
            return
        identity = secrets.token_hex(_IDENTITY_BYTES)
        made = Identity(magic=_MAGIC, plan_id=self._plan_id, log_dir=log_dir, identity=identity)
        new = f"{self._own}/{_NEW_IDENTITY}"
        if self._disk.tree.is_there(new):
            self._disk.unlink(new)
        self._disk.create(new, msgspec.json.encode(made) + b"\n", owner=owner)
        self._disk.rename(new, f"{self._own}/{IDENTITY_NAME}")
        self._disk.sync_dir(self._own)
        # The folder itself may have been left by a run that was killed before its name was durable.
        self._disk.sync_dir(self.path)
        self._known = identity
        self._write_user_down(owner)

    def _write_user_down(self, owner: tuple[int, int]) -> None:
        if self._here is not None and not self._is_written_down:
            write_down(self._disk, self._own, self._here, owner)
            self._is_written_down = True

    def _keep(self, folder: PartitionFolder, original: FileState, copy: str, *, recorded: bool) -> str:
        kept = folder.names.keep(original.name)
        source = kept if folder.state(kept) is not None else original.name
        found = folder.state(source)
        if found is None or found.size != original.size:
            raise StalePlanError(f"{folder.at(source)}: is not the original of {original.size} bytes")
        digest = digest_content(folder.at(source), folder.tree)
        if self._disk.tree.is_there(copy):
            if recorded:
                drop_from_cache(copy, self._disk.tree)
                if not self._problem(copy, folder.at(source), digest, folder):
                    return digest
            self._disk.unlink(copy)
        self._copy(folder, source, copy, digest)
        return digest

    def _copy(self, folder: PartitionFolder, source: str, copy: str, digest: str) -> None:
        self._disk.copy(folder.at(source), copy, folder.tree)
        drop_from_cache(copy, self._disk.tree)
        problem = self._problem(copy, folder.at(source), digest, folder)
        if problem:
            refused = RefusedError if problem.startswith(_LOSES) else VerifyFailedError
            raise refused(f"{copy}: {problem}; the original stays, and nothing was changed")

    def _problem(self, copy: str, source: str, digest: str, folder: PartitionFolder) -> str:
        """What differs between an original and its copy, or empty."""
        here = read_attributes(copy, self._disk.tree)
        there = read_attributes(source, folder.tree)
        for name in ("uid", "gid", "mode", "mtime_ns", "xattrs"):
            if getattr(here, name) != getattr(there, name):
                return f"{_LOSES} {name} of the original ({_ANOTHER})"
        return (
            ""
            if digest_content(copy, self._disk.tree) == digest
            else "its bytes are not those that were copied"
        )

    def make_sure(
        self, folder: PartitionFolder, originals: Sequence[FileState], digests: Mapping[str, str]
    ) -> None:
        """Reads copies from their disk, right before the originals go; one that is not right is made again.

        Args:
            folder: the partition folder.
            originals: as they were.
            digests: name -> digest of what each held.

        Raises:
            RefusedError: the folder is not there, or a copy is not and cannot be made again.
            VerifyFailedError: a copy is not what was kept, and cannot be made again.
            OSError: a call failed. In each of these cases all originals that are still kept have to stay.
        """
        self.check_there()
        place = self.place(folder)
        made = False
        for original in originals:
            copy, kept = f"{place}/{original.name}", folder.names.keep(original.name)
            digest = digests.get(original.name, "")
            wrong = self._why_not(copy, original, digest)
            if not wrong:
                continue
            if folder.state(kept) is None or digest_content(folder.at(kept), folder.tree) != digest:
                refused = RefusedError if wrong == _GONE else VerifyFailedError
                raise refused(f"{copy}: {wrong}; what is still kept of its change stays")
            self._make_folders(folder)
            if self._disk.tree.is_there(copy):
                self._disk.unlink(copy)
            self._copy(folder, kept, copy, digest)
            made = True
        if made:
            self._disk.sync_dir(place)

    def _why_not(self, copy: str, original: FileState, digest: str) -> str:
        """Why a file is not the copy of an original, or empty; it is read from the disk."""
        tree = self._disk.tree
        found = tree.status(copy) if tree.is_folder(os.path.dirname(copy)) else None
        if found is None:
            return _GONE
        if not stat.S_ISREG(found.st_mode) or found.st_size != original.size:
            return _OTHER
        drop_from_cache(copy, tree)
        same = found.st_mtime_ns == original.mtime_ns and digest_content(copy, tree) == digest
        return "" if same else _OTHER

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

    # -- back

    def are_needed(
        self, folder: PartitionFolder, originals: Sequence[FileState], digests: Mapping[str, str]
    ) -> bool:
        """Whether any original is not here, so that a restore has to bring it.

        Raises:
            OSError: a kept file could not be read.
        """
        return bool(self.missing(folder, originals, digests))

    def missing(
        self, folder: PartitionFolder, originals: Sequence[FileState], digests: Mapping[str, str]
    ) -> list[FileState]:
        """The originals that are not here, or not right, so that a restore has to bring them.

        Raises:
            OSError: a kept file could not be read.
        """
        return [one for one in originals if not _is_here(folder, one, digests.get(one.name, ""))]

    def bytes_of(self, folder: PartitionFolder, original: FileState) -> int:
        """Bytes that a copy takes where it is brought back: of an index only its blocks, since holes stay holes.

        Raises:
            OSError: it could not be looked at.
        """
        place = self.place(folder)
        found = (
            self._disk.tree.status(f"{place}/{original.name}") if self._disk.tree.is_folder(place) else None
        )
        if found is None or not original.name.endswith(_WITH_HOLES):
            return original.size
        return min(original.size, found.st_blocks * _SECTOR)

    def restore(
        self, folder: PartitionFolder, originals: Sequence[FileState], digests: Mapping[str, str]
    ) -> Restored:
        """Brings the copies of those originals into ``keep/`` that are not there, synced and read again.

        What is in ``keep/`` and is right is used as it is. Nothing of what is there goes before all the others are on
        this disk, and right. It may be repeated.

        Args:
            folder: the partition folder.
            originals: as they were.
            digests: name -> digest of what each held.

        Raises:
            RefusedError: the folder, or a copy, is not there.
            VerifyFailedError: a copy is not what was kept; it was not brought back.
            OSError: a call failed.
        """
        folder.make_private_folders()
        missing = self.missing(folder, originals, digests)
        if missing:
            self.check_there()
        try:
            for original in missing:
                self._bring(folder, original, digests.get(original.name, ""))
            for original in missing:
                folder.disk.rename(
                    folder.at(_brought(folder, original.name)), folder.at(folder.names.keep(original.name))
                )
        finally:
            # What came, and is not used, takes space that the disk may not have.
            with contextlib.suppress(OSError):
                for original in missing:
                    _remove(folder, _brought(folder, original.name))
        if missing:
            folder.disk.sync_dir(folder.at(folder.names.keep()))
        return Restored(
            [_state_here(folder, original) for original in originals],
            tuple(original.name for original in missing),
        )

    def _bring(self, folder: PartitionFolder, original: FileState, digest: str) -> None:
        copy, new = f"{self.place(folder)}/{original.name}", _brought(folder, original.name)
        if not self._disk.tree.is_there(copy):
            raise RefusedError(f"{copy}: is not there; the new file stays, and nothing more is undone")
        _remove(folder, new)
        folder.disk.copy(copy, folder.at(new), self._disk.tree)
        state = folder.state(new)
        whole = digest_content(folder.at(new), folder.tree) == digest
        if state is None or not whole or state.mtime_ns != original.mtime_ns:
            raise VerifyFailedError(
                f"{copy}: is not the original that was copied there; the new file stays, and nothing more is undone"
            )

    # -- away

    def what_is_missing(
        self, folder: PartitionFolder, originals: Sequence[FileState], digests: Mapping[str, str]
    ) -> str:
        """The first copy that is not there or not right, and why; empty if all are. All of them are read.

        Raises:
            OSError: one could not be read.
        """
        for original in originals:
            copy = f"{self.place(folder)}/{original.name}"
            wrong = self._why_not(copy, original, digests.get(original.name, ""))
            if wrong:
                return f"{copy}: {wrong}"
        return ""

    def remove(self, folder: PartitionFolder) -> int:
        """Removes the copies of a partition, unless another log directory may need them.

        Of the root there are none: it keeps its own.

        Returns:
            Bytes of the files that went.

        Raises:
            RefusedError: the folder is not there.
            OSError: a call failed; run it again.
        """
        self.check_there()
        place, tree = self.place(folder), self._disk.tree
        freed = 0
        if self.needed_by:
            return 0
        if folder.folder != ROOT and tree.is_folder(self._own) and tree.is_folder(place):
            for name, found in tree.entries(place):
                self._disk.unlink(f"{place}/{name}")
                freed += found.st_size
            self._disk.remove_dir(place)
            self._disk.sync_dir(self._own)
        return freed

    def close(self) -> None:
        """Removes the identity, once no journal names it any more, and the folder of the plan, unless copies are left.

        Where another log directory may need the copies, only this one is struck out.

        Raises:
            OSError: a call failed; run it again.
        """
        tree = self._disk.tree
        if not tree.is_folder(self._own):
            return
        if self.needed_by:
            if self._here is not None:
                strike_out(self._disk, self._own, self._here)
            return
        names = tree.names(self._own)
        if any(name not in {IDENTITY_NAME, _NEW_IDENTITY} and not is_users(name) for name in names):
            return
        for name in sorted(names, key=lambda name: name in {IDENTITY_NAME, _NEW_IDENTITY}):
            self._disk.unlink(f"{self._own}/{name}")
        self._disk.remove_dir(self._own)
        self._disk.sync_dir(self.path)
        self._known = ""


_LOSES: Final = "its file system does not keep"
_GONE: Final = f"is not there; {_IS_IT_MOUNTED}"
_OTHER: Final = "is not the original that was copied there"


def _is_here(folder: PartitionFolder, original: FileState, digest: str) -> bool:
    kept = folder.names.keep(original.name)
    found = folder.state(kept)
    if found is None or (found.size, found.mtime_ns) != (original.size, original.mtime_ns):
        return False
    return digest_content(folder.at(kept), folder.tree) == digest


def _state_here(folder: PartitionFolder, original: FileState) -> FileState:
    found = folder.state(folder.names.keep(original.name))
    if found is None:
        raise StalePlanError(f"{folder.at(folder.names.keep(original.name))}: went meanwhile")
    return found


def _brought(folder: PartitionFolder, name: str) -> str:
    return folder.names.out(f"{name}.copy")


def _remove(folder: PartitionFolder, relative: str) -> None:
    if folder.tree.is_there(folder.at(relative)):
        folder.disk.unlink(folder.at(relative))
