"""Makes sure that what is read comes from the disk: written out, without an error, and dropped from the page cache.

After a mere process crash the log is in the page cache, and nobody knows how much of it on the disk. One barrier for
the file system writes all of it out, whatever the number of files. Then each file is asked whether its pages went out
without an error, and read again after the kernel has been told to forget them.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable

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
_SYNC_FILE_RANGE = _find("sync_file_range", ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


def sync_file_system(tree: Tree, path: str) -> bool:
    """Write out everything of the file system of a folder; returns whether the system has such a call.

    Raises:
        OSError: something could not be written.
    """
    if _SYNCFS is None or _SYNC_FILE_RANGE is None:
        return False
    folder = tree.open_folder(path)
    try:
        if _SYNCFS(folder) == 0:
            return True
        number = ctypes.get_errno()
        if number in {errno.ENOSYS, errno.EOPNOTSUPP}:
            return False
        raise OSError(number, os.strerror(number), path)
    finally:
        os.close(folder)


def make_sure_it_is_written(descriptor: int, *, barrier: bool) -> None:
    """Wait until the pages of an open file are on the disk, and hear of the errors that were met.

    Args:
        descriptor: of the file.
        barrier: with a barrier of its own: where there was none for the whole file system.

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
    """Have the kernel drop the pages of an open file, so that it is read from the disk. Only a hint."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
