"""Reader of a log directory: it lists all files and reads the small files of the root into the values of ``values``.

The reader follows no symlink below the directory, and opens no log. ``replica_states`` reduces the values to the facts
about this broker's replicas that other brokers need.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Final, NamedTuple

from msgspec import Struct

from krepair.durable.tree import Tree
from krepair.errors import NotALogDirError, UnreadableError
from krepair.formats import partition_metadata
from krepair.formats.damage import Damage, shown
from krepair.formats.filenames import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    INDEX_KINDS,
    LOCK,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    METADATA_TOPIC,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    FileKind,
    FileName,
    FolderKind,
    FolderName,
    NameState,
    log_name,
    parse_file_name,
    parse_folder_name,
    plan_id_of,
)
from krepair.formats.meta_properties import MAX_BYTES, MetaProperties, decode
from krepair.formats.partition_metadata import PartitionMetadata
from krepair.formats.words import names_text
from krepair.logdir.reading import file_ref, kind_of, opened_folder, read_whole, why
from krepair.logdir.values import (
    FileRef,
    FolderStatus,
    Leftover,
    LogDir,
    OffsetCheckpoint,
    Partition,
    PrivateFolder,
    Segment,
    Snapshot,
    Special,
)
from krepair.next_command import CONFIG, Next

CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT, REPLICATION_CHECKPOINT, CLEANER_CHECKPOINT)
# A broker writes these files and then renames them; a crash leaves them behind.
_TEMPORARY = tuple(f"{name}.tmp" for name in (*CHECKPOINTS, META_PROPERTIES))
# bootstrap.checkpoint: KRaft, made by the format command (BootstrapDirectory, 3.3)
KNOWN_FILES = frozenset(
    {*CHECKPOINTS, *_TEMPORARY, META_PROPERTIES, CLEAN_SHUTDOWN, LOCK, "bootstrap.checkpoint"}
)
# Ignored by LogManager.loadLogs (RemoteIndexCache.DIR_NAME, 3.6)
KNOWN_FOLDERS = frozenset({"remote-log-index-cache"})
# Topic.LEGAL_CHARS; a broker makes no folder with another name.
LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
# Enough for a million entries with usual topic names. No host has so many partition folders.
MAX_CHECKPOINT_BYTES = 64 << 20
MAX_META_BYTES = (1 << 20) + 1

# A broker would follow the link to a folder that neither the lock nor the checkpoints of this directory cover.
_A_LINK = "is a symbolic link; it is left alone"
# ELOOP: all links were resolved before, so a remaining link leads to itself.
_NOT_A_DIRECTORY = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})

_NamedStat = tuple[str, os.stat_result]


class _Root(NamedTuple):
    """Entries of the root by kind; ``links`` are symlinks with names of partition folders."""

    files: dict[str, FileRef]
    folders: list[FolderName]
    links: list[FolderName]
    foreign: list[Special]


def read_log_dir(path: str) -> LogDir:
    """Read a log directory.

    Args:
        path: path of the directory. Symlinks in it are resolved once; symlinks below the directory are not followed.

    Raises:
        NotALogDirError: the path is not a directory, or nothing in it shows that it is a log directory.
        UnreadableError: the directory, or a small file in its root, cannot be read. A partition folder that cannot be
            read is a value, see ``Partition.unreadable``.
    """
    whole = path
    try:
        whole = os.path.realpath(os.path.abspath(path))
        with opened_folder(whole) as root:
            status = os.fstat(root)
            return _read_root(whole, root, status)
    except OSError as error:
        if error.errno in _NOT_A_DIRECTORY:
            raise not_a_directory(path, KNOWN_FILES, error) from error
        raise UnreadableError(f"{shown_path(whole)}: could not be read: {why(error)}") from error


def read_partition(view: LogDir, folder: str) -> Partition:
    """Read one partition folder of a log directory again.

    Args:
        view: log directory as listed.
        folder: name of the folder.

    Raises:
        OSError: the log directory could not be opened.
    """
    path = f"{view.path}/{folder}"
    with opened_folder(view.path) as root:
        return _read_partition(parse_folder_name(folder), path, root)


def meta_of(log_dir: str) -> MetaProperties | None:
    """Read ``meta.properties`` of a log directory; None if it is missing or damaged.

    Raises:
        OSError: the directory does not exist, or the file cannot be read.
    """
    os.stat(log_dir)
    with Tree(log_dir) as tree:
        decoded = decode(tree.read(f"{log_dir}/{META_PROPERTIES}", MAX_BYTES + 1) or b"")
    return None if isinstance(decoded, Damage) else decoded


def _read_root(path: str, root: int, status: os.stat_result) -> LogDir:
    entries = _sorted_entries(path, root)
    known = any(name in entries.files for name in (*CHECKPOINTS, META_PROPERTIES))
    if not (entries.folders or known):
        raise _not_a_log_dir(path, entries)
    meta, meta_damage = _read_meta(path, root, entries.files.get(META_PROPERTIES))
    partitions = [_read_partition(name, f"{path}/{name.name}", root) for name in entries.folders]
    links = [
        _unread_partition(name, f"{path}/{name.name}", _A_LINK)._replace(is_link=True)
        for name in entries.links
    ]
    # Other folders may have names like partitions (``ImageMagick-6``), so one of them must hold a log.
    if not (known or any(partition.segments or partition.unreadable for partition in partitions)):
        raise _not_a_log_dir(path, entries)
    partitions = sorted([*partitions, *links], key=lambda partition: partition.folder)
    normal = [partition for partition in partitions if partition.role == "normal"]
    recovery_point, log_start, high_watermark, cleaner = (
        _read_checkpoint(path, root, entries.files.get(name)) for name in CHECKPOINTS
    )
    return LogDir(
        path=path,
        inode=status.st_ino,
        device=status.st_dev,
        uid=status.st_uid,
        gid=status.st_gid,
        mode=stat.S_IMODE(status.st_mode),
        host=socket.gethostname(),
        broker_id=meta.broker_id if meta else "",
        cluster_id=meta.cluster_id if meta else "",
        directory_id=meta.directory_id if meta else "",
        meta_version=meta.version if meta else -1,
        meta_properties=entries.files.get(META_PROPERTIES),
        meta_damage=meta_damage,
        clean_shutdown=CLEAN_SHUTDOWN in entries.files,
        partitions=tuple(sorted(normal, key=lambda partition: partition.key)),
        marked=tuple(partition for partition in partitions if partition.role != "normal"),
        foreign=tuple(entries.foreign),
        temporary=tuple(entries.files[name] for name in _TEMPORARY if name in entries.files),
        recovery_point=recovery_point,
        log_start=log_start,
        high_watermark=high_watermark,
        cleaner=cleaner,
    )


def _list_folder(folder: int) -> list[_NamedStat]:
    """List a folder by name, without files that disappear during the listing, such as a broker's temporary files."""
    listed = []
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                listed.append((entry.name, entry.stat(follow_symlinks=False)))
            except FileNotFoundError:
                continue
    return sorted(listed, key=itemgetter(0))


