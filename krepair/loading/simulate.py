"""Simulates the next start of one partition from its files: see ``krepair.loading``."""

from __future__ import annotations

import errno
import os
import struct
from typing import Final

from msgspec import Struct

from krepair.durable.tree import Tree
from krepair.engine.items import Place
from krepair.engine.place import in_its_place
from krepair.engine.progress import shown
from krepair.formats import producer_snapshot, txn_index
from krepair.formats.broker_version import VersionNumber
from krepair.formats.damage import Damage
from krepair.formats.filenames import INDEX_SUFFIXES, log_name, offset_name, segment_name
from krepair.loading.behaviour import Broker, Brokers
from krepair.loading.loader import StartInputs, play_starts
from krepair.loading.log_file import ReadAt, SharedBatches, SimulatedLog
from krepair.loading.next_start import LoadedLog
from krepair.loading.producers import SnapshotContent
from krepair.loading.segment import (
    FileEntries,
    OffsetIndexState,
    SegmentState,
    TimeIndexState,
    TransactionIndexState,
)
from krepair.logdir.reading import opened_for_reading, read_whole
from krepair.logdir.values import Segment

_WINDOW_BYTES: Final = 1 << 20
_WINDOWS_BYTES: Final = 8 << 20
"""Of all windows together, but for one batch that is larger."""
_NO_WINDOW: Final = (0, memoryview(b""))
_SHARED_BATCHES: Final = 1 << 16
"""Of a partition: some 30 MB. A start reads the others anew for each group of versions."""
_SNAPSHOT_AT_MOST_BYTES: Final = 1 << 27  # two million producers; a longer file is none that a broker wrote
_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")


class StartItem(Struct, frozen=True, kw_only=True):
    """Play the start of one partition through, once for each version.

    Attributes:
        place: where.
        segments: ascending, at least one.
        snapshots: offsets of its producer snapshots.
        clean: whether the broker was cleanly stopped.
        recovery_point: of the partition.
        log_start: of the partition.
        interval_bytes: ``index.interval.bytes``.
        index_bytes: ``segment.index.bytes``.
        now_ms: when it starts.
        brokers: who may start, each of another version.
    """

    place: Place
    segments: tuple[Segment, ...]
    snapshots: tuple[int, ...]
    clean: bool
    recovery_point: int
    log_start: int
    interval_bytes: int
    index_bytes: int
    now_ms: int
    brokers: tuple[Broker, ...]

    @property
    def bytes_to_read(self) -> int:
        """All logs of the partition, though a start may read less."""
        return sum(segment.log.size for segment in self.segments)


@shown("next start")
@in_its_place
def simulate_start(item: StartItem, tree: Tree) -> dict[VersionNumber, LoadedLog]:
    """Play the start of one partition through, once for each version. An I/O error is a failure, never an outcome."""
    reader = _FolderReader(item.place.path, tree)
    inputs = StartInputs(
        clean=item.clean,
        recovery_point=item.recovery_point,
        log_start=item.log_start,
        snapshots={offset: _snapshot(reader, offset) for offset in item.snapshots},
        now_ms=item.now_ms,
    )
    at_most = _SHARED_BATCHES // len(item.segments)
    files = [_SegmentFiles(segment, reader, at_most) for segment in item.segments]
    return play_starts(
        lambda together: [one.state(item, together) for one in files], inputs, Brokers(item.brokers)
    )


class _SegmentFiles:
    """The files of one segment, read once for all plays."""

    def __init__(self, segment: Segment, reader: _FolderReader, at_most: int) -> None:
        self._segment = segment
        base, stem = segment.base_offset, offset_name(segment.base_offset)
        self._log = log_name(base)
        self._read_log = reader.of(self._log, segment.log.size)
        self._batches = SharedBatches(self._log, segment.log.size, self._read_log, at_most)
        self._index, self._times, self._txn = (f"{stem}{suffix}" for suffix in INDEX_SUFFIXES)
        self._index_bytes = 0 if segment.index is None else segment.index.size
        self._time_bytes = 0 if segment.time_index is None else segment.time_index.size
        self._offsets = FileEntries(
            reader.of(self._index, self._index_bytes), self._index_bytes, _OFFSET_ENTRY, base, 0
        )
        self._stamps = FileEntries(
            reader.of(self._times, self._time_bytes), self._time_bytes, _TIME_ENTRY, base, 1
        )
        self._aborted = b"" if segment.txn_index is None else reader.whole(self._txn, txn_index.AT_MOST_BYTES)

    def state(self, item: StartItem, brokers: Brokers) -> SegmentState:
        """The segment as it is on the disk, for one play, which changes it."""
        segment, base, most = self._segment, self._segment.base_offset, item.index_bytes
        return SegmentState(
            base_offset=base,
            log=SimulatedLog(self._log, segment.log.size, self._read_log, self._batches),
            offsets=OffsetIndexState(self._index, base, self._offsets, self._index_bytes, most),
            times=TimeIndexState(self._times, base, self._stamps, self._time_bytes, most),
            aborted=TransactionIndexState(self._txn, base, self._aborted, brokers),
            has_index=segment.index is not None,
            has_time_index=segment.time_index is not None,
            interval_bytes=item.interval_bytes,
            brokers=brokers,
        )


def _snapshot(reader: _FolderReader, offset: int) -> SnapshotContent:
    decoded = producer_snapshot.decode(
        reader.whole(segment_name(offset, ".snapshot"), _SNAPSHOT_AT_MOST_BYTES)
    )
    return None if isinstance(decoded, Damage) else decoded.entries


class _FolderReader:
    """Reads the files of one folder, through a window for each of those that were read last."""

    def __init__(self, folder: str, tree: Tree) -> None:
        self._folder = folder
        self._tree = tree
        self._windows: dict[str, tuple[int, memoryview]] = {}
        self._bytes = 0

    def of(self, name: str, size: int) -> ReadAt:
        """The reader of one file of so many bytes.

        Raises:
            OSError: when it is called, and the file cannot be read.
        """
        return lambda position, count: self._read(name, size, position, count)

    def whole(self, name: str, at_most: int) -> bytes:
        """A small file.

        Raises:
            OSError: it cannot be read.
        """
        return read_whole(f"{self._folder}/{name}", at_most, self._tree)

    def _read(self, name: str, size: int, position: int, count: int) -> memoryview:
        origin, window = self._windows.get(name, _NO_WINDOW)
        start = position - origin
        if start < 0 or start + count > len(window):
            start, window = 0, self._filled(name, position, max(count, min(_WINDOW_BYTES, size - position)))
            if len(window) < min(count, size - position):
                raise OSError(errno.ENODATA, "it has become shorter since it was listed", name)
        return window[start : start + count]

    def _filled(self, name: str, position: int, count: int) -> memoryview:
        """A new window of a file. The others go where all together are too large."""
        with opened_for_reading(f"{self._folder}/{name}", self._tree) as descriptor:
            window = memoryview(os.pread(descriptor, count, position))
        _, before = self._windows.pop(name, _NO_WINDOW)
        self._bytes += len(window) - len(before)
        if self._bytes > _WINDOWS_BYTES:
            self._windows.clear()
            self._bytes = len(window)
        self._windows[name] = position, window
        return window
