"""Resources that a start needs from the host: open files, memory maps of index files, and disk space.

A broker opens each ``.log`` and each ``.txnindex``, and keeps them open. Up to 2.2 it maps both indexes of every
segment; from 2.3 on (KAFKA-7283) only the indexes of the active segment and of each recovered segment. An empty file
takes no map. Source: ``FileRecords.open``, ``TransactionIndex``, ``AbstractIndex`` (2.2.1), ``LazyIndex`` (2.4.0);
seen on 2.2.1, 3.9.2 and 4.3.1. systemd.exec(5), systemd.unit(5).

The broker extends the two indexes of an active segment to ``segment.index.bytes`` by truncation, which takes no block
until an entry is written. Blocks are taken by rebuilt indexes, by a producer snapshot for each recovered segment and
one at the log end, and by each checkpoint, which is written to a second file before it is renamed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from krepair.checks.catalogue import Finding
from krepair.fixes.analysis import PartitionAnalysis
from krepair.formats import offset_index, producer_snapshot, time_index, txn_index
from krepair.formats.batch_front import LEAST_BYTES
from krepair.formats.broker_version import Version
from krepair.formats.words import count_text
from krepair.logdir.space import VolumeSpace, read_space
from krepair.logdir.values import LogDir, Partition
from krepair.plan.fit import shortage_at_start
from krepair.rules.grouping import index_entries_at_most
from krepair.start.line import ForecastLine
from krepair.start.refusal import MAPS_INDEXES_LAZILY, Cause

UNIT_DIRS: Final = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
MAP_COUNT: Final = "/proc/sys/vm/max_map_count"
_STARTS_KAFKA: Final = re.compile(r"kafka-server-start|\bkafka\.Kafka\b")
_OF_JVM: Final = 50
"""Least number of other files and maps that a broker's JVM holds; measured: 51 files on 2.2.1, 137 on 4.3.1."""


class OpenAtStart(NamedTuple):
    """Number of open files and of mapped index files that a start holds."""

    files: int
    maps: int


def held_by_start(view: LogDir, version: Version) -> OpenAtStart:
    """Count the files and maps that a start holds of a log directory; an unknown version counts as 2.3 or later."""
    files = maps = 0
    lazily = version is None or version >= MAPS_INDEXES_LAZILY
    for partition in (*view.partitions, *view.marked):
        files += sum(1 + (segment.txn_index is not None) for segment in partition.segments)
        maps += _maps(view, partition, lazily=lazily)
    return OpenAtStart(files, maps)


def _maps(view: LogDir, partition: Partition, *, lazily: bool) -> int:
    if not partition.segments:
        return 0
    point = view.recovery_point.offsets.get(partition.key, 0)
    mapped = [
        segment
        for segment, end in partition.segments_with_ends()[:-1]
        if not lazily
        or (end > point and not view.clean_shutdown)  # recovery opens the indexes that it rebuilds
    ]
    # The indexes of the active segment are extended, so they are mapped even if they are empty.
    return 2 + sum(
        file is not None and file.size > 0
        for segment in mapped
        for file in (segment.index, segment.time_index)
    )


class Limits(NamedTuple):
    """Limits that this host sets for its broker.

    Attributes:
        unit: path of the broker's systemd unit; empty if there is none, or several.
        files: ``LimitNOFILE`` of the unit; -1 if it is not set, or infinite.
        maps: ``vm.max_map_count`` of the host; -1 if not known.
    """

    unit: str = ""
    files: int = -1
    maps: int = -1


def limits_of_host(config: str | None) -> Limits:
    """Read the broker's limits from its unit; those of krepair's own process say nothing about the broker's.

    Args:
        config: path of ``server.properties``, which selects among several units that start a broker.
    """
    starts = {
        path: lines for path, lines in _units() if any(map(_STARTS_KAFKA.search, _values(lines, "ExecStart")))
    }
    if config is not None and len(starts) > 1:
        named = os.path.abspath(config)
        starts = {
            path: lines for path, lines in starts.items() if named in " ".join(_values(lines, "ExecStart"))
        }
    maps = _number(_read(MAP_COUNT).strip())
    if len(starts) != 1:
        return Limits(maps=maps)
    ((path, lines),) = starts.items()
    # A JVM raises its soft limit to the hard one.
    hard = next((value.rpartition(":")[2] for value in reversed(_values(lines, "LimitNOFILE"))), "")
    return Limits(path, _number(hard), maps)