def _sorted_entries(path: str, root: int) -> _Root:
    files: dict[str, FileRef] = {}
    folders: list[FolderName] = []
    links: list[FolderName] = []
    foreign: list[Special] = []
    for name, status in _list_folder(root):
        if stat.S_ISDIR(status.st_mode):
            folder = parse_folder_name(name)
            if _is_partition_folder(folder):
                folders.append(folder)
                continue
        elif stat.S_ISLNK(status.st_mode) and _is_partition_folder(parse_folder_name(name)):
            links.append(parse_folder_name(name))
            continue
        elif stat.S_ISREG(status.st_mode) and name in KNOWN_FILES:
            files[name] = file_ref(name, path, status)
            continue
        # A broker loads whatever File.isDirectory calls a folder, even through a link.
        kind = "folder" if os.path.isdir(f"{path}/{name}") else kind_of(status.st_mode)
        if name not in KNOWN_FOLDERS:
            foreign.append(Special(name, f"{path}/{name}", kind))
    return _Root(files, folders, links, foreign)


def _is_partition_folder(folder: FolderName) -> bool:
    """Return whether a broker can have created the folder; it loads ``t-00`` too, but never creates it."""
    if folder.kind is FolderKind.FOREIGN or LEGAL_TOPIC.fullmatch(folder.topic) is None:
        return False
    return folder.kind is not FolderKind.PARTITION or (folder.is_canonical and folder.partition >= 0)


