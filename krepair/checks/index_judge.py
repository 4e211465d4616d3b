"""Judges the indexes of a segment and says what is wrong with them: KR201 to KR207. No other module judges entries.

``check``, ``verify``, the index fix and the verification after apply all use this module. An entry is not compared with
the entry that a rebuild would write, because right entries differ. A live broker's time index has the offset of the
record; recovery writes the last offset of its batch. A live broker's offset index has one entry per append of many
batches, and a cleaner's has one per chunk. So an entry is judged by what a broker does with it:

* A fetch of an offset T starts at the position of the last entry with an offset of at most T. It takes the first batch
  from there on that ends at T or later. So an entry (offset, position) is wrong if no batch starts at the position, or
  if a batch before the position ends at the offset or later.
* A search for a timestamp T starts at the batch that holds the offset of the last entry with a timestamp of at most T.
  It takes the first record from there on with timestamp T or later. So an entry (timestamp, offset) is wrong if a batch
  before that one has this timestamp or a later one. It does no harm if no batch at the offset has the timestamp.
* The last time entry gives the largest timestamp of the segment. A search uses it to choose the segment, and retention
  uses it to delete the segment. So the entry is wrong if the log has another largest timestamp.
* Entries past the end of the log mislead no reader as long as another segment follows. But if the segment becomes the
  last one, a broker takes its end from them, and the next append fails.

A time entry is judged as if the offset index had an entry for every batch, because either file may be rebuilt alone. An
emptied batch counts by its header, as for brokers. Kafka's classes of 2.2.1, 3.9.2 and 4.3.1 agree with all this, see
``tests/checks/test_index_truth.py``.

Source: OffsetIndex, TimeIndex, AbstractIndex (2.2.1, 3.9), LogSegment.read, findOffsetByTimestamp, readNextOffset and
recover, FileRecords.searchForOffsetWithSize and searchForTimestamp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from krepair.checks.index_findings import (
    LARGEST_INDEX_BYTES,
    IndexFile,
    IndexProblem,
    byte_problems,
    offset_entries,
    time_entries,
)
from krepair.formats.arrays import Int64s
from krepair.formats.filenames import INDEX, TIME_INDEX

CLEANER_CHUNK_BYTES: Final = 262_144
"""Size of one of the two I/O buffers of a cleaner thread (``log.cleaner.io.buffer.size`` 524288, LogCleaner 2.2.1)."""

SPARSE_BYTES: Final = 2 << 20
"""An offset index with a larger gap than this is too sparse.

