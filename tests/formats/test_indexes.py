from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krepair.formats import offset_index, time_index, txn_index
from krepair.formats.damage import Damage
from krepair.formats.txn_index import AbortedTxn
from tests import encoders
from tests.encoders import OffsetEntry, TimeEntry

INT31 = st.integers(1, 2**31 - 1)
INT63 = st.integers(1, 2**63 - 1)


def growing(numbers: st.SearchStrategy[int], count: int) -> st.SearchStrategy[list[int]]:
    return st.lists(numbers, min_size=count, max_size=count, unique=True).map(sorted)


@st.composite
def offset_files(draw: st.DrawFn) -> tuple[OffsetEntry, ...]:
    count = draw(st.integers(0, 8))
    return tuple(map(OffsetEntry, draw(growing(INT31, count)), draw(growing(INT31, count))))


@st.composite
def time_files(draw: st.DrawFn) -> tuple[TimeEntry, ...]:
    count = draw(st.integers(0, 8))
    return tuple(map(TimeEntry, draw(growing(INT63, count)), draw(growing(INT31, count))))


@st.composite
def txn_files(draw: st.DrawFn) -> tuple[AbortedTxn, ...]:
    last_offsets = draw(growing(INT63, draw(st.integers(0, 8))))
    return tuple(
        AbortedTxn(0, draw(INT63), draw(st.integers(0, last)), last, draw(INT63)) for last in last_offsets
    )


ENTRIES: dict[ModuleType, st.SearchStrategy[Any]] = {
    offset_index: offset_files(),
    time_index: time_files(),
    txn_index: txn_files(),
}


@pytest.mark.parametrize("module", ENTRIES)
@given(st.data())
def test_index_decodes_to_what_was_encoded(module: ModuleType, draw: st.DataObject) -> None:
    entries = draw.draw(ENTRIES[module])
    data = encoders.encode_index(module, entries)
    assert module.damage(data) == []
    assert encoders.decode_index(module, data) == entries
    assert [tuple(row) for row in module.view(data).tolist()] == [tuple(entry) for entry in entries]


@pytest.mark.parametrize("module", [offset_index, time_index, txn_index])
@pytest.mark.parametrize("extra", [-1, 1])
def test_file_one_byte_short_or_long_is_torn(module: ModuleType, extra: int) -> None:
    one = [1] * len(module.ENTRY.names)
    two = [2] * len(module.ENTRY.names)
    if module is txn_index:
        one[0] = two[0] = 0
    data = (encoders.encode_index(module, [one, two]) + b"\1")[: 2 * module.ENTRY_SIZE + extra]
    torn = len(data) % module.ENTRY_SIZE
    expected = f"a multiple of {module.ENTRY_SIZE} bytes"
    assert module.damage(data) == [Damage(len(data) - torn, torn, expected, f"{len(data)} bytes")]


@pytest.mark.parametrize(
    ("module", "entries"),
    [
        (offset_index, [OffsetEntry(5, 4100), OffsetEntry(9, 9000)]),
        (time_index, [TimeEntry(5, 3), TimeEntry(9, 7)]),
    ],
)
def test_untrimmed_index_is_damaged_from_its_last_entry_on(
    module: ModuleType, entries: list[tuple[int, int]]
) -> None:
    data, zeros = encoders.encode_index(module, entries), bytes(1000 * module.ENTRY_SIZE)
    expected = Damage(len(data), len(zeros), "a file cut to its entries", "zero padding")
    assert module.damage(data + zeros) == [expected]
    assert encoders.decode_index(module, data + zeros) == encoders.decode_index(module, data)


def test_time_index_with_one_entry_of_time_zero_is_sound() -> None:
    assert time_index.damage(bytes(12)) == []
    assert encoders.decode_time_index(bytes(12)) == (TimeEntry(0, 0),)


def test_wholly_preallocated_indexes_hold_no_entries() -> None:
    assert [wrong.position for wrong in offset_index.damage(bytes(80))] == [0]
    assert [wrong.position for wrong in time_index.damage(bytes(120))] == [0]
    assert (encoders.decode_offset_index(bytes(80)), encoders.decode_time_index(bytes(120))) == ((), ())


@pytest.mark.parametrize(
    ("entries", "position", "expected"),
    [
        ([(5, 10), (5, 20)], 8, "relative_offset above 5 of the entry before"),
        ([(5, 10), (6, 10)], 8, "position above 10 of the entry before"),
        ([(-5, 10)], 0, "relative_offset of 0 or more"),
        ([(1, -10), (5, 10)], 0, "position of 0 or more"),
    ],
)
def test_offset_index_out_of_order_is_named(entries: list[OffsetEntry], position: int, expected: str) -> None:
    first = offset_index.damage(encoders.encode_offset_index(entries))[0]
    assert (first.position, first.expected) == (position, expected)


def test_time_index_may_repeat_an_offset_but_not_a_time() -> None:
    assert time_index.damage(encoders.encode_time_index([TimeEntry(1, 5), TimeEntry(2, 5)])) == []
    (wrong,) = time_index.damage(encoders.encode_time_index([TimeEntry(2, 5), TimeEntry(2, 6)]))
    assert wrong == Damage(12, 12, "timestamp above 2 of the entry before", "2")


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (AbortedTxn(1, 1, 1, 200, 1), "version 0"),
        (AbortedTxn(0, -1, 1, 200, 1), "producer_id of 0 or more"),
        (AbortedTxn(0, 1, 201, 200, 1), "first_offset not above last_offset"),
        (AbortedTxn(0, 1, 1, 99, 1), "last_offset of 100 or more"),
    ],
)
def test_impossible_aborted_transaction_is_named(entry: AbortedTxn, expected: str) -> None:
    assert [wrong.expected for wrong in txn_index.damage(txn_index.encode([entry]), 100)] == [expected]
