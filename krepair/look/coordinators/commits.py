"""Finds the committed offset of each group and partition in ``__consumer_offsets``, for ``krepair groups``.

A transactional commit is *waiting* until the marker of its producer: after a COMMIT it is valid, provided that its
record has a higher offset than the present commit and than the last tombstone of its key. Records are kept as columns,
and merged as soon as there are as many as known keys. So memory grows with the number of keys, not with the log, and no
Python code runs for a single record.

Source: OffsetMetadataManager.replay and replayEndTransactionMarker (4.3), GroupMetadataManager.doLoadGroupsAndOffsets
(2.2.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from krepair.formats import batch_v2
from krepair.formats.arrays import Int64s
from krepair.formats.group_metadata import OFFSET_COMMIT
from krepair.kernels import dump_rows as r
from krepair.look.dump.lines import big_endian, gathered

LARGEST_RECORD: Final = 1 << 22

# Kinds of rows; the first kinds are rows that result from an earlier merge.
_KEY, _COMMIT, _TOMBSTONE, _TXN_COMMIT, _TXN_TOMBSTONE, _ABORTED, _COMMITTED = range(7)
# Columns of a row.
_KIND: Final = 0
_OFFSET: Final = 1  # of the record; of a key that of its last tombstone, -1 for none
_PRODUCER: Final = 2
_EPOCH: Final = 3
_TXN: Final = (
    4  # of a commit: whether it was part of a transaction; of one that waits: whether it has begun to
)
_COMMITS: Final = 5  # number of records with a value that the row represents
_TOMBSTONES: Final = 6
_COLUMNS: Final = 7
_VERSION_BYTES: Final = 2
_MANY_ROWS: Final = 1 << 14
_MANY_BYTES: Final = 1 << 24


class StoredCommit(NamedTuple):
    """State of a key, as bytes.

    Attributes:
        key: key without its version.
        value: value with its version; None if nothing is committed.
        record_offset: offset of the record that holds the commit, -1 for none.
        transactional: True if that record was part of a transaction.
        commits: number of records of the key with a value.
        tombstones: number of records of the key without a value.
    """

    key: bytes
    value: bytes | None
    record_offset: int
    transactional: bool
    commits: int
    tombstones: int


class StoredPending(NamedTuple):
    """Transactional commit whose marker has not arrived."""

    key: bytes
    value: bytes
    record_offset: int
    producer_id: int
    producer_epoch: int


class _Rows(NamedTuple):
    """Records, or merged rows: int64[_COLUMNS, N], and pyarrow arrays of N keys and values."""

    numbers: Int64s
    keys: Any
    values: Any

    def some(self, rows: Any) -> _Rows:
        places = pa.array(rows)
        return _Rows(self.numbers[:, rows], self.keys.take(places), self.values.take(places))

    @property
    def bytes(self) -> int:
        return int(self.keys.nbytes + self.values.nbytes)


def _concatenate(parts: list[_Rows]) -> _Rows:
    return _Rows(
        np.concatenate([part.numbers for part in parts], axis=1),
        pa.concat_arrays([part.keys for part in parts]),
        pa.concat_arrays([part.values for part in parts]),
    )


class Commits:
    """Commits of one partition, in the order of its log."""

    def __init__(self) -> None:
        none = pa.array([], pa.large_binary())
        self._known = _Rows(np.empty((_COLUMNS, 0), np.int64), none, none)
        self._new: list[_Rows] = []
        self._new_rows = self._new_bytes = 0

    def take(self, buf: Any, batches: Any, counts: Any, records: Any, lowest: int) -> list[tuple[Any, Any]]:
        """Add records in order.

        Args:
            buf: uint8[W], buffer that holds the records.
            batches: batches of the log, ``columns.BATCH``[B].
            counts: int64[B], number of records in each batch.
            records: records of the batches, int64[N, RECORD_COLUMNS].
            lowest: lowest offset whose records are used.

        Returns:
            (row of the batch, row of the record) of each record that is not a commit, in their order.
        """
        of = np.repeat(np.arange(len(batches)), counts[: len(batches)])
        records = records[: len(of)]
        rows: Int64s = np.zeros((_COLUMNS, len(of)), np.int64)
        rows[_OFFSET] = batches["base_offset"][of] + records[:, r.R_OFFSET_DELTA]
        rows[_PRODUCER], rows[_EPOCH] = batches["producer_id"][of], batches["producer_epoch"][of]
        attributes = batches["attributes"][of]
        counted = rows[_OFFSET] >= lowest
        control = attributes & batch_v2.CONTROL != 0
        marker = _number(buf, records, counted & control, _VERSION_BYTES)
        version = _number(buf, records, counted & ~control, 0)
        commit = (version >= 0) & (version <= OFFSET_COMMIT)
        rows[_TXN] = attributes & batch_v2.TRANSACTIONAL != 0
        rows[_TOMBSTONES] = commit & (records[:, r.R_VALUE_SIZE] < 0)
        rows[_COMMITS] = commit & (records[:, r.R_VALUE_SIZE] >= 0)
        kinds = np.where(rows[_TXN], _TXN_COMMIT, _COMMIT) + rows[_TOMBSTONES]
        rows[_KIND] = np.where(commit, kinds, _ABORTED + marker)
        rows[_TXN] &= rows[_COMMITS]
        kept = np.flatnonzero(commit | (marker == 0) | (marker == 1))
        of_kept = records[kept]
        key_sizes = np.where(commit[kept], of_kept[:, r.R_KEY_SIZE] - _VERSION_BYTES, 0)
        value_sizes = np.where(commit[kept], of_kept[:, r.R_VALUE_SIZE], 0)
        self._add(
            _Rows(
                rows[:, kept],
                gathered(buf, of_kept[:, r.R_KEY] + _VERSION_BYTES, key_sizes).cast(pa.large_binary()),
                gathered(buf, of_kept[:, r.R_VALUE], value_sizes).cast(pa.large_binary()),
            )
        )
        others = np.flatnonzero(counted & ~control & ~commit).tolist()
        return [(batches[of[row]], records[row]) for row in others]

    def _add(self, rows: _Rows) -> None:
        self._new.append(rows)
        self._new_rows += len(rows.keys)
        self._new_bytes += rows.bytes
        known = self._known
        if self._new_rows > max(_MANY_ROWS, len(known.keys)) or self._new_bytes > max(
            _MANY_BYTES, known.bytes
        ):
            self._merge()

    def _merge(self) -> None:
        """Merge all rows: each key has one row, one more for its valid commit, and one for each waiting commit."""
        if not self._new:
            return
        rows = _concatenate([self._known, *self._new])
        self._new, self._new_rows, self._new_bytes = [], 0, 0
        numbers = rows.numbers
        kinds, offsets = numbers[_KIND], numbers[_OFFSET]
        of_key = kinds < _ABORTED
        encoded = rows.keys.filter(pa.array(of_key)).dictionary_encode()
        key: Int64s = np.full(len(kinds), -1, np.int64)
        key[of_key] = encoded.indices.to_numpy(zero_copy_only=False)
        count = len(encoded.dictionary)

        # Records without a transaction: the last record of each key is valid, and cancels all records before it.
        plain = np.flatnonzero((kinds == _COMMIT) | (kinds == _TOMBSTONE))
        last = np.full(count, -1)
        last[key[plain]] = plain
        tombstone = np.full(count, -1)
        deleted = np.flatnonzero((kinds == _KEY) | (kinds == _TOMBSTONE))
        tombstone[key[deleted]] = offsets[deleted]
        held = np.where((last >= 0) & (kinds[last] == _COMMIT), last, -1)

        waiting, committed, marker = _markers_of_commits(numbers, key)
        newest = np.maximum(np.where(held >= 0, offsets[held], -1), tombstone)
        owner = key[committed]
        counts = (marker > last[owner]) & (offsets[committed] > newest[owner])
        committed = committed[counts]
        committed = committed[np.lexsort((-committed, offsets[committed]))]
        held[key[committed]] = committed
        numbers[_TXN, committed] = 1

        keys: Int64s = np.zeros((_COLUMNS, count), np.int64)
        keys[_OFFSET] = tombstone
        for column in (_COMMITS, _TOMBSTONES):
            np.add.at(keys[column], key[of_key], numbers[column, of_key])
        numbers[[_COMMITS, _TOMBSTONES]] = 0
        there = held[held >= 0]
        kinds[there] = _COMMIT
        nothing = pa.repeat(pa.scalar(b"", pa.large_binary()), count)
        self._known = _concatenate(
            [_Rows(keys, encoded.dictionary, nothing), rows.some(there), rows.some(waiting)]
        )

    def commits(self) -> Iterator[StoredCommit]:
        """Yield the state of every key in the log."""
        self._merge()
        numbers, keys, values = self._known
        held = {
            key: (value, offset, bool(txn))
            for key, value, kind, offset, txn in _of(
                keys, values, numbers[_KIND], numbers[_OFFSET], numbers[_TXN]
            )
            if kind == _COMMIT
        }
        for key, kind, commits, tombstones in _of(
            keys, numbers[_KIND], numbers[_COMMITS], numbers[_TOMBSTONES]
        ):
            if kind == _KEY:
                yield StoredCommit(key, *held.get(key, (None, -1, False)), commits, tombstones)

    def pending(self) -> Iterator[StoredPending]:
        """Yield every transactional commit whose marker has not arrived."""
        self._merge()
        numbers = self._known.numbers
        waits = np.flatnonzero(numbers[_KIND] == _TXN_COMMIT)
        some = self._known.some(waits)
        columns = (some.numbers[column] for column in (_OFFSET, _PRODUCER, _EPOCH))
        for row in _of(some.keys, some.values, *columns):
            yield StoredPending(*row)


def _of(*columns: Any) -> Iterator[Any]:
    return zip(
        *(column.tolist() if isinstance(column, np.ndarray) else column.to_pylist() for column in columns),
        strict=True,
    )


def _number(buf: Any, records: Any, wanted: Any, place: int) -> Int64s:
    """Read two bytes at a position of the records' keys; -1 if not wanted, or if the key is shorter."""
    values = np.full(len(records), -1)
    read = wanted & (records[:, r.R_KEY_SIZE] >= place + 2)
    values[read] = big_endian(buf, records[read, r.R_KEY] + place, 2)
    return values


