"""Counts what key compaction makes of the records of ``__consumer_offsets``: by kind of record, and by group.

A key of that topic begins with its version, which is the kind, and the length and the bytes of the group's id
(``CoordinatorRecordType``, 4.3; ``GroupMetadataManager.readMessageKey``, 2.2.1).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from krepair.formats import batch_v2
from krepair.kernels import dump_rows as r
from krepair.kernels.compact_records import is_aborted
from krepair.kernels.jit import inlined, kernel
from krepair.kernels.words import be16

KINDS: Final = 66
OTHER_KIND: Final = 64  # versions of keys past those, and keys that are too short for one
NO_KEY: Final = 65

# columns of a kind
K_RECORDS: Final = 0
K_KEPT: Final = 1
K_SUPERSEDED: Final = 2
K_TOMBSTONES_DROPPED: Final = 3
K_TOMBSTONES_KEPT: Final = 4
K_ABORTED: Final = 5
K_BYTES: Final = 6  # of the records, uncompressed
K_BYTES_KEPT: Final = 7
KIND_COLUMNS: Final = 8

# columns of a group
G_NAME: Final = 0  # place in the arena
G_NAME_SIZE: Final = 1
G_RECORDS: Final = 2
G_KEPT: Final = 3
G_BYTES: Final = 4
G_BYTES_KEPT: Final = 5
GROUP_COLUMNS: Final = 6

# scalars of the state
S_BATCH: Final = 0  # from which batch on to go on
S_RECORD: Final = 1  # its first record
S_GROUPS: Final = 2
S_ARENA: Final = 3  # bytes used
STATE_SIZE: Final = 4

# inputs
N_NOW_MS: Final = 0
N_DROP_UNSTAMPED: Final = 1
N_FORCED: Final = 2

_SKIPPED: Final = batch_v2.CONTROL
_TRANSACTIONAL: Final = batch_v2.TRANSACTIONAL
_STAMPED: Final = batch_v2.DELETE_HORIZON


@inlined
def _hash(buf: Any, start: Any, size: Any) -> Any:
    found = np.uint64(1469598103934665603)
    for step in range(size):
        found = (found ^ np.uint64(buf[start + step])) * np.uint64(1099511628211)
    return found ^ (found >> np.uint64(29))


@kernel
def group_row(buf: Any, start: int, size: int, groups: Any, slots: Any, arena: Any, state: Any) -> int:
    """The row of a group; it is entered if it is not there."""
    mask = np.uint64(slots.shape[0] - 1)
    at = _hash(buf, start, size) & mask
    while slots[at] >= 0:
        row = groups[slots[at]]
        if row[G_NAME_SIZE] == size:
            same = True
            for step in range(size):
                if arena[row[G_NAME] + step] != buf[start + step]:
                    same = False
                    break
            if same:
                return int(slots[at])
        at = (at + np.uint64(1)) & mask
    new = state[S_GROUPS]
    state[S_GROUPS] += 1
    slots[at] = new
    groups[new, :] = 0
    groups[new, G_NAME] = state[S_ARENA]
    groups[new, G_NAME_SIZE] = size
    for step in range(size):
        arena[state[S_ARENA] + step] = buf[start + step]
    state[S_ARENA] += size
    return int(new)


@inlined
def arena_needed(records: Any, first: Any, count: Any) -> Any:
    """Bytes that the keys of some records take: no name is longer than its key."""
    needed = 0
    for place in range(first, first + count):
        needed += max(records[place, r.R_KEY_SIZE], 0)
    return needed


@kernel
def count_keys(
    buf: Any,
    batches: Any,
    counts: Any,
    records: Any,
    stays: Any,
    aborted: Any,
    inputs: Any,
    kinds: Any,
    groups: Any,
    slots: Any,
    arena: Any,
    state: Any,
) -> bool:
    """Count the records of batches.

    Args:
        buf: uint8[W], where the records lie.
        batches: int64[B, BATCH_COLUMNS].
        counts: int64[B], records of each.
        records: int64[N, RECORD_COLUMNS].
        stays: int64[M] of offsets, ascending: the last record of each key.
        aborted: int64[A, 3], see ``is_aborted``.
        inputs: int64[3].
        kinds: int64[KINDS, KIND_COLUMNS], counted up.
        groups: int64[G, GROUP_COLUMNS], counted up.
        slots: int32[S], a power of two, -1 where free: rows of ``groups``.
        arena: uint8[N], the names of groups.
        state: int64[STATE_SIZE].

    Returns:
        Whether all are counted; else ``groups``, ``slots`` or ``arena`` have to grow, and it goes on where it was.
    """
    while state[S_BATCH] < batches.shape[0]:
        # a batch may name as many new groups as it has records
        count = counts[state[S_BATCH]]
        if (
            2 * (state[S_GROUPS] + count) >= groups.shape[0]
            or state[S_ARENA] + arena_needed(records, state[S_RECORD], count) >= arena.shape[0]
        ):
            return False
        batch = batches[state[S_BATCH]]
        first = state[S_RECORD]
        after = first + counts[state[S_BATCH]]
        attributes = batch[r.B_ATTRIBUTES]
        if attributes & _SKIPPED == 0:
            gone = attributes & _TRANSACTIONAL != 0 and is_aborted(
                aborted, batch[r.B_PRODUCER_ID], batch[r.B_BASE_OFFSET]
            )
            past = inputs[N_DROP_UNSTAMPED] != 0
            if batch[r.B_MAGIC] >= 2 and attributes & _STAMPED != 0:
                past = batch[r.B_BASE_TIMESTAMP] <= inputs[N_NOW_MS]
            for place in range(first, after):
                record = records[place]
                size = record[r.R_SIZE]
                if size == 0:  # of a message of v0 or v1
                    size = max(record[r.R_KEY_SIZE], 0) + max(record[r.R_VALUE_SIZE], 0)
                kind = NO_KEY
                group = -1
                if record[r.R_KEY_SIZE] >= 0:
                    kind = OTHER_KIND
                    key = record[r.R_KEY]
                    if record[r.R_KEY_SIZE] >= 4:
                        version = be16(buf, key)
                        if 0 <= version < OTHER_KIND:
                            kind = version
                        length = be16(buf, key + 2)
                        if 0 <= length <= record[r.R_KEY_SIZE] - 4:
                            group = group_row(buf, key + 4, length, groups, slots, arena, state)
                offset = batch[r.B_BASE_OFFSET] + record[r.R_OFFSET_DELTA]
                kinds[kind, K_RECORDS] += 1
                kinds[kind, K_BYTES] += size
                kept = False
                if gone:
                    kept = offset == inputs[N_FORCED]
                    if not kept:
                        kinds[kind, K_ABORTED] += 1
                elif kind == NO_KEY:
                    kept = True
                else:
                    at = np.searchsorted(stays, offset)
                    last = at < stays.shape[0] and stays[at] == offset
                    kept = last or offset == inputs[N_FORCED]
                    if not kept:
                        kinds[kind, K_SUPERSEDED] += 1
                    elif last and record[r.R_VALUE_SIZE] < 0:
                        if past and offset != inputs[N_FORCED]:
                            kept = False
                            kinds[kind, K_TOMBSTONES_DROPPED] += 1
                        else:
                            kinds[kind, K_TOMBSTONES_KEPT] += 1
                if group >= 0:
                    groups[group, G_RECORDS] += 1
                    groups[group, G_BYTES] += size
                if kept:
                    kinds[kind, K_KEPT] += 1
                    kinds[kind, K_BYTES_KEPT] += size
                    if group >= 0:
                        groups[group, G_KEPT] += 1
                        groups[group, G_BYTES_KEPT] += size
        state[S_RECORD] = after
        state[S_BATCH] += 1
    return True
