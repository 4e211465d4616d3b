"""Committed offsets of ``__consumer_offsets``, record by record: for each key the last commit that counts.

A transactional commit waits for the marker of its producer. If the marker commits, the commit counts, provided that its
record has a higher offset than the commit that it replaces and than the last tombstone of its key. Keys are compared
byte for byte. Memory grows with the number of keys, not with the log.

Source: OffsetMetadataManager.replay and replayEndTransactionMarker (4.3), GroupMetadataManager.doLoadGroupsAndOffsets
(2.2.1).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from krepair.formats import batch_v2
from krepair.formats.group_metadata import OFFSET_COMMIT
from krepair.kernels import dump_rows as r
from krepair.kernels.jit import inlined, kernel
from krepair.kernels.words import be16, le64

CONTROL, TRANSACTIONAL = batch_v2.CONTROL, batch_v2.TRANSACTIONAL
ABORT, COMMIT = 0, 1

# columns of a key (int64); places are in the arena
K_KEY: Final = 0  # its bytes without the version
K_KEY_SIZE: Final = 1
K_OFFSET: Final = 2  # offset of the record from which the value is, -1 for no commit
K_VALUE: Final = 3
K_VALUE_SIZE: Final = 4
K_ROOM: Final = 5
K_TOMBSTONE: Final = 6  # offset of the last tombstone, -1 none
K_COMMITS: Final = 7
K_TOMBSTONES: Final = 8
K_TRANSACTIONAL: Final = 9
KEY_COLUMNS: Final = 10

# columns of a pending commit
P_KEY: Final = 0  # row of its key in ``keys``
P_PRODUCER: Final = 1
P_OFFSET: Final = 2
P_VALUE: Final = 3
P_VALUE_SIZE: Final = 4
P_ROOM: Final = 5
P_NEXT: Final = 6  # next row of the same producer; of a free row, the next free row
P_CHAIN: Final = 7  # next row in the same slot of ``chains``
P_EPOCH: Final = 8
PENDING_COLUMNS: Final = 9

# columns of a producer with pending commits
O_ID: Final = 0
O_HEAD: Final = 1
PRODUCER_COLUMNS: Final = 2

# scalars of the state
S_KEYS: Final = 0
S_ARENA: Final = 1
S_PENDING: Final = 2  # rows of ``pending`` that were ever used
S_FREE: Final = 3  # first free row of ``pending``, -1 none
S_PRODUCERS: Final = 4
S_BATCH: Final = 5
S_RECORD: Final = 6
S_ROW: Final = 7
S_OTHERS: Final = 8
STATE_SIZE: Final = 9

# how a call ended
DONE: Final = 0
FULL: Final = 1  # a table has no room for one more record; make it larger and call again
OTHERS: Final = 2  # the list of other records is full; take them and call again

LARGEST_RECORD: Final = 1 << 22
_ROOM: Final = 64
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@inlined
def _hash(buf: Any, start: int, size: int) -> Any:
    state = np.uint64(size) * _MULTIPLIER
    place = np.int64(0)
    while place + 8 <= size:
        state = (state ^ le64(buf, start + place)) * _MULTIPLIER
        state ^= state >> np.uint64(29)
        place += 8
    while place < size:
        state = (state ^ np.uint64(buf[start + place])) * _MULTIPLIER
        place += 1
    state ^= state >> np.uint64(32)
    state *= _MULTIPLIER
    return state ^ (state >> np.uint64(29))


@inlined
def _same(arena: Any, place: int, buf: Any, start: int, size: int) -> bool:
    step = 0
    while step < size and arena[place + step] == buf[start + step]:
        step += 1
    return step == size


@kernel
def _key_row(buf: Any, start: int, size: int, keys: Any, slots: Any, arena: Any, state: Any) -> Any:
    """Row of a key; a new key gets a new row."""
    mask = np.int64(slots.shape[0] - 1)
    slot = np.int64(_hash(buf, start, size)) & mask
    while slots[slot] >= 0:
        row = slots[slot]
        if keys[row, K_KEY_SIZE] == size and _same(arena, keys[row, K_KEY], buf, start, size):
            return np.int64(row)
        slot = (slot + 1) & mask
    row = state[S_KEYS]
    state[S_KEYS] += 1
    slots[slot] = row
    keys[row, :] = 0
    keys[row, K_KEY] = state[S_ARENA]
    keys[row, K_KEY_SIZE] = size
    keys[row, K_OFFSET] = -1
    keys[row, K_TOMBSTONE] = -1
    for step in range(size):
        arena[state[S_ARENA] + step] = buf[start + step]
    state[S_ARENA] += size
    return np.int64(row)


@kernel
def fill_slots(keys: Any, count: int, arena: Any, slots: Any) -> None:
    """Enter keys 0..count-1 into a larger, empty ``slots``; see ``take_commits`` for the shapes."""
    mask = np.int64(slots.shape[0] - 1)
    for row in range(count):
        slot = np.int64(_hash(arena, keys[row, K_KEY], keys[row, K_KEY_SIZE])) & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = row


@inlined
def _keep(arena: Any, state: Any, rows: Any, row: int, column: int, buf: Any, start: int, size: int) -> None:
    """Store a value in the room of its row, or in larger room if it does not fit.

    ``column`` holds the place of the room, the next two columns the size of the value and of the room.
    """
    if rows[row, column + 2] < size:
        room = np.int64(_ROOM)
        while room < size:
            room *= 2
        rows[row, column] = state[S_ARENA]
        rows[row, column + 2] = room
        state[S_ARENA] += room
    rows[row, column + 1] = size
    place = rows[row, column]
    for step in range(size):
        arena[place + step] = buf[start + step]


@inlined
def _swap_values(keys: Any, key: Any, pending: Any, row: Any) -> None:
    """Give the pending value to the key. The pending row gets the key's room, so that the room is used again."""
    for step in range(3):
        value = keys[key, K_VALUE + step]
        keys[key, K_VALUE + step] = pending[row, P_VALUE + step]
        pending[row, P_VALUE + step] = value


