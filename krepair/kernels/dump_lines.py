"""Writes the lines of ``krepair dump`` in bulk: one per batch and one per record, as JSON or as text for a person.

Both forms have the same fields in the same order. Only the literals between them differ, so one kernel writes both. The
slow twin is ``krepair.pipeline.dump.record``, which also writes the lines that this kernel cannot. A test
compares the two.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from krepair.formats import batch_v2
from krepair.formats.control import ControlType
from krepair.kernels import dump_rows as r
from krepair.kernels.jit import inlined, kernel
from krepair.kernels.line_parts import (
    LITERAL_BYTES,
    SLACK,
    literal_table,
    put_base64,
    put_copy,
    put_hex,
    put_int,
    put_literal,
    put_text,
    put_time,
)
from krepair.kernels.words import be16, be32

LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = batch_v2.LOG_APPEND_TIME, batch_v2.TRANSACTIONAL, batch_v2.CONTROL
DELETE_HORIZON, CODEC_MASK = batch_v2.DELETE_HORIZON, batch_v2.CODEC_MASK

# places of the options, which are int64
O_BATCHES: Final = 0  # whether batches have lines
O_RECORDS: Final = 1
O_KEY_FORM: Final = 2
O_VALUE_FORM: Final = 3
O_LOWEST: Final = 4  # lowest offset that gets a line
O_HIGHEST: Final = 5  # highest offset that gets a line
O_LEFT: Final = 6  # how many lines may still be written; counted down
O_PERSON: Final = 7  # whether times are written as ISO 8601
O_CUT: Final = 8  # bytes; larger records are not written here
OPTIONS: Final = 9

# forms of keys and values
AUTO: Final = 0  # text, or base64 if the bytes are not UTF-8
HEX: Final = 1
BASE64: Final = 2

# state, so that the next call goes on where this one ended
L_BATCH: Final = 0
L_RECORD: Final = 1  # number of the record in its batch
L_ROW: Final = 2  # row of the record
L_BEGUN: Final = 3  # whether the line of the batch is done with
LINE_STATE: Final = 4

# how a call ended
ALL: Final = 0
FULL: Final = 1
SLOW: Final = 2  # the next record is too large for the buffer
LIMIT: Final = 3

BATCH_LINE_BYTES: Final = 1024
_RECORD_LINE_BYTES: Final = 2048
_HEADER_BYTES: Final = 2 * LITERAL_BYTES + 32

BATCH_FIELDS: Final = (
    "position", "base_offset", "last_offset", "max_timestamp", "base_timestamp", "producer_id", "crc", "valid", "size",
    "magic", "codec", "timestamp_type", "records", "producer_epoch", "base_sequence", "last_sequence", "leader_epoch",
    "transactional", "control", "delete_horizon_ms",
)  # fmt: skip
RECORD_FIELDS: Final = (
    "position", "offset", "timestamp", "timestamp_type", "sequence", "producer_id", "producer_epoch", "transactional",
    "control", "key_size", "value_size",
)  # fmt: skip
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd", "unknown 5", "unknown 6", "unknown 7")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime", "NoTimestampType")
MARKERS: Final = tuple(ControlType(number).name for number in range(len(ControlType)))

# places in the table of literals
_BATCH = 0
_RECORD = _BATCH + len(BATCH_FIELDS)
_CODEC = _RECORD + len(RECORD_FIELDS)
_TYPE = _CODEC + len(CODECS)
_FALSE = _TYPE + len(TIMESTAMP_TYPES)
_TRUE = _FALSE + 1
_NULL = _TRUE + 1
_END = _NULL + 1
_MARKER = _END + 1
_COORDINATOR = _MARKER + 1
_MARKER_NAME = _COORDINATOR + 1
_HEADERS = _MARKER_NAME + len(MARKERS)
_HEADERS_END = _HEADERS + 1
_HEADER_KEY = _HEADERS_END + 1  # text, hex, base64
_HEADER_VALUE = _HEADER_KEY + 3
_HEADER_NEXT = _HEADER_VALUE + 3
_HEADER_END = _HEADER_NEXT + 1
_KEY = _HEADER_END + 1
_VALUE = _KEY + 3
_LITERALS = _VALUE + 3

_FORMS: Final = ("", "_hex", "_base64")


def _field_words(name: str, first: str, fields: tuple[str, ...], *, as_json: bool) -> list[str]:
    if as_json:
        words = [f',"{field}":' for field in fields]
        words[0] = f'{{"type":"{name}"{words[0]}'
        return words
    words = [f" {field}=" for field in fields]
    words[0] = f"{first}{words[0]}"
    return words


def _quoted(words: tuple[str, ...], *, as_json: bool) -> list[str]:
    return [f'"{word}"' if as_json else word.replace(" ", "_") for word in words]


def literals(*, as_json: bool) -> tuple[Any, Any]:
    """The table of literals, see ``line_parts.literal_table``."""
    words = _field_words("batch", "batch", BATCH_FIELDS, as_json=as_json)
    words += _field_words("record", "| record", RECORD_FIELDS, as_json=as_json)
    words += _quoted(CODECS, as_json=as_json)
    words += _quoted(TIMESTAMP_TYPES, as_json=as_json)
    words += ["false", "true", "null", "}\n" if as_json else "\n"]
    words += _field_words("", "", ("", "marker", "coordinator_epoch"), as_json=as_json)[1:]
    words += _quoted(MARKERS, as_json=as_json)
    words += [',"headers":[' if as_json else " headers=[", "]"]
    words += [f'{{"key{form}":' if as_json else f"{{key{form}=" for form in _FORMS]
    words += [f',"value{form}":' if as_json else f" value{form}=" for form in _FORMS]
    words += ["," if as_json else " ", "}"]
    for part in ("key", "value"):
        words += [f',"{part}{form}":' if as_json else f" {part}{form}=" for form in _FORMS]
    assert len(words) == _LITERALS
    return literal_table(tuple(words))


@inlined
def _sequence(base: int, delta: int) -> Any:
    return np.int64(-1) if base < 0 else np.int64((base + delta) & 0x7FFFFFFF)


@inlined
def _type_of(row: Any) -> Any:
    if row[r.B_MAGIC] == 0:
        return np.int64(2)
    return np.int64(1 if row[r.B_ATTRIBUTES] & LOG_APPEND_TIME else 0)


@inlined
def _time(out: Any, at: int, value: int, person: int) -> Any:
    return put_time(out, at, value) if person else put_int(out, at, value)


@inlined
def _alike(row: Any, before: Any) -> bool:
    """Whether the lines of two batches are the same from the size on."""
    return (
        row[r.B_SIZE] == before[r.B_SIZE]
        and row[r.B_MAGIC] == before[r.B_MAGIC]
        and row[r.B_ATTRIBUTES] == before[r.B_ATTRIBUTES]
        and row[r.B_COUNT] == before[r.B_COUNT]
        and row[r.B_PRODUCER_EPOCH] == before[r.B_PRODUCER_EPOCH]
        and row[r.B_BASE_SEQUENCE] == before[r.B_BASE_SEQUENCE]
        and row[r.B_LEADER_EPOCH] == before[r.B_LEADER_EPOCH]
        and (row[r.B_BASE_SEQUENCE] < 0 or row[r.B_LAST_OFFSET] - row[r.B_BASE_OFFSET]
             == before[r.B_LAST_OFFSET] - before[r.B_BASE_OFFSET])
        and not row[r.B_ATTRIBUTES] & DELETE_HORIZON
    )  # fmt: skip


@kernel
def _batch_front(out: Any, at: Any, row: Any, person: int, table: Any, lengths: Any) -> Any:
    """Write the front of a batch's line: the fields that nearly always differ from batch to batch."""
    at = put_literal(out, at, table, lengths, _BATCH)
    at = put_int(out, at, row[r.B_POSITION])
    at = put_literal(out, at, table, lengths, _BATCH + 1)
    at = put_int(out, at, row[r.B_BASE_OFFSET])
    at = put_literal(out, at, table, lengths, _BATCH + 2)
    at = put_int(out, at, row[r.B_LAST_OFFSET])
    at = put_literal(out, at, table, lengths, _BATCH + 3)
    at = _time(out, at, row[r.B_MAX_TIMESTAMP], person)
    if row[r.B_MAGIC] >= 2:
        at = put_literal(out, at, table, lengths, _BATCH + 4)
        at = _time(out, at, row[r.B_BASE_TIMESTAMP], person)
        at = put_literal(out, at, table, lengths, _BATCH + 5)
        at = put_int(out, at, row[r.B_PRODUCER_ID])
    at = put_literal(out, at, table, lengths, _BATCH + 6)
    at = put_int(out, at, row[r.B_CRC])
    at = put_literal(out, at, table, lengths, _BATCH + 7)
    return put_literal(out, at, table, lengths, _FALSE if row[r.B_PROBLEM] == r.BAD_CRC else _TRUE)


