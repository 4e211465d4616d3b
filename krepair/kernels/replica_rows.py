"""Hashes of the records of a window, so that replicas can be held against each other without their bytes.

Of each record: the hash of its key, and a digest of everything that is the same on every replica that has the record,
however its batch was cleaned, rolled or packed: timestamp, key, value, headers, producer and sequence.

Source: DefaultRecord, MemoryRecords.filterTo (2.2.1, 3.9): a cleaner keeps the offset, the base sequence and the
absolute timestamp of a record.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from krepair.formats import batch_v2
from krepair.kernels.compact_records import key_hash
from krepair.kernels.dump_rows import (
    B_ATTRIBUTES,
    B_BASE_OFFSET,
    B_BASE_SEQUENCE,
    B_BASE_TIMESTAMP,
    B_MAX_TIMESTAMP,
    B_POSITION,
    B_PRODUCER_EPOCH,
    B_PRODUCER_ID,
    B_SIZE,
    R_KEY,
    R_KEY_SIZE,
    R_OFFSET_DELTA,
    R_SIZE,
    R_START,
    R_TIMESTAMP_DELTA,
    R_VALUE_SIZE,
)
from krepair.kernels.jit import inlined, kernel
from krepair.kernels.scan_window import HEADER
from krepair.kernels.transactions import _marker_type

# columns of a record's hashes
H_FIRST: Final = 0
H_SECOND: Final = 1
H_OFFSET: Final = 2
H_DIGEST: Final = 3
H_BITS: Final = 4
HASH_COLUMNS: Final = 5

# bits of H_BITS
NO_KEY: Final = 1
TOMBSTONE: Final = 2

_LOG_APPEND_TIME = batch_v2.LOG_APPEND_TIME
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_31 = np.uint64(31)


@inlined
def _mixed(state: Any, value: Any) -> Any:
    """A state with one more number in it."""
    state = (state ^ np.uint64(value)) * _FACTOR
    return state ^ (state >> _31)


@kernel
def digest_of(
    first: Any,
    second: Any,
    timestamp: Any,
    key_size: Any,
    producer_id: Any,
    producer_epoch: Any,
    sequence: Any,
) -> Any:
    """The digest of a record.

    Args:
        first: first half of the hash of its bytes from the key to the last header.
        second: second half.
        timestamp: milliseconds.
        key_size: -1 for null.
        producer_id: -1 for none.
        producer_epoch: -1 for none.
        sequence: -1 for none.
    """
    state = _mixed(first, timestamp)
    state = _mixed(state ^ second, key_size)
    state = _mixed(state, producer_id)
    state = _mixed(state, producer_epoch)
    return _mixed(state, sequence)


@kernel
def hash_records(buf: Any, batches: Any, counts: Any, records: Any, secret: Any, out: Any) -> None:
    """Hash the records of v2 batches.

    Args:
        buf: uint8[W + SLACK], where the records lie.
        batches: int64[B, dump_rows.BATCH_COLUMNS].
        counts: int64[B or more], records of each batch.
        records: int64[N, dump_rows.RECORD_COLUMNS].
        secret: uint64[2], the key of the hash.
        out: uint64[N, HASH_COLUMNS], out.
    """
    row = np.int64(0)
    for number in range(batches.shape[0]):
        batch = batches[number]
        append_time = batch[B_ATTRIBUTES] & _LOG_APPEND_TIME != 0
        for _ in range(counts[number]):
            record = records[row]
            made = out[row]
            start = record[R_KEY]
            key_size = record[R_KEY_SIZE]
            bits = np.uint64(0)
            if key_size < 0:
                bits |= np.uint64(NO_KEY)
                made[H_FIRST] = np.uint64(0)
                made[H_SECOND] = np.uint64(0)
            else:
                made[H_FIRST], made[H_SECOND] = key_hash(buf, start, key_size, secret[0], secret[1])
            if record[R_VALUE_SIZE] < 0:
                bits |= np.uint64(TOMBSTONE)
            end = record[R_START] + record[R_SIZE]
            first, second = key_hash(buf, start, end - start, secret[0], secret[1])
            timestamp = batch[B_BASE_TIMESTAMP] + record[R_TIMESTAMP_DELTA]
            if append_time:
                timestamp = batch[B_MAX_TIMESTAMP]
            sequence = batch[B_BASE_SEQUENCE]
            if sequence >= 0:
                sequence += record[R_OFFSET_DELTA]
            made[H_OFFSET] = np.uint64(batch[B_BASE_OFFSET] + record[R_OFFSET_DELTA])
            made[H_DIGEST] = digest_of(
                first,
                second,
                np.int64(timestamp),
                np.int64(key_size),
                np.int64(batch[B_PRODUCER_ID]),
                np.int64(batch[B_PRODUCER_EPOCH]),
                np.int64(sequence),
            )
            made[H_BITS] = bits
            row += 1


@kernel
def marker_kinds(buf: Any, origin: Any, batches: Any, out: Any) -> None:
    """The kinds of control batches whose record lies uncompressed in a window.

    Args:
        buf: uint8[W]; place 0 is file position ``origin``.
        origin: file position of place 0.
        batches: int64[B, dump_rows.BATCH_COLUMNS].
        out: int64[B], out: control type of the first record (0 ABORT, 1 COMMIT), -1 if it cannot be read.
    """
    for number in range(batches.shape[0]):
        start = batches[number, B_POSITION] - origin
        out[number] = _marker_type(buf, start + HEADER, start + batches[number, B_SIZE])
