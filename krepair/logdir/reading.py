"""Opening files of a log directory without changing anything, not even the access time if this user may keep it.

No component of an absolute path may be a link (see ``krepair.durable.tree``): every user with write access to a log
directory can put a link there at any moment. A path that an operator typed is resolved before that.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator

from krepair.durable.tree import Tree, read_descriptor, without_links
from krepair.errors import AS_A_READER
from krepair.logdir.values import FileRef

SECTOR = 512
"""Size in bytes of the blocks that ``stat`` counts, whatever the file system's own blocks are."""
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
    """Return the name of the kind of a directory entry, from its ``st_mode``."""
    return _KINDS.get(stat.S_IFMT(mode), "unknown kind")


class _Opened:
    """Context with a regular file open for reading. A generator would cost more time than the call itself."""

    __slots__ = ("_descriptor", "_name", "_within")

    def __init__(self, name: str, within: Tree | int | None) -> None:
        self._name, self._within = name, within

    def _open(self) -> tuple[int, os.stat_result]:
        # O_NONBLOCK: the call must not wait for the other end of a FIFO. It does not affect regular files.
        self._descriptor = _open_quietly(self._name, os.O_NONBLOCK, self._within)
        try:
            status = os.fstat(self._descriptor)
            if not stat.S_ISREG(status.st_mode):
                kind = kind_of(status.st_mode)
                raise OSError(errno.EINVAL, f"expected a regular file, found a {kind}", self._name)
        except OSError as error:
            self.__exit__(OSError, error, None)
            raise
        return self._descriptor, status

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        os.close(self._descriptor)
        if isinstance(error, OSError):
            # The error of a call on a descriptor does not name the file.
            error.filename = error.filename or self._name


class WithStatus(_Opened):
    """Context with descriptor and status of a file, see ``opened_with_status``."""

    __slots__ = ()

    def __enter__(self) -> tuple[int, os.stat_result]:
        return self._open()


class ForReading(_Opened):
    """Context with the descriptor of a file, see ``opened_for_reading``."""

    __slots__ = ()

    def __enter__(self) -> int:
        return self._open()[0]


def opened_for_reading(name: str, within: Tree | int | None = None) -> ForReading:
    """Return a context manager that opens a regular file for reading and gives its descriptor.

    Args:
        name: absolute path; if ``within`` is a descriptor, a name in that folder.
        within: tree that holds the path, or descriptor of an open folder; None to open the path directly.

    Raises:
        OSError: on entry: the file cannot be opened; ``ELOOP`` if a component is a symlink, ``EINVAL`` if it is not a
            regular file.
    """
    return ForReading(name, within)


def opened_with_status(name: str, within: Tree | int | None = None) -> WithStatus:
    """Open a file like ``opened_for_reading``, and also give its status at opening."""
    return WithStatus(name, within)


@contextlib.contextmanager
def opened_folder(name: str, within: Tree | int | None = None) -> Iterator[int]:
    """Open a folder for listing; yield its descriptor.

    Args:
        name: see ``opened_for_reading``.
        within: see ``opened_for_reading``.

    Raises:
        OSError: the folder cannot be opened, is a symlink (``ELOOP``), or is not a folder (``ENOTDIR``).
    """
    descriptor = _open_quietly(name, os.O_DIRECTORY, within)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_whole(name: str, at_most: int, within: Tree | int | None = None) -> bytes:
    """Read a small file.

    Args:
        name: see ``opened_for_reading``.
        at_most: largest number of bytes to read. A caller can request one byte more to see whether the file is longer.
        within: see ``opened_for_reading``.

    Raises:
        OSError: see ``opened_for_reading``; or a read error.
    """
    with opened_with_status(name, within) as (descriptor, status):
        return read_descriptor(descriptor, at_most, status.st_size)


def read_open(descriptor: int, at_most: int) -> bytes:
    """Read the first bytes of an open file; see ``read_whole``.

    Raises:
        OSError: a read error.
    """
    return read_descriptor(descriptor, at_most)


def read_into_from(descriptor: int) -> Callable[[memoryview, int], int]:
    """Return a function that fills a buffer from a file position and returns the bytes read, 0 at the end."""
    return lambda buffer, position: os.preadv(descriptor, [buffer], position)


def read_exactly_from(descriptor: int) -> Callable[[int, int], bytes]:
    """Return a function (count, position) that reads exactly ``count`` bytes of an open file.

    Raises:
        OSError: from that function: a read error; ``ENODATA`` if the file ends earlier.
    """

    def read(count: int, position: int) -> bytes:
        data = pread_all(descriptor, count, position)
        if len(data) < count:
            raise OSError(errno.ENODATA, "it has become shorter since it was listed")
        return data

    return read


def pread_all(descriptor: int, count: int, position: int = 0) -> bytes:
    """Read ``count`` bytes of an open file, fewer at its end."""
    pieces = []
    while count > 0 and (piece := os.pread(descriptor, count, position)):
        pieces.append(piece)
        position += len(piece)
        count -= len(piece)
    return b"".join(pieces)


def status_of(path: str, tree: Tree | None = None) -> os.stat_result:
    """Return the ``lstat`` of an absolute path without links among its components.

    Raises:
        OSError: the path does not exist (``ENOENT``), or it cannot be looked up.
    """
    path_status = (tree or without_links()).status(path)
    if path_status is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return path_status


def is_there(path: str, tree: Tree | None = None) -> bool:
    """Return whether a path exists, even as a link.

    Raises:
        OSError: the path cannot be looked up; that does not mean that it is missing.
    """
    return (tree or without_links()).is_there(path)


def file_ref(name: str, folder_path: str, status: os.stat_result) -> FileRef:
    """Build the value of a regular file from its ``lstat``."""
    return FileRef(
        name,
        f"{folder_path}/{name}",
        status.st_size,
        status.st_mtime_ns,
        status.st_ino,
        status.st_dev,
        status.st_uid,
        status.st_gid,
        stat.S_IMODE(status.st_mode),
        status.st_nlink,
        status.st_blocks * SECTOR,
    )


def why(error: OSError) -> str:
    """Return the system's message without a path; if only permissions are missing, it says how to run krepair."""
    name = errno.errorcode.get(error.errno or 0, "")
    who = f"; run krepair {AS_A_READER}" if isinstance(error, PermissionError) else ""
    return f"{error.strerror} ({name}){who}" if name else str(error)


def _open_quietly(name: str, flags: int, within: Tree | int | None) -> int:
    flags |= _FLAGS
    try:
        return _open(name, flags | os.O_NOATIME, within)
    except PermissionError as error:
        # Only the owner of a file, or root, may open it without changing its access time.
        if error.errno != errno.EPERM:
            raise
        return _open(name, flags, within)


def _open(name: str, flags: int, within: Tree | int | None) -> int:
    if isinstance(within, int):
        return os.open(name, flags, dir_fd=within)
    return (within or without_links()).open(name, flags)
