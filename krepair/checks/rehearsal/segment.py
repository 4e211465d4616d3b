"""One segment during a simulated start: its sanity check, its recovery, and the reads of a start.

Source: LogSegment (2.2.1, 2.8, 3.9, 4.3).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from krepair.checks.rehearsal.behaviour import Broker, Brokers
from krepair.checks.rehearsal.failures import (
    CorruptIndexError,
    CorruptRecordError,
    OffsetOverflowError,
    StartFailsError,
)
from krepair.checks.rehearsal.index_state import OffsetIndexState, TimeIndexState, TransactionIndexState
from krepair.checks.rehearsal.log_file import LogBatch, RehearsedLog
from krepair.checks.rehearsal.producers import RehearsedProducers
from krepair.formats.filenames import offset_name

_COPY_BYTES = 1 << 20


def _checks_indexes(broker: Broker) -> bool:
    return broker.behaviour.checks_indexes


def _searches_by_first_offset(broker: Broker) -> bool:
    return broker.behaviour.searches_by_first_offset


@dataclass
class SegmentState:
    """One segment.

    Attributes:
        base_offset: offset in the file names.
        log: its log.
        offsets: its offset index.
        times: its time index.
        aborted: its transaction index.
        has_index: whether there was an offset index.
        has_time_index: whether there was a time index.
        interval_bytes: ``index.interval.bytes``.
        brokers: who may start.
        largest: largest timestamp that a recovery has read so far, -1 before.
    """

    base_offset: int
    log: RehearsedLog
    offsets: OffsetIndexState
    times: TimeIndexState
    aborted: TransactionIndexState
    has_index: bool
    has_time_index: bool
    interval_bytes: int
    brokers: Brokers
    largest: int = -1

    def open(self) -> None:
        """Open it as a loader does and check it. A missing index is made.

        Raises:
            CorruptIndexError: it has to be recovered.
            StartFailsError: its transaction index is of an unknown version.
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
        """The same segment after the loader has closed it, with indexes truncated to their entries."""
        self.offsets.trim()
        self.times.trim()
        self.has_index = self.has_time_index = True
        return self

    def empty_at(self, base_offset: int) -> SegmentState:
        """A new segment with the same settings."""
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

    def recover(self, producers: RehearsedProducers) -> int:
        """Rebuild its indexes from the log, and truncate the log where it is not valid; returns the bytes cut.

        Raises:
            InvalidOffsetError: an index entry would have a lower offset than the one before.
            OffsetOverflowError: an offset does not fit the base offset.
            StartFailsError: something else ends the recovery.
        """
        self.offsets.reset()
        self.times.reset()
        self.aborted.reset()
        valid, last_entry = 0, 0
        self.largest, of_largest = -1, self.base_offset
        try:
            for batch in self.log.batches():
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

    def _take(self, batch: LogBatch, producers: RehearsedProducers) -> None:
        if batch.has_producer_id:
            done = producers.take(batch, self.log.name)
            if done is not None:
                if done.aborted:
                    self.aborted.append(done.last_offset)
                producers.complete(done, self.log.name)
        producers.end_offset = batch.last_offset + 1

    def empty(self) -> int:
        """Truncate it at its base offset, as a broker does after an ``InvalidOffsetError``; returns the bytes cut.

        The cut is at the first batch that reaches the base offset. Batches below it stay.

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
        """The batches from a position on. A broken batch ends the start."""
        try:
            yield from self.log.batches(start, end)
        except CorruptRecordError as error:
            raise StartFailsError(error.file, error.text) from error

    def position_of(self, offset: int, start: int = 0) -> int:
        """Position of the first batch that reaches an offset, -1 if there is none.

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
        """The position that both ways of looking find. Where they do not find the same, the brokers part."""
        try:
            by_first = self._position_by_first_offset(offset, start)
            by_last = self._position_by_last_offset(offset, start)
        except StartFailsError:
            self.brokers.part(_searches_by_first_offset)
        if by_first != by_last:
            self.brokers.part(_searches_by_first_offset)
        return by_last

    def _position_by_last_offset(self, offset: int, start: int) -> int:
        return next((one.position for one in self._read(start) if one.last_offset >= offset), -1)

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
        """The offset after its last batch, read from the last entry of its index on.

        Raises:
            StartFailsError: the read finds bytes that are not a batch.
        """
        start = self.position_of(self.offsets.last_offset)
        last = deque(self._read(start) if start >= 0 else (), maxlen=1)
        return last[0].last_offset + 1 if last else self.base_offset

    def load_producers(
        self,
        producers: RehearsedProducers,
        start_offset: int,
        end_offset: int,
        *,
        ends_here: bool,
        onwards: bool,
    ) -> None:
        """Add the producers of the batches between two offsets. Checksums are not checked.

        Args:
            producers: the state to which they are added.
            start_offset: offset of the first batch.
            end_offset: the offset at which to stop.
            ends_here: whether ``end_offset`` is looked up in this segment; if not, the whole segment is read.
            onwards: whether ``end_offset`` is looked up from the first batch on.

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
        """Split a segment whose offsets do not fit its base offset, into parts with base offsets of their own.

        Raises:
            StartFailsError: its last offset fits, so it must not be split; or a part cannot be made.
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
    """One part of a segment that is split. It is filled by up to 1 MiB at a time, as the cleaner fills a segment."""

    def __init__(self, source: SegmentState, base_offset: int, start: int) -> None:
        self._source = source
        self._start = start
        self.segment = source.empty_at(base_offset)
        self._largest = (-1, base_offset)
        self._since_entry = 0

    def fill(self) -> int:
        """Add the batches that fit; returns the position behind them.

        Raises:
            StartFailsError: nothing fits.
            InvalidOffsetError: an index entry would have a lower offset than the one before.
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
        newest = max(batches, key=lambda one: one.max_timestamp)
        if newest.max_timestamp > self._largest[0]:
            self._largest = (newest.max_timestamp, newest.last_offset)
        if self._since_entry > segment.interval_bytes:
            segment.offsets.append(last_offset, position - self._start)
            segment.times.maybe_append(*self._largest)
            self._since_entry = 0
        self._since_entry += taken