def _markers_of_commits(numbers: Int64s, key: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Find the markers of transactional commits.

    Args:
        numbers: int64[_COLUMNS, N]; the epoch of a waiting commit is set to that of the first commit in its
            transaction.
        key: int64[N], number of each row's key.

    Returns:
        (rows of waiting commits, rows of committed commits, rows of the COMMIT markers of the latter).
    """
    kinds, producers = numbers[_KIND], numbers[_PRODUCER]
    rows = np.flatnonzero((kinds == _TXN_COMMIT) | (kinds == _TXN_TOMBSTONE))
    markers = np.flatnonzero(kinds >= _ABORTED)
    if not len(rows):
        return rows, rows, rows
    _, numbered = np.unique(np.concatenate([producers[rows], producers[markers]]), return_inverse=True)
    producer, ending = numbered[: len(rows)], numbered[len(rows) :]
    # A transaction is everything that one producer wrote up to its next marker.
    by_producer = np.lexsort((markers, ending))
    markers, ending = markers[by_producer], ending[by_producer]
    many = len(kinds) + 1
    transaction = np.searchsorted(ending * many + markers, producer * many + rows)
    ended = transaction < len(markers)
    ended[ended] = ending[transaction[ended]] == producer[ended]
    transaction = np.where(ended, transaction, len(markers) + producer)
    grouped = np.lexsort((rows, key[rows], transaction))
    rows, transaction, ended = rows[grouped], transaction[grouped], ended[grouped]
    alike = (transaction[1:] == transaction[:-1]) & (key[rows[1:]] == key[rows[:-1]])
    firsts = np.flatnonzero(np.concatenate([[True], ~alike]))
    lasts = np.concatenate([firsts[1:], [len(rows)]]) - 1
    # A tombstone before the first commit of its transaction cancels nothing.
    begun = np.minimum.reduceat(np.where(numbers[_TXN, rows] != 0, np.arange(len(rows)), len(rows)), firsts)
    good = begun < len(rows)
    firsts, lasts, begun = firsts[good], lasts[good], begun[good]
    row, done = rows[lasts], ended[lasts]
    numbers[_EPOCH, row] = numbers[_EPOCH, rows[begun]]
    numbers[_TXN, row] = 1
    of_marker = np.where(done, markers[np.where(done, transaction[lasts], 0)] if len(markers) else 0, -1)
    committed = done & (kinds[row] == _TXN_COMMIT) & (kinds[of_marker] == _COMMITTED)
    return row[~done], row[committed], of_marker[committed]
