"""Decides whether missing offsets between two segments show that a whole segment is missing.

``--fix snapshots`` and the gate of all fixes use it.

The log cleaner removes batches, and so leaves a segment whose last offsets have no batch, but only up to its entry in
``cleaner-offset-checkpoint``. A broker that deletes or truncates removes segments from the start or the end of a log.

Source: ``LogCleanerManager.doneCleaning``, ``Cleaner.cleanSegments``, ``Log.deleteSegments`` (2.2.1, 3.9.2).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Gaps(NamedTuple):
    """Facts that explain why no segment of a partition has certain offsets.

    Attributes:
        compacts: True if the topic's cleanup policy includes ``compact``.
        cleaned: first dirty offset; the log start offset if ``cleaner-offset-checkpoint`` has no entry.
        orphans: base offsets of index files whose log is missing.
        lost: (first offset, end offset) of ranges that the plan itself removes.
    """

    compacts: bool
    cleaned: int
    orphans: tuple[int, ...] = ()
    lost: tuple[tuple[int, int], ...] = ()

    def is_missing(self, end: int, next_base: int) -> bool:
        """Return whether a segment is missing between the end of one and the base offset of the next."""
        if any(end <= base < next_base for base in self.orphans):
            return True
        if next_base <= end or any(first <= end and next_base <= stop for first, stop in self.lost):
            return False
        return not self.compacts or next_base > self.cleaned


def first_missing(gaps: Gaps, segments: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the first offset range, end excluded, of a missing segment; None if none is missing.

    Args:
        gaps: facts that explain missing offsets.
        segments: (base offset, end offset) of the segments, ascending.
    """
    before = -1
    for base, end in segments:
        if before >= 0 and gaps.is_missing(before, base):
            return before, base
        before = end
    behind = [base for base in gaps.orphans if base >= before >= 0]
    return (min(behind), max(behind) + 1) if behind else None
