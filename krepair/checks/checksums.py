"""CRC-32C of all batches of a window at once, by the crc32c package and numpy; no kernels.

A CRC is linear: what the checksums of batches that lie side by side say together is one checksum of the window, with
the bytes that no CRC covers left out and each stored CRC put in right behind its batch. The package reads that at the
speed of the memory, and nothing is done per batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from krepair.formats.batch_v2 import CRC_START, HEADER
from krepair.formats.castagnoli import crc32c

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Int64s = np.ndarray[Any, np.dtype[np.int64]]

CRC_BYTES = 4
_ONES = np.uint32(0xFFFFFFFF)
_FRONT = np.dtype(
    [("crc_before", "<u4"), ("not_covered", f"V{CRC_START - CRC_BYTES}"), ("first_covered", "<u4")]
)
assert _FRONT.itemsize <= HEADER.size


def crcs_are_right(buffer: Bytes, places: Int64s, headers: np.ndarray[Any, Any], end: int) -> bool:
    """Whether the stored CRC-32C of every batch of a window is that of its bytes.

    One wrong batch is always noticed, whatever is wrong with it; several at once as surely as one CRC notices noise,
    all but once in 2**32 times.

    Args:
        buffer: uint8[W + 4 or more]: the window, and room for one CRC behind its end. If the answer is yes, the first
            25 bytes of each batch are spent; nothing else is changed, and if it is no, nothing at all.
        places: int64[N], N > 0: where the batches begin, side by side, the first at 0.
        headers: structured array[N] of their headers, a copy.
        end: place after the last of them.
    """
    # The CRC of a message is the remainder of (message, its first 32 bits inverted) followed by 32 bits of nothing,
    # inverted. So a message followed by its inverted CRC leaves no remainder, and neither does a row of such messages
    # with zeros between: the front of each batch, which no CRC covers, is the room for the CRC of the one before.
    stored = headers["crc"].astype("<u4") ^ _ONES
    fronts = np.zeros(len(places), _FRONT)
    fronts["crc_before"][1:] = stored[:-1]
    covered = np.ndarray(len(places), "<u4", headers, CRC_START, headers.strides)
    np.bitwise_xor(covered, _ONES, out=fronts["first_covered"])
    as_fronts = np.ndarray(end + CRC_BYTES - _FRONT.itemsize + 1, f"V{_FRONT.itemsize}", buffer, 0, 1)
    as_fronts[places] = fronts.view(as_fronts.dtype)
    behind = buffer[end : end + CRC_BYTES].copy()
    buffer[end : end + CRC_BYTES] = stored[-1:].view(np.uint8)
    # the package inverts at both ends; starting from ones it starts from nothing
    right = bool(crc32c(buffer[: end + CRC_BYTES], int(_ONES)) == _ONES)
    buffer[end : end + CRC_BYTES] = behind
    if not right:
        as_fronts[places] = np.ndarray(len(places), as_fronts.dtype, headers, 0, headers.strides)
    return right


def first_wrong_crc(window: Bytes, places: Int64s, sizes: Int64s, stored: np.ndarray[Any, Any]) -> int:
    """Index of the first batch whose CRC is not that of its bytes, -1 if all are right; one step per batch.

    Args:
        window: uint8[W].
        places: int64[N] where the batches begin.
        sizes: int64[N] bytes.
        stored: uint32[N] their CRCs.
    """
    raw = window.data
    spans = zip((places + CRC_START).tolist(), (places + sizes).tolist(), stored.tolist(), strict=True)
    for number, (start, end, crc) in enumerate(spans):
        if crc32c(raw[start:end]) != crc:
            return number
    return -1
