"""The scan kernel, which reads every batch header and checksum of a ``.log``, window by window, and keeps a state.

The kernel parses v2 batches, checks CRC-32C, follows the transactions of each producer, and finds the class of every
batch (``krepair.kernels.classes``). It does not allocate memory and does not raise. It returns a status, and the
wrapper (``krepair.kernels.scan``) refills the window, lets tables grow, or reports. Its slow reference implementation
is in ``tests/kernels``.

Source: DefaultRecordBatch (2.2.1, 3.9), ProducerAppendInfo.append and CleanedTransactionMetadata (2.2.1),
KAFKA-8351 for state across segments, KIP-534 for delete horizons.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from krepair.formats import batch_v2
from krepair.formats.java_numbers import INT32_MAX, INT64_MAX
from krepair.kernels import classes as c
from krepair.kernels.digests import MULTIPLIER, decision_word, digested
from krepair.kernels.jit import inlined_by_numba, kernel
from krepair.kernels.next_batch import next_batch
from krepair.kernels.words import be16, be32, be64, byte_at, crc32c_of_57, crc32c_update, le64, swapped

HEADER = batch_v2.HEADER.size
_P = {name: batch_v2.HEADER.place(name) for name in batch_v2.HEADER.names}
BASE_OFFSET, LENGTH, LEADER_EPOCH, MAGIC = (
    _P["base_offset"],
    _P["batch_length"],
    _P["partition_leader_epoch"],
    _P["magic"],
)
CRC, ATTRIBUTES, LAST_DELTA, BASE_TIMESTAMP = (
    _P["crc"],
    _P["attributes"],
    _P["last_offset_delta"],
    _P["base_timestamp"],
)
MAX_TIMESTAMP, PRODUCER_ID, PRODUCER_EPOCH = _P["max_timestamp"], _P["producer_id"], _P["producer_epoch"]
BASE_SEQUENCE, RECORD_COUNT = _P["base_sequence"], _P["record_count"]
LENGTH_END = LEADER_EPOCH  # batch_length counts the bytes after itself
TRANSACTIONAL, CONTROL, DELETE_HORIZON = batch_v2.TRANSACTIONAL, batch_v2.CONTROL, batch_v2.DELETE_HORIZON
MIN_LENGTH = HEADER - LENGTH_END
ABORT, COMMIT, OTHER, MALFORMED = 0, 1, 2, 3

# The layout of nearly every marker: transactional and control attributes, one record without timestamp delta, a key
# (version 0, type) and a value (version 0, coordinator epoch). The words are in file order, read little-endian.
PLAIN_SIZE = 78
_PLAIN_KEY_LENGTH = HEADER + 4
_PLAIN_TYPE = HEADER + 8


def _little_endian(*bytes_of_word: int) -> Any:
    return np.uint64(int.from_bytes(bytes(bytes_of_word), "little"))


_PLAIN_MAGIC = _little_endian(2, 0, 0, 0, 0, 0, TRANSACTIONAL | CONTROL, 0)
_PLAIN_MAGIC_MASK = _little_endian(255, 0, 0, 0, 0, 255, 255, 0)
_PLAIN_RECORD = _little_endian(0, 0, 0, 1, 32, 0, 0, 0)  # record count, record length, attributes, two deltas
_PLAIN_KEY = _little_endian(8, 0, 0, 0, 0, 12, 0, 0)  # key length, key, value length, start of the value
_PLAIN_KEY_MASK = _little_endian(255, 255, 255, 255, 254, 255, 255, 255)


@inlined_by_numba
def _plain_again(rows: Any, row: int) -> None:
    """Record whether the next marker with the row's epoch would change only counts."""
    plain = (
        rows[row, c.P_MARKERS] > 0
        and rows[row, c.P_OPEN_FIRST] < 0
        and rows[row, c.P_OPEN_KEPT] == 0
        and rows[row, c.P_OPEN_KEPT_NOW] == 0
        and (rows[row, c.P_LAST_DATA_POSITION] < 0 or rows[row, c.P_NEXT_POSITION] >= 0)
        and rows[row, c.P_PROTECTED_EPOCH] != rows[row, c.P_EPOCH]
    )
    rows[row, c.P_PLAIN_EPOCH] = rows[row, c.P_EPOCH] if plain else c.NO_PLAIN_EPOCH


