"""Computes the entries of ``.index`` and ``.timeindex`` as a broker's recovery does, for ``derive.index_entries``.

A message of v0 or v1 counts by its own header, even if it is a wrapper: recovery reads the offset of the wrapper, which
is the offset of its last message, and its timestamp. It does not decompress. A v0 message has timestamp -1.

Source: LogSegment.recover, TimeIndex.maybeAppend (2.2.1, 3.9).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from krepair.kernels.jit import inlined, kernel
from krepair.kernels.legacy import OLD_TIMESTAMP
from krepair.kernels.scan_window import LAST_DELTA, MAGIC, MAX_TIMESTAMP
from krepair.kernels.words import be32, be64, byte_at

R_LAST_ENTRY, R_LARGEST, R_OFFSET_OF_LARGEST, R_LAST_TIMESTAMP, R_OFFSETS, R_TIMES = range(6)
ENTRIES_STATE = 6


@inlined
def _entered(
    position: Any, last_offset: Any, timestamp: Any, interval_bytes: Any, state: Any, offsets: Any, times: Any
) -> Any:
    """Add the entries of one batch; return False if there is no room for them."""
    if timestamp > state[R_LARGEST]:
        state[R_LARGEST], state[R_OFFSET_OF_LARGEST] = timestamp, last_offset
    if position - state[R_LAST_ENTRY] > interval_bytes:
        row, time_row = state[R_OFFSETS], state[R_TIMES]
        if row >= offsets.shape[0] or time_row >= times.shape[0]:
            return False
        offsets[row, 0], offsets[row, 1] = last_offset, position
        state[R_OFFSETS] = row + 1
        if state[R_LARGEST] > state[R_LAST_TIMESTAMP]:
            times[time_row, 0], times[time_row, 1] = state[R_LARGEST], state[R_OFFSET_OF_LARGEST]
            state[R_TIMES] = time_row + 1
            state[R_LAST_TIMESTAMP] = state[R_LARGEST]
        state[R_LAST_ENTRY] = position
    return True


@kernel("batches, long, long, longs, rows, rows")
def enter_batches(rows: Any, first: Any, interval_bytes: Any, state: Any, offsets: Any, times: Any) -> Any:
    """Add the index entries of the next batches.

    Args:
        rows: batches of the window, ``columns.BATCH``[N].
        first: row to begin with.
        interval_bytes: value of the setting ``index.interval.bytes``.
        state: int64[ENTRIES_STATE], carried from window to window.
        offsets: int64[R, 2], out: (last offset, position).
        times: int64[S, 2], out: (timestamp, offset).

    Returns:
        Row of the first batch that was not entered because ``offsets`` or ``times`` is full; N if all were.
    """
    number = np.int64(first)
    while number < rows.shape[0]:
        batch = rows[np.uint64(number)]
        if not _entered(
            batch.position, batch.last_offset, batch.max_timestamp, interval_bytes, state, offsets, times
        ):
            break
        number += 1
    return number


@kernel("bytes, ints, long, long, long, longs, rows, rows, rows")
def enter_window(buf: Any, starts: Any, first: Any, origin: Any, interval_bytes: Any, state: Any, columns: Any,
                 offsets: Any, times: Any) -> Any:  # fmt: skip
    """Do the same as ``enter_batches`` for batches that a scan found in a window, reading only three of their fields.

    Reading all columns would take a fourth of the time of a marker scan.

    Args:
        buf: uint8[W]; place 0 is file position ``origin``.
        starts: int32[N], places of the batches. A batch larger than the window comes alone, only its header is there.
        first: index of the batch to begin with.
        origin: file position of place 0.
        interval_bytes: value of the setting ``index.interval.bytes``.
        state: state of the walk, see ``enter_batches``.
        columns: int64[3, M], out: position, last offset and timestamp of each batch, M at least N.
        offsets: entries of the ``.index``, see ``enter_batches``.
        times: entries of the ``.timeindex``, see ``enter_batches``.
    """
    number = np.int64(first)
    while number < starts.shape[0]:
        place = np.int64(starts[np.uint64(number)])
        position, last_offset, timestamp = origin + place, be64(buf, place), np.int64(-1)
        magic = byte_at(buf, place + MAGIC)
        if magic == 2:
            last_offset += be32(buf, place + LAST_DELTA)
            timestamp = be64(buf, place + MAX_TIMESTAMP)
        elif magic == 1:
            timestamp = be64(buf, place + OLD_TIMESTAMP)
        columns[0, number], columns[1, number], columns[2, number] = position, last_offset, timestamp
        if not _entered(position, last_offset, timestamp, interval_bytes, state, offsets, times):
            break
        number += 1
    return number
