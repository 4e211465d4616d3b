"""The content of a log directory as plain values. Nothing here reads the disk."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from krepair.formats.bulk import many_values
from krepair.formats.checkpoint import Checkpoint, CheckpointEntry, decode_offsets
from krepair.formats.damage import Damage
from krepair.formats.filenames import MAX_OFFSET, FileKind, NameState, parse_file_name

ClusterSource = Literal["describe", "describe-zookeeper", "metadata-log"]
"""Where the state of a cluster is from, see ``krepair.logdir.cluster``."""


class FileRef(NamedTuple):
    """A regular file, from one ``lstat``.

    Attributes:
        name: file name; bytes that are not UTF-8 are surrogate escapes (``os.fsdecode``).
        path: absolute path.
        size: bytes.
        mtime_ns: modification time in nanoseconds, the broker's clock for tombstones and markers.
        inode: inode number.
        device: device number of its file system.
        uid: owner.
        gid: group.
        mode: permission bits.
        nlink: hard links to it.
        blocks: bytes that its blocks take on the disk: less than the size where it has holes, more where room was
            allocated ahead.
    """

    name: str
    path: str
    size: int
    mtime_ns: int
    inode: int
    device: int
    uid: int
    gid: int
    mode: int
    nlink: int
    blocks: int


class Special(NamedTuple):
    """An entry of another kind than expected at its place. krepair reports it and does not open it.

    Attributes:
        name: the name, as in ``FileRef``.
        path: absolute path.
        kind: ``symlink``, ``FIFO``, ``socket``, ``block device``, ``character device``, ``folder`` or ``file``.
    """

    name: str
    path: str
    kind: str


class Segment(Struct, frozen=True):
    """One ``.log`` file and its companions.

    Attributes:
        base_offset: offset in the file names.
        log: the ``.log`` file.
        index: the ``.index`` file, if there.
        time_index: the ``.timeindex`` file, if there.
        txn_index: the ``.txnindex`` file, if there.
    """

    base_offset: int
    log: FileRef
    index: FileRef | None
    time_index: FileRef | None
    txn_index: FileRef | None

    def files(self) -> tuple[FileRef, ...]:
        """The files that are there, the log first."""
        return tuple(
            file for file in (self.log, self.index, self.time_index, self.txn_index) if file is not None
        )


class Snapshot(NamedTuple):
    """One producer snapshot.

    Attributes:
        offset: the offset in its name; the snapshot covers all offsets below it.
        file: the ``.snapshot`` file.
    """

    offset: int
    file: FileRef


class Leftover(NamedTuple):
    """A file that a broker or another program left in a partition folder.

    Attributes:
        kind: ``cleaned``, ``swap``, ``deleted`` or ``foreign``.
        base_offset: offset in its name, -1 for a name without one.
        file: the file.
    """

    kind: str
    base_offset: int
    file: FileRef


class PrivateFolder(NamedTuple):
    """One of krepair's own sub-folders, ``krepair~<plan id>``.

    Attributes:
        plan_id: the plan id, hex digits.
        name: folder name.
        path: absolute path.
    """

    plan_id: str
    name: str
    path: str


class FolderStatus(NamedTuple):
    """Who may use a folder.

    Attributes:
        uid: owner.
        gid: group.
        mode: permission bits.
    """

    uid: int
    gid: int
    mode: int


class Partition(NamedTuple):
    """One partition folder.

    Attributes:
        topic: topic name.
        number: partition number.
        folder: folder name in the log directory.
        path: absolute path.
        inode: inode number of the folder.
        role: ``normal``, or the mark that the broker put on the folder: ``delete``, ``future``, ``stray``.
        segments: segments, ascending by base offset.
        snapshots: producer snapshots, ascending by offset.
        leader_epoch_checkpoint: the file, if there.
        partition_metadata: the ``partition.metadata`` file (2.8+), if there.
        orphan_indexes: index files without their ``.log``, by name; a broker deletes them on load.
        leftovers: all other files that should not be there while the broker is stopped, by name.
        private: krepair's own sub-folders, by name.
        specials: symlinks, FIFOs, sockets, devices and foreign sub-folders, by name.
        unreadable: why the folder could not be read, or that it is a symbolic link. Then nothing else is known. Empty
            if it was read.
        forbidden: whether it could not be read because only the permissions were in the way.
        is_link: whether a symbolic link has the folder's name.
        folder_status: owner, group and permission bits of the folder; None if it was not read.
    """

    topic: str
    number: int
    folder: str
    path: str
    inode: int
    role: str = "normal"
    segments: tuple[Segment, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()
    leader_epoch_checkpoint: FileRef | None = None
    partition_metadata: FileRef | None = None
    orphan_indexes: tuple[FileRef, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    private: tuple[PrivateFolder, ...] = ()
    specials: tuple[Special, ...] = ()
    unreadable: str = ""
    forbidden: bool = False
    is_link: bool = False
    folder_status: FolderStatus | None = None

    @property
    def key(self) -> tuple[str, int]:
        """(topic, number): how the files of the root name it."""
        return self.topic, self.number

    def segments_with_ends(self) -> tuple[tuple[Segment, int], ...]:
        """Each segment with the base offset of the next one; the last one with the largest possible offset."""
        ends = [segment.base_offset for segment in self.segments[1:]] + [MAX_OFFSET]
        return tuple(zip(self.segments, ends, strict=False))

    @property
    def log_sizes(self) -> tuple[tuple[int, int], ...]:
        """(base offset, bytes of the ``.log``) of each segment, ascending."""
        return tuple((segment.base_offset, segment.log.size) for segment in self.segments)

    @property
    def log_bytes(self) -> int:
        """Bytes of all its ``.log`` files."""
        return sum(segment.log.size for segment in self.segments)

    @property
    def special(self) -> Special | None:
        """The first entry with the name of a broker's file that is no regular file."""
        return next(
            (one for one in self.specials if parse_file_name(one.name).kind is not FileKind.FOREIGN), None
        )

    @property
    def special_logs(self) -> tuple[Special, ...]:
        """Entries with the name of a ``.log`` that are not regular files; a broker would try to open them."""
        named = [(special, parse_file_name(special.name)) for special in self.specials]
        return tuple(
            special
            for special, name in named
            if name.kind is FileKind.LOG and name.state is NameState.LIVE and name.is_canonical
        )

    @property
    def has_an_end(self) -> bool:
        """Whether the last listed segment is certain to be the one to which a broker would append."""
        pending = any(leftover.kind in {"swap", "cleaned"} for leftover in self.leftovers)
        return bool(self.segments) and not (self.unreadable or pending or self.special_logs)

    def files(self) -> tuple[FileRef, ...]:
        """All regular files of the folder, by name, without those in private sub-folders."""
        found = [file for segment in self.segments for file in segment.files()]
        found += [snapshot.file for snapshot in self.snapshots]
        found += [leftover.file for leftover in self.leftovers]
        found += self.orphan_indexes
        found += [
            file for file in (self.leader_epoch_checkpoint, self.partition_metadata) if file is not None
        ]
        return tuple(sorted(found))


