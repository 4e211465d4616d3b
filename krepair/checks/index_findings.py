"""Whether the indexes of a segment are true, and what is wrong with them: KR201 to KR207.

Truth, not equality with a rebuild. A live broker's time index names the record's own offset where recovery names the
batch's last; its offset index has one entry per append of many batches, and a cleaner's has one per I/O chunk. So an
entry is held against what a reader does with it:

* an offset entry (offset, position) is true when a batch starts at the position, all batches before it end below the
  offset, and the offset is not past the batches that the next entry leaves behind it;
* a time entry (timestamp, offset) is true when the batch that holds the offset, or is the first behind it, reaches the
  timestamp, and no batch before it passes it; the last entry has the largest timestamp of the log.

Source: OffsetIndex, TimeIndex, AbstractIndex (2.2.1, 3.9), LogSegment.read, findOffsetByTimestamp and recover.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from krepair.formats import fixed_entries, offset_index, time_index
from krepair.formats.damage import Damage

INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
ENTRY_SIZES: Final = {INDEX: offset_index.ENTRY_SIZE, TIME_INDEX: time_index.ENTRY_SIZE}

LARGEST_INDEX_BYTES: Final = 2**31 - 1
"""What a broker can map."""

CLEANER_CHUNK_BYTES: Final = 262_144
"""One of the two I/O buffers of one cleaner thread (``log.cleaner.io.buffer.size`` 524288, LogCleaner 2.2.1)."""

SPARSE_BYTES: Final = 2 << 20
"""More than a follower's append (``replica.fetch.max.bytes`` 1 MiB) or a cleaner's chunk leaves without an entry."""

Int64s = np.ndarray[Any, np.dtype[np.int64]]


class IndexFile(NamedTuple):
    """One index file as it was read: its entries without the zeros behind them.

    Attributes:
        size: bytes of the file, -1 if it is not there.
        data: its bytes up to the last entry that is not of zeros; empty if it was too long to be read.
        padded: entries of zeros behind them.
        torn: bytes behind the last whole entry.
        unread: whether there are more bytes than the log could need, so that they were not read.
    """

    size: int
    data: bytes = b""
    padded: int = 0
    torn: int = 0
    unread: bool = False


MISSING: Final = IndexFile(-1)


class IndexProblem(NamedTuple):
    """One thing that is wrong with an index file.

    Attributes:
        suffix: ``.index``, ``.timeindex`` or ``.txnindex``.
        rule: ``KRnnn``.
        position: byte in the file, -1 if it is about the whole file.
        text: evidence.
        tail: whether cutting the file to its entries mends it.
    """

    suffix: str
    rule: str
    position: int
    text: str
    tail: bool = False


def offset_entries(file: IndexFile, base_offset: int) -> Int64s:
    """int64[N, 2]: absolute offset and position of each real entry."""
    view = offset_index.view(file.data)
    return _columns(view["relative_offset"].astype(np.int64) + base_offset, view["position"])


def time_entries(file: IndexFile, base_offset: int) -> Int64s:
    """int64[N, 2]: timestamp and absolute offset of each real entry."""
    view = time_index.view(file.data)
    return _columns(view["timestamp"], view["relative_offset"].astype(np.int64) + base_offset)


def _columns(first: Any, second: Any) -> Int64s:
    return np.column_stack([first, second]).astype(np.int64)


def entries_of(file: IndexFile, suffix: str) -> int:
    """How many real entries a file has."""
    return len(file.data) // ENTRY_SIZES[suffix]


def last_timestamp_read(file: IndexFile) -> int:
    """The timestamp that a broker reads as the segment's largest: of the last whole entry, -1 if there is none.

    Source: TimeIndex.lastEntryFromIndexFile (2.2.1, 3.9).
    """
    if file.padded:
        return 0
    count = entries_of(file, TIME_INDEX)
    return int(time_index.view(file.data)["timestamp"][count - 1]) if count else -1


def byte_problems(suffix: str, file: IndexFile, *, active: bool) -> list[IndexProblem]:
    """What a file's own bytes say.

    Args:
        suffix: which index.
        file: it.
        active: whether the segment is the last of its partition: there zeros behind the entries are normal.
    """
    if file.size < 0:
        return []
    if file.size > LARGEST_INDEX_BYTES:
        text = f"{file.size} bytes; a broker maps at most {LARGEST_INDEX_BYTES}"
        return [IndexProblem(suffix, "KR207", -1, text)]
    if file.unread:
        return [IndexProblem(suffix, _rule(suffix), -1, f"{file.size} bytes, more than its log could need")]
    problems = []
    if file.torn:
        size = ENTRY_SIZES[suffix]
        text = f"{file.size} bytes, which is no multiple of {size}"
        problems.append(IndexProblem(suffix, "KR205", file.size - file.torn, text, tail=True))
    if file.padded and not active:
        problems.append(_padding(suffix, file))
    found: list[Damage] = (offset_index if suffix == INDEX else time_index).damage(file.data)
    problems += [
        IndexProblem(
            suffix, _rule(suffix), each.position, f"{each.expected} was expected, found {each.found}"
        )
        for each in found
    ]
    return problems


def _rule(suffix: str) -> str:
    return "KR203" if suffix == INDEX else "KR202"


def _padding(suffix: str, file: IndexFile) -> IndexProblem:
    real = entries_of(file, suffix)
    text = f"{real} entries, then {file.padded} of zeros"
    if suffix == TIME_INDEX:
        text += "; a broker reads 0 (1970) as the segment's largest timestamp"
    rule = "KR201" if suffix == TIME_INDEX else "KR203"
    return IndexProblem(suffix, rule, real * ENTRY_SIZES[suffix], text, tail=True)


@dataclass
class IndexAudit:
    """Holds entries against the batches of a log: feed it all batches from position 0 on, then ask for ``finish``.

    Attributes:
        base_offset: of the segment.
        offsets: int64[N, 2], ascending, see ``offset_entries``.
        times: int64[M, 2], ascending, see ``time_entries``.
        last_offset: last offset of the last batch fed, ``base_offset - 1`` before the first.
        largest: largest timestamp fed, -1 if none.
        offset_of_largest: last offset of the first batch that has it.
        largest_batch: bytes, of the batches whose end is known.
        disordered: whether the log's own offsets do not ascend; its indexes are not judged then.
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

    def __post_init__(self) -> None:
        """Nothing was fed."""
        self.last_offset = self.base_offset - 1

    def feed(self, batches: Int64s) -> None:
        """Take the next batches: int64[N, 3] (position, last offset, largest timestamp)."""
        if len(batches) == 0:
            return
        positions, lasts, stamps = batches.T
        before = np.concatenate(([self.last_offset], lasts[:-1]))
        if (lasts < before).any() or (len(lasts) > 1 and (np.diff(lasts) <= 0).any()):
            self.disordered = True
        if not self.disordered:
            self._feed_offsets(positions, before)
            self._feed_times(lasts, stamps)
        starts = positions if self._last_position < 0 else np.concatenate(([self._last_position], positions))
        if len(starts) > 1:
            self.largest_batch = max(self.largest_batch, int(np.diff(starts).max()))
        self._last_position = int(positions[-1])
        self.last_offset = int(lasts[-1])
        top = int(np.argmax(stamps))
        if int(stamps[top]) > self.largest:
            self.largest, self.offset_of_largest = int(stamps[top]), int(lasts[top])

    def _feed_offsets(self, positions: Int64s, before: Int64s) -> None:
        end = int(np.searchsorted(self.offsets[:, 1], positions[-1], side="right"))
        first = self._next_offset
        mine = self.offsets[first:end]
        if len(mine) == 0:
            return
        at = np.minimum(np.searchsorted(positions, mine[:, 1]), len(positions) - 1)
        exact = positions[at] == mine[:, 1]
        wrong = ~exact | (before[at] >= mine[:, 0])
        if wrong.any():
            entry = int(np.argmax(wrong))
            nearest = int(positions[at[entry]])
            self._note_offset(
                first + entry,
                f"the batch nearest to it starts at {nearest} behind offset {int(before[at[entry]])}",
            )
        previous = np.concatenate((self.offsets[first - 1 : first, 0] if first else before[:1], mine[:-1, 0]))
        late = exact & (previous > before[at])
        if late.any():
            entry = int(np.argmax(late))
            if first + entry:
                self._note_offset(
                    first + entry - 1, f"offset {int(before[at[entry]])} ends the batches it is for"
                )
        self._next_offset = end

    def _note_offset(self, entry: int, text: str) -> None:
        offset, position = self.offsets[entry].tolist()
        self.problems.append(
            IndexProblem(INDEX, "KR203", entry * 8, f"entry (offset {offset}, position {position}): {text}")
        )

    def _feed_times(self, lasts: Int64s, stamps: Int64s) -> None:
        end = int(np.searchsorted(self.times[:, 1], lasts[-1], side="right"))
        first = self._next_time
        mine = self.times[first:end]
        if len(mine) == 0:
            return
        at = np.searchsorted(lasts, mine[:, 1])
        before = np.maximum.accumulate(np.concatenate(([self.largest], stamps[:-1])))
        wrong = (mine[:, 0] > stamps[at]) | (mine[:, 0] < before[at])
        if wrong.any():
            entry = int(np.argmax(wrong))
            text = f"the log has {max(int(before[at[entry]]), int(stamps[at[entry]]))} up to there"
            self._note_time(first + entry, text)
        self._next_time = end

    def _note_time(self, entry: int, text: str) -> None:
        timestamp, offset = self.times[entry].tolist()
        self.problems.append(
            IndexProblem(
                TIME_INDEX, "KR202", entry * 12, f"entry (timestamp {timestamp}, offset {offset}): {text}"
            )
        )

    def finish(
        self,
        log_end: int,
        interval_bytes: int,
        files: dict[str, IndexFile],
        *,
        active: bool,
        closed: bool = False,
        from_start: bool = True,
    ) -> list[IndexProblem]:
        """All problems, once the batches up to ``log_end`` were fed.

        Args:
            log_end: position behind the last batch.
            interval_bytes: ``index.interval.bytes``.
            files: the two files by suffix.
            active: whether the segment is the last of its partition; a broker completes its indexes when it rolls.
            closed: whether an active segment was closed by a clean stop: then no entry lies past its log, and the
                next start believes the last one without reading the log (LogSegment.readNextOffset).
            from_start: whether the batches were fed from position 0; if not, what is missing is not judged by them.
        """
        if self.disordered:
            return []
        if self._last_position >= 0:
            self.largest_batch = max(self.largest_batch, log_end - self._last_position)
        if not active or closed:
            self._past_the_end()
        if not active:
            self._missing_entries(log_end, interval_bytes, files, from_start=from_start)
            self._closing_entry(files)
        return self.problems

    def _past_the_end(self) -> None:
        if self._next_offset < len(self.offsets):
            self._note_offset(self._next_offset, "it lies past the last batch")
        elif len(self.offsets) and int(self.offsets[-1, 0]) > self.last_offset:
            self._note_offset(len(self.offsets) - 1, f"the log ends with offset {self.last_offset}")
        if self._next_time < len(self.times):
            self._note_time(self._next_time, f"the log ends with offset {self.last_offset}")

    def _missing_entries(
        self, log_end: int, interval_bytes: int, files: dict[str, IndexFile], *, from_start: bool
    ) -> None:
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
        known = self.offsets[:, 1] if from_start else self.offsets[-1:, 1]
        gaps = np.diff(np.concatenate(([0] if from_start else [], known, [log_end])))
        widest = int(np.argmax(gaps))
        most = max(SPARSE_BYTES, 2 * (interval_bytes + self.largest_batch))
        if int(gaps[widest]) > most:
            text = f"{int(gaps[widest])} bytes of log without an entry; at most {most} may have none"
            self.problems.append(IndexProblem(INDEX, "KR203", min(widest, len(self.offsets) - 1) * 8, text))

    def _closing_entry(self, files: dict[str, IndexFile]) -> None:
        file = files[TIME_INDEX]
        if self.largest < 0 or file.unread or file.size > LARGEST_INDEX_BYTES:
            return  # without timestamps (v0) an empty time index is right
        if len(self.times) == 0:
            what = "is missing" if file.size < 0 else "has no entry"
            text = f"{what}; the log's largest timestamp is {self.largest}"
            self.problems.append(IndexProblem(TIME_INDEX, "KR201", -1, text))
        elif int(self.times[-1, 0]) < self.largest:
            text = (
                f"the last entry has timestamp {int(self.times[-1, 0])}, the log's largest is {self.largest}"
            )
            self.problems.append(IndexProblem(TIME_INDEX, "KR202", len(file.data) - 12, text))


def real_bytes(raw: bytes, suffix: str) -> int:
    """Bytes of the entries that end with the last one that is not of zeros."""
    size = ENTRY_SIZES[suffix]
    whole = raw[: len(raw) // size * size]
    layout = offset_index if suffix == INDEX else time_index
    return fixed_entries.padding_start(layout.view(whole)) * size
