"""Reader of the state of a cluster's partitions for ``--cluster``: assigned and in-sync replicas, and leaders.

A log directory of a broker does not hold this state. The state is in the output of ``kafka-topics.sh --describe``, and
in ``__cluster_metadata-0`` of a KRaft controller: in its newest snapshot and the log after that, or, without a
snapshot, in a log from offset 0 on. Plans use the state as proof that records may be removed, so nothing is guessed: a
copy with a damaged, missing or unknown part is refused.

Source: ``TopicDelta.java``, ``PartitionRegistration.merge``, ``MetadataBatchLoader.java``, ``Snapshots.java``,
``RecordsSnapshotReader.java`` (3.9.0); KIP-630, KIP-868 (transactions of the metadata log).
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from krepair.errors import RefusedError, UnreadableError, UsageError
from krepair.formats import cluster_metadata as metadata
from krepair.formats import describe_topics, meta_properties
from krepair.formats.batch_v2 import (
    CRC_START,
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    batch_damage,
    decode_header,
    headers_of,
)
from krepair.formats.castagnoli import crc32c
from krepair.formats.cluster_metadata import BROKER_RESOURCE, TOPIC_RESOURCE
from krepair.formats.control import ControlType, decode_key
from krepair.formats.damage import Damage, shown
from krepair.formats.describe_topics import Description, WrongLine
from krepair.formats.filenames import META_PROPERTIES, partition_folder
from krepair.formats.kafka_versions import UsedFormat
from krepair.formats.message_schema import decode
from krepair.formats.record import Record, batch_records
from krepair.logdir.config import ClusterConfigs
from krepair.logdir.fingerprint import DIGEST_BYTES
from krepair.logdir.reading import opened_folder, opened_for_reading, read_exactly_from, read_whole, why
from krepair.logdir.values import ClusterSource
from krepair.next_command import Next

_SEGMENT: Final = re.compile(r"([0-9]{20})\.log")
_SNAPSHOT: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


RESERVED_DIRECTORY_IDS: Final = frozenset(
    {"AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"}
)
"""Ids 0, 1 and 2: migrating, unassigned, lost. Source: DirectoryId.java (3.9.2)."""


class SnapshotName(NamedTuple):
    """Name of a snapshot of the state before ``end_offset``, whose last record has the leader epoch ``epoch``."""

    end_offset: int
    epoch: int
    name: str


@dataclass(slots=True)
class Assignment:
    """Replicas of one partition according to the cluster.

    Attributes:
        topic_id: topic id of 22 characters; empty if unknown.
        replicas: ids of the assigned brokers, the preferred leader first; during a reassignment old and new brokers.
        isr: ids of the in-sync replicas.
        leader: broker id of the leader, -1 if there is none.
        moving: True if a reassignment is in progress.
        directories: ids of the log directories, in the order of ``replicas``; empty if unknown.
        adding: ids of the brokers that a reassignment adds; known only from a metadata log.
        removing: ids of the brokers that a reassignment removes; known only from a metadata log.
    """

    topic_id: str
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    moving: bool = False
    directories: tuple[str, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(slots=True)
class MetadataImage:
    """State of the cluster at the end of a metadata log.

    Attributes:
        topics: topic name by topic id.
        partitions: assignments by topic id and partition number.
        numbers: partition numbers of each topic, by topic id.
        brokers: ids of the log directories of each registered broker, by broker id; no ids before 3.7.
        configs: settings by (type, name) of the resource; settings of brokers are dynamic.
        end_offset: offset after the last record that was read.
        as_of_ms: time of the log's last batch, or of the snapshot if no batch follows it; -1 if there is neither.
        open_transaction: True if a transaction of the controller was open at the end; its records are ignored.
        files: names of the files that were read, in order.
        voters: ids of the voting controllers; empty if only their configurations name them (before KIP-853).
        later: description of the first record of a type that krepair does not know; empty if there is none. With such
            a record the state proves nothing about replicas.
        epochs: broker epoch of each registered broker.
        controllers: ids of the registered controllers.
        used: levels of features and versions of records that a start has to understand, see
            ``krepair.formats.kafka_versions``.
    """

    topics: dict[str, str] = field(default_factory=dict)
    partitions: dict[tuple[str, int], Assignment] = field(default_factory=dict)
    numbers: dict[str, set[int]] = field(default_factory=dict)
    brokers: dict[int, tuple[str, ...]] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    end_offset: int = 0
    as_of_ms: int = -1
    open_transaction: bool = False
    files: tuple[str, ...] = ()
    voters: tuple[int, ...] = ()
    later: str = ""
    epochs: dict[int, int] = field(default_factory=dict)
    controllers: set[int] = field(default_factory=set)
    used: dict[tuple[str, int], UsedFormat] = field(default_factory=dict)


class _NoProofError(Exception):
    """Signal that the copy cannot be used; the text gives the reason, without the folder."""


class Fault(StrEnum):
    """Fault of a metadata log, by its effect on a node that starts."""

    SNAPSHOT = "snapshot"
    """The newest snapshot is empty, cut or damaged."""
    NO_SNAPSHOT = "no snapshot"
    """The log begins above offset 0, and no snapshot holds the records before it."""
    CUT = "cut"
    """A batch is damaged. Every start recovers this log, and truncates it there."""
    MAGIC = "magic"
    """A batch has an invalid magic but a right CRC: recovery does not truncate it, and every reader fails there."""
    CONTENT = "content"
    """A record is intact, but krepair does not understand it."""
    REPLAY = "replay"
    """A record names a broker, topic or partition that does not exist, so that no node can replay it."""


class Examined(NamedTuple):
    """Result of reading a metadata log up to its first fault.

    Attributes:
        image: state at the end of the log, or before the first fault; None if nothing was read.
        fault: first fault of the log, None if there is none.
        why: description of the fault: file, position, what was expected and found; empty if there is none.
    """

    image: MetadataImage
    fault: Fault | None = None
    why: str = ""


def examine_metadata_log(folder: str) -> Examined:
    """Read the metadata log of a stopped node up to its first fault.

    Args:
        folder: absolute path, without links in its components.

    Raises:
        OSError: a file could not be read.
    """
    with opened_folder(folder) as descriptor:
        reader = _ImageBuilder(folder, os.listdir(descriptor))
        try:
            reader.image()
        except _NoProofError as problem:
            return Examined(reader.result, reader.fault, str(problem))
    return Examined(reader.result)


def read_metadata_log(folder: str) -> MetadataImage:
    """Read a copy of ``__cluster_metadata-0``, batch by batch.

    Args:
        folder: absolute path, without links in its components.

    Raises:
        UnreadableError: a file could not be read.
        RefusedError: the copy is damaged or incomplete, or holds something that krepair does not know.
    """
    try:
        with opened_folder(folder) as descriptor:
            image = _ImageBuilder(folder, os.listdir(descriptor)).image()
        if image.as_of_ms < 0:
            raise _NoProofError("no batch has a time")
    except _NoProofError as problem:
        raise RefusedError(
            f"{folder}: no proof: {problem}",
            next_command=Next.by_hand(
                "copy __cluster_metadata-0 of the active controller again, whole, or use the output of "
                "kafka-topics.sh --bootstrap-server HOST:PORT --describe"
            ),
        ) from None
    except OSError as error:
        raise UnreadableError(f"{error.filename or folder}: could not be read: {why(error)}") from error
    return image


class _ImageBuilder:
    """Builder of a ``MetadataImage`` that reads snapshot and log file by file."""

    def __init__(self, folder: str, names: list[str]) -> None:
        self.folder = folder
        self.segments = sorted((int(match[1]), match[0]) for match in map(_SEGMENT.fullmatch, names) if match)
        self.snapshots = sorted(
            SnapshotName(int(match[1]), int(match[2]), match[0])
            for match in map(_SNAPSHOT.fullmatch, names)
            if match
        )
        self.result = MetadataImage()
        self.pending: list[metadata.MetadataRecord] = []
        self.in_transaction = False
        self.fault: Fault | None = None  # fault to report if the next step finds a problem

    def image(self) -> MetadataImage:
        if not self.segments and not self.snapshots:
            raise _NoProofError("expected log segments and snapshots (.checkpoint), found neither")
        snapshot = self.snapshots[-1] if self.snapshots else None
        start = 0 if snapshot is None else snapshot.end_offset
        if snapshot is not None:
            self.fault = Fault.SNAPSHOT
            self._read_snapshot(snapshot)
        self._read_log(start, snapshot)
        self.result.open_transaction = self.in_transaction
        read = [] if snapshot is None else [snapshot.name]
        self.result.files = (*read, *(name for _, name in self.segments))
        return self.result

    def _read_snapshot(self, snapshot: SnapshotName) -> None:
        """Read a snapshot, which must begin with its header and end with its footer."""
        kinds: list[int] = []
        for position, header, batch in self._batches(snapshot.name):
            if kinds and kinds[-1] == ControlType.SNAPSHOT_FOOTER:
                raise _NoProofError(
                    f"{snapshot.name}: position {position}: expected its end after the footer"
                )
            for record in _records(snapshot.name, batch, position):
                if header.is_control:
                    kinds.append(self._control(snapshot.name, position, record))
                elif not kinds:
                    raise _NoProofError(f"{snapshot.name}: position {position}: expected its header first")
                else:
                    self._take(snapshot.name, position, record)
        if not kinds or kinds[0] != ControlType.SNAPSHOT_HEADER:
            raise _NoProofError(f"{snapshot.name}: position 0: expected the header of a snapshot")
        if kinds[-1] != ControlType.SNAPSHOT_FOOTER:
            raise _NoProofError(f"{snapshot.name}: the footer of the snapshot is missing: it is cut")
        if self.in_transaction:
            raise _NoProofError(f"{snapshot.name}: a transaction is open at its end")
        self.result.end_offset = snapshot.end_offset

    def _read_log(self, start: int, snapshot: SnapshotName | None) -> None:
        """Read every batch from ``start`` on without a gap; batches that the snapshot covers are only checked."""
        if not self.segments:
            return
        first = self.segments[0][0]
        self.fault = Fault.NO_SNAPSHOT
        if first > start:
            missing = "there is no snapshot" if snapshot is None else f"the newest snapshot ends at {start}"
            raise _NoProofError(f"the log begins at offset {first}, and {missing}")
        self.fault = Fault.CONTENT
        expected, epoch = first, -1
        for base_offset, name in self.segments:
            if base_offset != expected:
                raise _NoProofError(f"{name}: expected a segment that begins at offset {expected}")
            for position, header, batch in self._batches(name):
                actual = (header.base_offset, header.partition_leader_epoch)
                if actual[0] != expected or actual[1] < epoch:
                    text = f"expected offset {expected} of epoch {epoch} or later, found {actual[0]} of {actual[1]}"
                    raise _NoProofError(f"{name}: position {position}: {text}")
                expected, epoch = header.last_offset + 1, header.partition_leader_epoch
                if header.base_offset < start < expected:
                    raise _NoProofError(
                        f"{name}: position {position}: the snapshot ends inside of this batch"
                    )
                if expected > start or header.is_control:  # a snapshot does not hold who was active
                    self._read_batch(name, position, header, batch)
        if expected < start:
            raise _NoProofError(f"the log ends at offset {expected}, before the end {start} of the snapshot")

    def _read_batch(self, name: str, position: int, header: BatchHeader, batch: bytes) -> None:
        for record in _records(name, batch, position):
            if header.is_control:
                self._control(name, position, record)
            else:
                self._take(name, position, record)
        self.result.end_offset = max(self.result.end_offset, header.last_offset + 1)
        self.result.as_of_ms = max(self.result.as_of_ms, header.max_timestamp)

    def _batches(self, name: str) -> Iterator[tuple[int, BatchHeader, bytes]]:
        """Yield position, header and bytes of every batch, and check its CRC."""
        with opened_for_reading(str(Path(self.folder, name))) as descriptor:
            size = os.fstat(descriptor).st_size
            read = read_exactly_from(descriptor)
            for header in headers_of(read, size):
                position = header.position
                if isinstance(header, Damage):
                    self._is_wrong(name, read, header, size)
                batch = read(header.header.size_bytes, position)
                if (wrong := batch_damage(batch)) is not None:
                    self._is_wrong(name, read, wrong._replace(position=position), size)
                yield position, header.header, batch

    def _is_wrong(self, name: str, read: Callable[[int, int], bytes], damage: Damage, size: int) -> NoReturn:
        if self.fault is not Fault.SNAPSHOT:
            wrong_magic = _has_only_a_wrong_magic(read, damage.position, size - damage.position)
            self.fault = Fault.MAGIC if wrong_magic else Fault.CUT
        raise _NoProofError(f"{name}: {_text(damage)}")

    def _control(self, name: str, position: int, record: Record) -> int:
        key = decode_key(record.key)
        if isinstance(key, Damage):
            raise _NoProofError(f"{name}: position {position}: {_text(key)}")
        if key.type_id == ControlType.SNAPSHOT_HEADER:
            fields = decode(metadata.SNAPSHOT_HEADER, 0, record.value or b"")
            if isinstance(fields, Damage):
                raise _NoProofError(f"{name}: position {position}: {_text(fields)}")
            self.result.as_of_ms = fields["last_contained_log_timestamp"]
        elif key.type_id == ControlType.KRAFT_VOTERS:
            fields = decode(metadata.VOTERS, 0, record.value or b"")
            if isinstance(fields, Damage):
                raise _NoProofError(f"{name}: position {position}: {_text(fields)}")
            self.result.voters = tuple(voter["voter_id"] for voter in fields["voters"])
        return key.type_id

    def _take(self, name: str, position: int, record: Record) -> None:
        """Apply one record, at once or at the end of its transaction."""
        decoded = metadata.decode_record(record.value)
        if isinstance(decoded, Damage):
            raise _NoProofError(f"{name}: the batch at position {position}: {_text(decoded)}")
        if decoded.later and not self.result.later:
            self.result.later = f"{name}: the batch at position {position}: {decoded.later}"
        for used in used_by(decoded, f"{name}: the batch at position {position}"):
            self.result.used.setdefault((used.what, used.level), used)
        try:
            self._take_known(decoded)
        except _NoProofError as problem:
            self.fault = Fault.REPLAY
            raise _NoProofError(f"{name}: the batch at position {position}: {problem}") from None

    def _take_known(self, record: metadata.MetadataRecord) -> None:
        if record.schema is metadata.BEGIN_TRANSACTION:
            if self.in_transaction:
                raise _NoProofError("a transaction begins inside another one")
            self.in_transaction, self.pending = True, []
        elif record.schema in (metadata.END_TRANSACTION, metadata.ABORT_TRANSACTION):
            if not self.in_transaction:
                raise _NoProofError("a transaction ends that never began")
            if record.schema is metadata.END_TRANSACTION:
                for pending in self.pending:
                    replay(self.result, pending)
            self.in_transaction, self.pending = False, []
        elif self.in_transaction:
            self.pending.append(record)
        else:
            replay(self.result, record)


def used_by(record: metadata.MetadataRecord, where: str) -> Iterator[UsedFormat]:
    """Yield the formats that a version of Kafka has to understand to replay a record."""
    yield UsedFormat(f"record {record.kind}", record.version, where)
    if record.schema is metadata.FEATURE_LEVEL:
        yield UsedFormat(record.values["name"], record.values["feature_level"], where)


def _has_only_a_wrong_magic(read: Callable[[int, int], bytes], position: int, rest: int) -> bool:
    """Return whether only the magic of a batch is wrong (above 2), which the CRC does not cover."""
    if rest < HEADER_SIZE:
        return False
    header = decode_header(read(HEADER_SIZE, position))
    if header.magic <= MAGIC or not HEADER_SIZE <= header.size_bytes <= rest:
        return False
    return crc32c(read(header.size_bytes - CRC_START, position + CRC_START)) == header.crc


def _records(name: str, batch: bytes, position: int) -> Iterator[Record]:
    for record in batch_records(batch):
        if isinstance(record, Damage):
            raise _NoProofError(f"{name}: {_text(record._replace(position=position + record.position))}")
        yield record


def _text(damage: Damage) -> str:
    return f"position {damage.position}: {damage.text}"


def replay(image: MetadataImage, record: metadata.MetadataRecord) -> None:
    """Apply one record to the state.

    Raises:
        _NoProofError: the record names a topic, partition or broker that does not exist.
    """
    if record.schema is not None:
        _REPLAY[record.schema.name](image, record.values)


def _add_topic(image: MetadataImage, values: dict[str, Any]) -> None:
    image.topics[values["topic_id"]] = values["name"]


def _add_partition(image: MetadataImage, values: dict[str, Any]) -> None:
    _topic_of(image, values)
    image.partitions[values["topic_id"], values["partition_id"]] = _registered(values)
    image.numbers.setdefault(values["topic_id"], set()).add(values["partition_id"])


def _add_broker(image: MetadataImage, values: dict[str, Any]) -> None:
    image.brokers[values["broker_id"]] = tuple(values.get("log_dirs") or ())
    image.epochs[values["broker_id"]] = values["broker_epoch"]


def _remove_broker(image: MetadataImage, values: dict[str, Any]) -> None:
    image.brokers.pop(values["broker_id"], None)
    image.epochs.pop(values["broker_id"], None)


def _topic_of(image: MetadataImage, values: dict[str, Any]) -> str:
    topic = image.topics.get(values["topic_id"])
    if topic is None:
        raise _NoProofError(f"topic id {values['topic_id']} is not known")
    return topic


def _partition_of(image: MetadataImage, values: dict[str, Any]) -> Assignment:
    topic = _topic_of(image, values)
    state = image.partitions.get((values["topic_id"], values["partition_id"]))
    if state is None:
        raise _NoProofError(f"partition {topic}-{values['partition_id']} is not known")
    return state


def _remove_topic(image: MetadataImage, values: dict[str, Any]) -> None:
    topic_id = values["topic_id"]
    name = image.topics.pop(topic_id, None)
    if name is None:
        raise _NoProofError(f"topic id {topic_id} is not known")
    image.configs.pop((metadata.TOPIC_RESOURCE, name), None)
    for number in image.numbers.pop(topic_id, ()):
        del image.partitions[topic_id, number]


def _registered(values: dict[str, Any]) -> Assignment:
    return Assignment(
        topic_id=values["topic_id"],
        replicas=tuple(values["replicas"]),
        isr=tuple(values["isr"]),
        leader=max(values["leader"], metadata.NO_LEADER),
        moving=bool(values["adding_replicas"] or values["removing_replicas"]),
        adding=tuple(values["adding_replicas"]),
        removing=tuple(values["removing_replicas"]),
        directories=tuple(values.get("directories") or ()),
    )


_CHANGED: Final = (
    ("replicas", "replicas"),
    ("isr", "isr"),
    ("adding", "adding_replicas"),
    ("removing", "removing_replicas"),
    ("directories", "directories"),
)


def _change_partition(image: MetadataImage, values: dict[str, Any]) -> None:
    state = _partition_of(image, values)
    for attribute, name in _CHANGED:
        if values.get(name) is not None:
            setattr(state, attribute, tuple(values[name]))
    state.moving = bool(state.adding or state.removing)
    if values["leader"] != metadata.NO_LEADER_CHANGE:
        state.leader = max(values["leader"], metadata.NO_LEADER)


def _configure(image: MetadataImage, values: dict[str, Any]) -> None:
    configs = image.configs.setdefault((values["resource_type"], values["resource_name"]), {})
    if values["value"] is None:
        configs.pop(values["name"], None)
    else:
        configs[values["name"]] = values["value"]


def _change_broker(image: MetadataImage, values: dict[str, Any]) -> None:
    broker_id = values["broker_id"]
    _check_registered(image, broker_id, values["broker_epoch"])
    if values.get("log_dirs") is not None:
        image.brokers[broker_id] = tuple(values["log_dirs"])


def _fence_broker(image: MetadataImage, values: dict[str, Any]) -> None:
    _check_registered(image, values["id"], values["epoch"])


def _check_registered(image: MetadataImage, broker_id: int, epoch: int) -> None:
    """Check that a broker is registered with an epoch, as ``ClusterDelta.getBrokerOrThrow`` (3.9.0) does."""
    if broker_id not in image.brokers:
        raise _NoProofError(f"broker {broker_id} is not known")
    if epoch != image.epochs[broker_id]:
        raise _NoProofError(f"broker {broker_id} has broker epoch {image.epochs[broker_id]}, not {epoch}")


def _add_controller(image: MetadataImage, values: dict[str, Any]) -> None:
    image.controllers.add(values["controller_id"])


def _remove_controller(image: MetadataImage, values: dict[str, Any]) -> None:
    controller = values["controller_id"]
    if controller not in image.controllers:
        raise _NoProofError(f"controller {controller} is not registered")
    image.controllers.discard(controller)


def _keep_as_it_is(image: MetadataImage, values: dict[str, Any]) -> None:
    """Change nothing: the level of a feature does not concern replicas."""


_REPLAY: Final[dict[str, Callable[[MetadataImage, dict[str, Any]], None]]] = {
    metadata.TOPIC.name: _add_topic,
    metadata.REMOVE_TOPIC.name: _remove_topic,
    metadata.PARTITION.name: _add_partition,
    metadata.PARTITION_CHANGE.name: _change_partition,
    metadata.CONFIG.name: _configure,
    metadata.REGISTER_BROKER.name: _add_broker,
    metadata.UNREGISTER_BROKER.name: _remove_broker,
    metadata.BROKER_CHANGE.name: _change_broker,
    metadata.FENCE_BROKER.name: _fence_broker,
    metadata.UNFENCE_BROKER.name: _fence_broker,
    metadata.FEATURE_LEVEL.name: _keep_as_it_is,
    metadata.REGISTER_CONTROLLER.name: _add_controller,
    metadata.UNREGISTER_CONTROLLER.name: _remove_controller,
}


METADATA_FOLDER: Final = partition_folder("__cluster_metadata", 0)
_CHUNK_BYTES: Final = 1 << 20
DESCRIBE: Final = Next.by_hand("kafka-topics.sh --bootstrap-server HOST:PORT --describe > FILE")


@dataclass(frozen=True, slots=True)
class ClusterView:
    """State of a cluster as a file or folder shows it.

    Attributes:
        path: absolute path of the file or folder.
        source: ``describe`` (a running broker answered), ``describe-zookeeper`` (the tool asked ZooKeeper, which
            answers also when no broker runs), or ``metadata-log``.
        source_is_certain: False for an output of ``--describe`` that may be from a broker or from ZooKeeper. Then
            ``source`` is ``describe``, and a person has to confirm it.
        digest: BLAKE2b of all bytes that were read, 128 bits as 32 hex digits.
        cluster_id: cluster id; empty if unknown, as with ``--describe``.
        as_of_ms: time of the state in epoch milliseconds: of the log's last batch, or the modification time of a text.
            Copying a text makes that time later, so the time can only show that a text is too old.
        partitions: assignments by topic and partition number.
        topic_configs: settings by topic. ``--describe`` of a broker shows all that differ from Kafka's defaults for
            that broker; the other sources have only the topic's own.
        broker_configs: dynamic settings by broker id as text, empty for the default of all brokers; only from a
            metadata log.
        brokers: ids of the log directories of each registered broker, empty before 3.7; only from a metadata log.
        no_proof: reason why the file proves nothing about replicas, or empty (see ``MetadataImage.later``); its
            settings are still used.
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
    """Return the topic and broker settings that the cluster has stored; None if there is no source for them.

    Args:
        typed: state from ``--cluster``.
        own: metadata logs of the broker itself; the first one takes precedence over ``typed``.
        broker_id: id of the broker whose dynamic settings are used; empty if unknown.
    """
    cluster = next(iter(own), typed)
    if cluster is None:
        return None
    topics = {topic: cluster.topic_configs.get(topic, {}) for topic, _ in cluster.partitions}
    broker = {**cluster.broker_configs.get("", {}), **cluster.broker_configs.get(broker_id, {})}
    return ClusterConfigs(topics, broker, METADATA_FOLDER if own else f"--cluster {cluster.path}")


