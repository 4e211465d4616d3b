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
from krepair.formats.damage import Damage
from krepair.formats.filenames import log_name
from krepair.kernels import compact_keys as k
from krepair.kernels import replica_rows as h
from krepair.kernels.columns import BAD_CRC, OK, Batches
from krepair.kernels.compact_records import SLACK, key_hash
from krepair.kernels.replica_rows import body_hash
from krepair.kernels.scan import ReadInto
from krepair.logdir.reading import opened_for_reading, read_into_from
from krepair.look.dump.log_walk import LogWalk
from krepair.look.dump.record import Shown, shown_of
from krepair.replicas.headers import NotedDamage
from krepair.replicas.items import ReplicaItem, RowRun, RowsResult, map_in_parts
from krepair.rewrite.compaction.content import LARGEST_RECORD_BYTES
from krepair.rewrite.compaction.keys import BUCKET_SHIFT
from krepair.rewrite.compaction.rows import BUCKETS
from krepair.scan.byte_stream import ByteStream

OnHashes = Callable[[Uint64s, Int64s, Int64s, Any], None]
"""Takes uint64[N, HASH_COLUMNS] in offset order, and of each batch: int64[B] records, int64[B] fates, uint8[B] whether
digests are wanted."""
OnRows = Callable[[Uint64s], None]
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
        """Of the record whose bytes were taken last, uint64[1, HASH_COLUMNS].

        Raises:
            ReplicaError: it is too large.
        """
        if self._taken.bytes.too_large:
            most, position = LARGEST_RECORD_BYTES, int(row["position"])
            text = f"position {position}: a record of at most {most:,} bytes was expected, it has more"
            raise ReplicaError("verify", f"{text}; its records cannot be compared")
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
            with opened_for_reading(f"{item.place.stem(base)}.log", tree) as descriptor:
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

_CUT: Final = 256


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


class _Finder(HashWalk):
    """Looks at each record of the keys, and keeps of each key what is served last."""

    wanted: np.ndarray[Any, np.dtype[np.uint64]]
    found: dict[tuple[int, int], FoundKey]
    low: int
    high: int

    def _record_lines(self, buf: Any, rows: Any, counts: Any, records: Any) -> Iterator[bytes | memoryview]:
        yield from ()
        out = self.hashed(buf, rows, counts, records)
        chosen = np.flatnonzero(self._chosen(out)).tolist()
        if not chosen:
            return
        fates, ends = self._fates_of(rows), np.cumsum(counts[: len(rows)])
        for place in chosen:
            batch = int(np.searchsorted(ends, place, "right"))
            self._take(out[place], int(fates[batch]), shown_of(rows[batch], records[place], buf))

    def _chosen(self, out: Uint64s) -> Any:
        return np.isin(out[:, h.H_FIRST], self.wanted) if len(self.wanted) else np.ones(len(out), bool)

    def _fates_of(self, rows: Any) -> Int64s:
        fates = np.empty(len(rows), np.int64)
        h.batch_fates(np.ascontiguousarray(rows), self._fates, fates)
        return fates

    def _damage_of(self, row: Any, found: Damage, rule: str) -> bytes:
        """A batch that cannot be read has no key to show."""
        return self._taken.damage(found, rule)

    def _one_record(self, row: Any, shown: Shown) -> Iterator[bytes]:
        yield from ()
        if self._taken.bytes.too_large:
            return
        out = self._hashes_of(row, shown)
        if self._chosen(out)[0]:
            self._take(out[0], int(self._fates_of(row.reshape(1))[0]), shown)

    def _take(self, hashed: Any, fate: int, shown: Shown) -> None:
        if fate == h.MARKER:
            return
        pair = int(hashed[h.H_FIRST]), int(hashed[h.H_SECOND])
        known = self.found.get(pair)
        if known is None:
            known = self.found[pair] = FoundKey(first=pair[0], second=pair[1], key=_cut(shown.key))
        if fate not in {ABORTED, OPEN} and self.low <= shown.offset < self.high:
            self.found[pair] = FoundKey(
                first=pair[0],
                second=pair[1],
                key=known.key,
                offset=shown.offset,
                value=_cut(shown.value),
                value_size=shown.value_size,
            )


def _cut(data: bytes | None) -> bytes | None:
    return None if data is None else data[:_CUT]


@shown("keys")
@in_its_place
def find_keys(item: FindItem, tree: Tree) -> tuple[FoundKey, ...]:
    """Read the log once; of each key that is wanted keep what is served last."""
    replica = item.replica
    table: Int64s = np.frombuffer(replica.transactions, np.int64).reshape(-1, TRANSACTION_COLUMNS)
    fates, secret = fates_of(table), np.frombuffer(replica.secret, np.uint64).copy()
    none = Differing(b"")
    found: dict[tuple[int, int], FoundKey] = {}
    for base, size in replica.segments:
        with opened_for_reading(f"{replica.place.stem(base)}.log", tree) as descriptor:
            finder = _Finder(read_into_from(descriptor), size, base, fates, secret, lambda *_: None, none)
            finder.wanted = np.array([first for first, _ in item.hashes], np.uint64)
            finder.found, finder.low, finder.high = found, item.log_start, item.last_stable_offset
            for _ in finder.lines():
                pass
    wanted = set(item.hashes)
    return tuple(one for pair, one in found.items() if not wanted or pair in wanted)
