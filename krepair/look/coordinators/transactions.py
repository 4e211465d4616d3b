"""Reading of one partition of ``__transaction_state``, first segment to last, for ``krepair transactions``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from krepair.durable.tree import Tree
from krepair.engine.items import LogsItem
from krepair.engine.place import with_log_dir
from krepair.engine.progress import shown_as
from krepair.formats import batch_v2
from krepair.formats.transaction_state import PRODUCER_ID, RECORDS, TransactionStatus, state_name
from krepair.kernels import dump_rows as r
from krepair.look.coordinators.walk import CoordinatorRecords, DamagedPart, in_a_buffer
from krepair.scan.log_records import LargeRecordRead, RecordsRead

_MOST_EARLIER: Final = 16


class TransactionState(Struct, frozen=True, kw_only=True):
    """Content of the newest record of a transactional id.

    Attributes:
        transactional_id: transactional id of the producer.
        coordinator: folder of the partition of ``__transaction_state``.
        record_offset: offset of the record.
        state: Kafka's word; ``Dead`` if the record is a tombstone, ``unknown`` if it cannot be read.
        producer_id: current producer id, -1 if unknown; for a tombstone, the last producer id before it.
        producer_epoch: epoch of the producer id, -1 if unknown.
        earlier_producer_ids: other producer ids of the same transactional id in the log, the newest 16.
        timeout_ms: time in ms after which the coordinator aborts an open transaction, -1 if unknown.
        partitions: (topic, partition) pairs of the transaction, sorted.
        start_ms: start of the transaction by the coordinator's clock, in epoch milliseconds; -1 for none.
        last_update_ms: time of the record by the coordinator's clock, in epoch milliseconds; -1 if unknown.
        records: number of the id's records in the log.
        problem: reason why the record could not be read, or empty.
    """

    transactional_id: str
    coordinator: str
    record_offset: int
    state: str
    producer_id: int = -1
    producer_epoch: int = -1
    earlier_producer_ids: tuple[int, ...] = ()
    timeout_ms: int = -1
    partitions: tuple[tuple[str, int], ...] = ()
    start_ms: int = -1
    last_update_ms: int = -1
    records: int = 0
    problem: str = ""


@dataclass(slots=True)
class _TransactionEntry:
    """Newest value of one transactional id, and its newest producer ids, the oldest first."""

    value: bytes | None = None
    offset: int = -1
    records: int = 0
    producer_ids: dict[int, None] = field(default_factory=dict)


class TransactionBook:
    """Collector of the newest record of each transactional id in one partition; decodes values only at the end.

    Args:
        partition: name of the partition's folder.
    """

    def __init__(self, partition: str) -> None:
        self.partition = partition
        self.newest_ms = -1
        self.unknown = 0
        self._entries: dict[bytes, _TransactionEntry] = {}

    def take(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        """Add one record."""
        if key is None:
            self.unknown += 1
            return
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _TransactionEntry()
        entry.value, entry.offset = value, offset
        entry.records += 1
        if value is not None and len(value) >= PRODUCER_ID.size:
            _, producer_id = PRODUCER_ID.unpack_from(value)
            ids = entry.producer_ids
            if producer_id not in ids:
                ids[producer_id] = None
                if len(ids) > _MOST_EARLIER + 1:
                    del ids[next(iter(ids))]

    def states(self) -> Iterator[TransactionState]:
        """Yield the state of every transactional id, in the order of their first records."""
        for key, entry in self._entries.items():
            record = RECORDS.decode(key, entry.value)
            if "transactional_id" not in record.key:
                self.unknown += entry.records
                continue
            ids = list(entry.producer_ids)
            state = TransactionState(
                transactional_id=record.key["transactional_id"],
                coordinator=self.partition,
                record_offset=entry.offset,
                state="unknown",
                earlier_producer_ids=tuple(ids),
                records=entry.records,
            )
            if record.tombstone:
                yield replace(
                    state,
                    state=state_name(TransactionStatus.DEAD),
                    producer_id=ids[-1] if ids else -1,
                    earlier_producer_ids=tuple(ids[:-1]),
                )
            elif record.value is None:
                yield replace(state, problem=record.problem)
            else:
                value = record.value
                earlier = {*ids, value.get("previous_producer_id", -1)}
                yield replace(
                    state,
                    state=state_name(value["transaction_status"]),
                    producer_id=value["producer_id"],
                    producer_epoch=value["producer_epoch"],
                    earlier_producer_ids=tuple(sorted(earlier - {-1, value["producer_id"]})),
                    timeout_ms=value["transaction_timeout_ms"],
                    partitions=tuple(
                        sorted(
                            (row["topic"], number)
                            for row in value["transaction_partitions"] or ()
                            for number in row["partition_ids"]
                        )
                    ),
                    start_ms=value["transaction_start_timestamp_ms"],
                    last_update_ms=value["transaction_last_update_timestamp_ms"],
                )


_CUT_BYTES = 8 << 20  # bytes kept of a long key or value; a transaction of 100,000 partitions takes less


class TransactionsResult(Struct, frozen=True, kw_only=True):
    """Content of one partition.

    Attributes:
        states: newest state of each transactional id, in the order of the ids' first records.
        newest_ms: newest time of a batch below the high watermark, by the coordinator's clock; -1 for none.
        damaged: damaged parts of the log that were skipped, at most ``MOST_RANGES``.
        damages: number of all damaged parts.
        unknown: number of records whose key is missing or of an unknown type.
    """

    states: tuple[TransactionState, ...] = ()
    newest_ms: int = -1
    damaged: tuple[DamagedPart, ...] = ()
    damages: int = 0
    unknown: int = 0


def _take_records(
    part: RecordsRead, book: TransactionBook, log_start: int, high_watermark: int, now_ms: int
) -> None:
    view = part.buffer.data
    batches = part.batches[["base_offset", "last_offset", "max_timestamp", "attributes"]].tolist()
    columns = [r.R_OFFSET_DELTA, r.R_KEY, r.R_KEY_SIZE, r.R_VALUE, r.R_VALUE_SIZE]
    fields = iter(part.records[:, columns].tolist())
    for (base_offset, last_offset, time_ms, attributes), count in zip(
        batches, part.counts.tolist(), strict=True
    ):
        if last_offset < high_watermark and time_ms <= now_ms:
            book.newest_ms = max(book.newest_ms, time_ms)
        for _ in range(count):
            delta, key, key_size, value, value_size = next(fields)
            if attributes & batch_v2.CONTROL or base_offset + delta < log_start:
                continue
            book.take(
                bytes(view[key : key + key_size]) if key_size >= 0 else None,
                bytes(view[value : value + value_size]) if value_size >= 0 else None,
                base_offset + delta,
            )


@shown_as("transactions")
@with_log_dir
def read_transactions(
    item: LogsItem, tree: Tree, log_start: int = 0, high_watermark: int = -1, now_ms: int = 0
) -> TransactionsResult:
    """Read the transactions of one partition.

    Args:
        log_start: log start offset; records below it are ignored.
        high_watermark: high watermark; the time of the newest write is taken only from batches below it.
        now_ms: current time in epoch milliseconds; later times are ignored.
    """
    book, log = TransactionBook(item.place.folder), CoordinatorRecords(item, tree, _CUT_BYTES)
    for part in log.parts():
        _take_records(
            in_a_buffer(part) if isinstance(part, LargeRecordRead) else part,
            book,
            log_start,
            high_watermark,
            now_ms,
        )
    return TransactionsResult(
        states=tuple(book.states()),
        newest_ms=book.newest_ms,
        damaged=tuple(log.damaged),
        damages=log.damages,
        unknown=book.unknown,
    )
