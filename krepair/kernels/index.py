"""Offset and time index of a ``.log``, entry for entry what a broker's recovery writes.

Source: LogSegment.recover and TimeIndex.maybeAppend (2.2.1, 3.9): an entry when more than ``index.interval.bytes`` lie
between the last entry and the batch, the closing time index entry always.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from krepair.kernels.jit import kernel
from krepair.kernels.scan import Int64s, ReadInto
from krepair.kernels.scan_window import BASE_OFFSET as _BASE
from krepair.kernels.scan_window import HEADER, LAST_DELTA, LENGTH, LENGTH_END, MAX_TIMESTAMP
from krepair.kernels.words import be32, be64

NEED_BYTES, OUTPUT_FULL = 0, 1
I_POSITION, I_LAST_ENTRY, I_LARGEST, I_OFFSET_OF_LARGEST, I_LAST_TIMESTAMP, I_OFFSETS, I_TIMES = range(7)
_FIRST_ENTRIES = 1024
WINDOW_BYTES = 1 << 20


@kernel
def index_window(
    buf: Any, filled: int, origin: int, state: Any, interval_bytes: int, offsets: Any, times: Any
) -> int:
    """Walk the batch headers in a window of a valid v2 log.

    Args:
        buf: uint8[W]; place 0 is file position ``origin``.
        filled: bytes of it that are valid.
        origin: file position of place 0.
        state: int64[7], carried from window to window; ``I_POSITION`` is the next batch and may lie past the window.
        interval_bytes: ``index.interval.bytes``.
        offsets: int64[N, 2], out: (last offset, position).
        times: int64[N, 2], out: (timestamp, offset).
    """
    position = state[I_POSITION]
    while position - origin + HEADER <= filled:
        if state[I_OFFSETS] >= offsets.shape[0] or state[I_TIMES] >= times.shape[0]:
            state[I_POSITION] = position
            return OUTPUT_FULL
        place = position - origin
        last_offset = be64(buf, place + _BASE) + be32(buf, place + LAST_DELTA)
        timestamp = be64(buf, place + MAX_TIMESTAMP)
        if timestamp > state[I_LARGEST]:
            state[I_LARGEST] = timestamp
            state[I_OFFSET_OF_LARGEST] = last_offset
        if position - state[I_LAST_ENTRY] > interval_bytes:
            offsets[state[I_OFFSETS], 0] = last_offset
            offsets[state[I_OFFSETS], 1] = position
            state[I_OFFSETS] += 1
            if state[I_LARGEST] > state[I_LAST_TIMESTAMP]:
                times[state[I_TIMES], 0] = state[I_LARGEST]
                times[state[I_TIMES], 1] = state[I_OFFSET_OF_LARGEST]
                state[I_TIMES] += 1
                state[I_LAST_TIMESTAMP] = state[I_LARGEST]
            state[I_LAST_ENTRY] = position
        position += be32(buf, place + LENGTH) + LENGTH_END
    state[I_POSITION] = position
    return NEED_BYTES


def build_indexes(file_size: int, interval_bytes: int, read_into: ReadInto) -> tuple[Int64s, Int64s]:
    """Entries of the offset index and of the time index of a valid v2 log.

    Args:
        file_size: bytes of the log; all of it must be valid batches.
        interval_bytes: ``index.interval.bytes``.
        read_into: fills a buffer from a file position; returns bytes read.

    Returns:
        int64[N, 2] (last offset, position) and int64[M, 2] (timestamp, offset), absolute values.
    """
    state = np.zeros(7, np.int64)
    state[I_LARGEST] = state[I_OFFSET_OF_LARGEST] = state[I_LAST_TIMESTAMP] = -1
    offsets: Int64s = np.empty((_FIRST_ENTRIES, 2), np.int64)
    times: Int64s = np.empty((_FIRST_ENTRIES, 2), np.int64)
    window = np.empty(WINDOW_BYTES, np.uint8)
    view = window.data
    while state[I_POSITION] + HEADER <= file_size:
        origin = int(state[I_POSITION])
        filled = 0
        while filled < len(window) and origin + filled < file_size:
            got = read_into(view[filled : filled + file_size - origin - filled], origin + filled)
            if got == 0:
                break
            filled += got
        if filled < HEADER:
            break
        while index_window(window, filled, origin, state, interval_bytes, offsets, times) == OUTPUT_FULL:
            offsets, times = _grown(offsets), _grown(times)
    offsets, times = offsets[: state[I_OFFSETS]], times[: state[I_TIMES]]
    if state[I_LARGEST] > state[I_LAST_TIMESTAMP]:
        closing = np.array([[state[I_LARGEST], state[I_OFFSET_OF_LARGEST]]], np.int64)
        times = np.concatenate([times, closing])
    return offsets, times


def _grown(entries: Int64s) -> Int64s:
    larger = np.empty((len(entries) * 4, 2), np.int64)
    larger[: len(entries)] = entries
    return larger