def _not_a_log_dir(path: str, entries: _Root) -> NotALogDirError:
    return not_a_log_dir(path, (special.name for special in entries.foreign))


def _read_meta(
    path: str, root: int, file: FileRef | None
) -> tuple[MetaProperties | None, tuple[Damage, ...]]:
    if file is None:
        return None, ()
    decoded = decode(_read_small(path, root, META_PROPERTIES, MAX_META_BYTES))
    return (None, (decoded,)) if isinstance(decoded, Damage) else (decoded, ())


def _read_checkpoint(path: str, root: int, file: FileRef | None) -> OffsetCheckpoint:
    if file is None:
        return OffsetCheckpoint(None)
    data = _read_small(path, root, file.name, MAX_CHECKPOINT_BYTES + 1)
    if len(data) > MAX_CHECKPOINT_BYTES:
        damage = Damage(0, file.size, f"at most {MAX_CHECKPOINT_BYTES} bytes", f"{file.size} bytes")
        return OffsetCheckpoint(file, too_large=damage)
    return OffsetCheckpoint(file, data)


def _read_small(path: str, root: int, name: str, at_most: int) -> bytes:
    try:
        return read_whole(name, at_most, root)
    except OSError as error:
        raise UnreadableError(f"{shown_path(path)}/{name}: could not be read: {why(error)}") from error


def _read_partition(name: FolderName, path: str, root: int) -> Partition:
    try:
        with opened_folder(name.name, root) as folder:
            status = os.fstat(folder)
            listed = _list_folder(folder)
    except OSError as error:
        forbidden = isinstance(error, PermissionError)
        return _unread_partition(name, path, f"could not be read: {why(error)}", forbidden=forbidden)
    contents = _Contents(path)
    for entry_name, entry in listed:
        contents.add(entry_name, entry)
    return contents.partition(name, _role(name), status)


def _role(name: FolderName) -> str:
    return "normal" if name.kind is FolderKind.PARTITION else name.kind.value


def _unread_partition(name: FolderName, path: str, because: str, *, forbidden: bool = False) -> Partition:
    """Build the value of a partition that was not read, with the reason."""
    return Partition(
        topic=name.topic,
        number=name.partition,
        folder=name.name,
        path=path,
        inode=0,
        role=_role(name),
        unreadable=f"{shown_path(path)}: {because}",
        forbidden=forbidden,
    )


