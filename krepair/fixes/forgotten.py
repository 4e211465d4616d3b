"""Transactions that a snapshot keeps open and the log has forgotten: the log is asked about each.

A cleaner removes data only below the last stable offset, so only of transactions that have ended; and it removes the
end of a transaction after its data. A snapshot from between the two stays as it is. If the log still begins at or below
the transaction's first offset, and holds no batch of its producer from there on, the transaction has ended. Any batch
of the producer rules it out, also an emptied one of data; only an emptied control batch says nothing. So does a segment
that is missing: a cleaner takes none.

Source: ``Cleaner.checkBatchRetention``, ``CleanedTransactionMetadata``, ``LogCleanerManager.cleanableOffsets`` (2.2.1,
3.9.2).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np

from krepair.kernels import classes as c
from krepair.rules.missing import Gaps, first_missing
from krepair.rules.model import SegmentFacts


class Open(NamedTuple):
    """A transaction that a snapshot has open."""

    producer_id: int
    first_offset: int


class _LogShows(Enum):
    NOTHING = "no batch of the producer there"
    OPEN = "a batch of the producer from the first offset on"
    MAYBE = "batches of the producer, which may all lie before the first offset"


class ScanFrom(NamedTuple):
    """Part of a segment to scan: from an offset on, or all of it if the offset is not above its base offset."""

    base_offset: int
    from_offset: int


class OpenTransactions:
    """The open transactions of one partition's snapshots, asked about segment by segment.

    Args:
        bases: base offsets of its segments, ascending.
        known: facts of whole segments, by base offset.
        is_readable: tells if the facts of a segment cover all its batches.
        gaps: reasons for offsets that no segment has; a missing segment may hold a batch of the transaction.
    """

    def __init__(
        self,
        bases: Sequence[int],
        known: dict[int, SegmentFacts],
        is_readable: Callable[[SegmentFacts], bool],
        gaps: Gaps,
    ) -> None:
        self._bases = bases
        self._facts = {ScanFrom(base, base): facts for base, facts in known.items()}
        self._is_readable = is_readable
        self._gaps = gaps
        self._pending: dict[Open, int] = {}
        self.forgotten: set[Open] = set()

    def ask(self, one: Open) -> None:
        """Ask about a transaction that does not begin below the log."""
        self._pending[one] = self._first(one)

    def take(self, part: ScanFrom, facts: SegmentFacts | None) -> None:
        """Take the result of a scan; None if it failed, which leaves the transactions that need it undecided."""
        if facts is None:
            number = self._bases.index(part.base_offset)
            self._pending = {one: at for one, at in self._pending.items() if at != number}
        else:
            self._facts[part] = facts

    def wanted(self) -> list[ScanFrom]:
        """Go on as far as the facts reach; what has to be scanned next, nothing if all is told."""
        parts: dict[int, ScanFrom] = {}
        for one in list(self._pending):
            part = self._go_on(one)
            if part is not None:
                parts[part.base_offset] = min(part, parts.get(part.base_offset, part))
        return sorted(parts.values())

    def _go_on(self, one: Open) -> ScanFrom | None:
        while self._pending[one] < len(self._bases):
            base = self._bases[self._pending[one]]
            exact = ScanFrom(base, max(base, one.first_offset))
            told = _LogShows.MAYBE
            for part in sorted(each for each in self._facts if each.base_offset == base and each <= exact):
                facts = self._facts[part]
                if not self._is_readable(facts):
                    told = _LogShows.OPEN  # nothing is told of a damaged log
                    break
                told = _told_by(facts, one, whole=part == exact)
                if told is not _LogShows.MAYBE:
                    break
            if told is _LogShows.MAYBE:
                return exact
            if told is _LogShows.OPEN:
                del self._pending[one]
                return None
            self._pending[one] += 1
        del self._pending[one]
        if not self._misses_a_segment(one):
            self.forgotten.add(one)
        return None

    def _misses_a_segment(self, one: Open) -> bool:
        """Return whether a segment that began at or above the first offset, or held it, is missing."""
        ends = {part.base_offset: facts.end_offset for part, facts in self._facts.items()}
        found = first_missing(self._gaps, ((base, ends[base]) for base in self._bases[self._first(one) :]))
        return found is not None

    def _first(self, one: Open) -> int:
        """Return the number of the segment in which a transaction begins."""
        return bisect_right(self._bases, one.first_offset) - 1


def _told_by(facts: SegmentFacts, one: Open, *, whole: bool) -> _LogShows:
    rows = facts.summary.rows
    if not len(rows):
        return _LogShows.NOTHING
    mine = rows[(rows[:, c.P_ID] == one.producer_id) & (rows[:, c.P_EPOCH] != -1)]
    if not len(mine):
        return _LogShows.NOTHING
    if whole or int(np.max(mine[:, c.P_LAST_DATA_OFFSET])) >= one.first_offset:
        return _LogShows.OPEN
    return _LogShows.MAYBE
