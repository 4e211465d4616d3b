"""Makes sure that a log is read from the disk: its pages are written without an error and then leave the page cache.

After a crash of the broker process alone, the log is in the page cache, and it is not known how much of it is on the
disk. One barrier for the file system (``syncfs``) writes everything, however many files there are. Then each file is
asked whether its pages were written without an error. It is read again after the kernel was told to drop its pages.
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


# linux/magic.h and the headers of f2fs and OpenZFS
XFS: Final = 0x58465342
TMPFS: Final = 0x01021994
# ext2 to ext4, XFS, Btrfs, F2FS, ZFS, tmpfs
_ALL_IS_WRITTEN_BY_SYNCFS = frozenset({0xEF53, XFS, 0x9123683E, 0xF2F52010, 0x2FC12FC1, TMPFS})
# Those, and the overlay of containers: their locks are all in the one kernel that has them mounted.
_OF_ONE_HOST = _ALL_IS_WRITTEN_BY_SYNCFS | {0x794C7630}
_STATFS_BYTES = 512

MANY: Final = 256
"""Files or folders to be synced at once, from which one barrier for the whole file system is worth more than one for
each: it also waits for what others have written there."""


def can_sync_file_system(tree: Tree, path: str, folders: Iterable[str] = ()) -> bool:
    """Whether ``syncfs`` of a folder is known to make all names and bytes of other folders durable, too.

    It is not on FUSE, which does not pass it on to the process that has the files, nor on file systems over a network,
    nor where one of the others is on another file system, or cannot be looked at: work on that folder tells why.

    Raises:
        OSError: the folder ``path`` cannot be opened.
    """
    folder = tree.open_folder(path)
    try:
        return _is_known(tree, folder, folders)
    finally:
        os.close(folder)


def is_of_one_host(tree: Tree, path: str) -> bool:
    """Whether the file system of a folder is known to be mounted by one kernel alone: then its locks reach everybody.

    Raises:
        OSError: the folder cannot be opened.
    """
    with tree.reached(path) as folder:
        return is_open_on_one_host(folder)


def is_open_on_one_host(descriptor: int) -> bool:
    """As ``is_of_one_host``, for an open file or folder."""
    return kind_of(descriptor) in _OF_ONE_HOST


def kind_of(descriptor: int) -> int:
    """Number of the kind of file system that holds an open file or folder, as ``XFS``; -1 if it is not known.

    Source: ``linux/magic.h``. It costs a hundredth of a look into ``/proc/self/mountinfo``, which the kernel writes out
    for each reader.
    """
    found = ctypes.create_string_buffer(_STATFS_BYTES)
    if _FSTATFS is None or _FSTATFS(descriptor, found) != 0:
        return -1
    # The first field of ``struct statfs`` is the type; where it is shorter than a long, no type is known by this.
    return ctypes.c_long.from_buffer(found).value & 0xFFFFFFFF


def _is_known(tree: Tree, folder: int, others: Iterable[str]) -> bool:
    if _SYNCFS is None or _SYNC_FILE_RANGE is None or kind_of(folder) not in _ALL_IS_WRITTEN_BY_SYNCFS:
        return False
    device = os.fstat(folder).st_dev
    return all(_device(tree, other) == device for other in others)


def _device(tree: Tree, path: str) -> int | None:
    try:
        found = tree.status(path)
    except OSError:
        return None
    return None if found is None else found.st_dev


def sync_file_system(tree: Tree, path: str, folders: Iterable[str] = ()) -> bool:
    """Write out everything of the file system that holds a folder, with one barrier.

    Args:
        tree: the tree that holds the folders.
        path: absolute path of the folder.
        folders: absolute paths of others that the barrier has to be of, too.

    Returns:
        Whether that was done. If not, nothing was done: see ``can_sync_file_system``.

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
    """Wait until the pages of an open file are on the disk, and learn of errors.

    Args:
        descriptor: descriptor of the file.
        barrier: whether to use ``fsync``; needed if there was no barrier for the whole file system.

    Raises:
        OSError: a page could not be written.
    """
    if barrier or _SYNC_FILE_RANGE is None:
        os.fsync(descriptor)
        return
    if _SYNC_FILE_RANGE(descriptor, 0, 0, _ALL) != 0:
        number = ctypes.get_errno()
        if number not in {errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.ESPIPE}:
            raise OSError(number, os.strerror(number))
        os.fsync(descriptor)


def forget_pages(descriptor: int) -> None:
    """Ask the kernel to drop the pages of an open file, so that it is read from the disk. It is only a hint.

    Raises:
        OSError: the kernel refuses the call.
    """
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
