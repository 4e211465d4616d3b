"""Opens files of a log directory and changes nothing by that; even the access time stays, if this user may leave it.

No component of an absolute path may be a link (see ``krepair.durable.tree``): every user who may write a log directory
can put a link there at any moment. A path that an operator typed is resolved before that.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from krepair.durable.tree import Tree, read_descriptor, without_links
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
    """Name of the kind of a directory entry, from its ``st_mode``."""
    return _KINDS.get(stat.S_IFMT(mode), "unknown kind")


@contextlib.contextmanager
def opened_for_reading(name: str, within: Tree | int | None = None) -> Iterator[int]:
    """Open a regular file for reading; yields the descriptor.

    Args:
        name: an absolute path; if ``within`` is a descriptor, a name in that folder.
        within: the tree that holds the path, or the descriptor of an open folder. None: any place.

    Raises:
        OSError: it cannot be opened; ``ELOOP`` if a component is a symlink, ``EINVAL`` if it is not a regular file.
    """
    with opened_with_status(name, within) as (descriptor, _):
        yield descriptor


@contextlib.contextmanager
def opened_with_status(name: str, within: Tree | int | None = None) -> Iterator[tuple[int, os.stat_result]]:
    """As ``opened_for_reading``; yields the descriptor and what was seen of the file when it was opened."""
    # With this flag the call does not wait for the other end of a FIFO. For a regular file it changes nothing.
    descriptor = _open_quietly(name, os.O_NONBLOCK, within)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, f"expected a regular file, found a {kind_of(status.st_mode)}", name)
        yield descriptor, status
    except OSError as error:
        # For a call on a descriptor the system does not give the file name.
        error.filename = error.filename or name
        raise
    finally:
        os.close(descriptor)


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
    """The message of the operating system, without a path."""
    name = errno.errorcode.get(error.errno or 0, "")
    return f"{error.strerror} ({name})" if name else str(error)


def _open_quietly(name: str, flags: int, within: Tree | int | None) -> int:
    try:
        return _open(name, _FLAGS | flags | os.O_NOATIME, within)
    except PermissionError as error:
        # Only the owner of a file, or root, may open it without a change of its access time.
        if error.errno != errno.EPERM:
            raise
        return _open(name, _FLAGS | flags, within)


def _open(name: str, flags: int, within: Tree | int | None) -> int:
    if isinstance(within, int):
        return os.open(name, flags, dir_fd=within)
    return (within or without_links()).open(name, flags)
