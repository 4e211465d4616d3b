"""Reads the records of one replica as hashes: the last committed record of each key, and a digest of every record.

No step is done in Python for a record: batches that lie plain in a window go to a kernel together, compressed ones are
unpacked one behind the other first. The messages of a wrapper of v0 or v1, and what is larger than a window, are read
one at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from krepair.checks.walk import gathered
from krepair.derive.sums import RANGE_BITS
from krepair.derive.transactions import TRANSACTION_COLUMNS, fates_of
from krepair.durable.scratch import write_scratch
from krepair.formats import batch_v2, message_set
from krepair.formats.arrays import Int64s, Uint64s
from krepair.formats.codec import Codec
from krepair.formats.damage import Damage
from krepair.formats.filenames import log_name
from krepair.kernels import compact_keys as k
from krepair.kernels import dump_rows as r
from krepair.kernels import replica_rows as h
from krepair.kernels.columns import BAD_CRC, OK, Batches
from krepair.kernels.scan import ReadInto
from krepair.logdir.reading import opened_for_reading, read_into_from
from krepair.pipeline.byte_stream import ByteStream
from krepair.pipeline.compaction.keys import BUCKET_SHIFT
from krepair.pipeline.compaction.rows import BUCKETS
from krepair.pipeline.dump.log_walk import LogWalk
from krepair.pipeline.dump.record import Shown
from krepair.pipeline.engines.engine import Engine
from krepair.pipeline.items import FailureKind
from krepair.pipeline.place import reached, what_failed
from krepair.pipeline.progress import shown
from krepair.pipeline.replicas.headers import NotedDamage
from krepair.pipeline.replicas.items import ReplicaItem, RowRun, RowsResult, map_in_parts
from krepair.pipeline.replicas.record_bytes import Hashed, RecordBytes

OnHashes = Callable[[Uint64s, Int64s, Int64s, Any], None]
"""Takes uint64[N, HASH_COLUMNS] in offset order, and of each batch: int64[B] records, int64[B] fates, uint8[B] whether
digests are wanted."""
OnRows = Callable[[Uint64s], None]
_FIRST_SLOTS: Final = 1 << 16
_MOST_SLOTS: Final = 1 << 21
_DIGEST_ROWS: Final = 1 << 20
_KEY_V0, _KEY_V1 = (message_set.HEADERS[magic].size for magic in (0, 1))
"""Where the length of the key is, in a message."""


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


class HashWalk(LogWalk):
    """Hashes the records of one ``.log``.

    Args:
        read_into: see ``LogWalk``.
        size: bytes of the log.
        base_offset: of the segment.
        fates: of the replica's transactions, see ``rules.replicas.transactions.fates_of``.
        secret: uint64[2].
        on_hashes: takes them.
        differing: ranges of which digests are wanted.
        only_differing: whether no other batches are read.
    """

    # one record has up to 2 GiB
    most_content_bytes = 2**31 + 2**24

    def __init__(
        self,
        read_into: ReadInto,
        size: int,
        base_offset: int,
        fates: Int64s,
        secret: Uint64s,
        on_hashes: OnHashes,
        differing: Differing,
        *,
        only_differing: bool = False,
    ) -> None:
        self._taken = _Taken(secret)
        super().__init__(read_into, size, base_offset, self._taken)
        self.secret = secret
        self._fates, self._on_hashes = fates, on_hashes
        self._differing, self._only_differing = differing, only_differing
        self._hashed: Uint64s = np.empty((len(self._records), h.HASH_COLUMNS), np.uint64)

    # -- batches of a window ----------------------------------------------------------------------
    def _batches(self, rows: Any, origin: int) -> Iterator[bytes | memoryview]:
        if self._only_differing:
            rows = rows.take(np.flatnonzero(self._differing.of(rows)))
        if len(rows):
            yield from super()._batches(rows, origin)

    def _alone(self, rows: Any, origin: int) -> Iterator[bytes | memoryview]:
        """Plain messages of v0 and v1 that lie side by side go together."""
        plain = (rows["magic"] < batch_v2.MAGIC) & (rows["attributes"] & batch_v2.CODEC_MASK == Codec.NONE)
        plain &= (rows["problem"] == OK) & (origin >= 0)
        edges = [0, *(np.flatnonzero(plain[1:] != plain[:-1]) + 1).tolist(), len(rows)]
        for first, after in itertools.pairwise(edges):
            for begin in range(first, after, len(self._records)):
                some = rows[begin : min(begin + len(self._records), after)]
                records = self._plain_messages(some, origin) if plain[first] else None
                if records is None:
                    yield from super()._alone(some, origin)
                else:
                    yield from self._record_lines(self._window, some, np.ones(len(some), np.int64), records)

    def _plain_messages(self, rows: Any, origin: int) -> Any:
        """Where key and value of plain messages are, as of records; None if one is not as it should be."""
        records = self._records[: len(rows)]
        starts, sizes = rows["position"] - origin, rows["size"]
        keys = starts + np.where(rows["magic"] == 1, _KEY_V1, _KEY_V0)
        key_sizes = self._lengths_at(keys)
        values = keys + message_set.LENGTH.size + np.maximum(key_sizes, 0)
        value_sizes = self._lengths_at(np.minimum(values, starts + sizes - message_set.LENGTH.size))
        ends = values + message_set.LENGTH.size + np.maximum(value_sizes, 0)
        if not ((key_sizes >= -1) & (value_sizes >= -1) & (ends == starts + sizes)).all():
            return None
        records[:] = 0
        records[:, r.R_KEY], records[:, r.R_KEY_SIZE] = keys + message_set.LENGTH.size, key_sizes
        records[:, r.R_VALUE], records[:, r.R_VALUE_SIZE] = values + message_set.LENGTH.size, value_sizes
        records[:, r.R_START], records[:, r.R_SIZE] = starts, sizes
        return records

    def _lengths_at(self, places: Any) -> Int64s:
        found: Int64s = (
            gathered(self._window, places, message_set.LENGTH.size).view(">i4")[:, 0].astype(np.int64)
        )
        return found

    def _record_lines(self, buf: Any, rows: Any, counts: Any, records: Any) -> Iterator[bytes | memoryview]:
        if len(rows):
            hashed = self.hashed(buf, rows, counts, records)
            self._give(hashed, counts[: len(rows)], rows)
            yield b""  # a caller may take what was given before more is read

    def hashed(self, buf: Any, rows: Any, counts: Any, records: Any) -> Uint64s:
        """Hashes of all records of some batches, markers too; valid until it is called again.

        Args:
            buf: uint8[W + SLACK], where they lie.
            rows: ``columns.BATCH``[B].
            counts: int64[B or more], records of each.
            records: int64[N, dump_rows.RECORD_COLUMNS].
        """
        out = self._hashed[: int(counts[: len(rows)].sum())]
        h.hash_records(buf, np.ascontiguousarray(rows), counts, records, self.secret, out)
        return out

    def _give(self, hashed: Uint64s, counts: Int64s, rows: Any) -> None:
        fates = np.empty(len(rows), np.int64)
        h.batch_fates(np.ascontiguousarray(rows), self._fates, fates)
        self._on_hashes(hashed, np.ascontiguousarray(counts), fates, self._differing.of(rows))

    # -- one at a time ----------------------------------------------------------------------------
    def _one_batch(self, row: Any, origin: int) -> Iterator[bytes | memoryview]:
        if row["problem"] != BAD_CRC:
            yield from super()._one_batch(row, origin)

    def _damage_of(self, row: Any, found: Damage, rule: str) -> bytes:
        """A batch with a right checksum whose records cannot be read must not count as one without records.

        Raises:
            ReplicaError: always, but where the header is damaged: that was told with the headers.
        """
        if row["problem"] == OK:
            position = int(row["position"])
            text = f"position {position}: {found.expected} was expected in the batch, found {found.found}"
            raise ReplicaError("verify", f"{text}; its records cannot be compared")
        return super()._damage_of(row, found, rule)

    def _hashes_of(self, row: Any, shown: Shown) -> Uint64s:
        """Of the record whose bytes were taken last, uint64[1, HASH_COLUMNS]."""
        return np.array([hashes_of(row, shown, self._taken.bytes.hashed())], np.uint64)

    def _one_record(self, row: Any, shown: Shown) -> Iterator[bytes]:
        yield from ()
        hashed = self._hashes_of(row, shown)
        self._give(hashed, np.ones(1, np.int64), row.reshape(1))


class _Taken(NotedDamage):
    """Also takes the bytes of records that are read one at a time."""

    def __init__(self, secret: Uint64s) -> None:
        super().__init__(records=True)
        self.bytes = RecordBytes(secret)

    def key_begins(self, stream: ByteStream, size: int) -> None:
        """From here on the bytes are the record's body."""
        self.bytes.begin(size)
        stream.on_bytes = self.bytes.take


