"""Reads the headers of v2 batches for ``krepair.checks``, which shares no code with the kernels that decide."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from krepair.formats import batch_v2
from krepair.kernels.jit import kernel
from krepair.kernels.words import be32, be64, byte_at, le64, store64

# columns of the facts about each batch
POSITION: Final = 0
SIZE: Final = 1
FIRST: Final = 2
LAST: Final = 3
STAMP: Final = 4
COLUMNS: Final = 5

ROW_BYTES: Final = 64
"""Bytes from one header to the next where headers are stored back to back."""
BEHIND: Final = ROW_BYTES - batch_v2.HEADER_SIZE
"""Number of bytes after a header that are read with it."""

_LENGTH: Final = batch_v2.HEADER.place("batch_length")
_MAGIC: Final = batch_v2.HEADER.place("magic")
_CRC: Final = batch_v2.HEADER.place("crc")
_LAST_DELTA: Final = batch_v2.HEADER.place("last_offset_delta")
_MAX_TIMESTAMP: Final = batch_v2.HEADER.place("max_timestamp")
_OVERHEAD: Final = batch_v2.LOG_OVERHEAD
_HEADER: Final = batch_v2.HEADER_SIZE
_V2: Final = batch_v2.MAGIC

_LOW_HALF: Final = np.uint64(0xFFFFFFFF)
_COVERED: Final = np.uint64(0xFFFFFF0000000000)  # those of bytes 16 to 23 that the CRC covers
assert batch_v2.CRC_START == 21


@kernel("bytes, long, long, bytes, rows")
def read_headers(buf: Any, filled: Any, origin: Any, headers: Any, columns: Any) -> Any:
    """Read the headers of the v2 batches that a window holds completely, from its start on.

    Reading stops at the first bytes that are no complete v2 batch, or if ``headers`` is full. CRCs are not checked.

    Args:
        buf: uint8[W], the window; ``BEHIND`` bytes after ``filled`` can be read.
        filled: number of valid bytes in the buffer.
        origin: file position of place 0.
        headers: uint8[``ROW_BYTES`` * M], out: the header of each batch, and ``BEHIND`` bytes that mean nothing.
        columns: int64[``COLUMNS``, M], out: file position, bytes, base offset, last offset and largest timestamp.

    Returns:
        Number of batches read.
    """
    place, count = np.int64(0), np.int64(0)
    while place + _HEADER <= filled and count < columns.shape[1]:
        size = be32(buf, place + _LENGTH) + _OVERHEAD
        if byte_at(buf, place + _MAGIC) != _V2 or size < _HEADER or size > filled - place:
            break
        for word in range(0, ROW_BYTES, 8):
            store64(headers, count * ROW_BYTES + word, le64(buf, place + word))
        first = be64(buf, place)
        number = np.uint64(count)
        columns[POSITION, number] = origin + place
        columns[SIZE, number] = size
        columns[FIRST, number] = first
        columns[LAST, number] = first + be32(buf, place + _LAST_DELTA)
        columns[STAMP, number] = be64(buf, place + _MAX_TIMESTAMP)
        place += size
        count += 1
    return count


@kernel("bytes, longs")
def close_up(buf: Any, sizes: Any) -> Any:
    """Turn the batches of a window into one message whose CRC covers all of them, see ``krepair.checks.walk``.

    Args:
        buf: uint8[W]; the first 25 bytes of each batch are overwritten.
        sizes: int64[N], bytes of the batches, which fill the window from place 0 on.

    Returns:
        The inverted CRC of the last batch, which belongs after that batch.
    """
    place, inverted = np.int64(0), np.uint64(0)
    for number in range(sizes.shape[0]):
        stored = np.uint64(be32(buf, place + _CRC)) & _LOW_HALF
        store64(buf, place, inverted)
        store64(buf, place + 8, np.uint64(0))
        store64(buf, place + 16, (le64(buf, place + 16) & _COVERED) ^ _COVERED)
        buf[np.uint64(place + 24)] ^= np.uint8(255)
        inverted = stored ^ _LOW_HALF
        place += sizes[np.uint64(number)]
    return np.int64(inverted)
