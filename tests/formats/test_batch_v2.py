from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krepair.errors import UsageError
from krepair.formats import batch_v2
from krepair.formats.batch_v2 import HEADER, BatchHeader
from krepair.formats.damage import Damage
from tests import encoders
from tests.formats.strategies import BATCH_HEADERS

PLAIN = BatchHeader(100, 0, 5, 2, 0, 0x17, 9, 1000, 2000, 7, 3, 40, 10)
BATCHES = st.lists(st.tuples(BATCH_HEADERS, st.binary(max_size=50)), max_size=5).map(tuple)


def test_header_layout_places_are_those_of_the_protocol() -> None:
    expected = {
        "base_offset": 0,
        "batch_length": 8,
        "partition_leader_epoch": 12,
        "magic": 16,
        "crc": 17,
        "attributes": 21,
        "last_offset_delta": 23,
        "base_timestamp": 27,
        "max_timestamp": 35,
        "producer_id": 43,
        "producer_epoch": 51,
        "base_sequence": 53,
        "record_count": 57,
    }
    assert {name: HEADER.place(name) for name in HEADER.names} == expected
    assert [(place, name) for place, _, name, _ in HEADER.table()] == [(p, n) for n, p in expected.items()]
    assert {name: HEADER.dtype.fields[name][1] for name in HEADER.names} == expected  # type: ignore[index]


@given(BATCHES)
def test_encoded_batches_decode_to_what_was_encoded(items: tuple[tuple[BatchHeader, bytes], ...]) -> None:
    data = b"".join(batch_v2.encode_batch(*item) for item in items)
    found = encoders.decode_batches(data)
    assert batch_v2.damage(data) == []
    assert sum(batch.header.size_bytes for batch in found) == len(data)
    assert [
        (
            batch.header._replace(batch_length=0, crc=0),
            data[batch.position + 61 :][: batch.header.size_bytes - 61],
        )
        for batch in found
    ] == list(items)


@given(BATCH_HEADERS, st.binary(max_size=30), st.data())
def test_one_flipped_bit_under_the_crc_is_damage(
    header: BatchHeader, records: bytes, data: st.DataObject
) -> None:
    batch = bytearray(batch_v2.encode_batch(header, records))
    place = data.draw(st.integers(batch_v2.CRC_START, len(batch) - 1))
    batch[place] ^= 1 << data.draw(st.integers(0, 7))
    assert [found.position for found in batch_v2.damage(batch)] == [0]


def test_flipped_leader_epoch_is_not_seen_because_the_crc_does_not_cover_it() -> None:
    batch = bytearray(batch_v2.encode_batch(PLAIN, b"records"))
    batch[HEADER.place("partition_leader_epoch")] ^= 1
    assert batch_v2.damage(batch) == []


@pytest.mark.parametrize("change", [-1, 1])
def test_buffer_one_byte_short_or_long_has_damage_at_the_end(change: int) -> None:
    batch = batch_v2.encode_batch(PLAIN, b"records")
    data = batch + batch[:-1] if change < 0 else batch + b"\0"
    (wrong,) = batch_v2.damage(data)
    assert (wrong.position, wrong.length) == (len(batch), len(data) - len(batch))


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("magic", 1, "magic 2"),
        ("magic", -3, "magic 2"),
        ("batch_length", 48, "batch length of at least 49"),
        ("batch_length", -(2**31), "batch length of at least 49"),
        ("batch_length", 2**31 - 1, "a batch of 2147483659 bytes"),
        ("last_offset_delta", -1, "last offset delta of 0 or more"),
        ("record_count", -1, "record count of 0 or more"),
    ],
)
def test_absurd_header_field_is_named_as_damage(field: str, value: int, expected: str) -> None:
    header = PLAIN._replace(batch_length=49, record_count=0)._replace(**{field: value})
    (wrong,) = batch_v2.damage(HEADER.pack(header))
    assert (wrong.position, wrong.length, wrong.expected) == (0, 61, expected)


def test_zero_filled_tail_is_damage_to_its_end() -> None:
    batch = batch_v2.encode_batch(PLAIN, b"records")
    assert batch_v2.damage(batch + bytes(4096)) == [Damage(len(batch), 4096, "magic 2", "magic 0")]


def test_emptied_batch_keeps_offsets_producer_and_bits_and_forgets_codec_horizon_and_base_time() -> None:
    header = PLAIN._replace(attributes=0x04 | 0x08 | 0x10 | 0x20 | 0x40 | 0x100)
    empty = batch_v2.empty_batch(header)
    assert len(empty) == 61
    assert batch_v2.damage(empty) == []
    assert batch_v2.decode_header(empty) == header._replace(
        batch_length=49,
        crc=batch_v2.computed_crc(empty, 0, 61),
        attributes=0x08 | 0x10 | 0x20,
        base_timestamp=-1,
        record_count=0,
    )


@given(BATCH_HEADERS)
def test_emptying_twice_is_emptying_once(header: BatchHeader) -> None:
    once = batch_v2.empty_batch(header)
    assert batch_v2.empty_batch(batch_v2.decode_header(once)) == once


def test_properties_read_the_bits_they_are_named_after() -> None:
    header = PLAIN._replace(attributes=0x40 | 0x20 | 0x03)
    assert (header.codec, header.is_control, header.is_transactional) == (3, True, False)
    assert (PLAIN.last_offset, PLAIN.is_log_append_time) == (109, False)
    assert (header.has_producer_id, header._replace(producer_id=-1).has_producer_id) == (True, False)


def test_sequence_wraps_to_zero_after_the_largest_int() -> None:
    assert batch_v2.next_sequence(2**31 - 1, 1) == 0


def test_header_past_the_end_is_wrong_use() -> None:
    with pytest.raises(UsageError, match="needs 61 bytes"):
        batch_v2.decode_header(bytes(61), 1)


def test_number_too_large_for_its_field_is_wrong_use() -> None:
    with pytest.raises(UsageError, match="does not fit"):
        batch_v2.encode_batch(PLAIN._replace(producer_epoch=2**15), b"")
