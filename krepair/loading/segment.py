"""One segment and its indexes during a simulated start: sanity checks, recovery, and the reads of a start.

Source: LogSegment, AbstractIndex, OffsetIndex, TimeIndex, TransactionIndex (2.2.1, 2.8, 3.9, 4.3, 4.4).
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, overload

from krepair.formats import offset_index, time_index, txn_index
from krepair.formats.filenames import offset_name
from krepair.formats.java_numbers import INT32_MAX
from krepair.formats.words import count_text
from krepair.loading.behaviour import (
    Broker,
    Brokers,
    CorruptIndexError,
    CorruptRecordError,
    InvalidOffsetError,
    OffsetOverflowError,
    StartFailsError,
)
from krepair.loading.log_file import LogBatch, ReadAt, SimulatedLog
from krepair.loading.producers import SimulatedProducers

_WARM_BYTES: Final = 8192
"""Size of an index's end that brokers search first (``AbstractIndex.warmEntries``)."""
_TXN_FRONT: Final = struct.Struct(">h16xq")
"""Fields of an entry that a start reads: the version and the last offset."""


def _reads_whole_txn_version(broker: Broker) -> bool:
    return broker.behaviour.reads_whole_txn_version


class FileEntries(Sequence[tuple[int, int]]):
    """Entries of an index file, each read only when needed, because a preallocated file has a million.

    Attributes:
        layout: binary layout of one entry.
        base_offset: base offset of the segment, which is added to relative offsets.
        offset_column: index of the number that is the relative offset, 0 or 1.
    """

    def __init__(
        self, read_at: ReadAt, size: int, layout: struct.Struct, base_offset: int, offset_column: int
    ) -> None:
        self._read_at = read_at
        self._count = size // layout.size
        self.layout = layout
        self.base_offset = base_offset
        self.offset_column = offset_column

    def __len__(self) -> int:
        """Return the number of whole entries, including all-zero ones."""
        return self._count

    @overload
    def __getitem__(self, number: int) -> tuple[int, int]: ...

    @overload
    def __getitem__(self, number: slice) -> list[tuple[int, int]]: ...

    def __getitem__(self, number: int | slice) -> tuple[int, int] | list[tuple[int, int]]:
        """Return one entry, or a list of entries for a slice."""
        if isinstance(number, slice):
            return [self[entry] for entry in range(*number.indices(self._count))]
        place = number % self._count * self.layout.size
        pair = list(self.layout.unpack(self._read_at(place, self.layout.size)))
        pair[self.offset_column] += self.base_offset
        return pair[0], pair[1]


