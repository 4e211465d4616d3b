"""Partitions that the metadata log assigns to this node although no folder of them is here (KR611).

A start creates such a partition empty. Seen on 3.9.2: after one of two directories was replaced by an empty, formatted
directory, 200 records of its partitions were lost without an error. Source: ``LogManager.getOrCreateLog``,
``BrokerMetadataPublisher``, ``ReplicaManager.getOrCreatePartition`` (3.9.0).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from krepair.checks.catalogue import Finding, Severity
from krepair.formats.filenames import METADATA_TOPIC, partition_folder
from krepair.formats.words import names_text
from krepair.logdir.cluster import RESERVED_DIRECTORY_IDS, Assignment, MetadataImage
from krepair.logdir.config import configured_log_dirs
from krepair.logdir.values import LogDir
from krepair.logdir.view import beside

Key = tuple[str, int]


class Missing(NamedTuple):
    """Partition that is assigned to this node but has no folder in any given directory.

    Attributes:
        key: topic and partition number.
        state: assignment of the partition in the metadata log.
        node: id of this node.
        directory: id of the directory where the partition belongs, empty if not known.
        place: path of the directory with that id, else of a directory where the broker may create the partition.
    """

    key: Key
    state: Assignment
    node: int
    directory: str
    place: str

    @property
    def folder(self) -> str:
        """Name of the partition folder."""
        return partition_folder(*self.key)


def missing_partitions(
    views: Sequence[LogDir], image: MetadataImage | None, node_id: str, given_count: int, config: str | None
) -> tuple[Missing, ...]:
    """Return the partitions of this node that have no folder in any of its directories.

    Args:
        views: the log directories that were given and can be read.
        image: cluster state in the metadata log, None if not known.
        node_id: id of the node, empty if not known.
        given_count: number of directories that were given, including unformatted ones.
        config: path of the broker's configuration, None if it was not given.
    """
    if image is None or not node_id.isdecimal() or not views:
        return ()
    node = int(node_id)
    known = {view.directory_id: view.path for view in views if view.directory_id}
    registered = set(image.brokers.get(node, ())) - RESERVED_DIRECTORY_IDS
    # A directory that was not given may lie intact on another disk: its partitions are not reported as missing.
    all_given = given_count >= max(len(registered), len(configured_log_dirs(config)), 1)
    here = {partition.key for view in views for partition in view.partitions}
    moving = {
        partition.key: view.path for view in views for partition in view.marked if partition.role == "future"
    }
    missing = []
    for (topic_id, number), state in sorted(image.partitions.items()):
        key = (image.topics[topic_id], number)
        if node not in state.replicas or key in here or key in moving or key[0] == METADATA_TOPIC:
            continue
        assigned = dict(zip(state.replicas, state.directories, strict=False)).get(node, "")
        directory = "" if assigned in RESERVED_DIRECTORY_IDS else assigned
        if directory in known or all_given:
            place = known.get(directory, views[0].path)
            missing.append(Missing(key, state, node, directory, place))
    return tuple(sorted(missing, key=lambda partition: partition.key))


def missing_findings(view: LogDir, missing: Sequence[Missing]) -> Iterator[Finding]:
    """Yield the missing partitions that belong in a log directory, or may be created in it (KR611)."""
    for partition in missing:
        if partition.place == view.path:
            where = f"{_where(view, partition)}; this start makes it new, and empty"
            yield Finding(
                rule="KR611",
                partition=partition.folder,
                evidence=f"{where}{beside(view, partition.key)}; {_others(partition)}",
                severity=None if _may_lose(partition) else Severity.CONFUSING,
            )


def _where(view: LogDir, partition: Missing) -> str:
    if not partition.directory:
        return "the metadata log places it on this node, and its folder is in no log directory"
    if partition.directory == view.directory_id:
        return "the metadata log places it in this log directory, and its folder is not here"
    return (
        f"the metadata log places it in the log directory with directory.id={partition.directory}, which was not "
        "given or was replaced, and its folder is in no other"
    )


def _may_lose(partition: Missing) -> bool:
    """Return True if records may be lost: this replica is in sync, or no replica is."""
    return partition.node in partition.state.isr or not partition.state.isr


def _others(partition: Missing) -> str:
    """Describe the state of the other replicas."""
    in_sync = [broker for broker in partition.state.isr if broker != partition.node]
    if in_sync:
        brokers = names_text([str(broker) for broker in in_sync])
        return (
            f"in sync besides it, as of the end of this log: broker {brokers}; "
            "it loses data if none of them still is"
        )
    replicas = [str(broker) for broker in partition.state.replicas if broker != partition.node]
    if not replicas:
        return "it has no other replica: its data is lost unless the folder comes back"
    brokers = names_text(replicas)
    return f"no other replica is in sync (broker {brokers} neither): its data is lost unless the folder comes back"