@kernel
def _batch_rest(out: Any, at: Any, row: Any, person: int, table: Any, lengths: Any) -> Any:
    """Write the rest of a batch's line: the fields that are often the same as for the batch before."""
    attributes = row[r.B_ATTRIBUTES]
    at = put_literal(out, at, table, lengths, _BATCH + 8)
    at = put_int(out, at, row[r.B_SIZE])
    at = put_literal(out, at, table, lengths, _BATCH + 9)
    at = put_int(out, at, row[r.B_MAGIC])
    at = put_literal(out, at, table, lengths, _BATCH + 10)
    at = put_literal(out, at, table, lengths, _CODEC + (attributes & CODEC_MASK))
    at = put_literal(out, at, table, lengths, _BATCH + 11)
    at = put_literal(out, at, table, lengths, _TYPE + _type_of(row))
    if row[r.B_MAGIC] >= 2:
        last = _sequence(row[r.B_BASE_SEQUENCE], row[r.B_LAST_OFFSET] - row[r.B_BASE_OFFSET])
        at = put_literal(out, at, table, lengths, _BATCH + 12)
        at = put_int(out, at, row[r.B_COUNT])
        at = put_literal(out, at, table, lengths, _BATCH + 13)
        at = put_int(out, at, row[r.B_PRODUCER_EPOCH])
        at = put_literal(out, at, table, lengths, _BATCH + 14)
        at = put_int(out, at, row[r.B_BASE_SEQUENCE])
        at = put_literal(out, at, table, lengths, _BATCH + 15)
        at = put_int(out, at, last)
        at = put_literal(out, at, table, lengths, _BATCH + 16)
        at = put_int(out, at, row[r.B_LEADER_EPOCH])
        at = put_literal(out, at, table, lengths, _BATCH + 17)
        at = put_literal(out, at, table, lengths, _TRUE if attributes & TRANSACTIONAL else _FALSE)
        at = put_literal(out, at, table, lengths, _BATCH + 18)
        at = put_literal(out, at, table, lengths, _TRUE if attributes & CONTROL else _FALSE)
        at = put_literal(out, at, table, lengths, _BATCH + 19)
        if attributes & DELETE_HORIZON:
            at = _time(out, at, row[r.B_BASE_TIMESTAMP], person)
        else:
            at = put_literal(out, at, table, lengths, _NULL)
    return put_literal(out, at, table, lengths, _END)