@inlined
def _pair_slot(key: Any, producer: Any, mask: Any) -> Any:
    mixed = (np.uint64(producer) ^ (np.uint64(key) * _MULTIPLIER)) * _MULTIPLIER
    return np.int64((mixed ^ (mixed >> np.uint64(31))) & np.uint64(mask))


@inlined
def _find_pending(key: int, producer: int, pending: Any, chains: Any) -> Any:
    row = np.int64(chains[_pair_slot(key, producer, chains.shape[0] - 1)])
    while row >= 0 and not (pending[row, P_KEY] == key and pending[row, P_PRODUCER] == producer):
        row = pending[row, P_CHAIN]
    return row


@kernel
def _producer_row(producer: int, producers: Any, slots: Any, state: Any) -> Any:
    mask = np.int64(slots.shape[0] - 1)
    slot = _pair_slot(0, producer, mask)
    while slots[slot] >= 0:
        row = np.int64(slots[slot])
        if producers[row, O_ID] == producer:
            return row
        slot = (slot + 1) & mask
    row = np.int64(state[S_PRODUCERS])
    state[S_PRODUCERS] += 1
    slots[slot] = row
    producers[row, O_ID] = producer
    producers[row, O_HEAD] = -1
    return row


@kernel
def fill_producers(producers: Any, count: int, slots: Any) -> None:
    """Enter producers 0..count-1 into a larger, empty ``slots``; see ``take_commits`` for the shapes."""
    mask = np.int64(slots.shape[0] - 1)
    for row in range(count):
        slot = _pair_slot(0, producers[row, O_ID], mask)
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = row


@kernel
def fill_chains(pending: Any, producers: Any, count: int, chains: Any) -> None:
    """Enter the pending commits of producers 0..count-1 into a larger, empty ``chains``; see ``take_commits``."""
    for producer in range(count):
        row = np.int64(producers[producer, O_HEAD])
        while row >= 0:
            slot = _pair_slot(pending[row, P_KEY], pending[row, P_PRODUCER], chains.shape[0] - 1)
            pending[row, P_CHAIN] = chains[slot]
            chains[slot] = row
            row = pending[row, P_NEXT]


@kernel
def _drop_pending(row: Any, pending: Any, chains: Any, state: Any) -> None:
    """Take a pending commit out of its chain. Its row and its room stay for the next pending commit."""
    slot = _pair_slot(pending[row, P_KEY], pending[row, P_PRODUCER], chains.shape[0] - 1)
    before = np.int64(-1)
    at = np.int64(chains[slot])
    while at != row:
        before = at
        at = pending[at, P_CHAIN]
    if before < 0:
        chains[slot] = pending[row, P_CHAIN]
    else:
        pending[before, P_CHAIN] = pending[row, P_CHAIN]
    pending[row, P_NEXT] = state[S_FREE]
    state[S_FREE] = row


@kernel
def _end_transaction(
    producer: int,
    kind: int,
    keys: Any,
    pending: Any,
    producers: Any,
    producer_slots: Any,
    chains: Any,
    state: Any,
) -> None:
    owner = _producer_row(producer, producers, producer_slots, state)
    row = np.int64(producers[owner, O_HEAD])
    while row >= 0:
        following = pending[row, P_NEXT]
        key = pending[row, P_KEY]
        if kind == COMMIT and pending[row, P_OFFSET] > max(keys[key, K_OFFSET], keys[key, K_TOMBSTONE]):
            _swap_values(keys, key, pending, row)
            keys[key, K_OFFSET] = pending[row, P_OFFSET]
            keys[key, K_TRANSACTIONAL] = 1
        _drop_pending(row, pending, chains, state)
        row = following
    producers[owner, O_HEAD] = -1