def configs_of_image(image: MetadataImage, broker_id: str) -> ClusterConfigs:
    """Return the settings in a metadata log."""
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
        RefusedError: the file is damaged, cut, or of another form; the message names file, position and expectation.
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
    described = describe_topics.decode(data)
    if isinstance(described, WrongLine):
        text = f"line {described.line}: expected {described.expected}, found {described.found}"
        raise RefusedError(f"{path}: no proof: {text}", next_command=DESCRIBE)
    digest = hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()
    return ClusterView(
        path=path,
        source="describe-zookeeper" if described.asked == "zookeeper" else "describe",
        source_is_certain=described.asked != "unknown",
        digest=digest,
        cluster_id="",
        as_of_ms=file_ms,
        partitions=_described(described),
        topic_configs={name: topic.configs for name, topic in described.topics.items()},
    )


def _described(description: Description) -> dict[tuple[str, int], Assignment]:
    return {
        key: Assignment(
            topic_id=description.topics[row.topic].topic_id,
            replicas=row.replicas,
            isr=row.isr,
            leader=row.leader,
            moving=row.moving,
        )
        for key, row in description.partitions.items()
    }


def _of_folder(path: str) -> ClusterView:
    parent = Path(path)
    folder = parent / METADATA_FOLDER if (parent / METADATA_FOLDER).is_dir() else parent
    image = read_metadata_log(str(folder))
    cluster_id = _cluster_id(parent if folder != parent else parent.parent)
    return view_of_image(str(folder), image, cluster_id, _digest(folder, image))


