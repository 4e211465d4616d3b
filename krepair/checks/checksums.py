"""CRC-32C of all batches of a window at once, by the crc32c package.

A CRC is linear. So the checksums of neighbouring batches can be checked by one checksum of the whole window, in which
each stored CRC is put behind its batch, in place of the bytes that no CRC covers. The package computes it at the speed
of the memory, and no work is done per batch. The stored CRCs are put there by numpy, or by a kernel of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from krepair.formats.arrays import Int64s, Uint8s
from krepair.formats.batch_v2 import CRC_START, HEADER
from krepair.formats.castagnoli import crc32c
from krepair.kernels.check_headers import close_up

CRC_BYTES = 4
_ONES = np.uint32(0xFFFFFFFF)
_FRONT = np.dtype(
    [("crc_before", "<u4"), ("not_covered", f"V{CRC_START - CRC_BYTES}"), ("first_covered", "<u4")]
)
assert _FRONT.itemsize <= HEADER.size


def crcs_are_right(
    buffer: Uint8s,
    places: Int64s,
    headers: np.ndarray[Any, Any],
    end: int,
    sizes: Int64s | None = None,
) -> bool:
    """Whether the stored CRC-32C of every batch of a window is right.

    If one batch is wrong, that is always noticed. If several are wrong, it is missed with a chance of 1 in 2**32, as
    random bytes are with one CRC.

    Args:
        buffer: uint8[W + 4 or more]: the window, and room for one CRC behind its end. If the answer is yes, the first
            25 bytes of each batch are overwritten. Nothing else is changed. If the answer is no, nothing is changed.
        places: int64[N], N > 0: the starts of the batches, without gaps, the first at 0.
        headers: structured array[N] of their headers, a copy.
        end: place after the last batch.
        sizes: int64[N], their bytes; then a kernel puts the CRCs into the window, else numpy does.
    """
    # The CRC of a message is the inverted remainder of the message (its first 32 bits inverted) and 32 zero bits. So a
    # message and then its inverted CRC have remainder 0. A row of such messages with zeros between them also has
    # remainder 0. The CRC of a batch is put into the front of the next batch, which no CRC covers.
    as_fronts = np.ndarray(end + CRC_BYTES - _FRONT.itemsize + 1, f"V{_FRONT.itemsize}", buffer, 0, 1)
    last = _lay_fronts(as_fronts, places, headers) if sizes is None else int(close_up(buffer, sizes))
    behind = buffer[end : end + CRC_BYTES].copy()
    buffer[end : end + CRC_BYTES].view("<u4")[0] = last
    # The package inverts the start value and the result. With ones as the start value it starts at 0.
    right = bool(crc32c(buffer[: end + CRC_BYTES], int(_ONES)) == _ONES)
    buffer[end : end + CRC_BYTES] = behind
    if not right:
        headers = np.ascontiguousarray(headers)
        as_fronts[places] = np.ndarray(len(places), as_fronts.dtype, headers, 0, headers.strides)
    return right


def _lay_fronts(as_fronts: np.ndarray[Any, Any], places: Int64s, headers: np.ndarray[Any, Any]) -> int:
    """As ``close_up``, by numpy."""
    stored = headers["crc"].astype("<u4") ^ _ONES
    fronts = np.zeros(len(places), _FRONT)
    fronts["crc_before"][1:] = stored[:-1]
    covered = np.ndarray(len(places), "<u4", headers, CRC_START, headers.strides)
    np.bitwise_xor(covered, _ONES, out=fronts["first_covered"])
    as_fronts[places] = fronts.view(as_fronts.dtype)
    return int(stored[-1])


def first_wrong_crc(window: Uint8s, places: Int64s, sizes: Int64s, stored: np.ndarray[Any, Any]) -> int:
    """Index of the first batch with a wrong CRC, -1 if all are right. It checks batch by batch.

    Args:
        window: uint8[W].
        places: int64[N], starts of the batches.
        sizes: int64[N], bytes of the batches.
        stored: uint32[N], stored CRCs of the batches.
    """
    raw = window.data
    spans = zip((places + CRC_START).tolist(), (places + sizes).tolist(), stored.tolist(), strict=True)
    for number, (start, end, crc) in enumerate(spans):
        if crc32c(raw[start:end]) != crc:
            return number
    return -1
