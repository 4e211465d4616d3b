"""Checks all three indexes of a segment with the batches of its ``.log``, window by window, without kernels.

``index_judge`` judges the offset index and the time index, as everywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from krepair.checks.index_findings import IndexFile
from krepair.checks.index_judge import SegmentIndexes
from krepair.checks.walk import Walked
from krepair.formats import batch_v2, txn_index
from krepair.formats.arrays import Int64s
from krepair.formats.filenames import TXN_INDEX

Problem = tuple[str, int, str]


class AbortedAudit:
    """Checks a ``.txnindex``: feed it all windows of the log in order, then call ``finish``.

    Args:
        aborted: int64[N, 2] (producer id, offset of the abort marker), its entries.

    Attributes:
        aborted: see the arguments.
    """

    def __init__(self, aborted: Int64s) -> None:
        self.aborted = aborted
        self._problems: list[Problem] = []
        self._next = 0

    def feed(self, walked: Walked) -> None:
        """Check the entries that belong to these batches."""
        if len(self.aborted) == self._next or len(walked.positions) == 0:
            return
        base = walked.firsts
        end = int(np.searchsorted(self.aborted[:, 1], base[-1], side="right"))
        mine = self.aborted[self._next : end]
        at = np.minimum(np.searchsorted(base, mine[:, 1]), len(base) - 1)
        control = (walked.headers["attributes"][at] & batch_v2.CONTROL) != 0
        wrong = (base[at] != mine[:, 1]) | ~control | (walked.headers["producer_id"][at] != mine[:, 0])
        if wrong.any():
            self._note(self._next + int(np.argmax(wrong)), "names no marker of that producer")
        self._next = max(end, self._next)

    def _note(self, entry: int, text: str) -> None:
        self._problems.append((TXN_INDEX, entry * txn_index.ENTRY_SIZE, f"the entry {text}"))

    def finish(self, *, whole: bool = True) -> list[Problem]:
        """All problems as (suffix, byte of the file, what is wrong), after the whole log was fed.

        Args:
            whole: whether the log ends there. Entries behind damage are not judged.
        """
        if whole and self._next < len(self.aborted):
            self._note(self._next, "lies past the end of the log")
        return self._problems


class CompanionAudit:
    """Checks the indexes of a segment: feed it all windows of the log in order, then call ``finish``.

    Args:
        base_offset: base offset of the segment.
        files: ``.index`` and ``.timeindex`` by suffix.
        aborted: int64[N, 2] (producer id, offset of the abort marker), entries of the ``.txnindex``.
        active: whether the segment is the last of its partition.

    Attributes:
        aborted: see the arguments.
    """

    def __init__(
        self, base_offset: int, files: Mapping[str, IndexFile], aborted: Int64s, *, active: bool = False
    ) -> None:
        self.aborted = aborted
        self._indexes = SegmentIndexes(base_offset, files, active=active)
        self._aborted = AbortedAudit(aborted)

    def feed(self, walked: Walked) -> None:
        """Check the entries that belong to these batches."""
        if len(walked.positions) == 0:
            return
        self._indexes.audit.feed(walked.positions, walked.lasts, walked.stamps)
        self._aborted.feed(walked)

    def finish(
        self, log_end: int, interval_bytes: int, *, whole: bool = True, clean: bool = False
    ) -> list[Problem]:
        """All problems as (suffix, byte of the file, what is wrong), after the whole log was fed.

        Args:
            log_end: position after the last batch that was fed.
            interval_bytes: ``index.interval.bytes``.
            whole: whether the log ends there. Entries behind damage are not judged.
            clean: whether the broker was stopped cleanly, so that the active segment was closed too.
        """
        self._indexes.finish(log_end, interval_bytes, whole=whole, clean=clean)
        indexes = [(problem.suffix, problem.position, problem.text) for problem in self._indexes.problems]
        return indexes + self._aborted.finish(whole=whole)