def view_of_image(path: str, image: MetadataImage, cluster_id: str, digest: str = "") -> ClusterView:
    """Build the view of a cluster from its metadata log.

    Args:
        path: absolute path of the log's folder.
        image: state at the end of the log.
        cluster_id: id of the cluster.
        digest: digest of the image's files, if a plan depends on them.
    """
    configs = image.configs
    return ClusterView(
        path=path,
        source="metadata-log",
        source_is_certain=True,
        digest=digest,
        cluster_id=cluster_id,
        as_of_ms=image.as_of_ms,
        partitions={
            (image.topics[topic], number): assignment
            for (topic, number), assignment in image.partitions.items()
        },
        topic_configs={name: values for (kind, name), values in configs.items() if kind == TOPIC_RESOURCE},
        broker_configs={name: values for (kind, name), values in configs.items() if kind == BROKER_RESOURCE},
        brokers=image.brokers,
        no_proof=image.later,
    )


def _cluster_id(folder: Path) -> str:
    """Return the cluster id in ``meta.properties`` beside the log; empty if there is none."""
    try:
        data = read_whole(str(folder / META_PROPERTIES), meta_properties.MAX_BYTES + 1)
    except OSError:
        return ""
    properties = meta_properties.decode(data)
    return "" if isinstance(properties, Damage) else properties.cluster_id


def _digest(folder: Path, image: MetadataImage) -> str:
    """Return a digest over names, sizes and bytes of all files that were read.

    Raises:
        UnreadableError: a file could not be read again.
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