@inlined
def _batch_line(out: Any, at: Any, row: Any, person: int, table: Any, lengths: Any) -> Any:
    return _batch_rest(out, _batch_front(out, at, row, person, table, lengths), row, person, table, lengths)


@kernel
def batch_lines(batches: Any, options: Any, table: Any, lengths: Any, state: Any, out: Any, at: Any) -> Any:
    """Write the lines of batches.

    Args:
        batches: int64[B, BATCH_COLUMNS].
        options: int64[OPTIONS]; ``O_LEFT`` is counted down.
        table: see ``literals``.
        lengths: see ``literals``.
        state: int64[LINE_STATE]; ``L_BATCH`` moves on.
        out: uint8[M].
        at: place in ``out`` at which to begin.

    Returns:
        (how it ended, place after the last line).
    """
    at = np.int64(at)
    rest, end = np.int64(0), np.int64(0)
    while state[L_BATCH] < batches.shape[0]:
        if options[O_LEFT] <= 0:
            return LIMIT, at
        if at + BATCH_LINE_BYTES > out.shape[0]:
            return FULL, at
        row = batches[state[L_BATCH]]
        at = _batch_front(out, at, row, options[O_PERSON], table, lengths)
        if end and _alike(row, batches[state[L_BATCH] - 1]):
            # Copied from the line before: that takes half the time of writing it again.
            after = put_copy(out, at, rest, end)
        else:
            after = _batch_rest(out, at, row, options[O_PERSON], table, lengths)
        rest, end, at = at, after, after
        options[O_LEFT] -= 1
        state[L_BATCH] += 1
    return ALL, at