@inlined_by_numba
def _count_plain(rows: Any, row: int) -> None:
    """Add the plain markers to the counts of a row, before the counts are read."""
    plain = rows[row, c.P_PLAIN_MARKERS]
    rows[row, c.P_MARKERS] += plain
    rows[row, c.P_FREE_MARKERS] += plain
    rows[row, c.P_PLAIN_MARKERS] = 0


@inlined_by_numba
def _control_type(buf: Any, place: int, end: int) -> int:
    """Return the type of a control batch's first record: ABORT, COMMIT, OTHER, or MALFORMED if it is unreadable."""
    for skipped in range(4):  # record length, (attributes,) timestamp delta, offset delta, key length
        length = 0
        while place < end and buf[place] >= 128 and length < 10:
            place += 1
            length += 1
        place += 1
        if skipped == 0:
            place += 1
    if place + 4 > end:
        return MALFORMED
    kind = be16(buf, place + 2)
    return kind if kind in (ABORT, COMMIT) else OTHER


@inlined_by_numba
def _coordinator_epoch(buf: Any, end: int) -> Any:
    """Return the coordinator epoch of an end-transaction marker: four bytes before the record's header count (0)."""
    return be32(buf, end - 5)


@inlined_by_numba
def _find(sorted_ids: Any, wanted: int) -> int:
    low, high = 0, sorted_ids.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if sorted_ids[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < sorted_ids.shape[0] and sorted_ids[low] == wanted else -1


@inlined_by_numba
def _find_pair(sorted_pairs: Any, wanted: int) -> int:
    low, high = 0, sorted_pairs.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if sorted_pairs[middle, 0] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < sorted_pairs.shape[0] and sorted_pairs[low, 0] == wanted else -1


@inlined_by_numba
def _slot_shift(mask: int) -> Any:
    """Return the number of bits by which a product is shifted, so that its highest bits are a slot's number."""
    shift = 64
    while mask > 0:
        mask >>= 1
        shift -= 1
    return np.uint64(shift)


@inlined_by_numba
def _row_of(producer_id: int, slots: Any, rows: Any, state: Any, carried: Any, protected: Any) -> Any:
    """Return the index of a producer's row; a new producer gets a new row. -1 if the table is full."""
    mask = slots.shape[0] - 1
    slot = np.int64((np.uint64(producer_id) * MULTIPLIER) >> _slot_shift(mask))
    while slots[slot] >= 0:
        if rows[slots[slot], c.P_ID] == producer_id:
            return np.int64(slots[slot])
        slot = (slot + 1) & mask
    row = state[c.S_ROWS]
    if row >= rows.shape[0]:
        return -1
    slots[slot] = row
    state[c.S_ROWS] = row + 1
    for column in range(c.ROW_SIZE):
        rows[row, column] = -1
    rows[row, c.P_ID] = producer_id
    for column in (c.P_EPOCHS_MIXED, c.P_LAST_DATA_EMPTIED, c.P_OPEN_KEPT, c.P_OPEN_KEPT_NOW, c.P_MARKERS,
                   c.P_LEAD_KEPT, c.P_LEAD_ABORT, c.P_NEXT_ABORT, c.P_NEXT_KEPT, c.P_FREE_MARKERS,
                   c.P_PLAIN_MARKERS):  # fmt: skip
        rows[row, column] = 0
    rows[row, c.P_PLAIN_EPOCH] = c.NO_PLAIN_EPOCH
    rows[row, c.P_CARRIED] = 1 if _find(carried, producer_id) >= 0 else 0
    found = _find_pair(protected, producer_id)
    rows[row, c.P_PROTECTED_EPOCH] = protected[found, 1] if found >= 0 else -2
    return row


@inlined_by_numba
def _enter_epoch(rows: Any, row: int, epoch: int) -> None:
    """Set a producer's epoch; a new epoch clears its last data (ProducerStateEntry.maybeUpdateEpoch, 2.2.1)."""
    if rows[row, c.P_FIRST_EPOCH] == -1 and rows[row, c.P_EPOCH] == -1:
        rows[row, c.P_FIRST_EPOCH] = epoch
        rows[row, c.P_EPOCH] = epoch
    elif rows[row, c.P_EPOCH] != epoch:
        rows[row, c.P_EPOCHS_MIXED] = 1
        rows[row, c.P_EPOCH] = epoch
        rows[row, c.P_LAST_DATA_OFFSET] = -1
        rows[row, c.P_LAST_DATA_POSITION] = -1
        rows[row, c.P_LAST_DATA_EMPTIED] = 0
        rows[row, c.P_LAST_SEQUENCE] = -1
        rows[row, c.P_LAST_DATA_TIMESTAMP] = -1
        rows[row, c.P_FREE_MARKERS] = 0


@inlined_by_numba
def _data_batch(rows: Any, row: int, epoch: int, base_offset: int, last_offset: int, position: int, timestamp: int,
                transactional: bool, emptied: bool, stays: bool, last_sequence: int) -> None:  # fmt: skip
    if (
        transactional
        and rows[row, c.P_OPEN_FIRST] >= 0
        and rows[row, c.P_EPOCH] != epoch
        and rows[row, c.P_SPANS_EPOCHS] < 0
    ):
        rows[row, c.P_SPANS_EPOCHS] = base_offset
    _enter_epoch(rows, row, epoch)
    rows[row, c.P_LAST_DATA_OFFSET] = last_offset
    rows[row, c.P_LAST_DATA_DELTA] = last_offset - base_offset
    rows[row, c.P_LAST_DATA_POSITION] = position
    rows[row, c.P_LAST_DATA_EMPTIED] = 1 if emptied else 0
    rows[row, c.P_LAST_SEQUENCE] = last_sequence
    rows[row, c.P_TIMESTAMP] = timestamp
    rows[row, c.P_LAST_DATA_TIMESTAMP] = timestamp
    rows[row, c.P_NEXT_POSITION] = -1
    if transactional:
        if rows[row, c.P_OPEN_FIRST] < 0:
            rows[row, c.P_OPEN_FIRST] = base_offset
        if not emptied:
            rows[row, c.P_OPEN_KEPT] = 1
        if stays:
            rows[row, c.P_OPEN_KEPT_NOW] = 1


@inlined_by_numba
def _marker_class(rows: Any, row: int, epoch: int, stamped: bool, stamp: int, now_ms: int) -> int:
    """Return the class of a marker whose transaction has no data left."""
    if rows[row, c.P_PROTECTED_EPOCH] == epoch:
        return c.MARKER_EPOCH
    if stamped:
        return c.MARKER_STAMP_PAST if stamp <= now_ms else c.MARKER_STAMP_TO_COME
    return c.MARKER_UNSTAMPED


@inlined_by_numba
def _end_marker(rows: Any, row: int, abort: bool, offset: int, position: int, size: int, entry: int, free_class: int,
                state: Any, high_watermark: int, entry_flags: Any) -> int:  # fmt: skip
    """Record an abort or commit marker, which ends the producer's transaction, and return the marker's class."""
    leads = rows[row, c.P_MARKERS] == 0
    kept = rows[row, c.P_OPEN_KEPT] == 1
    kept_now = rows[row, c.P_OPEN_KEPT_NOW] == 1 or (leads and rows[row, c.P_CARRIED] == 1)
    batch_class = c.MARKER_DATA_REMAINS if kept_now else free_class
    if entry >= 0:
        entry_flags[entry] = c.ENTRY_DATA if kept_now else c.ENTRY_NO_DATA
    elif abort and kept_now:
        state[c.S_ABORTS_UNINDEXED] += 1
    if leads:
        rows[row, c.P_LEAD_POSITION] = position
        rows[row, c.P_LEAD_CLASS] = free_class
        rows[row, c.P_LEAD_SIZE] = size
        rows[row, c.P_LEAD_OFFSET] = offset
        rows[row, c.P_LEAD_ENTRY] = entry
        rows[row, c.P_LEAD_KEPT] = 1 if kept else 0
        rows[row, c.P_LEAD_FIRST] = rows[row, c.P_OPEN_FIRST]
        rows[row, c.P_LEAD_ABORT] = 1 if abort else 0
    if rows[row, c.P_LAST_DATA_POSITION] >= 0 and rows[row, c.P_NEXT_POSITION] < 0:
        rows[row, c.P_NEXT_POSITION] = position
        rows[row, c.P_NEXT_CLASS] = free_class
        rows[row, c.P_NEXT_SIZE] = size
        rows[row, c.P_NEXT_ENTRY] = entry
        rows[row, c.P_NEXT_ABORT] = 1 if abort else 0
        rows[row, c.P_NEXT_KEPT] = 1 if kept else 0
    if not leads and offset >= high_watermark:
        first = rows[row, c.P_OPEN_FIRST] if rows[row, c.P_OPEN_FIRST] >= 0 else offset
        state[c.S_MIN_UNREPLICATED] = min(state[c.S_MIN_UNREPLICATED], first)
    if not kept_now:
        rows[row, c.P_FREE_MARKERS] += 1
    rows[row, c.P_MARKERS] += 1
    rows[row, c.P_OPEN_FIRST] = -1
    rows[row, c.P_OPEN_KEPT] = 0
    rows[row, c.P_OPEN_KEPT_NOW] = 0
    return batch_class


@inlined_by_numba
def _length_word(length: int, leader_epoch: int) -> Any:
    """Return batch length and leader epoch as the word that ``le64`` loads from their place in a batch."""
    return swapped((np.uint64(length) << np.uint64(32)) | (np.uint64(leader_epoch) & np.uint64(0xFFFFFFFF)))


@inlined_by_numba
def _damage(state: Any, kind: int, found: int) -> int:
    state[c.S_DAMAGE] = kind
    state[c.S_DAMAGE_FOUND] = found
    return c.DAMAGE


@kernel(
    "bytes, long, longs, longs, rows, ints, rows, rows, bytes, longs, longs, rows, longs, rows, ints, bytes",
)
def scan_window(buf: Any, filled: int, state: Any, inputs: Any, rows: Any, slots: Any, tallies: Any, entries: Any,
                entry_flags: Any, carried: Any, keep_positions: Any, protected: Any, held: Any, epochs: Any,
                starts: Any, batch_classes: Any) -> int:  # fmt: skip
    """Scan the batches that lie completely in ``buf[state[S_PLACE]:filled]``.

    Args:
        buf: uint8[W], the window; place 0 is file position ``state[S_ORIGIN]``.
        filled: number of valid bytes in the window.
        state: int64[STATE_SIZE], carried from window to window.
        inputs: int64[INPUT_SIZE], fixed for the segment.
        rows: int64[R, ROW_SIZE], one row per producer id seen so far.
        slots: int32[2**k], hash slots into ``rows``, -1 empty.
        tallies: batches and bytes by class, int64[CLASS_COUNT, TALLY_COLUMNS], in and out.
        entries: int64[E, 2] (producer id, offset of the abort marker) of the transaction index, by offset.
        entry_flags: uint8[E], out: what the log shows for each entry, ENTRY_* of ``classes``.
        carried: int64[C], sorted ids of producers whose open transaction has a kept batch in an earlier segment.
        keep_positions: int64[K], sorted positions of empty batches that are kept.
        protected: int64[N, 2], sorted pairs (producer id, epoch) whose markers are kept.
        held: int64[H], sorted offsets of markers that are kept for other replicas.
        epochs: int64[M, EPOCH_SIZE], out: batches at which the leader epoch changes, see ``classes``.
        starts: int32[B], out when staging: place in the window of each batch.
        batch_classes: uint8[B], out when staging: class of each batch.

    Returns:
        NEED_BYTES at the end of the window, or another status of ``classes``. The batch at ``S_PLACE`` is untouched.
    """
    check_crc, now_ms, high_watermark = inputs[c.I_CHECK_CRC], inputs[c.I_NOW_MS], inputs[c.I_HIGH_WATERMARK]
    segment_base, file_size = inputs[c.I_BASE_OFFSET], inputs[c.I_FILE_SIZE]
    stage, last_position = inputs[c.I_STAGE], inputs[c.I_LAST_POSITION]
    crc_mask = np.uint64(inputs[c.I_CRC_MASK])
    place = state[c.S_PLACE]
    origin = state[c.S_ORIGIN]
    count_starts = state[c.S_STARTS]
    headers_1, headers_2 = np.uint64(state[c.S_HEADERS_1]), np.uint64(state[c.S_HEADERS_2])
    decisions = np.uint64(state[c.S_DECISIONS])
    previous_offset = state[c.S_LAST_OFFSET]
    next_keep = state[c.S_KEEP]
    last_leader_epoch = state[c.S_LAST_LEADER_EPOCH]
    count_epochs = state[c.S_EPOCHS]
    next_entry = state[c.S_ENTRY]
    stamped = state[c.S_STAMPED]
    largest_timestamp = state[c.S_MAX_TIMESTAMP]
    offset_of_max = state[c.S_OFFSET_OF_MAX]
    smallest_timestamp = state[c.S_MIN_TIMESTAMP]
    largest_batch = state[c.S_LARGEST_BATCH]
    batch_position = state[c.S_LAST_POSITION]
    batch_size = state[c.S_LAST_SIZE]
    last_class = state[c.S_LAST_CLASS]
    batches = state[c.S_BATCHES]
    first_offset = state[c.S_FIRST_OFFSET]
    huge_position = state[c.S_HUGE_OK]
    slot_mask = np.uint64(slots.shape[0] - 1)
    slot_shift = _slot_shift(slots.shape[0] - 1)
    plain_end = filled  # the last batch of the cleanable range is never plain
    if last_position >= 0:
        plain_end = min(filled, last_position - origin + PLAIN_SIZE - 1)
    plain_limit = min(high_watermark, segment_base + INT32_MAX + 1)  # higher offsets take the full path
    status = c.NEED_BYTES
    next_held = np.int64(0)
    while True:
        while next_held < held.shape[0] and held[next_held] <= previous_offset:
            next_held += 1
        plain_below = plain_limit
        if next_held < held.shape[0]:
            plain_below = min(plain_limit, held[next_held])
        # The fast path. Most bloat consists of markers in the layout that brokers write, of producers without an open
        # transaction. A marker takes this path only if it passes every test of the full path below: a test left out
        # here would call a marker removable that the full path keeps.
        next_abort = entries[next_entry, 1] if next_entry < entries.shape[0] else INT64_MAX
        expected_length = _length_word(PLAIN_SIZE - LENGTH_END, last_leader_epoch)
        plain_from = place
        while place + PLAIN_SIZE <= plain_end and (not stage or count_starts < starts.shape[0]):
            if (
                le64(buf, place + LENGTH) != expected_length
                or le64(buf, place + MAGIC) & _PLAIN_MAGIC_MASK != _PLAIN_MAGIC
                or be32(buf, place + LAST_DELTA) != 0
                or le64(buf, place + RECORD_COUNT) != _PLAIN_RECORD
                or le64(buf, place + _PLAIN_KEY_LENGTH) & _PLAIN_KEY_MASK != _PLAIN_KEY
            ):
                break
            if check_crc and crc32c_of_57(buf, place + ATTRIBUTES) != be32(buf, place + CRC) & 0xFFFFFFFF:
                break
            base_offset = be64(buf, place)
            producer_id = be64(buf, place + PRODUCER_ID)
            if base_offset <= previous_offset or base_offset >= plain_below or producer_id < 0:
                break
            if byte_at(buf, place + _PLAIN_TYPE) == ABORT and next_abort <= base_offset:
                break
            slot = (np.uint64(producer_id) * MULTIPLIER) >> slot_shift
            row_found = slots[slot]
            while row_found >= 0 and rows[np.uint64(row_found), c.P_ID] != producer_id:
                slot = (slot + np.uint64(1)) & slot_mask
                row_found = slots[slot]
            if row_found < 0:
                break
            plain_row = np.uint64(row_found)
            if rows[plain_row, c.P_PLAIN_EPOCH] != be16(buf, place + PRODUCER_EPOCH):
                break
            max_timestamp = be64(buf, place + MAX_TIMESTAMP)
            rows[plain_row, c.P_PLAIN_MARKERS] += 1
            rows[plain_row, c.P_TIMESTAMP] = max_timestamp
            rows[plain_row, c.P_COORDINATOR_EPOCH] = be32(buf, place + PLAIN_SIZE - 5)
            headers_1, headers_2 = digested(headers_1, headers_2, buf, place, crc_mask)
            if max_timestamp > largest_timestamp:
                largest_timestamp = max_timestamp
                offset_of_max = base_offset
            smallest_timestamp = min(smallest_timestamp, max_timestamp)
            if stage:
                starts[np.uint64(count_starts)] = place
                batch_classes[np.uint64(count_starts)] = c.MARKER_UNSTAMPED
                count_starts += 1
            previous_offset = base_offset
            place += PLAIN_SIZE
        if place > plain_from:
            plain = (place - plain_from) // PLAIN_SIZE
            tallies[c.MARKER_UNSTAMPED, c.T_BATCHES] += plain
            tallies[c.MARKER_UNSTAMPED, c.T_BYTES] += place - plain_from
            largest_batch = max(largest_batch, PLAIN_SIZE)
            batch_position = origin + place - PLAIN_SIZE
            batch_size = PLAIN_SIZE
            last_class = c.MARKER_UNSTAMPED
            batches += plain
        # The second fast path: data batches without a producer id, whose headers bring nothing else new. Where batches
        # are small, most are of this kind. A batch takes this path only if it passes every test of the full path below.
        data_from = place
        if place + HEADER <= filled and be64(buf, place + PRODUCER_ID) < 0:
            data_end = filled
            if next_keep < keep_positions.shape[0]:
                data_end = min(data_end, keep_positions[next_keep] - origin)
            if last_position >= origin:
                data_end = min(data_end, last_position - origin)
            while (
                batches > 0 and place + HEADER <= data_end and (not stage or count_starts < starts.shape[0])
            ):
                special = be16(buf, place + ATTRIBUTES) & (CONTROL | DELETE_HORIZON) != 0
                if special or be64(buf, place + PRODUCER_ID) >= 0:
                    break
                size = next_batch(buf, place, data_end - place)
                if size == 0 or byte_at(buf, place + MAGIC) != 2:
                    break
                end = place + size
                if (
                    check_crc
                    and crc32c_update(0, buf, place + ATTRIBUTES, end) != be32(buf, place + CRC) & 0xFFFFFFFF
                ):
                    break
                base_offset, last_delta = be64(buf, place), be32(buf, place + LAST_DELTA)
                last_offset, count = base_offset + last_delta, be32(buf, place + RECORD_COUNT)
                leader_epoch = be32(buf, place + LEADER_EPOCH)
                if (
                    (leader_epoch >= 0 and leader_epoch != last_leader_epoch)
                    or last_delta < 0
                    or count < 0
                    or base_offset <= previous_offset
                    or last_offset - segment_base > INT32_MAX
                ):
                    break
                batch_class = c.EMPTIED if count == 0 else c.RECORDS
                tallies[batch_class, c.T_BATCHES] += 1
                tallies[batch_class, c.T_BYTES] += size
                tallies[batch_class, c.T_RECORDS] += count
                decisions += decision_word(origin + place, batch_class)
                headers_1, headers_2 = digested(headers_1, headers_2, buf, place, crc_mask)
                if stage:
                    starts[np.uint64(count_starts)] = place
                    batch_classes[np.uint64(count_starts)] = batch_class
                    count_starts += 1
                max_timestamp = be64(buf, place + MAX_TIMESTAMP)
                if max_timestamp > largest_timestamp:
                    largest_timestamp = max_timestamp
                    offset_of_max = last_offset
                smallest_timestamp = min(smallest_timestamp, max_timestamp)
                largest_batch = max(largest_batch, size)
                batch_position, batch_size, last_class = origin + place, size, batch_class
                batches += 1
                previous_offset = last_offset
                place = end
        if place > data_from:
            continue  # next_abort, plain_below and others were computed before these batches
        if place + HEADER > filled:
            if (
                place + LENGTH_END + 5 <= filled
                and buf[place + MAGIC] < 2
                and be32(buf, place + LENGTH) >= 14
            ):
                status = c.OLD_FORMAT
            break
        position = origin + place
        size = next_batch(buf, place, file_size - position)
        magic = buf[place + MAGIC]
        if size == 0 or magic != 2:
            length = be32(buf, place + LENGTH)
            if magic < 2 and length >= 14:
                status = c.OLD_FORMAT
            elif magic != 2 and length == 0 and be64(buf, place) == 0:
                status = _damage(state, c.D_ZEROS, 0)
            elif length < MIN_LENGTH:
                status = _damage(state, c.D_LENGTH, length)
            elif magic != 2:
                status = _damage(state, c.D_MAGIC, magic)
            else:
                status = _damage(state, c.D_PAST_END, length + LENGTH_END)
            break
        end = place + size
        huge = huge_position == position
        if end > filled and not huge:
            if size > buf.shape[0]:
                status = c.HUGE
            break
        if check_crc and not huge:
            computed = crc32c_update(0, buf, place + ATTRIBUTES, end)
            if computed != (be32(buf, place + CRC) & 0xFFFFFFFF):
                status = _damage(state, c.D_CRC, computed)
                break
        base_offset = be64(buf, place)
        last_delta = be32(buf, place + LAST_DELTA)
        last_offset = base_offset + last_delta
        count = be32(buf, place + RECORD_COUNT)
        if last_delta < 0 or count < 0:
            status = _damage(state, c.D_COUNTS, last_delta if last_delta < 0 else count)
            break
        if base_offset < segment_base or last_offset - segment_base > INT32_MAX:
            wrong = base_offset if base_offset < segment_base else last_offset
            status = _damage(state, c.D_OFFSET_RANGE, wrong)
            break
        if base_offset <= previous_offset:
            status = _damage(state, c.D_OFFSET_ORDER, base_offset)
            break
        attributes = be16(buf, place + ATTRIBUTES)
        producer_id = be64(buf, place + PRODUCER_ID)
        max_timestamp = be64(buf, place + MAX_TIMESTAMP)
        control = attributes & CONTROL != 0
        control_type = OTHER
        if control and count > 0 and not huge:
            control_type = _control_type(buf, place + HEADER, end)
            if control_type == MALFORMED:
                status = _damage(state, c.D_CONTROL, 0)
                break
        leader_epoch = be32(buf, place + LEADER_EPOCH)
        other_epoch = leader_epoch >= 0 and leader_epoch != last_leader_epoch
        if other_epoch and count_epochs >= epochs.shape[0]:
            status = c.EPOCHS_FULL
            break
        if stage and count_starts >= starts.shape[0]:
            status = c.OUTPUT_FULL
            break

        forced = False
        if next_keep < keep_positions.shape[0] and keep_positions[next_keep] == position:
            forced = True
        row_index = -1
        if producer_id >= 0:
            row_index = _row_of(producer_id, slots, rows, state, carried, protected)
            if row_index < 0:
                status = c.TABLE_FULL
                break
            _count_plain(rows, row_index)
        if forced:
            next_keep += 1
        if other_epoch:
            last_leader_epoch = leader_epoch
            epochs[count_epochs, c.L_EPOCH] = leader_epoch
            epochs[count_epochs, c.L_OFFSET] = base_offset
            epochs[count_epochs, c.L_BEFORE] = previous_offset
            epochs[count_epochs, c.L_BATCHES] = batches
            epochs[count_epochs, c.L_POSITION] = position
            count_epochs += 1

        if not control:
            emptied = count == 0
            batch_class = c.RECORDS
            if emptied:
                batch_class = c.EMPTIED_PRODUCER if forced else c.EMPTIED
            if row_index >= 0:
                base_sequence = be32(buf, place + BASE_SEQUENCE)
                last_sequence = base_sequence + last_delta
                if base_sequence < 0:
                    last_sequence = base_sequence  # no sequence (DefaultRecordBatch.lastSequence)
                elif last_sequence > INT32_MAX:
                    last_sequence -= INT32_MAX + 1
                _data_batch(rows, row_index, be16(buf, place + PRODUCER_EPOCH), base_offset, last_offset, position,
                            max_timestamp, attributes & TRANSACTIONAL != 0, emptied, not emptied or forced,
                            last_sequence)  # fmt: skip
        elif count == 0:
            batch_class = c.EMPTIED_MARKER
            if row_index >= 0:
                epoch = be16(buf, place + PRODUCER_EPOCH)
                if rows[row_index, c.P_PROTECTED_EPOCH] == epoch:
                    batch_class = c.MARKER_EPOCH
                elif rows[row_index, c.P_EPOCH] == epoch:
                    rows[row_index, c.P_FREE_MARKERS] += 1
        elif control_type == OTHER or row_index < 0:
            batch_class = c.CONTROL_OTHER
        else:
            entry = -1
            if control_type == ABORT:
                while next_entry < entries.shape[0] and entries[next_entry, 1] < base_offset:
                    next_entry += 1
                if next_entry < entries.shape[0] and entries[next_entry, 1] == base_offset:
                    entry = next_entry
                    if entries[entry, 0] != producer_id:
                        entry_flags[entry] = c.ENTRY_OTHER_PRODUCER
                        entry = -1
            row = row_index
            epoch = be16(buf, place + PRODUCER_EPOCH)
            free_class = _marker_class(
                rows, row, epoch, attributes & DELETE_HORIZON != 0, be64(buf, place + BASE_TIMESTAMP), now_ms
            )
            while next_held < held.shape[0] and held[next_held] < base_offset:
                next_held += 1  # no batch here has it
            if next_held < held.shape[0] and held[next_held] == base_offset:
                free_class = c.MARKER_HELD
            batch_class = _end_marker(rows, row, control_type == ABORT, base_offset, position, size, entry, free_class,
                                      state, high_watermark, entry_flags)  # fmt: skip
            free = rows[row, c.P_FREE_MARKERS]
            switched = rows[row, c.P_EPOCH] != epoch
            _enter_epoch(rows, row, epoch)
            rows[row, c.P_FREE_MARKERS] = (
                free if not switched else (0 if batch_class == c.MARKER_DATA_REMAINS else 1)
            )
            rows[row, c.P_TIMESTAMP] = max_timestamp
            rows[row, c.P_COORDINATOR_EPOCH] = _coordinator_epoch(buf, end)

        if row_index >= 0:
            _plain_again(rows, row_index)
        if position == last_position:
            batch_class = c.EMPTIED_LAST if count == 0 else c.LAST_EMPTIED_NOW
        tallies[batch_class, c.T_BATCHES] += 1
        tallies[batch_class, c.T_BYTES] += size
        if not control:
            tallies[batch_class, c.T_RECORDS] += count
        decisions += decision_word(position, batch_class)
        headers_1, headers_2 = digested(headers_1, headers_2, buf, place, crc_mask)
        if stage:
            starts[count_starts] = place
            batch_classes[count_starts] = batch_class
            count_starts += 1
        if attributes & DELETE_HORIZON != 0:
            stamped += 1
        if max_timestamp > largest_timestamp:
            largest_timestamp = max_timestamp
            offset_of_max = last_offset
        if batches == 0:
            first_offset = base_offset
            smallest_timestamp = max_timestamp
        smallest_timestamp = min(smallest_timestamp, max_timestamp)
        largest_batch = max(largest_batch, size)
        batch_position = position
        batch_size = size
        last_class = batch_class
        batches += 1
        previous_offset = last_offset
        place = end
    state[c.S_KEEP] = next_keep
    state[c.S_LAST_LEADER_EPOCH] = last_leader_epoch
    state[c.S_EPOCHS] = count_epochs
    state[c.S_ENTRY] = next_entry
    state[c.S_STAMPED] = stamped
    state[c.S_MAX_TIMESTAMP] = largest_timestamp
    state[c.S_OFFSET_OF_MAX] = offset_of_max
    state[c.S_MIN_TIMESTAMP] = smallest_timestamp
    state[c.S_LARGEST_BATCH] = largest_batch
    state[c.S_LAST_POSITION] = batch_position
    state[c.S_LAST_SIZE] = batch_size
    state[c.S_LAST_CLASS] = last_class
    state[c.S_BATCHES] = batches
    state[c.S_FIRST_OFFSET] = first_offset
    state[c.S_PLACE] = place
    state[c.S_STARTS] = count_starts
    state[c.S_HEADERS_1] = np.int64(headers_1)
    state[c.S_HEADERS_2] = np.int64(headers_2)
    state[c.S_DECISIONS] = np.int64(decisions)
    state[c.S_LAST_OFFSET] = previous_offset
    return status


@kernel("long, bytes, long, long")
def crc_piece(crc: int, buf: Any, start: int, end: int) -> Any:
    """Return the CRC-32C of one piece of a batch larger than the window, continuing from ``crc``."""
    return crc32c_update(crc, buf, start, end)


@kernel("long, long, long")
def decision_delta(position: int, old_class: int, new_class: int) -> Any:
    """Return the number to add to the digest of decisions if the class of the batch at ``position`` changes."""
    return np.int64(decision_word(position, new_class) - decision_word(position, old_class))


@kernel("ints, longs")
def insert_rows(slots: Any, producer_ids: Any) -> None:
    """Enter the rows 0..n-1 into empty hash slots.

    Args:
        slots: hash slots, int32[2**k], all -1.
        producer_ids: int64[n], the producer id of each row.
    """
    mask = slots.shape[0] - 1
    for row in range(producer_ids.shape[0]):
        slot = np.int64((np.uint64(producer_ids[row]) * MULTIPLIER) >> _slot_shift(mask))
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = row