def hashes_of(row: Any, shown: Shown, found: Hashed) -> tuple[int, ...]:
    """The hashes of one record, the same as the kernel's.

    Args:
        row: of its batch.
        shown: the record, perhaps without its bytes.
        found: hashes of its bytes.
    """
    sequence = int(row["base_sequence"])
    if sequence >= 0:
        sequence += shown.offset - int(row["base_offset"])
    numbers = (
        shown.timestamp,
        shown.key_size,
        int(row["producer_id"]),
        int(row["producer_epoch"]),
        sequence,
    )
    digest = h.digest_of(*map(np.uint64, found.body), *map(np.int64, numbers))
    bits = (h.NO_KEY if shown.key is None else 0) | (h.TOMBSTONE if shown.value is None else 0)
    return *found.key, shown.offset, int(digest), bits


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
    name = ""
    try:
        for base, size in item.segments:
            name = log_name(base)
            with opened_for_reading(item.file(base, ".log"), tree) as descriptor:
                walk = HashWalk(
                    read_into_from(descriptor), size, base, fates, secret, on_hashes, differing,
                    only_differing=not item.keys,
                )  # fmt: skip
                for _ in walk.lines():
                    pass
    except OSError as error:
        raise ReplicaError("unreadable", what_failed(item.place, error, name)) from error
    except ReplicaError as error:
        raise ReplicaError(error.failure, f"{item.place.folder}/{name}, {error}") from error


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
