"""Tells whether the bytes after the last valid batch are only a torn rest, or hold a whole batch."""

from __future__ import annotations

import numpy as np

from krepair.formats.batch_v2 import HEADER, MAGIC, batch_damage, decode_header

LOOK_AT_MOST_BYTES = 1 << 20
_MAGIC_PLACE = HEADER.place("magic")


def holds_whole_batch(data: bytes) -> bool:
    """Whether a valid v2 batch begins anywhere in ``data`` and ends within it.

    Args:
        data: bytes from the first invalid position on. A caller passes at most ``LOOK_AT_MOST_BYTES``.
    """
    found = np.flatnonzero(np.frombuffer(data, np.uint8) == MAGIC) - _MAGIC_PLACE
    for place in found[(found >= 0) & (found + HEADER.size <= len(data))].tolist():
        size = decode_header(data, place).size_bytes
        if HEADER.size <= size <= len(data) - place and batch_damage(data, place) is None:
            return True
    return False
