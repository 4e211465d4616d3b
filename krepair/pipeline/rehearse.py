"""Task that plays the next start of one partition through: see ``krepair.checks.rehearsal``."""

from __future__ import annotations

import os
import struct
from typing import Final

from msgspec import Struct

from krepair.checks.rehearsal.behaviour import Behaviour, VersionNumber, behaviour_of
from krepair.checks.rehearsal.index_state import (
    FileEntries,
    OffsetIndexState,
    TimeIndexState,
    TransactionIndexState,
)
from krepair.checks.rehearsal.loader import StartInputs, play_start
from krepair.checks.rehearsal.log_file import LogFile, ReadAt
from krepair.checks.rehearsal.producers import ProducerClock, SnapshotContent
from krepair.checks.rehearsal.segment import SegmentState
from krepair.durable.tree import Tree
from krepair.formats import producer_snapshot
from krepair.formats.damage import Damage
from krepair.formats.filenames import log_name, offset_name, segment_name
from krepair.logdir.reading import opened_for_reading, read_whole, why
from krepair.pipeline.items import FailureKind, Place
from krepair.pipeline.place import reached

_WINDOW_BYTES: Final = 1 << 20
_SNAPSHOT_AT_MOST_BYTES: Final = 1 << 27  # two million producers; a longer file is none that a broker wrote
_TXN_INDEX_AT_MOST_BYTES: Final = 1 << 30
_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")


class RehearsedSegment(Struct, frozen=True, kw_only=True):
    """A segment as it was listed.

    Attributes:
        base_offset: in its name.
        log_bytes: of the ``.log``.
        index_bytes: of the ``.index``, -1 if it is not there.
        time_index_bytes: of the ``.timeindex``, -1 if it is not there.
        has_txn_index: whether there is a ``.txnindex``.
    """

    base_offset: int
    log_bytes: int
    index_bytes: int
    time_index_bytes: int
    has_txn_index: bool


class RehearsedVersion(Struct, frozen=True, kw_only=True):
    """A broker that may start.

    Attributes:
        version: of it.
        producer_expiry_ms: after which it forgets a producer.
    """

    version: VersionNumber
    producer_expiry_ms: int


