"""Builder of the ``.index`` and ``.timeindex`` entries that a broker's recovery would write for a log."""

from __future__ import annotations

import numpy as np

from krepair.formats import offset_index, time_index
from krepair.formats.arrays import Int32s, Int64s, Uint8s
from krepair.formats.layout import Layout
from krepair.kernels.columns import Batches
from krepair.kernels.index_entries import (
    ENTRIES_STATE,
    R_LARGEST,
    R_LAST_TIMESTAMP,
    R_OFFSET_OF_LARGEST,
    R_OFFSETS,
    R_TIMES,
    enter_batches,
    enter_window,
)

_FIRST_ENTRIES = 1024


class IndexEntries:
    """Builder of index entries. The caller adds all batches of a log in order; the batches are not checked here.

    Args:
        interval_bytes: bytes of log between two index entries (``index.interval.bytes``).

    Attributes:
        position: file position after the last window that was added.
    """

    def __init__(self, interval_bytes: int) -> None:
        self._interval_bytes = interval_bytes
        self._state = np.full(ENTRIES_STATE, -1, np.int64)
        self._state[[0, R_OFFSETS, R_TIMES]] = 0
        self._offsets: Int64s = np.empty((_FIRST_ENTRIES, 2), np.int64)
        self._times: Int64s = np.empty((_FIRST_ENTRIES, 2), np.int64)
        self._columns: Int64s = np.empty((3, 0), np.int64)
        self.position = 0

    def take(self, rows: Batches) -> None:
        """Add the next batches."""
        done = 0
        while True:
            done = int(
                enter_batches(rows, done, self._interval_bytes, self._state, self._offsets, self._times)
            )
            if done == len(rows):
                return
            self._grow()

    def take_window(self, window: Uint8s, end: int, starts: Int32s) -> Int64s:
        """Add the batches of the next window, which a scan has found valid.

        Args:
            window: uint8[W] that begins with a batch.
            end: position in the window after the last batch.
            starts: int32[N], N > 0, positions of the batches, relative to the window.

        Returns:
            int64[3, N]: position, last offset and largest timestamp of each batch; valid until the next window.
        """
        if len(starts) > self._columns.shape[1]:
            self._columns = np.empty((3, 2 * len(starts)), np.int64)
        done = 0
        while True:
            done = enter_window(
                window, starts, done, self.position, self._interval_bytes, self._state, self._columns,
                self._offsets, self._times,
            )  # fmt: skip
            if done == len(starts):
                break
            self._grow()
        self.position += end
        return self._columns[:, : len(starts)]

    def _grow(self) -> None:
        self._offsets, self._times = (
            np.concatenate([entries, np.empty((3 * len(entries), 2), np.int64)])
            for entries in (self._offsets, self._times)
        )

    @property
    def largest(self) -> tuple[int, int]:
        """Largest timestamp in ms and the last offset of the first batch that has it; -1 if none."""
        return int(self._state[R_LARGEST]), int(self._state[R_OFFSET_OF_LARGEST])

    def so_far(self) -> tuple[Int64s, Int64s]:
        """Return views of the entries so far, without the closing time entry; the next added batch invalidates them."""
        return self._offsets[: self._state[R_OFFSETS]], self._times[: self._state[R_TIMES]]

    def entries(self) -> tuple[Int64s, Int64s]:
        """Return the complete entries of both indexes.

        The time index gets a closing entry if the largest timestamp has none yet, as a broker's recovery does at the
        end of each segment.

        Returns:
            int64[N, 2] (last offset, position); int64[M, 2] (timestamp, offset). All offsets are absolute.
        """
        offsets, times = self.so_far()
        if self._state[R_LARGEST] > self._state[R_LAST_TIMESTAMP]:
            times = np.concatenate([times, np.array([self.largest], np.int64)])
        return offsets, times


def index_bytes(base_offset: int, offsets: Int64s, times: Int64s) -> tuple[bytes, bytes]:
    """Encode an ``.index`` and a ``.timeindex``.

    Args:
        base_offset: base offset of the segment.
        offsets: int64[N, 2] (last offset, position).
        times: int64[M, 2] (timestamp, offset).
    """
    return (
        _encode_entries(offset_index.ENTRY, offsets[:, 0] - base_offset, offsets[:, 1]),
        _encode_entries(time_index.ENTRY, times[:, 0], times[:, 1] - base_offset),
    )


def _encode_entries(layout: Layout, *columns: Int64s) -> bytes:
    """Encode the entries of a layout from one column per field."""
    entries = np.empty(len(columns[0]), layout.dtype)
    for name, column in zip(layout.names, columns, strict=True):
        entries[name] = column
    return entries.tobytes()
