"""The content of a log directory as plain values: partitions, segments, checkpoints. It never reads the disk."""

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
"""Origin of the state of a cluster, see ``krepair.logdir.cluster``."""


class FileRef(NamedTuple):
    """Regular file, from one ``lstat``.

    Attributes:
        name: file name; bytes that are not UTF-8 are surrogate escapes (``os.fsdecode``).
        size: size of the file in bytes.
        mtime_ns: modification time in nanoseconds, the broker's clock for tombstones and markers.
        device: device number of the file's file system.
        nlink: number of hard links to the file.
        blocks: bytes that the file occupies on the disk: fewer than the size if it has holes, more if space was
            preallocated.
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
    """Entry that is not the kind of file expected under its name. krepair reports the entry and never opens it.

    Attributes:
        name: name of the entry, as in ``FileRef``.
        kind: ``symlink``, ``FIFO``, ``socket``, ``block device``, ``character device``, ``folder`` or ``file``.
    """

    name: str
    path: str
    kind: str


class Segment(Struct, frozen=True):
    """One ``.log`` file and its companions.

    Attributes:
        index: ``.index`` file, if it exists.
        time_index: ``.timeindex`` file, if it exists.
        txn_index: ``.txnindex`` file, if it exists.
    """

    base_offset: int
    log: FileRef
    index: FileRef | None
    time_index: FileRef | None
    txn_index: FileRef | None

    def files(self) -> tuple[FileRef, ...]:
        """List the existing files, the log first."""
        return tuple(
            file for file in (self.log, self.index, self.time_index, self.txn_index) if file is not None
        )


class Snapshot(NamedTuple):
    """One producer snapshot.

    Attributes:
        offset: offset in the file name; the snapshot covers all offsets below it.
    """

    offset: int
    file: FileRef


class Leftover(NamedTuple):
    """File that a broker or another program left in a partition folder.

    Attributes:
        kind: ``cleaned``, ``swap``, ``deleted`` or ``foreign``.
        base_offset: offset in the file name, -1 for a name without one.
    """

    kind: str
    base_offset: int
    file: FileRef


class PrivateFolder(NamedTuple):
    """One of krepair's own work folders, ``krepair~<plan id>``.

    Attributes:
        plan_id: plan id in hex digits.
    """

    plan_id: str
    name: str
    path: str


class FolderStatus(NamedTuple):
    """Owner, group and permissions of a folder.

    Attributes:
        mode: permission bits as ``stat.S_IMODE`` returns them.
    """

    uid: int
    gid: int
    mode: int


class Partition(NamedTuple):
    """One partition folder.

    Attributes:
        folder: name of the folder in the log directory.
        inode: inode number of the folder.
        role: ``normal``, or the mark that the broker put on the folder: ``delete``, ``future``, ``stray``.
        segments: segments, ascending by base offset.
        snapshots: producer snapshots, ascending by offset.
        leader_epoch_checkpoint: ``leader-epoch-checkpoint`` file, if it exists.
        partition_metadata: ``partition.metadata`` file (2.8+), if it exists.
        orphan_indexes: index files without their ``.log``, by name; a broker deletes them on load.
        leftovers: all other files that should not be there while the broker is stopped, by name.
        private: krepair's own work folders, by name.
        specials: symlinks, FIFOs, sockets, devices and foreign sub-folders, by name.
        unreadable: reason why the folder was not read, for example that it is a symbolic link; the fields of its files
            are then empty. Empty if the folder was read.
        forbidden: True if only missing permissions kept krepair from reading the folder.
        is_link: True if a symbolic link has the folder's name.
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
        """Partition as (topic, number), the form of the checkpoints in the root."""
        return self.topic, self.number

    def segments_with_ends(self) -> tuple[tuple[Segment, int], ...]:
        """Pair each segment with the base offset of the next; the last with the largest possible offset."""
        ends = [segment.base_offset for segment in self.segments[1:]] + [MAX_OFFSET]
        return tuple(zip(self.segments, ends, strict=False))

    @property
    def log_sizes(self) -> tuple[tuple[int, int], ...]:
        """Base offset and size in bytes of the ``.log`` of each segment, ascending."""
        return tuple((segment.base_offset, segment.log.size) for segment in self.segments)

    @property
    def log_bytes(self) -> int:
        """Size of all ``.log`` files in bytes."""
        return sum(segment.log.size for segment in self.segments)

    @property
    def special(self) -> Special | None:
        """First entry that has the name of a broker's file but is no regular file."""
        return next(
            (entry for entry in self.specials if parse_file_name(entry.name).kind is not FileKind.FOREIGN),
            None,
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
    def waiting_swap(self) -> str:
        """Name of the first swap that a broker would finish, empty without one."""
        return next((leftover.file.name for leftover in self.leftovers if leftover.kind == "swap"), "")

    @property
    def has_an_end(self) -> bool:
        """True if the last segment is certainly the one to which a broker would append."""
        return bool(self.segments) and not (self.unreadable or self.waiting_swap or self.special_logs)

    @property
    def missing_logs(self) -> tuple[int, ...]:
        """Base offsets of indexes whose ``.log`` no broker has renamed: their segments are missing."""
        renamed = {
            leftover.base_offset
            for leftover in self.leftovers
            if leftover.kind in {"deleted", "swap"}
            and parse_file_name(leftover.file.name).kind is FileKind.LOG
        }
        bases = {parse_file_name(file.name).base_offset for file in self.orphan_indexes} - {None, *renamed}
        return tuple(sorted(base for base in bases if base is not None))

    def files(self) -> tuple[FileRef, ...]:
        """List all regular files of the folder by name, without those in work folders."""
        regular = [file for segment in self.segments for file in segment.files()]
        regular += [snapshot.file for snapshot in self.snapshots]
        regular += [leftover.file for leftover in self.leftovers]
        regular += self.orphan_indexes
        regular += [
            file for file in (self.leader_epoch_checkpoint, self.partition_metadata) if file is not None
        ]
        return tuple(sorted(regular))


@dataclass(frozen=True)
class OffsetCheckpoint:
    """One of the four offset checkpoints in the root; its entries are decoded on first use.

    Attributes:
        file: checkpoint file, None if it does not exist. An entry of this name that is not a regular file is in
            ``LogDir.foreign``.
        data: content of the file; the recovery guard changes one entry in it.
        too_large: reason why the content was not read, or None.
    """

    file: FileRef | None
    data: bytes = b""
    too_large: Damage | None = None

    @cached_property
    def lines(self) -> Checkpoint[CheckpointEntry]:
        """Decoded content of the file."""
        if self.too_large is not None:
            return Checkpoint((), (self.too_large,), broker_reads=False)
        return decode_offsets(self.data)

    @cached_property
    def offsets(self) -> Mapping[tuple[str, int], int]:
        """Offsets by (topic, partition), from all readable entries."""
        with many_values():
            return {(entry.topic, entry.partition): entry.offset for entry in self.lines.entries}

    @property
    def damage(self) -> tuple[Damage, ...]:
        """Damage of the file, empty if it is valid."""
        return self.lines.damage

    @property
    def broker_reads(self) -> bool:
        """True if a broker reads the file without error."""
        return self.lines.broker_reads


class LogDir(NamedTuple):
    """One log directory.

    Attributes:
        path: absolute path with all symlinks resolved.
        device: device number of the directory's file system.
        mode: permission bits as ``stat.S_IMODE`` returns them.
        host: name of this host.
        broker_id: ``broker.id`` (or ``node.id``) of ``meta.properties``, may be empty.
        cluster_id: ``cluster.id``, may be empty (2.2 and before do not write it).
        directory_id: ``directory.id`` (KIP-858), may be empty.
        meta_properties: ``meta.properties`` file, if it exists.
        meta_damage: damage of ``meta.properties``.
        clean_shutdown: True if the clean-shutdown file ``.kafka_cleanshutdown`` exists.
        partitions: partitions, by topic, then number.
        marked: folders that the broker marked (``topic-N.id-delete``, ``-future``, ``-stray``), by folder name.
        foreign: entries of the root that are neither partition folders nor files of a broker.
        temporary: ``.tmp`` files of the root, which a broker writes and then renames; a crash leaves them behind.
        recovery_point: content of ``recovery-point-offset-checkpoint``.
        log_start: content of ``log-start-offset-checkpoint``.
        high_watermark: content of ``replication-offset-checkpoint``.
        cleaner: content of ``cleaner-offset-checkpoint``, with first dirty offsets.
        meta_version: ``version`` of ``meta.properties``, 0 for ZooKeeper and 1 for KRaft; -1 if unknown.
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


# -- detection of changes while a partition is read and its broker runs
#
# A running broker appends to the active segment. At any moment it may also roll a new segment, delete segments, replace
# them by compacted ones, truncate the end (as a follower) or delete the folder. It does not change files of inactive
# segments in place. So if such a file has the same size and inode before and after the reading (a ``.log`` also the
# same mtime), the reading saw one state of it.

CLEANING: Final = frozenset({"cleaned", "swap"})
"""Kinds of leftovers that exist while the cleaner, or a split of a segment, is at work."""
TO_DELETE: Final = "deleted"


def without_deleted(partition: Partition) -> Partition:
    """Remove from a partition the files that a running broker has renamed and will delete."""
    return partition._replace(
        leftovers=tuple(leftover for leftover in partition.leftovers if leftover.kind != TO_DELETE),
        # The broker renames the log first, so the indexes look like orphans for a moment.
        orphan_indexes=(),
    )


def deleted_files(partition: Partition) -> tuple[Leftover, ...]:
    """List the files that a running broker has renamed to delete later; they remain if the broker stops before that."""
    return tuple(leftover for leftover in partition.leftovers if leftover.kind == TO_DELETE)


def why_changed(before: Partition, after: Partition | None, read: Collection[str] = ()) -> str:
    """Return the reason why a partition may have changed while it was read; empty if it did not change.

    Args:
        before: partition as listed before reading.
        after: partition as listed after reading, None if its folder is gone.
        read: names of the producer snapshots that must not have changed: those read, and those that a change removes.
    """
    if after is None or (before.inode and after.inode and before.inode != after.inode):
        return "its folder is gone: deleted, or moved to another log directory"
    if before.unreadable or after.unreadable:
        return (
            "" if before.unreadable == after.unreadable else "its folder was read twice, and once that failed"
        )
    busy = next(
        (leftover for leftover in (*before.leftovers, *after.leftovers) if leftover.kind in CLEANING), None
    )
    if busy is not None:
        return f"{busy.file.name} is there: the broker's cleaner is at work, or has left this file behind"
    return next(_differences(before, after, read), "")


def _differences(before: Partition, after: Partition, read: Collection[str]) -> Iterator[str]:
    there = {file.name: file for file in after.files()}
    for file in _unchanging_files(before, read):
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


def _unchanging_files(partition: Partition, read: Collection[str]) -> Iterator[FileRef]:
    for segment in partition.segments[:-1]:
        yield from segment.files()
    yield from (snapshot.file for snapshot in partition.snapshots if snapshot.file.name in read)
    # A follower that truncates its log and grows again looks as if it had only grown, but its epochs change.
    if partition.leader_epoch_checkpoint is not None:
        yield partition.leader_epoch_checkpoint


def _same(before: FileRef, after: FileRef | None) -> bool:
    if after is None or (before.size, before.inode) != (after.size, after.inode):
        return False
    # A flush gives a mapped index a new mtime without changing its bytes.
    return not before.name.endswith(".log") or before.mtime_ns == after.mtime_ns


def _text(before: FileRef, after: FileRef | None) -> str:
    if after is None:
        return f"{before.name} is gone"
    return f"{before.name} had {before.size} bytes (inode {before.inode}), then {after.size} (inode {after.inode})"
