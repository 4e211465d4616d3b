"""The one interface through which krepair changes files.

Every call of krepair that changes a file of a log directory is a method of ``Disk``, so that a test can record, fail or
stop each of them. Paths are absolute and of type ``str``. Bytes of names that are not UTF-8 are surrogate escapes, as
``os.fsdecode`` gives them.

Where a whole file takes the place of another one (``put_whole``), whoever reads the name finds all of the old bytes, or
all of the new ones. That holds after a power cut, too: a name is given to a file whose bytes are on the disk, and is
synced after that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple, Protocol

from krepair.durable.tree import Tree


class Attributes(NamedTuple):
    """The attributes that a new file gets from the file that it replaces.

    Attributes:
        uid: owner.
        gid: group.
        mode: permission bits (``stat.S_IMODE``).
        mtime_ns: modification time in nanoseconds, the broker's clock for markers and tombstones.
        xattrs: extended attributes by name, with ACLs and security labels.
    """

    uid: int
    gid: int
    mode: int
    mtime_ns: int
    xattrs: dict[str, bytes]


class Disk(Protocol):
    """Calls that change files. A call that fails raises ``OSError`` and has changed nothing.

    There are two exceptions: ``write_at`` and ``set_attributes`` may have done a part of their work.

    A name is not durable by itself: call ``sync_file`` before a rename and ``sync_dir`` after it. No component of a
    path may be a link. A file that is written, truncated or given attributes must have only one name. If an inode is
    given, the file must have it. Otherwise it may be a file from another place, and the call fails (``EINVAL``).

    Attributes:
        tree: the directory that holds all paths, to read it.
    """

    @property
    def tree(self) -> Tree:
        """The directory that holds all paths, to read it."""

    def make_dir(self, path: str, mode: int = 0o700, owner: tuple[int, int] | None = None) -> None:
        """Create a directory that must not exist. With ``owner`` (uid, gid) a broker can delete it with the topic."""

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory."""

    def create(
        self,
        path: str,
        data: bytes,
        like: Attributes | None = None,
        owner: tuple[int, int] | None = None,
        *,
        synced: bool = True,
    ) -> None:
        """Create a file that must not exist, write ``data`` and fsync it.

        It gets all attributes from ``like``, or only the ``owner`` (uid, gid). Otherwise only this user can read it.
        Without ``synced`` it is not durable until ``sync_file_system`` or ``sync_file``.
        """

    def append(self, path: str, data: bytes) -> None:
        """Append to an existing file and fsync it (the journal)."""

    def reserve(self, path: str, size: int) -> None:
        """Create a file of ``size`` zero bytes if it is not there. Several tasks may call it for one file."""

    def write_at(self, path: str, position: int, pieces: list[memoryview]) -> int:
        """Write the pieces one after the other from ``position`` of an existing file on; returns the bytes written."""

    def truncate(self, path: str, size: int) -> None:
        """Truncate a file to ``size`` bytes."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file or folder; a file that has the name ``target`` is replaced."""

    def link(self, source: str, target: str) -> None:
        """Make a hard link; ``target`` must not exist."""

    def copy(self, source: str, target: str) -> None:
        """Make a durable copy with all attributes; ``target`` must not exist. It shares blocks if possible."""

    def unlink(self, path: str) -> None:
        """Remove a file."""

    def set_attributes(self, path: str, attributes: Attributes, inode: int = 0) -> None:
        """Set owner, group, mode, extended attributes, and then mtime. The file must have this ``inode``, if given."""

    def sync_file(self, path: str) -> None:
        """Make the content of a file durable.

        After a failure write a new file; a second call may succeed although data is lost (Rebello et al., ATC'20).
        """

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""

    def sync_file_system(self, path: str, folders: Iterable[str] = ()) -> bool:
        """Make everything on the file system of a folder, and of other folders, durable with one barrier.

        Returns whether that was done. Not every file system has it, and the others may be on another one: then nothing
        is done. Kernels before 5.8 tell of no error here, so ``check_written`` is asked of each file that matters.
        """

    def check_written(self, path: str) -> None:
        """Raise the error that was met when a file was written out by ``sync_file_system``."""


def put_whole(
    disk: Disk, path: str, new: str, make: Callable[[str], object], *, sync_name: bool = True
) -> None:
    """Make a file under a name of its own, then give it its name. After a failure the first one may be left.

    Args:
        disk: does it.
        path: absolute path that the file gets.
        new: absolute path of its first name, in the same folder; what a crash left there goes.
        make: makes the file, with its bytes on the disk, at the path that it is called with.
        sync_name: whether the name is durable at the end; else the caller syncs the folder.

    Raises:
        OSError: a call failed.
    """
    if disk.tree.is_there(new):
        disk.unlink(new)
    make(new)
    disk.rename(new, path)
    if sync_name:
        disk.sync_dir(os.path.dirname(path))


def put_whole_or_nothing(disk: Disk, path: str, make: Callable[[str], object]) -> None:
    """The same outside of log directories, where nobody comes back for a file that is left: it goes at once.

    Raises:
        OSError: a call failed.
    """
    folder, name = os.path.split(path)
    new = os.path.join(folder, f".{name}.{os.getpid()}.tmp")
    try:
        put_whole(disk, path, new, make)
    except OSError:
        with suppress(OSError):
            if disk.tree.is_there(new):
                disk.unlink(new)
        raise
