"""Check that a new log holds exactly the bytes that were written, by checksums over the *fronts* of its batches.

The CRC of a batch covers neither its base offset, size and leader epoch, nor itself: these 21 bytes are its front. So
the writer of a new log computes a CRC over all fronts from each source; the verifier computes it again, and also checks
the CRC of each batch.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from krepair.checks.walk import gathered, walk
from krepair.durable.tree import Tree
from krepair.formats.arrays import Int64s, Uint8s
from krepair.formats.batch_v2 import CRC_START
from krepair.formats.castagnoli import crc32c
from krepair.logdir.reading import opened_for_reading, read_into_from

Parts = tuple[tuple[int, int], ...]
"""Parts of a new log in the order of their sources: (bytes, CRC-32C over the first 21 bytes of each batch)."""


class PartsCheck:
    """Running check of a log's parts while the log is walked from its beginning to its end.

    Args:
        parts: expected parts; empty if they are not known, then nothing is checked.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._ends: Int64s = np.array(list(accumulate(size for size, _ in parts)), np.int64)
        self._found = [0] * len(parts)
        self._position = 0

    def take(self, window: Uint8s, places: Int64s, end: int) -> None:
        """Add one window; ``on_places`` of ``checks.walk.walk`` describes the arguments."""
        if not self._parts:
            return
        fronts, first = gathered(window, places, CRC_START), 0
        for number, after in enumerate(np.searchsorted(places, self._ends - self._position).tolist()):
            if first < after:
                self._found[number] = crc32c(fronts[first:after], self._found[number])
                first = after
        self._position += end

    def problem(self) -> str:
        """Return the first part that differs from what was written, or empty; call it after the last window."""
        position = 0
        for (size, expected), computed in zip(self._parts, self._found, strict=True):
            if computed != expected:
                return (
                    f"the bytes from position {position} to {position + size} are not those that were written"
                )
            position += size
        return ""


def has_parts(path: str, parts: Parts, tree: Tree | None = None) -> bool:
    """Return True if a log begins with these parts and every CRC in them is right.

    Raises:
        OSError: the file cannot be read, is a symlink, or is not a regular file.
    """
    check, size = PartsCheck(parts), sum(size for size, _ in parts)
    with opened_for_reading(path, tree) as descriptor:
        whole = all(
            not walked.problem for walked in walk(read_into_from(descriptor), size, on_places=check.take)
        )
    return whole and not check.problem()
