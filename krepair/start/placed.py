"""Partitions that the metadata log places on this node, and that have no folder here (KR611).

A start makes such a partition new, and empty. Seen on 3.9.2: one of two directories was replaced by an empty, formatted
one; 200 records of its partitions were gone without an error. Source: ``LogManager.getOrCreateLog``,
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

Key = tuple[str, int]


class Missing(NamedTuple):
    """A partition that this node holds, and whose folder is in none of the directories that were given.

    Attributes:
        key: topic and number.
        state: how the cluster sees it.
        node: id of this node.
        directory: id of the directory in which it belongs; empty where it is not known.
        place: path of the directory of that id, else of one in which the broker may make it.
    """

    key: Key
    state: Assignment
    node: int
    directory: str
    place: str

    @property
    def folder(self) -> str:
        """Return the name of its folder."""
        return partition_folder(*self.key)


def missing_partitions(
    views: Sequence[LogDir], image: MetadataImage | None, node_id: str, given: int, config: str | None
) -> tuple[Missing, ...]:
    """Return the partitions of this node that have no folder in any of its directories.

    Args:
        views: the log directories that were given and can be read.
        image: the state of the cluster; None if it is not known.
        node_id: id of the node, empty if it is not known.
        given: how many directories were given, with those that are not formatted.
        config: path of the broker's configuration, None if it was not given.
    """
    if image is None or not node_id.isdecimal() or not views:
        return ()
    node = int(node_id)
    known = {view.directory_id: view.path for view in views if view.directory_id}
    registered = set(image.brokers.get(node, ())) - RESERVED_DIRECTORY_IDS
    # Of a directory that was not given nothing is missing; it may lie on another disk, and be whole.
    all_given = given >= max(len(registered), len(configured_log_dirs(config)), 1)
    here = {one.key for view in views for one in view.partitions}
    moving = {one.key: view.path for view in views for one in view.marked if one.role == "future"}
    found = []
    for (topic_id, number), state in sorted(image.partitions.items()):
        key = (image.topics[topic_id], number)
        if node not in state.replicas or key in here or key in moving or key[0] == METADATA_TOPIC:
            continue
        named = dict(zip(state.replicas, state.directories, strict=False)).get(node, "")
        directory = "" if named in RESERVED_DIRECTORY_IDS else named
        if directory in known or all_given:
            place = known.get(directory, views[0].path)
            found.append(Missing(key, state, node, directory, place))
    return tuple(sorted(found, key=lambda one: one.key))


def missing_findings(view: LogDir, missing: Sequence[Missing]) -> Iterator[Finding]:
    """Yield KR611 of the partitions that belong in a log directory, or of which that is not known."""
    for one in missing:
        if one.place == view.path:
            yield Finding(
                rule="KR611",
                partition=one.folder,
                evidence=f"{_where(view, one)}; this start makes it new, and empty; {_others(one)}",
                severity=None if _may_lose(one) else Severity.CONFUSING,
            )


def _where(view: LogDir, one: Missing) -> str:
    if not one.directory:
        return "the metadata log places it on this node, and its folder is in no log directory"
    if one.directory == view.directory_id:
        return "the metadata log places it in this log directory, and its folder is not here"
    return (
        f"the metadata log places it in the log directory with directory.id={one.directory}, which was not given or "
        "was replaced, and its folder is in no other"
    )


def _may_lose(one: Missing) -> bool:
    """Whether records are lost: this replica is in sync, or nobody is."""
    return one.node in one.state.isr or not one.state.isr


def _others(one: Missing) -> str:
    """Return what is known of the other replicas."""
    others = [broker for broker in one.state.isr if broker != one.node]
    if others:
        named = names_text([str(broker) for broker in others])
        return f"in sync besides it, as of the end of this log: broker {named}; it loses data if none of them still is"
    replicas = [str(broker) for broker in one.state.replicas if broker != one.node]
    if not replicas:
        return "it has no other replica: its data is lost unless the folder comes back"
    named = names_text(replicas)
    return (
        f"no other replica is in sync (broker {named} neither): its data is lost unless the folder comes back"
    )
