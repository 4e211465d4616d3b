from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krepair.formats import batch_v2, compression, control, record, varint
from krepair.formats.batch_v2 import BatchHeader
from krepair.formats.damage import Damage
from krepair.formats.record import Record
from tests import builders, encoders
from tests.formats.strategies import INT32, INT64, RECORDS

LISTS = st.lists(RECORDS, max_size=5).map(tuple)
CODECS = list(compression.Codec)


def batch_of(items: tuple[Record, ...], codec: int = 0) -> bytes:
    header = BatchHeader(100, 0, 0, 2, 0, codec, max(len(items) - 1, 0), 1000, 2000, -1, -1, -1, len(items))
    return batch_v2.encode_batch(header, encoders.compress(codec, encoders.encode_records(items)))


@given(INT32)
def test_varint_reads_what_it_wrote(value: int) -> None:
    data = builders.varint(value)
    assert varint.read_varint(data, 0, len(data)) == (value, len(data))
    assert varint.read_varint(data, 0, len(data) - 1) is None


@given(INT64)
def test_varlong_reads_what_it_wrote(value: int) -> None:
    data = builders.varint(value)
    assert varint.read_varlong(data, 0, len(data)) == (value, len(data))
    assert varint.read_varlong(data, 0, len(data) - 1) is None


@pytest.mark.parametrize(
    ("value", "data"), [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (64, "8001"), (-(2**31), "ffffffff0f")]
)
def test_varint_bytes_are_those_of_zig_zag(value: int, data: str) -> None:
    raw = bytes.fromhex(data)
    assert varint.read_varint(raw, 0, len(raw)) == (value, len(raw))


def test_varint_longer_than_its_type_is_none() -> None:
    assert varint.read_varint(b"\x80" * 5 + b"\x00", 0, 6) is None
    assert varint.read_varlong(b"\x80" * 10 + b"\x00", 0, 11) is None
    assert varint.read_varint(b"\x82\x00", 0, 2) == (1, 2)


@pytest.mark.parametrize("codec", CODECS)
@given(items=LISTS)
def test_records_of_a_batch_are_read_whatever_its_codec(codec: int, items: tuple[Record, ...]) -> None:
    assert tuple(record.batch_records(batch_of(items, codec))) == items


@given(LISTS, st.integers(1, 30))
def test_records_cut_short_are_damage(items: tuple[Record, ...], cut: int) -> None:
    data = encoders.encode_records(items)
    if data:
        found = encoders.record_damage(data[: max(0, len(data) - cut)], len(items))
        assert len(found) == 1


def test_one_byte_or_one_record_too_much_is_damage_where_it_starts() -> None:
    data = encoders.encode_records((Record(key=b"k"),))
    assert [wrong.position for wrong in encoders.record_damage(data + b"\0", 1)] == [len(data)]
    assert [wrong.position for wrong in encoders.record_damage(data + data, 1)] == [len(data)]
    assert [wrong.expected for wrong in encoders.record_damage(data, 2)] == ["2 records"]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"\0\0\0\x01\x01", "no number of headers before the record's end"),
        (b"\0\0\0\x01\x01\x01", "-1 headers in 0 bytes"),
        (b"\0\0\0\x01\x01\x02", "1 headers in 0 bytes"),
        (b"\0\0\0\x7e\x01\0", "a key of 63 bytes in 2"),
        (b"\0\0\0\x01\x01\x02\x01\x01", "a null header key"),
        (b"\0\0\0\x01\x01\0\0", "1 bytes more than the record's fields"),
        (b"", "no attributes before the record's end"),
    ],
)
def test_record_whose_fields_do_not_fit_is_named(body: bytes, found: str) -> None:
    data = builders.varint(len(body)) + body
    assert [wrong.found for wrong in encoders.record_damage(data, 1)] == [found]


def test_damage_in_a_compressed_batch_covers_its_records_and_says_where_inside() -> None:
    stored = encoders.compress(1, b"\x7e")
    header = BatchHeader(0, 0, 0, 2, 0, 1, 0, 0, 0, -1, -1, -1, 1)
    (wrong,) = record.batch_records(b"....." + batch_v2.encode_batch(header, stored), 5)
    assert isinstance(wrong, Damage)
    assert (wrong.position, wrong.length) == (66, len(stored))
    assert wrong.found.endswith("(at byte 0 when decompressed)")


def test_record_numbers_are_relative_to_their_batch() -> None:
    header = BatchHeader(100, 0, 0, 2, 0, 0, 9, 1000, 2000, 7, 0, 2**31 - 1, 10)
    item = Record(timestamp_delta=-5, offset_delta=3)
    assert (item.offset(header), item.timestamp(header), item.sequence(header)) == (103, 995, 2)
    appended = header._replace(attributes=batch_v2.LOG_APPEND_TIME, base_sequence=-1)
    assert (item.timestamp(appended), item.sequence(appended)) == (2000, -1)


def test_control_values_decode_to_what_was_encoded_and_longer_ones_are_taken() -> None:
    key = control.ControlKey(0, control.ControlType.COMMIT)
    assert control.decode_key(encoders.encode_control_key(key)) == key
    assert control.decode_key(encoders.encode_control_key(key) + b"more") == key
    marker = control.EndTxnMarker(0, 2**31 - 1)
    assert control.decode_end_txn(encoders.encode_end_txn(marker)) == marker
    assert [control.ControlKey(0, kind).is_end_txn for kind in (0, 1, 2, -1)] == [True, True, False, False]


@pytest.mark.parametrize("data", [None, b"", b"\0\0\0", b"\xff\xff\0\0\0\0"])
def test_impossible_control_values_are_damage(data: bytes | None) -> None:
    assert isinstance(control.decode_key(data), Damage)
    assert isinstance(control.decode_end_txn(data), Damage)