@dataclass(frozen=True)
class OffsetCheckpoint:
    """One of the four offset checkpoints in the root. Its lines are decoded when they are first needed.

    Attributes:
        file: the file, None if it is not there. If it is not a regular file, it is in ``foreign``.
        data: the bytes of the file; the fence changes one line in them.
        too_large: why the bytes were not read, or None.
    """

    file: FileRef | None
    data: bytes = b""
    too_large: Damage | None = None

    @cached_property
    def lines(self) -> Checkpoint[CheckpointEntry]:
        """The decoded file."""
        if self.too_large is not None:
            return Checkpoint((), (self.too_large,), broker_reads=False)
        return decode_offsets(self.data)

    @cached_property
    def offsets(self) -> Mapping[tuple[str, int], int]:
        """(topic, partition) -> offset, for all lines that could be read."""
        with many_values():
            return {(entry.topic, entry.partition): entry.offset for entry in self.lines.entries}

    @property
    def damage(self) -> tuple[Damage, ...]:
        """What is wrong with the file."""
        return self.lines.damage

    @property
    def broker_reads(self) -> bool:
        """Whether a broker reads the file without error."""
        return self.lines.broker_reads


class LogDir(NamedTuple):
    """One log directory.

    Attributes:
        path: absolute path, with all symlinks resolved.
        inode: inode number of the directory.
        device: device number of its file system.
        uid: owner.
        gid: group.
        mode: permission bits.
        host: name of this host.
        broker_id: ``broker.id`` (or ``node.id``) of ``meta.properties``, may be empty.
        cluster_id: ``cluster.id``, may be empty (up to 2.2 it is not written).
        directory_id: ``directory.id`` (KIP-858), may be empty.
        meta_properties: the file, if there.
        meta_damage: what is wrong with ``meta.properties``.
        clean_shutdown: whether the clean-shutdown marker ``.kafka_cleanshutdown`` is there.
        partitions: partitions, by topic, then number.
        marked: folders that the broker marked (``topic-N.id-delete``, ``-future``, ``-stray``), by folder name.
        foreign: entries of the root that are neither partition folders nor files of a broker.
        temporary: ``.tmp`` files of the root, which a broker writes and then renames; a crash leaves them.
        recovery_point: ``recovery-point-offset-checkpoint``.
        log_start: ``log-start-offset-checkpoint``.
        high_watermark: ``replication-offset-checkpoint``.
        cleaner: ``cleaner-offset-checkpoint``, with the first offset that is not clean.
        meta_version: ``version`` of ``meta.properties``, 0 for ZooKeeper and 1 for KRaft; -1 if it is not known.
    """

    path: str
    inode: int
    device: int
    uid: int
    gid: int
    mode: int
    host: str
    broker_id: str
    cluster_id: str
    directory_id: str
    meta_properties: FileRef | None
    meta_damage: tuple[Damage, ...]
    clean_shutdown: bool
    partitions: tuple[Partition, ...]
    marked: tuple[Partition, ...]
    foreign: tuple[Special, ...]
    temporary: tuple[FileRef, ...]
    recovery_point: OffsetCheckpoint
    log_start: OffsetCheckpoint
    high_watermark: OffsetCheckpoint
    cleaner: OffsetCheckpoint
    meta_version: int = -1


