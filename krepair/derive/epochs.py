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
    """Start of a leader epoch: a batch whose epoch is greater than that of every batch before it.

    Attributes:
        epoch: leader epoch of the batch.
        first_offset: base offset of the batch.
        before: last offset of the preceding batch in the log, -1 if there is none.
    """

    epoch: int
    first_offset: int
    before: int

    @property
    def exact(self) -> bool:
        """True if no offset is missing before the batch, so that the epoch cannot have started earlier."""
        return self.before + 1 == self.first_offset


class LogEpochs(NamedTuple):
    """The leader epochs of a log.

    Attributes:
        rises: epoch starts, ascending in epoch and offset.
        last_offset: last offset of the last batch, -1 if there is none.
        start: log start offset.
        end: log end offset, None if damage hides it.
        compacted: True if batches between other batches may have been removed.
    """

    rises: tuple[Rise, ...]
    last_offset: int
    start: int
    end: int | None
    compacted: bool


def epochs_of_log(segments: Sequence[SegmentSummary], log_start: int, *, compacted: bool) -> LogEpochs:
    """Join the epoch starts of all segments; like recovery, count only epochs above all earlier ones.

    Args:
        segments: scans of all segments of the partition, ascending.
        log_start: log start offset.
        compacted: True if the topic is compacted. A gap between two segments counts as compaction too, and so do
            batches behind damage.
    """
    rises: list[Rise] = []
    highest, last, end = _NO_EPOCH, -1, 0
    for segment in segments:
        for epoch, first, before in segment.epochs.tolist():
            if epoch > highest:
                rises.append(Rise(epoch, first, last if before < segment.base_offset else before))
                highest = epoch
        if segment.batches:
            compacted = compacted or 0 <= last < segment.base_offset - 1
            last = segment.last_offset
        compacted = compacted or segment.damage != 0
        end = max(segment.base_offset, last + 1)
    hidden = bool(segments) and segments[-1].damage != 0
    return LogEpochs(tuple(rises), last, log_start, None if hidden else end, compacted)


def clears_history(segments: Sequence[SegmentSummary]) -> bool:
    """Return whether v0 or v1 messages may follow v2 batches; appending one clears a broker's epoch history."""
    after_v2 = False
    for segment in segments:
        if segment.old_batches and (after_v2 or (len(segment.epochs) and segment.old_position > 0)):
            return True
        after_v2 = after_v2 or len(segment.epochs) > 0
    return False


def runs_of_segments(segments: Sequence[SegmentSummary]) -> Int64s:
    """Derive the runs of a scanned log, int64[N, 3] (leader epoch, first base offset, last offset).

    Args:
        segments: scans of all segments, ascending.
    """
    rises = np.concatenate([np.empty((0, 3), np.int64), *(segment.epochs for segment in segments)])
    log_end = max((max(segment.base_offset, segment.last_offset + 1) for segment in segments), default=0)
    runs = rises.copy()
    runs[:, 2] = np.append(rises[1:, 2], np.int64(log_end - 1))[: len(rises)]
    return runs


class EpochRuns:
    """Runs of one log, collected from its parts in order; nearly always one run spans them all."""

    def __init__(self) -> None:
        self._runs: list[Int64s] = []

    def take(self, rows: Batches) -> None:
        """Add the next batches, at least one."""
        epochs, last = rows["leader_epoch"], rows["last_offset"]
        starts = np.flatnonzero(np.append(True, epochs[1:] != epochs[:-1]))
        ends = np.append(starts[1:], len(rows)) - 1
        self.add(np.column_stack([epochs[starts], rows["base_offset"][starts], last[ends]]))

    def add(self, runs: Int64s) -> None:
        """Add the runs of the next part, which are copied.

        Args:
            runs: int64[N, 3], (leader epoch, first base offset, last offset).
        """
        if len(runs) and self._runs and self._runs[-1][-1, 0] == runs[0, 0]:
            self._runs[-1][-1, 2] = runs[0, 2]
            runs = runs[1:]
        if len(runs):
            self._runs.append(runs.copy())

    @property
    def rows(self) -> Int64s:
        """Collected runs, int64[N, 3] (leader epoch, first base offset, last offset)."""
        return np.concatenate(self._runs) if self._runs else np.empty((0, EPOCH_COLUMNS), np.int64)