@inlined
def _put_bytes(
    out: Any, at: int, buf: Any, start: int, size: int, form: int, first: int, table: Any, lengths: Any
) -> Any:
    """One of three names (for text, hex or base64) and the bytes in that form; null if the size is negative."""
    if size < 0:
        at = put_literal(out, at, table, lengths, first)
        return put_literal(out, at, table, lengths, _NULL)
    if form == AUTO:
        after = put_text(out, put_literal(out, at, table, lengths, first), buf, start, start + size)
        if after >= 0:
            return after
    if form == HEX:
        return put_hex(out, put_literal(out, at, table, lengths, first + 1), buf, start, start + size)
    return put_base64(out, put_literal(out, at, table, lengths, first + 2), buf, start, start + size)


@inlined
def _length_at(buf: Any, place: int) -> Any:
    """(value, place after it) of a varint that is known to be valid."""
    raw = np.uint64(0)
    shift = np.uint64(0)
    while True:
        byte = np.uint64(buf[place])
        raw |= (byte & np.uint64(0x7F)) << shift
        shift += np.uint64(7)
        place += 1
        if byte < np.uint64(0x80):
            break
    raw &= np.uint64(0xFFFFFFFF)
    return np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1)), np.int64(place)


@kernel
def _record_line(
    out: Any, at: int, batch: Any, record: Any, buf: Any, options: Any, table: Any, lengths: Any
) -> Any:
    attributes = batch[r.B_ATTRIBUTES]
    person = options[O_PERSON]
    timestamp = batch[r.B_MAX_TIMESTAMP]
    if not attributes & LOG_APPEND_TIME:
        timestamp = batch[r.B_BASE_TIMESTAMP] + record[r.R_TIMESTAMP_DELTA]
    at = put_literal(out, at, table, lengths, _RECORD)
    at = put_int(out, at, batch[r.B_POSITION])
    at = put_literal(out, at, table, lengths, _RECORD + 1)
    at = put_int(out, at, batch[r.B_BASE_OFFSET] + record[r.R_OFFSET_DELTA])
    at = put_literal(out, at, table, lengths, _RECORD + 2)
    at = _time(out, at, timestamp, person)
    at = put_literal(out, at, table, lengths, _RECORD + 3)
    at = put_literal(out, at, table, lengths, _TYPE + _type_of(batch))
    at = put_literal(out, at, table, lengths, _RECORD + 4)
    at = put_int(out, at, _sequence(batch[r.B_BASE_SEQUENCE], record[r.R_OFFSET_DELTA]))
    at = put_literal(out, at, table, lengths, _RECORD + 5)
    at = put_int(out, at, batch[r.B_PRODUCER_ID])
    at = put_literal(out, at, table, lengths, _RECORD + 6)
    at = put_int(out, at, batch[r.B_PRODUCER_EPOCH])
    at = put_literal(out, at, table, lengths, _RECORD + 7)
    at = put_literal(out, at, table, lengths, _TRUE if attributes & TRANSACTIONAL else _FALSE)
    at = put_literal(out, at, table, lengths, _RECORD + 8)
    at = put_literal(out, at, table, lengths, _TRUE if attributes & CONTROL else _FALSE)
    at = put_literal(out, at, table, lengths, _RECORD + 9)
    at = put_int(out, at, record[r.R_KEY_SIZE])
    at = put_literal(out, at, table, lengths, _RECORD + 10)
    at = put_int(out, at, record[r.R_VALUE_SIZE])
    key, value = record[r.R_KEY], record[r.R_VALUE]
    if attributes & CONTROL and record[r.R_KEY_SIZE] >= 4 and be16(buf, key) >= 0:
        kind = be16(buf, key + 2)
        at = put_literal(out, at, table, lengths, _MARKER)
        if 0 <= kind < len(MARKERS):
            at = put_literal(out, at, table, lengths, _MARKER_NAME + kind)
        else:
            at = put_int(out, at, kind)
        if 0 <= kind <= 1 and record[r.R_VALUE_SIZE] >= 6 and be16(buf, value) >= 0:
            at = put_literal(out, at, table, lengths, _COORDINATOR)
            at = put_int(out, at, be32(buf, value + 2))
    if record[r.R_HEADER_COUNT]:
        at = put_literal(out, at, table, lengths, _HEADERS)
        place = record[r.R_HEADERS]
        for number in range(record[r.R_HEADER_COUNT]):
            if number:
                at = put_literal(out, at, table, lengths, _HEADER_NEXT)
            size, place = _length_at(buf, place)
            at = _put_bytes(out, at, buf, place, size, AUTO, _HEADER_KEY, table, lengths)
            place += size
            size, place = _length_at(buf, place)
            at = _put_bytes(out, at, buf, place, size, options[O_VALUE_FORM], _HEADER_VALUE, table, lengths)
            place += max(size, 0)
            at = put_literal(out, at, table, lengths, _HEADER_END)
        at = put_literal(out, at, table, lengths, _HEADERS_END)
    at = _put_bytes(out, at, buf, key, record[r.R_KEY_SIZE], options[O_KEY_FORM], _KEY, table, lengths)
    at = _put_bytes(
        out, at, buf, value, record[r.R_VALUE_SIZE], options[O_VALUE_FORM], _VALUE, table, lengths
    )
    return put_literal(out, at, table, lengths, _END)


