"""The indexes of a segment held against its log while they are made: one reading serves both.

The entries are judged by ``index_judge``, as everywhere else. What differs: a time entry may be made after the batch
that it names was read, since it names the first batch with the largest timestamp so far. Such an entry is right only if
it says exactly what this reading found to be the largest timestamp, and the offset of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from krepair.checks.index_findings import IndexFile, byte_problems, offset_entries, time_entries
from krepair.checks.index_judge import IndexAudit
from krepair.checks.walk import Walked
from krepair.formats.arrays import Int64s
from krepair.formats.filenames import INDEX, TIME_INDEX


@dataclass
class _GrowingAudit(IndexAudit):
    """As ``IndexAudit``, of entries that become more from window to window."""

    def _feed_times(self, lasts: Int64s, stamps: Int64s) -> None:
        self.judge_late_times()
        super()._feed_times(lasts, stamps)

    def judge_late_times(self) -> None:
        """Judge the entries of batches that were fed before the entries were made."""
        if self._next_time >= len(self.times):
            return
        end = int(np.searchsorted(self.times[:, 1], self.last_offset, side="right"))
        mine = self.times[self._next_time : end]
        wrong = (mine[:, 0] != self.largest) | (mine[:, 1] != self.offset_of_largest)
        if np.count_nonzero(wrong):
            text = f"the largest timestamp so far is {self.largest}, of offset {self.offset_of_largest}"
            self._note_time(self._next_time + int(np.argmax(wrong)), text, misleads=True)
        self._next_time = max(self._next_time, end)

    def is_what_was_judged(self, offsets: Int64s, times: Int64s) -> bool:
        """Whether the entries of finished files begin with those that were judged."""
        pairs = ((offsets, self.offsets, self._next_offset), (times, self.times, self._next_time))
        return all(new[:count].tobytes() == judged[:count].tobytes() for new, judged, count in pairs)


class MadeIndexes:
    """Tell it of entries, feed it batches whose entries it was told of, then ask for ``problems``.

    Args:
        base_offset: of the segment.
    """

    def __init__(self, base_offset: int) -> None:
        none = np.empty((0, 2), np.int64)
        self._audit = _GrowingAudit(base_offset, none, none)

    def tell(self, offsets: Int64s, times: Int64s) -> None:
        """Take all entries that were made so far.

        Args:
            offsets: int64[N, 2] (last offset, position); what was told before is its beginning.
            times: int64[M, 2] (timestamp, offset), likewise.
        """
        self._audit.offsets, self._audit.times = offsets, times

    def feed(self, walked: Walked) -> None:
        """Hold the entries against the next batches; entries of later batches may have been told already."""
        self._audit.feed(walked.positions, walked.lasts, walked.stamps)

    def problems(self, contents: Mapping[str, bytes], log_end: int, interval_bytes: int) -> dict[str, str]:
        """Suffix -> the first thing that is wrong with a finished file, once every batch was fed.

        Args:
            contents: bytes of the ``.index`` and the ``.timeindex`` by suffix.
            log_end: position behind the last batch.
            interval_bytes: ``index.interval.bytes``.
        """
        audit = self._audit
        files = {suffix: IndexFile(len(data), data) for suffix, data in contents.items()}
        found = {
            suffix: problems[0].text
            for suffix, file in files.items()
            if (problems := byte_problems(suffix, file, active=False))
        }
        offsets = offset_entries(files[INDEX], audit.base_offset)
        times = time_entries(files[TIME_INDEX], audit.base_offset)
        if not audit.is_what_was_judged(offsets, times):
            text = "its bytes are not the entries that were held against the log"
            return dict.fromkeys(contents, text) | found
        audit.offsets, audit.times = offsets, times
        audit.judge_late_times()
        for problem in audit.finish(log_end, interval_bytes, files, active=False):
            found.setdefault(problem.suffix, problem.text)
        return found
