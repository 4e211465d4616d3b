"""Reads a log directory into values. It follows no symlink below the directory and writes nothing.

It calls ``lstat`` once for each file. It opens only the small files of the root.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import stat
from collections.abc import Callable
from operator import itemgetter
from typing import NamedTuple

from krepair.durable.tree import Tree
from krepair.errors import NotALogDirError, UnreadableError
from krepair.formats.damage import Damage
from krepair.formats.filenames import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    INDEX_KINDS,
    LOCK,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
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
from krepair.logdir.not_a_log_dir import not_a_directory, not_a_log_dir, shown_path
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

CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT, REPLICATION_CHECKPOINT, CLEANER_CHECKPOINT)
# A broker writes these and then renames them; a crash leaves them.
_TEMPORARY = tuple(f"{name}.tmp" for name in (*CHECKPOINTS, META_PROPERTIES))
# bootstrap.checkpoint: KRaft, made by the format command (BootstrapDirectory, 3.3)
KNOWN_FILES = frozenset(
    {*CHECKPOINTS, *_TEMPORARY, META_PROPERTIES, CLEAN_SHUTDOWN, LOCK, "bootstrap.checkpoint"}
)
# Ignored by LogManager.loadLogs (RemoteIndexCache.DIR_NAME, 3.6)
KNOWN_FOLDERS = frozenset({"remote-log-index-cache"})
# Topic.LEGAL_CHARS; a broker makes no folder with another name.
LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
# Room for a million lines with usual topic names. No host has so many partition folders.
MAX_CHECKPOINT_BYTES = 64 << 20
MAX_META_BYTES = (1 << 20) + 1

# A broker would follow the link to a place that neither its lock nor the checkpoints of this directory cover.
_A_LINK = "is a symbolic link; it is left alone"
# ELOOP: all links were resolved before, so a link that is still there leads to itself.
_NOT_A_DIRECTORY = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})

_NamedStat = tuple[str, os.stat_result]


class _Root(NamedTuple):
    """The entries of the root by kind; ``links`` are symlinks with names of partition folders."""

    files: dict[str, FileRef]
    folders: list[FolderName]
    links: list[FolderName]
    foreign: list[Special]


def read_log_dir(path: str) -> LogDir:
    """Read a log directory.

    Args:
        path: path of the directory. Symlinks on the way to it are resolved once; symlinks below it are not followed.

    Raises:
        NotALogDirError: it is not a directory, or nothing in it shows that it is a log directory.
        UnreadableError: the directory, or a small file in its root, could not be read. A partition folder that could
            not be read is a value, see ``Partition.unreadable``.
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
        view: the log directory.
        folder: name of the folder.

    Raises:
        OSError: the log directory could not be opened.
    """
    path = f"{view.path}/{folder}"
    with opened_folder(view.path) as root:
        return _read_partition(parse_folder_name(folder), path, root)


def meta_of(log_dir: str) -> MetaProperties | None:
    """What ``meta.properties`` says of a log directory; None where it is not there, or cannot be read.

    Raises:
        OSError: the directory is not there.
    """
    os.stat(log_dir)
    with Tree(log_dir) as tree, contextlib.suppress(OSError):
        found = decode(tree.read(f"{log_dir}/{META_PROPERTIES}", MAX_BYTES + 1) or b"")
        return None if isinstance(found, Damage) else found
    return None


def _read_root(path: str, root: int, status: os.stat_result) -> LogDir:
    entries = _sorted_entries(path, root)
    known = any(name in entries.files for name in (*CHECKPOINTS, META_PROPERTIES))
    if not (entries.folders or known):
        raise _not_a_log_dir(path, entries)
    meta, meta_damage = _read_meta(path, root, entries.files.get(META_PROPERTIES))
    partitions = [_read_partition(name, f"{path}/{name.name}", root) for name in entries.folders]
    links = [
        _left_alone(name, f"{path}/{name.name}", _A_LINK)._replace(is_link=True) for name in entries.links
    ]
    # Other folders may look like partitions by name (``ImageMagick-6``), so one of them must hold a log.
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


def _listed(folder: int) -> list[_NamedStat]:
    """List a folder by name. A file that is removed meanwhile (a temporary file of the broker) is not listed."""
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
    for name, status in _listed(root):
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
        # A broker loads whatever File.isDirectory calls a folder: through a link, too.
        kind = "folder" if os.path.isdir(f"{path}/{name}") else kind_of(status.st_mode)
        if name not in KNOWN_FOLDERS:
            foreign.append(Special(name, f"{path}/{name}", kind))
    return _Root(files, folders, links, foreign)


def _is_partition_folder(folder: FolderName) -> bool:
    """Whether a broker can have made the folder. It would load ``t-00`` too, but it makes no folder of that name."""
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
            listed = _listed(folder)
    except OSError as error:
        forbidden = isinstance(error, PermissionError)
        return _left_alone(name, path, f"could not be read: {why(error)}", forbidden=forbidden)
    contents = _Contents(path)
    for entry_name, entry in listed:
        contents.add(entry_name, entry)
    return contents.partition(name, _role(name), status)


def _role(name: FolderName) -> str:
    return "normal" if name.kind is FolderKind.PARTITION else name.kind.value


def _left_alone(name: FolderName, path: str, because: str, *, forbidden: bool = False) -> Partition:
    """A partition that was not read; only the reason is known."""
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
    """Collects the entries of a partition folder; their names come in ascending order."""

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
        """Index files without ``.log``. A ``.log`` that is not a file counts: a broker only looks for the name."""
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
    """Log directories of other replicas, whose locks apply holds: no broker changes them meanwhile.

    Their partitions are many, and are not all listed again for each of ours.
    """

    def __init__(self) -> None:
        self._views: dict[str, LogDir] = {}

    def look(self, log_dir: str, folder: str) -> tuple[LogDir, Partition | None]:
        """A log directory, and one partition folder of it as it is now.

        Args:
            log_dir: absolute path of the log directory.
            folder: name of the folder.

        Returns:
            The directory as it was listed first; and the folder, None if it was not there, or is not any more.

        Raises:
            NotALogDirError: it is no log directory.
            UnreadableError: it cannot be read.
        """
        view = self._views.get(log_dir)
        if view is None:
            view = self._views[log_dir] = read_log_dir(log_dir)
        if all(one.folder != folder for one in (*view.partitions, *view.marked)):
            return view, None
        try:
            return view, read_partition(view, folder)
        except OSError:
            return view, None
