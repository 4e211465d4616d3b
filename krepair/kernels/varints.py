"""Reads varints in records, for kernels.

Source: ByteUtils.readVarint and readVarlong (2.2.1, 3.9).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from krepair.kernels.jit import inlined
from krepair.kernels.words import byte_at


@inlined
def zigzag(buf: Any, place: Any, end: Any, most: Any) -> Any:
    """Read one number.

    Args:
        buf: bytes that are read, uint8[W].
        place: place of its first byte.
        end: number of valid bytes in the buffer.
        most: largest number of bytes: 5 for 32 bits, 10 for 64 bits.

    Returns:
        (value, place after it); the place is -1 if the number does not end before ``end`` and within ``most`` bytes.
    """
    raw = np.uint64(0)
    shift = np.uint64(0)
    after = np.int64(-1)
    for step in range(most):
        if place + step >= end:
            break
        byte = np.uint64(byte_at(buf, place + step))
        raw |= (byte & np.uint64(0x7F)) << shift
        shift += np.uint64(7)
        if byte < np.uint64(0x80):
            after = np.int64(place + step + 1)
            break
    if most == 5:
        raw &= np.uint64(0xFFFFFFFF)
    value = np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1))
    return value, after
