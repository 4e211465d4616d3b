"""Whose files these are: ``meta.properties`` and each ``partition.metadata``. Reported, never rewritten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from krepair.checks.catalogue import Finding
from krepair.formats import partition_metadata
from krepair.formats.damage import Damage
from krepair.formats.filenames import META_PROPERTIES, PARTITION_METADATA
from krepair.formats.partition_metadata import PartitionMetadata, topic_id_text
from krepair.formats.words import count_text
from krepair.logdir.reading import read_whole, why
from krepair.logdir.values import LogDir

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


def metadata_findings(view: LogDir, metadata: Metadata) -> Iterator[Finding]:
    """KR408: missing beside others, unreadable, or of another topic id than the topic's other partitions."""
    ids: dict[str, Counter[str]] = {}
    for partition in view.partitions:
        said = metadata.get(partition.folder)
        if isinstance(said, PartitionMetadata):
            ids.setdefault(partition.topic, Counter())[topic_id_text(said.topic_id)] += 1
    for partition in view.partitions:
        said = metadata.get(partition.folder)
        text = ""
        position = -1
        if isinstance(said, Damage):
            text, position = f"expected {said.expected}, found {said.found or 'nothing'}", said.position
        elif said is None and metadata and not partition.unreadable:
            others = count_text(len(metadata), "other partition")
            text = f"missing, but there is one in {others} here: a KRaft broker takes it for stray"
        elif said is not None and len(ids[partition.topic]) > 1:
            shown = ", ".join(f"{name} ({count})" for name, count in sorted(ids[partition.topic].items()))
            text = f"topic id {topic_id_text(said.topic_id)}; the partitions of {partition.topic} here say {shown}"
        if text:
            yield Finding(
                rule="KR408",
                partition=partition.folder,
                file=PARTITION_METADATA,
                position=position,
                evidence=text,
            )


def meta_findings(
    view: LogDir, others: Sequence[LogDir], metadata: Metadata, configured: str = ""
) -> Iterator[Finding]:
    """KR407: missing, malformed, or of another broker or cluster than the configuration or the other log directories.

    Args:
        view: the log directory.
        others: the other ones given.
        metadata: the ``partition.metadata`` of its partitions.
        configured: the broker's id by its configuration, empty if that is not known.
    """
    if view.meta_damage:
        first = view.meta_damage[0]
        text = f"expected {first.expected}, found {first.found}"
        yield Finding(rule="KR407", file=META_PROPERTIES, position=first.position, evidence=text)
        return
    known = [other for other in others if other.meta_properties is not None and not other.meta_damage]
    if view.meta_properties is None:
        if known or metadata:
            where = (
                f"{known[0].path} has one" if known else "a broker of 2.8 or later has used this directory"
            )
            yield Finding(rule="KR407", file=META_PROPERTIES, evidence=f"missing, but {where}")
        return
    if configured and view.broker_id and view.broker_id != configured:
        text = (
            f"broker id {view.broker_id} here, {configured} in the configuration: that broker does not start"
        )
        yield Finding(rule="KR407", file=META_PROPERTIES, evidence=text)
    for other in known:
        for word, here, there in (
            ("cluster.id", view.cluster_id, other.cluster_id),
            ("broker id", view.broker_id, other.broker_id),
        ):
            if here and there and here != there:
                text = f"{word} {here} here, {there} in {other.path}"
                yield Finding(rule="KR407", file=META_PROPERTIES, evidence=text)
        if view.directory_id and view.directory_id == other.directory_id:
            text = f"directory.id {view.directory_id} here and in {other.path}: one is a copy of the other"
            yield Finding(rule="KR407", file=META_PROPERTIES, evidence=text)
