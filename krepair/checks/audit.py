"""The second opinion on a rewrite: by numpy and the plain layouts, sharing no code with the kernels.

``audit_window`` proves, while a source is in the cache, that every byte of it belongs to a batch that was either kept or
is one that marker-only compaction may drop. The rest is proven on the new files: see ``krepair.pipeline.verify``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from krepair.formats import batch_v2
from krepair.formats.batch_v2 import HEADER, LOG_OVERHEAD

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Int64s = np.ndarray[Any, np.dtype[np.int64]]

_LENGTH = HEADER.place("batch_length")
_MAGIC = HEADER.place("magic")
_ATTRIBUTES = HEADER.place("attributes")
_COUNT = HEADER.place("record_count")


def audit_window(window: Bytes, end: int, starts: Int64s, kept: np.ndarray[Any, np.dtype[np.bool_]]) -> str:
    """Check the claim that batches begin at ``starts``, fill ``window[:end]``, and that only those without records go.

    The places are proven, not believed: the first is 0, each declared size leads to the next, the last to ``end``.

    Args:
        window: uint8[W].
        end: place after the last batch.
        starts: int32[N] places.
        kept: bool[N] whether the batch stays.

    Returns:
        What is wrong, or empty.
    """
    places = starts.astype(np.int64)
    if places[0] != 0:
        return f"the first batch starts at place {places[0]}, not 0"
    if len(places) == 1 and end > len(window):
        return "" if kept[0] else "a batch larger than the window goes"
    length = window[places + _LENGTH].astype(np.int64)
    for byte in range(1, 4):
        length = (length << 8) | window[places + (_LENGTH + byte)]
    following = np.append(places[1:], end)
    wrong = (places + length + LOG_OVERHEAD != following) | (window[places + _MAGIC] != batch_v2.MAGIC)
    if wrong.any():
        return f"no batch of the claimed size starts at place {places[np.argmax(wrong)]}"
    gone = places[~kept]
    control = window[gone + (_ATTRIBUTES + 1)] & batch_v2.CONTROL != 0
    rest = gone[~control]
    filled = window[rest + _COUNT] | window[rest + _COUNT + 1] | window[rest + _COUNT + 2] | window[rest + _COUNT + 3]
    if filled.any():
        return f"the batch at place {rest[np.argmax(filled != 0)]} has records and would go"
    return ""


def runs_of(starts: Int64s, kept: np.ndarray[Any, np.dtype[np.bool_]], end: int) -> list[tuple[int, int]]:
    """Stretches of kept bytes, as (start, end) places."""
    if kept.all():
        return [(int(starts[0]), end)]
    edges = np.flatnonzero(np.diff(kept.astype(np.int8), prepend=0, append=0))
    bounds = np.append(starts, end)[edges].reshape(-1, 2)
    return [(int(first), int(last)) for first, last in bounds]
