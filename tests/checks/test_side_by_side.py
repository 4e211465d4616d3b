"""Two logs side by side: common parts, missing parts, and where they diverge, whatever the windows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from krepair.checks.side_by_side import SideBySide, batches_of, side_by_side
from krepair.formats.arrays import Int64s
from tests.builders import data, reading

Rows = dict[int, int]
logs = st.dictionaries(st.integers(0, 60), st.integers(0, 2), max_size=40)


def windows(rows: Rows, size: int) -> Iterator[Int64s]:
    table = np.array(sorted(rows.items()), np.int64).reshape(-1, 2)
    for start in range(0, len(table), size):
        yield table[start : start + size]


def slowly(one: Rows, other: Rows) -> SideBySide:
    first_end, second_end = (max(each, default=-1) + 1 for each in (one, other))
    common = min(first_end, second_end)
    differ = sorted(offset for offset in one.keys() & other.keys() if one[offset] != other[offset])
    return SideBySide(
        same=sum(one[offset] == other[offset] for offset in one.keys() & other.keys()),
        differ=len(differ),
        first_difference=differ[0] if differ else -1,
        only_first=sum(offset < common and offset not in other for offset in one),
        only_second=sum(offset < common and offset not in one for offset in other),
        first_end=first_end,
        second_end=second_end,
        after_second=sum(offset >= common and offset not in other for offset in one),
        after_first=sum(offset >= common and offset not in one for offset in other),
    )


@given(logs, logs, st.integers(1, 7), st.integers(1, 7))
def test_windows_of_any_size_give_what_a_dictionary_gives(one: Rows, other: Rows, first: int, second: int):
    assert side_by_side(windows(one, first), windows(other, second)) == slowly(one, other)


def test_a_log_and_its_beginning_agree_and_another_value_tells_where_they_part():
    whole = b"".join(data(offset, 2).raw for offset in range(0, 20, 2))
    part = b"".join(data(offset, 2).raw for offset in range(0, 12, 2))
    other = part[: len(part) // 6 * 4] + b"".join(data(o, 2, timestamp=7).raw for o in range(8, 12, 2))

    def read(raw: bytes) -> Iterator[Int64s]:
        return batches_of([(reading(raw), len(raw))])

    assert side_by_side(read(whole), read(part)) == SideBySide(
        same=6, first_end=20, second_end=12, after_second=4
    )
    parted = side_by_side(read(whole), read(other))
    assert (parted.agree, parted.same, parted.differ, parted.first_difference) == (False, 4, 2, 9)
