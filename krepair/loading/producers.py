"""Producer state at a start, from the newest readable snapshot and the log after it.

Only facts that can end a start are kept: epochs, the first offset of an open transaction, and the list of snapshots,
which decides how much of the log is read.

Source: ProducerStateManager, ProducerAppendInfo (2.2.1, 2.8, 3.9).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from krepair.formats.control import ControlType
from krepair.formats.producer_snapshot import ProducerEntry
from krepair.loading.behaviour import Brokers, StartFailsError
from krepair.loading.log_file import LogBatch

SnapshotContent = tuple[ProducerEntry, ...] | None
"""Entries of a snapshot; None for a file that cannot be read."""


class Producer(NamedTuple):
    """State of a producer, as far as it can end a start."""

    epoch: int = -1
    coordinator_epoch: int = -1
    last_offset: int = -1
    timestamp: int = -1
    open_from: int = -1


class CompletedTransaction(NamedTuple):
    """Transaction that a marker ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class SnapshotFolder:
    """Producer snapshots of a partition on the disk.

    Attributes:
        contents: contents of each snapshot by offset.
        made_from: offset of each snapshot written by the start -> offset of the original snapshot it derives from.
        unread: offsets of the snapshots that were deleted unread: past the log end, or of no segment.
        unreadable: offsets of the snapshots that were deleted because they cannot be read.
    """

    def __init__(self, contents: Mapping[int, SnapshotContent]) -> None:
        self.contents = dict(contents)
        self.made_from: dict[int, int] = {}
        self.unread: set[int] = set()
        self.unreadable: set[int] = set()

    def delete_between(self, first: int, end: int) -> None:
        """Delete the snapshots from offset ``first`` to just below ``end``."""
        self.contents = {
            offset: content for offset, content in self.contents.items() if not first <= offset < end
        }


