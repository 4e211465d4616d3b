"""Hashes the records of a window, so that ``compare`` and facts files can compare replicas without records.

Each record gives the hash of its key, and a digest of its timestamp, key, value, headers, producer and sequence: all
that is equal on every replica, however its batch was cleaned, moved to another segment, or compressed.

Source: DefaultRecord, MemoryRecords.filterTo (2.2.1, 3.9): a cleaner keeps the offset, the base sequence and the
absolute timestamp of a record.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from krepair.formats import batch_v2
from krepair.kernels import dump_rows as r
from krepair.kernels.compact_records import key_hash
from krepair.kernels.jit import inlined, kernel
from krepair.kernels.words import le64, product_high, product_low

# Columns of the hashes of a record.
H_FIRST: Final = 0
H_SECOND: Final = 1
H_OFFSET: Final = 2
H_DIGEST: Final = 3
H_BITS: Final = 4
HASH_COLUMNS: Final = 5

# bits of H_BITS
NO_KEY: Final = 1
TOMBSTONE: Final = 2

# Columns of a key's row: two halves of the hash, offset + 1 of a record (0: a free slot), bits of the record.
K_FIRST: Final = 0
K_SECOND: Final = 1
K_AFTER: Final = 2
K_BITS: Final = 3
KEY_WORDS: Final = 4

# Further bits of K_BITS: the state of the record. Without any of them the record belongs to no transaction.
COMMITTED: Final = 4  # a COMMIT marker ended its transaction
TWO_EPOCHS: Final = 8  # its transaction has batches of two producer epochs
OPEN: Final = 16  # its transaction has no marker
ABORTED: Final = 32  # an ABORT marker ended its transaction
OTHER: Final = OPEN | ABORTED
"""Bits for a row with the last open, or the last aborted, record of a key; one of them is set there."""
MARKER: Final = -1
"""Value in place of the bits for a control batch, whose records are not entered."""

# Elements of the state of a table of keys.
E_BATCH: Final = 0  # index of the next batch
E_RECORD: Final = 1  # index of that batch's first record
E_KEYS: Final = 2  # number of rows in the table
E_DIGESTS: Final = 3  # number of digests collected
ENTER_STATE: Final = 4

# Status with which ``enter_records`` ends.
ENTERED: Final = 0
TABLE_FULL: Final = 1
DIGESTS_FULL: Final = 2

_CONTROL = batch_v2.CONTROL
_TRANSACTIONAL = batch_v2.TRANSACTIONAL
_LOG_APPEND_TIME = batch_v2.LOG_APPEND_TIME
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SUM_1, _SUM_2, _SUM_3, _SUM_4 = (
    np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
)
_8, _31 = np.uint64(8), np.uint64(31)


@inlined
def _folded(one: Any, other: Any) -> Any:
    """Multiply two words to 128 bits, and return the XOR of the two halves."""
    return product_low(one, other) ^ product_high(one, other)


@kernel("bytes, long, long, word, word")
def body_hash(buf: Any, start: Any, size: Any, secret_1: Any, secret_2: Any) -> Any:
    """Return a hash of ``buf[start:start + size]`` as two words; ``buf`` has ``SLACK`` bytes more.

    This hash only distinguishes records of two replicas at the same offset, so it may be much faster than the hash of a
    key: four words at a time, each pair folded into a product of 128 bits.
    """
    one, other = secret_1 ^ _SUM_1, secret_2 ^ _SUM_2
    place = np.int64(start)
    end = np.int64(start + size)
    while place + 32 <= end:
        one += _folded(le64(buf, place) ^ _SUM_3 ^ secret_2, le64(buf, place + 8) ^ one)
        other += _folded(le64(buf, place + 16) ^ _SUM_4 ^ secret_1, le64(buf, place + 24) ^ other)
        place += 32
    while place + 8 <= end:
        one += _folded(le64(buf, place) ^ _SUM_3 ^ secret_2, one ^ _SUM_1)
        place += 8
    left = np.uint64(end - place)
    word = le64(buf, place) & ((np.uint64(1) << (left * _8)) - np.uint64(1))
    other += _folded(word ^ _SUM_4 ^ secret_1, other ^ np.uint64(size))
    return _folded(one ^ _SUM_2, other ^ secret_1 ^ _SUM_3), _folded(other ^ _SUM_1, one ^ secret_2 ^ _SUM_4)


@inlined
def _mixed(state: Any, value: Any) -> Any:
    """Return a state with one more number mixed in."""
    state = (state ^ np.uint64(value)) * _FACTOR
    return state ^ (state >> _31)


@kernel("word, word, long, long, long, long, long")
def digest_of(
    first: Any,
    second: Any,
    timestamp: Any,
    key_size: Any,
    producer_id: Any,
    producer_epoch: Any,
    sequence: Any,
) -> Any:
    """Return the digest of a record.

    Args:
        first: first half of the hash of its bytes from the key to the last header.
        second: second half of that hash.
        timestamp: timestamp of the record in milliseconds.
        key_size: size of the key in bytes, -1 for null.
        producer_id: id of the producer, -1 for none.
        producer_epoch: epoch of the producer, -1 for none.
        sequence: sequence number, -1 for none.
    """
    state = _mixed(first, timestamp)
    state = _mixed(state ^ second, key_size)
    state = _mixed(state, producer_id)
    state = _mixed(state, producer_epoch)
    return _mixed(state, sequence)


@inlined
def _hash_record(
    buf: Any,
    key: Any,
    key_size: Any,
    value_size: Any,
    end: Any,
    timestamp: Any,
    producer_id: Any,
    producer_epoch: Any,
    sequence: Any,
    offset: Any,
    secret: Any,
    made: Any,
) -> None:
    """Fill the row of a record whose bytes from the key to the last header are ``buf[key:end]``."""
    bits = np.uint64(0)
    if key_size < 0:
        bits |= np.uint64(NO_KEY)
        made[H_FIRST] = np.uint64(0)
        made[H_SECOND] = np.uint64(0)
    else:
        made[H_FIRST], made[H_SECOND] = key_hash(buf, key, key_size, secret[0], secret[1])
    if value_size < 0:
        bits |= np.uint64(TOMBSTONE)
    first, second = body_hash(buf, key, end - key, secret[0], secret[1])
    made[H_OFFSET] = np.uint64(offset)
    made[H_DIGEST] = digest_of(
        first,
        second,
        np.int64(timestamp),
        np.int64(key_size),
        np.int64(producer_id),
        np.int64(producer_epoch),
        np.int64(sequence),
    )
    made[H_BITS] = bits


@kernel("bytes, batches, longs, rows, words, word rows")
def hash_records(buf: Any, batches: Any, counts: Any, records: Any, secret: Any, out: Any) -> None:
    """Hash records and messages.

    Args:
        buf: uint8[W + SLACK], where the records lie.
        batches: batches of the window, ``columns.BATCH``[B].
        counts: int64[B or more], records of each batch.
        records: rows of the records, int64[N, dump_rows.RECORD_COLUMNS].
        secret: uint64[2], the key of the hash.
        out: hashes of the records, uint64[N, HASH_COLUMNS], out.
    """
    row = np.int64(0)
    for number in range(batches.shape[0]):
        batch = batches[number]
        append_time = batch.magic == 2 and batch.attributes & _LOG_APPEND_TIME != 0
        for _ in range(counts[number]):
            record = records[row]
            timestamp = batch.base_timestamp + record[r.R_TIMESTAMP_DELTA]
            if append_time:
                timestamp = batch.max_timestamp
            sequence = batch.base_sequence
            if sequence >= 0:
                sequence += record[r.R_OFFSET_DELTA]
            _hash_record(
                buf, record[r.R_KEY], record[r.R_KEY_SIZE], record[r.R_VALUE_SIZE],
                record[r.R_START] + record[r.R_SIZE], timestamp, batch.producer_id, batch.producer_epoch,
                sequence, batch.base_offset + record[r.R_OFFSET_DELTA], secret, out[row],
            )  # fmt: skip
            row += 1


@kernel("batches, rows, longs")
def batch_fates(batches: Any, known: Any, out: Any) -> None:
    """Compute whether the records of each batch are committed, aborted or open.

    Args:
        batches: batches of the window, ``columns.BATCH``[B].
        known: int64[T, 3] (producer id, first offset, bits) of transactions, ascending by the first two.
        out: int64[B], out: bits, or ``MARKER``.
    """
    for number in range(batches.shape[0]):
        row = batches[number]
        attributes = row.attributes
        out[number] = 0
        if attributes & _CONTROL != 0:
            out[number] = MARKER
        elif attributes & _TRANSACTIONAL != 0:
            producer, base = row.producer_id, row.base_offset
            low, high = np.int64(0), np.int64(known.shape[0])
            while low < high:
                middle = (low + high) >> 1
                if known[middle, 0] < producer or (known[middle, 0] == producer and known[middle, 1] <= base):
                    low = middle + 1
                else:
                    high = middle
            if low > 0 and known[low - 1, 0] == producer:
                low -= 1
            found = low < known.shape[0] and known[low, 0] == producer
            out[number] = known[low, 2] if found else OPEN


@inlined
def _key_slot(table: Any, first: Any, second: Any, other: Any) -> Any:
    """Return the slot of a key, or a free one for it, among the rows of one class."""
    mask = np.uint64(table.shape[0] - 1)
    slot = first & mask
    while table[slot, K_AFTER] != 0 and (
        table[slot, K_FIRST] != first
        or table[slot, K_SECOND] != second
        or table[slot, K_BITS] & np.uint64(OTHER) != other
    ):
        slot = (slot + np.uint64(1)) & mask
    return slot


@inlined
def _put_key(table: Any, first: Any, second: Any, after: Any, bits: Any, state: Any) -> None:
    slot = _key_slot(table, first, second, bits & np.uint64(OTHER))
    if table[slot, K_AFTER] == 0:
        table[slot, K_FIRST] = first
        table[slot, K_SECOND] = second
        state[E_KEYS] += 1
    if table[slot, K_AFTER] < after:
        table[slot, K_AFTER] = after
        table[slot, K_BITS] = bits


@kernel("word rows, longs, longs, bytes, flag, word rows, word rows, longs")
def enter_records(
    hashed: Any, counts: Any, fates: Any, wanted: Any, with_keys: Any, table: Any, digests: Any, state: Any
) -> Any:
    """Enter records into a table of keys, which keeps the last record of each key and state, and collect digests.

    Args:
        hashed: uint64[N, HASH_COLUMNS], in offset order.
        counts: int64[B], records of each batch.
        fates: int64[B], bits with the fate of the batch's records, or ``MARKER``.
        wanted: uint8[B], 1 for each batch whose records' digests are wanted.
        with_keys: True to enter keys; False for digests alone.
        table: uint64[2**k, KEY_WORDS], twice as many slots as the records of any batch.
        digests: uint64[D, 2], out, from row ``E_DIGESTS`` on; as many rows as the records of any batch.
        state: int64[ENTER_STATE]; the caller has set ``E_BATCH`` and ``E_RECORD``.

    Returns:
        A status. Nothing of the batch at ``E_BATCH`` was entered.
    """
    limit = table.shape[0] >> 1
    while state[E_BATCH] < counts.shape[0]:
        number = state[E_BATCH]
        begin = state[E_RECORD]
        after = begin + counts[number]
        if fates[number] != MARKER:
            if with_keys and state[E_KEYS] + counts[number] > limit:
                return TABLE_FULL
            if state[E_DIGESTS] + counts[number] > digests.shape[0]:
                return DIGESTS_FULL
            fate = np.uint64(fates[number])
            for row in range(begin, after):
                record = hashed[row]
                if wanted[number] != 0:
                    digests[state[E_DIGESTS], 0] = record[H_OFFSET]
                    digests[state[E_DIGESTS], 1] = record[H_DIGEST]
                    state[E_DIGESTS] += 1
                if with_keys and record[H_BITS] & np.uint64(NO_KEY) == 0:
                    _put_key(
                        table,
                        record[H_FIRST],
                        record[H_SECOND],
                        record[H_OFFSET] + np.uint64(1),
                        (record[H_BITS] & np.uint64(TOMBSTONE)) | fate,
                        state,
                    )
        state[E_RECORD] = after
        state[E_BATCH] = number + 1
    return ENTERED


@kernel("word rows, word rows, longs")
def merge_keys(rows: Any, table: Any, state: Any) -> None:
    """Enter the rows of another table, with its free slots, into a larger table."""
    for number in range(rows.shape[0]):
        row = rows[number]
        if row[K_AFTER] != 0:
            _put_key(table, row[K_FIRST], row[K_SECOND], row[K_AFTER], row[K_BITS], state)


@kernel("word rows, word rows")
def count_keys(rows: Any, table: Any) -> None:
    """Count the replicas that have the same last record of each key.

    Args:
        rows: uint64[N, KEY_WORDS] of one replica.
        table: uint64[2**k, KEY_WORDS] with room for the keys of all; its last column holds twice the rows of a key, and
            1 more where they differ.
    """
    mask = np.uint64(table.shape[0] - 1)
    for number in range(rows.shape[0]):
        row = rows[number]
        slot = row[K_FIRST] & mask
        while table[slot, K_BITS] != 0 and (
            table[slot, K_FIRST] != row[K_FIRST] or table[slot, K_SECOND] != row[K_SECOND]
        ):
            slot = (slot + np.uint64(1)) & mask
        if table[slot, K_BITS] == 0:
            table[slot, K_FIRST] = row[K_FIRST]
            table[slot, K_SECOND] = row[K_SECOND]
            table[slot, K_AFTER] = row[K_AFTER]
        if table[slot, K_AFTER] != row[K_AFTER] or row[K_BITS] & np.uint64(OTHER) != 0:
            table[slot, K_BITS] |= np.uint64(1)
        table[slot, K_BITS] += np.uint64(2)


@kernel("word rows, word rows, long, bytes")
def mark_keys(rows: Any, table: Any, replicas: Any, out: Any) -> None:
    """Mark the rows of keys whose last record differs between replicas.

    Args:
        rows: uint64[N, KEY_WORDS] of one replica.
        table: table that ``count_keys`` filled from all replicas.
        replicas: number of these replicas.
        out: marks of the keys, uint8[N], out.
    """
    mask = np.uint64(table.shape[0] - 1)
    same = np.uint64(2 * replicas)
    for number in range(rows.shape[0]):
        row = rows[number]
        slot = row[K_FIRST] & mask
        while table[slot, K_FIRST] != row[K_FIRST] or table[slot, K_SECOND] != row[K_SECOND]:
            slot = (slot + np.uint64(1)) & mask
        out[number] = table[slot, K_BITS] != same