def _units() -> Iterator[tuple[str, list[str]]]:
    """Yield path and lines of each service that starts a broker, its drop-ins last.

    If units have equal names, the unit in the earlier directory of ``UNIT_DIRS`` is used, as systemd.unit(5) says.
    """
    services = {name: f"{root}/{name}" for root in reversed(UNIT_DIRS) for name in _names(root, ".service")}
    drop_ins = [
        (unit, name, f"{root}/{unit}/{name}")
        for root in reversed(UNIT_DIRS)
        for unit in _names(root, ".service.d")
        for name in _names(f"{root}/{unit}", ".conf")
    ]
    for service, path in services.items():
        added = {name: drop_in for unit, name, drop_in in drop_ins if unit == f"{service}.d"}
        text = "\n".join(map(_read, [path, *(added[name] for name in sorted(added))])).replace("\\\n", " ")
        if _STARTS_KAFKA.search(text):
            yield path, text.splitlines()


def _names(folder: str, ending: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.endswith(ending)]
    except OSError:
        return []


def _values(lines: Iterable[str], key: str) -> list[str]:
    """Return the values of a unit's key in order; an empty value clears all values before it."""
    values: list[str] = []
    for line in lines:
        name, equals, value = line.partition("=")
        if equals and name.strip() == key:
            values = [*values, value.strip()] if value.strip() else []
    return values


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else -1


def causes_of_limits(
    view: LogDir, others: Sequence[LogDir], limits: Limits, version: Version
) -> Iterator[Cause]:
    """Yield each host limit that keeps a broker of the version from loading a log directory.

    Only the largest directory of a broker is named: a broker with several directories lost the largest one, and kept
    running although it could hardly open another file (seen on 3.9.2).

    Args:
        others: the broker's other log directories that were given.
        limits: limits of this host.
        version: version of the broker that starts.
    """
    held = [held_by_start(log_dir, version) for log_dir in (view, *others)]
    if held[0] < max(held):
        return
    files, maps = sum(need.files for need in held), sum(need.maps for need in held)
    if 0 <= limits.files < files + _OF_JVM:
        text = (
            f"the start holds {files:,} files open, and LimitNOFILE={limits.files} of {limits.unit} is too low: "
            "raise it before the start"
        )
        yield Cause("", "", text)
    if 0 <= limits.maps < maps + _OF_JVM:
        text = (
            f"the start maps {maps:,} index files, and vm.max_map_count={limits.maps} of this host is too low: "
            "raise it with sysctl before the start"
        )
        yield Cause("", "", text)


_BLOCK_BYTES: Final = 4096
_CHECKPOINTS: Final = 4
"""Most files of the root that are written beside their old versions at the same time."""
_LINE_BYTES: Final = 24
"""Bytes of a checkpoint entry besides the topic's name."""


class StartSpace(NamedTuple):
    """Disk space that the next start takes in a log directory.

    Attributes:
        needs_bytes: most bytes that the start writes, in whole blocks.
        reserves_bytes: bytes by which the start extends files without writing to them.
        free_bytes: free bytes of the file system, -1 if unknown.
        largest: largest kind of file in ``needs_bytes`` with its bytes, as text.
        needs_files: most files that the start creates.
        free_files: free inodes of the file system, -1 if unknown or unlimited.
    """

    needs_bytes: int
    reserves_bytes: int
    free_bytes: int
    largest: str
    needs_files: int = 0
    free_files: int = -1

    @property
    def lacks(self) -> tuple[int, int]:
        """Bytes and inodes that are missing, each 0 if there are enough."""
        return shortage_at_start(self.needs_bytes, self.needs_files, self.free_bytes, self.free_files)


def start_space(
    view: LogDir, analyses: Sequence[PartitionAnalysis], lines: Mapping[str, ForecastLine]
) -> StartSpace:
    """Compute the disk space of the start that ``lines`` forecast.

    Args:
        analyses: partitions of the log directory.
        lines: folder -> forecast line of the partition.
    """
    space = _space_of(view)
    block = space.block_bytes if space else _BLOCK_BYTES
    started = [analysis for analysis in analyses if analysis.segments and not analysis.partition.unreadable]
    kinds = {
        "indexes that are rebuilt": sum(
            _whole(size, block) for analysis in started for size in _rebuilt(analysis, lines)
        ),
        "producer snapshots": sum(
            count * _whole(size, block)
            for analysis in started
            for count, size in (_snapshots(analysis, lines),)
        ),
        "checkpoints": _checkpoints(view, block),
    }
    kind, size = max(kinds.items(), key=lambda pair: pair[1])
    return StartSpace(
        needs_bytes=sum(kinds.values()),
        reserves_bytes=sum(_reserved(analysis) for analysis in started),
        free_bytes=max(space.free_bytes, 0) if space else -1,
        largest=f"{kind} {size} bytes",
        needs_files=_CHECKPOINTS + sum(_new_files(analysis, lines) for analysis in started),
        free_files=space.free_inodes if space else -1,
    )


