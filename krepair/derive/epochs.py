"""The leader epochs of a log, as runs of batches.

Source: LeaderEpochFileCache (4.3.1), KIP-101, KIP-279.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from krepair.formats.arrays import Int64s
from krepair.kernels.columns import Batches

EPOCH_COLUMNS: Final = 3


class EpochRuns:
    """Runs of one log, from those of its parts in order. Nearly always there is one run that goes on."""

    def __init__(self) -> None:
        self._found: list[Int64s] = []

    def take(self, rows: Batches) -> None:
        """Take the next batches, at least one."""
        epochs, last = rows["leader_epoch"], rows["last_offset"]
        starts = np.flatnonzero(np.append(True, epochs[1:] != epochs[:-1]))
        ends = np.append(starts[1:], len(rows)) - 1
        self.add(np.column_stack([epochs[starts], rows["base_offset"][starts], last[ends]]))

    def add(self, runs: Int64s) -> None:
        """Add the runs of the next part; they are copied.

        Args:
            runs: int64[N, 3], (leader epoch, first base offset, last offset).
        """
        if len(runs) and self._found and self._found[-1][-1, 0] == runs[0, 0]:
            self._found[-1][-1, 2] = runs[0, 2]
            runs = runs[1:]
        if len(runs):
            self._found.append(runs.copy())

    @property
    def rows(self) -> Int64s:
        """int64[N, 3] (leader epoch, first base offset, last offset)."""
        return np.concatenate(self._found) if self._found else np.empty((0, EPOCH_COLUMNS), np.int64)
