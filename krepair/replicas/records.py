"""The tasks that read a replica's records as hashes: the last record of each key, and a digest of each record.

Kernels hash whole windows of records at once. Only v0 and v1 wrappers are handled one by one, and records that are
larger than a window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct

from krepair.derive.sums import RANGE_BITS
from krepair.derive.transactions import ABORTED, OPEN, TRANSACTION_COLUMNS, fates_of
from krepair.durable.scratch import write_scratch
from krepair.durable.tree import Tree
from krepair.engine.engine import Engine
from krepair.engine.items import FailureKind
from krepair.engine.place import failure_text, open_log_dir, with_log_dir
from krepair.engine.progress import shown_as
from krepair.formats.arrays import Int64s, Uint8s, Uint64s
from krepair.formats.filenames import log_name
from krepair.kernels import compact_keys as k
from krepair.kernels import replica_rows as h
from krepair.kernels.columns import OK, Batches
from krepair.kernels.compact_records import SLACK, key_hash
from krepair.kernels.replica_rows import body_hash
from krepair.logdir.reading import opened_for_reading, read_into_from
from krepair.replicas.items import ReplicaItem, RowRun, RowsResult, map_in_parts
from krepair.rewrite.compaction.batch_records import LARGEST_RECORD_BYTES
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
"""Function that takes hashes of records in offset order, uint64[N, HASH_COLUMNS], and three arrays with one element for
each batch: record count (int64), fate (int64), and 1 if digests are wanted (uint8)."""
OnRows = Callable[[Uint64s], None]
_CUT: Final = 256
"""Number of bytes shown of a key or a value."""
_FIRST_SLOTS: Final = 1 << 16
_MOST_SLOTS: Final = 1 << 21
_DIGEST_ROWS: Final = 1 << 20


class Differing:
    """Ranges of offsets that differ between replicas.

    Args:
        numbers: bytes of int64[N], range numbers, ascending; None for all ranges.
    """

    def __init__(self, numbers: bytes | None) -> None:
        self._all = numbers is None
        self._numbers = np.frombuffer(numbers or b"", np.int64)

    def of(self, rows: Batches) -> Any:
        """Mark the batches that begin in one of the ranges, uint8[B]."""
        if self._all or not len(self._numbers):
            return np.full(len(rows), self._all, np.uint8)
        numbers = rows["base_offset"] >> RANGE_BITS
        places = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        return (self._numbers[places] == numbers).astype(np.uint8)


class RecordHashes:
    """Hasher of a log's records, control records included, as ``LogRecords`` reads them.

    Args:
        secret: uint64[2], key of the hashes.
        select: selection of the batches to read, see ``RecordOptions``.

    Attributes:
        options: options for reading the log.
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
        """Collect the bytes of a large record from its key on: they are its body."""
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
    """Return the batches of a part, and the record count of each."""
    if isinstance(part, RecordsRead):
        return np.ascontiguousarray(part.batches), np.ascontiguousarray(part.counts)
    return part.batch.reshape(1), np.ones(1, np.int64)


def _fates_of(batches: Any, fates: Int64s) -> Int64s:
    """Return the fate of each batch's transaction, int64[B]."""
    fate_of_each = np.empty(len(batches), np.int64)
    h.batch_fates(batches, fates, fate_of_each)
    return fate_of_each


