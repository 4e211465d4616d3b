"""What every look stands on: one log directory, the settings and options, and the engine that runs the jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from krepair.durable.scratch import Scratch
from krepair.fixes.survey import Sights, Survey
from krepair.formats.arrays import Int64s
from krepair.formats.broker_version import Version, version_of
from krepair.logdir.cluster import ClusterView
from krepair.logdir.config import Settings
from krepair.logdir.values import LogDir, Partition
from krepair.options import Options
from krepair.pipeline.engines.engine import Engine
from krepair.pipeline.items import Place
from krepair.rules.evidence import Evidence
from krepair.rules.replicas.epochs import History

DIRECTORY_ID_SINCE: Final = "3.7.0"


@dataclass(frozen=True, eq=False)
class HeldBack:
    """What other replicas hold back.

    Attributes:
        others: see ``krepair.fixes.other_logs.OtherReplicas``.
        markers: int64[H], ascending offsets of markers that stay.
        histories: the leader epochs of those that told them.
    """

    others: Any
    markers: Int64s
    histories: tuple[History, ...] = ()


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
        sides: broker -> its log directories, of ``--replicas``; of this broker those beside ``view``.
        facts: broker -> its facts, of ``--replicas``; see ``krepair.fixes.other_facts.FactsSide``.
        not_read: why it is not known what other log directories of this broker hold, or empty.
        beside: this broker's other log directories, where ``--replicas`` names none and ``--config`` does.
        not_read_beside: why one of these was not read, or empty.
        own_unsaid: whether replicas were named, and nobody has said anything of this broker's other log directories.
        evidence: folder -> what is known of the other replicas, once it was asked for.
        others: folder -> what other replicas hold back, where their logs were read.
        own_metadata: the metadata log beside the partitions, None if there is none that can be read.
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
    own_metadata: ClusterView | None = None
    sides: Mapping[int, tuple[LogDir, ...]] = field(default_factory=dict)
    facts: Mapping[int, Any] = field(default_factory=dict)
    not_read: str = ""
    beside: tuple[LogDir, ...] = ()
    not_read_beside: str = ""
    own_unsaid: bool = False
    evidence: dict[str, Evidence] = field(default_factory=dict)
    others: dict[str, HeldBack] = field(default_factory=dict)

    def survey(self, partition: Partition) -> Survey:
        """The survey of a partition. Every caller gets the same one."""
        known = self.surveys.get(partition.folder)
        if known is None:
            known = Survey(
                partition,
                self.settings.topic(partition.topic),
                high_watermark=watermark_of(self.view, partition),
            )
            self.surveys[partition.folder] = known
        return known

    def survey_all(self, partitions: Iterable[Partition]) -> list[Survey]:
        """One survey per partition."""
        return [self.survey(partition) for partition in partitions]

    @property
    def version(self) -> Version:
        """Version of the broker that is to start: as given, else the oldest that the directory tells of, else None."""
        return next_version(self.view, self.options)


def place_of(view: LogDir, partition: Partition) -> Place:
    """Where a partition's files are, as work items name it."""
    return place_in(view, partition.folder)


def place_in(view: LogDir, folder: str) -> Place:
    """The same of a folder, which may be gone."""
    return Place(host=view.host, log_dir=view.path, log_dir_inode=view.inode, folder=folder)


def watermark_of(view: LogDir, partition: Partition) -> int:
    """The high watermark that is recorded for a partition, -1 if none is."""
    return view.high_watermark.offsets.get((partition.topic, partition.number), -1)


def recorded(offsets: Mapping[tuple[str, int], int], partition: Partition, missing: int) -> int:
    """A partition's line in a checkpoint."""
    return offsets.get((partition.topic, partition.number), missing)


def next_version(view: LogDir, options: Options) -> Version:
    """Version of the broker that is to start: as given, else the oldest that the directory tells of, else None."""
    return version_of(options.broker_version or told_version(view))


def told_version(view: LogDir) -> str:
    """The oldest version whose broker made the directory, where it tells; else empty (KIP-858: ``directory.id``)."""
    return DIRECTORY_ID_SINCE if view.directory_id else ""
