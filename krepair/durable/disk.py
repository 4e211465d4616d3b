"""The one interface through which krepair changes files.

Every call of krepair that changes a file of a log directory is a method of ``Disk``, so that a test can record, fail or
stop each of them. Paths are absolute and of type ``str``. Bytes of names that are not UTF-8 are surrogate escapes, as
``os.fsdecode`` gives them.

``put_whole`` replaces a whole file: whoever reads the name finds all of the old bytes or all of the new ones, even
after a power cut. The bytes are on the disk before their file gets the name, and the name is synced after that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple, Protocol

from krepair.durable.tree import Tree


class Attributes(NamedTuple):
    """Attributes that a new file gets from the file that it replaces.

    Attributes:
        mode: permission bits as ``stat.S_IMODE`` returns them.
        mtime_ns: modification time in nanoseconds, the broker's clock for markers and tombstones.
        xattrs: extended attributes by name, including ACLs and security labels.
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
    path may be a link. A file that is written, truncated or given attributes must have only one name. If the caller
    gives an inode, the file must have it; a file with another inode may come from another place, and the call fails
    (``EINVAL``).
    """

    @property
    def tree(self) -> Tree:
        """Directory that holds all paths, for reading."""

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

        The file gets all attributes of ``like``, or only the ``owner`` (uid, gid). Without both, only this user can
        read it. Without ``synced`` it is not durable until ``sync_file_system`` or ``sync_file``.
        """

    def append(self, path: str, data: bytes) -> None:
        """Append to an existing file and fsync it (the journal)."""

    def reserve(self, path: str, size: int) -> None:
        """Create a file of ``size`` zero bytes unless it exists. Several tasks may call it for one file."""

    def write_at(self, path: str, position: int, pieces: list[memoryview]) -> int:
        """Write consecutive pieces into an existing file from ``position``; return the number of bytes written."""

    def truncate(self, path: str, size: int) -> None:
        """Truncate a file to ``size`` bytes."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file or folder; a file with the name ``target`` is replaced."""

    def link(self, source: str, target: str) -> None:
        """Create a hard link; ``target`` must not exist."""

    def copy(self, source: str, target: str) -> None:
        """Create a durable copy with all attributes; ``target`` must not exist. It shares blocks if possible."""

    def unlink(self, path: str) -> None:
        """Remove a file."""

    def set_attributes(self, path: str, attributes: Attributes, inode: int = 0) -> None:
        """Set owner, group, mode, extended attributes, then mtime; the file must have ``inode`` if given."""

    def sync_file(self, path: str) -> None:
        """Make the content of a file durable.

        After a failure write a new file: a second call may succeed although data is lost (Rebello et al., ATC'20).
        """

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""

    def sync_file_system(self, path: str, folders: Iterable[str] = ()) -> bool:
        """Make everything on the file system of a folder, and of other folders, durable with one barrier.

        Returns False, and does nothing, if the file system does not support that or if one of the other folders is on
        another one. Kernels before 5.8 report no write error here, so call ``check_written`` for each file that
        matters.
        """

    def check_written(self, path: str) -> None:
        """Raise the error that occurred when ``sync_file_system`` wrote a file out."""


def put_whole(
    disk: Disk, path: str, new: str, make: Callable[[str], object], *, sync_name: bool = True
) -> None:
    """Write a file under a temporary name, then rename it; after a failure the temporary file may remain.

    Args:
        path: absolute final path of the file.
        new: absolute temporary path in the same folder; a file that a crash left there is removed.
        make: function that writes the file, durably, at the path that it is called with.
        sync_name: True to make the name durable too; else the caller syncs the folder.

    Raises:
        OSError: a call failed.
    """
    if disk.tree.is_there(new):
        disk.unlink(new)
    make(new)
    # ``make`` has synced the bytes: renamed before that, a power cut could leave the name with an empty file.
    disk.rename(new, path)
    if sync_name:
        disk.sync_dir(os.path.dirname(path))


def put_whole_or_nothing(disk: Disk, path: str, make: Callable[[str], object]) -> None:
    """Write a whole file outside of log directories, like ``put_whole``; remove the temporary file on failure.

    Inside log directories a later run cleans up; outside of them nobody would.

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
