"""Distinction between a torn tail and bytes that still hold a whole batch."""

from __future__ import annotations

import numpy as np

from krepair.formats.batch_v2 import HEADER, MAGIC, batch_damage, decode_header

LOOK_AT_MOST_BYTES = 1 << 20
_MAGIC_PLACE = HEADER.place("magic")


def holds_whole_batch(data: bytes) -> bool:
    """Return True if a valid v2 batch begins anywhere in ``data`` and ends within it.

    Args:
        data: bytes from the first invalid position on, at most ``LOOK_AT_MOST_BYTES``.
    """
    candidates = np.flatnonzero(np.frombuffer(data, np.uint8) == MAGIC) - _MAGIC_PLACE
    for place in candidates[(candidates >= 0) & (candidates + HEADER.size <= len(data))].tolist():
        size = decode_header(data, place).size_bytes
        if HEADER.size <= size <= len(data) - place and batch_damage(data, place) is None:
            return True
    return False
