"""Kernels of the second pass of key compaction: copy a log without the removed records, for ``compaction.log``.

A batch that loses no record is copied as it is. A batch that loses some records keeps its header except for length,
count, CRC and, with CreateTime, the maximum timestamp. A batch that loses all records becomes the empty header that
Kafka's cleaner writes.

Source: MemoryRecords.filterTo and DefaultRecordBatch.writeEmptyHeader (2.2.1, 3.9), KIP-534 for delete horizons.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from krepair.formats import batch_v2
from krepair.kernels.compact_keys import (
    BAD_ORDER,
    BAD_RECORD,
    CODEC_MASK,
    CONTROL,
    NEED_BYTES,
    NO_BATCH,
    OLD_FORMAT,
    OTHER,
    OUTPUT_FULL,
    P_END,
    P_PLACE,
    P_START,
    PACKED_COLUMNS,
    TRANSACTIONAL,
    UNPREPARED,
)
from krepair.kernels.compact_records import (
    F_KEY_SIZE,
    F_OFFSET,
    F_TIMESTAMP,
    F_VALUE_SIZE,
    FIELD_COUNT,
    is_aborted,
    read_record,
)
from krepair.kernels.jit import inlined, kernel
from krepair.kernels.legacy import SMALLEST_BYTES
from krepair.kernels.next_batch import next_batch
from krepair.kernels.scan_window import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    CRC,
    HEADER,
    LAST_DELTA,
    LENGTH,
    LENGTH_END,
    MAGIC,
    MAX_TIMESTAMP,
    MIN_LENGTH,
    PRODUCER_ID,
    RECORD_COUNT,
)
from krepair.kernels.words import be16, be32, be64, byte_at, crc32c_update, le64, store64, swapped

LOG_APPEND_TIME, DELETE_HORIZON = batch_v2.LOG_APPEND_TIME, batch_v2.DELETE_HORIZON
KEPT_OF_EMPTY: Final = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL

# Elements of the state, an array that callers carry from call to call.
F_PLACE: Final = 0  # place of the next batch in the window
F_OUT: Final = 1  # number of bytes written to the output
F_CURSOR: Final = 2  # index into ``stays`` of the first offset that is not below the current batch
F_LAST_OFFSET: Final = 3  # offset of the last record that was read of the current batch
F_KEPT: Final = 4  # number of records of the current batch that are kept
F_MAX_TIMESTAMP: Final = 5  # largest timestamp of the records that are kept
F_ROW: Final = 6  # index of the next noted header, see ``compact_headers``
F_POSITION: Final = 7  # file position of the batch of that header
F_RUN_ROW: Final = 8  # index of the header after a run of batches that must be read
F_RUN_END: Final = 9  # file position after that run
F_NEXT: Final = 10  # row of the next compressed batch that was prepared
F_READY: Final = 11  # row after the last compressed batch that was prepared
F_SIZED: Final = 12  # index of the first word for the records of the next noted header
F_RUN_SIZED: Final = 13  # index of the first word for the records of the header after the run
FIELDS: Final = 14  # first of the fields of the current record
FILTER_STATE: Final = FIELDS + FIELD_COUNT

# Fate of a batch, as far as its header decides it.
STAYS_PARTLY: Final = 0  # its records must be examined: any number of them may be kept
GOES_ABORTED: Final = 1
GOES_SUPERSEDED: Final = 2

# Further columns of a compressed batch: number of its records that are kept, -1 if it must be read alone; and their
# largest timestamp.
P_KEPT: Final = PACKED_COLUMNS
P_MAX_TIMESTAMP: Final = PACKED_COLUMNS + 1
FILTERED_COLUMNS: Final = PACKED_COLUMNS + 2

# Inputs, which do not change during a pass.
N_NOW_MS: Final = 0
N_DROP_UNSTAMPED: Final = 1  # 1 if tombstones in batches without a delete horizon may be removed
N_KEYLESS: Final = 2  # 1 if there may be records without a key
N_DROP_STAMPED: Final = 3  # 1 if tombstones past their batch's delete horizon may be removed
N_SUMS: Final = 4  # 1 to compute the CRC of new batches; a pass that writes nothing saves the time
INPUT_SIZE: Final = 5

# Counts of records by their fate; ``rules.compaction.RecordTally`` has a field of each name.
T_RECORDS: Final = 0  # data records that were read
T_KEPT: Final = 1
T_SUPERSEDED: Final = 2
T_ABORTED: Final = 3
T_KEYLESS: Final = 4  # records without a key, which are kept
T_TOMBSTONES_DROPPED: Final = 5
T_TOMBSTONES_KEPT: Final = 6
T_UNSTAMPED: Final = 7  # tombstones, last of their key, without a delete horizon: the segment's time decides
T_STAMP_PAST: Final = 8
T_STAMP_TO_COME: Final = 9
T_UNSTAMPED_BYTES: Final = 10
T_REWRITTEN: Final = 11  # batches that lost some records
T_EMPTIED: Final = 12  # batches that lost all records
T_STAMP_PAST_BYTES: Final = 13
T_HELD: Final = (
    14  # tombstones, last of their key, that are kept because an older record of the key stays somewhere
)
TALLY_COUNT: Final = 15

# Parts of a header's eight-byte words, which are read little-endian.
_LOW_HALF = np.uint64(0xFFFFFFFF)
_EPOCH_OF_WORD = np.uint64(0xFFFFFFFF << 32)  # after the batch length
_EMPTY_LENGTH = np.uint64(MIN_LENGTH << 24)
# The word from the attributes on: attributes, last offset delta, and two bytes of the base timestamp, which becomes -1.
# The next word begins with its other six bytes.
_KEPT_OF_WORD = np.uint64(KEPT_OF_EMPTY << 8 | 0xFFFFFFFF << 16)
_NO_TIME_BEGINS = np.uint64(0xFFFF << 48)
_NO_TIME_ENDS = np.uint64((1 << 48) - 1)

UNSTAMPED: Final = 0
STAMP_PAST: Final = 1
STAMP_TO_COME: Final = 2


@inlined
def copied(buf: Any, start: Any, end: Any, out: Any, to: Any) -> Any:
    """Copy ``buf[start:end]`` to a place of ``out``; return the place after the copy."""
    for step in range(np.uint64(end - start)):
        out[np.uint64(to) + step] = buf[np.uint64(start) + step]
    return to + end - start


@inlined
def _put32(out: Any, place: Any, value: Any) -> None:
    for step in range(4):
        out[place + step] = np.uint8((np.int64(value) >> (24 - 8 * step)) & 0xFF)


@inlined
def _put64(out: Any, place: Any, value: Any) -> None:
    for step in range(8):
        out[place + step] = np.uint8((np.int64(value) >> (56 - 8 * step)) & 0xFF)


@inlined
def put_empty(buf: Any, place: Any, out: Any, to: Any) -> None:
    """Write the header of 61 bytes that Kafka's cleaner leaves of a batch that loses all its records."""
    store64(out, to + BASE_OFFSET, le64(buf, place + BASE_OFFSET))
    store64(out, to + LENGTH, (le64(buf, place + LENGTH) & _EPOCH_OF_WORD) | _EMPTY_LENGTH)
    store64(out, to + ATTRIBUTES, (le64(buf, place + ATTRIBUTES) & _KEPT_OF_WORD) | _NO_TIME_BEGINS)
    store64(out, to + ATTRIBUTES + 8, le64(buf, place + ATTRIBUTES + 8) | _NO_TIME_ENDS)
    store64(out, to + ATTRIBUTES + 16, le64(buf, place + ATTRIBUTES + 16))
    store64(out, to + ATTRIBUTES + 24, le64(buf, place + ATTRIBUTES + 24))
    store64(out, to + BASE_SEQUENCE, le64(buf, place + BASE_SEQUENCE) & _LOW_HALF)
    crc = np.uint64(crc32c_update(0, out, to + ATTRIBUTES, to + HEADER))
    store64(out, to + MAGIC - 3, (le64(buf, place + MAGIC - 3) & _LOW_HALF) | swapped(crc))


