"""Ascending offsets in few bits, as a plan names the records that stay: Elias and Fano's form of a set of numbers.

Of each offset, counted from the base of its segment, the lowest bits are stored as they are. Of the others each step up
is a bit 0, and each offset a bit 1. That takes at most 2 bits and the low ones for an offset: 3 where every second
record stays, 7 where one of 32 does. A set has one form only, so that the same offsets give the same text. What is read
from a text is never much larger than the text.

    count of offsets (uint32) | low bits of each (uint8) | a plane of bits for each low bit, lowest first | the steps

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
"""Offsets of one set: 32 MiB of memory."""
MOST_BYTES: Final = 3 << 20
"""Of the sets of one partition; 4 MiB in a plan."""
_MOST_LETTERS: Final = (MOST_BYTES + 2) // 3 * 4
_HEAD: Final = struct.Struct(">IB")
_MOST_LOW_BITS: Final = 31
"""Offsets of a segment are less than 2^31 above its base."""


class OffsetSetError(Exception):
    """A text that is no set of offsets: what was expected and found."""


def packed(offsets: Int64s, base_offset: int) -> bytes:
    """The bytes of a set.

    Args:
        offsets: int64[N], ascending, N at most ``MOST_OFFSETS``.
        base_offset: of their segment; none of them is below it.
    """
    if not len(offsets):
        return b""
    relative = offsets - base_offset
    low_bits = _low_bits(int(relative[-1]), len(relative))
    planes = [np.packbits(((relative >> bit) & 1).astype(np.bool_)) for bit in range(low_bits)]
    places = (relative >> low_bits) + np.arange(len(relative))
    steps = np.zeros(int(places[-1]) + 1, np.bool_)
    steps[places] = True
    parts = [plane.tobytes() for plane in (*planes, np.packbits(steps))]
    return _HEAD.pack(len(relative), low_bits) + b"".join(parts)


def unpacked(data: bytes, base_offset: int) -> Int64s:
    """The offsets of a set, int64[N], ascending.

    Raises:
        OffsetSetError: these are not the bytes of a set.
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
    found: Int64s = np.flatnonzero(bits)
    found -= np.arange(count)
    found <<= low_bits
    for bit in range(low_bits):
        lows = np.frombuffer(data, np.uint8, plane, _HEAD.size + bit * plane)
        found |= np.unpackbits(lows, count=count).astype(np.int64) << bit
    if not (found[1:] > found[:-1]).all():
        raise OffsetSetError("offsets that ascend were expected, found others")
    found += base_offset
    if packed(found, base_offset) != data:
        raise OffsetSetError("the one form of a set of offsets was expected, found another")
    return found


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


def _low_bits(last: int, count: int) -> int:
    return max(((last + 1) // count).bit_length() - 1, 0)


def as_text(data: bytes) -> str:
    """A set as it stands in a plan: base64."""
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def of_text(text: str) -> bytes:
    """The bytes of a set that stands in a plan.

    Raises:
        OffsetSetError: it is not base64, or too long.
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
