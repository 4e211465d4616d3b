"""Computes upper bounds for the unpacked sizes of zstd frames, many in one call.

A frame's header may claim any size. The blocks of the frame limit what it can really give, and the library gets that
limit when it unpacks the frame. Only headers of frames and blocks are read here.

Source: RFC 8878, 3.1.1 (frames) and 3.1.1.2 (blocks).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from krepair.formats import batch_v2, compression
from krepair.kernels.compact_keys import P_PLACE, P_SIZE
from krepair.kernels.jit import kernel
from krepair.kernels.words import byte_at, le64

_HEADER: Final = batch_v2.HEADER_SIZE
_MAGIC = np.uint64(int.from_bytes(compression.ZSTD_MAGIC, "little"))
_BLOCK_BYTES: Final = compression.ZSTD_BLOCK_BYTES
_MOST_BYTES: Final = compression.ZSTD_AT_ONCE_BYTES
_CHECKSUM: Final = compression.ZSTD_CHECKSUM_FLAG
_CHECKSUM_BYTES: Final = compression.ZSTD_CHECKSUM_BYTES
_SINGLE: Final = 1 << 5
_DICTIONARY: Final = 0b11
_SHORTEST: Final = 9  # magic, descriptor, window or content size, one block header
_REPEATED_BYTE: Final = 1
_PACKED: Final = 2


@kernel("bytes, long, long")
def _front(buf: Any, start: Any, end: Any) -> Any:
    """Return (place of the first block, claimed content size or 0); place -1: a frame of another kind."""
    flags = np.int64(byte_at(buf, start + 4))
    single = flags & _SINGLE != 0
    at = np.int64(start + 5 if single else start + 6)
    size_bytes = np.int64(1) << (flags >> 6)
    if size_bytes == 1 and not single:
        return (at if flags & _DICTIONARY == 0 else np.int64(-1)), np.int64(0)
    if flags & _DICTIONARY or at + size_bytes > end:
        return np.int64(-1), np.int64(0)
    claimed = le64(buf, at)
    if size_bytes < 8:
        claimed &= (np.uint64(1) << np.uint64(8 * size_bytes)) - np.uint64(1)
    if size_bytes == 2:
        claimed += np.uint64(256)
    # The library treats a frame that claims the size 0 as empty, and does not read its blocks.
    if claimed == 0 or claimed > np.uint64(_MOST_BYTES):
        return np.int64(-1), np.int64(0)
    return at + size_bytes, np.int64(claimed)


@kernel("bytes, long, long")
def _most_of(buf: Any, start: Any, end: Any) -> Any:
    """Return an upper bound of a frame's unpacked size; -1 if it is not alone, incomplete, unusual or too large."""
    at, claimed = np.int64(-1), np.int64(0)
    if end - start >= _SHORTEST and le64(buf, start) & np.uint64(0xFFFFFFFF) == _MAGIC:
        at, claimed = _front(buf, start, end)
    if at < 0:
        return np.int64(-1)
    most, last = np.int64(0), False
    while not last and at + 3 <= end:
        head = np.int64(le64(buf, at) & np.uint64(0xFFFFFF))
        last, kind, size = head & 1 != 0, head >> 1 & 3, head >> 3
        at += 3 + (1 if kind == _REPEATED_BYTE else size)
        most += _BLOCK_BYTES if kind == _PACKED else size
    if byte_at(buf, start + 4) & _CHECKSUM:
        at += _CHECKSUM_BYTES
    if not last or at != end or most > _MOST_BYTES or claimed > most:
        return np.int64(-1)
    return claimed if claimed else max(most, np.int64(1))


@kernel("bytes, rows, long, long, longs")
def most_of_zstd(window: Any, packed: Any, first: Any, after: Any, most: Any) -> None:
    """Compute an upper bound of the unpacked size of each batch's frame.

    Args:
        window: uint8[W + SLACK] with the batches.
        packed: compressed batches that were deferred, int64[P, PACKED_COLUMNS].
        first: row to begin with.
        after: row after the last.
        most: int64[P], out: upper bounds in bytes; -1 for a frame that is broken or must be read in pieces.
    """
    for row in range(first, after):
        place = packed[row, P_PLACE]
        most[row] = _most_of(window, place + _HEADER, place + packed[row, P_SIZE])
