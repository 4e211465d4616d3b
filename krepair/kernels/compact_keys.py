"""The first wave of key compaction: of every key of a ``.log``, its hash and the offset of its last committed record.

A table in memory holds one row per key; when it is full the wrapper takes its rows away and goes on, and the join puts
rows of one key together again. Every record of committed data is looked at and held against the rules of its format,
so that what a rewrite could not carry over is found before anything is planned.

Source: Cleaner.buildOffsetMapForSegment (2.2.1, 3.9): control batches and aborted data are not mapped.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from krepair.formats import batch_v2
from krepair.kernels.compact_records import (
    F_KEY,
    F_KEY_SIZE,
    F_OFFSET,
    F_VALUE_SIZE,
    FIELD_COUNT,
    is_aborted,
    key_hash,
    read_message,
    read_record,
)
from krepair.kernels.crc32 import crc32_update
from krepair.kernels.jit import inlined, kernel
from krepair.kernels.legacy import OLD_CRC, OLD_CRC_START, OLD_MIN_LENGTH_V0, SMALLEST_BYTES
from krepair.kernels.scan_window import (
    ATTRIBUTES,
    BASE_OFFSET,
    HEADER,
    LAST_DELTA,
    LENGTH,
    LENGTH_END,
    MAGIC,
    MIN_LENGTH,
    PRODUCER_ID,
    RECORD_COUNT,
)
from krepair.kernels.words import be16, be32, be64, byte_at

CODEC_MASK, CONTROL, TRANSACTIONAL = batch_v2.CODEC_MASK, batch_v2.CONTROL, batch_v2.TRANSACTIONAL

# how a call ended
NEED_BYTES: Final = 0
OTHER: Final = 1  # the batch at the place is compressed, or passes the window
TABLE_FULL: Final = 2
BAD_RECORD: Final = 3  # a record does not fit its batch
BAD_ORDER: Final = 4  # offsets do not ascend, or lie outside of their batch
NO_BATCH: Final = 5
OUTPUT_FULL: Final = 6
BAD_CRC: Final = 7  # of a message inside a wrapper, of a batch that would be written anew
PACKED_FULL: Final = 8
TRANSACTION: Final = 9  # a batch of data of a transaction, and what is aborted is not known

# columns of a compressed batch that is left for later: places in the window, then in the buffer that it is unpacked to
P_PLACE: Final = 0
P_SIZE: Final = 1
P_CODEC: Final = 2
P_START: Final = 3
P_END: Final = 4
PACKED_COLUMNS: Final = 5

# scalars of the state
K_PLACE: Final = 0
K_KEYS: Final = 1  # rows in the table
K_RECORDS: Final = 2  # of committed data
K_KEYLESS: Final = 3
K_TOMBSTONES: Final = 4
K_ABORTED_RECORDS: Final = 5
K_ABORTED_BATCHES: Final = 6
K_LAST_OFFSET: Final = 7  # of the last record of the batch at hand, -1 before its first
K_BATCH_LAST: Final = 8  # highest offset that the batch at hand may hold
K_PACKED: Final = 9  # compressed batches of the window that are left for later
K_ABORTED_UNKNOWN: Final = 10  # whether a batch of data of a transaction ends the work
FIELDS: Final = 11  # of the record at hand
STATE_SIZE: Final = FIELDS + FIELD_COUNT

# columns of a row: two halves of the hash, and the offset + 1 (0: a free slot)
ROW_WORDS: Final = 3


@inlined
def _put(table: Any, first: Any, second: Any, offset: Any, state: Any) -> None:
    mask = np.uint64(table.shape[0] - 1)
    slot = first & mask
    while table[slot, 2] != 0 and (table[slot, 0] != first or table[slot, 1] != second):
        slot = (slot + np.uint64(1)) & mask
    if table[slot, 2] == 0:
        table[slot, 0] = first
        table[slot, 1] = second
        state[K_KEYS] += 1
    table[slot, 2] = max(table[slot, 2], np.uint64(offset) + np.uint64(1))


@inlined
def _take(buf: Any, offset: Any, fields: Any, secret: Any, table: Any, state: Any) -> None:
    """Count one record of committed data and enter its key."""
    state[K_RECORDS] += 1
    if fields[F_KEY_SIZE] < 0:
        state[K_KEYLESS] += 1
    else:
        if fields[F_VALUE_SIZE] < 0:
            state[K_TOMBSTONES] += 1
        first, second = key_hash(buf, fields[F_KEY], fields[F_KEY_SIZE], secret[0], secret[1])
        _put(table, first, second, offset, state)


@kernel
def keys_of_records(
    buf: Any, place: Any, end: Any, left: Any, base_offset: Any, secret: Any, table: Any, state: Any
) -> Any:
    """Enter the keys of records of one v2 batch that lie, uncompressed, in a buffer.

    Args:
        buf: uint8[W + SLACK].
        place: of the next record.
        end: bytes of the buffer that are valid.
        left: how many records the batch still has.
        base_offset: of the batch.
        secret: uint64[2].
        table: uint64[2**k, ROW_WORDS].
        state: int64[STATE_SIZE]; ``K_LAST_OFFSET`` and ``K_BATCH_LAST`` are of this batch.

    Returns:
        (status, records taken, place after them). ``TABLE_FULL`` when half of the table is taken.
    """
    fields = state[FIELDS:]
    return _records(buf, place, end, left, base_offset, secret, table, state, fields)


@inlined
def _records(
    buf: Any,
    place: Any,
    end: Any,
    left: Any,
    base_offset: Any,
    secret: Any,
    table: Any,
    state: Any,
    fields: Any,
) -> Any:
    status = NEED_BYTES
    taken = np.int64(0)
    at = np.int64(place)
    limit = table.shape[0] >> 1
    while taken < left:
        if state[K_KEYS] >= limit:
            status = TABLE_FULL
            break
        after = read_record(buf, at, end, fields)
        if after < 0:
            status = NEED_BYTES if after == -1 else BAD_RECORD
            break
        offset = base_offset + fields[F_OFFSET]
        if offset <= state[K_LAST_OFFSET] or offset > state[K_BATCH_LAST]:
            status = BAD_ORDER
            break
        state[K_LAST_OFFSET] = offset
        _take(buf, offset, fields, secret, table, state)
        at = after
        taken += 1
    return status, taken, at


@kernel
def keys_of_messages(
    buf: Any, place: Any, end: Any, magic: Any, base: Any, secret: Any, table: Any, state: Any
) -> Any:
    """Enter the keys of the inner messages of a v0 or v1 wrapper.

    Args:
        buf: uint8[W + SLACK].
        place: of the next message.
        end: bytes of the buffer that are valid.
        magic: of the wrapper.
        base: added to stored offsets.
        secret: uint64[2].
        table: uint64[2**k, ROW_WORDS].
        state: int64[STATE_SIZE].

    Returns:
        (status, place after the messages taken): ``NEED_BYTES`` at the end, also where bytes are left over.
    """
    fields = state[FIELDS:]
    status = NEED_BYTES
    at: Any = np.int64(place)
    limit = table.shape[0] >> 1
    while at < end:
        if state[K_KEYS] >= limit:
            status = TABLE_FULL
            break
        after = read_message(buf, at, end, fields)
        if after < 0 or byte_at(buf, at + MAGIC) != magic or byte_at(buf, at + MAGIC + 1) & CODEC_MASK != 0:
            status = BAD_RECORD
            break
        if crc32_update(0, buf, at + OLD_CRC_START, after) != be32(buf, at + OLD_CRC) & 0xFFFFFFFF:
            status = BAD_CRC
            break
        offset = base + fields[F_OFFSET]
        if offset <= state[K_LAST_OFFSET] or offset > state[K_BATCH_LAST]:
            status = BAD_ORDER
            break
        state[K_LAST_OFFSET] = offset
        _take(buf, offset, fields, secret, table, state)
        at = after
    return status, at


@kernel
def last_stored_offset(buf: Any) -> Any:
    """Offset of the last of the messages that fill a buffer, as it is stored; -1 if they do not fill it."""
    place = np.int64(0)
    last = np.int64(-1)
    while place < buf.shape[0]:
        size = be32(buf, place + LENGTH) + LENGTH_END if place + LENGTH_END <= buf.shape[0] else 0
        if size < SMALLEST_BYTES or place + size > buf.shape[0]:
            return np.int64(-1)
        last = be64(buf, place)
        place += size
    return last


@kernel
def keys_window(
    buf: Any,
    filled: Any,
    origin: Any,
    file_size: Any,
    aborted: Any,
    secret: Any,
    table: Any,
    state: Any,
    packed: Any,
) -> Any:
    """Enter the keys of the batches that lie whole, and uncompressed, in a window.

    Compressed ones that lie whole in it are noted: the order in which keys are entered does not matter.

    Args:
        buf: uint8[W + SLACK]; place 0 is file position ``origin``.
        filled: bytes of it that are valid.
        origin: file position of place 0.
        file_size: where the log ends.
        aborted: int64[N, 3] (producer id, first offset, offset of the marker), ascending by the first two.
        secret: uint64[2].
        table: uint64[2**k, ROW_WORDS].
        state: int64[STATE_SIZE].
        packed: int64[P, PACKED_COLUMNS], out, from ``K_PACKED`` on: all but ``P_START`` and ``P_END``.

    Returns:
        A status; the batch at ``K_PLACE`` is untouched, but for ``BAD_RECORD`` and ``BAD_ORDER``.
    """
    fields = state[FIELDS:]
    place = np.int64(state[K_PLACE])
    limit = table.shape[0] >> 1
    status = NEED_BYTES
    while place + SMALLEST_BYTES <= filled:
        magic = np.int64(byte_at(buf, place + MAGIC))
        size = be32(buf, place + LENGTH) + LENGTH_END
        least = MIN_LENGTH if magic == 2 else OLD_MIN_LENGTH_V0
        if magic > 2 or size < least + LENGTH_END or origin + place + size > file_size:
            status = NO_BATCH
            break
        if magic == 2 and place + HEADER > filled:
            break
        base_offset = be64(buf, place + BASE_OFFSET)
        if magic == 2:
            attributes = be16(buf, place + ATTRIBUTES)
            count = be32(buf, place + RECORD_COUNT)
            if attributes & CONTROL != 0 or count <= 0:
                place += size
                if place >= filled:
                    break
                continue
            if attributes & TRANSACTIONAL != 0 and state[K_ABORTED_UNKNOWN] != 0:
                status = TRANSACTION
                break
            if attributes & TRANSACTIONAL != 0 and is_aborted(
                aborted, be64(buf, place + PRODUCER_ID), base_offset
            ):
                state[K_ABORTED_BATCHES] += 1
                state[K_ABORTED_RECORDS] += count
                place += size
                if place >= filled:
                    break
                continue
        else:
            attributes = np.int64(byte_at(buf, place + MAGIC + 1))
            count = np.int64(1)
        if place + size > filled:
            status = OTHER if origin + filled >= file_size or size > filled else NEED_BYTES
            break
        if attributes & CODEC_MASK != 0:
            if magic < 2 or count > limit:
                status = OTHER
                break
            row = state[K_PACKED]
            if row >= packed.shape[0]:
                status = PACKED_FULL
                break
            packed[row, P_PLACE] = place
            packed[row, P_SIZE] = size
            packed[row, P_CODEC] = attributes & CODEC_MASK
            state[K_PACKED] = row + 1
            place += size
            continue
        if state[K_KEYS] + count > limit:
            status = TABLE_FULL if count <= limit else OTHER
            break
        end = place + size
        if magic == 2:
            state[K_LAST_OFFSET] = base_offset - 1
            state[K_BATCH_LAST] = base_offset + be32(buf, place + LAST_DELTA)
            found, taken, after = _records(
                buf, place + HEADER, end, count, base_offset, secret, table, state, fields
            )
            if found != NEED_BYTES or taken != count or after != end:
                status = found if found == BAD_ORDER else BAD_RECORD
                break
        else:
            if read_message(buf, place, end, fields) != end:
                status = BAD_RECORD
                break
            _take(buf, base_offset, fields, secret, table, state)
        place = end
    state[K_PLACE] = place
    return status


@kernel
def keys_of_packed(
    heads: Any, packed: Any, first: Any, after: Any, unpacked: Any, secret: Any, table: Any, state: Any
) -> Any:
    """Enter the keys of compressed batches whose records lie in a buffer.

    Args:
        heads: uint8[W], the window that holds their headers.
        packed: int64[P, PACKED_COLUMNS].
        first: row to begin with.
        after: row after the last.
        unpacked: uint8[V + SLACK].
        secret: uint64[2].
        table: uint64[2**k, ROW_WORDS].
        state: int64[STATE_SIZE].

    Returns:
        (status, row): of the row nothing was entered yet when the status is ``TABLE_FULL``.
    """
    fields = state[FIELDS:]
    limit = table.shape[0] >> 1
    status = NEED_BYTES
    row = np.int64(first)
    while row < after:
        place = packed[row, P_PLACE]
        count = be32(heads, place + RECORD_COUNT)
        if state[K_KEYS] + count > limit:
            status = TABLE_FULL
            break
        base_offset = be64(heads, place + BASE_OFFSET)
        state[K_LAST_OFFSET] = base_offset - 1
        state[K_BATCH_LAST] = base_offset + be32(heads, place + LAST_DELTA)
        end = packed[row, P_END]
        found, taken, at = _records(
            unpacked, packed[row, P_START], end, count, base_offset, secret, table, state, fields
        )
        if found != NEED_BYTES or taken != count or at != end:
            status = found if found == BAD_ORDER else BAD_RECORD
            break
        row += 1
    return status, row


@kernel
def merge_rows(rows: Any, table: Any, state: Any) -> None:
    """Enter rows of other tables: of each hash the greatest offset.

    Args:
        rows: uint64[N, ROW_WORDS].
        table: uint64[2**k, ROW_WORDS] with room for all of them.
        state: int64[STATE_SIZE].
    """
    for number in range(rows.shape[0]):
        _put(table, rows[number, 0], rows[number, 1], np.int64(rows[number, 2] - np.uint64(1)), state)


@kernel
def drain_by_bucket(table: Any, shift: Any, counts: Any, out: Any) -> Any:
    """Take all rows out of a table, those of one bucket side by side, and leave it empty.

    Args:
        table: uint64[2**k, ROW_WORDS].
        shift: the bucket of a row is its first word shifted right by so much.
        counts: int64[B + 1], out: rows before each bucket.
        out: uint64[N, ROW_WORDS], out: at least as many rows as there are.
    """
    buckets = counts.shape[0] - 1
    counts[:] = 0
    for slot in range(table.shape[0]):
        if table[slot, 2] != 0:
            counts[np.int64(table[slot, 0] >> shift) + 1] += 1
    for number in range(buckets):
        counts[number + 1] += counts[number]
    for slot in range(table.shape[0]):
        if table[slot, 2] != 0:
            bucket = np.int64(table[slot, 0] >> shift)
            row = counts[bucket]
            counts[bucket] = row + 1
            out[row, 0] = table[slot, 0]
            out[row, 1] = table[slot, 1]
            out[row, 2] = table[slot, 2]
            table[slot, 2] = 0
    for number in range(buckets, 0, -1):
        counts[number] = counts[number - 1]
    counts[0] = 0
    return counts[buckets]
