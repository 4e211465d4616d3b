"""Reads a log in bulk for ``krepair dump``: one row per batch and one row per record. Nothing is trusted.

Source: DefaultRecordBatch, DefaultRecord, LegacyRecord, FileLogInputStream (2.2.1, 3.9).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from krepair.kernels.crc32 import crc32_update
from krepair.kernels.jit import kernel
from krepair.kernels.legacy import (
    OLD_CRC,
    OLD_CRC_START,
    OLD_TIMESTAMP,
    SMALLEST_BYTES,
)
from krepair.kernels.next_batch import next_batch
from krepair.kernels.scan_window import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    CRC,
    HEADER,
    LAST_DELTA,
    LEADER_EPOCH,
    LENGTH,
    LENGTH_END,
    MAGIC,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
)
from krepair.kernels.varints import zigzag
from krepair.kernels.words import be16, be32, be64, byte_at, crc32c_of_57, crc32c_update

# columns of a batch
B_POSITION: Final = 0
B_SIZE: Final = 1
B_BASE_OFFSET: Final = 2
B_LAST_OFFSET: Final = 3
B_BASE_TIMESTAMP: Final = 4
B_MAX_TIMESTAMP: Final = 5
B_CRC: Final = 6
B_PRODUCER_ID: Final = 7
B_PRODUCER_EPOCH: Final = 8
B_BASE_SEQUENCE: Final = 9
B_COUNT: Final = 10
B_LEADER_EPOCH: Final = 11
B_MAGIC: Final = 12
B_ATTRIBUTES: Final = 13
B_PROBLEM: Final = 14
B_COMPUTED: Final = 15
BATCH_COLUMNS: Final = 16

# what may be wrong with a batch whose place and size can be used
OK: Final = 0
BAD_CRC: Final = 1
BAD_COUNTS: Final = 2
BAD_OFFSETS: Final = 3

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

# how the walk of a window ended
NEED_BYTES: Final = 0
ROWS_FULL: Final = 1
HUGE: Final = 2
SUSPECT: Final = 3
NO_BATCH: Final = 4
BAD_RECORD: Final = 5

# state of a walk
W_PLACE: Final = 0
W_LAST_OFFSET: Final = 1
WALK_STATE: Final = 2


@kernel
def read_header(buf: Any, place: int, position: int, last_offset: int, row: Any) -> Any:
    """Fill the row of the batch or message at a place. The checksum is not checked.

    Args:
        buf: uint8[W], holds the header (61 bytes from magic 2 on, 26 for magic 1, 18 for magic 0).
        place: place of the header in the buffer.
        position: position of the header in the file.
        last_offset: last offset of the batch before.
        row: int64[BATCH_COLUMNS], out.
    """
    magic = np.int64(byte_at(buf, place + MAGIC))
    row[B_POSITION] = position
    row[B_SIZE] = be32(buf, place + LENGTH) + LENGTH_END
    row[B_BASE_OFFSET] = be64(buf, place + BASE_OFFSET)
    row[B_MAGIC] = magic
    row[B_PROBLEM] = OK
    row[B_COMPUTED] = 0
    if magic < 2:
        timestamp = be64(buf, place + OLD_TIMESTAMP) if magic == 1 else -1
        row[B_LAST_OFFSET] = row[B_BASE_OFFSET]
        row[B_BASE_TIMESTAMP] = timestamp
        row[B_MAX_TIMESTAMP] = timestamp
        row[B_CRC] = be32(buf, place + OLD_CRC) & 0xFFFFFFFF
        row[B_PRODUCER_ID] = -1
        row[B_PRODUCER_EPOCH] = -1
        row[B_BASE_SEQUENCE] = -1
        row[B_COUNT] = -1
        row[B_LEADER_EPOCH] = -1
        row[B_ATTRIBUTES] = np.int64(byte_at(buf, place + MAGIC + 1))
    else:
        row[B_LAST_OFFSET] = row[B_BASE_OFFSET] + be32(buf, place + LAST_DELTA)
        row[B_BASE_TIMESTAMP] = be64(buf, place + BASE_TIMESTAMP)
        row[B_MAX_TIMESTAMP] = be64(buf, place + MAX_TIMESTAMP)
        row[B_CRC] = be32(buf, place + CRC) & 0xFFFFFFFF
        row[B_PRODUCER_ID] = be64(buf, place + PRODUCER_ID)
        row[B_PRODUCER_EPOCH] = be16(buf, place + PRODUCER_EPOCH)
        row[B_BASE_SEQUENCE] = be32(buf, place + BASE_SEQUENCE)
        row[B_COUNT] = be32(buf, place + RECORD_COUNT)
        row[B_LEADER_EPOCH] = be32(buf, place + LEADER_EPOCH)
        row[B_ATTRIBUTES] = be16(buf, place + ATTRIBUTES)
        if be32(buf, place + LAST_DELTA) < 0 or row[B_COUNT] < 0:
            row[B_PROBLEM] = BAD_COUNTS
    if row[B_PROBLEM] == OK and row[B_BASE_OFFSET] <= last_offset:
        row[B_PROBLEM] = BAD_OFFSETS


@kernel
def batch_rows(buf: Any, filled: int, origin: int, file_size: int, state: Any, rows: Any, limit: int) -> Any:
    """Read the batches and messages that lie whole in a window.

    Args:
        buf: uint8[W]; place 0 is file position ``origin``.
        filled: bytes of it that are valid.
        origin: file position of place 0.
        file_size: where the log ends.
        state: int64[WALK_STATE]: place of the next batch, last offset so far; both move on.
        rows: int64[N, BATCH_COLUMNS], out.
        limit: largest number of rows to write.

    Returns:
        Status * 2^32 + rows written. ``SUSPECT``: the row after the written ones is a whole batch with a wrong
        checksum; the walk still stands before it. ``HUGE``: the next batch is larger than the window. ``NO_BATCH``: no
        batch begins at the next place.
    """
    place = state[W_PLACE]
    count = np.int64(0)
    status = NEED_BYTES
    while place + SMALLEST_BYTES <= filled:
        if count >= limit:
            status = ROWS_FULL
            break
        size = next_batch(buf, place, file_size - origin - place)
        if size == 0:
            status = NO_BATCH
            break
        if place + size > filled:
            status = HUGE if size > buf.shape[0] else NEED_BYTES
            break
        row = rows[count]
        read_header(buf, place, origin + place, state[W_LAST_OFFSET], row)
        if byte_at(buf, place + MAGIC) == 2:
            computed = (
                crc32c_of_57(buf, place + ATTRIBUTES)
                if size == ATTRIBUTES + 57
                else crc32c_update(0, buf, place + ATTRIBUTES, place + size)
            )
        else:
            computed = crc32_update(0, buf, place + OLD_CRC_START, place + size)
        if computed != row[B_CRC]:
            row[B_PROBLEM] = BAD_CRC
            row[B_COMPUTED] = computed
            status = SUSPECT
            break
        state[W_LAST_OFFSET] = max(state[W_LAST_OFFSET], row[B_LAST_OFFSET])
        place += size
        count += 1
    state[W_PLACE] = place
    return np.int64(status) << 32 | count


@kernel
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


@kernel
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


@kernel
def window_records(buf: Any, origin: int, batches: Any, rows: Any, counts: Any) -> Any:
    """Read all records of uncompressed v2 batches that lie in one window.

    Args:
        buf: uint8[W]; place 0 is file position ``origin``.
        origin: file position of place 0.
        batches: int64[B, BATCH_COLUMNS].
        rows: int64[N, RECORD_COLUMNS], out.
        counts: int64[B], out: records of each batch.

    Returns:
        How many batches were read. It stops at a batch whose records do not fill it exactly, or when ``rows`` is full.
    """
    written = np.int64(0)
    for number in range(batches.shape[0]):
        start = batches[number, B_POSITION] - origin
        place = np.int64(start + HEADER)
        end = start + batches[number, B_SIZE]
        wanted = batches[number, B_COUNT]
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


@kernel
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