class _Contents:
    """Collector of a partition folder's entries, which come in ascending order of their names."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._live: dict[FileKind, dict[int, FileRef]] = {kind: {} for kind in FileKind}
        self._single: dict[FileKind, FileRef] = {}
        self._leftovers: list[Leftover] = []
        self._private: list[PrivateFolder] = []
        self._specials: list[Special] = []

    def add(self, name: str, status: os.stat_result) -> None:
        if stat.S_ISREG(status.st_mode):
            self._add_file(parse_file_name(name), file_ref(name, self._path, status))
            return
        plan_id = plan_id_of(name) if stat.S_ISDIR(status.st_mode) else None
        if plan_id is None:
            self._specials.append(Special(name, f"{self._path}/{name}", kind_of(status.st_mode)))
        else:
            self._private.append(PrivateFolder(plan_id, name, f"{self._path}/{name}"))

    def _add_file(self, name: FileName, file: FileRef) -> None:
        offset = -1 if name.base_offset is None else name.base_offset
        if name.state is not NameState.LIVE:
            self._leftovers.append(Leftover(name.state.value.removeprefix("."), offset, file))
        elif not name.is_canonical:
            self._leftovers.append(Leftover("foreign", offset, file))
        elif name.base_offset is None:
            self._single[name.kind] = file
        else:
            self._live[name.kind][name.base_offset] = file

    def partition(self, name: FolderName, role: str, status: os.stat_result) -> Partition:
        snapshots = self._live[FileKind.SNAPSHOT]
        return Partition(
            topic=name.topic,
            number=name.partition,
            folder=name.name,
            path=self._path,
            inode=status.st_ino,
            role=role,
            segments=self._segments(),
            snapshots=tuple(Snapshot(offset, snapshots[offset]) for offset in sorted(snapshots)),
            leader_epoch_checkpoint=self._single.get(FileKind.LEADER_EPOCHS),
            partition_metadata=self._single.get(FileKind.PARTITION_METADATA),
            orphan_indexes=self._orphan_indexes(),
            leftovers=tuple(self._leftovers),
            private=tuple(self._private),
            specials=tuple(self._specials),
            folder_status=FolderStatus(status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)),
        )

    def _segments(self) -> tuple[Segment, ...]:
        logs = self._live[FileKind.LOG]
        of_index, of_time, of_txn = (self._of_kind(kind) for kind in INDEX_KINDS)
        return tuple(
            Segment(
                base_offset=base,
                log=logs[base],
                index=of_index(base),
                time_index=of_time(base),
                txn_index=of_txn(base),
            )
            for base in sorted(logs)
        )

    def _of_kind(self, kind: FileKind) -> Callable[[int], FileRef | None]:
        return self._live[kind].get

    def _orphan_indexes(self) -> tuple[FileRef, ...]:
        """List index files without a ``.log``. A ``.log`` of any kind counts, because a broker checks only the name."""
        taken = {special.name for special in self._specials}
        logs = self._live[FileKind.LOG]
        return tuple(
            sorted(
                file
                for kind in INDEX_KINDS
                for base, file in self._live[kind].items()
                if base not in logs and log_name(base) not in taken
            )
        )


class LockedDirs:
    """Log directories of other replicas whose locks apply holds, so that no broker changes them.

    These directories hold many partitions, so each is listed once, and not again for each partition of this broker.
    """

    def __init__(self) -> None:
        self._views: dict[str, LogDir] = {}

    def look(self, log_dir: str, folder: str) -> tuple[LogDir, Partition | None]:
        """Return a log directory, and one of its partition folders in its present state.

        Args:
            log_dir: absolute path of the log directory.
            folder: name of the folder.

        Returns:
            The directory as first listed; the folder, None if it did not exist then or no longer exists.

        Raises:
            NotALogDirError: the path is not a log directory.
            UnreadableError: the directory cannot be read.
        """
        view = self._views.get(log_dir)
        if view is None:
            view = self._views[log_dir] = read_log_dir(log_dir)
        if all(partition.folder != folder for partition in (*view.partitions, *view.marked)):
            return view, None
        try:
            return view, read_partition(view, folder)
        except OSError:
            return view, None


_BY_CONFIGURATION: Final = Next.of("check", "--config", CONFIG)
_FOLDERS_LOOKED_INTO: Final = 100
"""Number of folders examined: a home folder named by mistake may have any number of them."""


def not_a_directory(path: str, known_files: Iterable[str], error: OSError) -> NotALogDirError:
    """Build the error for a path at which there is no folder.

    Args:
        path: path as the operator gave it.
        known_files: names of files in the root of a log directory.
        error: error of the operating system.
    """
    if error.errno != errno.ENOTDIR or not os.path.isfile(path):
        return NotALogDirError(
            f"{shown_path(path)}: expected a Kafka log directory, but: {why(error)}; "
            "log.dirs in server.properties names those of a broker",
            next_command=_BY_CONFIGURATION,
        )
    name = os.path.basename(path)
    of_a_broker = name in known_files or parse_file_name(name).kind is not FileKind.FOREIGN
    verb = "dump" if of_a_broker else "show"
    description = "a file" if of_a_broker else "a file; krepair show reads a plan file"
    return NotALogDirError(
        f"{shown_path(path)}: expected a Kafka log directory, found {description}",
        next_command=Next.of(verb, path),
    )


def not_a_log_dir(path: str, foreign: Iterable[str]) -> NotALogDirError:
    """Build the error for a folder that nothing shows to be a log directory.

    Args:
        foreign: names in the folder that no broker writes, in order.
    """
    names = list(foreign)
    expected = f"{META_PROPERTIES}, a checkpoint file, or partition folders (topic-0) with logs"
    actual = ", ".join(shown(name) for name in names[:3]) or "nothing"
    if len(names) > 3:
        actual += f" and {len(names) - 3} more"
    hint, command = _advice_for_wrong_path(path, names)
    return NotALogDirError(
        f"{shown_path(path)}: not a Kafka log directory: expected {expected}, found {actual}; {hint}",
        next_command=command,
    )


def shown_path(path: str) -> str:
    """Escape a path to text that is safe to print on one line."""
    return path if path.isprintable() else path.encode("unicode_escape", "surrogatepass").decode("ascii")


def _advice_for_wrong_path(path: str, names: list[str]) -> tuple[str, Next]:
    if any(name.endswith(".log") for name in names):
        return (
            "it looks like a partition folder: give the directory that holds it",
            Next.of("check", os.path.dirname(path)),
        )
    below = (f"{path}/{name}" for name in islice(names, _FOLDERS_LOOKED_INTO))
    log_dirs = [folder for folder in below if os.path.isfile(f"{folder}/{META_PROPERTIES}")]
    if log_dirs:
        return "there is a log directory below it", Next.of("check", *log_dirs)
    empty = "a broker's folder that is empty was not formatted, or its disk is not mounted; "
    hint = "log.dirs in server.properties names the log directories of a broker"
    return f"{'' if set(names) - {'lost+found'} else empty}{hint}", _BY_CONFIGURATION


# -- the state of one broker's replicas, as its log directories show it without reading a log. Only a log shows its end
# and its damage: both are added when the log is read.

CURRENT: Final = "current"
"""Kind of a folder that a broker would serve. The other kinds are the marks in a folder's name."""
FUTURE: Final = "future"
"""Kind of a folder that a broker is about to turn into the replica."""


