"""One broker's replicas as plain values: what its log directories say of each partition without a look into a log.

What only a log tells (where it ends, what is damaged) is filled in by the reading of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from krepair.formats import partition_metadata
from krepair.formats.damage import Damage
from krepair.formats.filenames import METADATA_TOPIC
from krepair.logdir.reading import read_whole, why
from krepair.logdir.values import LogDir, OffsetCheckpoint, Partition

CURRENT: Final = "current"
"""Kind of a folder that a broker would serve. The other kinds are the marks on a folder's name."""
FUTURE: Final = "future"
"""Kind of a folder that a broker is about to make the replica."""


def futures_of(view: LogDir, topic: str, number: int) -> Iterator[Partition]:
    """Folders of a log directory that a broker is about to make the replica of a partition."""
    for one in view.marked:
        if (one.topic, one.number, one.role) == (topic, number, FUTURE):
            yield one


class ReplicaState(Struct, frozen=True, kw_only=True):
    """One partition folder of one broker.

    Attributes:
        topic: topic name.
        partition: partition number.
        folder: folder name in its log directory.
        kind: ``current``, or the mark of the folder: ``future``, ``stray``, ``delete``.
        topic_id: of ``partition.metadata``, 22 characters; empty if there is none (before 2.8) or it cannot be read.
        log_start: offset; the greater of ``log-start-offset-checkpoint`` and the first segment's base offset.
        log_end: offset after the last batch; -1 until the log was read.
        high_watermark: recorded in ``replication-offset-checkpoint``, -1 none.
        recovery_point: recorded; everything below it was flushed to disk. -1 none.
        cleaner_position: first offset that this broker's cleaner has not cleaned, -1 if it has recorded none.
        clean_stop: whether the log directory has the clean-shutdown marker.
        damage: what is wrong with the folder or its log, or empty; until the log was read only of the folder.
        log_dir: absolute path of the log directory.
        segments: base offsets of the segments, ascending.
        log_bytes: bytes of all ``.log``.
    """

    topic: str
    partition: int
    folder: str
    kind: str = CURRENT
    topic_id: str = ""
    log_start: int = 0
    log_end: int = -1
    high_watermark: int = -1
    recovery_point: int = -1
    cleaner_position: int = -1
    clean_stop: bool = False
    damage: str = ""
    log_dir: str = ""
    segments: tuple[int, ...] = ()
    log_bytes: int = 0

    @property
    def name(self) -> str:
        """``topic-partition``, the same on every broker."""
        return f"{self.topic}-{self.partition}"


class DirectoryState(Struct, frozen=True, kw_only=True):
    """One log directory of a broker.

    Attributes:
        path: absolute path; of one that was not read, as the configuration has it.
        directory_id: ``directory.id`` of ``meta.properties`` (KIP-858), may be empty.
        was_read: whether it was read. A replica may be in one that was not.
        clean_stop: whether the clean-shutdown marker is there.
    """

    path: str
    directory_id: str = ""
    was_read: bool = True
    clean_stop: bool = False


class BrokerState(Struct, frozen=True, kw_only=True):
    """What is known of one broker.

    Attributes:
        cluster_id: ``cluster.id`` of its log directories, may be empty (2.2 and before).
        broker_id: ``broker.id`` or ``node.id``, may be empty.
        host: on which it was read.
        taken_ms: when the reading began, epoch milliseconds.
        directories: all log directories that the broker is known to have.
        partitions: all partition folders of those that were read, ordered by topic, number and folder.
    """

    cluster_id: str
    broker_id: str
    host: str
    taken_ms: int
    directories: tuple[DirectoryState, ...] = ()
    partitions: tuple[ReplicaState, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether all known log directories were read: only then is a folder that was not found not there."""
        return all(directory.was_read for directory in self.directories)


def read_broker(views: Sequence[LogDir], taken_ms: int, known_dirs: Iterable[str] = ()) -> BrokerState:
    """The state of one broker from its log directories. It opens ``partition.metadata`` files, no logs.

    Args:
        views: its log directories as listed, at least one.
        taken_ms: when the reading began.
        known_dirs: paths of all log directories in its configuration; those not in ``views`` count as not read.
    """
    read, known = {view.path for view in views}, tuple(known_dirs)
    directories = [
        DirectoryState(path=view.path, directory_id=view.directory_id, clean_stop=view.clean_shutdown)
        for view in views
    ]
    directories += [DirectoryState(path=path, was_read=False) for path in known if path not in read]
    states = (state for view in views for state in replica_states(view))
    return BrokerState(
        cluster_id=next((view.cluster_id for view in views if view.cluster_id), ""),
        broker_id=next((view.broker_id for view in views if view.broker_id), ""),
        host=views[0].host,
        taken_ms=taken_ms,
        directories=tuple(directories),
        partitions=tuple(sorted(states, key=lambda one: (one.topic, one.partition, one.folder))),
    )


def replica_states(view: LogDir) -> Iterator[ReplicaState]:
    """Every partition folder of a log directory, those that the broker marked too; not the controllers' log."""
    for partition in (*view.partitions, *view.marked):
        if partition.topic != METADATA_TOPIC:
            yield replica_state(view, partition)


def replica_state(view: LogDir, partition: Partition) -> ReplicaState:
    """One partition folder.

    Args:
        view: its log directory.
        partition: the folder as listed.
    """
    key = partition.key
    topic_id, damage = _topic_id(partition)
    current = partition.role == "normal"
    first = partition.segments[0].base_offset if partition.segments else 0

    def recorded(checkpoint: OffsetCheckpoint) -> int:
        return checkpoint.offsets.get(key, -1) if current else -1

    return ReplicaState(
        topic=partition.topic,
        partition=partition.number,
        folder=partition.folder,
        kind=CURRENT if current else partition.role,
        topic_id=topic_id,
        log_start=max(recorded(view.log_start), first),
        high_watermark=recorded(view.high_watermark),
        recovery_point=recorded(view.recovery_point),
        cleaner_position=recorded(view.cleaner),
        clean_stop=view.clean_shutdown,
        damage=partition.unreadable or damage,
        log_dir=view.path,
        segments=tuple(segment.base_offset for segment in partition.segments),
        log_bytes=sum(segment.log.size for segment in partition.segments),
    )


def _topic_id(partition: Partition) -> tuple[str, str]:
    """(the topic id or empty, what is wrong with the file or empty)."""
    file = partition.partition_metadata
    if file is None:
        return "", ""
    try:
        read = partition_metadata.decode(read_whole(file.path, partition_metadata.MAX_BYTES + 1))
    except OSError as error:
        return "", f"partition.metadata: {why(error)}"
    if isinstance(read, Damage):
        return "", f"partition.metadata: {read.expected} was expected, found {read.found}"
    return partition_metadata.topic_id_text(read.topic_id), ""
