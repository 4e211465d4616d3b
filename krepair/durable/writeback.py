"""Tells the kernel to begin writing pages of a file to the disk, so that the sync at the end takes less time.

It is only a hint: nothing is durable before ``fsync``. On a system without the call nothing is done.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable

from krepair.durable.tree import Tree

_SYNC_FILE_RANGE_WRITE = 2  # linux/fs.h


def _find() -> Callable[[int, int, int, int], int] | None:
    try:
        function = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    function.restype = ctypes.c_int
    return function


_SYNC_FILE_RANGE = _find()


def begin_writeback(descriptor: int, position: int, count: int) -> None:
    """Begin to write ``count`` bytes from ``position`` of an open file to the disk. Errors are not reported."""
    if _SYNC_FILE_RANGE is not None and count > 0:
        _SYNC_FILE_RANGE(descriptor, position, count, _SYNC_FILE_RANGE_WRITE)


def drop_from_cache(path: str, tree: Tree) -> None:
    """Tell the kernel to drop the pages of a synced file, so that the next reading is from the disk.

    Raises:
        OSError: the file cannot be opened.
    """
    with tree.opened(path) as descriptor, contextlib.suppress(OSError):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
