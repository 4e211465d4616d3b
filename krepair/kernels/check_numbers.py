"""Reads varints for the verification of key compaction, without any code of the writer."""

from __future__ import annotations

from typing import Any

import numpy as np

from krepair.kernels.jit import inlined, kernel
from krepair.kernels.words import byte_at


@kernel("bytes, long, long")
def number_at(buf: Any, at: Any, end: Any) -> Any:
    """Return (zig-zag number, place after it); the place is ``end + 1`` if the number does not end before ``end``."""
    value, shift = np.uint64(0), np.uint64(0)
    while at < end:
        byte = np.uint64(byte_at(buf, at))
        at += 1
        value |= (byte & np.uint64(127)) << shift
        if byte < np.uint64(128):
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), np.int64(at)
        shift += np.uint64(7)
        if shift > np.uint64(63):
            break
    return np.int64(0), np.int64(end + 1)


@inlined
def short_number(buf: Any, at: Any, end: Any) -> Any:
    """Return the same as ``number_at``, faster for numbers of one or two bytes, which nearly all are."""
    one = np.int64(byte_at(buf, at)) if at < end else np.int64(128)
    two = np.int64(byte_at(buf, at + 1)) if at + 1 < end else np.int64(128)
    value, after = np.int64(0), np.int64(0)
    if one < 128:
        value, after = (one >> 1) ^ -(one & 1), np.int64(at + 1)
    elif two < 128:
        raw = (one & 127) | (two << 7)
        value, after = (raw >> 1) ^ -(raw & 1), np.int64(at + 2)
    else:
        value, after = number_at(buf, at, end)
    return value, after
