"""Counts which records of ``__consumer_offsets`` key compaction keeps: by kind of record, and by group.

A key of that topic begins with its version, which tells the kind of record. Then come the length and the bytes of the
group id.

Source: CoordinatorRecordType (4.3), GroupMetadataManager.readMessageKey (2.2.1).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from krepair.formats import batch_v2
from krepair.kernels import dump_rows as r
from krepair.kernels.compact_filter import is_among
from krepair.kernels.compact_records import (
    F_KEY,
    F_KEY_SIZE,
    F_OFFSET,
    F_VALUE_SIZE,
    FIELD_COUNT,
    is_aborted,
    read_record,
)
from krepair.kernels.jit import inlined, kernel
from krepair.kernels.key_fronts import (
    BEFORE_GROUP,
    FRONT_BYTES,
    FRONT_COLUMNS,
    FRONT_PLACE,
    FRONT_RECORDS,
    FRONT_SIZE,
    USED_SIZE,
    VERSION,
    front_size,
    name_row,
)
from krepair.kernels.next_batch import next_batch
from krepair.kernels.scan_window import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    HEADER,
    LAST_DELTA,
    MAGIC,
    PRODUCER_ID,
    RECORD_COUNT,
)
from krepair.kernels.words import be16, be32, be64, byte_at

KINDS: Final = 66
OTHER_KIND: Final = 64  # keys with a higher version, and keys that are too short for a version
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

# columns of a group: those of a name, see ``key_fronts``
G_NAME: Final = FRONT_PLACE  # place of the name in the arena
G_NAME_SIZE: Final = FRONT_SIZE
G_RECORDS: Final = FRONT_RECORDS
G_KEPT: Final = 3
G_BYTES: Final = FRONT_BYTES
G_BYTES_KEPT: Final = 5
GROUP_COLUMNS: Final = FRONT_COLUMNS

# scalars of the state
S_GROUPS: Final = 0
S_ARENA: Final = 1  # bytes of the arena that are used
S_BATCH: Final = USED_SIZE  # next batch
S_RECORD: Final = USED_SIZE + 1  # first record of that batch
STATE_SIZE: Final = USED_SIZE + 2 + FIELD_COUNT  # the last places hold the fields of a record

# how ``count_window`` ended
NEED_BYTES: Final = 0
OTHER: Final = 1
TABLES_FULL: Final = 2

# inputs
N_NOW_MS: Final = 0
N_DROP_UNSTAMPED: Final = 1
N_FORCED: Final = 2
N_DROP_STAMPED: Final = 3
N_ONLY_KEPT: Final = 4  # whether all records were counted already, and only those that stay are counted here
INPUT_SIZE: Final = 5

_SKIPPED: Final = batch_v2.CONTROL
_TRANSACTIONAL: Final = batch_v2.TRANSACTIONAL
_STAMPED: Final = batch_v2.DELETE_HORIZON


@kernel
def add_groups(names: Any, rows: Any, groups: Any, slots: Any, arena: Any, state: Any) -> bool:
    """Add the counts of groups that were counted elsewhere.

    Args:
        names: uint8[N], their names.
        rows: int64[M, GROUP_COLUMNS].
        groups: int64[G, GROUP_COLUMNS], counted up.
        slots: int32[S], see ``count_keys``.
        arena: uint8[V], see ``count_keys``.
        state: int64[STATE_SIZE].

    Returns:
        Whether there was room for all of them; if not, nothing was added.
    """
    if state[S_GROUPS] + rows.shape[0] > groups.shape[0] or state[S_ARENA] + names.shape[0] > arena.shape[0]:
        return False
    for number in range(rows.shape[0]):
        row = name_row(names, rows[number, G_NAME], rows[number, G_NAME_SIZE], groups, slots, arena, state)
        for column in range(G_RECORDS, GROUP_COLUMNS):
            groups[row, column] += rows[number, column]
    return True


@inlined
def _kind(buf: Any, front: Any, size: Any) -> Any:
    """The kind of a record, from the front of its key, see ``key_fronts``."""
    kind = np.int64(OTHER_KIND)
    if size >= VERSION:
        version = be16(buf, front)
        if 0 <= version < OTHER_KIND:
            kind = np.int64(version)
    return kind


@kernel
def add_fronts(names: Any, fronts: Any, kinds: Any, groups: Any, slots: Any, arena: Any, state: Any) -> None:
    """Add the records and bytes that were counted by the fronts of their keys.

    Args:
        names: uint8[N], the fronts.
        fronts: int64[F, FRONT_COLUMNS].
        kinds: int64[KINDS, KIND_COLUMNS], counted up.
        groups: int64[G, GROUP_COLUMNS], counted up; has room for as many groups as there are fronts.
        slots: int32[S], see ``count_keys``.
        arena: uint8[V], see ``count_keys``; has room for ``names``.
        state: int64[STATE_SIZE].
    """
    for number in range(fronts.shape[0]):
        place, size = fronts[number, FRONT_PLACE], fronts[number, FRONT_SIZE]
        kind = _kind(names, place, size)
        kinds[kind, K_RECORDS] += fronts[number, FRONT_RECORDS]
        kinds[kind, K_BYTES] += fronts[number, FRONT_BYTES]
        if size >= BEFORE_GROUP:
            row = name_row(names, place + BEFORE_GROUP, size - BEFORE_GROUP, groups, slots, arena, state)
            groups[row, G_RECORDS] += fronts[number, FRONT_RECORDS]
            groups[row, G_BYTES] += fronts[number, FRONT_BYTES]


@inlined
def arena_needed(records: Any, first: Any, count: Any) -> Any:
    """Bytes of the keys of some records; their names need no more room, since a name is shorter than its key."""
    needed = 0
    for place in range(first, first + count):
        needed += max(records[place, r.R_KEY_SIZE], 0)
    return needed


@inlined
def _count(
    buf: Any, key: Any, key_size: Any, value_size: Any, size: Any, offset: Any, last: Any, gone: Any, past: Any,
    inputs: Any, kinds: Any, groups: Any, slots: Any, arena: Any, state: Any,
) -> None:  # fmt: skip
    """Count one record.

    ``last``: the last of its key. ``gone``: its transaction was aborted. ``past``: tombstones of its batch may go.
    """
    kind = np.int64(NO_KEY)
    group = -1
    if key_size >= 0:
        size_of_front = front_size(buf, key, key_size)
        kind = _kind(buf, key, size_of_front)
        if size_of_front >= BEFORE_GROUP:
            group = name_row(
                buf, key + BEFORE_GROUP, size_of_front - BEFORE_GROUP, groups, slots, arena, state
            )
    if inputs[N_ONLY_KEPT] == 0:
        kinds[kind, K_RECORDS] += 1
        kinds[kind, K_BYTES] += size
        if group >= 0:
            groups[group, G_RECORDS] += 1
            groups[group, G_BYTES] += size
    kept = False
    if gone:
        kept = offset == inputs[N_FORCED]
        if not kept:
            kinds[kind, K_ABORTED] += 1
    elif kind == NO_KEY:
        kept = True
    else:
        kept = last or offset == inputs[N_FORCED]
        if not kept:
            kinds[kind, K_SUPERSEDED] += 1
        elif last and value_size < 0:
            if past and offset != inputs[N_FORCED]:
                kept = False
                kinds[kind, K_TOMBSTONES_DROPPED] += 1
            else:
                kinds[kind, K_TOMBSTONES_KEPT] += 1
    if kept:
        kinds[kind, K_KEPT] += 1
        kinds[kind, K_BYTES_KEPT] += size
        if group >= 0:
            groups[group, G_KEPT] += 1
            groups[group, G_BYTES_KEPT] += size


@kernel
def count_window(
    buf: Any, filled: int, stays: Any, held: Any, aborted: Any, inputs: Any, kinds: Any, groups: Any, slots: Any,
    arena: Any, state: Any,
) -> Any:  # fmt: skip
    """Count the records of uncompressed v2 batches that lie whole in a window. Their checksums were checked before.

    Args:
        buf: uint8[W + SLACK].
        filled: bytes of it that are valid.
        stays: see ``count_keys``.
        held: see ``count_keys``.
        aborted: see ``count_keys``.
        inputs: see ``count_keys``.
        kinds: see ``count_keys``.
        groups: see ``count_keys``.
        slots: see ``count_keys``.
        arena: see ``count_keys``.
        state: int64[STATE_SIZE]; here ``S_BATCH`` is the place of the next batch in the window, and ``S_RECORD`` the
            index of the first offset in ``stays`` that is not below that batch.

    Returns:
        ``NEED_BYTES`` at the end of the window, ``OTHER`` if the batch at ``S_BATCH`` is of another kind,
        ``TABLES_FULL`` if a table has to grow.
    """
    fields = state[STATE_SIZE - FIELD_COUNT :]
    while state[S_BATCH] + HEADER <= filled:
        place = np.int64(state[S_BATCH])
        size = next_batch(buf, place, buf.shape[0])
        if size == 0 or byte_at(buf, place + MAGIC) != 2:
            return OTHER
        end = place + size
        if end > filled:
            break
        attributes, count = be16(buf, place + ATTRIBUTES), be32(buf, place + RECORD_COUNT)
        base_offset, cursor = be64(buf, place + BASE_OFFSET), np.int64(state[S_RECORD])
        wanted = attributes & _SKIPPED == 0 and count > 0
        if wanted and inputs[N_ONLY_KEPT] != 0:
            last_offset = base_offset + be32(buf, place + LAST_DELTA)
            while cursor < stays.shape[0] and stays[cursor] < base_offset:
                cursor += 1
            state[S_RECORD] = cursor
            wanted = (cursor < stays.shape[0] and stays[cursor] <= last_offset) or (
                base_offset <= inputs[N_FORCED] <= last_offset
            )
        if wanted:
            if attributes & batch_v2.CODEC_MASK != 0:
                return OTHER
            # a batch may name as many new groups as it has records, and no name is longer than its batch
            if 2 * (state[S_GROUPS] + count) >= groups.shape[0] or state[S_ARENA] + size >= arena.shape[0]:
                return TABLES_FULL
            at, number = place + HEADER, np.int64(0)
            while number < count and at > 0:  # the whole batch is read before anything of it is counted
                at = read_record(buf, at, end, fields)
                number += 1
            if at != end:
                return OTHER
            gone = attributes & _TRANSACTIONAL != 0 and is_aborted(
                aborted, be64(buf, place + PRODUCER_ID), base_offset
            )
            past = inputs[N_DROP_UNSTAMPED] != 0
            if attributes & _STAMPED != 0:
                past = inputs[N_DROP_STAMPED] != 0 and be64(buf, place + BASE_TIMESTAMP) <= inputs[N_NOW_MS]
            at = place + HEADER
            for _ in range(count):
                # the loop above has just read the fields of the only record
                after = read_record(buf, at, end, fields) if count > 1 else end
                offset = base_offset + fields[F_OFFSET]
                while cursor < stays.shape[0] and stays[cursor] < offset:
                    cursor += 1
                last = cursor < stays.shape[0] and stays[cursor] == offset
                if last or inputs[N_ONLY_KEPT] == 0 or offset == inputs[N_FORCED]:
                    _count(
                        buf, fields[F_KEY], fields[F_KEY_SIZE], fields[F_VALUE_SIZE], after - at, offset, last, gone,
                        past and not is_among(held, offset), inputs, kinds, groups, slots, arena, state,
                    )  # fmt: skip
                at = after
            state[S_RECORD] = cursor
        state[S_BATCH] = end
    return NEED_BYTES


@kernel
def count_keys(
    buf: Any,
    batches: Any,
    counts: Any,
    records: Any,
    stays: Any,
    held: Any,
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
        buf: uint8[W], holds the records.
        batches: int64[B, BATCH_COLUMNS].
        counts: int64[B], records of each batch.
        records: int64[N, RECORD_COLUMNS].
        stays: int64[M], ascending offsets of the last record of each key.
        held: int64[H], ascending offsets of tombstones that stay whatever their time.
        aborted: int64[A, 3], see ``is_aborted``.
        inputs: int64[INPUT_SIZE], by ``N_*``.
        kinds: int64[KINDS, KIND_COLUMNS], counted up.
        groups: int64[G, GROUP_COLUMNS], counted up.
        slots: int32[S], a power of two, -1 where free: rows of ``groups``.
        arena: uint8[N], the names of groups.
        state: int64[STATE_SIZE].

    Returns:
        Whether all are counted. If not, ``groups``, ``slots`` or ``arena`` has to grow; the next call goes on.
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
                past = inputs[N_DROP_STAMPED] != 0 and batch[r.B_BASE_TIMESTAMP] <= inputs[N_NOW_MS]
            for place in range(first, after):
                record = records[place]
                size = record[r.R_SIZE]
                if size == 0:  # a message of v0 or v1 has no size of its own here
                    size = max(record[r.R_KEY_SIZE], 0) + max(record[r.R_VALUE_SIZE], 0)
                offset = batch[r.B_BASE_OFFSET] + record[r.R_OFFSET_DELTA]
                at = np.searchsorted(stays, offset)
                last = at < stays.shape[0] and stays[at] == offset
                if last or inputs[N_ONLY_KEPT] == 0 or offset == inputs[N_FORCED]:
                    _count(
                        buf, record[r.R_KEY], record[r.R_KEY_SIZE], record[r.R_VALUE_SIZE], size, offset, last, gone,
                        past and not is_among(held, offset), inputs, kinds, groups, slots, arena, state,
                    )  # fmt: skip
        state[S_RECORD] = after
        state[S_BATCH] += 1
    return True
