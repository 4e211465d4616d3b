"""Decides whether the invalid end of a log is only a torn tail, or still holds a complete batch."""

from __future__ import annotations

import os

import numpy as np

from krepair.formats.batch_v2 import HEADER, MAGIC, batch_damage, decode_header
from krepair.kernels.classes import D_PAST_END, D_TORN, D_ZEROS
from krepair.kernels.scan import SegmentSummary
from krepair.logdir.reading import opened_for_reading

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


def is_torn_tail(path: str, summary: SegmentSummary) -> bool:
    """Return whether only a torn batch, or zeros that were never written over, follow the last valid batch."""
    if summary.damage not in (D_TORN, D_PAST_END, D_ZEROS):
        return False
    rest = summary.file_size - summary.valid_bytes
    if rest > LOOK_AT_MOST_BYTES:
        return False
    try:
        with opened_for_reading(path) as descriptor:
            data = os.pread(descriptor, rest, summary.valid_bytes)
            return not any(data) if summary.damage == D_ZEROS else not holds_whole_batch(data)
    except OSError:
        return False  # an unreadable tail may hold a whole batch, so it does not count as harmless
