"""Simulation of a broker's log loader for one partition, step by step.

Source: Log.loadSegments, completeSwapOperations and recoverLog (2.2.1, 2.8), LogLoader.load,
UnifiedLog.rebuildProducerState (3.0, 3.9, 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from krepair.formats.broker_version import VersionNumber
from krepair.formats.java_numbers import INT64_MAX
from krepair.loading.behaviour import (
    Brokers,
    BrokersPartError,
    CorruptIndexError,
    CorruptRecordError,
    InvalidOffsetError,
    OffsetOverflowError,
    StartFailsError,
)
from krepair.loading.next_start import LoadedLog
from krepair.loading.producers import SimulatedProducers, SnapshotContent, SnapshotFolder
from krepair.loading.segment import SegmentState

_SPLITS_AT_MOST = 64
Step = TypeVar("Step")


class StartInputs(NamedTuple):
    """Input of a start besides the segments.

    Attributes:
        clean: True after a clean shutdown.
        recovery_point: recovery point of the partition; 0 if none is recorded.
        log_start: recorded log start offset; 0 if none is recorded.
        snapshots: producer snapshots, by offset.
        now_ms: clock of the broker that starts, epoch milliseconds.
        lowest_cleaned: lowest base offset of a ``.cleaned``, which voids every swap from there on (KAFKA-6264).
        follows_producers: True to read the batches after a snapshot too, because they may end the start.
    """

    clean: bool
    recovery_point: int
    log_start: int
    snapshots: Mapping[int, SnapshotContent]
    now_ms: int
    lowest_cleaned: int = INT64_MAX
    follows_producers: bool = True


class FilesOnDisk(NamedTuple):
    """Segments of a partition as a start finds them.

    Attributes:
        segments: segments that have a ``.log``, ascending.
        swaps: ``.swap`` files of each base offset, ascending.
        like: empty segment with the settings of the partition.
    """

    segments: Sequence[SegmentState]
    swaps: Sequence[SegmentState]
    like: SegmentState


def simulate_starts(
    segments_for: Callable[[Brokers], FilesOnDisk], inputs: StartInputs, brokers: Brokers
) -> dict[VersionNumber, LoadedLog]:
    """Simulate the start of one partition for brokers of several versions, and return the results by version.

    Brokers that behave alike share one simulation; if they differ, each group is simulated from the beginning.

    Args:
        segments_for: function that builds fresh segments from the disk for each simulation.
        inputs: input of the start besides the segments.
        brokers: brokers that may start, each of a different version.
    """
    loaded: dict[VersionNumber, LoadedLog] = {}
    waiting = [brokers]
    while waiting:
        together = waiting.pop()
        try:
            outcome = _simulate_start(segments_for(together), inputs, together)
        except BrokersPartError as parted:
            waiting += parted.groups
            continue
        loaded |= {broker.version: outcome for broker in together.members}
    return loaded


def _simulate_start(files: FilesOnDisk, inputs: StartInputs, brokers: Brokers) -> LoadedLog:
    loader = _Loader(files, inputs, brokers)
    try:
        log_end = loader.load()
    except (StartFailsError, CorruptRecordError, InvalidOffsetError) as error:
        # A snapshot may cause the failure: a transaction in it that the log no longer has (KAFKA-8443).
        return LoadedLog(
            error.file,
            error.text,
            tuple(sorted(loader.recovered)),
            sum(loader.recovered.values()),
            snapshot_offset=loader.snapshot_offset,
        )
    return loader.loaded(log_end)


class _Loader:
    """State of the loader: ``segments`` holds the loaded segments, ``recovered`` the log bytes of recovered ones."""

    def __init__(self, files: FilesOnDisk, inputs: StartInputs, brokers: Brokers) -> None:
        self._on_disk = {segment.base_offset: segment for segment in files.segments}
        self._like = files.like
        self._swaps = [swap for swap in files.swaps if swap.base_offset < inputs.lowest_cleaned]
        self._all_swaps = files.swaps
        self._inputs = inputs
        self._brokers = brokers
        self._snapshots = SnapshotFolder(inputs.snapshots)
        self._producers = self._new_producers()
        self.segments: dict[int, SegmentState] = {}
        self.recovered: dict[int, int] = {}
        self._cut: dict[int, int] = {}
        self._dropped: set[int] = set()
        self._no_snapshot_is_left = False

    def loaded(self, log_end: int) -> LoadedLog:
        """Return the log as the start has loaded it."""
        return LoadedLog(
            recovered=tuple(sorted(self.recovered)),
            bytes_read=sum(self.recovered.values()),
            segments=tuple((base, segment.log.size) for base, segment in sorted(self.segments.items())),
            log_end=log_end,
            snapshot_offset=self.snapshot_offset,
            unread=() if self.recovered else tuple(sorted(self._snapshots.unread)),
            unreadable=tuple(sorted(self._snapshots.unreadable)),
            cut=tuple(sorted((base, size) for base, size in self._cut.items() if base in self.segments)),
            dropped=tuple(sorted(self._dropped - self.segments.keys())),
            producers=-1 if self._no_snapshot_is_left else self._producers.count,
        )

    @property
    def snapshot_offset(self) -> int:
        """Offset of the producer snapshot that was loaded, -1 if none was."""
        return self._producers.loaded_from

    def load(self) -> int:
        """Load the partition and return its log end offset."""
        renames = bool(self._all_swaps) and self._brokers.do(
            lambda broker: broker.behaviour.renames_swaps_first
        )
        if renames:
            self._rename_swaps()
        else:
            for swap in self._all_swaps:
                if swap.base_offset in self._on_disk:
                    self._on_disk[swap.base_offset].without_indexes()
        self._retried(self._load_files)
        if not renames:
            self._finish_swaps()
        log_end = self._retried(self._recover_log)
        active = self.segments[max(self.segments)]
        active.offsets.grow()
        active.times.grow()
        log_start = max(self._inputs.log_start, min(self.segments))
        self._producers.remove_strays(self.segments)
        self._rebuild_producers(self._producers, log_start, log_end, clean=self._inputs.clean)
        if self._inputs.follows_producers:
            self._find_first_unstable(log_start, log_end)
        return log_end

    def _new_producers(self) -> SimulatedProducers:
        return SimulatedProducers(self._snapshots, self._brokers, self._inputs.now_ms)

    # -- swaps

    def _rename_swaps(self) -> None:
        """Rename the swaps unread, after deleting the segments and snapshots between the first and the last swap."""
        logs = [swap for swap in self._swaps if swap.has_log]
        first = min((log.base_offset for log in logs), default=INT64_MAX)
        end = max((log.next_offset() for log in logs), default=-1)
        self._on_disk = {base: segment for base, segment in self._on_disk.items() if not first <= base < end}
        self._snapshots.delete_between(first, end)
        self._producers = self._new_producers()
        for swap in self._swaps:
            segment = self._on_disk.get(swap.base_offset)
            if swap.has_log:
                if (
                    not swap.has_index
                ):  # the loader opens the swap to read it, which creates a preallocated index
                    swap.offsets.fill_with_zeros()
                    swap.has_index = True
                if segment is not None:  # it survives the deletion if the swap is empty, and so is its range
                    segment.take_indexes(swap)
                    swap.take_indexes(segment)
                self._on_disk[swap.base_offset] = swap
            elif segment is not None:
                segment.take_indexes(swap)

    def _finish_swaps(self) -> None:
        """Recover each swap and let it replace the segments that have its offsets."""
        before = frozenset(self.recovered)
        for swap in self._swaps:
            if not swap.has_log:
                continue
            try:
                self._recover(swap)
            except OffsetOverflowError as error:
                raise StartFailsError(swap.log.name, "has an offset that does not fit its name") from error
            if swap.base_offset not in before:  # it was recovered as a swap, not as a segment of the log
                del self.recovered[swap.base_offset]
            end = swap.next_offset()
            replaced = [
                segment
                for segment in self._between(swap.base_offset, end)
                if segment.next_offset() > swap.base_offset
            ]
            for segment in replaced:
                del self.segments[segment.base_offset], self._on_disk[segment.base_offset]
            self.segments[swap.base_offset] = self._on_disk[swap.base_offset] = swap

    # -- segments

    def _retried(self, step: Callable[[], Step]) -> Step:
        """Run a step; if a segment has offsets that do not fit, split the segment and run the step again."""
        for _ in range(_SPLITS_AT_MOST):
            try:
                return step()
            except OffsetOverflowError as overflow:
                self._split(overflow.base_offset)
        raise StartFailsError("", "its segments are split without end")

    def _split(self, base_offset: int) -> None:
        segment = self._on_disk[base_offset]
        parts = {part.base_offset: part for part in segment.split()}
        if base_offset in self.segments:
            del self._on_disk[base_offset], self.segments[base_offset]
        elif base_offset not in parts:
            # Only a loaded segment is replaced by its parts; this segment remains beside them, with new empty indexes.
            if self._brokers.do(lambda broker: broker.behaviour.checks_indexes):
                raise StartFailsError(segment.log.name, "is split again and again: the start never ends")
            segment.closed()
        self._on_disk |= parts
        self.segments |= parts
        if base_offset not in parts:
            self._producers.forget_segment(base_offset)

    def _load_files(self) -> None:
        for loaded in self.segments.values():
            loaded.closed()
        self.segments = {}
        for base_offset, segment in sorted(self._on_disk.items()):
            try:
                segment.open()
            except CorruptIndexError:
                self._recover(segment)
            self.segments[base_offset] = segment

    def _recover(self, segment: SegmentState) -> int:
        producers = self._new_producers()
        self._rebuild_producers(producers, self._inputs.log_start, segment.base_offset, clean=False)
        self.recovered.setdefault(segment.base_offset, segment.log.size)
        cut = segment.recover(producers)
        if cut:
            self._cut[segment.base_offset] = segment.log.size
        segment.has_index = segment.has_time_index = True
        producers.take_snapshot()
        return cut

    def _recover_log(self) -> int:
        if not self._inputs.clean:
            self._recover_unflushed()
        if self.segments:
            log_end = self.segments[max(self.segments)].next_offset()
            if log_end >= self._inputs.log_start:
                return log_end
            self._drop(list(self.segments))
            if not self._brokers.do(lambda broker: broker.behaviour.lists_snapshots_each_time):
                self._producers.start_over(self._inputs.log_start)
        self.segments[self._inputs.log_start] = self._like.empty_at(self._inputs.log_start)
        return self._inputs.log_start

    def _recover_unflushed(self) -> None:
        unflushed = list(self._between(self._inputs.recovery_point, INT64_MAX))
        for number, segment in enumerate(unflushed):
            try:
                cut = self._recover(segment)
            except InvalidOffsetError:
                cut = segment.empty()
                if cut:
                    self._cut[segment.base_offset] = segment.log.size
            if cut > 0:
                segment.next_offset()  # the broker needs it for a log message; the call may fail
                self._drop([later.base_offset for later in unflushed[number + 1 :]])
                return

    def _drop(self, bases: Sequence[int]) -> None:
        for base_offset in bases:
            del self.segments[base_offset]
            self._dropped.add(base_offset)
            self._on_disk.pop(base_offset, None)
            self._producers.forget_segment(base_offset)

    def _between(self, start: int, end: int) -> Iterator[SegmentState]:
        """Return the segments that may hold offsets from ``start`` to just below ``end``."""
        bases = sorted(self.segments)
        floor = max((base for base in bases if base <= start), default=-INT64_MAX)
        return (self.segments[base] for base in bases if floor <= base < end)

    # -- producers

    def _rebuild_producers(
        self, producers: SimulatedProducers, log_start: int, last_offset: int, *, clean: bool
    ) -> None:
        newest = sorted(self.segments)[-2:]
        if clean and not producers.has_snapshots:
            self._no_snapshot_is_left = True
            for offset in (*newest, last_offset):
                producers.end_offset = offset
                producers.take_snapshot()
            return
        producers.reload(log_start, last_offset)
        if last_offset > producers.end_offset and self._inputs.follows_producers:
            floor = max((base for base in self.segments if base <= last_offset), default=None)
            old = self._brokers.do(lambda broker: broker.behaviour.looks_in_one_segment)
            for segment in list(self._between(producers.end_offset, last_offset)):
                base_offset = segment.base_offset
                producers.end_offset = max(base_offset, producers.end_offset, log_start)
                if base_offset in newest or base_offset == last_offset:
                    producers.take_snapshot()
                segment.load_producers(
                    producers,
                    producers.end_offset,
                    last_offset,
                    ends_here=old or base_offset == floor,
                    onwards=old,
                )
        producers.end_offset = last_offset
        producers.take_snapshot()

    def _find_first_unstable(self, log_start: int, log_end: int) -> None:
        """Look up the first offset of the earliest open or just ended transaction, as a broker does at the end."""
        unstable = self._producers.first_unstable_offset
        if unstable < 0:
            return
        offset = max(unstable, log_start)
        bases = sorted(base for base in self.segments if base <= offset)
        if self._brokers.do(lambda broker: broker.behaviour.looks_in_one_segment):
            if self.segments[bases[-1]].position_of(offset) < 0:
                text = f"a transaction begins at offset {offset}, its segment has nothing from there on"
                raise StartFailsError(self.segments[bases[-1]].log.name, text)
            return
        if offset > log_end:
            if self._brokers.do(lambda broker: broker.behaviour.needs_first_unstable_offset):
                text = f"a transaction begins at offset {offset}, the log ends at {log_end}"
                raise StartFailsError(self.segments[max(self.segments)].log.name, text)
            return
        if offset == log_end:
            return
        for base in (base for base in sorted(self.segments) if base >= bases[-1]):
            if self.segments[base].position_of(offset) >= 0:
                return
