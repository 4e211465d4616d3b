"""The leader epochs of a log: the batches at which the epoch rises, and runs of batches of one epoch.

No checksum covers the leader epoch of a batch, and epochs never go back in a log that never diverged. So one flipped
bit is told by the batches around it: nothing is derived from a batch whose epoch both of them contradict. A line of
``leader-epoch-checkpoint`` that begins another epoch at the offset of that batch contradicts it too.

Source: LeaderEpochFileCache, LogSegment.recover (2.1, 3.9, 4.3.1), DefaultRecordBatch (2.2.1: ``ATTRIBUTES_OFFSET`` is
where the checksum begins), KIP-101, KIP-279.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from krepair.formats.arrays import Int64s
from krepair.formats.checkpoint import EpochEntry
from krepair.kernels.classes import EPOCH_SIZE, L_BEFORE, L_EPOCH, L_OFFSET
from krepair.kernels.columns import Batches
from krepair.kernels.scan import SegmentSummary

EPOCH_COLUMNS: Final = 3
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
    """A batch whose leader epoch the batches around it contradict.

    Attributes:
        epoch_start: its leader epoch and offsets.
        base_offset: base offset of its segment.
        position: its position in the log.
        before: leader epoch of the batch before it, -1 if there is none.
        after: leader epoch of the batch after it, -1 if there is none.
        recorded: another leader epoch that ``leader-epoch-checkpoint`` begins at its base offset, -1 if it does not.
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
        epoch_starts: epoch starts, ascending in epoch and offset; none that is doubted.
        last_offset: last offset of the last batch that is not doubted, -1 if there is none.
        start: log start offset of the partition.
        end: log end offset, None if damage hides it.
        compacted: True if batches between other batches may have been removed.
        doubted: batches from which no epoch is derived, ascending.
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
    """Join the epoch starts of all segments; like recovery, count only epochs above all earlier ones.

    Args:
        segments: scans of all segments of the partition, ascending.
        log_start: log start offset of the partition.
        compacted: True if the topic is compacted. A gap between two segments counts as compaction too, and so do
            batches behind damage.
        recorded: entries of ``leader-epoch-checkpoint``.
        doubts: False to believe every batch, as krepair 1.0.0 did.
        unsound: (first, last) of ranges whose offsets are not certain: no epoch is derived from a batch there.
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
    doubted = tuple(_doubted(runs, batches, recorded)) if doubts else ()
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
        epoch_start: epoch and offsets of the first batch; the epoch may also be lower than the one before.
        base_offset: base offset of the segment in which the run begins.
        position: position of the first batch in the log.
        number: number of the first batch in the partition.
    """

    epoch_start: EpochStart
    base_offset: int
    position: int
    number: int


def _doubted(
    runs: Sequence[EpochRun], batches: int, recorded: Sequence[EpochEntry]
) -> Iterator[DoubtedEpoch]:
    """Return the single batches whose epoch a neighbour contradicts, or a line that begins at their base offset.

    A neighbour contradicts an epoch that is higher, or lower, than those of both. Of two single batches that contradict
    each other at an end of the log, either may be wrong: both are doubted.
    """
    epochs_from: dict[int, set[int]] = {}
    for entry in recorded:
        epochs_from.setdefault(entry.start_offset, set()).add(entry.epoch)
    ends = [run.number for run in runs[1:]] + [batches] * bool(runs)
    for at, (run, end) in enumerate(zip(runs, ends, strict=True)):
        if end - run.number > 1:
            continue  # batches that agree; a log that diverged has such stretches
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
    """Return the rises of the runs that are believed. A doubted batch before one may be of its epoch."""
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
    rows = np.concatenate([np.empty((0, EPOCH_SIZE), np.int64), *(segment.epochs for segment in segments)])
    log_end = max((max(segment.base_offset, segment.last_offset + 1) for segment in segments), default=0)
    lasts = np.append(rows[1:, L_BEFORE], np.int64(log_end - 1))[: len(rows)]
    return np.column_stack([rows[:, L_EPOCH], rows[:, L_OFFSET], lasts])


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
