from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krepair.formats import producer_snapshot
from krepair.formats.damage import Damage
from krepair.formats.producer_snapshot import ENTRY, ProducerEntry, ProducerSnapshot
from tests import encoders
from tests.formats.strategies import values_of

ENTRIES = st.lists(values_of(ENTRY).map(ProducerEntry._make), max_size=6).map(tuple)
ONE = ProducerEntry(7, 3, 41, 1000, 2, 1_700_000_000_000, 5, 998)


@given(ENTRIES)
def test_snapshot_decodes_to_what_was_encoded(entries: tuple[ProducerEntry, ...]) -> None:
    data = encoders.encode_snapshot(entries)
    assert producer_snapshot.decode(data) == ProducerSnapshot(entries)
    assert [tuple(row) for row in producer_snapshot.view(data).tolist()] == list(entries)


@given(ENTRIES)
def test_table_gives_back_the_bytes_it_was_read_from(entries: tuple[ProducerEntry, ...]) -> None:
    data = encoders.encode_snapshot(entries)
    assert producer_snapshot.table(data).tolist() == [list(entry) for entry in entries]
    assert producer_snapshot.encode_table(producer_snapshot.table(data)) == data


def test_of_garbage_only_the_head_is_read() -> None:
    read = []

    def take(start: int, end: int) -> bytes:
        read.append((start, end))
        return b"\xde\xad\xbe\xef" * 3

    found = producer_snapshot.damage_in(100 << 20, take)
    assert found is not None
    assert read == [(0, 10)]


@given(ENTRIES, st.data())
def test_one_flipped_bit_anywhere_is_damage(entries: tuple[ProducerEntry, ...], draw: st.DataObject) -> None:
    data = bytearray(encoders.encode_snapshot(entries))
    data[draw.draw(st.integers(0, len(data) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    assert isinstance(producer_snapshot.decode(data), Damage)


@pytest.mark.parametrize("change", [-1, 1])
def test_snapshot_one_byte_short_or_long_is_damage(change: int) -> None:
    data = encoders.encode_snapshot([ONE, ONE])
    changed = data[:-1] if change < 0 else data + b"\0"
    found = producer_snapshot.decode(changed)
    assert isinstance(found, Damage)
    assert (found.position, found.expected) == (6, "2 entries")


@pytest.mark.parametrize("count", [-1, 2**31 - 1, -(2**31)])
def test_absurd_entry_count_is_damage_and_takes_no_memory(count: int) -> None:
    data = bytearray(encoders.encode_snapshot([ONE]))
    data[6:10] = count.to_bytes(4, "big", signed=True)
    assert isinstance(producer_snapshot.decode(data), Damage)


def test_empty_and_zero_filled_snapshots_are_damage() -> None:
    assert producer_snapshot.decode(b"") == Damage(0, 0, "at least 10 bytes", "0 bytes")
    assert producer_snapshot.decode(bytes(100)) == Damage(0, 100, "version 1", "version 0")


def test_open_transaction_is_one_with_a_first_offset() -> None:
    assert ONE.has_open_txn
    assert not ONE._replace(current_txn_first_offset=-1).has_open_txn
