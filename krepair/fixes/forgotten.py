"""Search for stale open transactions, which are open in a producer snapshot although they have ended (KR505).

A cleaner removes data only below the last stable offset, therefore only data of transactions that have ended, and
removes the marker after the data. In a snapshot from before the marker the transaction is still open. If the log begins
at or below the transaction's first offset, but has no batch of the producer from there on, the transaction is stale.
Any batch of the producer rules out a stale transaction, even a data batch without records; only a control batch without
its record proves nothing. A missing segment also rules out a stale transaction, because a cleaner never removes whole
segments.

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
    """Transaction that is open in a producer snapshot."""

    producer_id: int
    first_offset: int


class _LogShows(Enum):
    NOTHING = "no batch of the producer there"
    OPEN = "a batch of the producer from the first offset on"
    MAYBE = "batches of the producer, which may all lie before the first offset"


class ScanFrom(NamedTuple):
    """Part of a segment to scan: from an offset on, or the whole segment if the offset is not above the base offset."""

    base_offset: int
    from_offset: int


class OpenTransactions:
    """Search for the batches of open transactions of one partition's snapshots, segment by segment.

    Args:
        bases: base offsets of the partition's segments, ascending.
        known: facts of whole segments, by base offset.
        is_readable: function that returns whether the facts of a segment cover all its batches.
        gaps: reasons for missing offsets; a missing segment may hold a batch of the transaction.
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

    def ask(self, transaction: Open) -> None:
        """Add a transaction, which must not begin below the log's first offset."""
        self._pending[transaction] = self._first(transaction)

    def take(self, part: ScanFrom, facts: SegmentFacts | None) -> None:
        """Take the result of a scan; None for a failed scan, which leaves the transactions there undecided."""
        if facts is None:
            number = self._bases.index(part.base_offset)
            self._pending = {transaction: at for transaction, at in self._pending.items() if at != number}
        else:
            self._facts[part] = facts

    def wanted(self) -> list[ScanFrom]:
        """Decide on transactions by the known facts; return the parts to scan next, empty if all are decided."""
        parts: dict[int, ScanFrom] = {}
        for transaction in list(self._pending):
            part = self._advance(transaction)
            if part is not None:
                parts[part.base_offset] = min(part, parts.get(part.base_offset, part))
        return sorted(parts.values())

    def _advance(self, transaction: Open) -> ScanFrom | None:
        while self._pending[transaction] < len(self._bases):
            base = self._bases[self._pending[transaction]]
            exact = ScanFrom(base, max(base, transaction.first_offset))
            shown = _LogShows.MAYBE
            for part in sorted(each for each in self._facts if each.base_offset == base and each <= exact):
                facts = self._facts[part]
                if not self._is_readable(facts):
                    shown = _LogShows.OPEN  # a damaged log may hide a batch: keep the transaction
                    break
                shown = _shown_by(facts, transaction, whole=part == exact)
                if shown is not _LogShows.MAYBE:
                    break
            if shown is _LogShows.MAYBE:
                return exact
            if shown is _LogShows.OPEN:
                del self._pending[transaction]
                return None
            self._pending[transaction] += 1
        del self._pending[transaction]
        if not self._misses_a_segment(transaction):
            self.forgotten.add(transaction)
        return None

    def _misses_a_segment(self, transaction: Open) -> bool:
        """Return whether a segment is missing that held the transaction's first offset or began above that offset."""
        ends = {part.base_offset: facts.end_offset for part, facts in self._facts.items()}
        gap = first_missing(
            self._gaps, ((base, ends[base]) for base in self._bases[self._first(transaction) :])
        )
        return gap is not None

    def _first(self, transaction: Open) -> int:
        """Return the index of the segment in which a transaction begins."""
        return bisect_right(self._bases, transaction.first_offset) - 1


def _shown_by(facts: SegmentFacts, transaction: Open, *, whole: bool) -> _LogShows:
    rows = facts.summary.rows
    if not len(rows):
        return _LogShows.NOTHING
    mine = rows[(rows[:, c.P_ID] == transaction.producer_id) & (rows[:, c.P_EPOCH] != -1)]
    if not len(mine):
        return _LogShows.NOTHING
    if whole or int(np.max(mine[:, c.P_LAST_DATA_OFFSET])) >= transaction.first_offset:
        return _LogShows.OPEN
    return _LogShows.MAYBE
