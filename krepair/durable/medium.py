"""Flushing of files to the disk, so that they can then be read from the disk itself and not from the page cache.

After a crash of the broker process alone, the log is in the page cache, and nobody knows how much of it is on the disk.
``syncfs`` writes out a whole file system with one call, here named a *barrier*. Then each file is checked for write
errors, and the kernel is asked to drop its pages. ``--fix recovery`` needs that before it advances a recovery point.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterable
from typing import Final

from krepair.durable.tree import Tree

_ALL = 1 | 2 | 4  # linux/fs.h: SYNC_FILE_RANGE_WAIT_BEFORE, _WRITE, _WAIT_AFTER


def _find(name: str, *arguments: type) -> Callable[..., int] | None:
    try:
        function = getattr(ctypes.CDLL(None, use_errno=True), name)
    except (OSError, AttributeError):
        return None
    function.argtypes = arguments
    function.restype = ctypes.c_int
    return function  # type: ignore[no-any-return]


_SYNCFS = _find("syncfs", ctypes.c_int)
_FSTATFS = _find("fstatfs", ctypes.c_int, ctypes.c_void_p)
_SYNC_FILE_RANGE = _find("sync_file_range", ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


# Numbers from linux/magic.h and the headers of f2fs and OpenZFS.
XFS: Final = 0x58465342
EXT4: Final = 0xEF53
TMPFS: Final = 0x01021994
# File systems whose syncfs writes everything: ext2 to ext4, XFS, Btrfs, F2FS, ZFS, tmpfs.
_ALL_IS_WRITTEN_BY_SYNCFS = frozenset({EXT4, XFS, 0x9123683E, 0xF2F52010, 0x2FC12FC1, TMPFS})
# These and the overlay of containers keep their locks in the one kernel that mounts them.
_OF_ONE_HOST = _ALL_IS_WRITTEN_BY_SYNCFS | {0x794C7630}
_STATFS_BYTES = 512

MANY: Final = 256
"""Number of files or folders from which one barrier is cheaper than one sync for each.

A barrier also waits for data that other programs have written to the file system.
"""


def can_sync_file_system(tree: Tree, path: str, folders: Iterable[str] = ()) -> bool:
    """Return whether ``syncfs`` of a folder reliably makes all names and bytes of other folders durable too.

    ``syncfs`` is not reliable on network file systems, nor on FUSE, which does not pass the call on to the process that
    has the files. It also does not help if another folder is on another file system, or cannot be examined.

    Raises:
        OSError: the folder ``path`` cannot be opened.
    """
    folder = tree.open_folder(path)
    try:
        return _is_known(tree, folder, folders)
    finally:
        os.close(folder)


def is_of_one_host(tree: Tree, path: str) -> bool:
    """Return whether one kernel alone mounts the folder's file system, so that its locks reach every process.

    Raises:
        OSError: the folder cannot be opened.
    """
    with tree.reached(path) as folder:
        return is_open_on_one_host(folder)


def is_open_on_one_host(descriptor: int) -> bool:
    """Check an open file or folder like ``is_of_one_host``."""
    return kind_of(descriptor) in _OF_ONE_HOST


def kind_of(descriptor: int) -> int:
    """Return the number of the file system type that holds an open file or folder, such as ``XFS``; -1 if unknown.

    Source: ``linux/magic.h``. This takes a hundredth of the time of ``/proc/self/mountinfo``, which the kernel formats
    for each reader.
    """
    status = ctypes.create_string_buffer(_STATFS_BYTES)
    if _FSTATFS is None or _FSTATFS(descriptor, status) != 0:
        return -1
    # The first field of ``struct statfs`` is the type. Where it is shorter than a long, no known type matches.
    return ctypes.c_long.from_buffer(status).value & 0xFFFFFFFF


def _is_known(tree: Tree, folder: int, others: Iterable[str]) -> bool:
    if _SYNCFS is None or _SYNC_FILE_RANGE is None or kind_of(folder) not in _ALL_IS_WRITTEN_BY_SYNCFS:
        return False
    device = os.fstat(folder).st_dev
    return all(_device(tree, other) == device for other in others)


def _device(tree: Tree, path: str) -> int | None:
    try:
        path_status = tree.status(path)
    except OSError:
        return None
    return None if path_status is None else path_status.st_dev


def sync_file_system(tree: Tree, path: str, folders: Iterable[str] = ()) -> bool:
    """Write out everything on the file system that holds a folder, with one barrier.

    Args:
        tree: tree that holds the folders.
        path: absolute path of the folder.
        folders: absolute paths of other folders that the barrier must cover too.

    Returns:
        True if that was done. False if nothing was done, see ``can_sync_file_system``.

    Raises:
        OSError: something could not be written, or the folder ``path`` cannot be opened.
    """
    folder = tree.open_folder(path)
    try:
        if not _is_known(tree, folder, folders) or _SYNCFS is None:
            return False
        if _SYNCFS(folder) == 0:
            return True
        number = ctypes.get_errno()
        if number in {errno.ENOSYS, errno.EOPNOTSUPP}:
            return False
        raise OSError(number, os.strerror(number), path)
    finally:
        os.close(folder)


def make_sure_it_is_written(descriptor: int, *, barrier: bool) -> None:
    """Wait until the pages of an open file are on the disk, and raise any write error.

    Args:
        barrier: True to use ``fsync``, which is needed if no barrier covered the whole file system.

    Raises:
        OSError: a page could not be written.
    """
    if barrier or _SYNC_FILE_RANGE is None:
        os.fsync(descriptor)
        return
    # Before 5.8 syncfs reports no write error, so each file is asked. There is nothing left to write: this only waits.
    if _SYNC_FILE_RANGE(descriptor, 0, 0, _ALL) != 0:
        number = ctypes.get_errno()
        if number not in {errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.ESPIPE}:
            raise OSError(number, os.strerror(number))
        os.fsync(descriptor)


def forget_pages(descriptor: int) -> None:
    """Ask the kernel to drop the pages of an open file, so that it is read from the disk; only a hint.

    Raises:
        OSError: the kernel refuses the call.
    """
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
