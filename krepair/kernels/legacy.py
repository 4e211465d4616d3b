"""The scan of messages of formats v0 and v1: one window at a time, with the same state as for v2 batches.

A log may change its format with any message. The scan of v2 (``krepair.kernels.scan_window``) stops at a message of an
old format, and this kernel continues to the next v2 batch. An old message, plain or a wrapper, counts as one batch of
class ``RECORDS`` with one record. The messages in a wrapper are not read. An old message has no producer, so it is
always kept.

Source: LegacyRecord, AbstractLegacyRecordBatch, FileLogInputStream (2.2.1), KIP-31, KIP-32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from krepair.formats import message_set
from krepair.formats.java_numbers import INT32_MAX
from krepair.kernels import classes as c
from krepair.kernels.crc32 import crc32_update
from krepair.kernels.digests import decision_word
from krepair.kernels.jit import inlined, kernel
from krepair.kernels.next_batch import next_batch
from krepair.kernels.scan_window import LENGTH, LENGTH_END, MAGIC
from krepair.kernels.words import be32, be64, le64, product_high, product_low

FIXED = LENGTH_END + 5  # bytes up to and including the magic byte, which has the same place in all formats
OLD_CRC = message_set.HEADER_V0.place("crc")
OLD_CRC_START = message_set.CRC_START
OLD_TIMESTAMP = message_set.HEADER_V1.place("timestamp")
OLD_MIN_LENGTH_V0 = message_set.HEADER_V0.size + 2 * message_set.LENGTH.size - LENGTH_END
OLD_MIN_LENGTH_V1 = message_set.HEADER_V1.size + 2 * message_set.LENGTH.size - LENGTH_END
SMALLEST_BYTES = OLD_MIN_LENGTH_V0 + LENGTH_END  # size of the smallest batch or message of any format

# odd multipliers (digits of the fractional parts of square roots of primes), different from those for v2 batches
_K0 = np.uint64(0xCBBB9D5DC1059ED9)
_K1 = np.uint64(0x629A292A367CD507)
_K2 = np.uint64(0x9159015A3070DD17)
_K3 = np.uint64(0x152FECD8F70E5939)
_KA = np.uint64(0x67332667FFC00B31)
_KB = np.uint64(0x8EB44A8768581511)


@inlined
def _chained(digest: Any, value: Any, multiplier: Any) -> Any:
    """Return the next value of one lane of the digest of headers. It depends on the order of the headers."""
    digest = digest ^ value
    return ((digest << np.uint64(31)) | (digest >> np.uint64(33))) * multiplier


@kernel("bytes, long, longs, longs, rows, ints, bytes")
def legacy_window(
    buf: Any, filled: int, state: Any, inputs: Any, tallies: Any, starts: Any, batch_classes: Any
) -> int:
    """Scan the v0 and v1 messages that lie completely in ``buf[state[S_PLACE]:filled]``, up to the next v2 batch.

    Args:
        buf: uint8[W], the window; place 0 is file position ``state[S_ORIGIN]``.
        filled: number of valid bytes in the buffer.
        state: int64[STATE_SIZE], as of ``scan_window``.
        inputs: int64[INPUT_SIZE], fixed for the segment.
        tallies: batches and bytes by class, int64[CLASS_COUNT, TALLY_COLUMNS], in and out.
        starts: int32[B], out when staging: place in the window of each message.
        batch_classes: uint8[B], out when staging: class of each message.

    Returns:
        NEED_BYTES at the end of the window, NEW_FORMAT where no old message begins, or another status of ``classes``.
        The message at ``S_PLACE`` is untouched.
    """
    check_crc, segment_base, file_size = inputs[c.I_CHECK_CRC], inputs[c.I_BASE_OFFSET], inputs[c.I_FILE_SIZE]
    place = state[c.S_PLACE]
    origin = state[c.S_ORIGIN]
    previous_offset = state[c.S_LAST_OFFSET]
    count_starts = state[c.S_STARTS]
    headers_1, headers_2 = np.uint64(state[c.S_HEADERS_1]), np.uint64(state[c.S_HEADERS_2])
    decisions = np.uint64(state[c.S_DECISIONS])
    status = c.NEED_BYTES
    damage: int = c.D_NONE
    found: Any = np.int64(0)
    while place + FIXED <= filled:
        position = origin + place
        size = next_batch(buf, place, file_size - position)
        magic = buf[place + MAGIC]
        if size == 0 or magic > 1:
            length = be32(buf, place + LENGTH)
            if magic > 1 or length < OLD_MIN_LENGTH_V0:
                status = c.NEW_FORMAT
            elif magic == 1 and length < OLD_MIN_LENGTH_V1:
                damage, found = c.D_OLD_LENGTH, length
            else:
                damage, found = c.D_PAST_END, length + LENGTH_END
            break
        end = place + size
        huge = state[c.S_HUGE_OK] == position
        if end > filled and not huge:
            if size > buf.shape[0]:
                status = c.HUGE
            break
        if check_crc and not huge:
            found = crc32_update(0, buf, place + OLD_CRC_START, end)
            if found != (be32(buf, place + OLD_CRC) & 0xFFFFFFFF):
                damage = c.D_OLD_CRC
                break
        offset = be64(buf, place)
        if offset < segment_base or offset - segment_base > INT32_MAX:
            damage, found = c.D_OFFSET_RANGE, offset
            break
        if offset <= previous_offset:
            damage, found = c.D_OFFSET_ORDER, offset
            break
        if inputs[c.I_STAGE]:
            if count_starts >= starts.shape[0]:
                status = c.OUTPUT_FULL
                break
            starts[count_starts] = place
            batch_classes[count_starts] = c.RECORDS
            count_starts += 1
        tallies[c.RECORDS, c.T_BATCHES] += 1
        tallies[c.RECORDS, c.T_BYTES] += size
        tallies[c.RECORDS, c.T_RECORDS] += 1
        decisions += decision_word(position, c.RECORDS)
        # A message has at least 26 bytes. The third and fourth word overlap, so that the words end at byte 26.
        first, second = le64(buf, place) ^ _K0, le64(buf, place + 8) ^ _K1
        third, fourth = le64(buf, place + 16) ^ _K2, le64(buf, place + 18) ^ _K3 ^ np.uint64(position)
        headers_1 = _chained(headers_1, product_low(first, second) + product_low(third, fourth), _KA)
        headers_2 = _chained(headers_2, product_high(first, second) + product_high(third, fourth), _KB)
        timestamp = be64(buf, place + OLD_TIMESTAMP) if magic == 1 else np.int64(-1)
        if timestamp > state[c.S_MAX_TIMESTAMP]:
            state[c.S_MAX_TIMESTAMP] = timestamp
            state[c.S_OFFSET_OF_MAX] = offset
        if state[c.S_BATCHES] == 0:
            state[c.S_FIRST_OFFSET] = offset
            state[c.S_MIN_TIMESTAMP] = timestamp
        state[c.S_MIN_TIMESTAMP] = min(state[c.S_MIN_TIMESTAMP], timestamp)
        state[c.S_LARGEST_BATCH] = max(state[c.S_LARGEST_BATCH], size)
        state[c.S_LAST_POSITION] = position
        state[c.S_LAST_SIZE] = size
        state[c.S_LAST_CLASS] = c.RECORDS
        state[c.S_BATCHES] += 1
        if state[c.S_OLD_BATCHES] == 0:
            state[c.S_OLD_POSITION] = position
        state[c.S_LAST_OLD_POSITION] = position
        state[c.S_OLD_BATCHES] += 1
        previous_offset = offset
        place = end
    if damage != c.D_NONE:
        state[c.S_DAMAGE] = damage
        state[c.S_DAMAGE_FOUND] = found
        status = c.DAMAGE
    state[c.S_PLACE] = place
    state[c.S_STARTS] = count_starts
    state[c.S_LAST_OFFSET] = previous_offset
    state[c.S_HEADERS_1] = np.int64(headers_1)
    state[c.S_HEADERS_2] = np.int64(headers_2)
    state[c.S_DECISIONS] = np.int64(decisions)
    return status
