"""Reads the versions of all records in a coordinator topic, which the next broker version has to understand."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from krepair.durable.tree import Tree
from krepair.engine.items import LogsItem
from krepair.engine.place import with_log_dir
from krepair.engine.progress import shown_as
from krepair.formats import batch_v2
from krepair.formats.arrays import Int64s
from krepair.kernels import dump_rows as r
from krepair.look.coordinators.walk import CoordinatorRecords, in_a_buffer
from krepair.scan.log_records import LargeRecordRead, RecordsRead

TOMBSTONE = -1
_CUT_BYTES = 1 << 20
_SHIFT = 1 << 17
"""Factor that combines the versions of key and value into one number; larger than any version of a value."""


class RecordVersion(Struct, frozen=True, kw_only=True):
    """One combination of versions in a partition.

    Attributes:
        key: version of the key, which tells the type of the record.
        value: version of the value; -1 for a tombstone.
        first_offset: offset of the first such record.
    """

    key: int
    value: int
    first_offset: int


class RecordVersions(Struct, frozen=True, kw_only=True):
    """Versions of the records of one partition.

    Attributes:
        found: each combination, by key and value.
        damages: number of ranges that were skipped.
    """

    found: tuple[RecordVersion, ...] = ()
    damages: int = 0


@shown_as("versions")
@with_log_dir
def read_record_versions(item: LogsItem, tree: Tree) -> RecordVersions:
    """Read the versions of all records of one partition, even superseded records: a broker loads each of them."""
    first: dict[tuple[int, int], int] = {}
    log = CoordinatorRecords(item, tree, _CUT_BYTES)
    for part in log.parts():
        for key, value, offset in _versions(in_a_buffer(part) if isinstance(part, LargeRecordRead) else part):
            first.setdefault((key, value), offset)
    found = (
        RecordVersion(key=key, value=value, first_offset=offset)
        for (key, value), offset in sorted(first.items())
    )
    return RecordVersions(found=tuple(found), damages=log.damages)


def _versions(part: RecordsRead) -> list[tuple[int, int, int]]:
    """Return each combination of versions in a part, with the first offset of each."""
    of_batch = np.repeat(np.arange(len(part.batches)), part.counts)
    data = (part.batches["attributes"][of_batch] & batch_v2.CONTROL) == 0
    data &= part.records[:, r.R_KEY_SIZE] >= 2
    rows, of_batch = part.records[data], of_batch[data]
    if not len(rows):
        return []
    key = _int16_at(part.buffer, rows[:, r.R_KEY])
    value = np.where(
        rows[:, r.R_VALUE_SIZE] >= 2,
        _int16_at(part.buffer, np.where(rows[:, r.R_VALUE_SIZE] >= 2, rows[:, r.R_VALUE], 0)),
        TOMBSTONE,
    )
    offsets = part.batches["base_offset"][of_batch] + rows[:, r.R_OFFSET_DELTA]
    _, places = np.unique(key * _SHIFT + value, return_index=True)
    return [(int(key[at]), int(value[at]), int(offsets[at])) for at in places]


def _int16_at(buffer: Int64s, places: Int64s) -> Int64s:
    """Return the big-endian numbers of two bytes at some places."""
    number = (buffer[places].astype(np.int64) << 8) | buffer[places + 1]
    return np.where(number >= 1 << 15, number - (1 << 16), number)
