"""The one interface through which krepair changes anything on a disk.

Every file-changing call of krepair is a method of ``Disk``, so that a test can record, fail or stop any of
them. Nothing else in the project may create, write, rename, link or remove a file. Paths are absolute
``str``; names that are not UTF-8 travel with surrogate escapes, as ``os.fsdecode`` gives them.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from krepair.durable.tree import Tree


class Attributes(NamedTuple):
    """What a new file takes over from the file it replaces.

    Attributes:
        uid: owner.
        gid: group.
        mode: permission bits (``stat.S_IMODE``).
        mtime_ns: modification time in nanoseconds: the broker's clock for markers and tombstones.
        xattrs: extended attributes by name (ACLs and security labels among them).
    """

    uid: int
    gid: int
    mode: int
    mtime_ns: int
    xattrs: dict[str, bytes]


class Disk(Protocol):
    """File-changing calls. Each either happened, or raises ``OSError`` and did not.

    No name is durable by itself: call ``sync_file`` before a rename and ``sync_dir`` after it. No link is followed in
    the place of a file or folder. A file that is written, cut, or given attributes must have one name only, and the
    inode that is expected, where one is given: else it may be a file from elsewhere, and is refused (``EINVAL``).

    Attributes:
        tree: the directory below which everything is, for looking at it.
    """

    @property
    def tree(self) -> Tree:
        """See the class."""

    def make_dir(self, path: str, mode: int = 0o700, owner: tuple[int, int] | None = None) -> None:
        """Create a directory; it must not exist. ``owner`` (uid, gid) lets the broker delete it with its topic."""

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

        ``like`` gives it all attributes, ``owner`` (uid, gid) only these; else it is its maker's alone. Without
        ``synced`` it is not durable until ``sync_file_system`` or ``sync_file``.
        """

    def append(self, path: str, data: bytes) -> None:
        """Append to an existing file and fsync it (the journal)."""

    def reserve(self, path: str, size: int) -> None:
        """Create a file of ``size`` zero bytes if it is not there (idempotent; several tasks may call it)."""

    def write_at(self, path: str, position: int, pieces: list[memoryview]) -> int:
        """Write the pieces one after the other from ``position`` of an existing file; returns all bytes."""

    def truncate(self, path: str, size: int, inode: int = 0) -> None:
        """Cut a file to ``size`` bytes; ``inode``: that it must have."""

    def rename(self, source: str, target: str) -> None:
        """Rename over ``target`` if it is there."""

    def link(self, source: str, target: str) -> None:
        """Make a hard link; ``target`` must not exist."""

    def copy(self, source: str, target: str, of: Tree | None = None) -> None:
        """Make a synced copy with all attributes; ``target`` must not exist. Shares blocks if it can.

        ``of`` is the tree that the source is in, where it is another one.
        """

    def unlink(self, path: str) -> None:
        """Remove a file."""

    def set_attributes(self, path: str, attributes: Attributes, inode: int = 0) -> None:
        """Set owner, group, mode, extended attributes and, last, mtime; ``inode``: that the file must have."""

    def sync_file(self, path: str) -> None:
        """Make a file durable. After a failure write a new one, never retry (ATC'20)."""

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""

    def sync_file_system(self, path: str) -> bool:
        """Make everything on the file system of a folder durable, with one barrier.

        Returns whether that was done: not every file system has it, and then nothing is done. Kernels before 5.8 tell
        of no error here, so ``check_written`` is asked of each file that matters.
        """

    def check_written(self, path: str) -> None:
        """Raise the error that was met when a file was written out by ``sync_file_system``."""
