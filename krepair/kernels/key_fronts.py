"""The fronts of keys of ``__consumer_offsets``: what tells the kind of record, and the group.

A key begins with its version, which tells the kind. Then come the length and the bytes of the group id. Records are
counted by front while their keys are found: a front is looked up once for a key, and not once for a record.

Source: CoordinatorRecordType (4.3), GroupMetadataManager.readMessageKey (2.2.1).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from krepair.kernels.jit import inlined, kernel
from krepair.kernels.words import be16, byte_at, le64

# columns of a front; those of a group in the census are the same
FRONT_PLACE: Final = 0  # its place in the names
FRONT_SIZE: Final = 1
FRONT_RECORDS: Final = 2
FRONT_BYTES: Final = 4
FRONT_COLUMNS: Final = 6

# how much of the tables is used
USED_ROWS: Final = 0
USED_NAMES: Final = 1
USED_SIZE: Final = 2

NO_ROOM: Final = -1
VERSION: Final = 2
"""Bytes of the version."""
BEFORE_GROUP: Final = 4
"""Bytes of the version and of the length of the group id."""


@inlined
def _hash(buf: Any, start: Any, size: Any) -> Any:
    found = np.uint64(1469598103934665603)
    place, end = np.int64(start), np.int64(start + size)
    while place + 8 <= end:
        found = (found ^ le64(buf, place)) * np.uint64(1099511628211)
        found ^= found >> np.uint64(32)
        place += 8
    while place < end:
        found = (found ^ np.uint64(byte_at(buf, place))) * np.uint64(1099511628211)
        place += 1
    return found ^ (found >> np.uint64(29))


@inlined
def _same(one: Any, place: Any, other: Any, other_place: Any, size: Any) -> Any:
    step = np.int64(0)
    while step + 8 <= size and le64(one, place + step) == le64(other, other_place + step):
        step += 8
    while step < size and byte_at(one, place + step) == byte_at(other, other_place + step):
        step += 1
    return step >= size


@kernel
def name_row(buf: Any, start: int, size: int, rows: Any, slots: Any, names: Any, used: Any) -> int:
    """Row of a name, which is ``buf[start:start + size]``; a new name gets a new row, for which there is room.

    Args:
        buf: uint8[W].
        start: its place.
        size: its bytes.
        rows: int64[F, FRONT_COLUMNS].
        slots: int32[S], a power of two and more than F, -1 where free: rows.
        names: uint8[N], one after the other.
        used: int64[USED_SIZE].
    """
    mask = np.uint64(slots.shape[0] - 1)
    at = _hash(buf, start, size) & mask
    while slots[at] >= 0:
        row = rows[slots[at]]
        if row[FRONT_SIZE] == size and _same(names, row[FRONT_PLACE], buf, start, size):
            return int(slots[at])
        at = (at + np.uint64(1)) & mask
    new = used[USED_ROWS]
    used[USED_ROWS] += 1
    slots[at] = new
    rows[new, :] = 0
    rows[new, FRONT_PLACE] = used[USED_NAMES]
    rows[new, FRONT_SIZE] = size
    for step in range(size):
        names[used[USED_NAMES] + step] = buf[start + step]
    used[USED_NAMES] += size
    return int(new)


@inlined
def front_size(buf: Any, key: Any, key_size: Any) -> Any:
    """Bytes of the front of a key: up to the end of the group id; of the version where there is none; or 0."""
    size = np.int64(0)
    if key_size >= BEFORE_GROUP:
        length = be16(buf, key + VERSION)
        size = np.int64(BEFORE_GROUP + length if 0 <= length <= key_size - BEFORE_GROUP else VERSION)
    return size


@kernel
def front_row(buf: Any, key: int, key_size: int, fronts: Any, slots: Any, names: Any, used: Any) -> int:
    """Row of the front of a key, see ``name_row``; ``NO_ROOM`` if there may be no room for a new one."""
    size = front_size(buf, key, key_size)
    if used[USED_ROWS] >= fronts.shape[0] or used[USED_NAMES] + size > names.shape[0]:
        return NO_ROOM
    return int(name_row(buf, key, size, fronts, slots, names, used))