@inlined
def put_left(
    buf: Any, place: Any, count: Any, kept: Any, max_timestamp: Any, sums: Any, tallies: Any, out: Any, to: Any,
    end: Any,
) -> Any:  # fmt: skip
    """Write the header of a batch that loses some records; its kept records are already in the output after the header.

    Args:
        buf: window of the log, uint8[W].
        place: place of the batch's header.
        count: number of its records.
        kept: number of its kept records.
        max_timestamp: largest timestamp of the kept records; ignored with LogAppendTime.
        sums: True to compute a new CRC; False to leave the old CRC.
        tallies: counters, int64[TALLY_COUNT], in and out.
        out: the new log, uint8[V], out.
        to: place of the new header.
        end: place after the kept records.

    Returns:
        The place after the batch.
    """
    if kept == 0:
        tallies[T_EMPTIED] += 1
        put_empty(buf, place, out, to)
        return to + HEADER
    copied(buf, place, place + HEADER, out, to)
    if kept < count:
        tallies[T_REWRITTEN] += 1
        _put32(out, to + LENGTH, end - to - LENGTH_END)
        _put32(out, to + RECORD_COUNT, kept)
        if be16(out, to + ATTRIBUTES) & LOG_APPEND_TIME == 0:
            _put64(out, to + MAX_TIMESTAMP, max_timestamp)
        if sums != 0:
            _put32(out, to + CRC, crc32c_update(0, out, to + ATTRIBUTES, end))
    return end


