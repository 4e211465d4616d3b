"""What the cluster says of its partitions: who is assigned, in sync, eligible and leader. It is read for ``--cluster``.

A log directory does not know that. It is in the output of ``kafka-topics.sh --describe``, and in
``__cluster_metadata-0`` of a KRaft controller.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from krepair.errors import RefusedError, UnreadableError, UsageError
from krepair.formats import describe_topics, meta_properties
from krepair.formats.cluster_metadata import BROKER_RESOURCE, TOPIC_RESOURCE
from krepair.formats.damage import Damage, shown
from krepair.formats.describe_topics import Description, WrongLine
from krepair.formats.filenames import META_PROPERTIES, partition_folder
from krepair.logdir.config import ClusterConfigs
from krepair.logdir.fingerprint import DIGEST_BYTES
from krepair.logdir.metadata_log import Assignment, MetadataImage, read_metadata_log
from krepair.logdir.reading import read_whole, why
from krepair.logdir.values import ClusterSource

METADATA_FOLDER: Final = partition_folder("__cluster_metadata", 0)
_CHUNK_BYTES: Final = 1 << 20
DESCRIBE: Final = "kafka-topics.sh --bootstrap-server HOST:PORT --describe > FILE"


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What a file says of the cluster.

    Attributes:
        path: the file or folder, absolute.
        source: ``describe`` (a running broker answered), ``describe-zookeeper`` (the tool asked ZooKeeper, which
            answers also when no broker runs), or ``metadata-log``.
        source_is_certain: False for a text of ``--describe`` that could be of a broker or of ZooKeeper. Then ``source``
            is ``describe``, and a person has to vouch for it.
        digest: of all bytes that were read: BLAKE2b of 128 bits, 32 hex digits.
        cluster_id: empty where it is not known; ``--describe`` does not print it.
        as_of_ms: epoch milliseconds: of the metadata log the time of its last batch, of a text that of its file. A copy
            makes it later, so that it only shows that a text is old.
        partitions: by topic and number.
        topic_configs: settings by topic. Of ``--describe`` of a broker all that are not Kafka's defaults, as that
            broker sees them; of the other sources only the topic's own.
        broker_configs: dynamic settings by broker id as text, empty for the default of all brokers; only of the
            metadata log.
        brokers: ids of the log directories of each registered broker, empty before 3.7; only of the metadata log.
        no_proof: why it proves nothing about replicas, or empty: see ``MetadataImage.later``. Settings count.
    """

    path: str
    source: ClusterSource
    source_is_certain: bool
    digest: str
    cluster_id: str
    as_of_ms: int
    partitions: Mapping[tuple[str, int], Assignment]
    topic_configs: Mapping[str, Mapping[str, str]]
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    brokers: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    no_proof: str = ""


def configs_of(
    typed: ClusterView | None, own: Sequence[ClusterView], broker_id: str
) -> ClusterConfigs | None:
    """The settings that the cluster has on record; None if there is no source.

    Args:
        typed: what ``--cluster`` names.
        own: the metadata logs of the broker itself; the first one counts, before what was typed.
        broker_id: whose dynamic settings count, empty if that is not known.
    """
    cluster = next(iter(own), typed)
    if cluster is None:
        return None
    topics = {topic: cluster.topic_configs.get(topic, {}) for topic, _ in cluster.partitions}
    broker = {**cluster.broker_configs.get("", {}), **cluster.broker_configs.get(broker_id, {})}
    return ClusterConfigs(topics, broker, METADATA_FOLDER if own else f"--cluster {cluster.path}")


def configs_of_image(image: MetadataImage, broker_id: str) -> ClusterConfigs:
    """The same of the metadata log beside the logs."""
    configs = image.configs
    topics = {name: configs.get((TOPIC_RESOURCE, name), {}) for name in image.topics.values()}
    broker = {**configs.get((BROKER_RESOURCE, ""), {}), **configs.get((BROKER_RESOURCE, broker_id), {})}
    return ClusterConfigs(topics, broker, METADATA_FOLDER)


