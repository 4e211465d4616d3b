"""The tables of ``krepair.kernels.group_commits``: grown as they fill, read once the log is at its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from krepair.kernels import dump_rows as r
from krepair.kernels import group_commits as g

_FIRST_ROWS: Final = 1 << 12
_FIRST_ARENA: Final = 1 << 20
_SLOTS_A_ROW: Final = 4
_MOST_OTHERS: Final = 1 << 12


class StoredCommit(NamedTuple):
    """What a key holds, as bytes.

    Attributes:
        key: without its version.
        value: with its version; None if nothing is committed.
        record_offset: of the record that holds it, -1 for none.
        transactional: whether that record was part of a transaction.
        commits: records with a value seen.
        tombstones: records without one seen.
    """

    key: bytes
    value: bytes | None
    record_offset: int
    transactional: bool
    commits: int
    tombstones: int


class StoredPending(NamedTuple):
    """A transactional commit whose marker has not come."""

    key: bytes
    value: bytes
    record_offset: int
    producer_id: int
    producer_epoch: int


def _slots(rows: int) -> Any:
    return np.full(rows * _SLOTS_A_ROW, -1, np.int32)


class CommitTables:
    """All state of one partition's commits."""

    def __init__(self) -> None:
        self._state = np.zeros(g.STATE_SIZE, np.int64)
        self._state[g.S_FREE] = -1
        self._keys: Any = np.empty((_FIRST_ROWS, g.KEY_COLUMNS), np.int64)
        self._key_slots = _slots(_FIRST_ROWS)
        self._arena: Any = np.empty(_FIRST_ARENA, np.uint8)
        self._pending: Any = np.empty((_FIRST_ROWS, g.PENDING_COLUMNS), np.int64)
        self._chains = _slots(_FIRST_ROWS)
        self._producers: Any = np.empty((_FIRST_ROWS, g.PRODUCER_COLUMNS), np.int64)
        self._producer_slots = _slots(_FIRST_ROWS)
        self._others: Any = np.empty((_MOST_OTHERS, 2), np.int64)

    def take(
        self, buf: Any, batches: Any, counts: Any, records: Any, lowest: int
    ) -> Iterator[tuple[Any, Any]]:
        """Take records in order.

        Args:
            buf: as of ``take_commits``, and so the others.
            batches: int64[B, BATCH_COLUMNS].
            counts: int64[B].
            records: int64[N, RECORD_COLUMNS].
            lowest: records of lower offsets do not count.

        Yields:
            (row of the batch, row of the record) of each record that is no commit, in their order.
        """
        state = self._state
        state[[g.S_BATCH, g.S_RECORD, g.S_ROW, g.S_OTHERS]] = 0
        status = g.FULL
        while status != g.DONE:
            status = g.take_commits(
                buf, batches, counts, records, lowest, state, self._keys, self._key_slots, self._arena,
                self._pending, self._chains, self._producers, self._producer_slots, self._others,
            )  # fmt: skip
            if status == g.FULL:
                taken = records[: int(counts[: len(batches)].sum())]
                sizes = np.maximum(taken[:, r.R_KEY_SIZE], 0) + np.maximum(taken[:, r.R_VALUE_SIZE], 0)
                largest = int(sizes.max(initial=0))
                self._grow(largest)
                continue
            for batch, row in self._others[: state[g.S_OTHERS]].tolist():
                yield batches[batch], records[row]
            state[g.S_OTHERS] = 0

    def _grow(self, largest: int) -> None:
        """Make every table larger that has no room for one more record."""
        state = self._state
        if state[g.S_KEYS] + 1 >= len(self._keys):
            self._keys = _doubled(self._keys)
            self._key_slots = _slots(len(self._keys))
            g.fill_slots(self._keys, int(state[g.S_KEYS]), self._arena, self._key_slots)
        if state[g.S_PENDING] + 1 >= len(self._pending):
            self._pending = _doubled(self._pending)
            self._chains = _slots(len(self._pending))
            g.fill_chains(self._pending, self._producers, int(state[g.S_PRODUCERS]), self._chains)
        if state[g.S_PRODUCERS] + 1 >= len(self._producers):
            self._forget_producers()
        while state[g.S_ARENA] + 3 * largest + 1024 > len(self._arena):
            self._arena = _doubled(self._arena)

    def _forget_producers(self) -> None:
        """Producers without a pending commit are not needed; make room if there are few such."""
        used = self._producers[: self._state[g.S_PRODUCERS]]
        waiting = used[used[:, g.O_HEAD] >= 0]
        rows = len(self._producers) * (2 if 2 * len(waiting) >= len(self._producers) else 1)
        self._producers = np.empty((rows, g.PRODUCER_COLUMNS), np.int64)
        self._producers[: len(waiting)] = waiting
        self._state[g.S_PRODUCERS] = len(waiting)
        self._producer_slots = _slots(rows)
        g.fill_producers(self._producers, len(waiting), self._producer_slots)

    def commits(self) -> Iterator[StoredCommit]:
        """Every key that was met."""
        for row in self._keys[: self._state[g.S_KEYS]].tolist():
            there = row[g.K_OFFSET] >= 0
            yield StoredCommit(
                self._bytes(row[g.K_KEY], row[g.K_KEY_SIZE]),
                self._bytes(row[g.K_VALUE], row[g.K_VALUE_SIZE]) if there else None,
                row[g.K_OFFSET],
                bool(row[g.K_TRANSACTIONAL]) and there,
                row[g.K_COMMITS],
                row[g.K_TOMBSTONES],
            )

    def pending(self) -> Iterator[StoredPending]:
        """Every transactional commit whose marker has not come."""
        for head in self._producers[: self._state[g.S_PRODUCERS], g.O_HEAD].tolist():
            at = head
            while at >= 0:
                row = self._pending[at].tolist()
                at = row[g.P_NEXT]
                if row[g.P_OFFSET] < 0:
                    continue  # taken back by a tombstone of its own transaction
                key = self._keys[row[g.P_KEY]]
                yield StoredPending(
                    self._bytes(int(key[g.K_KEY]), int(key[g.K_KEY_SIZE])),
                    self._bytes(row[g.P_VALUE], row[g.P_VALUE_SIZE]),
                    row[g.P_OFFSET],
                    row[g.P_PRODUCER],
                    row[g.P_EPOCH],
                )

    def _bytes(self, place: int, size: int) -> bytes:
        return bytes(self._arena[place : place + size].tobytes())


def _doubled(table: Any) -> Any:
    larger = np.empty((len(table) * 2, *table.shape[1:]), table.dtype)
    larger[: len(table)] = table
    return larger
