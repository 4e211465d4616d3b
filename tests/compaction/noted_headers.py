"""Logs whose large batches are noted during the first reading, and the expected notes."""

from __future__ import annotations

import random

import numpy as np

from krepair.rewrite.compaction.headers import BatchNotes, NoteTaker
from krepair.rewrite.compaction.keys import KeyWalk
from tests.builders import Batch, commit, data, emptied, reading
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


def noted(raw: bytes, most: int = 1 << 20, *, sizes: bool = False) -> BatchNotes:
    """What the first reading notes of a log: its headers, and with ``sizes`` a word for each record."""
    secret = np.zeros(2, np.uint64)
    walk = KeyWalk(
        reading(raw), len(raw), NO_RANGES, secret, lambda rows, starts: None, notes=NoteTaker(most)
    )
    walk.run()
    return walk.noted if sizes else BatchNotes(walk.noted.headers)


def headers_of(stream: bytes) -> list[bytes]:
    """The headers of batches, all but their CRCs; their lengths tell where the next one is."""
    found, place = [], 0
    while place < len(stream):
        found.append(stream[place : place + 17] + stream[place + 21 : place + 61])
        place += int.from_bytes(stream[place + 8 : place + 12], "big") + 12
    assert place == len(stream)
    return found