class IndexState:
    """Common part of both mapped indexes: entries, a file size that may not match them, and a limit.

    Attributes:
        name: name of the file.
        base_offset: base offset of the segment.
        entries: pairs (offset, position) or (timestamp, offset) with absolute offsets.
        size: bytes of the file as it was found; a whole number of entries once the file was resized.
        most_bytes: largest size of an index in bytes (``segment.index.bytes``).
    """

    entry_size = 0
    reserved_entries = 0

    def __init__(
        self, name: str, base_offset: int, entries: Sequence[tuple[int, int]], size: int, most_bytes: int
    ) -> None:
        self.name = name
        self.base_offset = base_offset
        self.entries = entries
        self.size = size
        self.most_bytes = most_bytes

    @property
    def most_entries(self) -> int:
        """Most entries that fit into the index of an active segment."""
        return self.most_bytes // self.entry_size

    def reset(self) -> None:
        """Drop all entries before a recovery."""
        self.entries = []
        self.grow()

    def grow(self) -> None:
        """Resize the index to its limit, as for the active segment.

        Raises:
            StartFailsError: the index has more entries than fit (``Buffer.position`` past its limit).
        """
        if len(self.entries) > self.most_entries:
            text = (
                f"{count_text(len(self.entries), 'entry', 'entries')}, segment.index.bytes leaves room for "
                f"{self.most_entries}"
            )
            raise StartFailsError(self.name, text)
        self.size = self.most_entries * self.entry_size

    def _add(self, entry: tuple[int, int]) -> None:
        if not isinstance(self.entries, list):
            self.entries = list(self.entries)
        self.entries.append(entry)

    def trim(self) -> None:
        """Truncate the index to its entries."""
        self.size = len(self.entries) * self.entry_size

    def _refuse_full(self) -> None:
        if len(self.entries) >= self.most_entries - self.reserved_entries:
            raise StartFailsError(
                self.name, f"is full with {count_text(len(self.entries), 'entry', 'entries')}"
            )

    def _check_size(self) -> None:
        if self.size % self.entry_size:
            raise CorruptIndexError

    def _lower_bound(self, target: int, column: int) -> int:
        """Return the number of the last entry that is not above the target, -1 if there is none.

        The search copies a broker's, warm section included: if the index does not ascend, the result depends on where
        the search begins.
        """
        entries = self.entries
        if not entries:
            return -1
        first_warm = max(0, len(entries) - 1 - _WARM_BYTES // self.entry_size)
        if entries[first_warm][column] < target:
            return self._search(target, column, first_warm, len(entries) - 1)
        if entries[0][column] > target:
            return -1
        return self._search(target, column, 0, first_warm)

    def _search(self, target: int, column: int, low: int, high: int) -> int:
        while low < high:
            middle = (low + high + 1) // 2
            entry_value = self.entries[middle][column]
            if entry_value > target:
                high = middle - 1
            elif entry_value < target:
                low = middle
            else:
                return middle
        return low

    def _truncate_to(self, offset: int, column: int) -> None:
        slot = self._lower_bound(offset, column)
        keep = slot if slot >= 0 and self.entries[slot][column] == offset else slot + 1
        self.entries = self.entries[:keep]


class OffsetIndexState(IndexState):
    """Contents of an ``.index``: pairs (offset, position)."""

    entry_size = offset_index.ENTRY_SIZE

    @property
    def last_offset(self) -> int:
        """Offset of the last entry; the base offset if the index is empty."""
        return self.entries[-1][0] if self.entries else self.base_offset

    def fits(self, offset: int) -> bool:
        """Return True if an offset can be stored relative to the base offset."""
        return 0 <= offset - self.base_offset <= INT32_MAX

    def sanity_check(self) -> None:
        """Raise ``CorruptIndexError`` as brokers up to 2.2 do."""
        if self.entries and self.last_offset < self.base_offset:
            raise CorruptIndexError
        self._check_size()

    def position_of(self, offset: int) -> int:
        """Return the position in the log at which a search for an offset begins."""
        slot = self._lower_bound(offset, 0)
        return 0 if slot < 0 else self.entries[slot][1]

    def append(self, offset: int, position: int) -> None:
        """Add an entry.

        Raises:
            InvalidOffsetError: the entry's offset is not above the last entry's.
            StartFailsError: the index is full.
        """
        self._refuse_full()
        if self.entries and offset <= self.entries[-1][0]:
            raise InvalidOffsetError(
                self.name, f"an entry for offset {offset} would follow {self.last_offset}"
            )
        self._add((offset, position))

    def truncate_to(self, offset: int) -> None:
        """Drop the entries from an offset on."""
        self._truncate_to(offset, 0)

    def fill_with_zeros(self) -> None:
        """Fill the index with zero entries, as in a preallocated index that was never closed."""
        self.entries = [(self.base_offset, 0)] * self.most_entries
        self.size = self.most_entries * self.entry_size


class TimeIndexState(IndexState):
    """Contents of a ``.timeindex``: pairs (timestamp, offset)."""

    entry_size = time_index.ENTRY_SIZE
    reserved_entries = 1

    @property
    def last(self) -> tuple[int, int]:
        """Last entry; (-1, base offset) if the index is empty."""
        return self.entries[-1] if self.entries else (-1, self.base_offset)

    def sanity_check(self) -> None:
        """Raise ``CorruptIndexError`` as brokers up to 2.2 do."""
        if self.entries and (self.last[0] < self.entries[0][0] or self.last[1] < self.base_offset):
            raise CorruptIndexError
        self._check_size()

    def maybe_append(self, timestamp: int, offset: int, *, closing: bool = False) -> None:
        """Add an entry if its timestamp is larger than the last one's.

        Raises:
            InvalidOffsetError: the entry's offset is lower than the last entry's.
            StartFailsError: the index is full.
        """
        if not closing:
            self._refuse_full()
        if self.entries and offset < self.last[1]:
            raise InvalidOffsetError(self.name, f"an entry for offset {offset} would follow {self.last[1]}")
        if timestamp > self.last[0]:
            self._add((timestamp, offset))

    def truncate_to(self, offset: int) -> None:
        """Drop the entries from an offset on."""
        self._truncate_to(offset, 1)


class TransactionIndexState:
    """Contents of a ``.txnindex``, of which a start reads only versions and last offsets.

    Attributes:
        name: name of the file.
        base_offset: base offset of the segment.
        brokers: brokers that share the simulation.
    """

    def __init__(self, name: str, base_offset: int, data: bytes, brokers: Brokers) -> None:
        self.name = name
        self.base_offset = base_offset
        self.brokers = brokers
        whole = len(data) // txn_index.ENTRY_SIZE
        self._entries = [
            _TXN_FRONT.unpack_from(data, number * txn_index.ENTRY_SIZE) for number in range(whole)
        ]
        self._last_appended: int | None = None

    def sanity_check(self) -> None:
        """Check every entry, as all versions do even after a clean stop.

        Raises:
            CorruptIndexError: a last offset is below the base offset.
            StartFailsError: an entry's version is unknown: its first byte is above 0 (up to 4.3), or it is not 0.
        """
        for number, (version, last_offset) in enumerate(self._entries):
            self._refuse_version(number, version)
            if last_offset < self.base_offset:
                raise CorruptIndexError

    def _refuse_version(self, number: int, version: int) -> None:
        if version == txn_index.VERSION:
            return
        if version >> 8 > 0 or self.brokers.do(_reads_whole_txn_version):
            where = f"position {number * txn_index.ENTRY_SIZE}"
            raise StartFailsError(self.name, f"{where}: an entry of the unknown version {version}")

    def reset(self) -> None:
        """Drop all entries before a recovery."""
        self._entries = []
        self._last_appended = None

    def append(self, last_offset: int) -> None:
        """Add an entry for an abort.

        Raises:
            StartFailsError: the last offset is not above that of the previous entry.
        """
        if self._last_appended is not None and last_offset <= self._last_appended:
            text = f"an abort at offset {last_offset} would follow one at {self._last_appended}"
            raise StartFailsError(self.name, text)
        self._last_appended = last_offset
        self._entries.append((txn_index.VERSION, last_offset))

    def truncate_to(self, offset: int) -> None:
        """Drop the entries from an offset on.

        Raises:
            StartFailsError: an entry has an unknown version, see ``sanity_check``.
        """
        kept: int | None = None
        for number, (version, last_offset) in enumerate(self._entries):
            self._refuse_version(number, version)
            if last_offset >= offset:
                del self._entries[number:]
                self._last_appended = kept
                return
            kept = last_offset


_COPY_BYTES = 1 << 20


def _checks_indexes(broker: Broker) -> bool:
    return broker.behaviour.checks_indexes


def _searches_by_first_offset(broker: Broker) -> bool:
    return broker.behaviour.searches_by_first_offset


@dataclass
class SegmentState:
    """One segment with its indexes.

    Attributes:
        base_offset: offset in the file names.
        log: contents of the ``.log``.
        offsets: contents of the ``.index``.
        times: contents of the ``.timeindex``.
        aborted: contents of the ``.txnindex``.
        has_index: True if the ``.index`` exists.
        has_time_index: True if the ``.timeindex`` exists.
        interval_bytes: bytes of log between two index entries (``index.interval.bytes``).
        brokers: brokers that share the simulation.
        largest: largest timestamp that the recovery has read so far, -1 before.
        has_log: True if the ``.log`` exists; a swap may consist of an index alone.
        has_txn_index: True if the ``.txnindex`` exists.
        sound: (bytes, last offset, position of the last batch) of the batches at the beginning that are known to be
            valid, so the simulated recovery skips them.
    """

    base_offset: int
    log: SimulatedLog
    offsets: OffsetIndexState
    times: TimeIndexState
    aborted: TransactionIndexState
    has_index: bool
    has_time_index: bool
    interval_bytes: int
    brokers: Brokers
    largest: int = -1
    has_log: bool = True
    has_txn_index: bool = True
    sound: tuple[int, int, int] | None = None

    def open(self) -> None:
        """Open and check the segment as a loader does, which creates missing indexes.

        Raises:
            CorruptIndexError: the segment has to be recovered.
            StartFailsError: the transaction index has an unknown version.
        """
        if not self.has_index and not self.brokers.do(_checks_indexes):
            raise CorruptIndexError
        if not self.has_time_index:
            self.times.trim()
        if (
            self.brokers.may(_checks_indexes)
            and self._has_a_wrong_index()
            and self.brokers.do(_checks_indexes)
        ):
            raise CorruptIndexError
        self.aborted.sanity_check()

    def _has_a_wrong_index(self) -> bool:
        try:
            self.offsets.sanity_check()
            self.times.sanity_check()
        except CorruptIndexError:
            return True
        return False

    def closed(self) -> SegmentState:
        """Close the segment as the loader does, which truncates its indexes to their entries, and return it."""
        self.offsets.trim()
        self.times.trim()
        self.has_index = self.has_time_index = True
        return self

    def without_indexes(self) -> None:
        """Delete the indexes of the segment."""
        self.offsets.entries, self.offsets.size = (), 0
        self.times.entries, self.times.size = (), 0
        self.aborted.reset()
        self.has_index = self.has_time_index = self.has_txn_index = False

    def take_indexes(self, swap: SegmentState) -> None:
        """Replace the segment's indexes by the indexes of a swap."""
        if swap.has_index:
            self.offsets, self.has_index = swap.offsets, True
        if swap.has_time_index:
            self.times, self.has_time_index = swap.times, True
        if swap.has_txn_index:
            self.aborted, self.has_txn_index = swap.aborted, True

    def empty_at(self, base_offset: int) -> SegmentState:
        """Return a new, empty segment with the same settings."""
        stem, most = offset_name(base_offset), self.offsets.most_bytes
        return SegmentState(
            base_offset=base_offset,
            log=self.log.part(f"{stem}.log", 0, 0),
            offsets=OffsetIndexState(f"{stem}.index", base_offset, (), most, most),
            times=TimeIndexState(f"{stem}.timeindex", base_offset, (), most, most),
            aborted=TransactionIndexState(f"{stem}.txnindex", base_offset, b"", self.brokers),
            has_index=True,
            has_time_index=True,
            interval_bytes=self.interval_bytes,
            brokers=self.brokers,
        )

    # -- recovery

    def recover(self, producers: SimulatedProducers) -> int:
        """Rebuild the indexes from the log, truncate the log at its first invalid batch, and return the bytes cut.

        Raises:
            InvalidOffsetError: an index entry would have a lower offset than the previous one.
            OffsetOverflowError: an offset does not fit the base offset.
            StartFailsError: something else ends the recovery.
        """
        self.offsets.reset()
        self.times.reset()
        self.aborted.reset()
        valid, last_entry = 0, 0
        self.largest, of_largest = -1, self.base_offset
        if self.sound is not None:
            valid, last_offset, position = self.sound
            self.offsets.append(last_offset, position)
            producers.end_offset = last_offset + 1
        try:
            for batch in self.log.batches(valid):
                batch.ensure_valid()
                last_offset = batch.last_offset
                if not self.offsets.fits(last_offset):
                    raise OffsetOverflowError(self.base_offset)
                if batch.max_timestamp > self.largest:
                    self.largest, of_largest = batch.max_timestamp, last_offset
                if valid - last_entry > self.interval_bytes:
                    self.offsets.append(last_offset, valid)
                    self.times.maybe_append(self.largest, of_largest)
                    last_entry = valid
                valid += batch.size
                if not batch.is_old:
                    self._take(batch, producers)
        except CorruptRecordError:
            pass
        cut = self.log.size - valid
        self.log.size = valid
        self.offsets.trim()
        self.times.maybe_append(self.largest, of_largest, closing=True)
        self.times.trim()
        return cut

    def _take(self, batch: LogBatch, producers: SimulatedProducers) -> None:
        if batch.has_producer_id:
            done = producers.take(batch, self.log.name)
            if done is not None:
                if done.aborted:
                    self.aborted.append(done.last_offset)
                producers.complete(done, self.log.name)
        producers.end_offset = batch.last_offset + 1

    def empty(self) -> int:
        """Truncate the segment at its base offset, as a broker does after an ``InvalidOffsetError``.

        The cut is at the first batch that reaches the base offset; batches below it are kept. Return the bytes cut.

        Raises:
            StartFailsError: a read fails.
        """
        position = self.position_of(self.base_offset)
        self.offsets.truncate_to(self.base_offset)
        self.times.truncate_to(self.base_offset)
        self.aborted.truncate_to(self.base_offset)
        self.offsets.grow()
        self.times.grow()
        cut = 0
        if position >= 0:
            cut, self.log.size = self.log.size - position, position
        if self.largest >= 0:
            for _ in self._read(self.offsets.position_of(self.times.last[1])):
                pass
        return cut

    # -- reads

    def _read(self, start: int, end: int = -1) -> Iterator[LogBatch]:
        """Yield the batches from a position on; a broken batch ends the start."""
        try:
            yield from self.log.batches(start, end)
        except CorruptRecordError as error:
            raise StartFailsError(error.file, error.text) from error

    def position_of(self, offset: int, start: int = 0) -> int:
        """Return the position of the first batch that reaches an offset, -1 if there is none.

        Raises:
            StartFailsError: the read finds bytes that are not a batch.
        """
        start = max(self.offsets.position_of(offset), start)
        if not self.brokers.agree(_searches_by_first_offset):
            return self._position_both_ways(offset, start)
        if self.brokers.do(_searches_by_first_offset):
            return self._position_by_first_offset(offset, start)
        return self._position_by_last_offset(offset, start)

    def _position_both_ways(self, offset: int, start: int) -> int:
        """Return the position if both ways of searching agree on it; else separate the brokers."""
        try:
            by_first = self._position_by_first_offset(offset, start)
            by_last = self._position_by_last_offset(offset, start)
        except StartFailsError:
            self.brokers.part(_searches_by_first_offset)
        if by_first != by_last:
            self.brokers.part(_searches_by_first_offset)
        return by_last

    def _position_by_last_offset(self, offset: int, start: int) -> int:
        return next((batch.position for batch in self._read(start) if batch.last_offset >= offset), -1)

    def _position_by_first_offset(self, offset: int, start: int) -> int:
        before = None
        for batch in self._read(start):
            first = batch.base_offset
            if first >= offset:
                inside = first > offset and before is not None and before.last_offset >= offset
                return before.position if inside and before is not None else batch.position
            before = batch
        return before.position if before is not None and before.last_offset >= offset else -1

    def next_offset(self) -> int:
        """Return the offset after the last batch, reading from the last index entry on.

        Raises:
            StartFailsError: the read finds bytes that are not a batch.
        """
        start = self.position_of(self.offsets.last_offset)
        last = deque(self._read(start) if start >= 0 else (), maxlen=1)
        return last[0].last_offset + 1 if last else self.base_offset

    def load_producers(
        self,
        producers: SimulatedProducers,
        start_offset: int,
        end_offset: int,
        *,
        ends_here: bool,
        onwards: bool,
    ) -> None:
        """Add the producers of the batches between two offsets, without checking checksums.

        Args:
            producers: producer state to update.
            start_offset: offset of the first batch.
            end_offset: offset at which reading stops.
            ends_here: True if ``end_offset`` is looked up in this segment; else the whole segment is read.
            onwards: True if ``end_offset`` is looked up from the first batch on.

        Raises:
            StartFailsError: the read finds bytes that are not a batch, or a batch that contradicts those before it.
        """
        start = self.position_of(start_offset)
        if start < 0:
            return
        end = self.position_of(end_offset, start if onwards else 0) if ends_here else -1
        end = self.log.size if end < 0 else end
        if end < start:
            text = (
                f"its index leads to position {end} for offset {end_offset}, and to {start} for one before it"
            )
            raise StartFailsError(self.offsets.name, text)
        completed = []
        try:
            for batch in self._read(start, end):
                done = producers.take(batch, self.log.name) if batch.has_producer_id else None
                if done is not None:
                    completed.append(done)
        except CorruptRecordError as error:
            raise StartFailsError(error.file, error.text) from error
        for done in completed:
            producers.complete(done, self.log.name)

    # -- splitting

    def split(self) -> list[SegmentState]:
        """Split a segment whose offsets do not fit its base offset into parts with their own base offsets.

        Raises:
            StartFailsError: the last offset fits, so the segment must not be split; or a part cannot be created.
        """
        next_offset = self.next_offset()
        if next_offset <= self.base_offset or self.offsets.fits(next_offset - 1):
            text = "has an offset that does not fit its name, but not at its end: it cannot be split"
            raise StartFailsError(self.log.name, text)
        parts: list[SegmentState] = []
        position = 0
        while position < self.log.size:
            first = next(self._read(position), None)
            if first is None:
                raise StartFailsError(
                    self.log.name, f"position {position}: what is left is no batch to split off"
                )
            part = _Part(self, first.base_offset, position)
            position = part.fill()
            parts.append(part.segment)
        return parts


class _Part:
    """One part of a segment that is split, filled in chunks of up to 1 MiB as the cleaner fills a segment."""

    def __init__(self, source: SegmentState, base_offset: int, start: int) -> None:
        self._source = source
        self._start = start
        self.segment = source.empty_at(base_offset)
        self._largest = (-1, base_offset)
        self._since_entry = 0

    def fill(self) -> int:
        """Add the batches that fit, and return the position after them.

        Raises:
            StartFailsError: not a single batch fits.
            InvalidOffsetError: an index entry would have a lower offset than the previous one.
        """
        position = self._start
        while taken := self._chunk(position):
            position += taken
        if position == self._start:
            raise StartFailsError(self._source.log.name, f"position {position}: a batch fits no segment")
        segment = self.segment
        segment.log = self._source.log.part(segment.log.name, self._start, position)
        segment.times.maybe_append(*self._largest, closing=True)
        segment.closed()
        return position

    def _chunk(self, position: int) -> int:
        batches = []
        taken = 0
        for batch in self._source.log.batches(position):
            fits = self.segment.offsets.fits(batch.last_offset)
            if not fits or (taken and taken + batch.size >= _COPY_BYTES):
                break
            batches.append(batch)
            taken += batch.size
        if batches:
            self._append(batches, position, taken)
        return taken

    def _append(self, batches: list[LogBatch], position: int, taken: int) -> None:
        segment = self.segment
        last_offset = batches[-1].last_offset
        newest = max(batches, key=lambda batch: batch.max_timestamp)
        if newest.max_timestamp > self._largest[0]:
            self._largest = (newest.max_timestamp, newest.last_offset)
        if self._since_entry > segment.interval_bytes:
            segment.offsets.append(last_offset, position - self._start)
            segment.times.maybe_append(*self._largest)
            self._since_entry = 0
        self._since_entry += taken
