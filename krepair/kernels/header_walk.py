"""Walks the batch headers of a ``.log`` of any format: position, last offset and largest timestamp of each batch.

It reads only headers, so that a part of a log, or its tail, can be compared with its indexes without a scan.

Source: DefaultRecordBatch, LegacyRecord (2.2.1, 3.9).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from krepair.formats.arrays import Int64s, Uint8s
from krepair.kernels.jit import kernel
from krepair.kernels.next_batch import next_batch
from krepair.kernels.scan import ReadInto, fill
from krepair.kernels.scan_window import (
    BASE_OFFSET,
    HEADER,
    LAST_DELTA,
    MAGIC,
    MAX_TIMESTAMP,
)
from krepair.kernels.words import be32, be64, byte_at

WINDOW_BYTES = 1 << 20
_ROWS = 1 << 14

NEED_BYTES, OUTPUT_FULL, STOPPED = 0, 1, 2
W_POSITION, W_ROWS, W_MAGICS = range(3)

# LegacyRecord (2.2.1): offset, size, crc, magic, attributes, the timestamp (only v1), then key and value with lengths.
OLD_TIMESTAMP = 18
OLD_HEADER = OLD_TIMESTAMP + 8


@kernel
def header_window(buf: Any, filled: int, origin: int, file_size: int, state: Any, rows: Any) -> int:
    """Walk headers in one window.

    Args:
        buf: uint8[W]; place 0 is file position ``origin``.
        filled: bytes of it that are valid.
        origin: file position of place 0.
        file_size: where the log ends; a batch that passes it stops the walk.
        state: int64[3]: position of the next batch (may lie past the window), rows written, bit set of magics met.
        rows: int64[N, 3], out: position, last offset, largest timestamp (-1 in v0).

    Returns:
        ``NEED_BYTES`` at the end of the window, ``OUTPUT_FULL`` when ``rows`` is full, ``STOPPED`` where no whole batch
        begins.
    """
    position = state[W_POSITION]
    status = NEED_BYTES
    while position + OLD_HEADER <= file_size and position - origin + OLD_HEADER <= filled:
        if state[W_ROWS] >= rows.shape[0]:
            status = OUTPUT_FULL
            break
        place = position - origin
        size = next_batch(buf, place, file_size - position)
        if size == 0:
            status = STOPPED
            break
        magic = np.int64(byte_at(buf, place + MAGIC))
        if magic == 2 and place + HEADER > filled:
            break
        last_offset = be64(buf, place + BASE_OFFSET)
        timestamp = -1
        if magic == 2:
            last_offset += be32(buf, place + LAST_DELTA)
            timestamp = be64(buf, place + MAX_TIMESTAMP)
        elif magic == 1:
            timestamp = be64(buf, place + OLD_TIMESTAMP)
        row = state[W_ROWS]
        rows[row, 0] = position
        rows[row, 1] = last_offset
        rows[row, 2] = timestamp
        state[W_ROWS] += 1
        state[W_MAGICS] |= 1 << magic
        position += size
    state[W_POSITION] = position
    return status


@dataclass
class HeaderWalk:
    """A walk that begins at a batch: iterate it, then read where it ended.

    Attributes:
        read_into: fills a buffer from a file position; returns bytes read, 0 at the end. It may raise ``OSError``.
        file_size: where the log ends.
        position: position of the first batch; during and after the walk, position of the next one.
        until: the walk ends after the window in which it reaches this position.
        magics: bit set of the formats that were found.
        window_bytes: size of the window.
    """

    read_into: ReadInto
    file_size: int
    position: int = 0
    until: int = 2**63 - 1
    magics: int = 0
    window_bytes: int = WINDOW_BYTES

    @property
    def whole(self) -> bool:
        """Whether the walk has ended exactly at the end of the log."""
        return self.position == self.file_size

    def __iter__(self) -> Iterator[Int64s]:
        """Yield int64[N, 3] (position, last offset, largest timestamp), a copy, per window."""
        # A window as small as the log: zeroing a large one takes longer than the walk of a small log.
        left = min(self.file_size, self.until + HEADER) - self.position
        view = memoryview(bytearray(max(min(self.window_bytes, left), HEADER)))
        window: Uint8s = np.frombuffer(view, np.uint8)
        state = np.array([self.position, 0, self.magics], np.int64)
        rows: Int64s = np.empty((min(_ROWS, len(view) // OLD_HEADER + 1), 3), np.int64)
        status = NEED_BYTES
        while status != STOPPED and self.position < min(self.file_size, self.until):
            origin = self.position
            filled = fill(self.read_into, view, origin, self.file_size)
            if filled < OLD_HEADER:
                return
            status = OUTPUT_FULL
            while status == OUTPUT_FULL:
                state[W_ROWS] = 0
                status = int(header_window(window, filled, origin, self.file_size, state, rows))
                self.position, self.magics = int(state[W_POSITION]), int(state[W_MAGICS])
                if state[W_ROWS]:
                    yield rows[: state[W_ROWS]].copy()
            if self.position == origin:
                return
