"""The content of a snappy batch, in the frames of snappy-java, or a bare block as of librdkafka.

The rules are those of ``lz4_frames``: what is broken, or unusual, is left to the library, which says what is wrong.

Source: format_description.txt of snappy; SnappyInputStream of snappy-java.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from krepair.formats import compression
from krepair.kernels.copying import copied, repeated
from krepair.kernels.jit import kernel
from krepair.kernels.words import be32, byte_at, le64

_MAGIC = np.uint64(int.from_bytes(compression.XERIAL_MAGIC, "little"))
_MAGIC_BYTES: Final = len(compression.XERIAL_MAGIC)
_FRONT_BYTES: Final = len(compression.XERIAL_HEADER)
_SIZE_IN_TAG: Final = 60


@kernel
def _block(buf: Any, start: Any, end: Any, out: Any, begins: Any, room: Any) -> Any:
    """Unpack one block; gives the place after its content, -1 if it is broken or has no room."""
    at, to = np.int64(start), np.int64(begins)
    claimed, shift, byte = np.int64(0), np.int64(0), np.int64(128)
    while byte >= 128 and at < end and shift < 28:
        byte = np.int64(byte_at(buf, at))
        claimed |= (byte & 127) << shift
        shift += 7
        at += 1
    if byte >= 128 or claimed > room - to:
        return np.int64(-1)
    stop = to + claimed
    while at < end:
        tag = np.int64(byte_at(buf, at))
        at += 1
        kind, size = tag & 3, (tag >> 2) + 1
        if kind == 0:
            if size > _SIZE_IN_TAG:
                more = size - _SIZE_IN_TAG
                if more > end - at:
                    break
                size = np.int64(le64(buf, at) & ((np.uint64(1) << np.uint64(8 * more)) - np.uint64(1))) + 1
                at += more
            if size > end - at or size > stop - to:
                break
            copied(buf, at, size, out, to)
            at += size
        else:
            width = np.int64(4 if kind == 3 else kind)
            if width > end - at:
                break
            distance = np.int64(le64(buf, at) & ((np.uint64(1) << np.uint64(8 * width)) - np.uint64(1)))
            at += width
            if kind == 1:
                distance |= (tag >> 5) << 8
                size = (tag >> 2 & 7) + 4
            if distance == 0 or distance > to - begins or size > stop - to:
                break
            repeated(out, to, distance, size)
        to += size
    else:
        return to if to == stop else np.int64(-1)
    return np.int64(-1)


@kernel
def snappy_frame(buf: Any, start: Any, end: Any, out: Any, begins: Any, room: Any) -> Any:
    """Unpack one batch; gives the place after its content, -1 if it is broken, of another kind, or has no room."""
    if end - start < _MAGIC_BYTES or le64(buf, start) != _MAGIC:
        return _block(buf, start, end, out, begins, room)
    to = np.int64(begins)
    at = np.int64(start + _FRONT_BYTES)
    while at + 4 <= end:
        size = np.int64(be32(buf, at))
        at += 4
        if size < 0 or size > end - at:
            return np.int64(-1)
        to = _block(buf, at, at + size, out, to, room)
        if to < 0:
            return to
        at += size
    return to if at == end else np.int64(-1)
