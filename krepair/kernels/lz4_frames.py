"""Decompression of one lz4 frame in the format of Kafka's clients; ``unpacked_frames`` decompresses many frames.

The key search and the writer of new logs use these kernels. The verification of a compaction uses the lz4 library
instead, so it detects an error made here. The library also reads unusual or damaged frames, and its error message
describes the damage.

Sources: the lz4 block and frame formats; LZ4_decompress_safe for the limits near the end of a block;
KafkaLZ4BlockOutputStream (2.2.1).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from krepair.kernels.copying import copied, repeated
from krepair.kernels.jit import kernel
from krepair.kernels.words import byte_at, le64

# magic; version 1 with independent blocks and no checksums; blocks of at most 64 KiB; checksum of these two bytes
_FRONT = np.uint64(int.from_bytes(b"\x04\x22\x4d\x18\x60\x40\x82", "little"))
_FRONT_BYTES: Final = 7
_FRONT_MASK = np.uint64((1 << 56) - 1)
_BLOCK_BYTES: Final = 1 << 16
_UNPACKED_BLOCK: Final = 1 << 31
_LITERALS_AT_END: Final = 5
_NO_MATCH_AT_END: Final = 12


@kernel("bytes, long, long, long")
def _long(buf: Any, at: Any, end: Any, length: Any) -> Any:
    """Read the further bytes of a length; return (length, position after it); the length is -1 if it is incomplete."""
    byte = np.int64(255)
    while byte == 255:
        if at >= end:
            return np.int64(-1), np.int64(at)
        byte = np.int64(byte_at(buf, at))
        length += byte
        at += 1
    return np.int64(length), np.int64(at)


@kernel("bytes, long, long, bytes, long, long")
def _block(buf: Any, start: Any, end: Any, out: Any, begins: Any, room: Any) -> Any:
    """Decompress one block; return the position after its content in ``out``, -1 if it is damaged or does not fit."""
    limit = np.int64(begins + _BLOCK_BYTES)
    stop = min(limit, np.int64(room))
    at, to = np.int64(start), np.int64(begins)
    while at < end:
        token = np.int64(byte_at(buf, at))
        at += 1
        size = token >> 4
        if size == 15:
            size, at = _long(buf, at, end, size)
            if size < 0:
                break
        if size > end - at or size > stop - to:
            break
        copied(buf, at, size, out, to)
        at += size
        to += size
        if at == end:
            return to
        if at > end - 3 - _LITERALS_AT_END or to > limit - _NO_MATCH_AT_END:
            break
        distance = np.int64(byte_at(buf, at)) | (np.int64(byte_at(buf, at + 1)) << 8)
        at += 2
        size = token & 15
        if size == 15:
            size, at = _long(buf, at, end, size)
            if size < 0:
                break
        size += 4
        if (
            distance == 0
            or distance > to - begins
            or size > stop - to
            or to + size > limit - _LITERALS_AT_END
        ):
            break
        repeated(out, to, distance, size)
        to += size
    return np.int64(-1)


@kernel("bytes, long, long, bytes, long, long")
def lz4_frame(buf: Any, start: Any, end: Any, out: Any, begins: Any, room: Any) -> Any:
    """Decompress one frame; return the position after its content, or -1.

    -1 means that the frame is incomplete, damaged or of another kind, or that its content does not fit.
    """
    to = np.int64(begins)
    at = np.int64(start + _FRONT_BYTES)
    if at + 4 > end or le64(buf, start) & _FRONT_MASK != _FRONT:
        return np.int64(-1)
    while at + 4 <= end:
        size = np.int64(le64(buf, at) & np.uint64(0xFFFFFFFF))
        at += 4
        if size == 0:
            return to if at == end else np.int64(-1)
        plain = size >= _UNPACKED_BLOCK
        if plain:
            size -= _UNPACKED_BLOCK
        if size > end - at or size > _BLOCK_BYTES:
            break
        if plain:
            if size > room - to:
                break
            copied(buf, at, size, out, to)
            to += size
        else:
            to = _block(buf, at, at + size, out, to, room)
            if to < 0:
                break
        at += size
    return np.int64(-1)
