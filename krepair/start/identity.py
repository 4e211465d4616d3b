"""Whose files these are: ``meta.properties`` and each ``partition.metadata``. Reported, never rewritten."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from krepair.checks.catalogue import Finding, Severity, StartEffect, strongest
from krepair.formats import partition_metadata
from krepair.formats.damage import Damage
from krepair.formats.filenames import META_PROPERTIES, METADATA_TOPIC, PARTITION_METADATA
from krepair.formats.partition_metadata import PartitionMetadata, topic_id_text
from krepair.logdir.metadata_log import MetadataImage
from krepair.logdir.reading import read_whole, why
from krepair.logdir.values import LogDir, Partition
from krepair.start.node import KRAFT_SINCE, StartingNode

METADATA_SINCE: Final = (2, 8, 0)
DIRECTORY_IDS_SINCE: Final = (3, 7, 0)
ENDS_WITHOUT_ID_SINCE: Final = (3, 7, 0)
STRAY_WITHOUT_ID_SINCE: Final = (3, 7, 1)
"""KAFKA-16814; 3.7.0 throws instead."""

Metadata = Mapping[str, PartitionMetadata | Damage]
"""Partition folder -> what its file says; folders without the file are not in it."""


def read_metadata(view: LogDir) -> dict[str, PartitionMetadata | Damage]:
    """Read the ``partition.metadata`` of every partition that has one; a file that cannot be read is damage."""
    found: dict[str, PartitionMetadata | Damage] = {}
    for partition in view.partitions:
        file = partition.partition_metadata
        if file is None:
            continue
        try:
            found[partition.folder] = partition_metadata.decode(
                read_whole(file.path, partition_metadata.MAX_BYTES + 1)
            )
        except OSError as error:
            found[partition.folder] = Damage(0, file.size, "a file that can be read", why(error))
    return found


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
        metadata: as ``read_metadata`` gives it.
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
        elif partition.folder in aside:
            text, effect = f"{aside[partition.folder]}; {_ASIDE}", StartEffect.ASIDE
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
    if partition.unreadable or partition.topic == METADATA_TOPIC:
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


def _of_meta(text: str, effect: StartEffect, position: int = -1, command: str = "") -> Finding:
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
        command=f"sed -i '/^directory.id=/d' {shlex.quote(path)}",
    )


def known_topic_id(image: MetadataImage | None, topic: str) -> str:
    """The id of a topic as the metadata log has it, or empty."""
    names = {} if image is None else image.topics
    return next((topic_id for topic_id, name in names.items() if name == topic), "")
