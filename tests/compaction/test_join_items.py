"""Join tasks are cut by rows: no task is much larger than the others, however the hashes are distributed."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from krepair.formats.arrays import Int64s
from krepair.kernels.compact_keys import ROW_WORDS
from krepair.rewrite.compaction import partitions as compaction
from krepair.rewrite.compaction.rows import BUCKETS
from krepair.rewrite.compaction.tasks import _offsets_in

ROWS = 1000


def rows_by_bucket(shape: str) -> Int64s:
    """How many rows each bucket has in one segment."""
    choose = np.random.default_rng(1)
    if shape == "even":
        return np.full(BUCKETS, 30, np.int64)
    if shape == "steep":
        return (20_000 * 0.97 ** np.arange(BUCKETS)).astype(np.int64)
    if shape == "one large bucket":
        return np.where(np.arange(BUCKETS) == BUCKETS // 2, 50 * ROWS, 3)
    return choose.integers(0, 2, BUCKETS) * choose.integers(1, 3 * ROWS, BUCKETS)


@pytest.mark.parametrize("shape", ["even", "steep", "one large bucket", "half of them empty"])
def test_tasks_hold_each_row_once_and_no_two_neighbours_could_be_one(
    monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    monkeypatch.setattr(compaction, "_JOIN_ROWS", ROWS)
    rows = rows_by_bucket(shape)
    segments = {base: SimpleNamespace(buckets=rows.tobytes(), files=()) for base in (0, 100)}
    place = SimpleNamespace(place=None, elsewhere=())
    prepared = SimpleNamespace(keys_by_segment=segments, input=place, scratch="")
    items = list(compaction._join_items(prepared))  # type: ignore[arg-type]
    total = 2 * rows
    covered = np.zeros(BUCKETS, np.int64)
    for item in items:
        covered[item.first_bucket : item.after_bucket] += 1
        assert item.rows == total[item.first_bucket : item.after_bucket].sum()
        assert item.rows <= ROWS or np.count_nonzero(total[item.first_bucket : item.after_bucket]) == 1
    assert np.all(covered <= 1)
    assert np.all(covered[total > 0] == 1)
    assert all(one.rows + other.rows > ROWS for one, other in pairwise(items))


@pytest.mark.parametrize("apart", [1, 3, 1000])
@pytest.mark.parametrize("count", [0, 1, 500])
@pytest.mark.parametrize("base", [0, 10**15])
def test_offsets_of_a_table_ascend_whether_they_lie_close_or_far_apart(
    count: int, apart: int, base: int
) -> None:
    wanted = base + apart * np.arange(count)
    table = np.zeros((1 << 10, ROW_WORDS), np.uint64)
    table[np.random.default_rng(1).permutation(1 << 10)[:count], 2] = wanted + 1
    found = _offsets_in(table)
    assert found.dtype == np.int64
    assert found.tolist() == wanted.tolist()
