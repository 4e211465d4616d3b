"""The only judge of index entries: finds what is wrong with the indexes of a segment (KR201 to KR207).

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
empty batch counts by its header, as for brokers. Kafka's classes of 2.2.1, 3.9.2 and 4.3.1 agree with all this, see
``tests/checks/test_index_truth.py``.

Source: OffsetIndex, TimeIndex, AbstractIndex (2.2.1, 3.9), LogSegment.read, findOffsetByTimestamp, readNextOffset and
recover, FileRecords.searchForOffsetWithSize and searchForTimestamp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from krepair.formats import batch_v2, fixed_entries, offset_index, time_index, txn_index
from krepair.formats.arrays import Int64s
from krepair.formats.damage import Damage
from krepair.formats.filenames import INDEX, TIME_INDEX, TXN_INDEX
from krepair.formats.java_numbers import LARGEST_FILE_BYTES
from krepair.formats.words import count_text

if TYPE_CHECKING:
    from krepair.checks.walk import Walked

ENTRY_SIZES: Final = {INDEX: offset_index.ENTRY_SIZE, TIME_INDEX: time_index.ENTRY_SIZE}


class IndexFile(NamedTuple):
    """Contents of one index file, without the zero padding after its entries.

    Attributes:
        size: bytes of the file, -1 if the file is missing.
        data: bytes up to the last entry that is not all zero; empty if the file was too long to read.
        padded: number of all-zero entries after ``data``.
        torn: bytes after the last whole entry.
        unread: True if the file was not read because it has more bytes than the log can need.
    """

    size: int
    data: bytes = b""
    padded: int = 0
    torn: int = 0
    unread: bool = False


MISSING: Final = IndexFile(-1)
_OFFSET, _POSITION = range(2)
"""Columns of the entries of an offset index."""
_TIMESTAMP, _OFFSET_OF_TIMESTAMP = range(2)
"""Columns of the entries of a time index."""
_PRODUCER, _MARKER = range(2)
"""Columns of the entries of a transaction index, as an audit takes them."""


class IndexProblem(NamedTuple):
    """One fault of an index file.

    Attributes:
        suffix: ``.index``, ``.timeindex`` or ``.txnindex``.
        rule: code of the rule, ``KRnnn``.
        position: byte in the file, -1 if the problem concerns the whole file.
        text: the evidence in words.
        tail: True if truncating the file to its entries repairs it.
        misleads: True if a fetch by offset or a search by timestamp gets a wrong answer because of it.
    """

    suffix: str
    rule: str
    position: int
    text: str
    tail: bool = False
    misleads: bool = False


def offset_entries(file: IndexFile, base_offset: int) -> Int64s:
    """Return the real entries of an offset index as int64[N, 2], columns ``_OFFSET`` and ``_POSITION``."""
    view = offset_index.view(file.data)
    return np.column_stack([view["relative_offset"].astype(np.int64) + base_offset, view["position"]])


def time_entries(file: IndexFile, base_offset: int) -> Int64s:
    """Return the real entries of a time index as int64[N, 2], columns ``_TIMESTAMP`` and ``_OFFSET_OF_TIMESTAMP``."""
    view = time_index.view(file.data)
    return np.column_stack([view["timestamp"], view["relative_offset"].astype(np.int64) + base_offset])


def entries_of(file: IndexFile, suffix: str) -> int:
    """Count the real entries in a file."""
    return len(file.data) // ENTRY_SIZES[suffix]


def last_timestamp_read(file: IndexFile) -> int:
    """Return the timestamp in ms that a broker takes as the segment's largest: the last whole entry's, -1 if none.

    Source: TimeIndex.lastEntryFromIndexFile (2.2.1, 3.9).
    """
    if file.padded:
        return 0
    count = entries_of(file, TIME_INDEX)
    return int(time_index.view(file.data)["timestamp"][count - 1]) if count else -1


def byte_problems(suffix: str, file: IndexFile, *, active: bool) -> list[IndexProblem]:
    """Return the problems that show in a file's own bytes, without its log.

    Args:
        suffix: suffix of the file, ``.index`` or ``.timeindex``.
        file: contents of the index file.
        active: True for the active segment, where zero padding is normal.
    """
    if file.size > LARGEST_FILE_BYTES:
        text = f"{file.size} bytes; a broker maps at most {LARGEST_FILE_BYTES}"
        return [IndexProblem(suffix, "KR207", -1, text)]
    if file.unread:
        return [IndexProblem(suffix, _rule(suffix), -1, f"{file.size} bytes, more than its log could need")]
    result = []
    if file.torn:
        size = ENTRY_SIZES[suffix]
        text = f"{file.size} bytes, which is no multiple of {size}"
        result.append(IndexProblem(suffix, "KR205", file.size - file.torn, text, tail=True))
    if file.padded and not active:
        result.append(_padding(suffix, file))
    damages: list[Damage] = (offset_index if suffix == INDEX else time_index).damage(file.data)
    result += [
        IndexProblem(
            suffix, _rule(suffix), damage.position, f"{damage.expected} was expected, found {damage.found}"
        )
        for damage in damages
    ]
    return result


def _rule(suffix: str) -> str:
    return "KR203" if suffix == INDEX else "KR202"


def _padding(suffix: str, file: IndexFile) -> IndexProblem:
    real = entries_of(file, suffix)
    text = f"{count_text(real, 'entry', 'entries')}, then {file.padded} of zeros"
    if suffix == TIME_INDEX:
        text += "; a broker reads 0 (1970) as the segment's largest timestamp"
    rule = "KR201" if suffix == TIME_INDEX else "KR203"
    return IndexProblem(suffix, rule, real * ENTRY_SIZES[suffix], text, tail=True)


def real_bytes(raw: bytes, suffix: str) -> int:
    """Return the number of bytes up to the end of the last entry that is not all zero."""
    size = ENTRY_SIZES[suffix]
    return fixed_entries.padding_start(raw, size) * size


CLEANER_CHUNK_BYTES: Final = 262_144
"""Size of one of the two I/O buffers of a cleaner thread (``log.cleaner.io.buffer.size`` 524288, LogCleaner 2.2.1)."""

SPARSE_BYTES: Final = 2 << 20
"""Largest gap in log bytes between two entries of an offset index that is not yet too sparse.

