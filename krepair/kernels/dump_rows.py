"""Reads records in bulk for ``krepair dump``: one row per record. Nothing is trusted.

Source: DefaultRecord (2.2.1, 3.9).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from krepair.kernels.jit import kernel
from krepair.kernels.scan_window import HEADER
from krepair.kernels.varints import zigzag

# columns of a record; places are in the window or buffer that was read
R_OFFSET_DELTA: Final = 0
R_TIMESTAMP_DELTA: Final = 1
R_KEY: Final = 2
R_KEY_SIZE: Final = 3
R_VALUE: Final = 4
R_VALUE_SIZE: Final = 5
R_HEADERS: Final = 6
R_HEADER_COUNT: Final = 7
R_START: Final = 8
R_SIZE: Final = 9
RECORD_COLUMNS: Final = 10

# columns of a header of a record
H_KEY: Final = 0
H_KEY_SIZE: Final = 1
H_VALUE: Final = 2
H_VALUE_SIZE: Final = 3
HEADER_COLUMNS: Final = 4

# how reading records ended
NEED_BYTES: Final = 0
ROWS_FULL: Final = 1
BAD_RECORD: Final = 2


@kernel("bytes, long, long, longs")
def _read_record(buf: Any, place: Any, end: int, row: Any) -> Any:  # noqa: PLR0911
    """Read the record at a place into a row.

    Returns:
        The place after it; -1 if the record does not end before ``end``, -2 if its fields do not fit into it.
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
    """Read the uncompressed records of one batch, as far as a buffer holds them.

    Args:
        buf: uint8[W].
        place: place of the next record.
        end: bytes of the buffer that are valid.
        left: how many records the batch still has.
        rows: int64[N, RECORD_COLUMNS], out.

    Returns:
        (status, rows written, place after the last record). The status is also ``NEED_BYTES`` when no record is left.
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


@kernel("bytes, long, batches, rows, longs")
def window_records(buf: Any, origin: int, batches: Any, rows: Any, counts: Any) -> Any:
    """Read all records of uncompressed v2 batches that lie in one window.

    Args:
        buf: uint8[W]; place 0 is file position ``origin``.
        origin: file position of place 0.
        batches: ``columns.BATCH``[B].
        rows: int64[N, RECORD_COLUMNS], out.
        counts: int64[B], out: records of each batch.

    Returns:
        How many batches were read. It stops at a batch whose records do not fill it exactly, or when ``rows`` is full.
    """
    written = np.int64(0)
    for number in range(batches.shape[0]):
        start = batches[number].position - origin
        place = np.int64(start + HEADER)
        end = start + batches[number].size
        wanted = batches[number].record_count
        if wanted > rows.shape[0] - written:
            return np.int64(number)
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
    """Find the headers of records that were read.

    Args:
        buf: uint8[W], where they lie.
        records: int64[N, RECORD_COLUMNS].
        rows: int64[H, HEADER_COLUMNS], out: as many as all records have together.
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
