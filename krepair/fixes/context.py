"""Context of every fix's analysis: the log directory, settings, options, other brokers, and the engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from krepair.durable.scratch import Scratch
from krepair.engine.engine import Engine
from krepair.engine.items import LogsItem, Place
from krepair.fixes.analysis import AnalysisResults, PartitionAnalysis
from krepair.formats.broker_version import Version, VersionNumber, version_of
from krepair.logdir.cluster import ClusterView
from krepair.logdir.config import Settings
from krepair.logdir.space import VolumeSpace, read_space
from krepair.logdir.values import LogDir, Partition
from krepair.options import Options
from krepair.rules.evidence import Evidence

DIRECTORY_ID_SINCE: Final = "3.7.0"
TIERED_SINCE: Final = (3, 6, 0)
"""First Kafka version with tiered storage (KIP-405)."""


@dataclass(frozen=True)
class OtherDirs:
    """Other log directories of the same broker.

    Attributes:
        views: listings of the directories that were read.
        unknown: reason why the list of directories is unknown, or empty.
        unsaid: True if no option names another directory or states that there is none.
        unread: reason why a named directory could not be read as this broker's, or empty.
    """

    views: tuple[LogDir, ...] = ()
    unknown: str = ""
    unsaid: bool = False
    unread: str = ""


@dataclass(eq=False)
class Context:
    """State of a run's analysis of one log directory.

    Attributes:
        scratch: scratch folder for data that does not fit into memory.
        beside_broker: True if a broker may be running; then active segments are read up to the last complete batch.
        analyses: analysis of every partition that an analysis step requested, by folder.
        root: results of steps that analyze the root.
        cluster: cluster state from the file that ``--cluster`` names; None without the option.
        other_brokers: log directories of the other brokers that ``--replicas`` names, by broker id.
        own_dirs: this broker's other log directories, from ``--replicas`` or ``--config``.
        evidence: evidence about the other replicas, by folder; only for partitions whose fix needs evidence.
        own_metadata: this broker's metadata logs, beside the partitions and in the folder that ``--config`` names.
        readable_by: releases that can read this broker's log directories; empty if undetermined.
    """

    view: LogDir
    settings: Settings
    options: Options
    engine: Engine
    scratch: Scratch
    beside_broker: bool = False
    analyses: dict[str, PartitionAnalysis] = field(default_factory=dict)
    root: AnalysisResults = field(default_factory=AnalysisResults)
    cluster: ClusterView | None = None
    own_metadata: tuple[ClusterView, ...] = ()
    other_brokers: Mapping[int, tuple[LogDir, ...]] = field(default_factory=dict)
    own_dirs: OtherDirs = field(default_factory=OtherDirs)
    evidence: dict[str, Evidence] = field(default_factory=dict)
    readable_by: tuple[VersionNumber, ...] = ()

    def analysis(self, partition: Partition) -> PartitionAnalysis:
        """Return the analysis of a partition, the same object for every caller."""
        known = self.analyses.get(partition.folder)
        if known is None:
            known = PartitionAnalysis(
                partition,
                self.settings.topic(partition.topic, begins_elsewhere=self._begins_elsewhere(partition)),
                high_watermark=watermark_of(self.view, partition),
                log_start=self.view.log_start.offsets.get(partition.key, 0),
            )
            self.analyses[partition.folder] = known
        return known

    def _begins_elsewhere(self, partition: Partition) -> bool:
        """Return whether the log start lies before the first segment, on a broker that may have remote storage."""
        start = self.view.log_start.offsets.get(partition.key, -1)
        if not partition.segments or not 0 <= start < partition.segments[0].base_offset:
            return False
        return self.version is None or self.version >= TIERED_SINCE

    def analyze_all(self, partitions: Iterable[Partition]) -> list[PartitionAnalysis]:
        """Return one analysis per partition."""
        return [self.analysis(partition) for partition in partitions]

    @cached_property
    def _volume(self) -> VolumeSpace:
        return read_space(self.view.path)

    @property
    def block_bytes(self) -> int:
        """Block size in bytes of the log directory's file system."""
        return self._volume.block_bytes

    @property
    def links_are_files(self) -> bool:
        """True if a second link to a file takes up another file on the log directory's file system."""
        return self._volume.links_are_files

    @property
    def broker_id(self) -> int:
        """Id of this broker, -1 if unknown."""
        return id_of(self.view)

    @property
    def brokers(self) -> dict[int, tuple[LogDir, ...]]:
        """Log directories that were read, by broker id, including this broker's."""
        return {**self.other_brokers, self.broker_id: (self.view, *self.own_dirs.views)}

    @property
    def version(self) -> Version:
        """Version of the broker that will start: as given, else the oldest possible version, else None."""
        return next_version(self.view, self.options)


def id_of(view: LogDir) -> int:
    """Return the id of a log directory's broker, -1 if unknown."""
    text = view.broker_id
    return int(text) if text.isascii() and text.isdigit() else -1


def place_of(view: LogDir, partition: Partition) -> Place:
    """Return the location of a partition's files, for work items."""
    return place_in(view, partition.folder)


def log_of(view: LogDir, partition: Partition) -> LogsItem:
    """Return the whole log of a partition as a work item."""
    return LogsItem(place=place_of(view, partition), segments=partition.log_sizes)


def place_in(view: LogDir, folder: str) -> Place:
    """Return the location of a partition folder's files, for work items; the folder need not exist."""
    return Place(host=view.host, log_dir=view.path, log_dir_inode=view.inode, folder=folder)


def log_start_left(context: Context, key: tuple[str, int], log_end: int) -> int:
    """Return the recorded log start offset of a partition; 0 without an entry, or if ``--fix checkpoints`` drops it.

    Args:
        log_end: log end offset of the partition, -1 if unknown; a log start offset past the log end is dropped.
    """
    recorded = context.view.log_start.offsets.get(key, 0)
    return 0 if 0 <= log_end < recorded and "checkpoints" in context.options.fixes else recorded


def watermark_of(view: LogDir, partition: Partition) -> int:
    """Return the high watermark recorded for a partition, -1 without an entry."""
    return view.high_watermark.offsets.get(partition.key, -1)


def next_version(view: LogDir, options: Options) -> Version:
    """Return the version of the broker that will start: as given, else the oldest possible version, else None."""
    return version_of(options.broker_version or oldest_writer_version(view))


def oldest_writer_version(view: LogDir) -> str:
    """Return the oldest version that can have written the directory (KIP-858: ``directory.id``), or empty."""
    return DIRECTORY_ID_SINCE if view.directory_id else ""
