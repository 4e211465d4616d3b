"""Kernels of ``rewrite.compaction.check``: compare a source and the compacted result record by record, then by key.

These kernels share no code with the kernels that compact. A key is hashed as the values of a polynomial over the field
of 2^61-1 elements at two points, which are drawn at random for each verification. (Carter and Wegman: two different
keys of n bytes have the same values with a probability of at most (n/7 / 2^61)^2.) For each key there is one row: the
last committed record of the source, whether it may be removed, and the record of the result.

Source: DefaultRecord, DefaultRecordBatch, LegacyRecord (2.2.1, 3.9); KIP-98 for markers.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from krepair.formats import batch_v2
from krepair.kernels.check_numbers import short_number
from krepair.kernels.jit import inlined, kernel
from krepair.kernels.key_points import two_hashes
from krepair.kernels.words import be16, be32, be64, byte_at, le64, prefetch

_H = {name: batch_v2.HEADER.place(name) for name in batch_v2.HEADER.names}
HEADER: Final = batch_v2.HEADER_SIZE
OVERHEAD: Final = batch_v2.LOG_OVERHEAD
_MAGIC, _LENGTH, _ATTRIBUTES, _DELTA = (
    _H["magic"],
    _H["batch_length"],
    _H["attributes"],
    _H["last_offset_delta"],
)
_BASE_TIME, _MAX_TIME = _H["base_timestamp"], _H["max_timestamp"]
_PRODUCER, _COUNT, _EPOCH = _H["producer_id"], _H["record_count"], _H["partition_leader_epoch"]
_SMALLEST: Final = 17  # number of bytes up to the magic byte, which give size and format of a batch
CONTROL, TRANSACTIONAL, CODEC, APPEND_TIME, STAMP = (
    batch_v2.CONTROL,
    batch_v2.TRANSACTIONAL,
    batch_v2.CODEC_MASK,
    batch_v2.LOG_APPEND_TIME,
    batch_v2.DELETE_HORIZON,
)
_KEPT_OF_EMPTY: Final = APPEND_TIME | TRANSACTIONAL | CONTROL

# Status with which a call of a kernel ends.
NEED_SOURCE: Final = 0
NEED_RESULT: Final = 1
TABLE_FULL: Final = 2
SLOW: Final = 3  # the next batch is compressed or larger than a window: the caller compares it separately
DONE: Final = 4
BAD_SOURCE: Final = 5
NOT_IN_SOURCE: Final = 6  # the result has a batch or record that the source does not have
CHANGED: Final = 7  # a record is not verbatim
HEADER_CHANGED: Final = 8
KEYLESS_GONE: Final = 9
ABORTED_STAYS: Final = 10
TRANSACTION: Final = 11  # a transactional batch in a log that should have none
PACKED_FULL: Final = 12
TEXTS: Final = {
    BAD_SOURCE: "the source cannot be read here",
    NOT_IN_SOURCE: "the result has a batch or a record that the source has not",
    CHANGED: "a record of the result is not verbatim that of the source",
    HEADER_CHANGED: "a field of the header is not what it has to be",
    KEYLESS_GONE: "a record without a key is gone",
    ABORTED_STAYS: "a record of an aborted transaction is in the result",
    TRANSACTION: "a batch of a transaction, and the plan knows of none",
}

# Columns of a key's row: two halves of the hash (0 and 1), offset + 1 of its last record in the source, ``R_GOES``,
# offset + 1 of its record in the result, and bits (1: the result has it twice; 2: the row is in use).
# ``R_GOES``: the lowest bit is 1 if the last record may be removed. The other bits are the lowest offset + 1 of a
# record of the key that is kept elsewhere, in another group or another replica; 0 if there is none.
ROW_WORDS: Final = 6
R_LAST, R_GOES, R_RESULT, R_TWICE = 2, 3, 4, 5
_MAY_GO: Final = np.uint64(1)
_BELOW: Final = np.uint64(2**64 - 2)

# Elements of the state, an array that callers carry from call to call.
C_SOURCE: Final = 0  # place of the next batch in the window of the source
C_RESULT: Final = 1  # place of the next batch in the window of the result
C_ROWS: Final = 2  # number of rows in the table
C_RECORDS: Final = 3  # number of records of the source so far
C_KEPT: Final = 4  # number of records of the result so far
C_LEFT: Final = 5  # records left in the current batch of the source
C_RESULT_LEFT: Final = 6  # records left in the current batch of the result
C_MAX_TIME: Final = 7  # largest timestamp of the records of the current batch that are kept
C_PACKED: Final = 8  # number of compressed batches that were deferred for ``check_packed``
C_NOTED: Final = 9  # number of collected rows that are not in the table yet
CHECK_STATE: Final = 10

# Columns of a compressed batch that was deferred: its place and size in both windows (size 0 in the result if that has
# no records to compare), codec and mode; then start and end of its uncompressed records, of the source and the result.
P_SOURCE: Final = 0
P_SIZE: Final = 1
P_RESULT: Final = 2
P_RESULT_SIZE: Final = 3
P_CODEC: Final = 4
P_MODE: Final = 5
P_START: Final = 6
P_END: Final = 7
P_RESULT_START: Final = 8
P_RESULT_END: Final = 9
PACKED_COLUMNS: Final = 10

# Facts of the current batch.
UNKNOWN: Final = 2  # value of ``B_ABORTED`` for a transactional batch in a log that should have none
B_BASE: Final = 0  # base offset
B_TIME: Final = 1  # base timestamp
B_ABORTED: Final = 2  # 1 if its records are aborted
B_TOMBSTONES_GO: Final = 3  # 1 if its tombstones may be removed
B_MODE: Final = 4  # one of the modes below
B_ELSEWHERE: Final = 5  # 1 if the source is a log of another replica
BATCH_FACTS: Final = 6
# Modes of comparing a batch.
ALL_GONE: Final = 0  # the result has no record of the batch
COMPARE: Final = 1  # the records must be compared one by one
SAME: Final = 2  # the batch in the result has the same bytes

# Inputs, which do not change during a comparison.
I_NOW_MS: Final = 0
I_HORIZON: Final = 1  # 1 if tombstones in batches without a delete horizon may be removed
I_TRANSACTIONS: Final = 2  # 1 if there may be transactions
I_ELSEWHERE: Final = 3  # 1 if the source is a log of another replica, whose records only keep tombstones
CHECK_INPUTS: Final = 4


_AHEAD: Final = 8
"""Number of rows in advance for which the memory of a row is prefetched; that of its slot twice as far."""


@inlined
def _first_slot(first: Any, mask: Any) -> Any:
    """Return the slot where the search for a key begins."""
    return (first ^ (first >> np.uint64(29))) & mask


@inlined
def _row(table: Any, slots: Any, first: Any, second: Any, state: Any) -> Any:
    """Return the row of a key; a new key gets the next free row, which must exist."""
    mask = np.uint64(slots.shape[0] - 1)
    slot = _first_slot(first, mask)
    row = np.int64(slots[slot])
    while row >= 0 and (table[np.uint64(row), 0] != first or table[np.uint64(row), 1] != second):
        slot = (slot + np.uint64(1)) & mask
        row = np.int64(slots[slot])
    if row < 0:
        row = state[C_ROWS]
        slots[slot] = row
        table[np.uint64(row), 0] = first
        table[np.uint64(row), 1] = second
        for column in range(2, ROW_WORDS):
            table[np.uint64(row), column] = 0
        state[C_ROWS] += 1
    return np.uint64(row)


@kernel("word rows, long, ints")
def enter_slots(table: Any, count: Any, slots: Any) -> None:
    """Enter the first rows of a table into new slots."""
    mask = np.uint64(slots.shape[0] - 1)
    for row in range(count):
        first = table[row, 0]
        slot = _first_slot(first, mask)
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = row


@inlined
def _note(rows: Any, first: Any, second: Any, last: Any, goes: Any, result: Any, state: Any) -> None:
    """Append what a record says about its key to ``rows``; ``join_rows`` enters it into the table later."""
    row = np.uint64(state[C_NOTED])
    rows[row, 0] = first
    rows[row, 1] = second
    rows[row, R_LAST] = np.uint64(last)
    rows[row, R_GOES] = np.uint64(goes)
    rows[row, R_RESULT] = np.uint64(result)
    rows[row, R_TWICE] = np.uint64(0)
    state[C_NOTED] += 1


@inlined
def _seen(table: Any, slot: Any, offset: Any, may_go: Any) -> None:
    """Enter a committed record of the source into the row of its key."""
    if table[slot, R_LAST] < np.uint64(offset + 1):
        table[slot, R_LAST] = np.uint64(offset + 1)
        table[slot, R_GOES] = (table[slot, R_GOES] & _BELOW) | np.uint64(1 if may_go else 0)


@inlined
def _stays_elsewhere(table: Any, slot: Any, offset: Any) -> None:
    """Enter a record that keeps later tombstones of its key from being removed."""
    number = np.uint64(offset + 1)
    below = table[slot, R_GOES] >> np.uint64(1)
    if below == 0 or number < below:
        table[slot, R_GOES] = (number << np.uint64(1)) | (table[slot, R_GOES] & _MAY_GO)


@inlined
def _in_result(table: Any, slot: Any, offset: Any) -> None:
    if table[slot, R_RESULT] != 0 and table[slot, R_RESULT] != np.uint64(offset + 1):
        table[slot, R_TWICE] |= np.uint64(1)
    table[slot, R_RESULT] = max(table[slot, R_RESULT], np.uint64(offset + 1))


@kernel("fixed word rows, word rows, ints, longs", "word rows, word rows, ints, longs")
def join_rows(rows: Any, table: Any, slots: Any, state: Any) -> None:
    """Enter collected rows, or those of another table, uint64[N, ROW_WORDS], into a table with room for all keys."""
    mask, end = np.uint64(slots.shape[0] - 1), rows.shape[0] - 1
    for number in range(rows.shape[0]):
        prefetch(slots, _first_slot(rows[min(number + 2 * _AHEAD, end), 0], mask))
        near: Any = np.int64(slots[_first_slot(rows[min(number + _AHEAD, end), 0], mask)])
        prefetch(table, max(near, 0) * ROW_WORDS)
        slot = _row(table, slots, rows[number, 0], rows[number, 1], state)
        if rows[number, R_LAST] != 0:
            _seen(table, slot, np.int64(rows[number, R_LAST]) - 1, rows[number, R_GOES] & _MAY_GO != 0)
        if rows[number, R_GOES] & _BELOW != 0:
            _stays_elsewhere(table, slot, np.int64(rows[number, R_GOES] >> np.uint64(1)) - 1)
        if rows[number, R_RESULT] != 0:
            _in_result(table, slot, np.int64(rows[number, R_RESULT]) - 1)
        table[slot, R_TWICE] |= rows[number, R_TWICE] & np.uint64(1)


@kernel("word rows, long")
def judge_rows(table: Any, count: Any) -> Any:
    """Find a key for which the result is wrong.

    Returns:
        (offset, error, number of keys); (-1, 0, number of keys) if all keys are right. Errors: 1: the last record of
        the key is missing, although it must be kept. 2: the result has another record of the key, or two. 3: the source
        lacks the key. 4: the last record, a tombstone, is missing, although an older record of the key is kept, here or
        in another replica.
    """
    keys = np.int64(0)
    for slot in range(count):
        last, result = np.int64(table[slot, R_LAST]) - 1, np.int64(table[slot, R_RESULT]) - 1
        if last < 0 and result < 0:
            continue
        keys += 1
        if last < 0:
            return result, 3, keys
        if table[slot, R_TWICE] & np.uint64(1) != 0 or (result >= 0 and result != last):
            return last, 2, keys
        if result < 0 and table[slot, R_GOES] & _MAY_GO == 0:
            return last, 1, keys
        below = np.int64(table[slot, R_GOES] >> np.uint64(1)) - 1
        if result < 0 and 0 <= below < last:
            return last, 4, keys
    return np.int64(-1), 0, keys


@inlined
def _read(buf: Any, place: Any, end: Any) -> Any:
    """Read fields of a v2 record: (place after it, time delta, offset delta, place and size of its key, value size).

    The place after the record is -1 if the record is cut off, -2 if it is wrong; then the other values have no meaning.
    """
    size, at = short_number(buf, place, end)
    stop = at + size
    after = np.int64(stop)
    time, delta, key, key_size, value_size = (np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0))
    if at > end or stop > end:
        after = np.int64(-1 if size >= 0 else -2)
    elif size < 6:
        after = np.int64(-2)
    else:
        time, at = short_number(buf, at + 1, stop)
        delta, at = short_number(buf, at, stop)
        key_size, key = short_number(buf, at, stop)
        value_size, at = short_number(buf, key + max(key_size, 0), stop)
        if at > stop or at + max(value_size, 0) >= stop:
            after = np.int64(-2)
    return after, time, delta, key, key_size, value_size


@inlined
def _equal(one: Any, place: Any, other: Any, other_place: Any, size: Any) -> Any:
    step = np.int64(0)
    while step + 8 <= size and le64(one, place + step) == le64(other, other_place + step):
        step += 8
    while step < size and byte_at(one, place + step) == byte_at(other, other_place + step):
        step += 1
    return step >= size


@inlined
def _peek_delta(buf: Any, place: Any, end: Any) -> Any:
    """Return (offset delta of the record at a place, place after it); place -1: cut off, -2: invalid."""
    size, at = short_number(buf, place, end)
    stop = at + size
    after = np.int64(stop)
    delta = np.int64(-1)
    if at > end or stop > end:
        after = np.int64(-1 if size >= 0 else -2)
    elif size < 6:
        after = np.int64(-2)
    else:
        _, at = short_number(buf, at + 1, stop)
        delta, at = short_number(buf, at, stop)
    return delta, after


@kernel("bytes, long, bytes, long, longs, words, word rows, longs")
def check_records(
    source: Any, source_end: Any, result: Any, result_end: Any, batch: Any, points: Any, rows: Any,
    state: Any,
) -> Any:  # fmt: skip
    """Compare the records of one v2 batch of the source with the records of the same batch in the result.

    Args:
        source: uint8[W], 8 bytes more than are valid, uncompressed records; the next one is at ``C_SOURCE``.
        source_end: number of valid bytes in ``source``.
        result: uint8[V], uncompressed records of the result; the next one is at ``C_RESULT``.
        result_end: number of valid bytes in ``result``.
        batch: facts of the batch, int64[BATCH_FACTS].
        points: uint64[4] of the polynomial, see ``two_hashes``.
        rows: uint64[R, ROW_WORDS], out, from ``C_NOTED`` on.
        state: state of the comparison, int64[CHECK_STATE], in and out.

    Returns:
        A status; ``DONE`` when no record is left on either side.
    """
    return _records(source, source_end, result, result_end, batch, points, rows, state)


@inlined
def _records(
    source: Any, source_end: Any, result: Any, result_end: Any, batch: Any, points: Any, rows: Any,
    state: Any,
) -> Any:  # fmt: skip
    limit = rows.shape[0]
    mode = batch[B_MODE]
    if batch[B_ABORTED] == UNKNOWN:
        return TRANSACTION
    while state[C_LEFT] > 0:
        if state[C_NOTED] >= limit:
            return TABLE_FULL
        place = np.int64(state[C_SOURCE])
        after, time, delta, key, key_size, value_size = _read(source, place, source_end)
        if after < 0:
            return NEED_SOURCE if after == -1 else BAD_SOURCE
        offset = batch[B_BASE] + delta
        kept = mode == SAME
        if mode == COMPARE and state[C_RESULT_LEFT] > 0:
            at = np.int64(state[C_RESULT])
            found, result_after = _peek_delta(result, at, result_end)
            if result_after < 0:
                return NEED_RESULT if result_after == -1 else CHANGED
            if found < delta:
                return NOT_IN_SOURCE
            if found == delta:
                if result_after - at != after - place or not _equal(source, place, result, at, after - place):
                    return CHANGED
                kept = True
                state[C_RESULT] = result_after
                state[C_RESULT_LEFT] -= 1
        state[C_RECORDS] += 1
        if kept:
            state[C_KEPT] += 1
            state[C_MAX_TIME] = max(state[C_MAX_TIME], batch[B_TIME] + time)
        if batch[B_ELSEWHERE] != 0:
            if batch[B_ABORTED] == 0 and key_size >= 0:
                first, second = two_hashes(source, key, key_size, points)
                _note(rows, first, second, 0, (offset + 1) << 1, 0, state)
        elif batch[B_ABORTED] != 0:
            if kept:
                return ABORTED_STAYS
        elif key_size < 0:
            if not kept:
                return KEYLESS_GONE
        else:
            first, second = two_hashes(source, key, key_size, points)
            may_go = 1 if value_size < 0 and batch[B_TOMBSTONES_GO] != 0 else 0
            _note(rows, first, second, offset + 1, may_go, offset + 1 if kept else 0, state)
        state[C_SOURCE] = after
        state[C_LEFT] -= 1
    if state[C_RESULT_LEFT] > 0:
        return NOT_IN_SOURCE
    return DONE


@inlined
def _aborted(ranges: Any, producer_id: Any, offset: Any) -> Any:
    """Return whether an offset belongs to an aborted transaction.

    ``ranges``: int64[N, 3] (producer id, first offset, offset of the abort marker), ascending by the first two.
    """
    low, high = 0, ranges.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if ranges[middle, 0] < producer_id or (
            ranges[middle, 0] == producer_id and ranges[middle, 2] < offset
        ):
            low = middle + 1
        else:
            high = middle
    return low < ranges.shape[0] and ranges[low, 0] == producer_id and ranges[low, 1] <= offset


@kernel("bytes, long, fixed rows, longs, longs", "fixed bytes, long, fixed rows, longs, longs")
def batch_facts(head: Any, place: Any, ranges: Any, inputs: Any, facts: Any) -> None:
    """Derive from the header of a v2 batch the facts that its records are compared by.

    Args:
        head: bytes with the header, uint8[W].
        place: place of the header.
        ranges: int64[N, 3], see ``_aborted``.
        inputs: inputs of the comparison, int64[CHECK_INPUTS].
        facts: int64[BATCH_FACTS], out; ``B_MODE`` does not change.
    """
    _facts(head, place, ranges, inputs, facts)


@inlined
def _facts(head: Any, place: Any, ranges: Any, inputs: Any, facts: Any) -> None:
    attributes = be16(head, place + _ATTRIBUTES)
    facts[B_BASE] = be64(head, place)
    facts[B_TIME] = be64(head, place + _BASE_TIME)
    transactional = attributes & TRANSACTIONAL != 0
    facts[B_ABORTED] = 0
    if transactional and inputs[I_TRANSACTIONS] == 0:
        facts[B_ABORTED] = UNKNOWN
    elif transactional and _aborted(ranges, be64(head, place + _PRODUCER), facts[B_BASE]):
        facts[B_ABORTED] = 1
    goes = facts[B_TIME] <= inputs[I_NOW_MS] if attributes & STAMP != 0 else inputs[I_HORIZON] != 0
    facts[B_TOMBSTONES_GO] = 1 if goes else 0
    facts[B_ELSEWHERE] = inputs[I_ELSEWHERE]


@kernel("bytes, long, bytes, long, long", "fixed bytes, long, fixed bytes, long, long")
def header_is_right(source: Any, place: Any, result: Any, at: Any, max_time: Any) -> Any:
    """Return whether a header of the result is right: it differs from the source only where it must.

    Args:
        source: window of the source, uint8[W].
        place: place of the header in the source.
        result: uint8[V]; the CRC of its batch was checked.
        at: place of the header in the result.
        max_time: largest timestamp of the remaining records; ignored if none remains.
    """
    count = be32(result, at + _COUNT)
    attributes = be16(source, place + _ATTRIBUTES)
    same = (
        be64(source, place) == be64(result, at)
        and be32(source, place + _EPOCH) == be32(result, at + _EPOCH)
        and byte_at(result, at + _MAGIC) == 2
        and be32(source, place + _DELTA) == be32(result, at + _DELTA)
        and _equal(source, place + _PRODUCER, result, at + _PRODUCER, _COUNT - _PRODUCER)
    )
    if count == 0:
        same = (
            same
            and be32(result, at + _LENGTH) == HEADER - OVERHEAD
            and be16(result, at + _ATTRIBUTES) == attributes & _KEPT_OF_EMPTY
            and be64(result, at + _BASE_TIME) == -1
            and be64(source, place + _MAX_TIME) == be64(result, at + _MAX_TIME)
        )
    else:
        wanted = be64(source, place + _MAX_TIME) if attributes & APPEND_TIME != 0 else max_time
        same = (
            same
            and be16(result, at + _ATTRIBUTES) == attributes
            and be64(source, place + _BASE_TIME) == be64(result, at + _BASE_TIME)
            and be64(result, at + _MAX_TIME) == wanted
        )
    return same


@kernel("bytes, long, long, bytes, long, long, fixed rows, longs, words, word rows, longs, longs, rows")
def check_window(  # noqa: PLR0911
    source: Any, source_filled: Any, source_left: Any, result: Any, result_filled: Any, result_left: Any, ranges: Any,
    inputs: Any, points: Any, rows: Any, state: Any, facts: Any, packed: Any,
) -> Any:  # fmt: skip
    """Compare the uncompressed batches that both windows hold completely.

    Compressed batches are put into ``packed``, and ``check_packed`` compares them later.

    Args:
        source: uint8[W] with 8 bytes more; the next batch is at ``C_SOURCE``.
        source_filled: number of valid bytes in ``source``.
        source_left: bytes of the source after the window.
        result: uint8[V] with 8 bytes more; the next batch is at ``C_RESULT``.
        result_filled: number of valid bytes in ``result``.
        result_left: bytes of the result after the window.
        ranges: int64[N, 3], see ``_aborted``.
        inputs: inputs of the comparison, int64[CHECK_INPUTS].
        points: points of the polynomial, uint64[4].
        rows: uint64[R, ROW_WORDS], out, from ``C_NOTED`` on.
        state: state of the comparison, int64[CHECK_STATE], in and out.
        facts: working space for the batch, int64[BATCH_FACTS].
        packed: int64[P, PACKED_COLUMNS], out, from row ``C_PACKED`` on: the columns before ``P_START``.

    Returns:
        A status; ``DONE`` at the end of the source, even if the result has more batches.
    """
    limit = rows.shape[0]
    while True:
        place, at = np.int64(state[C_SOURCE]), np.int64(state[C_RESULT])
        if place + _SMALLEST > source_filled:
            return NEED_SOURCE if source_left > 0 or place < source_filled else DONE
        if at + _SMALLEST > result_filled and result_left > 0:
            return NEED_RESULT
        magic = np.int64(byte_at(source, place + _MAGIC))
        size = be32(source, place + _LENGTH) + OVERHEAD
        if magic != 2 or size < HEADER or place + size > source_filled + source_left:
            return BAD_SOURCE
        if place + size > source_filled:
            return SLOW if place == 0 else NEED_SOURCE
        base = be64(source, place)
        there = at < result_filled
        result_size = be32(result, at + _LENGTH) + OVERHEAD if there else 0
        if there and at + result_size > result_filled and result_left > 0:
            return SLOW if at == 0 else NEED_RESULT
        if there and (result_size < _SMALLEST or at + result_size > result_filled):
            return NOT_IN_SOURCE  # no whole batch
        same = there and be64(result, at) == base
        if there and be64(result, at) < base:
            return NOT_IN_SOURCE
        if same and result_size < HEADER:
            return HEADER_CHANGED
        attributes = be16(source, place + _ATTRIBUTES)
        count = be32(source, place + _COUNT)
        identical = same and result_size == size and _equal(source, place, result, at, size)
        if attributes & CONTROL != 0 or count == 0:
            if (
                same
                and not identical
                and not (
                    be32(result, at + _COUNT) == 0 and header_is_right(source, place, result, at, np.int64(0))
                )
            ):
                return HEADER_CHANGED
        elif attributes & CODEC != 0:
            if count > limit:
                return SLOW
            row = state[C_PACKED]
            if row >= packed.shape[0]:
                return PACKED_FULL
            packed[row, P_SOURCE], packed[row, P_SIZE], packed[row, P_RESULT] = place, size, at
            packed[row, P_CODEC] = attributes & CODEC
            packed[row, P_MODE] = SAME if identical else COMPARE if same else ALL_GONE
            compared = same and not identical and be32(result, at + _COUNT) > 0
            packed[row, P_RESULT_SIZE] = result_size if compared else 0
            if compared and be16(result, at + _ATTRIBUTES) & CODEC != attributes & CODEC:
                return HEADER_CHANGED
            state[C_PACKED] = row + 1
        else:
            if state[C_NOTED] + count > limit:
                return TABLE_FULL if state[C_NOTED] > 0 else SLOW
            _facts(source, place, ranges, inputs, facts)
            facts[B_MODE] = SAME if identical else COMPARE if same else ALL_GONE
            if same and be16(result, at + _ATTRIBUTES) & CODEC != 0:
                return HEADER_CHANGED
            state[C_SOURCE], state[C_RESULT] = place + HEADER, at + HEADER
            state[C_LEFT], state[C_MAX_TIME] = count, -1
            state[C_RESULT_LEFT] = be32(result, at + _COUNT) if same and not identical else 0
            found = _records(source, place + size, result, at + result_size, facts, points, rows, state)
            if found != DONE or state[C_SOURCE] != place + size:
                return found if found > DONE else BAD_SOURCE
            if facts[B_MODE] == COMPARE:
                end = state[C_RESULT] if be32(result, at + _COUNT) > 0 else at + HEADER
                if end != at + result_size or not header_is_right(
                    source, place, result, at, state[C_MAX_TIME]
                ):
                    return HEADER_CHANGED
        state[C_SOURCE] = place + size
        state[C_RESULT] = at + result_size if same else at


@kernel("bytes, bytes, rows, long, long, bytes, bytes, fixed rows, longs, words, word rows, longs, longs")
def check_packed(
    source: Any, result: Any, packed: Any, first: Any, after: Any, unpacked: Any, kept: Any, ranges: Any, inputs: Any,
    points: Any, rows: Any, state: Any, facts: Any,
) -> Any:  # fmt: skip
    """Compare compressed batches, whose records were unpacked into two buffers.

    Args:
        source: uint8[W], the window with the headers of the source.
        result: uint8[V], the window with the headers of the result.
        packed: compressed batches that were deferred, int64[P, PACKED_COLUMNS].
        first: row to begin with.
        after: row after the last.
        unpacked: uint8[X] with 8 bytes more, the records of the source.
        kept: uint8[Y] with 8 bytes more, the records of the result, only of rows with mode ``COMPARE``.
        ranges: int64[N, 3], see ``_aborted``.
        inputs: inputs of the comparison, int64[CHECK_INPUTS].
        points: points of the polynomial, uint64[4].
        rows: uint64[R, ROW_WORDS], out, from ``C_NOTED`` on.
        state: state of the comparison, int64[CHECK_STATE], in and out.
        facts: working space for the batch, int64[BATCH_FACTS].

    Returns:
        (status, row at which it stopped). With ``TABLE_FULL`` nothing of that row was entered.
    """
    limit = rows.shape[0]
    row = np.int64(first)
    while row < after:
        place, at, mode = packed[row, P_SOURCE], packed[row, P_RESULT], packed[row, P_MODE]
        count = be32(source, place + _COUNT)
        if state[C_NOTED] + count > limit:
            return TABLE_FULL, row
        _facts(source, place, ranges, inputs, facts)
        facts[B_MODE] = mode
        left = be32(result, at + _COUNT) if mode == COMPARE else 0
        source_place, result_place = state[C_SOURCE], state[C_RESULT]
        state[C_SOURCE], state[C_RESULT] = packed[row, P_START], packed[row, P_RESULT_START]
        state[C_LEFT], state[C_RESULT_LEFT], state[C_MAX_TIME] = count, left, -1
        found = _records(
            unpacked, packed[row, P_END], kept, packed[row, P_RESULT_END], facts, points, rows, state
        )  # fmt: skip
        source_end, result_end = state[C_SOURCE], state[C_RESULT]
        state[C_SOURCE], state[C_RESULT] = source_place, result_place
        if found != DONE or source_end != packed[row, P_END]:
            return found if found > DONE else BAD_SOURCE, row
        if mode == COMPARE and (
            (left > 0 and result_end != packed[row, P_RESULT_END])
            or not header_is_right(source, place, result, at, state[C_MAX_TIME])
        ):
            return HEADER_CHANGED, row
        row += 1
    return DONE, row
