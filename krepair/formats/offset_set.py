"""Compact sets of ascending offsets (Elias-Fano coding), by which a plan names the records that are kept.

Each offset is counted from its segment's base. Its lowest bits are stored unchanged. The higher part is coded in unary
steps: a bit 0 for each step up, a bit 1 for each offset. That takes at most 2 bits and the low bits per offset: 3 bits
if every second record is kept, 7 if one of 32 is kept. A set has only one encoding, so the same offsets always give the
same text. The decoded set is never much larger than the text.

    count of offsets (uint32) | low bits per offset (uint8) | one plane for each low bit, lowest first | steps

Bits are stored from the highest of a byte on. Planes are padded to whole bytes; the last byte of the steps is not 0.

Source: P. Elias, Efficient storage and retrieval by content and address of static files (1974).
"""

from __future__ import annotations

import binascii
import struct
from typing import Final

import numpy as np

from krepair.formats.arrays import Int64s
from krepair.formats.words import count_text

MOST_OFFSETS: Final = 1 << 22
"""Largest number of offsets in one set, which needs 32 MiB of memory."""
MOST_BYTES: Final = 3 << 20
"""Largest size in bytes of the sets of one partition: 4 MiB of text in a plan."""
_MOST_LETTERS: Final = (MOST_BYTES + 2) // 3 * 4
_HEAD: Final = struct.Struct(">IB")
_MOST_LOW_BITS: Final = 31
"""Largest number of low bits: offsets of a segment are less than 2^31 above its base."""


class OffsetSetError(Exception):
    """Error: a text is not a set of offsets; the message says what was expected and found."""


def packed(offsets: Int64s, base_offset: int) -> bytes:
    """Encode a set of offsets.

    Args:
        offsets: int64[N], ascending, N at most ``MOST_OFFSETS``.
        base_offset: base offset of the offsets' segment; none of ``offsets`` is below it.
    """
    if not len(offsets):
        return b""
    relative = offsets - base_offset
    low_bits = max(((int(relative[-1]) + 1) // len(relative)).bit_length() - 1, 0)
    planes = [np.packbits(((relative >> bit) & 1).astype(np.bool_)) for bit in range(low_bits)]
    places = (relative >> low_bits) + np.arange(len(relative))
    steps = np.zeros(int(places[-1]) + 1, np.bool_)
    steps[places] = True
    parts = [plane.tobytes() for plane in (*planes, np.packbits(steps))]
    return _HEAD.pack(len(relative), low_bits) + b"".join(parts)


def unpacked(data: bytes, base_offset: int) -> Int64s:
    """Decode a set to its offsets, int64[N], ascending.

    Raises:
        OffsetSetError: the bytes are not a valid set.
    """
    if not data:
        return np.empty(0, np.int64)
    count, low_bits = _head(data)
    plane = (count + 7) // 8
    first = _HEAD.size + low_bits * plane
    steps = np.frombuffer(data, np.uint8, offset=min(first, len(data)))
    bits = np.unpackbits(steps)
    if not len(steps) or steps[-1] == 0 or np.count_nonzero(bits) != count:
        raise OffsetSetError(f"a step for each of {count_text(count, 'offset')} was expected, found others")
    offsets: Int64s = np.flatnonzero(bits)
    offsets -= np.arange(count)
    offsets <<= low_bits
    for bit in range(low_bits):
        lows = np.frombuffer(data, np.uint8, plane, _HEAD.size + bit * plane)
        offsets |= np.unpackbits(lows, count=count).astype(np.int64) << bit
    if not (offsets[1:] > offsets[:-1]).all():
        raise OffsetSetError("offsets that ascend were expected, found others")
    offsets += base_offset
    if packed(offsets, base_offset) != data:
        raise OffsetSetError("the one form of a set of offsets was expected, found another")
    return offsets


def _head(data: bytes) -> tuple[int, int]:
    if len(data) <= _HEAD.size:
        raise OffsetSetError(f"a set of offsets was expected, found {len(data)} bytes")
    count, low_bits = _HEAD.unpack_from(data)
    if not 0 < count <= MOST_OFFSETS or low_bits > _MOST_LOW_BITS:
        raise OffsetSetError(
            f"a count of 1 to {MOST_OFFSETS} and low bits up to {_MOST_LOW_BITS} were expected, found {count} and "
            f"{low_bits}"
        )
    return count, low_bits


def as_text(data: bytes) -> str:
    """Encode a set as base64, its form in a plan."""
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def of_text(text: str) -> bytes:
    """Decode the base64 of a set in a plan.

    Raises:
        OffsetSetError: the text is not base64, or is too long.
    """
    if len(text) > _MOST_LETTERS:
        raise OffsetSetError(f"at most {_MOST_LETTERS} letters were expected, found {len(text)}")
    try:
        data = binascii.a2b_base64(text)
    except ValueError as error:
        raise OffsetSetError(f"base64 was expected: {error}") from error
    if as_text(data) != text:
        raise OffsetSetError("base64 in its one form was expected, found another")
    return data