def needed_at_most(view: LogDir) -> tuple[int, int]:
    """Return upper bounds of the next start's bytes and new files, from the listing alone; at least ``start_space``.

    After an unclean stop each active segment is recovered: its indexes are rebuilt and a snapshot is written.
    """
    block, files = _BLOCK_BYTES, _CHECKPOINTS
    needed = _checkpoints(view, block)
    if view.clean_shutdown:
        return needed, files
    for partition in view.partitions:
        if partition.segments and not partition.unreadable:
            log = partition.segments[-1].log.size
            newest = partition.snapshots[-1].file.size if partition.snapshots else 0
            # A batch has at least 61 bytes, or 26 of the old formats; an entry for each is the most there can be.
            entries = log // LEAST_BYTES[0] + 1
            needed += _whole(entries * (offset_index.ENTRY_SIZE + time_index.ENTRY_SIZE), block)
            needed += _whole(newest, block) + 4 * block
            files += 1 + _missing_indexes(partition)
    return needed, files


def _missing_indexes(partition: Partition) -> int:
    last = partition.segments[-1]
    return (last.index is None) + (last.time_index is None)


def space_findings(space: StartSpace) -> Iterator[Finding]:
    """Yield a finding if the file system lacks the bytes or inodes that the next start needs (KR703)."""
    lacks, lacks_files = space.lacks
    if lacks:
        yield Finding(
            rule="KR703",
            evidence=(
                f"the next start writes up to {space.needs_bytes} bytes ({space.largest}), {space.free_bytes} bytes "
                f"are free; indexes that it extends by {space.reserves_bytes} bytes more take room as they fill"
            ),
            bytes=lacks,
        )
    if lacks_files:
        yield Finding(
            rule="KR703",
            evidence=(
                f"the next start makes up to {count_text(space.needs_files, 'new file')}, the file system has room for "
                f"{space.free_files:,} (df -i); each checkpoint is written to a new file first"
            ),
        )


def _space_of(view: LogDir) -> VolumeSpace | None:
    try:
        return read_space(view.path)
    except OSError:
        return None  # a forecast without the free space is better than no forecast


def _whole(size: int, block: int) -> int:
    return -(-size // block) * block


def _rebuilt(analysis: PartitionAnalysis, lines: Mapping[str, ForecastLine]) -> Iterator[int]:
    """Yield the largest possible sizes of the index files that the start rebuilds."""
    recovered = set(lines[analysis.partition.folder].segments)
    for facts in analysis.segments:
        if facts.base_offset not in recovered:
            continue
        summary = facts.summary
        entries = index_entries_at_most(summary.valid_bytes, analysis.settings.index_interval_bytes)
        entries = min(entries, summary.batches + 1)
        yield entries * offset_index.ENTRY_SIZE
        yield entries * time_index.ENTRY_SIZE
        yield len(facts.entries) * txn_index.ENTRY_SIZE


def _snapshots(analysis: PartitionAnalysis, lines: Mapping[str, ForecastLine]) -> tuple[int, int]:
    """Return the number of snapshots that the start writes, and the largest possible size of a snapshot."""
    producers = max((len(facts.summary.rows) for facts in analysis.segments), default=0)
    newest = analysis.partition.snapshots[-1].file.size if analysis.partition.snapshots else 0
    size = max(producer_snapshot.HEADER_SIZE + producers * producer_snapshot.ENTRY_SIZE, newest)
    recovered = len(lines[analysis.partition.folder].segments)
    return (recovered + 1 if recovered else 0), size


def _new_files(analysis: PartitionAnalysis, lines: Mapping[str, ForecastLine]) -> int:
    """Count the files that the start creates: snapshots and missing indexes."""
    recovered = set(lines[analysis.partition.folder].segments)
    missing = sum(
        (segment.index is None) + (segment.time_index is None)
        for segment in analysis.partition.segments
        if segment.base_offset in recovered
    )
    return missing + _snapshots(analysis, lines)[0]


def _checkpoints(view: LogDir, block: int) -> int:
    """Return the bytes of the root's four checkpoints and one partition's, all written beside their old versions."""
    lines = sum(len(partition.topic) + _LINE_BYTES for partition in view.partitions)
    return 4 * _whole(lines, block) + 2 * block


def _reserved(analysis: PartitionAnalysis) -> int:
    """Return the bytes by which the start extends the indexes of the active segment."""
    segment = analysis.partition.segments[-1]
    most = analysis.settings.segment_index_bytes
    return sum(
        max(most - most % entry - (0 if file is None else file.size), 0)
        for file, entry in (
            (segment.index, offset_index.ENTRY_SIZE),
            (segment.time_index, time_index.ENTRY_SIZE),
        )
    )
