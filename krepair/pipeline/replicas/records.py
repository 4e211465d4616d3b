"""Reads the records of one replica as hashes: the last committed record of each key, and a digest of every record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from krepair.durable.scratch import write_scratch
from krepair.formats import batch_v2
from krepair.formats.varint import write_varint
from krepair.kernels import dump_rows as r
from krepair.kernels import replica_rows as h
from krepair.kernels.compact_records import SLACK, key_hash
from krepair.kernels.scan import ReadInto
from krepair.logdir.reading import opened_for_reading
from krepair.pipeline.dump.log_walk import LogWalk
from krepair.pipeline.dump.record import Shown
from krepair.pipeline.indexes.regenerate import read_into_from
from krepair.pipeline.items import FailureKind
from krepair.pipeline.place import reached, what_failed
from krepair.pipeline.replicas.headers import NotedDamage
from krepair.pipeline.replicas.items import ReplicaItem, RowsResult, Run
from krepair.pipeline.segment_files import log_name
from krepair.rules.replicas.keys import (
    B_ABORTED,
    B_COMMITTED,
    B_OPEN,
    B_OTHER,
    B_TOMBSTONE,
    B_TWO_EPOCHS,
    K_BITS,
    KEY_COLUMNS,
)
from krepair.rules.replicas.transactions import (
    ABORTED,
    COMMITTED,
    COMMITTED_TWO_EPOCHS,
    OPEN,
    PLAIN,
    TRANSACTION_COLUMNS,
    Fates,
    Int64s,
)

Words = np.ndarray[Any, np.dtype[np.uint64]]
OnRecords = Callable[[Words, Int64s], None]
"""Takes uint64[N, replica_rows.HASH_COLUMNS] in offset order, and int64[N] fates of the records."""
_KEEP_ROWS: Final = 1 << 20
CONTROL: Final = -1
"""Fate of a marker."""


class RecordWalk(LogWalk):
    """Hashes the records of data of one ``.log``.

    Args:
        read_into: see ``LogWalk``.
        size: bytes of the log.
        base_offset: of the segment.
        fates: of the replica's transactions.
        secret: uint64[2].
        on_records: takes them.
    """

    def __init__(
        self,
        read_into: ReadInto,
        size: int,
        base_offset: int,
        fates: Fates,
        secret: Words,
        on_records: OnRecords,
    ) -> None:
        super().__init__(read_into, size, base_offset, NotedDamage(records=True))
        self.secret = secret
        self._fates, self._on_records = fates, on_records

    def within(self, lowest: int, highest: int) -> None:
        """Read only batches with offsets in this range."""
        self._wanted.lowest, self._wanted.highest = lowest, highest

    def _record_lines(self, buf: Any, rows: Any, counts: Any, records: Any) -> Iterator[bytes | memoryview]:
        if len(rows):
            out, fates = self.hashed(buf, rows, counts, records)
            data = fates != CONTROL
            if data.any():
                self._on_records(out[data], fates[data])
                yield b""  # a caller may take what was given before more is read

    def hashed(self, buf: Any, rows: Any, counts: Any, records: Any) -> tuple[Words, Int64s]:
        """Hashes and fates of all records of some batches; those of markers have the fate ``CONTROL``.

        Args:
            buf: uint8[W], where they lie.
            rows: int64[B, dump_rows.BATCH_COLUMNS].
            counts: int64[B or more], records of each.
            records: int64[N, dump_rows.RECORD_COLUMNS].
        """
        total = int(counts[: len(rows)].sum())
        out: Words = np.empty((total, h.HASH_COLUMNS), np.uint64)
        h.hash_records(buf, rows, counts, records, self.secret, out)
        return out, np.repeat(self.fates_of(rows), counts[: len(rows)])

    def fates_of(self, rows: Any) -> Int64s:
        """What becomes of the records of batches, int64[B]."""
        fates = np.full(len(rows), PLAIN, np.int64)
        new = rows[:, r.B_MAGIC] >= batch_v2.MAGIC
        transactional = new & (rows[:, r.B_ATTRIBUTES] & batch_v2.TRANSACTIONAL != 0)
        if transactional.any():
            fates[transactional] = self._fates.of(
                rows[transactional, r.B_PRODUCER_ID], rows[transactional, r.B_BASE_OFFSET]
            )
        fates[new & (rows[:, r.B_ATTRIBUTES] & batch_v2.CONTROL != 0)] = CONTROL
        return fates

    def _one_batch(self, row: Any, origin: int) -> Iterator[bytes | memoryview]:
        if row[r.B_PROBLEM] != r.BAD_CRC:
            yield from super()._one_batch(row, origin)

    def _one_record(self, row: Any, shown: Shown) -> Iterator[bytes]:
        yield from ()
        fates = self.fates_of(row.reshape(1, -1))
        if fates[0] != CONTROL:
            self._on_records(np.array([hashes_of(row, shown, self.secret)], np.uint64), fates)


def hashes_of(row: Any, shown: Shown, secret: Words) -> tuple[int, ...]:
    """The hashes of one record in plain steps, the same as the kernel's.

    Args:
        row: int64[dump_rows.BATCH_COLUMNS] of its batch.
        shown: the record, whole.
        secret: uint64[2].
    """
    key = shown.key or b""
    body = key + write_varint(shown.value_size) + (shown.value or b"") + write_varint(len(shown.headers))
    for name, value in shown.headers:
        body += (
            write_varint(len(name))
            + name
            + write_varint(-1 if value is None else len(value))
            + (value or b"")
        )
    buffer = np.frombuffer(body + bytes(SLACK), np.uint8).copy()
    first, second = 0, 0
    if shown.key is not None:
        first, second = key_hash(buffer, 0, len(key), secret[0], secret[1])
    half, other_half = key_hash(buffer, 0, len(body), secret[0], secret[1])
    sequence = int(row[r.B_BASE_SEQUENCE])
    if sequence >= 0:
        sequence += shown.offset - int(row[r.B_BASE_OFFSET])
    numbers = (
        shown.timestamp,
        shown.key_size,
        int(row[r.B_PRODUCER_ID]),
        int(row[r.B_PRODUCER_EPOCH]),
        sequence,
    )
    digest = h.digest_of(np.uint64(half), np.uint64(other_half), *map(np.int64, numbers))
    bits = (h.NO_KEY if shown.key is None else 0) | (h.TOMBSTONE if shown.value is None else 0)
    return int(first), int(second), shown.offset, int(digest), bits


class ReplicaError(Exception):
    """A replica cannot be read: the kind of failure, and why."""

    def __init__(self, failure: FailureKind, why: str) -> None:
        super().__init__(why)
        self.failure: FailureKind = failure


def walk_records(item: ReplicaItem, on_records: OnRecords) -> Iterator[None]:
    """Hash all records of a replica, in offset order; stops for the caller from time to time.

    Raises:
        ReplicaError: it cannot be read.
    """
    tree, wrong = reached(item.place)
    if wrong:
        raise ReplicaError("elsewhere", wrong)
    table = np.frombuffer(item.transactions, np.int64).reshape(-1, TRANSACTION_COLUMNS)
    fates, secret = Fates(table), np.frombuffer(item.secret, np.uint64).copy()
    name = ""
    try:
        for base, size in item.segments:
            name = log_name(base)
            with opened_for_reading(f"{item.place.stem(base)}.log", tree) as descriptor:
                walk = RecordWalk(read_into_from(descriptor), size, base, fates, secret, on_records)
                walk.within(item.lowest, item.highest)
                for _ in walk.lines():
                    yield
    except OSError as error:
        raise ReplicaError("unreadable", what_failed(item.place, error, name)) from error


class LastOfKeys:
    """Keeps the last committed record of each key.

    Args:
        on_full: takes uint64[N, KEY_COLUMNS], ascending by hash, when there are too many to keep.
    """

    def __init__(self, on_full: Callable[[Words], None]) -> None:
        self._on_full = on_full
        self._pieces: list[Words] = []
        self._rows = 0

    def add(self, rows: Words, fates: Int64s) -> None:
        """Add records in offset order."""
        keyed = rows[:, h.H_BITS] & np.uint64(h.NO_KEY) == 0
        chosen = key_rows(rows[keyed], fates[keyed])
        if len(chosen):
            self._pieces.append(chosen)
            self._rows += len(chosen)
        if self._rows > _KEEP_ROWS:
            kept = last_of_each(np.concatenate(self._pieces))
            self._pieces, self._rows = [kept], len(kept)
            if len(kept) > _KEEP_ROWS // 2:
                self.end()

    def end(self) -> None:
        """Give away what is left."""
        if self._rows:
            self._on_full(last_of_each(np.concatenate(self._pieces)))
        self._pieces, self._rows = [], 0


def key_rows(rows: Words, fates: Int64s) -> Words:
    """Rows of keys of rows of records.

    Args:
        rows: uint64[N, replica_rows.HASH_COLUMNS].
        fates: int64[N].
    """
    made: Words = np.ascontiguousarray(rows[:, :KEY_COLUMNS])
    bits = np.where(rows[:, h.H_BITS] & np.uint64(h.TOMBSTONE) != 0, B_TOMBSTONE, 0)
    bits |= np.where((fates == COMMITTED) | (fates == COMMITTED_TWO_EPOCHS), B_COMMITTED, 0)
    bits |= np.where(fates == COMMITTED_TWO_EPOCHS, B_TWO_EPOCHS, 0)
    bits |= np.where(fates == OPEN, B_OPEN, 0) | np.where(fates == ABORTED, B_ABORTED, 0)
    made[:, K_BITS] = bits.astype(np.uint64)
    return made


def last_of_each(rows: Words) -> Words:
    """The rows with the greatest offset of each key, one committed, one open, one aborted, ascending by hash.

    Args:
        rows: uint64[N, KEY_COLUMNS], in any order.
    """
    other = rows[:, K_BITS] & np.uint64(B_OTHER)
    order = np.lexsort((rows[:, h.H_OFFSET], other, rows[:, h.H_SECOND], rows[:, h.H_FIRST]))
    rows, other = rows[order], other[order]
    same = (rows[1:, :2] == rows[:-1, :2]).all(axis=1) & (other[1:] == other[:-1])
    return np.ascontiguousarray(rows[np.append(~same, True)])


def read_records(item: ReplicaItem) -> RowsResult:
    """The rows of one replica: small ones travel in the result, others lie in scratch files."""
    keys: list[Run] = []
    records: list[Run] = []
    kept: list[Words] = []
    count = waiting = 0

    def put(runs: list[Run], rows: Words, name: str) -> None:
        if len(rows) <= item.rows_inline and not any(run.path for run in runs):
            runs.append(Run(rows=len(rows), data=rows.tobytes()))
        else:
            runs.append(
                Run(rows=len(rows), path=write_scratch(item.scratch, name, (np.ascontiguousarray(rows),)))
            )

    last = LastOfKeys(lambda rows: put(keys, rows, "keys"))

    def take(rows: Words, fates: Int64s) -> None:
        nonlocal count, waiting
        count += len(rows)
        last.add(rows, fates)
        kept.append(rows[:, [h.H_OFFSET, h.H_DIGEST]])
        waiting += len(rows)
        if waiting >= _KEEP_ROWS:
            put(records, np.concatenate(kept), "records")
            kept.clear()
            waiting = 0

    try:
        for _ in walk_records(item, take):
            pass
    except ReplicaError as error:
        return RowsResult(failure=error.failure, why=str(error))
    last.end()
    if kept:
        put(records, np.concatenate(kept), "records")
    return RowsResult(keys=tuple(keys), records=tuple(records), count=count)
