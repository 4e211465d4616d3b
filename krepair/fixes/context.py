"""What every look stands on: one log directory, the settings and options, and the engine that runs the jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from krepair.durable.scratch import Scratch
from krepair.engine.engine import Engine
from krepair.engine.items import Place
from krepair.fixes.survey import Sights, Survey
from krepair.formats.broker_version import Version, VersionNumber, version_of
from krepair.logdir.cluster import ClusterView
from krepair.logdir.config import Settings
from krepair.logdir.space import VolumeSpace, read_space
from krepair.logdir.values import LogDir, Partition
from krepair.options import Options
from krepair.rules.evidence import Evidence

DIRECTORY_ID_SINCE: Final = "3.7.0"
TIERED_SINCE: Final = (3, 6, 0)
"""KIP-405."""


@dataclass(frozen=True)
class OtherDirs:
    """The log directories of a broker beside the one at hand.

    Attributes:
        views: those that were read.
        unknown: why it is not known which there are, or empty.
        unsaid: whether nobody has said anything of them.
        unread: why one that was named could not be read as one of this broker's, or empty.
    """

    views: tuple[LogDir, ...] = ()
    unknown: str = ""
    unsaid: bool = False
    unread: str = ""


@dataclass(eq=False)
class Context:
    """One log directory while it is looked at.

    Attributes:
        view: the log directory as listed.
        settings: of the broker and its topics.
        options: as typed.
        engine: runs jobs.
        scratch: for what does not fit into memory.
        beside_broker: whether a broker may be running: then active segments are read as far as they are written.
        surveys: folder -> survey, of every partition that any look came to.
        root: what was seen in the root.
        cluster: what ``--cluster`` names, None if nothing.
        sides: broker -> its log directories, of the other brokers that ``--replicas`` names.
        own_dirs: this broker's other log directories, by ``--replicas`` or ``--config``.
        evidence: folder -> what is known of the other replicas, once it was asked for.
        own_metadata: the metadata logs of this broker: beside the partitions, and where ``--config`` puts them.
        readable_by: releases that can read the log directories of this broker; empty where that was not worked out.
    """

    view: LogDir
    settings: Settings
    options: Options
    engine: Engine
    scratch: Scratch
    beside_broker: bool = False
    surveys: dict[str, Survey] = field(default_factory=dict)
    root: Sights = field(default_factory=Sights)
    cluster: ClusterView | None = None
    own_metadata: tuple[ClusterView, ...] = ()
    sides: Mapping[int, tuple[LogDir, ...]] = field(default_factory=dict)
    own_dirs: OtherDirs = field(default_factory=OtherDirs)
    evidence: dict[str, Evidence] = field(default_factory=dict)
    readable_by: tuple[VersionNumber, ...] = ()

    def survey(self, partition: Partition) -> Survey:
        """The survey of a partition. Every caller gets the same one."""
        known = self.surveys.get(partition.folder)
        if known is None:
            known = Survey(
                partition,
                self.settings.topic(partition.topic, begins_elsewhere=self._begins_elsewhere(partition)),
                high_watermark=watermark_of(self.view, partition),
                log_start=self.view.log_start.offsets.get(partition.key, 0),
            )
            self.surveys[partition.folder] = known
        return known

    def _begins_elsewhere(self, partition: Partition) -> bool:
        """Whether a log start is recorded before its first segment, and the broker may have remote storage."""
        start = self.view.log_start.offsets.get(partition.key, -1)
        if not partition.segments or not 0 <= start < partition.segments[0].base_offset:
            return False
        return self.version is None or self.version >= TIERED_SINCE

    def survey_all(self, partitions: Iterable[Partition]) -> list[Survey]:
        """One survey per partition."""
        return [self.survey(partition) for partition in partitions]

    @cached_property
    def _volume(self) -> VolumeSpace:
        return read_space(self.view.path)

    @property
    def block_bytes(self) -> int:
        """Bytes of a block of the file system that holds the log directory."""
        return self._volume.block_bytes

    @property
    def links_are_files(self) -> bool:
        """Whether a second name of a file counts as a file there."""
        return self._volume.links_are_files

    @property
    def broker_id(self) -> int:
        """Of this broker, -1 if that is not known."""
        return id_of(self.view)

    @property
    def brokers(self) -> dict[int, tuple[LogDir, ...]]:
        """Broker -> its log directories that were read; this one's, too."""
        return {**self.sides, self.broker_id: (self.view, *self.own_dirs.views)}

    @property
    def version(self) -> Version:
        """Version of the broker that is to start: as given, else the oldest that the directory tells of, else None."""
        return next_version(self.view, self.options)


def id_of(view: LogDir) -> int:
    """Of the broker of a log directory, -1 if that is not known."""
    text = view.broker_id
    return int(text) if text.isascii() and text.isdigit() else -1


def place_of(view: LogDir, partition: Partition) -> Place:
    """Where a partition's files are, as work items name it."""
    return place_in(view, partition.folder)


def place_in(view: LogDir, folder: str) -> Place:
    """The same of a folder, which may be gone."""
    return Place(host=view.host, log_dir=view.path, log_dir_inode=view.inode, folder=folder)


def watermark_of(view: LogDir, partition: Partition) -> int:
    """The high watermark that is recorded for a partition, -1 if none is."""
    return view.high_watermark.offsets.get(partition.key, -1)


def next_version(view: LogDir, options: Options) -> Version:
    """Version of the broker that is to start: as given, else the oldest that the directory tells of, else None."""
    return version_of(options.broker_version or told_version(view))


def told_version(view: LogDir) -> str:
    """The oldest version whose broker made the directory, where it tells; else empty (KIP-858: ``directory.id``)."""
    return DIRECTORY_ID_SINCE if view.directory_id else ""
