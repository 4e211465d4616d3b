"""CRC-32 with zlib's polynomial, the checksum of v0 and v1 messages, computed by tables eight bytes at a time.

The tables serve all CPUs: x86-64 has no instruction for this polynomial, and the one of arm64 is not used.

Source: LegacyRecord.computeChecksum (2.2.1, 3.9).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from krepair.kernels.jit import inlined, kernel
from krepair.kernels.words import le64

_POLYNOMIAL = 0xEDB88320


def _make_tables() -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Build uint32[8, 256]: row n gives the effect of a byte that is followed by n more bytes."""
    tables = np.empty((8, 256), np.uint32)
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(
            table & 1, (table >> np.uint32(1)) ^ np.uint32(_POLYNOMIAL), table >> np.uint32(1)
        ).astype(np.uint32)
    tables[0] = table
    for row in range(1, 8):
        tables[row] = table[tables[row - 1] & np.uint32(0xFF)] ^ (tables[row - 1] >> np.uint32(8))
    return tables


TABLES = _make_tables()
_BYTE = np.uint64(0xFF)


@inlined
def crc32_update(crc: int, array: Any, start: int, end: int) -> Any:
    """Return the CRC-32 of ``array[start:end]``, continuing from ``crc`` (0 at first), as int64.

    The result is signed, because the compiler turns a signed and an unsigned 64-bit integer together into a float, and
    a float cannot hold every offset.
    """
    state = np.uint64(crc) ^ np.uint64(0xFFFFFFFF)
    place = start
    while place + 8 <= end:
        word = state ^ le64(array, place)
        state = np.uint64(
            TABLES[7, word & _BYTE]
            ^ TABLES[6, (word >> np.uint64(8)) & _BYTE]
            ^ TABLES[5, (word >> np.uint64(16)) & _BYTE]
            ^ TABLES[4, (word >> np.uint64(24)) & _BYTE]
            ^ TABLES[3, (word >> np.uint64(32)) & _BYTE]
            ^ TABLES[2, (word >> np.uint64(40)) & _BYTE]
            ^ TABLES[1, (word >> np.uint64(48)) & _BYTE]
            ^ TABLES[0, word >> np.uint64(56)]
        )
        place += 8
    while place < end:
        state = np.uint64(TABLES[0, (state ^ np.uint64(array[place])) & _BYTE]) ^ (state >> np.uint64(8))
        place += 1
    return np.int64(state ^ np.uint64(0xFFFFFFFF))


@kernel("long, bytes, long, long")
def crc32_piece(crc: int, buf: Any, start: int, end: int) -> Any:
    """Return the CRC-32 of one piece of a message larger than the window, continuing from ``crc``."""
    return crc32_update(crc, buf, start, end)