@kernel
def _new_pending(
    key: int, batch: Any, pending: Any, producers: Any, producer_slots: Any, chains: Any, state: Any
) -> Any:
    if state[S_FREE] >= 0:
        row = np.int64(state[S_FREE])
        state[S_FREE] = pending[row, P_NEXT]
    else:
        row = np.int64(state[S_PENDING])
        state[S_PENDING] += 1
        pending[row, :] = 0
    owner = _producer_row(batch[r.B_PRODUCER_ID], producers, producer_slots, state)
    pending[row, P_KEY] = key
    pending[row, P_PRODUCER] = batch[r.B_PRODUCER_ID]
    pending[row, P_EPOCH] = batch[r.B_PRODUCER_EPOCH]
    pending[row, P_NEXT] = producers[owner, O_HEAD]
    producers[owner, O_HEAD] = row
    slot = _pair_slot(key, batch[r.B_PRODUCER_ID], chains.shape[0] - 1)
    pending[row, P_CHAIN] = chains[slot]
    chains[slot] = row
    return row


@kernel
def take_commits(
    buf: Any,
    batches: Any,
    counts: Any,
    records: Any,
    lowest: int,
    state: Any,
    keys: Any,
    slots: Any,
    arena: Any,
    pending: Any,
    chains: Any,
    producers: Any,
    producer_slots: Any,
    others: Any,
) -> int:
    """Take the records of batches, in order.

    Args:
        buf: uint8[W], holds the records.
        batches: int64[B, BATCH_COLUMNS], of magic 2.
        counts: int64[B], records of each batch.
        records: int64[N, RECORD_COLUMNS].
        lowest: records with a lower offset do not count.
        state: int64[STATE_SIZE].
        keys: int64[K, KEY_COLUMNS].
        slots: int32[S], a power of two, -1 where free: rows of ``keys`` by hash.
        arena: uint8[A], bytes of keys and values.
        pending: int64[M, PENDING_COLUMNS].
        chains: int32[C], a power of two: rows of ``pending`` by key and producer.
        producers: int64[P, PRODUCER_COLUMNS].
        producer_slots: int32[Q], a power of two: rows of ``producers``.
        others: int64[L, 2], out: (batch, row) of each record whose key is not the key of a commit.

    Returns:
        ``DONE``, ``FULL`` or ``OTHERS``.
    """
    while state[S_BATCH] < batches.shape[0]:
        batch = batches[state[S_BATCH]]
        control = batch[r.B_ATTRIBUTES] & CONTROL != 0
        transactional = batch[r.B_ATTRIBUTES] & TRANSACTIONAL != 0
        while state[S_RECORD] < counts[state[S_BATCH]]:
            record = records[state[S_ROW]]
            start, size = record[r.R_KEY], record[r.R_KEY_SIZE]
            value_size = record[r.R_VALUE_SIZE]
            offset = batch[r.B_BASE_OFFSET] + record[r.R_OFFSET_DELTA]
            full = (
                state[S_KEYS] + 1 >= keys.shape[0]
                or state[S_PENDING] + 1 >= pending.shape[0]
                or state[S_PRODUCERS] + 1 >= producers.shape[0]
                or state[S_ARENA] + 3 * (max(size, 0) + max(value_size, 0)) + 2 * _ROOM > arena.shape[0]
            )
            if full:
                return FULL
            if offset < lowest:
                pass
            elif control:
                kind = be16(buf, start + 2) if size >= 4 else -1
                if kind in (ABORT, COMMIT):
                    _end_transaction(
                        batch[r.B_PRODUCER_ID], kind, keys, pending, producers, producer_slots, chains, state
                    )
            elif size >= 2 and 0 <= be16(buf, start) <= OFFSET_COMMIT:
                key = _key_row(buf, start + 2, size - 2, keys, slots, arena, state)
                if value_size < 0:
                    keys[key, K_TOMBSTONES] += 1
                    if transactional:
                        row = _find_pending(key, batch[r.B_PRODUCER_ID], pending, chains)
                        if row >= 0:
                            pending[row, P_OFFSET] = -1
                    else:
                        keys[key, K_TOMBSTONE] = offset
                        keys[key, K_OFFSET] = -1
                else:
                    keys[key, K_COMMITS] += 1
                    if transactional:
                        row = _find_pending(key, batch[r.B_PRODUCER_ID], pending, chains)
                        if row < 0:
                            row = _new_pending(key, batch, pending, producers, producer_slots, chains, state)
                        pending[row, P_OFFSET] = offset
                        _keep(arena, state, pending, row, P_VALUE, buf, record[r.R_VALUE], value_size)
                    else:
                        keys[key, K_OFFSET] = offset
                        keys[key, K_TRANSACTIONAL] = 0
                        _keep(arena, state, keys, key, K_VALUE, buf, record[r.R_VALUE], value_size)
            else:
                if state[S_OTHERS] >= others.shape[0]:
                    return OTHERS
                others[state[S_OTHERS], 0] = state[S_BATCH]
                others[state[S_OTHERS], 1] = state[S_ROW]
                state[S_OTHERS] += 1
            state[S_RECORD] += 1
            state[S_ROW] += 1
        state[S_BATCH] += 1
        state[S_RECORD] = 0
    return DONE
