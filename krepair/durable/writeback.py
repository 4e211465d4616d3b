"""Tells the kernel to begin writing pages of a file to the disk, so that the sync at the end has less to wait for.

Only a hint: nothing is durable before ``fsync``, and a system that does not know the call does without.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

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
    """Begin to write ``count`` bytes from ``position`` of an open file to the disk; whether it did is not said."""
    if _SYNC_FILE_RANGE is not None and count > 0:
        _SYNC_FILE_RANGE(descriptor, position, count, _SYNC_FILE_RANGE_WRITE)
