"""Opens files of a log directory so that nothing is changed by it, not even an access time.

Wherever a path is absolute, no link is followed in the place of any of its components (see ``krepair.durable.tree``):
whoever may write a log directory may put a link there at any moment. A path that an operator typed is resolved first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from krepair.durable.tree import Tree, without_links
from krepair.logdir.values import FileRef

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = {
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFBLK: "block device",
    stat.S_IFCHR: "character device",
    stat.S_IFDIR: "folder",
    stat.S_IFREG: "file",
}


def kind_of(mode: int) -> str:
    """Name the kind of a directory entry from its ``st_mode``."""
    return _KINDS.get(stat.S_IFMT(mode), "unknown kind")


@contextlib.contextmanager
def opened_for_reading(name: str, within: Tree | int | None = None) -> Iterator[int]:
    """Open a regular file for reading; yields the descriptor.

    Args:
        name: absolute path; or a name in the folder of which ``within`` is the descriptor.
        within: the tree below which the path is, or the descriptor of an open folder. None: anywhere.

    Raises:
        OSError: it cannot be opened; ``ELOOP`` for a symlink in the place of any component, ``EINVAL`` for anything
        else that is no regular file.
    """
    # Not to wait for the other end of a FIFO; on a regular file the flag means nothing.
    descriptor = _open_quietly(name, os.O_NONBLOCK, within)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, f"expected a regular file, found a {kind_of(mode)}", name)
        yield descriptor
    except OSError as error:
        # Of a call on a descriptor the system does not say the name.
        error.filename = error.filename or name
        raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def opened_folder(name: str, within: Tree | int | None = None) -> Iterator[int]:
    """Open a folder for listing; yields the descriptor.

    Args:
        name: as of ``opened_for_reading``.
        within: as of ``opened_for_reading``.

    Raises:
        OSError: it cannot be opened, or is a symlink or no folder (``ELOOP``, ``ENOTDIR``).
    """
    descriptor = _open_quietly(name, os.O_DIRECTORY, within)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_whole(name: str, at_most: int, within: Tree | int | None = None) -> bytes:
    """Read a small file.

    Args:
        name: as of ``opened_for_reading``.
        at_most: bytes that are read; the caller sees from the length that there were more.
        within: as of ``opened_for_reading``.

    Raises:
        OSError: as of ``opened_for_reading``, or a read error.
    """
    with opened_for_reading(name, within) as descriptor:
        return read_open(descriptor, at_most)


def read_open(descriptor: int, at_most: int) -> bytes:
    """The first bytes of an open file; see ``read_whole``.

    Raises:
        OSError: a read error.
    """
    pieces = []
    position = 0
    while position < at_most and (piece := os.pread(descriptor, at_most - position, position)):
        pieces.append(piece)
        position += len(piece)
    return b"".join(pieces)


def status_of(path: str, tree: Tree | None = None) -> os.stat_result:
    """What ``lstat`` says of an absolute path; no link is followed on the way either.

    Raises:
        OSError: nothing has the name (``ENOENT``), or it cannot be looked at.
    """
    found = (tree or without_links()).status(path)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return found


def is_there(path: str, tree: Tree | None = None) -> bool:
    """Whether anything, a link too, has the name.

    Raises:
        OSError: that cannot be told: a path that cannot be looked at is never taken for one that is not there.
    """
    return (tree or without_links()).is_there(path)


def file_ref(name: str, folder_path: str, status: os.stat_result) -> FileRef:
    """Make the value of a regular file from its one ``lstat``."""
    return FileRef(
        name=name,
        path=f"{folder_path}/{name}",
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
        inode=status.st_ino,
        device=status.st_dev,
        uid=status.st_uid,
        gid=status.st_gid,
        mode=stat.S_IMODE(status.st_mode),
        nlink=status.st_nlink,
    )


def why(error: OSError) -> str:
    """Say what the operating system said, without a path in it."""
    name = errno.errorcode.get(error.errno or 0, "")
    return f"{error.strerror} ({name})" if name else str(error)


def _open_quietly(name: str, flags: int, within: Tree | int | None) -> int:
    try:
        return _open(name, _FLAGS | flags | os.O_NOATIME, within)
    except PermissionError as error:
        # Only the owner of a file (or root) may leave its access time alone.
        if error.errno != errno.EPERM:
            raise
        return _open(name, _FLAGS | flags, within)


def _open(name: str, flags: int, within: Tree | int | None) -> int:
    if isinstance(within, int):
        return os.open(name, flags, dir_fd=within)
    return (within or without_links()).open(name, flags)
