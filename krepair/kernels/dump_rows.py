"""Reads records of v2 batches and messages of v0 and v1 in bulk, one row per record. No stored length is trusted.

Source: DefaultRecord (2.2.1, 3.9), LegacyRecord and AbstractLegacyRecordBatch (2.2.1).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from krepair.formats import message_set
from krepair.kernels.jit import inlined, kernel
from krepair.kernels.scan_window import HEADER, LENGTH, LENGTH_END, MAGIC
from krepair.kernels.varints import zigzag
from krepair.kernels.words import be32, be64, byte_at

# columns of a record; each position is an index into the window or buffer
R_OFFSET_DELTA: Final = 0  # difference from the batch's base offset, or from the wrapper's
R_TIMESTAMP_DELTA: Final = 1  # difference from the batch's base timestamp, or from the wrapper's
R_KEY: Final = 2
R_KEY_SIZE: Final = 3
R_VALUE: Final = 4
R_VALUE_SIZE: Final = 5
R_HEADERS: Final = 6
R_HEADER_COUNT: Final = 7
R_START: Final = 8
R_SIZE: Final = 9
RECORD_COLUMNS: Final = 10

# columns of a record's header
H_KEY: Final = 0
H_KEY_SIZE: Final = 1
H_VALUE: Final = 2
H_VALUE_SIZE: Final = 3
HEADER_COLUMNS: Final = 4

# how reading records ended
NEED_BYTES: Final = 0
ROWS_FULL: Final = 1
BAD_RECORD: Final = 2

_KEY_V0: Final = message_set.HEADER_V0.size
_KEY_V1: Final = message_set.HEADER_V1.size
_TIMESTAMP: Final = message_set.HEADER_V1.place("timestamp")
_NUMBER: Final = message_set.LENGTH.size


@kernel("bytes, long, long, longs")
def _read_record(buf: Any, place: Any, end: int, row: Any) -> Any:  # noqa: PLR0911
    """Read the record at a position into a row.

    Returns:
        Position after the record; -1 if the buffer ends before the record; -2 if the record is malformed: a bad varint,
        a negative size, or fields that do not fill the record exactly.
    """
    size, body = zigzag(buf, place, end, 5)
    if body < 0:
        return np.int64(-1 if end - place < 5 else -2)
    if size < 0:
        return np.int64(-2)
    stop = body + size
    row[R_START] = place
    row[R_SIZE] = stop - place
    if stop > end:
        return np.int64(-1)
    at = body + 1  # attributes
    if at > stop:
        return np.int64(-2)
    row[R_TIMESTAMP_DELTA], at = zigzag(buf, at, stop, 10)
    if at < 0:
        return np.int64(-2)
    row[R_OFFSET_DELTA], at = zigzag(buf, at, stop, 5)
    if at < 0:
        return np.int64(-2)
    for part in range(2):
        length, at = zigzag(buf, at, stop, 5)
        if at < 0 or length > stop - at:
            return np.int64(-2)
        row[R_KEY + 2 * part] = at
        row[R_KEY_SIZE + 2 * part] = max(length, -1)
        at += max(length, 0)
    count, at = zigzag(buf, at, stop, 5)
    if at < 0 or count < 0 or count > stop - at:
        return np.int64(-2)
    row[R_HEADERS] = at
    row[R_HEADER_COUNT] = count
    for _ in range(count):
        length, at = zigzag(buf, at, stop, 5)
        if at < 0 or length < 0 or length > stop - at:
            return np.int64(-2)
        at += length
        length, at = zigzag(buf, at, stop, 5)
        if at < 0 or length > stop - at:
            return np.int64(-2)
        at += max(length, 0)
    return np.int64(stop if at == stop else -2)


@kernel("bytes, long, long, long, rows")
def record_rows(buf: Any, place: Any, end: int, left: int, rows: Any) -> Any:
    """Read those uncompressed records of one batch that a buffer holds completely.

    Args:
        buf: window of the log, uint8[W].
        place: position of the next record.
        end: number of valid bytes in the buffer.
        left: number of records that remain in the batch.
        rows: rows of the records, int64[N, RECORD_COLUMNS], out.

    Returns:
        (status, rows written, position after the last record). ``NEED_BYTES`` also means that the batch has no more
        records.
    """
    count = np.int64(0)
    status = NEED_BYTES
    place = np.int64(place)
    while count < left:
        if count >= rows.shape[0]:
            status = ROWS_FULL
            break
        after = _read_record(buf, place, end, rows[count])
        if after < 0:
            status = NEED_BYTES if after == -1 else BAD_RECORD
            break
        place = after
        count += 1
    return status, count, place


@inlined
def _read_message(buf: Any, place: Any, end: Any, row: Any) -> Any:
    """Read the v0 or v1 message at a position into a row, with offset and timestamp as stored.

    Returns:
        The same as ``_read_record``.
    """
    if end - place < _KEY_V0:
        return np.int64(-1)
    magic = byte_at(buf, place + MAGIC)
    size = be32(buf, place + LENGTH) + LENGTH_END
    first = _KEY_V1 if magic == 1 else _KEY_V0
    if magic > 1 or size < first + 2 * _NUMBER:
        return np.int64(-2)
    stop = place + size
    if stop > end:
        return np.int64(-1)
    row[R_START] = place
    row[R_SIZE] = size
    row[R_OFFSET_DELTA] = be64(buf, place)
    row[R_TIMESTAMP_DELTA] = be64(buf, place + _TIMESTAMP) if magic == 1 else np.int64(-1)
    at = place + first
    for part in range(2):
        if at + _NUMBER > stop:
            return np.int64(-2)
        length = be32(buf, at)
        at += _NUMBER
        if length < -1 or length > stop - at:
            return np.int64(-2)
        row[R_KEY + 2 * part] = at
        row[R_KEY_SIZE + 2 * part] = length
        at += max(length, 0)
    row[R_HEADERS] = stop
    row[R_HEADER_COUNT] = 0
    return np.int64(stop if at == stop else -2)


@kernel("bytes, long, long, longs, rows")
def message_rows(buf: Any, place: Any, end: int, wrapper: Any, rows: Any) -> Any:
    """Read those messages of a wrapper that a buffer holds completely.

    Args:
        buf: window of the log, uint8[W].
        place: position of the next message.
        end: number of valid bytes in the buffer.
        wrapper: int64[3]: number to add to each stored offset; timestamp of the wrapper; 1 if every v1 message inside
            has the wrapper's timestamp (LogAppendTime).
        rows: rows of the messages, int64[N, RECORD_COLUMNS], out.

    Returns:
        The same as ``record_rows``.
    """
    count = np.int64(0)
    status = NEED_BYTES
    place = np.int64(place)
    while place < end:
        if count >= rows.shape[0]:
            status = ROWS_FULL
            break
        row = rows[count]
        after = _read_message(buf, place, end, row)
        if after < 0:
            status = NEED_BYTES if after == -1 else BAD_RECORD
            break
        row[R_OFFSET_DELTA] += wrapper[0]
        row[R_TIMESTAMP_DELTA] -= wrapper[1]
        if wrapper[2] != 0 and byte_at(buf, place + MAGIC) == 1:
            row[R_TIMESTAMP_DELTA] = 0
        place = after
        count += 1
    return status, count, place


@kernel("bytes, long, batches, rows, longs")
def window_records(buf: Any, origin: int, batches: Any, rows: Any, counts: Any) -> Any:
    """Read all records of the uncompressed v2 batches and v0 or v1 messages in one window.

    Args:
        buf: window of the log, uint8[W].
        origin: file position of the first byte of the window.
        batches: batches of the window, ``columns.BATCH``[B].
        rows: rows of the records, int64[N, RECORD_COLUMNS], out.
        counts: int64[B], out: records of each batch.

    Returns:
        Number of batches read completely. Reading stops before a batch whose records do not fill the batch exactly, and
        before one whose records do not fit into ``rows``.
    """
    written = np.int64(0)
    for number in range(batches.shape[0]):
        start = batches[number].position - origin
        place = np.int64(start + HEADER)
        end = start + batches[number].size
        is_message = batches[number].magic < 2
        wanted = np.int64(1 if is_message else batches[number].record_count)
        if wanted > rows.shape[0] - written:
            return np.int64(number)
        if is_message:
            row = rows[written]
            place = _read_message(buf, start, end, row)
            row[R_OFFSET_DELTA] = row[R_TIMESTAMP_DELTA] = 0
            if place < 0:
                return np.int64(number)
        else:
            for record in range(wanted):
                place = _read_record(buf, place, end, rows[written + record])
                if place < 0:
                    return np.int64(number)
        if place != end and wanted > 0:
            return np.int64(number)
        counts[number] = wanted
        written += wanted
    return np.int64(batches.shape[0])


@kernel("bytes, rows, rows")
def header_rows(buf: Any, records: Any, rows: Any) -> None:
    """Write one row for each header of the given records.

    Args:
        buf: bytes that hold the records, uint8[W].
        records: rows of the records, int64[N, RECORD_COLUMNS].
        rows: rows of the headers, int64[H, HEADER_COLUMNS], out; H is the number of headers of all records.
    """
    row = np.int64(0)
    for number in range(records.shape[0]):
        place = records[number, R_HEADERS]
        end = records[number, R_START] + records[number, R_SIZE]
        for _ in range(records[number, R_HEADER_COUNT]):
            for part in range(2):
                size, place = zigzag(buf, place, end, 5)
                rows[row, H_KEY + 2 * part] = place
                rows[row, H_KEY_SIZE + 2 * part] = max(size, -1)
                place += max(size, 0)
            row += 1
