"""The leader epochs of a log: where each epoch starts, and runs of batches with one epoch.

No checksum covers the leader epoch of a batch, but epochs never decrease in a log that never diverged. So a flipped bit
shows in a batch whose epoch both neighbours contradict, or that an entry of ``leader-epoch-checkpoint`` contradicts.
Such a batch is *doubted*, and no epoch is derived from it.

Source: LeaderEpochFileCache, LogSegment.recover (2.1, 3.9, 4.3.1), DefaultRecordBatch (2.2.1: ``ATTRIBUTES_OFFSET`` is
where the checksum begins), KIP-101, KIP-279.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from krepair.formats.arrays import Int64s
from krepair.formats.checkpoint import EpochEntry
from krepair.kernels.classes import EPOCH_SIZE, L_BEFORE, L_EPOCH, L_OFFSET, L_POSITION
from krepair.kernels.columns import Batches
from krepair.kernels.scan import SegmentSummary

EPOCH_COLUMNS: Final = 3
RUN_EPOCH, RUN_FIRST, RUN_LAST = range(EPOCH_COLUMNS)
"""Columns of a run of batches with one epoch: epoch, first base offset, last offset."""
_NO_EPOCH: Final = -1


class EpochStart(NamedTuple):
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


class DoubtedEpoch(NamedTuple):
    """Batch whose leader epoch cannot be right, because its neighbours contradict it.

    Attributes:
        epoch_start: leader epoch and offsets of the batch.
        base_offset: base offset of the batch's segment.
        position: position of the batch in the log.
        before: leader epoch of the batch before it, -1 if there is none.
        after: leader epoch of the batch after it, -1 if there is none.
        recorded: epoch of an entry in ``leader-epoch-checkpoint`` that starts at the batch and contradicts it, else -1.
    """

    epoch_start: EpochStart
    base_offset: int
    position: int
    before: int
    after: int
    recorded: int


class LogEpochs(NamedTuple):
    """The leader epochs of a log.

    Attributes:
        epoch_starts: epoch starts, ascending in epoch and offset, without doubted batches.
        last_offset: last offset of the last batch that is not doubted, -1 if there is none.
        start: log start offset of the partition.
        end: log end offset, None if damage hides it.
        compacted: True if batches between other batches may have been removed.
        doubted: batches whose epoch cannot be right, ascending.
    """

    epoch_starts: tuple[EpochStart, ...]
    last_offset: int
    start: int
    end: int | None
    compacted: bool
    doubted: tuple[DoubtedEpoch, ...] = ()


def epochs_of_log(
    segments: Sequence[SegmentSummary],
    log_start: int,
    *,
    compacted: bool,
    recorded: Sequence[EpochEntry] = (),
    doubts: bool = True,
    unsound: Sequence[tuple[int, int]] = (),
) -> LogEpochs:
    """Join the epoch starts of all segments. As in recovery, an epoch starts only if it is above all earlier epochs.

    Args:
        segments: scans of all segments of the partition, ascending.
        log_start: log start offset of the partition.
        compacted: True if the topic is compacted. If False, a gap between two segments, or batches after damage, are
            still treated as signs of compaction.
        recorded: entries of ``leader-epoch-checkpoint``.
        doubts: False to trust the epoch of every batch, as krepair 1.0.0 did.
        unsound: (first, last) offset of ranges with uncertain offsets; no epoch is derived from batches in them.
    """
    compacted = compacted or bool(unsound)
    runs: list[EpochRun] = []
    last, end, batches = -1, 0, 0
    for segment in segments:
        for epoch, first, before, number, position in segment.epochs.tolist():
            if not runs or runs[-1].epoch_start.epoch != epoch:
                epoch_start = EpochStart(epoch, first, last if before < segment.base_offset else before)
                runs.append(EpochRun(epoch_start, segment.base_offset, position, batches + number))
        if segment.batches:
            compacted = compacted or 0 <= last < segment.base_offset - 1
            last = segment.last_offset
        compacted = compacted or segment.damage != 0
        batches += segment.batches
        end = max(segment.base_offset, last + 1)
    hidden = bool(segments) and segments[-1].damage != 0
    doubted = tuple(_doubted_batches(runs, batches, recorded)) if doubts else ()
    doubtful = {doubt.epoch_start for doubt in doubted}
    doubtful |= {
        run.epoch_start
        for run in runs
        if any(first <= run.epoch_start.first_offset <= last for first, last in unsound)
    }
    epoch_starts = _epoch_starts((run.epoch_start for run in runs), doubtful)
    believed = last
    for run in reversed(runs):
        if run.epoch_start not in doubtful:
            break
        believed = run.epoch_start.before
    return LogEpochs(epoch_starts, believed, log_start, None if hidden else end, compacted, doubted)


class EpochRun(NamedTuple):
    """Neighbouring batches of one leader epoch.

    Attributes:
        epoch_start: epoch and offsets of the first batch; here the epoch may be lower than that of the run before.
        base_offset: base offset of the segment in which the run begins.
        position: position of the first batch in the log.
        number: number of the first batch in the partition.
    """

    epoch_start: EpochStart
    base_offset: int
    position: int
    number: int


def _doubted_batches(
    runs: Sequence[EpochRun], batches: int, recorded: Sequence[EpochEntry]
) -> Iterator[DoubtedEpoch]:
    """Yield each single batch whose epoch is above, or below, those of both neighbours, or contradicts an entry.

    If two single batches at an end of the log contradict each other, either may be wrong, so both are doubted.
    """
    epochs_from: dict[int, set[int]] = {}
    for entry in recorded:
        epochs_from.setdefault(entry.start_offset, set()).add(entry.epoch)
    ends = [run.number for run in runs[1:]] + [batches] * bool(runs)
    for at, (run, end) in enumerate(zip(runs, ends, strict=True)):
        if end - run.number > 1:
            continue  # two batches that agree are no flipped bit: a log that diverged has such stretches
        before = runs[at - 1].epoch_start.epoch if at else _NO_EPOCH
        after = runs[at + 1].epoch_start.epoch if at + 1 < len(runs) else _NO_EPOCH
        epoch = run.epoch_start.epoch
        too_high = epoch > after and after != _NO_EPOCH and epoch > before
        too_low = epoch < before and (after == _NO_EPOCH or epoch < after)
        begun = epochs_from.get(run.epoch_start.first_offset, {epoch})
        if too_high or too_low or epoch not in begun:
            other = -1 if epoch in begun else max(begun)
            yield DoubtedEpoch(run.epoch_start, run.base_offset, run.position, before, after, other)


def _epoch_starts(runs: Iterable[EpochStart], doubted: Collection[EpochStart]) -> tuple[EpochStart, ...]:
    """Return the epoch starts without doubted batches.

    A doubted batch may belong to the epoch after it, so that epoch may start at the doubted batch.
    """
    epoch_starts: list[EpochStart] = []
    highest, before = _NO_EPOCH, None
    for run in runs:
        if run in doubted:
            before = run.before if before is None else before
            continue
        if run.epoch > highest:
            epoch_starts.append(run if before is None else run._replace(before=before))
            highest = run.epoch
        before = None
    return tuple(epoch_starts)


def clears_history(segments: Sequence[SegmentSummary]) -> bool:
    """Return whether v0 or v1 messages may follow v2 batches; such a message makes a broker clear its epoch history."""
    after_v2 = False
    for segment in segments:
        first_v2 = segment.epochs[0, L_POSITION] if len(segment.epochs) else segment.file_size
        if segment.old_batches and (after_v2 or segment.last_old_position > first_v2):
            return True
        after_v2 = after_v2 or len(segment.epochs) > 0
    return False


def runs_of_segments(segments: Sequence[SegmentSummary]) -> Int64s:
    """Derive the runs of a scanned log, int64[N, 3] (leader epoch, first base offset, last offset).

    Args:
        segments: scans of all segments, ascending.
    """
    rows = np.concatenate([np.empty((0, EPOCH_SIZE), np.int64), *(segment.epochs for segment in segments)])
    log_end = max((max(segment.base_offset, segment.last_offset + 1) for segment in segments), default=0)
    lasts = np.append(rows[1:, L_BEFORE], np.int64(log_end - 1))[: len(rows)]
    return np.column_stack([rows[:, L_EPOCH], rows[:, L_OFFSET], lasts])


class EpochRuns:
    """Collector of the runs of one log from its parts in order; nearly always there is only one run."""

    def __init__(self) -> None:
        self._runs: list[Int64s] = []

    def take(self, rows: Batches) -> None:
        """Add the next batches, at least one."""
        epochs, last = rows["leader_epoch"], rows["last_offset"]
        starts = np.flatnonzero(np.append(True, epochs[1:] != epochs[:-1]))
        ends = np.append(starts[1:], len(rows)) - 1
        self.add(np.column_stack([epochs[starts], rows["base_offset"][starts], last[ends]]))

    def add(self, runs: Int64s) -> None:
        """Add a copy of the runs of the next part.

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
