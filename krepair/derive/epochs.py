"""The leader epochs of a log: the batches at which the epoch rises, and runs of batches of one epoch.

Source: LeaderEpochFileCache, LogSegment.recover (2.1, 3.9, 4.3.1), KIP-101, KIP-279.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from krepair.formats.arrays import Int64s
from krepair.kernels.columns import Batches
from krepair.kernels.scan import SegmentSummary

EPOCH_COLUMNS: Final = 3
_NO_EPOCH: Final = -1


class Rise(NamedTuple):
    """A batch whose leader epoch is greater than that of every batch before it.

    Attributes:
        epoch: its leader epoch.
        first_offset: its base offset.
        before: last offset of the batch before it in the log, -1 if it is the first.
    """

    epoch: int
    first_offset: int
    before: int

    @property
    def exact(self) -> bool:
        """Whether no offset is missing before the batch, so that the epoch cannot have started earlier."""
        return self.before + 1 == self.first_offset


class LogEpochs(NamedTuple):
    """The leader epochs of a log.

    Attributes:
        rises: batches at which the epoch rises, ascending in epoch and offset.
        last_offset: last offset of the last batch, -1 if there is none.
        start: log start offset.
        end: log end offset, None if damage hides it.
        compacted: whether batches between other batches may have been removed.
    """

    rises: tuple[Rise, ...]
    last_offset: int
    start: int
    end: int | None
    compacted: bool


def epochs_of_log(segments: Sequence[SegmentSummary], log_start: int, *, compacted: bool) -> LogEpochs:
    """Join the rises of all segments. An epoch counts if it is higher than all epochs before it, as in recovery.

    Args:
        segments: scans of all segments of the partition, ascending.
        log_start: its log start offset.
        compacted: whether the topic is compacted. A gap between two segments also means that. Batches behind damage
            count as removed by compaction.
    """
    rises: list[Rise] = []
    highest, last, end = _NO_EPOCH, -1, 0
    for one in segments:
        for epoch, first, before in one.epochs.tolist():
            if epoch > highest:
                rises.append(Rise(epoch, first, last if before < one.base_offset else before))
                highest = epoch
        if one.batches:
            compacted = compacted or 0 <= last < one.base_offset - 1
            last = one.last_offset
        compacted = compacted or one.damage != 0
        end = max(one.base_offset, last + 1)
    hidden = bool(segments) and segments[-1].damage != 0
    return LogEpochs(tuple(rises), last, log_start, None if hidden else end, compacted)


def clears_history(segments: Sequence[SegmentSummary]) -> bool:
    """Whether messages of v0 or v1 may follow batches of v2. A broker that appends one clears the epoch history."""
    seen = False
    for one in segments:
        if one.old_batches and (seen or (len(one.epochs) and one.old_position > 0)):
            return True
        seen = seen or len(one.epochs) > 0
    return False


def runs_of_segments(segments: Sequence[SegmentSummary]) -> Int64s:
    """int64[N, 3] (leader epoch, first base offset, last offset) of the runs of a scanned log.

    Args:
        segments: scans of all segments, ascending.
    """
    rises = np.concatenate([np.empty((0, 3), np.int64), *(one.epochs for one in segments)])
    log_end = max((max(one.base_offset, one.last_offset + 1) for one in segments), default=0)
    runs = rises.copy()
    runs[:, 2] = np.append(rises[1:, 2], np.int64(log_end - 1))[: len(rises)]
    return runs


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
