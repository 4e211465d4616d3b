"""What each source gave to a new log: sums of the fronts of its batches.

The CRC of a batch covers neither its base offset, size and leader epoch, nor itself. So whoever writes a new log sums
these bytes, the front of each batch, and who reads it later sums them again and checks the CRCs. Both together say that
every byte is the one that was written.
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
"""(bytes, CRC-32C of the first 21 bytes of each batch) of each source's part of the new log, in order."""


class PartsCheck:
    """Sums a log while somebody walks it from its beginning to its end.

    Args:
        parts: what is expected; empty if that is not known, then nothing is checked.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._ends: Int64s = np.array(list(accumulate(size for size, _ in parts)), np.int64)
        self._found = [0] * len(parts)
        self._position = 0

    def take(self, window: Uint8s, places: Int64s, end: int) -> None:
        """Take one window; see ``on_places`` of ``checks.walk.walk`` for the arguments."""
        if not self._parts:
            return
        fronts, first = gathered(window, places, CRC_START), 0
        for number, after in enumerate(np.searchsorted(places, self._ends - self._position).tolist()):
            if first < after:
                self._found[number] = crc32c(fronts[first:after], self._found[number])
                first = after
        self._position += end

    def problem(self) -> str:
        """What is not as it was written, or empty; to be asked after the last batch was taken."""
        position = 0
        for (size, expected), found in zip(self._parts, self._found, strict=True):
            if found != expected:
                return (
                    f"the bytes from position {position} to {position + size} are not those that were written"
                )
            position += size
        return ""


def has_parts(path: str, parts: Parts, tree: Tree | None = None) -> bool:
    """Whether a log begins with these parts, and every CRC in them is right.

    Raises:
        OSError: the file cannot be read, is a symlink, or is not a regular file.
    """
    check, size = PartsCheck(parts), sum(size for size, _ in parts)
    with opened_for_reading(path, tree) as descriptor:
        whole = all(not one.problem for one in walk(read_into_from(descriptor), size, on_places=check.take))
    return whole and not check.problem()
