"""Integers of variable length: zig-zag in records of format v2, unsigned as lengths in protocol messages.

An int has at most 5 bytes, a long at most 10. A reader also accepts longer forms; a writer gives the shortest.

Source: ``clients/.../common/utils/ByteUtils.java`` (2.2.1).
"""

from __future__ import annotations

from typing import NamedTuple

from krepair.formats.damage import Bytes

INT_BYTES = 5
LONG_BYTES = 10


class Varint(NamedTuple):
    """Decoded value and its end.

    Attributes:
        end: position after the last byte.
    """

    value: int
    end: int


def _read_raw(buf: Bytes, position: int, end: int, max_bytes: int, bits: int) -> Varint | None:
    raw = 0
    for place in range(max_bytes):
        if position + place >= end:
            return None
        byte = buf[position + place]
        raw |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            # Java's shift drops the bits that do not fit.
            return Varint(raw & (1 << bits) - 1, position + place + 1)
    return None


def _read(buf: Bytes, position: int, end: int, max_bytes: int, bits: int) -> Varint | None:
    raw = _read_raw(buf, position, end, max_bytes, bits)
    return None if raw is None else Varint((raw.value >> 1) ^ -(raw.value & 1), raw.end)


def read_unsigned(buf: Bytes, position: int, end: int) -> Varint | None:
    """Read an unsigned 32-bit value; None if it does not end before ``end`` and within 5 bytes."""
    return _read_raw(buf, position, end, INT_BYTES, 32)


def read_varint(buf: Bytes, position: int, end: int) -> Varint | None:
    """Read a 32-bit value; None if it does not end before ``end`` and within 5 bytes."""
    return _read(buf, position, end, INT_BYTES, 32)


def read_varlong(buf: Bytes, position: int, end: int) -> Varint | None:
    """Read a 64-bit value; None if it does not end before ``end`` and within 10 bytes."""
    return _read(buf, position, end, LONG_BYTES, 64)
