"""Logs whose noted headers can be compared."""

from __future__ import annotations

import random

import numpy as np

from krepair.pipeline.compaction import log
from krepair.pipeline.compaction.headers import HeaderNotes
from tests.builders import Batch, commit, data, emptied
from tests.compaction.cases import batch, rec

NO_RANGES = np.empty((0, 3), np.int64)


def batches(chance: random.Random) -> list[Batch]:
    """Small, large, compressed and empty batches, markers, and one that passes a window."""
    found: list[Batch] = []
    offset = 0
    for number in range(60):
        kind = chance.choice(("small", "large", "lz4", "zstd", "marker", "emptied"))
        if kind == "marker":
            one = commit(offset, pid=7)
        elif kind == "emptied":
            one = emptied(offset, pid=3)
        elif kind in ("lz4", "zstd"):
            one = batch(offset, *"abc", codec=3 if kind == "lz4" else 4)
        else:
            size = 20 if kind == "small" else chance.choice((2000, 70_000))
            if number == 30:
                size = 3 << 20
            one = data(offset, [rec(key, key * size) for key in "ab"])
        found.append(one)
        offset = one.last_offset + 1 + chance.randrange(3)
    return found


def noted(raw: bytes, most: int = 1 << 20) -> bytes:
    """The headers as the windows of a reading give them."""
    notes = HeaderNotes(most)
    place = 0
    while place < len(raw):
        window = np.frombuffer(raw[place : place + headers_window()], np.uint8)
        end = at = 0
        while at + 61 <= len(window):
            end, at = at, at + int.from_bytes(window[at + 8 : at + 12].tobytes(), "big") + 12
        if at <= len(window) or end == 0:
            end = at
        notes.take(window, end)
        place += end
    return notes.found


def headers_window() -> int:
    return log.WINDOW_BYTES