def futures_of(view: LogDir, topic: str, number: int) -> Iterator[Partition]:
    """Yield the ``-future`` folders of a partition in a log directory."""
    for folder in view.marked:
        if (folder.topic, folder.number, folder.role) == (topic, number, FUTURE):
            yield folder


def beside(view: LogDir, key: tuple[str, int]) -> str:
    """Return a clause that names the marked folders of a partition, which may hold its records; empty without any."""
    folders = [folder for folder in view.marked if folder.key == key]
    names = names_text([folder.folder for folder in folders])
    goes = "; the start deletes it" if any(folder.role == "delete" for folder in folders) else ""
    look = "copy it away, and look there first"
    return f"; {names} beside it may have the records ({look}{goes})" if folders else ""


class ReplicaState(Struct, frozen=True, kw_only=True):
    """One partition folder of one broker.

    Attributes:
        topic: topic name.
        partition: partition number.
        folder: folder name in its log directory.
        kind: ``current``, or the mark of the folder: ``future``, ``stray``, ``delete``.
        topic_id: topic id in ``partition.metadata``, 22 characters; empty if missing (before 2.8) or unreadable.
        log_start: log start offset; the greater of ``log-start-offset-checkpoint`` and the first segment's base offset.
        log_end: log end offset; -1 until the log is read.
        high_watermark: high watermark in ``replication-offset-checkpoint``, -1 for none.
        recovery_point: recovery point in the checkpoint, below which everything was flushed; -1 for none.
        cleaner_position: first dirty offset in this broker's cleaner checkpoint, -1 for none.
        clean_stop: True if the log directory has the clean-shutdown file.
        damage: damage of the folder or its log, or empty; until the log is read, of the folder only.
        log_dir: absolute path of the log directory.
        segments: base offsets of the segments, ascending.
        log_bytes: size of all ``.log`` files in bytes.
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
        """Name ``topic-partition``, the same on every broker."""
        return f"{self.topic}-{self.partition}"


class DirectoryState(Struct, frozen=True, kw_only=True):
    """One log directory of a broker.

    Attributes:
        path: absolute path; for a directory that was not read, the path in the configuration.
        directory_id: ``directory.id`` of ``meta.properties`` (KIP-858), may be empty.
        was_read: True if krepair read the directory. Replicas may lie in a directory that krepair did not read.
        clean_stop: True if the clean-shutdown file exists.
    """

    path: str
    directory_id: str = ""
    was_read: bool = True
    clean_stop: bool = False


class BrokerState(Struct, frozen=True, kw_only=True):
    """State of one broker's replicas, as read from its log directories.

    Attributes:
        cluster_id: ``cluster.id`` of its log directories, may be empty (2.2 and before).
        broker_id: ``broker.id`` or ``node.id``, may be empty.
        host: name of the host on which it was read.
        taken_ms: time at which reading began, in epoch milliseconds.
        directories: all known log directories of the broker.
        partitions: all partition folders of the directories that were read, ordered by topic, number and folder.
    """

    cluster_id: str
    broker_id: str
    host: str
    taken_ms: int
    directories: tuple[DirectoryState, ...] = ()
    partitions: tuple[ReplicaState, ...] = ()

    @property
    def whole(self) -> bool:
        """True if all known log directories were read; only then is a missing folder really missing."""
        return all(directory.was_read for directory in self.directories)


def read_broker(views: Sequence[LogDir], taken_ms: int, known_dirs: Iterable[str] = ()) -> BrokerState:
    """Build the state of one broker from its log directories, opening ``partition.metadata`` files but no logs.

    Args:
        views: log directories of the broker as listed, at least one.
        taken_ms: time at which reading began, in epoch milliseconds.
        known_dirs: paths of all log directories in the broker's configuration; those not in ``views`` count as not
            read.
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
        partitions=tuple(
            sorted(states, key=lambda replica: (replica.topic, replica.partition, replica.folder))
        ),
    )