def read_cluster_file(path: str) -> ClusterView:
    """Read the file or folder that ``--cluster`` names.

    Args:
        path: a text file that holds the output of ``kafka-topics.sh --describe``; a copy of ``__cluster_metadata-0``;
            or a directory that holds such a copy and, beside it, ``meta.properties``.

    Raises:
        UsageError: there is no such file.
        UnreadableError: it could not be read.
        RefusedError: it is damaged, cut, or of another form, so that it proves nothing; file, place and what was
            expected are named.
    """
    try:
        real = os.path.realpath(path, strict=True)
        is_folder = stat.S_ISDIR(os.stat(real).st_mode)
    except (OSError, ValueError) as error:
        reason = why(error) if isinstance(error, OSError) else str(error)
        raise UsageError(f"--cluster {shown(path)}: {reason}", next_command=DESCRIBE) from error
    return _of_folder(real) if is_folder else _of_text(real)


def _of_text(path: str) -> ClusterView:
    try:
        data = read_whole(path, describe_topics.MAX_BYTES + 1)
        file_ms = os.stat(path).st_mtime_ns // 1_000_000
    except OSError as error:
        raise UnreadableError(f"{path}: could not be read: {why(error)}") from error
    found = describe_topics.decode(data)
    if isinstance(found, WrongLine):
        text = f"line {found.line}: expected {found.expected}, found {found.found}"
        raise RefusedError(f"{path}: no proof: {text}", next_command=DESCRIBE)
    digest = hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()
    return ClusterView(
        path=path,
        source="describe-zookeeper" if found.asked == "zookeeper" else "describe",
        source_is_certain=found.asked != "unknown",
        digest=digest,
        cluster_id="",
        as_of_ms=file_ms,
        partitions=_described(found),
        topic_configs={name: topic.configs for name, topic in found.topics.items()},
    )


def _described(found: Description) -> dict[tuple[str, int], Assignment]:
    return {
        key: Assignment(
            topic_id=found.topics[row.topic].topic_id,
            replicas=row.replicas,
            isr=row.isr,
            leader=row.leader,
            moving=row.moving,
        )
        for key, row in found.partitions.items()
    }


def _of_folder(path: str) -> ClusterView:
    parent = Path(path)
    folder = parent / METADATA_FOLDER if (parent / METADATA_FOLDER).is_dir() else parent
    image = read_metadata_log(str(folder))
    configs = image.configs
    return ClusterView(
        path=str(folder),
        source="metadata-log",
        source_is_certain=True,
        digest=_digest(folder, image),
        cluster_id=_cluster_id(parent if folder != parent else parent.parent),
        as_of_ms=image.as_of_ms,
        partitions={(image.topics[topic], number): one for (topic, number), one in image.partitions.items()},
        topic_configs={name: values for (kind, name), values in configs.items() if kind == TOPIC_RESOURCE},
        broker_configs={name: values for (kind, name), values in configs.items() if kind == BROKER_RESOURCE},
        brokers=image.brokers,
        no_proof=image.later,
    )


def _cluster_id(folder: Path) -> str:
    """That of ``meta.properties`` beside the log; empty where there is none."""
    try:
        data = read_whole(str(folder / META_PROPERTIES), meta_properties.MAX_BYTES + 1)
    except OSError:
        return ""
    found = meta_properties.decode(data)
    return "" if isinstance(found, Damage) else found.cluster_id


def _digest(folder: Path, image: MetadataImage) -> str:
    """Of names, sizes and bytes of all files that were read.

    Raises:
        UnreadableError: one could not be read again.
    """
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for name in image.files:
        try:
            with (folder / name).open("rb") as file:
                digest.update(f"{name} {os.fstat(file.fileno()).st_size}\n".encode())
                while chunk := file.read(_CHUNK_BYTES):
                    digest.update(chunk)
        except OSError as error:
            raise UnreadableError(f"{folder / name}: could not be read: {why(error)}") from error
    return digest.hexdigest()
