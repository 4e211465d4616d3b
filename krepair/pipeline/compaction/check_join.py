"""The join of the verification of key compactions: of every key the last record is in the result, or may go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from krepair.formats.arrays import Int64s
from krepair.kernels import check_compacted as v
from krepair.logdir.reading import why
from krepair.pipeline.compaction.check_items import CheckJoinItem
from krepair.pipeline.compaction.rows import RowFile, Rows, cut
from krepair.pipeline.items import Failed, Place
from krepair.pipeline.progress import shown


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
            v.join_rows(rows.rows(item.first, item.after), every, slots, state)
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


def join_items(place: Place, rows: Sequence[RowFile], rows_at_once: int = 1 << 19) -> Iterator[CheckJoinItem]:
    """The items that judge the keys of one partition.

    Args:
        place: of the partition.
        rows: of all its groups.
        rows_at_once: about so many go into one item.
    """
    if not rows:
        return
    counts = np.sum([np.diff(file.starts()) for file in rows], axis=0)
    for first, after in cut(counts, rows_at_once):
        if counts[first:after].any():
            count = int(counts[first:after].sum())
            yield CheckJoinItem(place=place, rows=tuple(rows), first=first, after=after, count=count)
