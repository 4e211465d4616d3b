"""Opens files of a log directory and changes nothing by that; even the access time stays, if this user may leave it.

No component of an absolute path may be a link (see ``krepair.durable.tree``): every user who may write a log directory
can put a link there at any moment. A path that an operator typed is resolved before that.
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
"""Bytes of a block as ``stat`` counts them, whatever the file system's own blocks are."""
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
    """Name of the kind of a directory entry, from its ``st_mode``."""
    return _KINDS.get(stat.S_IFMT(mode), "unknown kind")


class _Opened:
    """A regular file that is open for reading while a body runs. No generator: one costs more than the call itself."""

    __slots__ = ("_descriptor", "_name", "_within")

    def __init__(self, name: str, within: Tree | int | None) -> None:
        self._name, self._within = name, within

    def _open(self) -> tuple[int, os.stat_result]:
        # With this flag the call does not wait for the other end of a FIFO. For a regular file it changes nothing.
        self._descriptor = _open_quietly(self._name, os.O_NONBLOCK, self._within)
        try:
            status = os.fstat(self._descriptor)
            if not stat.S_ISREG(status.st_mode):
                found = kind_of(status.st_mode)
                raise OSError(errno.EINVAL, f"expected a regular file, found a {found}", self._name)
        except OSError as error:
            self.__exit__(OSError, error, None)
            raise
        return self._descriptor, status

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        os.close(self._descriptor)
        if isinstance(error, OSError):
            # For a call on a descriptor the system does not give the file name.
            error.filename = error.filename or self._name


class WithStatus(_Opened):
    """See ``opened_with_status``."""

    __slots__ = ()

    def __enter__(self) -> tuple[int, os.stat_result]:
        return self._open()


class ForReading(_Opened):
    """See ``opened_for_reading``."""

    __slots__ = ()

    def __enter__(self) -> int:
        return self._open()[0]


def opened_for_reading(name: str, within: Tree | int | None = None) -> ForReading:
    """Open a regular file for reading; a context manager that gives the descriptor.

    Args:
        name: an absolute path; if ``within`` is a descriptor, a name in that folder.
        within: the tree that holds the path, or the descriptor of an open folder. None: any place.

    Raises:
        OSError: when it is entered: it cannot be opened; ``ELOOP`` if a component is a symlink, ``EINVAL`` if it is not
            a regular file.
    """
    return ForReading(name, within)


def opened_with_status(name: str, within: Tree | int | None = None) -> WithStatus:
    """As ``opened_for_reading``; gives the descriptor and what was seen of the file when it was opened."""
    return WithStatus(name, within)


@contextlib.contextmanager
def opened_folder(name: str, within: Tree | int | None = None) -> Iterator[int]:
    """Open a folder for listing; yields the descriptor.

    Args:
        name: see ``opened_for_reading``.
        within: see ``opened_for_reading``.

    Raises:
        OSError: it cannot be opened, is a symlink (``ELOOP``), or is not a folder (``ENOTDIR``).
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
        at_most: largest number of bytes to read. A caller can ask for one more to see whether the file is longer.
        within: see ``opened_for_reading``.

    Raises:
        OSError: see ``opened_for_reading``; or a read error.
    """
    with opened_with_status(name, within) as (descriptor, status):
        return read_descriptor(descriptor, at_most, status.st_size)


def read_open(descriptor: int, at_most: int) -> bytes:
    """The first bytes of an open file; see ``read_whole``.

    Raises:
        OSError: a read error.
    """
    return read_descriptor(descriptor, at_most)


def read_into_from(descriptor: int) -> Callable[[memoryview, int], int]:
    """A function that fills a buffer from a position of an open file. It gives the bytes read, 0 at the end."""
    return lambda buffer, position: os.preadv(descriptor, [buffer], position)


def read_exactly_from(descriptor: int) -> Callable[[int, int], bytes]:
    """A function that reads so many bytes from a position of an open file on.

    Raises:
        OSError: when it is called: a read error; ``ENODATA`` if the file ends before.
    """

    def read(count: int, position: int) -> bytes:
        data = pread_all(descriptor, count, position)
        if len(data) < count:
            raise OSError(errno.ENODATA, "it has become shorter since it was listed")
        return data

    return read


def pread_all(descriptor: int, count: int, position: int = 0) -> bytes:
    """So many bytes of an open file, fewer at its end."""
    pieces = []
    while count > 0 and (piece := os.pread(descriptor, count, position)):
        pieces.append(piece)
        position += len(piece)
        count -= len(piece)
    return b"".join(pieces)


def status_of(path: str, tree: Tree | None = None) -> os.stat_result:
    """The ``lstat`` of an absolute path. No component of the path may be a link.

    Raises:
        OSError: the path does not exist (``ENOENT``), or it cannot be looked up.
    """
    found = (tree or without_links()).status(path)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return found


def is_there(path: str, tree: Tree | None = None) -> bool:
    """Whether anything has this path, even a link.

    Raises:
        OSError: the path cannot be looked up. Such a path does not count as missing.
    """
    return (tree or without_links()).is_there(path)


def file_ref(name: str, folder_path: str, status: os.stat_result) -> FileRef:
    """The value of a regular file, made from its ``lstat``."""
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
    """The message of the operating system, without a path; where only the permissions are in the way, who may."""
    name = errno.errorcode.get(error.errno or 0, "")
    who = f"; run krepair {AS_A_READER}" if isinstance(error, PermissionError) else ""
    return f"{error.strerror} ({name}){who}" if name else str(error)


def _open_quietly(name: str, flags: int, within: Tree | int | None) -> int:
    flags |= _FLAGS
    try:
        return _open(name, flags | os.O_NOATIME, within)
    except PermissionError as error:
        # Only the owner of a file, or root, may open it without a change of its access time.
        if error.errno != errno.EPERM:
            raise
        return _open(name, flags, within)


def _open(name: str, flags: int, within: Tree | int | None) -> int:
    if isinstance(within, int):
        return os.open(name, flags, dir_fd=within)
    return (within or without_links()).open(name, flags)