A follower's append (``replica.fetch.max.bytes`` 1 MiB) or a cleaner's chunk leaves smaller gaps.
"""


@dataclass
class IndexAudit:
    """Comparison of index entries with the batches of a log: feed all batches from position 0 on, then call ``finish``.

    For each file and each window of batches only the first wrong entry is reported.

    Attributes:
        base_offset: base offset of the segment.
        offsets: int64[N, 2], ascending, see ``offset_entries``.
        times: int64[M, 2], ascending, see ``time_entries``.
        last_offset: last offset of the last batch that was fed, ``base_offset - 1`` before the first.
        largest: largest timestamp in ms that was fed, -1 if none.
        offset_of_largest: last offset of the first batch with that timestamp.
        largest_batch: bytes of the largest batch whose end is known.
        disordered: True if the offsets of the log do not ascend; then its indexes are not judged.
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

    def feed(self, positions: Int64s, lasts: Int64s, timestamps: Int64s) -> None:
        """Feed the next batches as columns: position, last offset and largest timestamp, int64[N] each."""
        if len(positions) == 0:
            return
        if lasts[0] < self.last_offset or np.count_nonzero(lasts[1:] <= lasts[:-1]):
            self.disordered = True
        if not self.disordered:
            self._feed_offsets(positions, lasts)
            self._feed_times(lasts, timestamps)
        if self._last_position >= 0:
            self.largest_batch = max(self.largest_batch, int(positions[0]) - self._last_position)
        if len(positions) > 1:
            self.largest_batch = max(self.largest_batch, int((positions[1:] - positions[:-1]).max()))
        self._last_position = int(positions[-1])
        self.last_offset = int(lasts[-1])
        top = int(timestamps.argmax())
        if int(timestamps[top]) > self.largest:
            self.largest, self.offset_of_largest = int(timestamps[top]), int(lasts[top])

    def _feed_offsets(self, positions: Int64s, lasts: Int64s) -> None:
        first = self._next_offset
        if first == len(self.offsets):
            return
        end = int(np.searchsorted(self.offsets[:, _POSITION], positions[-1], side="right"))
        mine = self.offsets[first:end]
        if len(mine) == 0:
            return
        before = np.concatenate(([self.last_offset], lasts[:-1]))
        at = np.minimum(np.searchsorted(positions, mine[:, _POSITION]), len(positions) - 1)
        exact = positions[at] == mine[:, _POSITION]
        wrong = ~exact | (before[at] >= mine[:, _OFFSET])
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

    def _feed_times(self, lasts: Int64s, timestamps: Int64s) -> None:
        first = self._next_time
        if first < len(self.times):
            end = int(np.searchsorted(self.times[:, _OFFSET_OF_TIMESTAMP], lasts[-1], side="right"))
            mine = self.times[first:end]
            if len(mine):
                before = self._largest_before(
                    timestamps, np.searchsorted(lasts, mine[:, _OFFSET_OF_TIMESTAMP])
                )
                self._judge_times(first, mine, before)
            self._next_time = end
        if len(timestamps) > 1:
            self._largest_before_last = max(self.largest, int(timestamps[:-1].max()))
        else:
            self._largest_before_last = self.largest

    def _largest_before(self, timestamps: Int64s, at: Int64s) -> Int64s:
        """Return the largest timestamp before each of these batches."""
        so_far = np.empty(len(timestamps), np.int64)
        so_far[0] = self.largest
        np.maximum.accumulate(timestamps[:-1], out=so_far[1:])
        before: Int64s = np.maximum(so_far[at], self.largest)
        return before

    def _judge_times(self, first: int, mine: Int64s, before: Int64s) -> None:
        wrong = mine[:, _TIMESTAMP] <= before
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
        """Return all problems, after the batches up to ``log_end`` were fed.

        Args:
            log_end: position after the last batch.
            interval_bytes: value of the setting ``index.interval.bytes``.
            files: contents of the two index files by suffix.
            active: True for the active segment, whose indexes a broker completes only when it rolls.
            closed: True if a clean stop closed the active segment. Then no entry may lie past its log, since the next
                start uses the last entry without reading the log before it (LogSegment.readNextOffset).
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
            # A fetch from beyond the end of the file finds nothing, which is right for offsets that the log lacks.
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
        if file.unread or file.size > LARGEST_FILE_BYTES:
            return
        if len(self.offsets) == 0:
            most = max(CLEANER_CHUNK_BYTES, interval_bytes) + self.largest_batch
            if log_end > most:
                text = f"no entry beside a log of {log_end} bytes; at most {most} may have none"
                self.problems.append(IndexProblem(INDEX, "KR206", -1, text))
            return
        gaps = np.diff(np.concatenate(([0], self.offsets[:, _POSITION], [log_end])))
        widest = int(np.argmax(gaps))
        most = max(SPARSE_BYTES, 2 * (interval_bytes + self.largest_batch))
        if int(gaps[widest]) > most:
            text = f"{int(gaps[widest])} bytes of log without an entry; at most {most} may have none"
            self.problems.append(IndexProblem(INDEX, "KR203", min(widest, len(self.offsets) - 1) * 8, text))

    def _closing_entry(self, files: Mapping[str, IndexFile]) -> None:
        file = files[TIME_INDEX]
        if file.unread or file.size > LARGEST_FILE_BYTES:
            return
        if len(self.times) == 0:
            if self.largest >= 0:  # if there are no timestamps (v0), an empty time index is right
                state = "is missing" if file.size < 0 else "has no entry"
                text = f"{state}; the log's largest timestamp is {self.largest}"
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
    """Check of one segment's offset index and time index, by their own bytes and by the log.

    Args:
        base_offset: base offset of the segment.
        files: contents of the two index files by suffix.
        active: True for the active segment of the partition.

    Attributes:
        problems: all problems that were found so far.
        broken: suffixes of files that contradict themselves; their entries are not compared with the log.
        audit: comparison that must be fed all batches of the log.
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
            interval_bytes: value of the setting ``index.interval.bytes``.
            whole: True if the log ends there; entries after damage are not judged.
            clean: True after a clean shutdown, which closes the active segment too.
        """
        log_problems = self.audit.finish(
            log_end, interval_bytes, self.files, active=self.active or not whole, closed=clean and whole
        )
        self.problems += [problem for problem in log_problems if problem.suffix not in self.broken]


@dataclass
class _GrowingAudit(IndexAudit):
    """``IndexAudit`` for indexes that are still being written while their log is fed.

    A time entry may be written after the batch that it names was fed, since it names the first batch with the largest
    timestamp so far. Such a late entry is right only if it equals the maximum that this audit computed itself.
    """

    def _feed_times(self, lasts: Int64s, timestamps: Int64s) -> None:
        self.judge_late_times()
        super()._feed_times(lasts, timestamps)

    def judge_late_times(self) -> None:
        """Judge the entries of batches that were fed before the entries were written."""
        if self._next_time >= len(self.times):
            return
        end = int(np.searchsorted(self.times[:, _OFFSET_OF_TIMESTAMP], self.last_offset, side="right"))
        mine = self.times[self._next_time : end]
        wrong = (mine[:, _TIMESTAMP] != self.largest) | (
            mine[:, _OFFSET_OF_TIMESTAMP] != self.offset_of_largest
        )
        if np.count_nonzero(wrong):
            text = f"the largest timestamp so far is {self.largest}, of offset {self.offset_of_largest}"
            self._note_time(self._next_time + int(np.argmax(wrong)), text, misleads=True)
        self._next_time = max(self._next_time, end)

    def is_what_was_judged(self, offsets: Int64s, times: Int64s) -> bool:
        """Return True if the entries of the finished files begin with the entries that were judged."""
        pairs = ((offsets, self.offsets, self._next_offset), (times, self.times, self._next_time))
        return all(new[:count].tobytes() == judged[:count].tobytes() for new, judged, count in pairs)


class RebuiltIndexes:
    """Check of new indexes while they are written: pass entries to ``take_entries``, then their batches to ``feed``.

    Args:
        base_offset: base offset of the segment.
    """

    def __init__(self, base_offset: int) -> None:
        none = np.empty((0, 2), np.int64)
        self._audit = _GrowingAudit(base_offset, none, none)

    def take_entries(self, offsets: Int64s, times: Int64s) -> None:
        """Take all entries that were written so far.

        Args:
            offsets: int64[N, 2] (last offset, position), beginning with the entries of earlier calls.
            times: int64[M, 2] (timestamp, offset), beginning with the entries of earlier calls.
        """
        self._audit.offsets, self._audit.times = offsets, times

    def feed(self, walked: Walked) -> None:
        """Compare the entries with the next batches; entries of later batches may already be known."""
        self._audit.feed(walked.positions, walked.lasts, walked.timestamps)

    def problems(self, contents: Mapping[str, bytes], log_end: int, interval_bytes: int) -> dict[str, str]:
        """Return the first problem of each finished file by suffix, once every batch was fed.

        Args:
            contents: bytes of the ``.index`` and the ``.timeindex`` by suffix.
            log_end: position after the last batch.
            interval_bytes: value of the setting ``index.interval.bytes``.
        """
        audit = self._audit
        files = {suffix: IndexFile(len(data), data) for suffix, data in contents.items()}
        first_problems = {
            suffix: problems[0].text
            for suffix, file in files.items()
            if (problems := byte_problems(suffix, file, active=False))
        }
        offsets = offset_entries(files[INDEX], audit.base_offset)
        times = time_entries(files[TIME_INDEX], audit.base_offset)
        if not audit.is_what_was_judged(offsets, times):
            text = "its bytes are not the entries that were compared with the log"
            return dict.fromkeys(contents, text) | first_problems
        audit.offsets, audit.times = offsets, times
        audit.judge_late_times()
        for problem in audit.finish(log_end, interval_bytes, files, active=False):
            first_problems.setdefault(problem.suffix, problem.text)
        return first_problems


Problem = tuple[str, int, str]


class AbortedAudit:
    """Check of a ``.txnindex``: feed all windows of the log in order, then call ``finish``.

    Args:
        aborted: int64[N, 2] (producer id, offset of the abort marker), entries of the file.
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
        end = int(np.searchsorted(self.aborted[:, _MARKER], base[-1], side="right"))
        mine = self.aborted[self._next : end]
        at = np.minimum(np.searchsorted(base, mine[:, _MARKER]), len(base) - 1)
        control = (walked.headers["attributes"][at] & batch_v2.CONTROL) != 0
        wrong = (
            (base[at] != mine[:, _MARKER])
            | ~control
            | (walked.headers["producer_id"][at] != mine[:, _PRODUCER])
        )
        if wrong.any():
            self._note(self._next + int(np.argmax(wrong)), "names no marker of that producer")
        self._next = max(end, self._next)

    def _note(self, entry: int, text: str) -> None:
        self._problems.append((TXN_INDEX, entry * txn_index.ENTRY_SIZE, f"the entry {text}"))

    def finish(self, *, whole: bool = True) -> list[Problem]:
        """Return all problems as (suffix, byte of the file, text), after the whole log was fed.

        Args:
            whole: True if the log ends there; entries after damage are not judged.
        """
        if whole and self._next < len(self.aborted):
            self._note(self._next, "lies past the end of the log")
        return self._problems


class CompanionAudit:
    """Check of all three indexes of a segment: feed all windows of the log in order, then call ``finish``.

    Args:
        base_offset: base offset of the segment.
        files: contents of the ``.index`` and the ``.timeindex`` by suffix.
        aborted: int64[N, 2] (producer id, offset of the abort marker), entries of the ``.txnindex``.
        active: True for the active segment of the partition.
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
        self._indexes.audit.feed(walked.positions, walked.lasts, walked.timestamps)
        self._aborted.feed(walked)

    def finish(
        self, log_end: int, interval_bytes: int, *, whole: bool = True, clean: bool = False
    ) -> list[Problem]:
        """Return all problems as (suffix, byte of the file, text), after the whole log was fed.

        Args:
            log_end: position after the last batch that was fed.
            interval_bytes: value of the setting ``index.interval.bytes``.
            whole: True if the log ends there; entries after damage are not judged.
            clean: True after a clean shutdown, which closes the active segment too.
        """
        self._indexes.finish(log_end, interval_bytes, whole=whole, clean=clean)
        indexes = [(problem.suffix, problem.position, problem.text) for problem in self._indexes.problems]
        return indexes + self._aborted.finish(whole=whole)