# -- whether a partition changed while it was read and the broker was running
#
# A running broker appends to the active segment. At any moment it may also roll a new segment, delete segments, replace
# them by compacted ones, truncate the end (as a follower) or delete the folder. It does not change the files of closed
# segments in place. So if such a file has the same size and inode before and after the reading (a ``.log`` also the
# same mtime), the reading saw one state of it.

CLEANING: Final = frozenset({"cleaned", "swap"})
"""Kinds of files that are there while the cleaner, or a split of a segment, is at work."""
TO_DELETE: Final = "deleted"


def without_deleted(partition: Partition) -> Partition:
    """The partition without the files that a running broker has renamed and will delete."""
    return partition._replace(
        leftovers=tuple(one for one in partition.leftovers if one.kind != TO_DELETE),
        # The broker renames the log first, so the indexes look like orphans for a moment.
        orphan_indexes=(),
    )


def deleted_files(partition: Partition) -> tuple[Leftover, ...]:
    """The files that a running broker has renamed and will delete. If it stops before that, they stay."""
    return tuple(one for one in partition.leftovers if one.kind == TO_DELETE)


def why_changed(before: Partition, after: Partition | None, read: Collection[str] = ()) -> str:
    """Why the partition may have changed while it was read; empty if it did not.

    Args:
        before: the partition as listed before it was read.
        after: the partition as listed after it was read, None if its folder is gone.
        read: names of producer snapshots that were read, or that a change would remove.
    """
    if after is None or (before.inode and after.inode and before.inode != after.inode):
        return "its folder is gone: deleted, or moved to another log directory"
    if before.unreadable or after.unreadable:
        return (
            "" if before.unreadable == after.unreadable else "its folder was read twice, and once that failed"
        )
    busy = next((one for one in (*before.leftovers, *after.leftovers) if one.kind in CLEANING), None)
    if busy is not None:
        return f"{busy.file.name} is there: the broker's cleaner is at work, or has left this file behind"
    return next(_differences(before, after, read), "")


def _differences(before: Partition, after: Partition, read: Collection[str]) -> Iterator[str]:
    there = {file.name: file for file in after.files()}
    for file in _settled_files(before, read):
        if not _same(file, there.get(file.name)):
            yield _text(file, there.get(file.name))
    if not before.segments:
        return
    active = before.segments[-1]
    log = there.get(active.log.name)
    if log is None or log.inode != active.log.inode or log.size < active.log.size:
        yield _text(active.log, log)
    known = {segment.base_offset for segment in before.segments}
    for segment in after.segments:
        if segment.base_offset < active.base_offset and segment.base_offset not in known:
            yield f"{segment.log.name} is new"


def _settled_files(partition: Partition, read: Collection[str]) -> Iterator[FileRef]:
    for segment in partition.segments[:-1]:
        yield from segment.files()
    yield from (snapshot.file for snapshot in partition.snapshots if snapshot.file.name in read)
    # A follower that truncates its end and grows again looks as if it had only grown; but its epochs change.
    if partition.leader_epoch_checkpoint is not None:
        yield partition.leader_epoch_checkpoint


def _same(before: FileRef, after: FileRef | None) -> bool:
    if after is None or (before.size, before.inode) != (after.size, after.inode):
        return False
    # A flush gives a mapped index a new mtime, but its bytes stay the same.
    return not before.name.endswith(".log") or before.mtime_ns == after.mtime_ns


def _text(before: FileRef, after: FileRef | None) -> str:
    if after is None:
        return f"{before.name} is gone"
    return f"{before.name} had {before.size} bytes (inode {before.inode}), then {after.size} (inode {after.inode})"
