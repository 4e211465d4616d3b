"""Copies bytes for the kernels that decompress. Sizes and places are not checked: the caller must have checked them."""

from __future__ import annotations

from typing import Any

import numpy as np

from krepair.kernels.jit import inlined
from krepair.kernels.words import byte_at, le64, store64


@inlined
def copied(buf: Any, start: Any, size: Any, out: Any, to: Any) -> None:
    """Copy bytes, two words at a time: up to sixteen more are read and written, so most copies take one step."""
    at, end = np.uint64(start), np.uint64(to)
    stop = end + np.uint64(size)
    while True:
        store64(out, end, le64(buf, at))
        store64(out, end + np.uint64(8), le64(buf, at + np.uint64(8)))
        at += np.uint64(16)
        end += np.uint64(16)
        if end >= stop:
            break


@inlined
def repeated(out: Any, to: Any, distance: Any, size: Any) -> None:
    """Copy the bytes at a distance before a place to that place, even if both overlap; may write 16 bytes more."""
    if distance < 8:
        for step in range(8):
            out[np.uint64(to + step)] = byte_at(out, to - distance + step)
        to += 8
        size -= 8
        distance *= (7 + distance) // distance
    # The copied bytes also repeat at twice the distance: so no load has to wait for the store right before it.
    while distance < 64 and size > distance:
        copied(out, to - distance, distance, out, to)
        to += distance
        size -= distance
        distance *= 2
    if size > 0:
        copied(out, to - distance, size, out, to)