def hashes_of(row: Any, record: LogRecord, hashed: Hashed) -> tuple[int, ...]:
    """Return the hashes of one record, equal to the kernel's.

    Args:
        row: header of the record's batch.
        record: record, perhaps without its bytes.
        hashed: hashes of the record's bytes.
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
    digest = h.digest_of(*map(np.uint64, hashed.body), *map(np.int64, numbers))
    bits = (h.NO_KEY if record.key is None else 0) | (h.TOMBSTONE if record.value is None else 0)
    return *hashed.key, record.offset, int(digest), bits


class ReplicaError(Exception):
    """Error: a replica cannot be read."""

    def __init__(self, failure: FailureKind, why: str) -> None:
        super().__init__(why)
        self.failure: FailureKind = failure


def _walk_records(item: ReplicaItem, on_hashes: OnHashes) -> None:
    """Hash all records of a replica, in offset order.

    Raises:
        ReplicaError: the replica cannot be read.
    """
    tree, wrong = open_log_dir(item.place)
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
        raise ReplicaError("unreadable", failure_text(item.place, error, name)) from error
    except ReplicaError as error:
        raise ReplicaError(error.failure, f"{item.place.folder}/{name}, {error}") from error


def _too_large(part: RecordsRead | LargeRecordRead) -> str:
    position = int(_batches_of(part)[0]["position"][0])
    expected = f"a record of at most {LARGEST_RECORD_BYTES:,} bytes was expected, it has more"
    return f"position {position}: {expected}; its records cannot be compared"


def _check_readable(part: DamageRead) -> None:
    """Check that a damaged range is not inside an intact batch, which must not count as one without records.

    Batches with a damaged header, and ranges without a batch, are reported with the headers.

    Raises:
        ReplicaError: the range is inside an intact batch.
    """
    if part.batch is not None and part.batch["problem"] == OK:
        position, wrong = int(part.batch["position"]), part.damage
        text = f"position {position}: {wrong.expected} was expected in the batch, found {wrong.found}"
        raise ReplicaError("verify", f"{text}; its records cannot be compared")


class KeyAndDigestStore:
    """Collector of the last record of each key, and of digests, which passes them on in runs.

    Args:
        on_keys: receiver of uint64[N, KEY_WORDS], ordered by bucket, the highest bits of the hash; None if keys are not
            wanted.
        on_digests: receiver of uint64[N, 2] (offset, digest), ascending.
    """

    def __init__(self, on_keys: OnRows | None, on_digests: OnRows) -> None:
        self._on_keys, self._on_digests = on_keys, on_digests
        self._table: Uint64s = np.zeros((_FIRST_SLOTS, h.KEY_WORDS), np.uint64)
        self._digests: Uint64s = np.empty((_FIRST_SLOTS, 2), np.uint64)
        self._state = np.zeros(h.ENTER_STATE, np.int64)

    def take(self, hashed: Uint64s, counts: Int64s, fates: Int64s, differing: Any) -> None:
        """Add records, see ``OnHashes``."""
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
        """Enlarge the tables for the largest batch, because a batch is entered completely or not at all."""
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
        """Pass on the remaining rows."""
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
        """Pass on the digests; the buffer begins small and grows once."""
        count = int(self._state[h.E_DIGESTS])
        if count:
            self._on_digests(self._digests[:count].copy())
        self._state[h.E_DIGESTS] = 0
        if count > len(self._digests) // 2 and len(self._digests) < _DIGEST_ROWS:
            self._digests = np.empty((_DIGEST_ROWS, 2), np.uint64)


@shown_as("records")
def read_records(item: ReplicaItem) -> RowsResult:
    """Read the rows of one replica: small runs are in the result, large ones in scratch files."""
    keys: list[RowRun] = []
    records: list[RowRun] = []

    def put(runs: list[RowRun], rows: Uint64s, name: str) -> None:
        if len(rows) <= item.rows_inline and not any(run.path for run in runs):
            runs.append(RowRun(rows=len(rows), data=rows.tobytes()))
        else:
            path = write_scratch(item.scratch, name, (np.ascontiguousarray(rows),))
            runs.append(RowRun(rows=len(rows), path=path))

    entered = KeyAndDigestStore(
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
    return map_in_parts(engine, read_records, items, _join_parts)


def _join_parts(parts: Sequence[RowsResult]) -> RowsResult:
    failed = next((part for part in parts if part.failure), None)
    return failed or RowsResult(
        keys=tuple(run for part in parts for run in part.keys),
        records=tuple(run for part in parts for run in part.records),
    )


# -- hashes of one large record that is read piece by piece
#
# The body of a record reaches from its key to its last header; of a v0 or v1 message, from its key to its end. It gets
# the same hashes as from the kernel. A body that is too large for key compaction is not compared.


class Hashed(NamedTuple):
    """Hashes of a record's bytes.

    Attributes:
        key: both halves of the key's hash, zeros without a key.
        body: both halves of the body's hash.
    """

    key: tuple[int, int]
    body: tuple[int, int]


class RecordBytes:
    """Collector of record bodies, one after another.

    Args:
        secret: uint64[2], key of the hashes.
        most: largest body in bytes.

    Attributes:
        too_large: True if the body is larger than ``most``, so that it has no hashes.
    """

    def __init__(self, secret: Uint64s, most: int = LARGEST_RECORD_BYTES) -> None:
        self._secret, self._most = secret, most
        self.begin(-1)

    def begin(self, key_size: int) -> None:
        """Begin the next body.

        Args:
            key_size: size of the key in bytes, negative without a key.
        """
        self._key_size, self._held, self.too_large = key_size, bytearray(), False

    def take(self, piece: memoryview) -> None:
        """Add the next bytes of the body."""
        self.too_large = self.too_large or len(self._held) + len(piece) > self._most
        if not self.too_large:
            self._held += piece

    def hashed(self) -> Hashed:
        """Return the hashes of the collected body."""
        body: Uint8s = np.frombuffer(self._held + bytes(SLACK), np.uint8)
        first, second = (0, 0) if self._key_size < 0 else key_hash(body, 0, self._key_size, *self._secret)
        body_first, body_second = body_hash(body, 0, len(self._held), *self._secret)
        return Hashed((int(first), int(second)), (int(body_first), int(body_second)))


# -- search for certain keys: their bytes, and the record that this replica would serve as leader


class FoundKey(Struct, frozen=True, kw_only=True):
    """Key of a replica, and the record that it would serve.

    Attributes:
        first: first half of the key's hash.
        second: second half of the key's hash.
        key: bytes of the key, perhaps only its first bytes.
        offset: offset of the record that would be served, -1 for none.
        value: first bytes of the value; None for a tombstone or no record.
        value_size: size of the whole value in bytes, -1 for a tombstone or no record.
    """

    first: int
    second: int
    key: bytes | None
    offset: int = -1
    value: bytes | None = None
    value_size: int = -1


class _Finder:
    """Collector of the last served record of each wanted key.

    Args:
        hashes: both halves of each wanted key's hash; empty for all keys.
        served: offsets that the replica serves.
        fates: fates of the replica's transactions, see ``fates_of``.

    Attributes:
        found: last served record of each key so far, by the key's hash.
    """

    def __init__(self, hashes: Iterable[tuple[int, int]], served: range, fates: Int64s) -> None:
        self._wanted: Uint64s = np.array([first for first, _ in hashes], np.uint64)
        self._served = served
        self._fates = fates
        self.found: dict[tuple[int, int], FoundKey] = {}

    def take(self, part: RecordsRead | LargeRecordRead, hashed: Uint64s) -> None:
        """Examine records with their hashes."""
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
            known = self.found[pair] = FoundKey(first=pair[0], second=pair[1], key=_cut_bytes(record.key))
        if fate not in {ABORTED, OPEN} and record.offset in self._served:
            self.found[pair] = FoundKey(
                first=pair[0],
                second=pair[1],
                key=known.key,
                offset=record.offset,
                value=_cut_bytes(record.value),
                value_size=record.value_size,
            )


def _cut_bytes(data: bytes | None) -> bytes | None:
    return None if data is None else data[:_CUT]


@shown_as("keys")
@with_log_dir
def find_keys(
    replica: ReplicaItem, tree: Tree, hashes: tuple[tuple[int, int], ...], served: range
) -> tuple[FoundKey, ...]:
    """Read the log once, and keep the last served record of each wanted key.

    Args:
        replica: item of the replica, with its transactions and the secret of the hashes.
        hashes: both halves of each key's hash; empty for all keys.
        served: offsets that the replica serves to ``read_committed`` readers: log start to last stable offset.
    """
    table: Int64s = np.frombuffer(replica.transactions, np.int64).reshape(-1, TRANSACTION_COLUMNS)
    records = RecordHashes(np.frombuffer(replica.secret, np.uint64).copy())
    finder = _Finder(hashes, served, fates_of(table))
    for base, size in replica.segments:
        with opened_for_reading(f"{replica.place.stem(base)}.log", tree) as descriptor:
            for part in LogRecords(read_into_from(descriptor), size, base, records.options).parts():
                if isinstance(part, RecordsRead | LargeRecordRead):
                    hashed = records.of(part)
                    if hashed is not None:
                        finder.take(part, hashed)
    wanted = set(hashes)
    return tuple(key for pair, key in finder.found.items() if not wanted or pair in wanted)