@inlined
def _room(record: Any) -> Any:
    return _RECORD_LINE_BYTES + SLACK + 6 * record[r.R_SIZE] + _HEADER_BYTES * record[r.R_HEADER_COUNT]


@kernel
def record_lines(
    buf: Any,
    batches: Any,
    counts: Any,
    records: Any,
    options: Any,
    table: Any,
    lengths: Any,
    state: Any,
    out: Any,
    at: Any,
) -> Any:
    """Write the lines of batches and of their records, or of the records alone.

    Args:
        buf: uint8[W], holds the records.
        batches: int64[B, BATCH_COLUMNS].
        counts: int64[B], how many of ``records`` belong to each batch.
        records: int64[N, RECORD_COLUMNS].
        options: int64[OPTIONS]; ``O_LEFT`` is counted down.
        table: see ``literals``.
        lengths: see ``literals``.
        state: int64[LINE_STATE]; it moves on.
        out: uint8[M].
        at: place in ``out`` at which to begin.

    Returns:
        (how it ended, place after the last line).
    """
    at = np.int64(at)
    while state[L_BATCH] < batches.shape[0]:
        batch = batches[state[L_BATCH]]
        if options[O_BATCHES] and not state[L_BEGUN]:
            if options[O_LEFT] <= 0:
                return LIMIT, at
            if at + BATCH_LINE_BYTES > out.shape[0]:
                return FULL, at
            at = _batch_line(out, at, batch, options[O_PERSON], table, lengths)
            options[O_LEFT] -= 1
        state[L_BEGUN] = 1
        while state[L_RECORD] < counts[state[L_BATCH]]:
            record = records[state[L_ROW]]
            offset = batch[r.B_BASE_OFFSET] + record[r.R_OFFSET_DELTA]
            if options[O_LOWEST] <= offset <= options[O_HIGHEST]:
                if options[O_LEFT] <= 0:
                    return LIMIT, at
                room = _room(record)
                if record[r.R_SIZE] > options[O_CUT] or room > out.shape[0]:
                    return SLOW, at
                if at + room > out.shape[0]:
                    return FULL, at
                at = _record_line(out, at, batch, record, buf, options, table, lengths)
                options[O_LEFT] -= 1
            state[L_RECORD] += 1
            state[L_ROW] += 1
        state[L_BATCH] += 1
        state[L_RECORD] = 0
        state[L_BEGUN] = 0
    return ALL, at
