"""Hypothesis strategies for the values of the formats."""

from __future__ import annotations

from hypothesis import strategies as st

from krepair.formats.batch_v2 import BatchHeader
from krepair.formats.layout import Layout
from krepair.formats.record import Record, RecordHeader


def integers_of(type_name: str) -> st.SearchStrategy[int]:
    bits = 8 * int(type_name[1])
    if type_name[0] == "u":
        return st.integers(0, 2**bits - 1)
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def values_of(layout: Layout) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*(integers_of(field.type) for field in layout.fields))


INT32 = integers_of("i4")
INT64 = integers_of("i8")
NULLABLE = st.none() | st.binary(max_size=40)

RECORDS = st.builds(
    Record,
    attributes=integers_of("i1"),
    timestamp_delta=INT64,
    offset_delta=INT32,
    key=NULLABLE,
    value=NULLABLE,
    headers=st.lists(st.builds(RecordHeader, st.binary(max_size=10), NULLABLE), max_size=3).map(tuple),
)

BATCH_HEADERS = st.builds(
    BatchHeader,
    base_offset=st.integers(0, 2**62),
    batch_length=st.just(0),
    partition_leader_epoch=INT32,
    magic=st.just(2),
    crc=st.just(0),
    attributes=integers_of("i2"),
    last_offset_delta=st.integers(0, 2**31 - 1),
    base_timestamp=INT64,
    max_timestamp=INT64,
    producer_id=INT64,
    producer_epoch=integers_of("i2"),
    base_sequence=INT32,
    record_count=st.integers(0, 2**31 - 1),
)