@inlined
def first_not_below(stays: Any, offset: Any) -> Any:
    """Return the index in the ascending ``stays`` of the first offset that is not below ``offset``."""
    low, high = 0, stays.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if stays[middle] < offset:
            low = middle + 1
        else:
            high = middle
    return np.int64(low)


@inlined
def is_among(sorted_offsets: Any, offset: Any) -> Any:
    """Return whether an offset is in int64[N], which ascends."""
    place = first_not_below(sorted_offsets, offset)
    return place < sorted_offsets.shape[0] and sorted_offsets[place] == offset


@inlined
def _is_winner(offset: Any, stays: Any, state: Any) -> Any:
    cursor = state[F_CURSOR]
    if cursor > 0 and stays[cursor - 1] >= offset:  # v0 stores absolute offsets, which may go back
        cursor = first_not_below(stays, offset)
    while cursor < stays.shape[0] and stays[cursor] < offset:
        cursor += 1
    state[F_CURSOR] = cursor
    return cursor < stays.shape[0] and stays[cursor] == offset


@inlined
def record_stays(
    offset: Any,
    size: Any,
    fields: Any,
    stamp: Any,
    stays: Any,
    held: Any,
    inputs: Any,
    state: Any,
    tallies: Any,
) -> Any:
    tallies[T_RECORDS] += 1
    keeps = False
    if fields[F_KEY_SIZE] < 0:
        keeps = True
        tallies[T_KEYLESS] += 1
    elif _is_winner(offset, stays, state):
        keeps = True
        if fields[F_VALUE_SIZE] < 0:
            if stamp == UNSTAMPED:
                tallies[T_UNSTAMPED] += 1
                tallies[T_UNSTAMPED_BYTES] += size
                keeps = inputs[N_DROP_UNSTAMPED] == 0
            elif stamp == STAMP_PAST:
                tallies[T_STAMP_PAST] += 1
                tallies[T_STAMP_PAST_BYTES] += size
                keeps = inputs[N_DROP_STAMPED] == 0
            else:
                tallies[T_STAMP_TO_COME] += 1
            if not keeps and is_among(held, offset):
                keeps = True
                tallies[T_HELD] += 1
            if keeps:
                tallies[T_TOMBSTONES_KEPT] += 1
            else:
                tallies[T_TOMBSTONES_DROPPED] += 1
    else:
        tallies[T_SUPERSEDED] += 1
    if keeps:
        tallies[T_KEPT] += 1
    return keeps


@inlined
def stamp_of(attributes: Any, base_timestamp: Any, now_ms: Any) -> Any:
    """Return whether a v2 batch has a delete horizon, and whether that horizon is past (KIP-534)."""
    stamp = UNSTAMPED
    if attributes & DELETE_HORIZON != 0:
        stamp = STAMP_PAST if base_timestamp <= now_ms else STAMP_TO_COME
    return stamp


@kernel("bytes, long, long, long, bytes, longs, longs, longs, longs, longs, bytes")
def filter_records(
    buf: Any,
    place: Any,
    end: Any,
    left: Any,
    header: Any,
    stays: Any,
    held: Any,
    inputs: Any,
    state: Any,
    tallies: Any,
    out: Any,
) -> Any:
    """Copy the kept records of one v2 batch, whose uncompressed records are in a buffer.

    Args:
        buf: window of the log, uint8[W].
        place: place of the next record.
        end: number of valid bytes in the buffer.
        left: number of records that remain in the batch.
        header: uint8[61], the header of the batch.
        stays: int64[N] offsets of the last record of each key, ascending.
        held: int64[H] offsets of tombstones that are kept whatever their age, ascending.
        inputs: inputs of the compaction, int64[INPUT_SIZE].
        state: int64[FILTER_STATE]; ``F_LAST_OFFSET`` is the base offset - 1 at first.
        tallies: counters, int64[TALLY_COUNT], in and out.
        out: uint8[V], out, from ``F_OUT`` on; at least as much room as bytes are read.

    Returns:
        (status, records read, place after them).
    """
    fields = state[FIELDS:]
    stamp = stamp_of(be16(header, ATTRIBUTES), be64(header, BASE_TIMESTAMP), inputs[N_NOW_MS])
    return _filter(
        buf,
        place,
        end,
        left,
        be64(header, BASE_OFFSET),
        be32(header, LAST_DELTA),
        be64(header, BASE_TIMESTAMP),
        stamp,
        stays,
        held,
        inputs,
        state,
        tallies,
        out,
        fields,
    )


