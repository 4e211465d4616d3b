"""Task that simulates the next start of one partition from its files, see ``krepair.loading``."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from krepair.durable.tree import Tree
from krepair.engine.items import Place
from krepair.engine.place import with_log_dir
from krepair.engine.progress import shown_as
from krepair.formats import producer_snapshot, txn_index
from krepair.formats.broker_version import VersionNumber
from krepair.formats.damage import Damage
from krepair.formats.filenames import SEGMENT_SUFFIXES, offset_name, segment_name
from krepair.formats.java_numbers import INT64_MAX
from krepair.loading.behaviour import Broker, Brokers
from krepair.loading.loader import FilesOnDisk, StartInputs, simulate_starts
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
from krepair.logdir.values import FileRef

_WINDOW_BYTES: Final = 1 << 20
_WINDOWS_BYTES: Final = 8 << 20
"""Most bytes of all windows together, except for a single larger batch."""
_NO_WINDOW: Final = (0, memoryview(b""))
_SHARED_BATCHES: Final = 1 << 16
"""Most batches of a partition that are kept, some 30 MB; further batches are read again for each group of versions."""
_SNAPSHOT_AT_MOST_BYTES: Final = 1 << 27  # two million producers; no broker writes a longer file
_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")


class SegmentFiles(NamedTuple):
    """Files of one base offset, of a segment or of a swap.

    Attributes:
        base_offset: offset in the file names.
        log: the ``.log``, None if there are only indexes.
        offset_index: the ``.index``, None if missing.
        time_index: the ``.timeindex``, None if missing.
        txn_index: the ``.txnindex``, None if missing.
        without: byte ranges of the log that will be removed before the start, ascending.
        made: whether the offset index, and the time index, will be rebuilt from the log before the start.
        sound: (bytes, last offset, position of the last batch) of the batches at the beginning of the log that are
            known to be valid; None if nothing is known.
    """

    base_offset: int
    log: FileRef | None
    offset_index: FileRef | None
    time_index: FileRef | None
    txn_index: FileRef | None
    without: tuple[tuple[int, int], ...] = ()
    made: tuple[bool, bool] = (False, False)
    sound: tuple[int, int, int] | None = None


class StartItem(Struct, frozen=True, kw_only=True):
    """Arguments of the task that simulates the start of one partition for each version.

    Attributes:
        place: location of the partition folder.
        segments: segments that have a log, ascending.
        swaps: ``.swap`` files of each base offset, ascending.
        lowest_cleaned: lowest base offset of a ``.cleaned``.
        follows_producers: True to read the batches after the snapshot too, because they may end the start.
        snapshots: offsets of the producer snapshots.
        new_snapshots: offsets of the producer snapshots that will be made before the start; they stand for no producer.
        clean: True after a clean shutdown.
        recovery_point: recovery point of the partition.
        log_start: log start offset of the partition.
        interval_bytes: bytes of log between two index entries (``index.interval.bytes``).
        index_bytes: largest size of an index in bytes (``segment.index.bytes``).
        now_ms: time of the start, epoch milliseconds.
        brokers: brokers that may start, each of a different version.
    """

    place: Place
    segments: tuple[SegmentFiles, ...]
    snapshots: tuple[int, ...]
    clean: bool
    recovery_point: int
    log_start: int
    interval_bytes: int
    index_bytes: int
    now_ms: int
    brokers: tuple[Broker, ...]
    new_snapshots: tuple[int, ...] = ()
    swaps: tuple[SegmentFiles, ...] = ()
    lowest_cleaned: int = INT64_MAX
    follows_producers: bool = True

    @property
    def bytes_to_read(self) -> int:
        """Bytes of all logs of the partition, though a start may read less."""
        return sum(files.log.size for files in (*self.segments, *self.swaps) if files.log is not None)


@shown_as("next start")
@with_log_dir
def simulate_start(item: StartItem, tree: Tree) -> dict[VersionNumber, LoadedLog]:
    """Simulate the start of one partition for each version; an I/O error is a failure, never an outcome."""
    reader = _FolderReader(item.place.path, tree)
    inputs = StartInputs(
        clean=item.clean,
        recovery_point=item.recovery_point,
        log_start=item.log_start,
        snapshots={
            **{offset: _snapshot(reader, offset) for offset in item.snapshots},
            **dict.fromkeys(item.new_snapshots, ()),
        },
        now_ms=item.now_ms,
        lowest_cleaned=item.lowest_cleaned,
        follows_producers=item.follows_producers,
    )
    at_most = _SHARED_BATCHES // max(len(item.segments) + len(item.swaps), 1)
    segments = [_SegmentFiles(files, reader, at_most) for files in item.segments]
    swaps = [_SegmentFiles(files, reader, at_most) for files in item.swaps]
    nothing = _SegmentFiles(SegmentFiles(item.log_start, None, None, None, None), reader, 0)

    def found(together: Brokers) -> FilesOnDisk:
        return FilesOnDisk(
            [segment.state(item, together) for segment in segments],
            [swap.state(item, together) for swap in swaps],
            nothing.state(item, together),
        )

    return simulate_starts(found, inputs, Brokers(item.brokers))


class _SegmentFiles:
    """Files of one base offset, read once for all simulations."""

    def __init__(self, files: SegmentFiles, reader: _FolderReader, at_most: int) -> None:
        self._files = files
        base = files.base_offset
        self._log_bytes, self._index_bytes, self._time_bytes = (
            0 if file is None else file.size for file in (files.log, files.offset_index, files.time_index)
        )
        names = (f"{offset_name(base)}{suffix}" for suffix in SEGMENT_SUFFIXES)
        self._log, self._index, self._times, self._txn = (
            name if file is None else file.name
            for name, file in zip(
                names, (files.log, files.offset_index, files.time_index, files.txn_index), strict=True
            )
        )
        read_file = reader.of(self._log, self._log_bytes)
        self._log_bytes -= sum(end - start for start, end in files.without)
        self._read_log = _reader_without(read_file, files.without) if files.without else read_file
        makes_index, makes_times = files.made
        self._index_bytes *= not makes_index
        self._time_bytes *= not makes_times
        self._batches = SharedBatches(self._log, self._log_bytes, self._read_log, at_most)
        self._offsets = FileEntries(
            reader.of(self._index, self._index_bytes), self._index_bytes, _OFFSET_ENTRY, base, 0
        )
        self._stamps = FileEntries(
            reader.of(self._times, self._time_bytes), self._time_bytes, _TIME_ENTRY, base, 1
        )
        self._aborted = b"" if files.txn_index is None else reader.whole(self._txn, txn_index.AT_MOST_BYTES)

    def state(self, item: StartItem, brokers: Brokers) -> SegmentState:
        """Return a new value of the segment as it is on the disk, which one simulation may change."""
        files, base, most = self._files, self._files.base_offset, item.index_bytes
        return SegmentState(
            base_offset=base,
            log=SimulatedLog(self._log, self._log_bytes, self._read_log, self._batches),
            offsets=OffsetIndexState(self._index, base, self._offsets, self._index_bytes, most),
            times=TimeIndexState(self._times, base, self._stamps, self._time_bytes, most),
            aborted=TransactionIndexState(self._txn, base, self._aborted, brokers),
            has_index=files.made[0] or files.offset_index is not None,
            has_time_index=files.made[1] or files.time_index is not None,
            interval_bytes=item.interval_bytes,
            brokers=brokers,
            has_log=files.log is not None,
            has_txn_index=files.txn_index is not None,
            sound=None if item.follows_producers else files.sound,
        )


def _reader_without(read_at: ReadAt, without: Sequence[tuple[int, int]]) -> ReadAt:
    """Return the reader of a file without some ranges of its bytes."""

    def read(position: int, count: int) -> memoryview:
        kept = bytearray()
        for start, end in (*without, (INT64_MAX, INT64_MAX)):
            if position < start:
                part = read_at(position, min(count, start - position))
                kept += part
                count -= len(part)
                if not count or start == INT64_MAX:
                    break
                position = start
            position += end - start
        return memoryview(bytes(kept))

    return read


def _snapshot(reader: _FolderReader, offset: int) -> SnapshotContent:
    decoded = producer_snapshot.decode(
        reader.whole(segment_name(offset, ".snapshot"), _SNAPSHOT_AT_MOST_BYTES)
    )
    return None if isinstance(decoded, Damage) else decoded.entries


class _FolderReader:
    """Reader of the files in one folder, with a window for each recently read file."""

    def __init__(self, folder: str, tree: Tree) -> None:
        self._folder = folder
        self._tree = tree
        self._windows: dict[str, tuple[int, memoryview]] = {}
        self._bytes = 0

    def of(self, name: str, size: int) -> ReadAt:
        """Return a function that reads one file of ``size`` bytes; calling that function may raise ``OSError``."""
        return lambda position, count: self._read(name, size, position, count)

    def whole(self, name: str, at_most: int) -> bytes:
        """Read a small file whole.

        Raises:
            OSError: the file cannot be read.
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
        """Read a new window of a file; all other windows are dropped if the total becomes too large."""
        with opened_for_reading(f"{self._folder}/{name}", self._tree) as descriptor:
            window = memoryview(os.pread(descriptor, count, position))
        _, before = self._windows.pop(name, _NO_WINDOW)
        self._bytes += len(window) - len(before)
        if self._bytes > _WINDOWS_BYTES:
            self._windows.clear()
            self._bytes = len(window)
        self._windows[name] = position, window
        return window
