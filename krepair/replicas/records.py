"""Reads the records of one replica as hashes: the last committed record of each key, and a digest of every record.

No step is done in Python for a record: batches that lie plain in a window go to a kernel together, compressed ones are
unpacked one behind the other first, wrappers of v0 or v1 each by itself. What is larger than a window is read one at a
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct

from krepair.derive.sums import RANGE_BITS
from krepair.derive.transactions import ABORTED, OPEN, TRANSACTION_COLUMNS, fates_of
from krepair.durable.scratch import write_scratch
from krepair.durable.tree import Tree
from krepair.engine.engine import Engine
from krepair.engine.items import FailureKind, Place
from krepair.engine.place import in_its_place, reached, what_failed
from krepair.engine.progress import shown
from krepair.formats.arrays import Int64s, Uint8s, Uint64s
from krepair.formats.filenames import log_name
from krepair.kernels import compact_keys as k
from krepair.kernels import replica_rows as h
from krepair.kernels.columns import OK, Batches
from krepair.kernels.compact_records import SLACK, key_hash
from krepair.kernels.replica_rows import body_hash
from krepair.logdir.reading import opened_for_reading, read_into_from
from krepair.replicas.items import ReplicaItem, RowRun, RowsResult, map_in_parts
from krepair.rewrite.compaction.content import LARGEST_RECORD_BYTES
from krepair.rewrite.compaction.keys import BUCKET_SHIFT
from krepair.rewrite.compaction.rows import BUCKETS
from krepair.scan.byte_stream import ByteStream
from krepair.scan.log_records import (
    DamageRead,
    LargeRecordRead,
    LogRecord,
    LogRecords,
    RecordOptions,
    RecordsRead,
    record_at,
)

OnHashes = Callable[[Uint64s, Int64s, Int64s, Any], None]
"""Takes uint64[N, HASH_COLUMNS] in offset order, and of each batch: int64[B] records, int64[B] fates, uint8[B] whether
digests are wanted."""
OnRows = Callable[[Uint64s], None]
_CUT: Final = 256
"""Bytes of a key or a value that are shown."""
_FIRST_SLOTS: Final = 1 << 16
_MOST_SLOTS: Final = 1 << 21
_DIGEST_ROWS: Final = 1 << 20


class Differing:
    """Ranges of offsets that differ between replicas.

    Args:
        numbers: int64[N] of the ranges, ascending, as bytes; None: all of them.
    """

    def __init__(self, numbers: bytes | None) -> None:
        self._all = numbers is None
        self._numbers = np.frombuffer(numbers or b"", np.int64)

    def of(self, rows: Batches) -> Any:
        """Whether batches begin in one of them, uint8[B]."""
        if self._all or not len(self._numbers):
            return np.full(len(rows), self._all, np.uint8)
        numbers = rows["base_offset"] >> RANGE_BITS
        places = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        return (self._numbers[places] == numbers).astype(np.uint8)


class RecordHashes:
    """Hashes the records of a log, markers too, as ``LogRecords`` gives them.

    Args:
        secret: uint64[2], the key of the hashes.
        select: which batches are read, see ``RecordOptions``.

    Attributes:
        options: what has to be read of the log.
    """

    def __init__(self, secret: Uint64s, select: Callable[[Batches], Any] | None = None) -> None:
        self._secret = secret
        self._bytes = RecordBytes(secret)
        self._hashed: Uint64s = np.empty((LogRecords.window_rows, h.HASH_COLUMNS), np.uint64)
        self.options = RecordOptions(
            cut=_CUT,
            most_content_bytes=2**31 + 2**24,  # one record has up to 2 GiB
            select=select,
            before_key=self._begin_bytes,
        )

    def _begin_bytes(self, stream: ByteStream, key_size: int) -> None:
        """Take the bytes of a large record from its key on: they are its body."""
        self._bytes.begin(key_size)
        stream.on_bytes = self._bytes.take

    def of(self, part: RecordsRead | LargeRecordRead) -> Uint64s | None:
        """Return uint64[N, HASH_COLUMNS], valid until the next call; None for a record that is too large."""
        if isinstance(part, RecordsRead):
            out = self._hashed[: len(part.records)]
            batches = np.ascontiguousarray(part.batches)
            h.hash_records(part.buffer, batches, part.counts, part.records, self._secret, out)
            return out
        if self._bytes.too_large:
            return None
        return np.array([hashes_of(part.batch, part.record, self._bytes.hashed())], np.uint64)


def _batches_of(part: RecordsRead | LargeRecordRead) -> tuple[Any, Int64s]:
    """Return the batches of a part, and how many records of each it has."""
    if isinstance(part, RecordsRead):
        return np.ascontiguousarray(part.batches), np.ascontiguousarray(part.counts)
    return part.batch.reshape(1), np.ones(1, np.int64)


def _fates_of(batches: Any, fates: Int64s) -> Int64s:
    """Return what became of the transaction of each batch, int64[B]."""
    found = np.empty(len(batches), np.int64)
    h.batch_fates(batches, fates, found)
    return found


def hashes_of(row: Any, record: LogRecord, found: Hashed) -> tuple[int, ...]:
    """Return the hashes of one record: the same as the kernel's.

    Args:
        row: row of its batch.
        record: the record, perhaps without its bytes.
        found: hashes of its bytes.
    """
    sequence = int(row["base_sequence"])
    if sequence >= 0:
        sequence += record.offset - int(row["base_offset"])
    numbers = (
        record.timestamp,
        record.key_size,
        int(row["producer_id"]),
        int(row["producer_epoch"]),
        sequence,
    )
    digest = h.digest_of(*map(np.uint64, found.body), *map(np.int64, numbers))
    bits = (h.NO_KEY if record.key is None else 0) | (h.TOMBSTONE if record.value is None else 0)
    return *found.key, record.offset, int(digest), bits


class ReplicaError(Exception):
    """A replica cannot be read: the kind of failure, and why."""

    def __init__(self, failure: FailureKind, why: str) -> None:
        super().__init__(why)
        self.failure: FailureKind = failure


def _walk_records(item: ReplicaItem, on_hashes: OnHashes) -> None:
    """Hash all records of a replica, in offset order.

    Raises:
        ReplicaError: it cannot be read.
    """
    tree, wrong = reached(item.place)
    if wrong:
        raise ReplicaError("elsewhere", wrong)
    fates = fates_of(np.frombuffer(item.transactions, np.int64).reshape(-1, TRANSACTION_COLUMNS))
    secret = np.frombuffer(item.secret, np.uint64).copy()
    differing = Differing(item.differing)
    hashes = RecordHashes(secret, None if item.keys else differing.of)
    name = ""
    try:
        for base, size in item.segments:
            name = log_name(base)
            with opened_for_reading(f"{item.place.stem(base)}.log", tree) as descriptor:
                for part in LogRecords(read_into_from(descriptor), size, base, hashes.options).parts():
                    if isinstance(part, RecordsRead | LargeRecordRead):
                        batches, counts = _batches_of(part)
                        hashed = hashes.of(part)
                        if hashed is None:
                            raise ReplicaError("verify", _too_large(part))
                        on_hashes(hashed, counts, _fates_of(batches, fates), differing.of(batches))
                    elif isinstance(part, DamageRead):
                        _check_readable(part)
    except OSError as error:
        raise ReplicaError("unreadable", what_failed(item.place, error, name)) from error
    except ReplicaError as error:
        raise ReplicaError(error.failure, f"{item.place.folder}/{name}, {error}") from error


def _too_large(part: RecordsRead | LargeRecordRead) -> str:
    position = int(_batches_of(part)[0]["position"][0])
    expected = f"a record of at most {LARGEST_RECORD_BYTES:,} bytes was expected, it has more"
    return f"position {position}: {expected}; its records cannot be compared"


def _check_readable(part: DamageRead) -> None:
    """Check that a damaged range is not the content of a sound batch: that must not count as one without records.

    Batches with a damaged header, and ranges without a batch, were told with the headers.

    Raises:
        ReplicaError: it is.
    """
    if part.batch is not None and part.batch["problem"] == OK:
        position, wrong = int(part.batch["position"]), part.damage
        text = f"position {position}: {wrong.expected} was expected in the batch, found {wrong.found}"
        raise ReplicaError("verify", f"{text}; its records cannot be compared")


class Entered:
    """Keeps of each key the last record of each class, and the digests that are wanted, and gives them away in runs.

    Args:
        on_keys: takes uint64[N, KEY_WORDS] by bucket, the highest bits of the hash; None: keys are not wanted.
        on_digests: takes uint64[N, 2] (offset, digest), ascending.
    """

    def __init__(self, on_keys: OnRows | None, on_digests: OnRows) -> None:
        self._on_keys, self._on_digests = on_keys, on_digests
        self._table: Uint64s = np.zeros((_FIRST_SLOTS, h.KEY_WORDS), np.uint64)
        self._digests: Uint64s = np.empty((_FIRST_SLOTS, 2), np.uint64)
        self._state = np.zeros(h.ENTER_STATE, np.int64)

    def take(self, hashed: Uint64s, counts: Int64s, fates: Int64s, differing: Any) -> None:
        """Take records, see ``OnHashes``."""
        state = self._state
        state[h.E_BATCH] = state[h.E_RECORD] = 0
        with_keys = self._on_keys is not None
        self._make_room(int(counts.max(initial=0)))
        while True:
            status = h.enter_records(
                hashed, counts, fates, differing, with_keys, self._table, self._digests, state
            )
            if status == h.ENTERED:
                return
            if status == h.DIGESTS_FULL:
                self._put_digests()
            elif len(self._table) < _MOST_SLOTS:
                self._grow(len(self._table) * 8)
            else:
                self._put_keys()

    def _make_room(self, records: int) -> None:
        """A batch is entered whole, so the largest has to fit."""
        if 2 * records > len(self._table) and self._on_keys is not None:
            self._grow(1 << (2 * records).bit_length())
        if records > len(self._digests):
            self._put_digests()
            self._digests = np.empty((records, 2), np.uint64)

    def _grow(self, slots: int) -> None:
        old = self._table
        self._table = np.zeros((max(slots, len(old)), h.KEY_WORDS), np.uint64)
        self._state[h.E_KEYS] = 0
        h.merge_keys(old, self._table, self._state)

    def end(self) -> None:
        """Give away what is left."""
        self._put_keys()
        self._put_digests()

    def _put_keys(self) -> None:
        count = int(self._state[h.E_KEYS])
        if count and self._on_keys is not None:
            rows: Uint64s = np.empty((count, h.KEY_WORDS), np.uint64)
            k.drain_by_bucket(self._table, BUCKET_SHIFT, np.zeros(BUCKETS + 1, np.int64), rows)
            self._on_keys(rows)
        self._state[h.E_KEYS] = 0

    def _put_digests(self) -> None:
        """Give them away; the buffer begins small and grows once."""
        count = int(self._state[h.E_DIGESTS])
        if count:
            self._on_digests(self._digests[:count].copy())
        self._state[h.E_DIGESTS] = 0
        if count > len(self._digests) // 2 and len(self._digests) < _DIGEST_ROWS:
            self._digests = np.empty((_DIGEST_ROWS, 2), np.uint64)


@shown("records")
def read_records(item: ReplicaItem) -> RowsResult:
    """The rows of one replica: small ones travel in the result, others lie in scratch files."""
    keys: list[RowRun] = []
    records: list[RowRun] = []

    def put(runs: list[RowRun], rows: Uint64s, name: str) -> None:
        if len(rows) <= item.rows_inline and not any(run.path for run in runs):
            runs.append(RowRun(rows=len(rows), data=rows.tobytes()))
        else:
            path = write_scratch(item.scratch, name, (np.ascontiguousarray(rows),))
            runs.append(RowRun(rows=len(rows), path=path))

    entered = Entered(
        (lambda rows: put(keys, rows, "keys")) if item.keys else None,
        lambda rows: put(records, rows, "records"),
    )
    try:
        _walk_records(item, entered.take)
    except ReplicaError as error:
        return RowsResult(failure=error.failure, why=str(error))
    entered.end()
    return RowsResult(keys=tuple(keys), records=tuple(records))


def read_records_of_all(engine: Engine, items: Sequence[ReplicaItem]) -> Iterator[tuple[int, RowsResult]]:
    """Yield (index of the item, rows of its replica) in any order."""
    return map_in_parts(engine, read_records, items, _joined)


def _joined(parts: Sequence[RowsResult]) -> RowsResult:
    failed = next((part for part in parts if part.failure), None)
    return failed or RowsResult(
        keys=tuple(run for part in parts for run in part.keys),
        records=tuple(run for part in parts for run in part.records),
    )


# -- one record by itself, from its bytes as they come
#
# A body is what lies in a record from its key to its last header, a message of v0 or v1 from its key on. It has the
# hashes that the kernel gives it. A larger one than key compaction takes is not compared.


class Hashed(NamedTuple):
    """Hashes of a record's bytes.

    Attributes:
        key: both halves of the hash of its key, zeros without one.
        body: both halves of the hash of its body.
    """

    key: tuple[int, int]
    body: tuple[int, int]


class RecordBytes:
    """Takes the bodies of records, one after the other.

    Args:
        secret: uint64[2], the key of the hashes.
        most: bytes that are held.

    Attributes:
        too_large: whether the body has more, so that there are no hashes of it.
    """

    def __init__(self, secret: Uint64s, most: int = LARGEST_RECORD_BYTES) -> None:
        self._secret, self._most = secret, most
        self.begin(-1)

    def begin(self, key_size: int) -> None:
        """The next body begins.

        Args:
            key_size: bytes of its key, negative without one.
        """
        self._key_size, self._held, self.too_large = key_size, bytearray(), False

    def take(self, piece: memoryview) -> None:
        """Take the next bytes of the body."""
        self.too_large = self.too_large or len(self._held) + len(piece) > self._most
        if not self.too_large:
            self._held += piece

    def hashed(self) -> Hashed:
        """Hashes of the body that was taken."""
        body: Uint8s = np.frombuffer(self._held + bytes(SLACK), np.uint8)
        first, second = (0, 0) if self._key_size < 0 else key_hash(body, 0, self._key_size, *self._secret)
        one, other = body_hash(body, 0, len(self._held), *self._secret)
        return Hashed((int(first), int(second)), (int(one), int(other)))


# -- named keys: the key itself, and what this replica would serve of it as leader


class FindItem(Struct, frozen=True, kw_only=True):
    """Find keys in one replica.

    Attributes:
        replica: which, and its transactions and the secret of the hashes.
        hashes: both halves of the hashes of the keys; empty for all keys.
        log_start: records below it are not served.
        last_stable_offset: records at or above it are not served to ``read_committed`` readers.
    """

    replica: ReplicaItem
    hashes: tuple[tuple[int, int], ...]
    log_start: int
    last_stable_offset: int

    @property
    def place(self) -> Place:
        """Of the replica."""
        return self.replica.place

    @property
    def bytes_to_read(self) -> int:
        """All its logs."""
        return self.replica.bytes_to_read


class FoundKey(Struct, frozen=True, kw_only=True):
    """One key of a replica.

    Attributes:
        first: first half of its hash.
        second: second half.
        key: its bytes, perhaps only the first.
        offset: of the record that would be served last, -1 none.
        value: its value, perhaps only the first bytes; None for a tombstone or no record.
        value_size: all its bytes, -1 for a tombstone or no record.
    """

    first: int
    second: int
    key: bytes | None
    offset: int = -1
    value: bytes | None = None
    value_size: int = -1


class _Finder:
    """Keeps of each wanted key what is served last.

    Args:
        item: the replica and the keys.
        fates: what became of its transactions, see ``fates_of``.

    Attributes:
        found: hash of a key -> what is known of it.
    """

    def __init__(self, item: FindItem, fates: Int64s) -> None:
        self._wanted: Uint64s = np.array([first for first, _ in item.hashes], np.uint64)
        self._served = range(item.log_start, item.last_stable_offset)
        self._fates = fates
        self.found: dict[tuple[int, int], FoundKey] = {}

    def take(self, part: RecordsRead | LargeRecordRead, hashed: Uint64s) -> None:
        """Look at records and their hashes."""
        chosen = (
            np.isin(hashed[:, h.H_FIRST], self._wanted) if len(self._wanted) else np.ones(len(hashed), bool)
        )
        places = np.flatnonzero(chosen).tolist()
        if not places:
            return
        batches, counts = _batches_of(part)
        fates, ends = _fates_of(batches, self._fates), np.cumsum(counts)
        for place in places:
            number = int(np.searchsorted(ends, place, "right"))
            record = (
                part.record
                if isinstance(part, LargeRecordRead)
                else record_at(batches[number], part.records[place], part.buffer)
            )
            self._take_one(hashed[place], int(fates[number]), record)

    def _take_one(self, hashed: Any, fate: int, record: LogRecord) -> None:
        if fate == h.MARKER:
            return
        pair = int(hashed[h.H_FIRST]), int(hashed[h.H_SECOND])
        known = self.found.get(pair)
        if known is None:
            known = self.found[pair] = FoundKey(first=pair[0], second=pair[1], key=_cut(record.key))
        if fate not in {ABORTED, OPEN} and record.offset in self._served:
            self.found[pair] = FoundKey(
                first=pair[0],
                second=pair[1],
                key=known.key,
                offset=record.offset,
                value=_cut(record.value),
                value_size=record.value_size,
            )


def _cut(data: bytes | None) -> bytes | None:
    return None if data is None else data[:_CUT]


@shown("keys")
@in_its_place
def find_keys(item: FindItem, tree: Tree) -> tuple[FoundKey, ...]:
    """Read the log once; of each key that is wanted keep what is served last."""
    replica = item.replica
    table: Int64s = np.frombuffer(replica.transactions, np.int64).reshape(-1, TRANSACTION_COLUMNS)
    hashes = RecordHashes(np.frombuffer(replica.secret, np.uint64).copy())
    finder = _Finder(item, fates_of(table))
    for base, size in replica.segments:
        with opened_for_reading(f"{replica.place.stem(base)}.log", tree) as descriptor:
            for part in LogRecords(read_into_from(descriptor), size, base, hashes.options).parts():
                if isinstance(part, RecordsRead | LargeRecordRead):
                    hashed = hashes.of(part)
                    if hashed is not None:
                        finder.take(part, hashed)
    wanted = set(item.hashes)
    return tuple(one for pair, one in finder.found.items() if not wanted or pair in wanted)
