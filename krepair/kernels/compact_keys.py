"""Kernels of the first pass of key compaction: find the last committed record of each key, for ``compaction.keys``.

A table in memory holds one row per key: its hash, and the offset of that record. When the table is full, the caller
empties it and continues; the join later merges the rows of each key. Every record of committed data is checked against
the rules of its format, so that a record which a rewrite could not copy is found before anything is planned.

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
    F_TIMESTAMP,
    F_VALUE_SIZE,
    FIELD_COUNT,
    is_aborted,
    key_hash,
    read_record,
)
from krepair.kernels.jit import inlined, kernel
from krepair.kernels.legacy import SMALLEST_BYTES
from krepair.kernels.next_batch import next_batch
from krepair.kernels.scan_window import (
    ATTRIBUTES,
    BASE_OFFSET,
    HEADER,
    LAST_DELTA,
    MAGIC,
    PRODUCER_ID,
    RECORD_COUNT,
)
from krepair.kernels.words import be16, be32, be64, byte_at, prefetch

CODEC_MASK, CONTROL, TRANSACTIONAL = batch_v2.CODEC_MASK, batch_v2.CONTROL, batch_v2.TRANSACTIONAL

# Status with which a call of a kernel ends.
NEED_BYTES: Final = 0  # the window has no further complete batch
OTHER: Final = 1  # the next batch is compressed or does not fit into the window
TABLE_FULL: Final = 2
BAD_RECORD: Final = 3  # a record does not fit its batch
BAD_ORDER: Final = 4  # offsets do not ascend, or lie outside of their batch
NO_BATCH: Final = 5
OUTPUT_FULL: Final = 6
PACKED_FULL: Final = 7
TRANSACTION: Final = 8  # a data batch of a transaction, while aborted transactions are not known
UNPREPARED: Final = 9  # a compressed batch that ``compact_packed`` has not filtered yet
OLD_FORMAT: Final = 10  # a message of v0 or v1

# Columns of a compressed batch that was deferred: place and size in the window, codec, and start and end of its
# records in the buffer into which it is unpacked.
P_PLACE: Final = 0
P_SIZE: Final = 1
P_CODEC: Final = 2
P_START: Final = 3
P_END: Final = 4
PACKED_COLUMNS: Final = 5

# Elements of the state, an array that callers carry from call to call.
K_PLACE: Final = 0  # place of the next batch in the window
K_KEYS: Final = 1  # number of rows in the table
K_KEYLESS: Final = 2  # number of records of committed data without a key
K_LAST_OFFSET: Final = 3  # offset of the last record read of the current batch; at first base offset - 1
K_BATCH_LAST: Final = 4  # highest offset that the current batch may hold
K_PACKED: Final = 5  # number of compressed batches that were deferred
K_ABORTED_UNKNOWN: Final = (
    6  # 1 if aborted transactions are not known: then a data batch of one ends the call
)
K_LOWEST: Final = 7  # 1 if rows hold the lowest offset of each key, see ``LARGEST``
K_NOTED: Final = 8  # number of collected keys that are not in the table yet
K_SIZED: Final = 9  # number of words of records that the caller has not taken yet
K_SIZES: Final = 10  # 1 if such words are wanted, and all records so far fit into one
FIELDS: Final = 11  # first of the fields of the current record
STATE_SIZE: Final = FIELDS + FIELD_COUNT

# Columns of a key's row: two halves of the hash, and the offset + 1 of its record (0: a free slot).
ROW_WORDS: Final = 3

# Parts of the word that is noted for each record of an uncompressed batch: its size, two flags, the difference from the
# offset of the previous record (from the base offset - 1 for the first), and its timestamp delta.
W_SIZE: Final = (1 << 26) - 1
W_KEYLESS: Final = 1 << 26
W_TOMBSTONE: Final = 1 << 27
W_STEP_SHIFT: Final = 28
W_STEP: Final = (1 << 12) - 1
W_TIME_SHIFT: Final = 40

AHEAD: Final = 12
"""Number of rows in advance for which the memory of a row is prefetched."""

LARGEST: Final = 2**63 - 1
"""Number from which offsets are subtracted in tables of lowest offsets.

