"""Findings on the identity of a log directory: ``meta.properties``, and ``partition.metadata`` of each partition."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from krepair.checks.catalogue import Finding, Severity, StartEffect, of_version, strongest
from krepair.fixes.context import oldest_writer_version
from krepair.formats.broker_version import LATEST_TRIED, VersionNumber, version_of
from krepair.formats.damage import Damage, UnknownVersion
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
"""Broker versions whose starts were observed; without ``--broker-version`` the forecast covers each of them."""

_VOTER: Final = re.compile(r"(\d+)@.*")


class StartingNode(NamedTuple):
    """Node whose log directories were given.

    Attributes:
        versions: versions that may start; a single one if ``--broker-version`` was typed.
        kraft: True if the node runs without ZooKeeper; None if unknown, as for ZooKeeper's files under a 4.x broker.
        controller: True if the node is a controller; None if unknown.
        alone: True if the node is the only voter, by its metadata log, else by its configured static voters.
        configured_id: node id in the configuration, or empty.
        node_id: node id in the configuration, else in ``meta.properties``, else empty.
        metadata_dir: path of the given directory where the metadata log belongs; empty if that directory was not given
            or no configuration was.
        static_voters: ids in ``controller.quorum.voters``, ascending; empty if the configuration has none.
        bootstraps_only: True if the configuration has ``controller.quorum.bootstrap.servers`` but no static voters.
        under_zookeeper: True if the configuration is of a broker of ZooKeeper that does not migrate.
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
    under_zookeeper: bool = False


def node_of(
    views: Sequence[LogDir],
    options: Options,
    voters: Sequence[int] = (),
    readable_by: Sequence[VersionNumber] = (),
) -> StartingNode:
    """Return everything known about the node that starts.

    Args:
        views: the log directories that were given.
        options: options with the configuration and the version, where they were typed.
        voters: ids of the voting controllers according to the metadata log; empty if unknown.
        readable_by: releases that can read the directories; empty if none is known.

    Raises:
        UsageError: the configuration cannot be read.
    """
    config = options.config
    lines = {} if config is None else read_server_properties(config)
    values = {key: line.value for key, line in lines.items()}
    roles = {role.strip() for role in values.get("process.roles", "").split(",")} - {""}
    static = [
        _VOTER.fullmatch(voter.strip()) for voter in values.get("controller.quorum.voters", "").split(",")
    ]
    voting = list(map(str, voters)) or [voter[1] for voter in static if voter]
    configured = configured_id(config)
    node_id = configured or next((view.broker_id for view in views if view.broker_id), "")
    return StartingNode(
        versions=_versions(views, options, readable_by),
        kraft=_is_kraft(
            views, bool(roles), "zookeeper.connect" in values, version_of(options.broker_version)
        ),
        controller=("controller" in roles) if roles else None,
        alone="controller" in roles and voting == [node_id],
        configured_id=configured,
        node_id=node_id,
        metadata_dir=_metadata_dir(views, config, values.get("metadata.log.dir", "")),
        static_voters=tuple(sorted(int(voter[1]) for voter in static if voter)),
        bootstraps_only=bool(
            values.get("controller.quorum.bootstrap.servers", "").strip() and not any(static)
        ),
        under_zookeeper="zookeeper.connect" in values
        and not roles
        and values.get("zookeeper.metadata.migration.enable", "").strip().lower() != "true",
    )


def metadata_log_of(view: LogDir) -> Partition | None:
    """Return the folder of the metadata log, or None if the directory has none."""
    return next((partition for partition in view.partitions if partition.topic == METADATA_TOPIC), None)


def _versions(
    views: Sequence[LogDir], options: Options, readable_by: Sequence[VersionNumber]
) -> tuple[VersionNumber, ...]:
    typed = version_of(options.broker_version)
    if typed is not None:
        return (typed,)
    oldest = max((version_of(oldest_writer_version(view)) or (0, 0, 0) for view in views), default=(0, 0, 0))
    later = tuple(version for version in PROVEN_VERSIONS if version >= oldest)
    known = tuple(version for version in later if (*version[:2], 0) in readable_by)
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
    """Return the path of the given directory where the configuration puts the metadata log, or an empty text.

    If none of the configured directories exists on this host, and the same number of directories was given, krepair
    treats the given directories as copies in the configured order.
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
"""Partition folder -> contents of its ``partition.metadata``; folders without the file have no entry."""


def metadata_of(view: LogDir) -> dict[str, PartitionMetadata | Damage]:
    """Read every ``partition.metadata``, also in marked folders, because a broker loads these folders too."""
    by_folder = {partition.folder: read_metadata(partition) for partition in (*view.partitions, *view.marked)}
    return {folder: metadata for folder, metadata in by_folder.items() if metadata is not None}


def metadata_findings(
    view: LogDir,
    metadata: Metadata,
    node: StartingNode,
    image: MetadataImage | None,
    aside: Mapping[str, str],
) -> Iterator[Finding]:
    """Yield each ``partition.metadata`` that is missing under KRaft, unreadable, or has a wrong topic id (KR408).

    Args:
        metadata: state that ``metadata_of`` returned.
        node: the node that starts.
        image: cluster state in the node's metadata log, None if not known.
        aside: folder -> reason why the start puts the folder aside, see ``krepair.start.metadata_log.strays``.
    """
    ids: dict[str, Counter[str]] = {}
    for partition in view.partitions:
        content = metadata.get(partition.folder)
        if isinstance(content, PartitionMetadata):
            ids.setdefault(partition.topic, Counter())[topic_id_text(content.topic_id)] += 1
    for partition in view.partitions:
        content = metadata.get(partition.folder)
        sisters = ids.get(partition.topic, Counter())
        text, effect, position = "", StartEffect.NONE, -1
        if isinstance(content, Damage):
            text, position = (
                f"expected {content.expected}, found {content.found or 'nothing'}",
                content.position,
            )
            effect = _damage_effect(partition, node)
        elif content is None:
            text, effect = _missing(
                partition, node, bool(metadata), sisters, known_topic_id(image, partition.topic)
            )
        elif partition.key == (METADATA_TOPIC, 0) and content.topic_id != METADATA_TOPIC_ID:
            text = (
                f"topic id {topic_id_text(content.topic_id)}; it always is {topic_id_text(METADATA_TOPIC_ID)}"
            )
            effect = StartEffect.ENDS
        elif partition.folder in aside:
            consequence = (
                _DELETED if all(version < KEEPS_STRAYS_SINCE for version in node.versions) else _ASIDE
            )
            text, effect = f"{aside[partition.folder]}; {consequence}", StartEffect.ASIDE
        elif len(sisters) > 1:
            counts = ", ".join(f"{name} ({count})" for name, count in sorted(sisters.items()))
            text = f"topic id {topic_id_text(content.topic_id)}; the partitions of {partition.topic} here say {counts}"
        if text:
            yield Finding(
                rule="KR408",
                partition=partition.folder,
                file=PARTITION_METADATA,
                position=position,
                evidence=text,
                severity=None
                if effect is not StartEffect.NONE or isinstance(content, Damage)
                else Severity.CONFUSING,
                start=effect,
            )


KEEPS_STRAYS_SINCE: Final = (3, 7, 0)
"""Fix version of KAFKA-14616 and KAFKA-16082: earlier KRaft brokers delete a folder that their metadata do not know.

