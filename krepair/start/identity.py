"""Whose files these are: ``meta.properties`` and each ``partition.metadata``. Reported, never rewritten."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from krepair.checks.catalogue import Finding, Severity, StartEffect, strongest
from krepair.fixes.context import told_version
from krepair.formats.broker_version import LATEST_TRIED, VersionNumber, version_of
from krepair.formats.damage import Damage
from krepair.formats.filenames import META_PROPERTIES, METADATA_TOPIC, PARTITION_METADATA
from krepair.formats.partition_metadata import METADATA_TOPIC_ID, PartitionMetadata, topic_id_text
from krepair.logdir.cluster import MetadataImage
from krepair.logdir.config import configured_id, configured_log_dirs, read_server_properties
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import read_metadata
from krepair.next_command import NOTHING, Next
from krepair.options import Options
from krepair.start.folders import STRAY_WITHOUT_ID_SINCE

KRAFT_SINCE: Final = (3, 0, 0)
KRAFT_ONLY_SINCE: Final = (4, 0, 0)
PROVEN_VERSIONS: Final[tuple[VersionNumber, ...]] = ((2, 2, 1), (3, 9, 2), LATEST_TRIED)
"""The brokers whose starts were watched; without ``--broker-version`` the start is foretold for each."""

_VOTER: Final = re.compile(r"(\d+)@.*")


class StartingNode(NamedTuple):
    """The node whose log directories were given.

    Attributes:
        versions: those that may start; one if it was typed.
        kraft: whether it runs without ZooKeeper; None if nothing tells, as of files of ZooKeeper under a broker of 4.x.
        controller: whether it is a controller; None if nothing tells.
        alone: whether only this node votes, by its metadata log, else by the static voters of its configuration.
        configured_id: its id by the configuration; empty if that does not tell.
        node_id: the same, else by ``meta.properties``; empty if neither tells.
        metadata_dir: path of the given directory in which its metadata log belongs; empty if it is not among them, or
            the configuration was not given.
        static_voters: ids in ``controller.quorum.voters``, ascending; empty if the configuration has none.
        bootstraps_only: whether the configuration has ``controller.quorum.bootstrap.servers`` and no static voters.
    """

    versions: tuple[VersionNumber, ...]
    kraft: bool | None
    controller: bool | None
    alone: bool
    configured_id: str
    node_id: str
    metadata_dir: str
    static_voters: tuple[int, ...] = ()
    bootstraps_only: bool = False


def node_of(
    views: Sequence[LogDir],
    options: Options,
    voters: Sequence[int] = (),
    readable_by: Sequence[VersionNumber] = (),
) -> StartingNode:
    """What is known of the node.

    Args:
        views: the log directories that were given.
        options: with the configuration and the version, where they were typed.
        voters: ids of the controllers that vote by its metadata log; empty where that does not say it.
        readable_by: releases that can read the directories; empty where none is known to.

    Raises:
        UsageError: the configuration cannot be read.
    """
    config = options.config
    lines = {} if config is None else read_server_properties(config)
    given = {key: line.value for key, line in lines.items()}
    roles = {role.strip() for role in given.get("process.roles", "").split(",")} - {""}
    static = [_VOTER.fullmatch(one.strip()) for one in given.get("controller.quorum.voters", "").split(",")]
    voting = list(map(str, voters)) or [one[1] for one in static if one]
    configured = configured_id(config)
    node_id = configured or next((view.broker_id for view in views if view.broker_id), "")
    return StartingNode(
        versions=_versions(views, options, readable_by),
        kraft=_is_kraft(views, bool(roles), "zookeeper.connect" in given, version_of(options.broker_version)),
        controller=("controller" in roles) if roles else None,
        alone="controller" in roles and voting == [node_id],
        configured_id=configured,
        node_id=node_id,
        metadata_dir=_metadata_dir(views, config, given.get("metadata.log.dir", "")),
        static_voters=tuple(sorted(int(one[1]) for one in static if one)),
        bootstraps_only=bool(
            given.get("controller.quorum.bootstrap.servers", "").strip() and not any(static)
        ),
    )


def metadata_log_of(view: LogDir) -> Partition | None:
    """The folder of the metadata log, if the directory has one."""
    return next((one for one in view.partitions if one.topic == METADATA_TOPIC), None)


def _versions(
    views: Sequence[LogDir], options: Options, readable_by: Sequence[VersionNumber]
) -> tuple[VersionNumber, ...]:
    typed = version_of(options.broker_version)
    if typed is not None:
        return (typed,)
    oldest = max((version_of(told_version(view)) or (0, 0, 0) for view in views), default=(0, 0, 0))
    later = tuple(one for one in PROVEN_VERSIONS if one >= oldest)
    known = tuple(one for one in later if (*one[:2], 0) in readable_by)
    return known or later


def _is_kraft(
    views: Sequence[LogDir], roles: bool, zookeeper: bool, version: VersionNumber | None
) -> bool | None:
    if roles or any(view.meta_version == 1 or metadata_log_of(view) for view in views):
        return True
    if zookeeper or (version is not None and version < KRAFT_SINCE):
        return False
    if version is not None and version >= KRAFT_ONLY_SINCE:
        return None
    return False if any(view.meta_version == 0 for view in views) else None


def _metadata_dir(views: Sequence[LogDir], config: str | None, typed: str) -> str:
    """The given directory that the configuration means.

    Where none of ``log.dirs`` is on this host, as many directories as it names are taken for copies, in its order.
    """
    configured = configured_log_dirs(config)
    place = typed.strip() or next(iter(configured), "")
    for view in views:
        if place and os.path.realpath(place) == view.path:
            return view.path
    if place in configured and len(views) == len(configured) and not any(map(os.path.exists, configured)):
        return views[configured.index(place)].path
    return ""


METADATA_SINCE: Final = (2, 8, 0)
DIRECTORY_IDS_SINCE: Final = (3, 7, 0)
ENDS_WITHOUT_ID_SINCE: Final = (3, 7, 0)

Metadata = Mapping[str, PartitionMetadata | Damage]
"""Partition folder -> what its file says; folders without the file are not in it."""


def metadata_of(view: LogDir) -> dict[str, PartitionMetadata | Damage]:
    """Read every ``partition.metadata``, of marked folders too: a broker loads them as well."""
    found = {one.folder: read_metadata(one) for one in (*view.partitions, *view.marked)}
    return {folder: metadata for folder, metadata in found.items() if metadata is not None}


def metadata_findings(
    view: LogDir,
    metadata: Metadata,
    node: StartingNode,
    image: MetadataImage | None,
    aside: Mapping[str, str],
) -> Iterator[Finding]:
    """KR408: missing under KRaft, unreadable, or of another topic id than the metadata log or the other partitions.

    Args:
        view: the log directory.
        metadata: as ``metadata_of`` gives it.
        node: which node starts.
        image: what its metadata log says, None if that is not known.
        aside: folder -> why the start puts it aside, see ``krepair.start.metadata_log.strays``.
    """
    ids: dict[str, Counter[str]] = {}
    for partition in view.partitions:
        said = metadata.get(partition.folder)
        if isinstance(said, PartitionMetadata):
            ids.setdefault(partition.topic, Counter())[topic_id_text(said.topic_id)] += 1
    for partition in view.partitions:
        said = metadata.get(partition.folder)
        sisters = ids.get(partition.topic, Counter())
        text, effect, position = "", StartEffect.NONE, -1
        if isinstance(said, Damage):
            text, position = f"expected {said.expected}, found {said.found or 'nothing'}", said.position
            effect = _damage_effect(partition, node)
        elif said is None:
            text, effect = _missing(
                partition, node, bool(metadata), sisters, known_topic_id(image, partition.topic)
            )
        elif partition.key == (METADATA_TOPIC, 0) and said.topic_id != METADATA_TOPIC_ID:
            text = f"topic id {topic_id_text(said.topic_id)}; it always is {topic_id_text(METADATA_TOPIC_ID)}"
            effect = StartEffect.ENDS
        elif partition.folder in aside:
            does = _DELETED if all(one < KEEPS_STRAYS_SINCE for one in node.versions) else _ASIDE
            text, effect = f"{aside[partition.folder]}; {does}", StartEffect.ASIDE
        elif len(sisters) > 1:
            shown = ", ".join(f"{name} ({count})" for name, count in sorted(sisters.items()))
            text = f"topic id {topic_id_text(said.topic_id)}; the partitions of {partition.topic} here say {shown}"
        if text:
            yield Finding(
                rule="KR408",
                partition=partition.folder,
                file=PARTITION_METADATA,
                position=position,
                evidence=text,
                severity=None
                if effect is not StartEffect.NONE or isinstance(said, Damage)
                else Severity.CONFUSING,
                start=effect,
            )


KEEPS_STRAYS_SINCE: Final = (3, 7, 0)
"""KAFKA-14616, KAFKA-16082: before it a broker of KRaft deletes what its metadata do not know; seen on 3.3.2, 3.6.2."""
_DELETED: Final = "a broker of 3.3 to 3.6 deletes the folder and begins an empty one in its place"
_ASIDE: Final = "the broker renames the folder to -stray and begins an empty one in its place"


def _damage_effect(partition: Partition, node: StartingNode) -> StartEffect:
    """An empty file ends the broker; others take the log directory offline."""
    if not any(one >= METADATA_SINCE for one in node.versions):
        return StartEffect.NONE
    file = partition.partition_metadata
    return StartEffect.ENDS if file is not None and not file.size else StartEffect.DIRECTORY


def _missing(
    partition: Partition, node: StartingNode, others: bool, sisters: Counter[str], known: str
) -> tuple[str, StartEffect]:
    """What a missing file means: nothing under ZooKeeper, where a broker writes it anew; under KRaft by version."""
    odd = any(one.name == PARTITION_METADATA for one in partition.specials)
    if odd or partition.unreadable or partition.topic == METADATA_TOPIC:
        return "", StartEffect.NONE
    if node.kraft is not True:
        text = "missing, but other partitions here have one: harmless under ZooKeeper; KRaft puts the folder aside"
        return (text if others else ""), StartEffect.NONE
    kraft = [one for one in node.versions if one >= KRAFT_SINCE]
    effects = [
        StartEffect.ASIDE
        if one >= STRAY_WITHOUT_ID_SINCE
        else StartEffect.ENDS
        if one >= ENDS_WITHOUT_ID_SINCE
        else StartEffect.NONE
        for one in kraft
    ]
    only = next(iter(sisters)) if len(sisters) == 1 else ""
    topic_id = known or only
    lines = f"; write two lines into it: version: 0, then topic_id: {topic_id}" if topic_id else ""
    text = f"missing: from 3.7.1 on {_ASIDE} (KAFKA-16814); 3.7.0 does not start{lines}"
    return text, strongest(effects)


def meta_findings(
    view: LogDir, others: Sequence[LogDir], metadata: Metadata, node: StartingNode
) -> Iterator[Finding]:
    """KR407: missing, malformed, or of another broker or cluster than the configuration or the other log directories.

    Args:
        view: the log directory.
        others: the other ones given.
        metadata: the ``partition.metadata`` of its partitions.
        node: which node starts.
    """
    if view.meta_damage:
        first = view.meta_damage[0]
        text = f"expected {first.expected}, found {first.found}"
        yield _of_meta(text, StartEffect.DIRECTORY, first.position)
        return
    known = [other for other in others if other.meta_properties is not None and not other.meta_damage]
    if view.meta_properties is None:
        if known or metadata:
            where = (
                f"{known[0].path} has one" if known else "a broker of 2.8 or later has used this directory"
            )
            ends = node.kraft is True
            text = f"missing, but {where}"
            yield _of_meta(text, StartEffect.ENDS if ends else StartEffect.NONE)
        return
    if node.configured_id and view.broker_id and view.broker_id != node.configured_id:
        text = f"broker id {view.broker_id} here, {node.configured_id} in the configuration: that broker does not start"
        yield _of_meta(text, StartEffect.ENDS)
    for other in known:
        for word, here, there in (
            ("cluster.id", view.cluster_id, other.cluster_id),
            ("broker id", view.broker_id, other.broker_id),
        ):
            if here and there and here != there:
                text = f"{word} {here} here, {there} in {other.path}: a broker with both does not start"
                yield _of_meta(text, StartEffect.ENDS)
        if view.directory_id and view.directory_id == other.directory_id:
            yield _twin(view, other, node)


def _of_meta(text: str, effect: StartEffect, position: int = -1, command: Next = NOTHING) -> Finding:
    return Finding(
        rule="KR407", file=META_PROPERTIES, position=position, evidence=text, start=effect, command=command
    )


def _twin(view: LogDir, other: LogDir, node: StartingNode) -> Finding:
    """Two directories of one id; without the line the broker makes a new id (tried on 4.3.1)."""
    copy = min((view, other), key=lambda one: (len(one.partitions), one is view))
    path = f"{copy.path}/{META_PROPERTIES}"
    ends = any(one >= DIRECTORY_IDS_SINCE for one in node.versions)
    return _of_meta(
        f"directory.id {view.directory_id} here and in {other.path}: one is a copy of the other, and a broker with "
        f"both does not start. Delete the line directory.id in {path}; the broker then writes a new one",
        StartEffect.ENDS if ends else StartEffect.NONE,
        command=Next.by_hand(f"sed -i '/^directory.id=/d' {shlex.quote(path)}"),
    )


def known_topic_id(image: MetadataImage | None, topic: str) -> str:
    """The id of a topic as the metadata log has it, or empty."""
    names = {} if image is None else image.topics
    return next((topic_id for topic_id, name in names.items() if name == topic), "")
