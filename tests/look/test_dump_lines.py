"""Lines built from columns equal those of plain Python, byte for byte, and contain no terminal control codes."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from krepair.formats import batch_v2, record
from krepair.formats.words import time_text
from krepair.kernels import dump_rows as r
from krepair.kernels.columns import front_row
from krepair.look.dump.lines import AUTO, BASE64, HEX, LineColumns, gathered, numbers, quoted, text_of, times
from krepair.look.dump.record import BULK_FORMS, RecordLines, Style, json_of
from krepair.scan.log_records import record_at
from tests import encoders

STEERS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
INT64 = st.integers(-(2**63), 2**63 - 1)
ODD = ["\x00", "\x1b[31m", "\x7f", "\x85", "\x9b", "\u061c", "\u200e", "\u2028", "\u202e", "\u2066", '"', "\\", "\t",
       "\ud7ff", "\U0010ffff", "é", "日本", "a" * 40]  # fmt: skip
TEXTS = st.lists(st.sampled_from(ODD) | st.text(st.characters(codec="utf-8"), max_size=12), max_size=6).map(
    "".join
)
BYTES = (
    TEXTS.map(str.encode)
    | st.binary(max_size=30)
    | st.builds(lambda text, raw: text.encode() + raw, TEXTS, st.binary(max_size=4))
)
MAYBE = st.none() | BYTES


def array(data: bytes) -> Any:
    return np.frombuffer(data + bytes(64), np.uint8).copy()


def rows_of(column: Any, count: int) -> list[str]:
    return [column] * count if isinstance(column, str) else column.to_pylist()


def quoted_as(form: int, *pieces: bytes) -> list[tuple[int, str]]:
    """Of each piece the form that it is shown in, and its text; between them lie other bytes."""
    sizes = np.array([len(piece) for piece in pieces])
    places = np.cumsum(sizes + 1) - sizes
    forms, column = quoted(gathered(array(b"\xff" + b"\xff".join(pieces)), places, sizes), form)
    return list(zip(forms.tolist(), rows_of(column, len(pieces)), strict=True))


@given(st.lists(INT64, min_size=1, max_size=4))
@example([0])
@example([-(2**63), 10**8])
def test_numbers_are_written_as_in_plain_python(values: list[int]) -> None:
    assert rows_of(numbers(np.array(values, np.int64)), len(values)) == [str(value) for value in values]


@given(st.lists(INT64 | st.integers(0, 253_402_300_800_000), min_size=1, max_size=4))
@example([951_782_400_000, 253_402_300_799_999])
@example([253_402_300_799_999, 253_402_300_800_000, -1, 0])
def test_times_are_written_as_in_plain_python(values: list[int]) -> None:
    # What is no date is a number in a dump; a person gets words for it.
    expected = [time_text(value) if 0 <= value < 253_402_300_800_000 else str(value) for value in values]
    assert rows_of(times(np.array(values, np.int64)), len(values)) == expected


@given(st.lists(BYTES, min_size=1, max_size=5))
def test_text_is_escaped_as_in_plain_python_and_what_is_no_text_is_base64(pieces: list[bytes]) -> None:
    for data, (form, found) in zip(pieces, quoted_as(AUTO, *pieces), strict=True):
        try:
            text = data.decode()
        except UnicodeDecodeError:
            assert (form, found) == (BASE64, base64.b64encode(data).decode())
            continue
        assert form == AUTO
        assert f'"{found}"'.encode() == json_of(text)
        assert json.loads(f'"{found}"') == text
        assert not STEERS.search(found)


@pytest.mark.parametrize(
    "data",
    [b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x80", b"\xf0\x9f\x98", b"a" * 9 + b"\xff"],
)
def test_overlong_surrogate_and_cut_characters_are_no_text(data: bytes) -> None:
    assert [form for form, _ in quoted_as(AUTO, b"a", data, b"", data)] == [AUTO, BASE64, AUTO, BASE64]


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=5))
def test_bytes_as_hex_and_base64(pieces: list[bytes]) -> None:
    assert quoted_as(HEX, *pieces) == [(HEX, data.hex()) for data in pieces]
    assert quoted_as(BASE64, *pieces) == [(BASE64, base64.b64encode(data).decode()) for data in pieces]


RECORDS = st.builds(
    record.Record,
    attributes=st.just(0),
    timestamp_delta=st.integers(-(2**40), 2**40),
    offset_delta=st.integers(0, 2**31 - 1),
    key=MAYBE,
    value=MAYBE,
    headers=st.lists(st.builds(record.RecordHeader, key=BYTES, value=MAYBE), max_size=3).map(tuple),
)
ATTRIBUTES = st.sampled_from(
    [
        0,
        batch_v2.LOG_APPEND_TIME,
        batch_v2.TRANSACTIONAL,
        batch_v2.TRANSACTIONAL | batch_v2.CONTROL,
        batch_v2.DELETE_HORIZON,
    ]
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(RECORDS, max_size=4),
    ATTRIBUTES,
    st.integers(0, 2**62),
    st.sampled_from([-1, 0, 2**31 - 1]),
    st.booleans(),
    st.sampled_from(sorted(BULK_FORMS)),
    st.sampled_from(sorted(BULK_FORMS)),
)
def test_lines_of_records_are_those_of_plain_python(
    records: list[record.Record],
    attributes: int,
    base_offset: int,
    base_sequence: int,
    as_json: bool,
    keys: str,
    values: str,
) -> None:
    header = batch_v2.BatchHeader(
        base_offset,
        0,
        3,
        2,
        0,
        attributes,
        9,
        1_700_000_000_000,
        1_700_000_000_999,
        7,
        1,
        base_sequence,
        len(records),
    )
    raw = batch_v2.encode_batch(header, encoders.encode_records(records))
    lines = RecordLines(Style(as_json=as_json), keys, values)
    buf = array(raw)
    rows = front_row(buf, 0, -1)
    found, counts = np.empty((9, r.RECORD_COLUMNS), np.int64), np.zeros(1, np.int64)
    assert r.window_records(buf, 0, rows, found, counts) == 1
    assert counts[0] == len(records)
    shown = [record_at(rows[0], row, buf) for row in found[: len(records)]]
    assert [(each.key, each.value, each.headers) for each in shown] == [
        (each.key, each.value, tuple((header.key, header.value) for header in each.headers))
        for each in records
    ]
    expected = [lines.line(rows[0], each) for each in shown]
    columns = LineColumns(
        as_json=as_json, key_form=BULK_FORMS.index(keys), value_form=BULK_FORMS.index(values)
    )
    of = np.zeros(len(records), np.int64)
    got = bytes(text_of(columns.records(buf, rows, of, found[: len(records)]))) if records else b""
    assert got == b"".join(line for line in expected if line is not None)
    assert not STEERS.search(got.decode().replace("\n", ""))
    if as_json:
        assert [json.loads(line)["value_size"] for line in got.splitlines()] == [
            -1 if each.value is None else len(each.value) for each in records
        ]
