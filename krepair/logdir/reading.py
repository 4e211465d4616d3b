"""Opens files of a log directory so that nothing is changed by it, not even an access time."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

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
def opened_for_reading(name: str, folder: int | None = None) -> Iterator[int]:
    """Open a regular file for reading; yields the descriptor.

    Args:
        name: absolute path, or a name in ``folder``. Its last component is not followed if it is a symlink.
        folder: descriptor of an open folder.

    Raises:
        OSError: it cannot be opened; ``ELOOP`` for a symlink, ``EINVAL`` for anything else that is no regular
        file.
    """
    # Not to wait for the other end of a FIFO; on a regular file the flag means nothing.
    descriptor = _open_quietly(name, os.O_NONBLOCK, folder)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, f"expected a regular file, found a {kind_of(mode)}", name)
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def opened_folder(name: str, folder: int | None = None) -> Iterator[int]:
    """Open a folder for listing; yields the descriptor.

    Raises:
        OSError: it cannot be opened, or is a symlink or no folder (``ENOTDIR``).
    """
    descriptor = _open_quietly(name, os.O_DIRECTORY, folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_whole(name: str, at_most: int, folder: int | None = None) -> bytes:
    """Read a small file.

    Args:
        name: as of ``opened_for_reading``.
        at_most: bytes that are read; the caller sees from the length that there were more.
        folder: as of ``opened_for_reading``.

    Raises:
        OSError: as of ``opened_for_reading``, or a read error.
    """
    with opened_for_reading(name, folder) as descriptor:
        pieces = []
        position = 0
        while position < at_most and (piece := os.pread(descriptor, at_most - position, position)):
            pieces.append(piece)
            position += len(piece)
        return b"".join(pieces)


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


def _open_quietly(name: str, flags: int, folder: int | None) -> int:
    try:
        return os.open(name, _FLAGS | flags | os.O_NOATIME, dir_fd=folder)
    except PermissionError as error:
        # Only the owner of a file (or root) may leave its access time alone.
        if error.errno != errno.EPERM:
            raise
        return os.open(name, _FLAGS | flags, dir_fd=folder)
