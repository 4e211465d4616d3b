"""Lines that the kernel writes are those of plain Python, byte for byte, and nothing in them steers a terminal."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from krepair.formats import batch_v2, record
from krepair.kernels import dump_lines as d
from krepair.kernels import dump_rows as r
from krepair.kernels.line_parts import put_base64, put_hex, put_int, put_text, put_time
from krepair.pipeline.dump.record import KERNEL_FORMS, RecordLines, shown_of
from krepair.pipeline.dump.style import Style, json_of
from krepair.plan.view import time_text

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


def written(write: Any, *arguments: Any) -> bytes | None:
    out = np.zeros(4096, np.uint8)
    end = write(out, 5, *arguments)
    return None if end < 0 else out[5:end].tobytes()


def array(data: bytes) -> Any:
    return np.frombuffer(data + bytes(64), np.uint8).copy()


@given(INT64)
@example(0)
@example(-(2**63))
@example(10**8)
@example(10**16)
def test_a_number_is_written_as_in_plain_python(value: int) -> None:
    assert written(put_int, value) == str(value).encode()


@given(INT64 | st.integers(0, 253_402_300_800_000))
@example(951_782_400_000)
@example(253_402_300_799_999)
def test_a_time_is_written_as_in_plain_python(value: int) -> None:
    # What is no date is a number in a dump; a person gets words for it.
    is_date = 0 <= value < 253_402_300_800_000
    assert written(put_time, value) == (time_text(value) if is_date else str(value)).encode()


@given(BYTES)
def test_text_is_escaped_as_in_plain_python_and_what_is_no_text_is_refused(data: bytes) -> None:
    found = written(put_text, array(data), 0, len(data))
    try:
        text = data.decode()
    except UnicodeDecodeError:
        assert found is None
        return
    assert found == json_of(text)
    assert json.loads(found) == text
    assert not STEERS.search(found.decode())


@pytest.mark.parametrize(
    "data",
    [b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x80", b"\xf0\x9f\x98", b"a" * 9 + b"\xff"],
)
def test_overlong_surrogate_and_cut_characters_are_no_text(data: bytes) -> None:
    assert written(put_text, array(data), 0, len(data)) is None


@given(st.binary(max_size=200))
def test_bytes_as_hex_and_base64(data: bytes) -> None:
    import base64

    assert written(put_hex, array(data), 0, len(data)) == b'"%b"' % data.hex().encode()
    assert written(put_base64, array(data), 0, len(data)) == b'"%b"' % base64.b64encode(data)


RECORDS = st.builds(
    record.Record,
    attributes=st.just(0),
    timestamp_delta=st.integers(-(2**40), 2**40),
    offset_delta=st.integers(0, 2**31 - 1),
    key=MAYBE,
    value=MAYBE,
    headers=st.lists(st.builds(record.Header, key=BYTES, value=MAYBE), max_size=3).map(tuple),
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
    st.sampled_from(sorted(KERNEL_FORMS)),
    st.sampled_from(sorted(KERNEL_FORMS)),
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
    raw = batch_v2.encode_batch(header, record.encode(records))
    lines = RecordLines(Style(as_json=as_json), keys, values)
    buf = array(raw)
    rows = np.empty((2, r.BATCH_COLUMNS), np.int64)
    state = np.array([0, -1], np.int64)
    assert r.batch_rows(buf, len(raw), 0, len(raw), state, rows, 2) == 1
    found, counts = np.empty((9, r.RECORD_COLUMNS), np.int64), np.zeros(1, np.int64)
    assert r.window_records(buf, 0, rows[:1], found, counts) == 1
    assert counts[0] == len(records)
    shown = [shown_of(rows[0], row, buf) for row in found[: len(records)]]
    assert [(each.key, each.value, each.headers) for each in shown] == [
        (each.key, each.value, tuple((header.key, header.value) for header in each.headers))
        for each in records
    ]
    expected = [lines.line(rows[0], each) for each in shown]
    table, lengths = d.literals(as_json=as_json)
    options = np.zeros(d.OPTIONS, np.int64)
    options[d.O_RECORDS], options[d.O_LEFT], options[d.O_CUT] = 1, 100, 1 << 20
    options[d.O_LOWEST], options[d.O_HIGHEST] = -(2**63), 2**63 - 1
    options[d.O_KEY_FORM], options[d.O_VALUE_FORM] = KERNEL_FORMS[keys], KERNEL_FORMS[values]
    options[d.O_PERSON] = not as_json
    out = np.empty(1 << 16, np.uint8)
    status, end = d.record_lines(
        buf, rows[:1], counts, found, options, table, lengths, np.zeros(d.LINE_STATE, np.int64), out, 0
    )
    assert status == d.ALL
    got = out[:end].tobytes()
    assert got == b"".join(line for line in expected if line is not None)
    assert not STEERS.search(got.decode().replace("\n", ""))
    if as_json:
        assert [json.loads(line)["value_size"] for line in got.splitlines()] == [
            -1 if each.value is None else len(each.value) for each in records
        ]