A follower's append (``replica.fetch.max.bytes`` 1 MiB) or a cleaner's chunk leaves smaller gaps.
"""


@dataclass
class IndexAudit:
    """Compares entries with the batches of a log: feed it all batches from position 0 on, then call ``finish``.

    For each file and each window of batches only the first wrong entry is reported.

    Attributes:
        base_offset: base offset of the segment.
        offsets: int64[N, 2], ascending, see ``offset_entries``.
        times: int64[M, 2], ascending, see ``time_entries``.
        last_offset: last offset of the last batch that was fed, ``base_offset - 1`` before the first.
        largest: largest timestamp in ms that was fed, -1 if none.
        offset_of_largest: last offset of the first batch with that timestamp.
        largest_batch: bytes of the largest batch whose end is known.
        disordered: whether the offsets of the log do not ascend; then its indexes are not judged.
    """

    base_offset: int
    offsets: Int64s
    times: Int64s
    problems: list[IndexProblem] = field(default_factory=list)
    last_offset: int = 0
    largest: int = -1
    offset_of_largest: int = -1
    largest_batch: int = 0
    disordered: bool = False
    _next_offset: int = 0
    _next_time: int = 0
    _last_position: int = -1
    _largest_before_last: int = -1

    def __post_init__(self) -> None:
        """Set the state before the first batch."""
        self.last_offset = self.base_offset - 1

    def feed(self, positions: Int64s, lasts: Int64s, stamps: Int64s) -> None:
        """Feed the next batches as columns: position, last offset and largest timestamp, int64[N] each."""
        if len(positions) == 0:
            return
        if lasts[0] < self.last_offset or np.count_nonzero(lasts[1:] <= lasts[:-1]):
            self.disordered = True
        if not self.disordered:
            self._feed_offsets(positions, lasts)
            self._feed_times(lasts, stamps)
        if self._last_position >= 0:
            self.largest_batch = max(self.largest_batch, int(positions[0]) - self._last_position)
        if len(positions) > 1:
            self.largest_batch = max(self.largest_batch, int((positions[1:] - positions[:-1]).max()))
        self._last_position = int(positions[-1])
        self.last_offset = int(lasts[-1])
        top = int(stamps.argmax())
        if int(stamps[top]) > self.largest:
            self.largest, self.offset_of_largest = int(stamps[top]), int(lasts[top])

    def _feed_offsets(self, positions: Int64s, lasts: Int64s) -> None:
        first = self._next_offset
        if first == len(self.offsets):
            return
        end = int(np.searchsorted(self.offsets[:, 1], positions[-1], side="right"))
        mine = self.offsets[first:end]
        if len(mine) == 0:
            return
        before = np.concatenate(([self.last_offset], lasts[:-1]))
        at = np.minimum(np.searchsorted(positions, mine[:, 1]), len(positions) - 1)
        exact = positions[at] == mine[:, 1]
        wrong = ~exact | (before[at] >= mine[:, 0])
        if np.count_nonzero(wrong):
            entry = int(np.argmax(wrong))
            text = (
                f"the batches before that position end at offset {int(before[at[entry]])}"
                if exact[entry]
                else f"no batch starts there; the next one starts at {int(positions[at[entry]])}"
            )
            self._note_offset(first + entry, text, misleads=True)
        self._next_offset = end

    def _note_offset(self, entry: int, text: str, *, misleads: bool) -> None:
        offset, position = self.offsets[entry].tolist()
        evidence = f"entry (offset {offset}, position {position}): {text}"
        self.problems.append(IndexProblem(INDEX, "KR203", entry * 8, evidence, misleads=misleads))

    def _feed_times(self, lasts: Int64s, stamps: Int64s) -> None:
        first = self._next_time
        if first < len(self.times):
            end = int(np.searchsorted(self.times[:, 1], lasts[-1], side="right"))
            mine = self.times[first:end]
            if len(mine):
                before = self._largest_before(stamps, np.searchsorted(lasts, mine[:, 1]))
                self._judge_times(first, mine, before)
            self._next_time = end
        if len(stamps) > 1:
            self._largest_before_last = max(self.largest, int(stamps[:-1].max()))
        else:
            self._largest_before_last = self.largest

    def _largest_before(self, stamps: Int64s, at: Int64s) -> Int64s:
        """The largest timestamp before each of these batches."""
        so_far = np.empty(len(stamps), np.int64)
        so_far[0] = self.largest
        np.maximum.accumulate(stamps[:-1], out=so_far[1:])
        found: Int64s = np.maximum(so_far[at], self.largest)
        return found

    def _judge_times(self, first: int, mine: Int64s, before: Int64s) -> None:
        wrong = mine[:, 0] <= before
        if np.count_nonzero(wrong):
            entry = int(np.argmax(wrong))
            text = f"a batch before that offset has timestamp {int(before[entry])}"
            self._note_time(first + entry, text, misleads=True)

    def _note_time(self, entry: int, text: str, *, misleads: bool) -> None:
        timestamp, offset = self.times[entry].tolist()
        evidence = f"entry (timestamp {timestamp}, offset {offset}): {text}"
        self.problems.append(IndexProblem(TIME_INDEX, "KR202", entry * 12, evidence, misleads=misleads))

    def finish(
        self,
        log_end: int,
        interval_bytes: int,
        files: Mapping[str, IndexFile],
        *,
        active: bool,
        closed: bool = False,
    ) -> list[IndexProblem]:
        """All problems, after the batches up to ``log_end`` were fed.

        Args:
            log_end: position after the last batch.
            interval_bytes: ``index.interval.bytes``.
            files: the two files by suffix.
            active: whether the segment is the last of its partition; a broker completes its indexes when it rolls.
            closed: whether a clean stop closed the active segment. Then no entry is past its log, and the next start
                uses the last entry without reading the log before it (LogSegment.readNextOffset).
        """
        if self.disordered:
            return []
        if self._last_position >= 0:
            self.largest_batch = max(self.largest_batch, log_end - self._last_position)
        if not active or closed:
            self._past_the_end(log_end)
        if not active:
            self._missing_entries(log_end, interval_bytes, files)
            self._closing_entry(files)
        return self.problems

    def _past_the_end(self, log_end: int) -> None:
        if self._next_offset < len(self.offsets):
            offset, position = self.offsets[self._next_offset].tolist()
            # Behind the end of the file a fetch finds nothing. That is right for an offset that the log does not have.
            misleads = position < log_end or offset <= self.last_offset
            text = (
                f"no batch starts there; the last one starts at {self._last_position}"
                if position < log_end
                else f"the log ends at position {log_end}"
            )
            self._note_offset(self._next_offset, text, misleads=misleads)
        elif len(self.offsets) and int(self.offsets[-1, 0]) > self.last_offset:
            text = f"the log ends with offset {self.last_offset}"
            self._note_offset(len(self.offsets) - 1, text, misleads=False)
        if self._next_time < len(self.times):
            misleads = int(self.times[self._next_time, 0]) <= self._largest_before_last
            text = f"the log ends with offset {self.last_offset}"
            self._note_time(self._next_time, text, misleads=misleads)

    def _missing_entries(self, log_end: int, interval_bytes: int, files: Mapping[str, IndexFile]) -> None:
        file = files[INDEX]
        if file.size < 0:
            self.problems.append(
                IndexProblem(INDEX, "KR203", -1, f"is missing beside a log of {log_end} bytes")
            )
            return
        if file.unread or file.size > LARGEST_INDEX_BYTES:
            return
        if len(self.offsets) == 0:
            most = max(CLEANER_CHUNK_BYTES, interval_bytes) + self.largest_batch
            if log_end > most:
                text = f"no entry beside a log of {log_end} bytes; at most {most} may have none"
                self.problems.append(IndexProblem(INDEX, "KR206", -1, text))
            return
        gaps = np.diff(np.concatenate(([0], self.offsets[:, 1], [log_end])))
        widest = int(np.argmax(gaps))
        most = max(SPARSE_BYTES, 2 * (interval_bytes + self.largest_batch))
        if int(gaps[widest]) > most:
            text = f"{int(gaps[widest])} bytes of log without an entry; at most {most} may have none"
            self.problems.append(IndexProblem(INDEX, "KR203", min(widest, len(self.offsets) - 1) * 8, text))

    def _closing_entry(self, files: Mapping[str, IndexFile]) -> None:
        file = files[TIME_INDEX]
        if file.unread or file.size > LARGEST_INDEX_BYTES:
            return
        if len(self.times) == 0:
            if self.largest >= 0:  # if there are no timestamps (v0), an empty time index is right
                what = "is missing" if file.size < 0 else "has no entry"
                text = f"{what}; the log's largest timestamp is {self.largest}"
                self.problems.append(IndexProblem(TIME_INDEX, "KR201", -1, text))
            return
        last = int(self.times[-1, 0])
        if last != self.largest:
            log = f"the log's largest is {self.largest}" if self.largest >= 0 else "the log has no timestamps"
            text = f"the last entry has timestamp {last}, {log}"
            self.problems.append(
                IndexProblem(TIME_INDEX, "KR202", (len(self.times) - 1) * 12, text, misleads=True)
            )


class SegmentIndexes:
    """Checks the offset index and the time index of one segment, by their own bytes and by the log.

    Args:
        base_offset: base offset of the segment.
        files: the two files by suffix.
        active: whether the segment is the last of its partition.

    Attributes:
        problems: all problems that were found so far.
        broken: suffixes of files that contradict themselves; their entries are not compared with the log.
        audit: gets all batches of the log.
    """

    def __init__(self, base_offset: int, files: Mapping[str, IndexFile], *, active: bool) -> None:
        self.files = files
        self.active = active
        self.problems = [
            problem
            for suffix in (INDEX, TIME_INDEX)
            for problem in byte_problems(suffix, files[suffix], active=active)
        ]
        self.broken = {problem.suffix for problem in self.problems if not problem.tail}
        index, times = (
            IndexFile(0) if suffix in self.broken else files[suffix] for suffix in (INDEX, TIME_INDEX)
        )
        self.audit = IndexAudit(
            base_offset, offset_entries(index, base_offset), time_entries(times, base_offset)
        )

    def finish(self, log_end: int, interval_bytes: int, *, whole: bool, clean: bool) -> None:
        """Add the problems that the log shows, after ``audit`` was fed.

        Args:
            log_end: position after the last batch that was fed.
            interval_bytes: ``index.interval.bytes``.
            whole: whether the log ends there. Entries behind damage are not judged.
            clean: whether the broker was stopped cleanly, so that the active segment was closed too.
        """
        found = self.audit.finish(
            log_end, interval_bytes, self.files, active=self.active or not whole, closed=clean and whole
        )
        self.problems += [problem for problem in found if problem.suffix not in self.broken]