Seen on 3.3.2 and 3.6.2.
"""
_DELETED: Final = "a broker of 3.3 to 3.6 deletes the folder and begins an empty one in its place"
_ASIDE: Final = "the broker renames the folder to -stray and begins an empty one in its place"


def _damage_effect(partition: Partition, node: StartingNode) -> StartEffect:
    """Return the effect of a damaged file: an empty one ends the broker, others take the log directory offline."""
    if not any(version >= METADATA_SINCE for version in node.versions):
        return StartEffect.NONE
    file = partition.partition_metadata
    return StartEffect.ENDS if file is not None and not file.size else StartEffect.DIRECTORY


def _missing(
    partition: Partition, node: StartingNode, others: bool, sisters: Counter[str], known: str
) -> tuple[str, StartEffect]:
    """Return text and effect of a missing file: none under ZooKeeper, which rewrites it; by version under KRaft."""
    odd = any(version.name == PARTITION_METADATA for version in partition.specials)
    if odd or partition.unreadable or partition.topic == METADATA_TOPIC:
        return "", StartEffect.NONE
    if node.kraft is not True:
        text = "missing, but other partitions here have one: harmless under ZooKeeper; KRaft puts the folder aside"
        return (text if others else ""), StartEffect.NONE
    kraft = [version for version in node.versions if version >= KRAFT_SINCE]
    effects = [
        StartEffect.ASIDE
        if version >= STRAY_WITHOUT_ID_SINCE
        else StartEffect.ENDS
        if version >= ENDS_WITHOUT_ID_SINCE
        else StartEffect.NONE
        for version in kraft
    ]
    only = next(iter(sisters)) if len(sisters) == 1 else ""
    topic_id = known or only
    lines = f"; write two lines into it: version: 0, then topic_id: {topic_id}" if topic_id else ""
    text = f"missing: from 3.7.1 on {_ASIDE} (KAFKA-16814); 3.7.0 does not start{lines}"
    return text, strongest(effects)


def meta_findings(
    view: LogDir, others: Sequence[LogDir], metadata: Metadata, node: StartingNode
) -> Iterator[Finding]:
    """Yield faults of ``meta.properties``: missing, malformed, or of another broker or cluster (KR407).

    Args:
        others: the other log directories that were given.
        metadata: contents of each ``partition.metadata`` of the directory.
        node: the node that starts, with the configured id.
    """
    if view.meta_damage:
        first = view.meta_damage[0]
        finding = _of_meta(first.text, StartEffect.DIRECTORY, first.position)
        yield of_version(finding, unknown=isinstance(first, UnknownVersion))
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
    if node.under_zookeeper and view.meta_version == 1:
        # ``MetaPropertiesEnsemble.verify`` (3.9.0), ``BrokerMetadataCheckpoint`` (3.6.0)
        text = "version=1, of KRaft, and the configuration is of ZooKeeper: a broker that does not migrate reads 0 only"
        yield _of_meta(f"{text}, and does not start", StartEffect.ENDS)
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
    """Return the finding for two directories with one directory.id.

    The command deletes the line, because the broker then writes a new id (tried on 4.3.1).
    """
    copy = min((view, other), key=lambda directory: (len(directory.partitions), directory is view))
    path = f"{copy.path}/{META_PROPERTIES}"
    ends = any(directory >= DIRECTORY_IDS_SINCE for directory in node.versions)
    return _of_meta(
        f"directory.id {view.directory_id} here and in {other.path}: one is a copy of the other, and a broker with "
        f"both does not start. Delete the line directory.id in {path}; the broker then writes a new one",
        StartEffect.ENDS if ends else StartEffect.NONE,
        command=Next.by_hand(f"sed -i '/^directory.id=/d' {shlex.quote(path)}"),
    )


def known_topic_id(image: MetadataImage | None, topic: str) -> str:
    """Return the topic id that the metadata log has for a topic, or an empty text."""
    names = {} if image is None else image.topics
    return next((topic_id for topic_id, name in names.items() if name == topic), "")
