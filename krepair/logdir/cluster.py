"""What the cluster says of its partitions: who is assigned, in sync, eligible and leader. It is read for ``--cluster``.

A log directory does not know that. It is in the output of ``kafka-topics.sh --describe``, and in
``__cluster_metadata-0`` of a KRaft controller.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from krepair.errors import RefusedError, UnreadableError, UsageError
from krepair.formats import describe_topics, meta_properties
from krepair.formats.cluster_metadata import BROKER_RESOURCE, NO_LEADER, TOPIC_RESOURCE
from krepair.formats.damage import Damage, shown
from krepair.formats.describe_topics import Description, WrongLine
from krepair.formats.filenames import META_PROPERTIES, partition_folder
from krepair.logdir.config import ClusterConfigs
from krepair.logdir.fingerprint import DIGEST_BYTES
from krepair.logdir.metadata_log import BrokerRegistration, MetadataImage, read_metadata_log
from krepair.logdir.reading import read_whole, why
from krepair.logdir.values import ClusterSource

METADATA_FOLDER: Final = partition_folder("__cluster_metadata", 0)
_CHUNK_BYTES: Final = 1 << 20
DESCRIBE: Final = "kafka-topics.sh --bootstrap-server HOST:PORT --describe > FILE"


@dataclass(frozen=True, slots=True)
class Assignment:
    """One partition, as the cluster sees it.

    Attributes:
        topic_id: 22 characters; empty where it is not known.
        replicas: ids of the assigned brokers, the preferred leader first; during a reassignment old and new ones.
        isr: in-sync replicas.
        elr: eligible leader replicas (KIP-966); None where the source does not say. A broker in it may become leader.
        last_known_elr: the last known ELR; None where the source does not say.
        leader: broker id, -1 without one.
        leader_epoch: -1 where the source does not say.
        adding: brokers that a reassignment adds.
        removing: brokers that a reassignment takes away.
        moving: whether a reassignment is under way; None where the source does not say.
        directories: ids of the log directories, in the order of ``replicas``; empty where they are not known.
    """

    topic_id: str
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] | None
    last_known_elr: tuple[int, ...] | None
    leader: int
    leader_epoch: int
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    moving: bool | None
    directories: tuple[str, ...] = ()


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
        as_of_ms: time of the last batch of the metadata log; None for ``--describe``, which has no time of its own.
        partitions: by topic and number.
        topic_configs: settings by topic. Of ``--describe`` of a broker all that are not Kafka's defaults, as that
            broker sees them; of the other sources only the topic's own.
        broker_configs: dynamic settings by broker id as text, empty for the default of all brokers; only of the
            metadata log.
        brokers: registered brokers by id; only of the metadata log.
        file_ms: modification time of the text, epoch milliseconds; -1 for the metadata log. A copy makes it later, so
            that it only shows that a text is old.
        end_offset: offset after the last record of the metadata log; -1 for ``--describe``.
        node_id: the controller whose copy it is, where ``meta.properties`` lies beside the log; else -1.
        active_controller: the last one that the metadata log names; else -1.
    """

    path: str
    source: ClusterSource
    source_is_certain: bool
    digest: str
    cluster_id: str
    as_of_ms: int | None
    partitions: Mapping[tuple[str, int], Assignment]
    topic_configs: Mapping[str, Mapping[str, str]]
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    file_ms: int = -1
    end_offset: int = -1
    node_id: int = -1
    active_controller: int = -1


def configs_of(cluster: ClusterView | None, broker_id: str) -> ClusterConfigs | None:
    """The settings that a source has on record; None if there is no source.

    Args:
        cluster: the source.
        broker_id: whose dynamic settings count, empty if that is not known.
    """
    if cluster is None:
        return None
    topics = {topic: cluster.topic_configs.get(topic, {}) for topic, _ in cluster.partitions}
    return ClusterConfigs(
        topics, {**cluster.broker_configs.get("", {}), **cluster.broker_configs.get(broker_id, {})}
    )


def configs_of_image(image: MetadataImage, broker_id: str) -> ClusterConfigs:
    """The same of the metadata log beside the logs."""
    configs = image.configs
    topics = {name: configs.get((TOPIC_RESOURCE, name), {}) for name in image.topics.values()}
    broker = {**configs.get((BROKER_RESOURCE, ""), {}), **configs.get((BROKER_RESOURCE, broker_id), {})}
    return ClusterConfigs(topics, broker)


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
        as_of_ms=None,
        partitions=_described(found),
        topic_configs={name: topic.configs for name, topic in found.topics.items()},
        file_ms=file_ms,
    )


def _described(found: Description) -> dict[tuple[str, int], Assignment]:
    shows_moves = found.shows_reassignments and found.asked != "zookeeper"
    return {
        key: Assignment(
            topic_id=found.topics[row.topic].topic_id,
            replicas=row.replicas,
            isr=row.isr,
            elr=row.elr,
            last_known_elr=row.last_known_elr,
            leader=row.leader,
            leader_epoch=-1,
            adding=row.adding,
            removing=row.removing,
            moving=row.moving if row.moving or shows_moves else None,
        )
        for key, row in found.partitions.items()
    }


def _of_folder(path: str) -> ClusterView:
    parent = Path(path)
    folder = parent / METADATA_FOLDER if (parent / METADATA_FOLDER).is_dir() else parent
    image = read_metadata_log(str(folder))
    cluster_id, node_id = _identity(parent if folder != parent else parent.parent)
    configs = image.configs
    return ClusterView(
        path=str(folder),
        source="metadata-log",
        source_is_certain=True,
        digest=_digest(folder, image),
        cluster_id=cluster_id,
        as_of_ms=image.as_of_ms,
        partitions=_of_image(image),
        topic_configs={name: values for (kind, name), values in configs.items() if kind == TOPIC_RESOURCE},
        broker_configs={name: values for (kind, name), values in configs.items() if kind == BROKER_RESOURCE},
        brokers=image.brokers,
        end_offset=image.end_offset,
        node_id=node_id,
        active_controller=image.active_controller,
    )


def _of_image(image: MetadataImage) -> dict[tuple[str, int], Assignment]:
    return {
        (image.topics[topic_id], number): Assignment(
            topic_id=topic_id,
            replicas=state.replicas,
            isr=state.isr,
            elr=state.elr,
            last_known_elr=state.last_known_elr,
            leader=max(state.leader, NO_LEADER),
            leader_epoch=state.leader_epoch,
            adding=state.adding,
            removing=state.removing,
            moving=bool(state.adding or state.removing),
            directories=state.directories,
        )
        for (topic_id, number), state in image.partitions.items()
    }


def _identity(folder: Path) -> tuple[str, int]:
    """Cluster id and node id of ``meta.properties`` beside the log; empty and -1 where there is none."""
    try:
        data = read_whole(str(folder / META_PROPERTIES), meta_properties.MAX_BYTES + 1)
    except OSError:
        return "", -1
    found = meta_properties.decode(data)
    if isinstance(found, Damage):
        return "", -1
    return found.cluster_id, int(found.broker_id) if found.broker_id.isdecimal() else -1


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
