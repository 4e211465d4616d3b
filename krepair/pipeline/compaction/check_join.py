"""The join of the verification of key compactions: of every key the last record is in the result, or may go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from krepair.formats.arrays import Int64s
from krepair.kernels import check_compacted as v
from krepair.logdir.reading import why
from krepair.pipeline.compaction.check_items import PARTS, CheckedRows, CheckJoinItem
from krepair.pipeline.items import Failed, Place
from krepair.pipeline.progress import shown

Rows = np.ndarray[Any, np.dtype[np.uint64]]


@shown("prove")
def check_join(item: CheckJoinItem) -> int | Failed:
    """Judge the keys of some parts; gives how many there are."""
    size = 1 << 10
    while size < 2 * item.count:
        size *= 2
    every: Rows = np.empty((item.count, v.ROW_WORDS), np.uint64)
    slots = np.full(size, -1, np.int32)
    state: Int64s = np.zeros(v.CHECK_STATE, np.int64)
    try:
        for rows in item.rows:
            v.join_rows(_part_of(rows, item.first, item.after), every, slots, state)
    except OSError as error:
        return Failed("disk", f"{error.filename}: {why(error)}")
    table = every[: state[v.C_ROWS]]
    offset, wrong, keys = v.judge_rows(table, len(table))
    texts = (
        "",
        f"the last record of a key, at offset {offset}, is gone, and it is no tombstone that may go",
        f"of the key whose last record is at offset {offset} the result has another one",
        f"the record at offset {offset} has a key that no committed record of the source has",
        f"the tombstone at offset {offset} is gone, but an older record of its key stays",
    )
    return Failed("verify", texts[wrong]) if wrong else int(keys)


def _part_of(rows: CheckedRows, first: int, after: int) -> Rows:
    front, row = 8 * (PARTS + 1), 8 * v.ROW_WORDS
    if not rows.path:
        starts: Int64s = np.frombuffer(rows.data, np.int64, PARTS + 1)
        every: Rows = np.frombuffer(rows.data, np.uint64, offset=front).reshape(-1, v.ROW_WORDS)
        return every[starts[first] : starts[after]]
    with open(rows.path, "rb") as opened:
        starts = np.fromfile(opened, np.int64, PARTS + 1)
        opened.seek(front + int(starts[first]) * row)
        count = int(starts[after] - starts[first])
        return np.fromfile(opened, np.uint64, count * v.ROW_WORDS).reshape(-1, v.ROW_WORDS)


def _sizes(starts: Int64s) -> Int64s:
    return starts[1:] - starts[:-1]


def join_items(
    place: Place, rows: Sequence[CheckedRows], rows_at_once: int = 1 << 19
) -> Iterator[CheckJoinItem]:
    """The items that judge the keys of one partition.

    Args:
        place: of the partition.
        rows: of all its groups.
        rows_at_once: about so many go into one item.
    """
    counts = np.zeros(PARTS, np.int64)
    for row in rows:
        if row.path:
            with open(row.path, "rb") as opened:
                counts += _sizes(np.fromfile(opened, np.int64, PARTS + 1))
        else:
            counts += _sizes(np.frombuffer(row.data, np.int64, PARTS + 1))
    before = np.append(0, np.cumsum(counts))
    first = 0
    while first < PARTS:
        after = int(np.searchsorted(before, before[first] + rows_at_once, side="right")) - 1
        after = min(max(after, first + 1), PARTS)
        if before[after] > before[first]:
            count = int(before[after] - before[first])
            yield CheckJoinItem(place=place, rows=tuple(rows), first=first, after=after, count=count)
        first = after