def replica_states(view: LogDir) -> Iterator[ReplicaState]:
    """Yield every partition folder of a log directory, even marked ones, but not the controllers' log."""
    for partition in (*view.partitions, *view.marked):
        if partition.topic != METADATA_TOPIC:
            yield replica_state(view, partition)


def replica_state(view: LogDir, partition: Partition) -> ReplicaState:
    """Build the state of one partition folder.

    Args:
        view: log directory of the folder.
        partition: folder as listed.
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
        log_bytes=partition.log_bytes,
    )


def _topic_id(partition: Partition) -> tuple[str, str]:
    """Return (topic id or empty, damage of the file or empty)."""
    read = read_metadata(partition)
    if isinstance(read, Damage):
        return "", f"partition.metadata: {read.text}"
    return "" if read is None else partition_metadata.topic_id_text(read.topic_id), ""


def read_metadata(partition: Partition) -> PartitionMetadata | Damage | None:
    """Read the ``partition.metadata`` of a partition, if it has one; an unreadable file is damage."""
    file = partition.partition_metadata
    if file is None:
        return None
    try:
        return partition_metadata.decode(read_whole(file.path, partition_metadata.MAX_BYTES + 1))
    except OSError as error:
        return Damage(0, file.size, "a file that can be read", why(error))