@inlined
def _filter(
    buf: Any,
    place: Any,
    end: Any,
    left: Any,
    base_offset: Any,
    last_delta: Any,
    base_timestamp: Any,
    stamp: Any,
    stays: Any,
    held: Any,
    inputs: Any,
    state: Any,
    tallies: Any,
    out: Any,
    fields: Any,
) -> Any:
    status = NEED_BYTES
    read = np.int64(0)
    at = np.int64(place)
    while read < left:
        after = read_record(buf, at, end, fields)
        if after < 0:
            status = NEED_BYTES if after == -1 else BAD_RECORD
            break
        offset = base_offset + fields[F_OFFSET]
        if offset <= state[F_LAST_OFFSET] or fields[F_OFFSET] > last_delta:
            status = BAD_ORDER
            break
        state[F_LAST_OFFSET] = offset
        if record_stays(offset, after - at, fields, stamp, stays, held, inputs, state, tallies):
            state[F_KEPT] += 1
            state[F_MAX_TIMESTAMP] = max(state[F_MAX_TIMESTAMP], base_timestamp + fields[F_TIMESTAMP])
            state[F_OUT] = copied(buf, at, after, out, state[F_OUT])
        at = after
        read += 1
    return status, read, at


@inlined
def _any_stays(first: Any, last: Any, stays: Any, inputs: Any, state: Any) -> Any:
    """Move the cursor to the first kept offset from ``first`` on, and return whether it is at most ``last``."""
    cursor = state[F_CURSOR]
    steps = 0
    if cursor > 0 and stays[cursor - 1] >= first:
        cursor = first_not_below(stays, first)
    while cursor < stays.shape[0] and stays[cursor] < first:
        cursor += 1
        steps += 1
        if steps > 8:
            cursor = first_not_below(stays, first)
    state[F_CURSOR] = cursor
    return inputs[N_KEYLESS] != 0 or (cursor < stays.shape[0] and stays[cursor] <= last)


@inlined
def batch_goes(
    buf: Any, place: Any, attributes: Any, last_delta: Any, aborted: Any, stays: Any, inputs: Any, state: Any
) -> Any:
    """Decide from the header of a v2 data batch: ``STAYS_PARTLY``, ``GOES_ABORTED`` or ``GOES_SUPERSEDED``."""
    base_offset = be64(buf, place + BASE_OFFSET)
    goes = STAYS_PARTLY
    if attributes & TRANSACTIONAL != 0 and is_aborted(aborted, be64(buf, place + PRODUCER_ID), base_offset):
        goes = GOES_ABORTED
    elif not _any_stays(base_offset, base_offset + last_delta, stays, inputs, state):
        goes = GOES_SUPERSEDED
    return goes


@inlined
def count_gone(goes: Any, count: Any, tallies: Any) -> None:
    """Count the records of a batch that is removed as a whole."""
    tallies[T_ABORTED if goes == GOES_ABORTED else T_SUPERSEDED] += count
    tallies[T_RECORDS] += count
    tallies[T_EMPTIED] += 1


@inlined
def _put_packed(
    buf: Any,
    place: Any,
    end: Any,
    count: Any,
    to: Any,
    inputs: Any,
    state: Any,
    tallies: Any,
    packed: Any,
    contents: Any,
    out: Any,
) -> Any:
    """Write a prepared compressed batch to the output; return ``NEED_BYTES`` on success, else another status."""
    row = state[F_NEXT]
    while row < state[F_READY] and packed[row, P_PLACE] < place:
        row += 1
    state[F_NEXT] = row
    if row >= state[F_READY]:
        return UNPREPARED
    kept = packed[row, P_KEPT]
    if kept < 0 or packed[row, P_PLACE] != place:
        return OTHER
    if kept == count:
        state[F_OUT] = copied(buf, place, end, out, to)
    else:
        start, stop = packed[row, P_START], packed[row, P_END]
        if to + HEADER + stop - start > out.shape[0]:
            return OUTPUT_FULL
        left = copied(contents, start, stop, out, to + HEADER)
        state[F_OUT] = put_left(
            buf, place, count, kept, packed[row, P_MAX_TIMESTAMP], inputs[N_SUMS], tallies, out, to, left
        )
    return NEED_BYTES