class RehearseItem(Struct, frozen=True, kw_only=True):
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
        versions: that may start.
    """

    place: Place
    segments: tuple[RehearsedSegment, ...]
    snapshots: tuple[int, ...]
    clean: bool
    recovery_point: int
    log_start: int
    interval_bytes: int
    index_bytes: int
    now_ms: int
    versions: tuple[RehearsedVersion, ...]

    @property
    def bytes_to_read(self) -> int:
        """All logs of the partition, though a start may read less."""
        return sum(segment.log_bytes for segment in self.segments)


class Rehearsed(Struct, frozen=True, kw_only=True):
    """What the start of one version comes to.

    Attributes:
        version: of the broker.
        file: the file that keeps it from starting, empty if it starts.
        failure: what it finds there.
        recovered: base offsets of the segments that are recovered, ascending.
        sizes: (base offset, bytes of the log) of the segments that are there afterwards, ascending.
        log_end: the next offset, -1 if the broker does not start.
    """

    version: VersionNumber
    file: str = ""
    failure: str = ""
    recovered: tuple[int, ...] = ()
    sizes: tuple[tuple[int, int], ...] = ()
    log_end: int = -1


class RehearseResult(Struct, frozen=True, kw_only=True):
    """What it came to.

    Attributes:
        failure: kind of failure, empty if the partition could be read.
        why: of a failure.
        outcomes: one for each version, in their order.
    """

    failure: FailureKind = ""
    why: str = ""
    outcomes: tuple[Rehearsed, ...] = ()


def rehearse(item: RehearseItem) -> RehearseResult:
    """Play the start of one partition through. An I/O error is a failure, never an outcome."""
    tree, wrong = reached(item.place)
    if wrong:
        return RehearseResult(failure="elsewhere", why=wrong)
    try:
        return RehearseResult(outcomes=tuple(_outcome(item, one, tree) for one in item.versions))
    except OSError as error:
        return RehearseResult(failure="unreadable", why=f"{item.place.folder}: {why(error)}")


def _outcome(item: RehearseItem, broker: RehearsedVersion, tree: Tree) -> Rehearsed:
    reader = _Reader(item.place.path, tree)
    inputs = StartInputs(
        clean=item.clean,
        recovery_point=item.recovery_point,
        log_start=item.log_start,
        snapshots={offset: _snapshot(reader, offset) for offset in item.snapshots},
        clock=ProducerClock(item.now_ms, broker.producer_expiry_ms),
    )
    behaviour = behaviour_of(broker.version)
    states = [_segment_state(item, segment, reader, behaviour) for segment in item.segments]
    outcome = play_start(states, inputs, behaviour)
    return Rehearsed(
        version=broker.version,
        file=outcome.file,
        failure=outcome.failure,
        recovered=outcome.recovered,
        sizes=outcome.sizes,
        log_end=outcome.log_end,
    )


def _segment_state(
    item: RehearseItem, segment: RehearsedSegment, reader: _Reader, behaviour: Behaviour
) -> SegmentState:
    base, most = segment.base_offset, item.index_bytes
    stem = offset_name(base)
    index, times = f"{stem}.index", f"{stem}.timeindex"
    offsets = FileEntries(reader.of(index), max(segment.index_bytes, 0), _OFFSET_ENTRY, base, 0)
    stamps = FileEntries(reader.of(times), max(segment.time_index_bytes, 0), _TIME_ENTRY, base, 1)
    txn = f"{stem}.txnindex"
    aborted = reader.whole(txn, _TXN_INDEX_AT_MOST_BYTES) if segment.has_txn_index else b""
    return SegmentState(
        base_offset=base,
        log=LogFile(log_name(base), segment.log_bytes, reader.of(log_name(base))),
        offsets=OffsetIndexState(index, base, offsets, max(segment.index_bytes, 0), most),
        times=TimeIndexState(times, base, stamps, max(segment.time_index_bytes, 0), most),
        aborted=TransactionIndexState(txn, base, aborted),
        has_index=segment.index_bytes >= 0,
        has_time_index=segment.time_index_bytes >= 0,
        interval_bytes=item.interval_bytes,
        behaviour=behaviour,
    )


def _snapshot(reader: _Reader, offset: int) -> SnapshotContent:
    decoded = producer_snapshot.decode(
        reader.whole(segment_name(offset, ".snapshot"), _SNAPSHOT_AT_MOST_BYTES)
    )
    return None if isinstance(decoded, Damage) else decoded.entries


class _Reader:
    """Reads the files of one folder through one window, whatever their number and size."""

    def __init__(self, folder: str, tree: Tree) -> None:
        self._folder = folder
        self._tree = tree
        self._name = ""
        self._origin = 0
        self._window = memoryview(b"")

    def of(self, name: str) -> ReadAt:
        """The reader of one file.

        Raises:
            OSError: when it is called, and the file cannot be read.
        """
        return lambda position, count: self._read(name, position, count)

    def whole(self, name: str, at_most: int) -> bytes:
        """A small file.

        Raises:
            OSError: it cannot be read.
        """
        return read_whole(f"{self._folder}/{name}", at_most, self._tree)

    def _read(self, name: str, position: int, count: int) -> memoryview:
        start = position - self._origin
        if name != self._name or start < 0 or start + count > len(self._window):
            with opened_for_reading(f"{self._folder}/{name}", self._tree) as descriptor:
                self._window = memoryview(os.pread(descriptor, max(count, _WINDOW_BYTES), position))
            self._name, self._origin = name, position
            start = 0
        return self._window[start : start + count]
