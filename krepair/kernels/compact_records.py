"""Reads single records for the kernels of key compaction: their fields, the hash of a key, whether they are aborted.

Nothing in a record is trusted: every length is checked against the end of the bytes that hold it.

Source: DefaultRecord, DefaultRecordBatch, LegacyRecord (2.2.1, 3.9); SipHash-1-3 with 128 bits of output (Aumasson and
Bernstein; its reference implementation). Rust and Python hash the keys of their tables with 1-3. The proof tells keys
apart by another hash.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from krepair.kernels.jit import inlined, kernel
from krepair.kernels.varints import zigzag
from krepair.kernels.words import byte_at, le64

SLACK: Final = 16
"""Number of bytes that a buffer must have after its end, because keys are read eight bytes at a time."""

# fields of a record or message that was read
F_OFFSET: Final = 0  # delta of a v2 record, stored offset of a message
F_TIMESTAMP: Final = 1  # delta of a v2 record, stored timestamp of a message (-1 in v0)
F_KEY: Final = 2  # place
F_KEY_SIZE: Final = 3  # -1: null
F_VALUE_SIZE: Final = 4  # -1: null
FIELD_COUNT: Final = 5

_V0 = np.uint64(0x736F6D6570736575)
_V1 = np.uint64(0x646F72616E646F6D)
_V2 = np.uint64(0x6C7967656E657261)
_V3 = np.uint64(0x7465646279746573)
_WIDE_1, _WIDE_2 = np.uint64(0xEE), np.uint64(0xDD)
_8, _13, _16, _17, _21, _32 = (np.uint64(n) for n in (8, 13, 16, 17, 21, 32))
_64 = np.uint64(64)


@inlined
def _rotated(word: Any, turn: Any) -> Any:
    return (word << turn) | (word >> (_64 - turn))


@inlined
def _round(v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
    v0 += v1
    v1 = _rotated(v1, _13) ^ v0
    v0 = _rotated(v0, _32)
    v2 += v3
    v3 = _rotated(v3, _16) ^ v2
    v0 += v3
    v3 = _rotated(v3, _21) ^ v0
    v2 += v1
    v1 = _rotated(v1, _17) ^ v2
    v2 = _rotated(v2, _32)
    return v0, v1, v2, v3


@kernel("bytes, long, long, word, word", "fixed bytes, long, long, word, word")
def key_hash(buf: Any, start: Any, size: Any, secret_1: Any, secret_2: Any) -> Any:
    """Return SipHash-1-3 of ``buf[start:start + size]`` as two 64-bit words; ``buf`` has ``SLACK`` bytes more."""
    v0 = _V0 ^ secret_1
    v1 = _V1 ^ secret_2 ^ _WIDE_1
    v2 = _V2 ^ secret_1
    v3 = _V3 ^ secret_2
    place = np.int64(start)
    end = np.int64(start + size)
    while place + 8 <= end:
        word = le64(buf, place)
        v3 ^= word
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0 ^= word
        place += 8
    left = np.uint64(end - place)
    word = le64(buf, place) & ((np.uint64(1) << (left * _8)) - np.uint64(1))
    word |= np.uint64(size) << np.uint64(56)
    v3 ^= word
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= _WIDE_1
    for _ in range(3):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    first = v0 ^ v1 ^ v2 ^ v3
    v1 ^= _WIDE_2
    for _ in range(3):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return first, v0 ^ v1 ^ v2 ^ v3


@kernel("bytes, long, long, long")
def _long_varint(buf: Any, place: Any, end: Any, most: Any) -> Any:
    """Read a number as ``zigzag`` does, but without being inlined, because long numbers are rare."""
    return zigzag(buf, place, end, most)


@inlined
def _varint(buf: Any, place: Any, end: Any, most: Any) -> Any:
    """Read a number as ``zigzag`` does, faster for one or two bytes, which most numbers in records have."""
    value, after = np.int64(0), np.int64(-1)
    if place + 2 <= end and byte_at(buf, place + 1) < 128:
        first = np.int64(byte_at(buf, place))
        if first < 128:
            value, after = (first >> 1) ^ -(first & 1), np.int64(place + 1)
        else:
            raw = (first & 127) | (np.int64(byte_at(buf, place + 1)) << 7)
            value, after = (raw >> 1) ^ -(raw & 1), np.int64(place + 2)
    elif place < end and byte_at(buf, place) < 128:
        first = np.int64(byte_at(buf, place))
        value, after = (first >> 1) ^ -(first & 1), np.int64(place + 1)
    else:
        value, after = _long_varint(buf, place, end, np.int64(most))
    return value, after


@kernel("bytes, long, long, long")
def _headers_end(buf: Any, at: Any, stop: Any, count: Any) -> Any:
    """Return the place after the headers of a record; -1 if the headers do not fit into the record."""
    for _ in range(count):
        length, at = _varint(buf, at, stop, 5)
        if at < 0 or length < 0 or length > stop - at:
            return np.int64(-1)
        at += length
        length, at = _varint(buf, at, stop, 5)
        if at < 0 or length > stop - at:
            return np.int64(-1)
        at += max(length, 0)
    return np.int64(at)


@inlined
def read_record(buf: Any, place: Any, end: Any, fields: Any) -> Any:
    """Read the v2 record at a place into ``fields``, int64[FIELD_COUNT].

    Returns:
        The place after the record; -1 if the record does not end before ``end``, -2 if its fields do not fill it
        exactly.
    """
    after = np.int64(-2)
    size, body = _varint(buf, place, end, 5)
    stop = body + size
    if body < 0:
        after = np.int64(-1 if end - place < 5 else -2)
    elif size < 0:
        after = np.int64(-2)
    elif stop > end:
        after = np.int64(-1)
    elif size >= 1:
        at = body + 1  # attributes
        fields[F_TIMESTAMP], at = _varint(buf, at, stop, 10)
        if at >= 0:
            fields[F_OFFSET], at = _varint(buf, at, stop, 5)
        if at >= 0:
            length, at = _varint(buf, at, stop, 5)
            fields[F_KEY] = at
            fields[F_KEY_SIZE] = max(length, -1)
            if at >= 0 and length <= stop - at:
                at, other = _varint_after(buf, at + max(length, 0), stop)
                fields[F_VALUE_SIZE] = max(other, -1)
                if at >= 0 and other <= stop - at:
                    count, at = _varint(buf, at + max(other, 0), stop, 5)
                    if at >= 0 and 0 <= count <= stop - at:
                        if count > 0:
                            at = _headers_end(buf, at, stop, count)
                        if at == stop:
                            after = stop
    return after


@inlined
def _varint_after(buf: Any, place: Any, end: Any) -> Any:
    """Read a number; return (place after it, value)."""
    value, after = _varint(buf, place, end, 5)
    return after, value


@inlined
def is_aborted(aborted: Any, producer_id: Any, offset: Any) -> Any:
    """Return whether an aborted transaction of a producer covers an offset.

    Args:
        aborted: int64[N, 3] (producer id, first offset, offset of the marker), ascending by the first two.
        producer_id: producer id of a transactional batch.
        offset: base offset of the batch.
    """
    low, high = 0, aborted.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if aborted[middle, 0] < producer_id or (
            aborted[middle, 0] == producer_id and aborted[middle, 1] <= offset
        ):
            low = middle + 1
        else:
            high = middle
    return low > 0 and aborted[low - 1, 0] == producer_id and aborted[low - 1, 2] > offset