@kernel("bytes, long, long, long, fixed rows, longs, longs, longs, longs, longs, rows, fixed bytes, bytes")
def filter_window(
    buf: Any,
    filled: Any,
    origin: Any,
    file_size: Any,
    aborted: Any,
    stays: Any,
    held: Any,
    inputs: Any,
    state: Any,
    tallies: Any,
    packed: Any,
    contents: Any,
    out: Any,
) -> Any:
    """Write the kept part of the batches that a window holds completely.

    The kept part of a compressed batch must be prepared before, see ``compact_packed``.

    Args:
        buf: uint8[W]; place 0 is file position ``origin``.
        filled: number of valid bytes in the buffer.
        origin: file position of place 0.
        file_size: length of the log in bytes.
        aborted: int64[N, 3] (producer id, first offset, offset of the marker), ascending by the first two.
        stays: int64[N] offsets of the last record of each key, ascending.
        held: int64[H] offsets of tombstones that are kept whatever their time, ascending.
        inputs: inputs of the compaction, int64[INPUT_SIZE].
        state: state of the pass, int64[FILTER_STATE], in and out.
        tallies: counters, int64[TALLY_COUNT], in and out.
        packed: int64[P, FILTERED_COLUMNS] of compressed batches, by place; rows ``F_NEXT`` to ``F_READY`` count.
        contents: uint8[C], the kept part of them, compressed, from ``P_START`` to ``P_END``.
        out: uint8[V], out, from ``F_OUT`` on.

    Returns:
        A status; ``UNPREPARED`` at a compressed batch that has no row. The batch at ``F_PLACE`` is untouched,
        except with ``BAD_RECORD`` and ``BAD_ORDER``.
    """
    fields = state[FIELDS:]
    place = np.int64(state[F_PLACE])
    status = NEED_BYTES
    while place + SMALLEST_BYTES <= filled:
        magic = np.int64(byte_at(buf, place + MAGIC))
        size = next_batch(buf, place, file_size - origin - place)
        if size == 0:
            status = NO_BATCH
            break
        end = place + size
        if magic < 2:
            status = OLD_FORMAT
            break
        if place + HEADER > filled:
            break
        if end > filled:
            status = OTHER if origin + filled >= file_size or size > filled else NEED_BYTES
            break
        to = np.int64(state[F_OUT])
        if to + size > out.shape[0]:
            status = OUTPUT_FULL if to > 0 else OTHER
            break
        base_offset = be64(buf, place + BASE_OFFSET)
        attributes = be16(buf, place + ATTRIBUTES)
        count = be32(buf, place + RECORD_COUNT)
        if attributes & CONTROL != 0 or count <= 0:
            state[F_OUT] = copied(buf, place, end, out, to)
            place = end
            continue
        last_delta = be32(buf, place + LAST_DELTA)
        goes = batch_goes(buf, place, attributes, last_delta, aborted, stays, inputs, state)
        if goes != STAYS_PARTLY:
            count_gone(goes, count, tallies)
            put_empty(buf, place, out, to)
            state[F_OUT] = to + HEADER
            place = end
            continue
        if attributes & CODEC_MASK != 0:
            status = _put_packed(buf, place, end, count, to, inputs, state, tallies, packed, contents, out)
            if status != NEED_BYTES:
                break
            place = end
            continue
        state[F_LAST_OFFSET] = base_offset - 1
        state[F_KEPT] = 0
        state[F_MAX_TIMESTAMP] = -1
        state[F_OUT] = to + HEADER
        base_timestamp = be64(buf, place + BASE_TIMESTAMP)
        found, read, after = _filter(
            buf,
            place + HEADER,
            end,
            count,
            base_offset,
            last_delta,
            base_timestamp,
            stamp_of(attributes, base_timestamp, inputs[N_NOW_MS]),
            stays,
            held,
            inputs,
            state,
            tallies,
            out,
            fields,
        )
        if found != NEED_BYTES or read != count or after != end:
            status = found if found == BAD_ORDER else BAD_RECORD
            break
        state[F_OUT] = put_left(
            buf,
            place,
            count,
            state[F_KEPT],
            state[F_MAX_TIMESTAMP],
            inputs[N_SUMS],
            tallies,
            out,
            to,
            state[F_OUT],
        )
        place = end
    state[F_PLACE] = place
    return status