A table keeps the greatest number of each key; with ``LARGEST`` minus the offset, that is the lowest offset.
"""


@inlined
def _put(table: Any, first: Any, second: Any, number: Any, state: Any) -> None:
    """Enter the offset + 1 of a record into the row of its key."""
    mask = np.uint64(table.shape[0] - 1)
    slot = first & mask
    while table[slot, 2] != 0 and (table[slot, 0] != first or table[slot, 1] != second):
        slot = (slot + np.uint64(1)) & mask
    if table[slot, 2] == 0:
        table[slot, 0] = first
        table[slot, 1] = second
        state[K_KEYS] += 1
    table[slot, 2] = max(table[slot, 2], number)


@inlined
def _take(buf: Any, offset: Any, fields: Any, secret: Any, rows: Any, state: Any) -> None:
    """Append the hash of the key of one committed record to ``rows``."""
    if fields[F_KEY_SIZE] < 0:
        state[K_KEYLESS] += 1
    else:
        row = np.uint64(state[K_NOTED])
        first, second = key_hash(buf, fields[F_KEY], fields[F_KEY_SIZE], secret[0], secret[1])
        rows[row, 0] = first
        rows[row, 1] = second
        rows[row, 2] = np.uint64(LARGEST - offset if state[K_LOWEST] != 0 else offset) + np.uint64(1)
        state[K_NOTED] += 1


@inlined
def _note_size(size: Any, step: Any, fields: Any, sizes: Any, state: Any) -> None:
    """Append the word of a record to ``sizes``. If a record does not fit into a word, no word of the log is used."""
    time = fields[F_TIMESTAMP]
    if size > W_SIZE or step > W_STEP or (time << W_TIME_SHIFT) >> W_TIME_SHIFT != time:
        state[K_SIZES] = 0
    word = size | (step << W_STEP_SHIFT) | (time << W_TIME_SHIFT)
    if fields[F_KEY_SIZE] < 0:
        word |= W_KEYLESS
    elif fields[F_VALUE_SIZE] < 0:
        word |= W_TOMBSTONE
    sizes[np.uint64(state[K_SIZED])] = np.uint64(word)
    state[K_SIZED] += 1


@kernel("bytes, long, long, long, long, fixed words, word rows, longs, words")
def keys_of_records(
    buf: Any, place: Any, end: Any, left: Any, base_offset: Any, secret: Any, rows: Any, state: Any, sizes: Any
) -> Any:  # fmt: skip
    """Collect the keys of one v2 batch, whose uncompressed records are in a buffer.

    Args:
        buf: window of the log, uint8[W + SLACK].
        place: place of the next record.
        end: number of valid bytes in the buffer.
        left: number of records that remain in the batch.
        base_offset: base offset of the batch.
        secret: uint64[2], the key of the hash.
        rows: uint64[R, ROW_WORDS], out, from ``K_NOTED`` on.
        state: int64[STATE_SIZE]; the caller has set ``K_LAST_OFFSET`` and ``K_BATCH_LAST`` for this batch.
        sizes: uint64[R], out, from ``K_SIZED`` on: the words of the records; uint64[0] if they are not wanted.

    Returns:
        (status, records taken, place after them). ``TABLE_FULL`` when there is no room for more rows.
    """
    fields = state[FIELDS:]
    return _records(buf, place, end, left, base_offset, secret, rows, state, sizes, fields)


@inlined
def _records(
    buf: Any,
    place: Any,
    end: Any,
    left: Any,
    base_offset: Any,
    secret: Any,
    rows: Any,
    state: Any,
    sizes: Any,
    fields: Any,
) -> Any:
    status = NEED_BYTES
    taken = np.int64(0)
    at = np.int64(place)
    limit = rows.shape[0]
    sized = sizes.shape[0] > 0 and state[K_SIZES] != 0
    while taken < left:
        if max(state[K_NOTED], state[K_SIZED]) >= limit:
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
        if sized:
            _note_size(after - at, offset - state[K_LAST_OFFSET], fields, sizes, state)
        state[K_LAST_OFFSET] = offset
        _take(buf, offset, fields, secret, rows, state)
        at = after
        taken += 1
    return status, taken, at


@kernel("bytes, long, long, long, fixed rows, fixed words, word rows, longs, words, rows")
def keys_window(
    buf: Any,
    filled: Any,
    origin: Any,
    file_size: Any,
    aborted: Any,
    secret: Any,
    rows: Any,
    state: Any,
    sizes: Any,
    packed: Any,
) -> Any:
    """Collect the keys of the uncompressed batches that a window holds completely.

    Compressed batches are put into ``packed`` and unpacked later: keys can be entered in any order.

    Args:
        buf: uint8[W + SLACK]; place 0 is file position ``origin``.
        filled: number of valid bytes in the buffer.
        origin: file position of place 0.
        file_size: length of the log in bytes.
        aborted: int64[N, 3] (producer id, first offset, offset of the marker), ascending by the first two.
        secret: key of the hash, uint64[2].
        rows: uint64[R, ROW_WORDS], out, from ``K_NOTED`` on.
        state: state of the pass, int64[STATE_SIZE], in and out.
        sizes: sizes of the records, uint64[R], see ``keys_of_records``.
        packed: int64[P, PACKED_COLUMNS], out, from row ``K_PACKED`` on: all columns but ``P_START`` and ``P_END``.

    Returns:
        A status. The batch at ``K_PLACE`` is untouched, except with ``BAD_RECORD`` and ``BAD_ORDER``.
    """
    fields = state[FIELDS:]
    place = np.int64(state[K_PLACE])
    limit = rows.shape[0]
    status = NEED_BYTES
    while place + SMALLEST_BYTES <= filled:
        magic = np.int64(byte_at(buf, place + MAGIC))
        size = next_batch(buf, place, file_size - origin - place)
        if size == 0:
            status = NO_BATCH
            break
        if magic < 2:
            status = OLD_FORMAT
            break
        if place + HEADER > filled:
            break
        base_offset = be64(buf, place + BASE_OFFSET)
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
            place += size
            if place >= filled:
                break
            continue
        if place + size > filled:
            status = OTHER if origin + filled >= file_size or size > filled else NEED_BYTES
            break
        if attributes & CODEC_MASK != 0:
            if count > limit:
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
        if max(state[K_NOTED], state[K_SIZED]) + count > limit:
            status = TABLE_FULL if count <= limit else OTHER
            break
        end = place + size
        state[K_LAST_OFFSET] = base_offset - 1
        state[K_BATCH_LAST] = base_offset + be32(buf, place + LAST_DELTA)
        found, taken, after = _records(
            buf, place + HEADER, end, count, base_offset, secret, rows, state, sizes, fields
        )  # fmt: skip
        if found != NEED_BYTES or taken != count or after != end:
            status = found if found == BAD_ORDER else BAD_RECORD
            break
        place = end
    state[K_PLACE] = place
    return status


@kernel("bytes, rows, long, long, bytes, fixed words, word rows, longs")
def keys_of_packed(
    heads: Any, packed: Any, first: Any, after: Any, unpacked: Any, secret: Any, rows: Any, state: Any
) -> Any:  # fmt: skip
    """Collect the keys of compressed batches, whose records were unpacked into a buffer.

    Args:
        heads: uint8[W], the window that holds their headers.
        packed: compressed batches that were deferred, int64[P, PACKED_COLUMNS].
        first: row to begin with.
        after: row after the last.
        unpacked: their uncompressed records, uint8[V + SLACK].
        secret: key of the hash, uint64[2].
        rows: uint64[R, ROW_WORDS], out, from ``K_NOTED`` on.
        state: state of the pass, int64[STATE_SIZE], in and out.

    Returns:
        (status, row at which it stopped). With ``TABLE_FULL`` nothing of that row was entered.
    """
    fields = state[FIELDS:]
    limit = rows.shape[0]
    status = NEED_BYTES
    row = np.int64(first)
    while row < after:
        place = packed[row, P_PLACE]
        count = be32(heads, place + RECORD_COUNT)
        if state[K_NOTED] + count > limit:
            status = TABLE_FULL
            break
        base_offset = be64(heads, place + BASE_OFFSET)
        state[K_LAST_OFFSET] = base_offset - 1
        state[K_BATCH_LAST] = base_offset + be32(heads, place + LAST_DELTA)
        end = packed[row, P_END]
        found, taken, at = _records(
            unpacked, packed[row, P_START], end, count, base_offset, secret, rows, state, rows[:0, 0], fields
        )  # fmt: skip
        if found != NEED_BYTES or taken != count or at != end:
            status = found if found == BAD_ORDER else BAD_RECORD
            break
        row += 1
    return status, row


@kernel("fixed word rows, word rows, longs", "word rows, word rows, longs")
def merge_rows(rows: Any, table: Any, state: Any) -> None:
    """Enter collected rows, or the rows of another table; each hash keeps its greatest offset.

    This is a separate loop, so that the memory of later rows can be prefetched.

    Args:
        rows: rows to merge, uint64[N, ROW_WORDS].
        table: uint64[2**k, ROW_WORDS] with room for all of them.
        state: state of the pass, int64[STATE_SIZE], in and out.
    """
    mask = np.uint64(table.shape[0] - 1)
    for number in range(rows.shape[0]):
        ahead = min(number + AHEAD, rows.shape[0] - 1)
        prefetch(table, (rows[ahead, 0] & mask) * np.uint64(ROW_WORDS))
        _put(table, rows[number, 0], rows[number, 1], rows[number, 2], state)


@kernel("word rows, word rows, longs")
def held_offsets(table: Any, others: Any, out: Any) -> Any:
    """Return the last offset of each key that has an older record on another replica.

    Args:
        table: uint64[2**k, ROW_WORDS] of last offsets.
        others: uint64[2**j, ROW_WORDS] of lowest offsets, see ``LARGEST``; at least one slot is free.
        out: int64[N], out: has room for all rows of ``table``.

    Returns:
        Number of offsets in ``out``, in no order.
    """
    mask = np.uint64(others.shape[0] - 1)
    count = np.int64(0)
    for slot in range(table.shape[0]):
        if table[slot, 2] == 0:
            continue
        first, second = table[slot, 0], table[slot, 1]
        at = first & mask
        while others[at, 2] != 0 and (others[at, 0] != first or others[at, 1] != second):
            at = (at + np.uint64(1)) & mask
        if others[at, 2] == 0:
            continue
        last = np.int64(table[slot, 2] - np.uint64(1))
        if LARGEST - np.int64(others[at, 2] - np.uint64(1)) < last:
            out[count] = last
            count += 1
    return count


@kernel("word rows, word, longs, word rows")
def drain_by_bucket(table: Any, shift: Any, counts: Any, out: Any) -> Any:
    """Move all rows out of a table, sorted by bucket, and leave the table empty.

    Args:
        table: uint64[2**k, ROW_WORDS]; the third word is 0 in a free slot.
        shift: the bucket of a row is its first word shifted right by this number of bits.
        counts: int64[B + 1], out: number of rows before each bucket.
        out: uint64[N, ROW_WORDS], out: has room for all rows.

    Returns:
        Number of rows.
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
            for word in range(out.shape[1]):
                out[row, word] = table[slot, word]
            table[slot, 2] = 0
    for number in range(buckets, 0, -1):
        counts[number] = counts[number - 1]
    counts[0] = 0
    return counts[buckets]