class SimulatedProducers:
    """Counterpart of a ``ProducerStateManager``: a start creates one per recovered segment, and one for the log.

    Attributes:
        end_offset: offset up to which the producers are known.
        loaded_from: offset of the original snapshot on the disk from which the state derives; -1 if there is none.
    """

    def __init__(self, folder: SnapshotFolder, brokers: Brokers, now_ms: int) -> None:
        self._folder = folder
        self._brokers = brokers
        self._now_ms = now_ms
        self._producers: dict[int, Producer] = {}
        self._open: dict[int, int] = {}
        self._ended: set[int] = set()
        self._known = set(folder.contents)
        self._snapshot_offset = 0
        self.end_offset = 0
        self.loaded_from = -1

    # -- snapshots

    @property
    def _lists_each_time(self) -> bool:
        return self._brokers.do(lambda broker: broker.behaviour.lists_snapshots_each_time)

    @property
    def _snapshots(self) -> Collection[int]:
        return self._folder.contents if self._lists_each_time else self._known

    @property
    def has_snapshots(self) -> bool:
        """True if any snapshot is known."""
        return bool(self._snapshots)

    @property
    def count(self) -> int:
        """Number of known producers."""
        return len(self._producers)

    def _delete_snapshot(self, offset: int) -> None:
        self._known.discard(offset)
        self._folder.contents.pop(offset, None)

    def forget_segment(self, base_offset: int) -> None:
        """Delete the snapshot of a deleted segment (from 2.8 on)."""
        if not self._lists_each_time and base_offset in self._known:
            self._delete_snapshot(base_offset)

    def remove_strays(self, bases: Collection[int]) -> None:
        """Delete snapshots that belong to no segment, except the newest if it is past all segments."""
        if self._lists_each_time:
            return
        self._known = set(self._folder.contents)
        strays = sorted(self._known - set(bases))
        newest_stays = bool(strays) and strays[-1] >= max(bases, default=strays[-1])
        for offset in strays[:-1] if newest_stays else strays:
            self._delete_snapshot(offset)
            self._folder.unread.add(offset)

    def start_over(self, offset: int) -> None:
        """Drop all state, as a broker does if the log start offset is past the log end."""
        for snapshot in list(self._known):
            self._delete_snapshot(snapshot)
        self._producers, self._open, self._ended = {}, {}, set()
        self._snapshot_offset, self.end_offset = 0, offset

    def take_snapshot(self) -> None:
        """Write a snapshot at ``end_offset``, unless the last snapshot is already there."""
        if self.end_offset > self._snapshot_offset:
            self._folder.contents[self.end_offset] = tuple(
                ProducerEntry(
                    producer_id=producer_id,
                    producer_epoch=producer.epoch,
                    last_sequence=-1,
                    last_offset=producer.last_offset,
                    offset_delta=0,
                    timestamp=producer.timestamp,
                    coordinator_epoch=producer.coordinator_epoch,
                    current_txn_first_offset=producer.open_from,
                )
                for producer_id, producer in self._producers.items()
            )
            self._folder.made_from[self.end_offset] = self.loaded_from
            self._known.add(self.end_offset)
            self._snapshot_offset = self.end_offset

    def reload(self, log_start: int, log_end: int) -> None:
        """Load the newest readable snapshot, and delete snapshots outside of the log and unreadable ones."""
        for offset in list(self._snapshots):
            if offset > log_end or offset <= log_start:
                self._delete_snapshot(offset)
                self._folder.unread.add(offset)
        if log_end == self.end_offset:
            self._snapshot_offset = max(self._snapshots, default=log_start)
            self.end_offset = max(self.end_offset, log_start)
            return
        while self._snapshots:
            offset = max(self._snapshots)
            content = self._folder.contents.get(offset)
            if content is not None:
                self._load(content, log_start)
                self.loaded_from = self._folder.made_from.get(offset, offset)
                self._snapshot_offset = self.end_offset = offset
                return
            self._delete_snapshot(offset)
            self._folder.unreadable.add(offset)
        self._snapshot_offset = self.end_offset = log_start

    def _load(self, content: Iterable[ProducerEntry], log_start: int) -> None:
        for entry in content:
            open_from = max(entry.current_txn_first_offset, -1)
            if (open_from < 0 and self._is_expired(entry)) or self._is_gone(entry, log_start):
                continue
            self._producers[entry.producer_id] = Producer(
                entry.producer_epoch, entry.coordinator_epoch, entry.last_offset, entry.timestamp, open_from
            )
            if open_from >= 0:
                self._open[open_from] = entry.producer_id

    def _is_expired(self, entry: ProducerEntry) -> bool:
        age_ms = self._now_ms - entry.timestamp
        return self._brokers.do(lambda broker: age_ms >= broker.expiry_ms)

    def _is_gone(self, entry: ProducerEntry, log_start: int) -> bool:
        below = entry.last_offset < log_start
        return below and self._brokers.do(lambda broker: broker.behaviour.drops_producers_below_start)

    # -- batches

    @property
    def first_unstable_offset(self) -> int:
        """First offset of the earliest transaction that is open or was ended in this replay, -1 if there is none.

        Ended transactions are included, because at a start the broker treats no offset as replicated yet.
        """
        return min(self._open.keys() | self._ended, default=-1)

    def take(self, batch: LogBatch, file: str) -> CompletedTransaction | None:
        """Add one batch with a producer id, and return the transaction that it ends, or None.

        Raises:
            StartFailsError: the batch contradicts the state before it.
            CorruptRecordError: the batch is a marker that cannot be read.
        """
        header = batch.header
        known = self._producers.get(header.producer_id, Producer())
        if header.is_control:
            return self._take_marker(batch, known, file)
        last_offset = batch.last_offset
        open_from = known.open_from
        if open_from >= 0 and not header.is_transactional:
            text = f"position {batch.position}: a batch outside of the transaction that its producer has open"
            raise StartFailsError(file, text)
        if open_from < 0 and header.is_transactional:
            open_from = batch.offset
            self._open[open_from] = header.producer_id
        self._producers[header.producer_id] = Producer(
            header.producer_epoch, known.coordinator_epoch, last_offset, header.max_timestamp, open_from
        )
        return None

    def _take_marker(self, batch: LogBatch, known: Producer, file: str) -> CompletedTransaction | None:
        marker = batch.marker()
        if marker is None:
            return None
        key, value = marker
        header = batch.header
        older = header.producer_epoch < known.epoch or value.coordinator_epoch < known.coordinator_epoch
        if older and self._brokers.do(lambda broker: broker.behaviour.fences_producers):
            raise StartFailsError(
                file, f"position {batch.position}: a marker of an older epoch than the last one"
            )
        first = known.open_from
        if first < 0 and self._brokers.do(lambda broker: broker.behaviour.completes_empty_transactions):
            first = batch.offset
            self._open[first] = header.producer_id
        same_epoch = known.epoch == header.producer_epoch
        self._producers[header.producer_id] = Producer(
            header.producer_epoch,
            value.coordinator_epoch,
            known.last_offset if same_epoch else -1,
            header.max_timestamp,
        )
        if first < 0:
            return None
        return CompletedTransaction(
            header.producer_id, first, batch.offset, aborted=key.type_id == ControlType.ABORT
        )

    def complete(self, done: CompletedTransaction, file: str) -> None:
        """Close a completed transaction.

        Raises:
            StartFailsError: no open transaction begins at its first offset.
        """
        if self._open.pop(done.first_offset, None) is None:
            text = f"the transaction that ends at offset {done.last_offset} was never begun"
            raise StartFailsError(file, text)
        self._ended.add(done.first_offset)
