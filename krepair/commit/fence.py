"""Recovery guard of a partition: while it is set, a starting broker recovers the partition's log.

The recovery rebuilds the partition's indexes. To set the guard, krepair lowers the partition's recovery point to the
base offset of its first group and moves the clean-shutdown file ("marker") into the work folder; at the end krepair
restores both. Every intermediate state is safe (docs/crash-safety.md). krepair never writes a new marker. If a broker
was started in between, krepair does not restore the marker, because the files may then differ from those that the clean
stop left.

A partition that could not be finished keeps its guard while other partitions are changed. So several guards, of one
plan or of several plans, may be set at once. All guards share one marker: the marker lies in one of the guards and is
restored when the last guard is lifted. Each guard restores only its own partition's entry in the recovery points.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from krepair.commit.folder import PartitionFolder, is_made
from krepair.durable.attributes import read_attributes
from krepair.durable.disk import Disk, put_whole
from krepair.durable.tree import Tree
from krepair.errors import RefusedError
from krepair.formats.checkpoint import CheckpointEntry, decode_offsets, encode_offsets
from krepair.formats.filenames import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    FileKind,
    FolderKind,
    NameState,
    parse_file_name,
    parse_folder_name,
    plan_id_of,
)
from krepair.next_command import Next

MOST_CHECKPOINT_BYTES = 64 << 20
MOST_SEEN_BYTES = 256 << 20
_LOWERED = "lowered"
_RAISED = "raised"
_SEEN = "seen.json"
_SEEN_NEW = "seen.json.new"
_LOG: Final = logging.getLogger(__name__)
_ROOT_FILES = frozenset({CLEANER_CHECKPOINT, LOG_START_CHECKPOINT, META_PROPERTIES, REPLICATION_CHECKPOINT})
_ACTIVE_KINDS = frozenset({FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX})

Seen = dict[str, tuple[int, int] | None]
"""(size in bytes, mtime in nanoseconds) by path relative to the log directory; None if the file does not exist."""

_DAMAGED: Final[Seen] = {META_PROPERTIES: (-1, -1)}
"""Value for a list of watched files that cannot be read: a broker may have been started since.

krepair then acts as if a broker was started, and restores neither the clean-shutdown marker nor the recovery point.
"""


class Point(NamedTuple):
    """Lowered recovery point of a partition.

    Attributes:
        topic: topic of the partition.
        partition: number of the partition.
        base_offset: base offset of the partition's first group.
    """

    topic: str
    partition: int
    base_offset: int


def lowered_points(data: bytes, point: Point, path: str) -> bytes | None:
    """Return the content of the recovery-point file with the partition's entry lowered to a point.

    Args:
        data: content of the file.
        point: offset from which recovery is to begin.
        path: path of the file, for the message.

    Returns:
        The new content, or None if the entry is missing (a broker then recovers from offset 0) or is already low
            enough.

    Raises:
        RefusedError: the file is damaged; a broker that cannot read it does not start.
    """
    if not data:
        return None
    entries = _entries(data, path)
    key = (point.topic, point.partition)
    new = [
        CheckpointEntry(e.topic, e.partition, point.base_offset)
        if (e.topic, e.partition) == key and e.offset > point.base_offset
        else e
        for e in entries
    ]
    return None if tuple(new) == entries else encode_offsets(new)


def raised_points(data: bytes, kept: bytes, point: Point, path: str) -> bytes | None:
    """Return the content of the recovery-point file with the partition's original entry.

    Args:
        data: present content of the file.
        kept: content of the file before the entry was lowered.
        point: lowered offset of the partition.
        path: path of the file, for the message.

    Returns:
        The new content, or None if the entry no longer has the lowered offset.

    Raises:
        RefusedError: one of the files is damaged.
    """
    key = (point.topic, point.partition)
    before = next((e.offset for e in _entries(kept, path) if (e.topic, e.partition) == key), None)
    entries = _entries(data, path)
    lowered = CheckpointEntry(point.topic, point.partition, point.base_offset)
    if before is None or lowered not in entries:
        return None
    return encode_offsets([e._replace(offset=before) if e == lowered else e for e in entries])


def _entries(data: bytes, path: str) -> tuple[CheckpointEntry, ...]:
    checkpoint = decode_offsets(data)
    if checkpoint.damage:
        damage = checkpoint.damage[0]
        raise RefusedError(
            f"{path}: byte {damage.position}: {damage.text}; krepair changes a line "
            "of this file while it works, and so needs it undamaged. If the undo of another plan has put the damage "
            "back, apply that plan again first",
            next_command=Next.of("check", os.path.dirname(path)),
        )
    return checkpoint.entries


def check_one_mount(folder: PartitionFolder) -> None:
    """Check that a recovery guard can be set: the kernel moves no file between the root and a folder on another mount.

    Raises:
        RefusedError: the partition folder is a mount point of its own.
        OSError: a folder could not be opened.
    """
    if _mount_of(folder.tree, folder.path) != _mount_of(folder.tree, folder.log_dir):
        raise RefusedError(
            f"{folder.path}: is a mount point of its own, so the clean-shutdown file and the recovery points cannot be "
            "moved into it while its segments are swapped (the recovery guard); nothing was changed in this "
            "partition: stop the broker, and move the partition's files into a plain folder of the log directory"
        )


def _mount_of(tree: Tree, path: str) -> str:
    """Return the id of a folder's mount; a bind mount of the same file system has another one."""
    opened = tree.open_folder(path)
    try:
        with open(f"/proc/self/fdinfo/{opened}", encoding="ascii") as lines:
            return next((line for line in lines if line.startswith("mnt_id:")), "")
    finally:
        os.close(opened)


class Fence:
    """Recovery guard of one partition; ``put_up`` and ``lift`` may be repeated after a crash at any instant.

    Args:
        folder: partition folder, whose work folder holds the guard's files.
        point: offset from which recovery is to begin.
        watch: guards of the whole log directory; None if this run has no other guards in the directory.
    """

    def __init__(self, folder: PartitionFolder, point: Point, watch: Watch | None = None) -> None:
        self._watch = watch or Watch(folder.disk, folder.log_dir)
        self._disk = folder.disk
        self._tree = folder.tree
        self._folder = folder
        self._point = point
        self._log_dir = folder.log_dir
        self.place = f"{folder.private}/fence"
        self._root_points = f"{self._log_dir}/{RECOVERY_POINT_CHECKPOINT}"
        self._root_marker = f"{self._log_dir}/{CLEAN_SHUTDOWN}"
        self._points = f"{self.place}/{RECOVERY_POINT_CHECKPOINT}"
        self._marker = f"{self.place}/{CLEAN_SHUTDOWN}"
        self.keeps_marker_away = False
        """True if the marker was not restored because a broker may have been started while the guard was set."""

    def is_up(self) -> bool:
        """Return whether the guard is set, or an interrupted run left any part of the guard.

        Raises:
            OSError: the folder of the guard could not be read.
        """
        return self._tree.is_folder(self.place)

    def put_up(self) -> None:
        """Set the guard: lower the recovery point and move the clean-shutdown marker into the guard.

        Raises:
            RefusedError: the recovery-point file is damaged; or see ``check_one_mount``.
            OSError: a call failed; ``lift`` restores everything.
        """
        check_one_mount(self._folder)
        owner = self._folder.owner()
        _LOG.info("%s: guard is set", self._folder.folder)
        if self.is_up() and self._broker_started():
            self.forget()
        if is_made(self._disk, self.place, 0o700, owner):
            self._make_durable(self.place)
        else:
            self._disk.make_dir(self.place, owner=owner)
            self._disk.sync_dir(self._folder.private)
        self._watch.is_up(self.place)
        if _read_seen(self._tree, self.place) is None:
            self._remove(_SEEN)
            seen = msgspec.json.encode(self._watch.seen())
            self._disk.create(f"{self.place}/{_SEEN}", seen, owner=owner)
            self._watch.put_up_here(self.place)
        # Make the list of watched files durable before any file of the root changes: without the list, a later run
        # could not tell whether a broker was started.
        self._disk.sync_dir(self.place)
        self._lower_points()
        if self._tree.is_there(self._root_marker):
            self._move(self._root_marker, self._marker)

    def _make_durable(self, place: str) -> None:
        """Sync a guard of an earlier run, because that run may have been killed before it synced every part.

        If a power cut destroys the list of watched files, the guard acts as if a broker was started. A guard that holds
        neither marker nor recovery points may have no list yet, or an incomplete list: then this method writes the
        list.
        """
        if self._watch.was_put_up_here(place):
            return
        seen = _read_seen(self._tree, place)
        set_aside = (CLEAN_SHUTDOWN, RECOVERY_POINT_CHECKPOINT)
        if (seen is None or seen == _DAMAGED) and not any(
            self._tree.is_there(f"{place}/{name}") for name in set_aside
        ):
            seen = self._watch.seen()
        if seen is not None:
            _write_seen(self._disk, place, seen)
        self._disk.sync_dir(os.path.dirname(place))

    def _lower_points(self) -> None:
        root = _read(self._tree, self._root_points)
        if root is None:
            return
        lowered = lowered_points(root, self._point, self._root_points)
        if lowered is None:
            return
        self._remove(RECOVERY_POINT_CHECKPOINT)
        self._disk.link(self._root_points, self._points)
        self._replace_points(_LOWERED, lowered)

    def _replace_points(self, name: str, data: bytes) -> None:
        self._remove(name)
        new = f"{self.place}/{name}"
        self._disk.create(new, data, read_attributes(self._root_points, self._tree))
        self._disk.sync_dir(self.place)
        self._move(new, self._root_points)

    def lift(self) -> bool:
        """Lift the guard: restore recovery point and marker, unless a broker was started while the guard was set.

        Returns:
            True if a broker was started in between; then the files of the root are not changed.

        Raises:
            OSError: a call failed; call it again.
        """
        if not self.is_up():
            return False
        started = self._broker_started()
        _LOG.info("%s: guard is lifted%s", self._folder.folder, ", a broker was started" if started else "")
        if started:
            self.forget()
        else:
            self._give_point_back()
            self._give_marker_back()
            self._clear()
        return started

    def forget(self) -> None:
        """Lift the guard after a broker's start, without restoring the marker or the recovery point."""
        self.keeps_marker_away = self.keeps_marker_away or self._tree.is_there(self._marker)
        self._clear()

    def _broker_started(self) -> bool:
        seen = _read_seen(self._tree, self.place)
        if seen is None:
            return False
        names = self._watch.names_to_look_at(self.place, seen, self._folder.folder)
        return any(_look(self._tree, f"{self._log_dir}/{name}") != seen[name] for name in names)

    def _give_point_back(self) -> None:
        kept, root = _read(self._tree, self._points), _read(self._tree, self._root_points)
        if kept is None or root is None:
            return
        try:
            lowered = lowered_points(kept, self._point, self._points)
        except RefusedError:
            return  # the file was damaged since; a low point only makes the next start slower
        if root == lowered:
            self._move(self._points, self._root_points)
            return
        # Another guard has changed its own partition's entry since.
        raised = raised_points(root, kept, self._point, self._root_points)
        if raised is not None:
            self._replace_points(_RAISED, raised)

    def _give_marker_back(self) -> None:
        if not self._tree.is_there(self._marker) or self._tree.is_there(self._root_marker):
            return
        others = [place for place in self._watch.places() if place != self.place]
        if others:
            self._make_durable(others[0])
        # While another partition is unfinished, its guard takes the marker: a clean start would trust its half-changed
        # files.
        self._move(self._marker, f"{others[0]}/{CLEAN_SHUTDOWN}" if others else self._root_marker)

    def _clear(self) -> None:
        for name in (CLEAN_SHUTDOWN, _LOWERED, _RAISED, RECOVERY_POINT_CHECKPOINT, _SEEN_NEW):
            self._remove(name)
        # Sync the other removals before the list is removed: a guard that still holds the marker needs the list.
        self._disk.sync_dir(self.place)
        self._remove(_SEEN)
        self._disk.remove_dir(self.place)
        self._disk.sync_dir(self._folder.private)
        self._watch.is_down(self.place)

    def _remove(self, name: str) -> None:
        if self._tree.is_there(f"{self.place}/{name}"):
            self._disk.unlink(f"{self.place}/{name}")

    def _move(self, source: str, target: str) -> None:
        self._disk.rename(source, target)
        self._disk.sync_dir(os.path.dirname(target))
        self._disk.sync_dir(os.path.dirname(source))


class Watch:
    """State of all guards of a log directory, and of the watched files whose changes show that a broker was started.

    A run reads guards and files once, under the log directory's lock, and then adds its own changes.
    """

    def __init__(self, disk: Disk, log_dir: str) -> None:
        self._disk = disk
        self._log_dir = log_dir
        self._places: list[str] | None = None
        self._entries: dict[str, Seen] | None = None
        self._seen: Seen | None = None
        self._changed_here: set[str] = set()
        self._put_up_here: set[str] = set()

    def places(self) -> list[str]:
        """Return the sorted paths of all guards that are set, of any plan.

        Raises:
            OSError: a folder could not be read.
        """
        if self._places is None:
            self._places = standing_fences(self._disk.tree, self._log_dir)
        return self._places

    def keeps_marker(self) -> bool:
        """Return whether a guard holds the clean-shutdown marker.

        Raises:
            OSError: a guard could not be read.
        """
        return any(self._disk.tree.is_there(f"{place}/{CLEAN_SHUTDOWN}") for place in self.places())

    def is_up(self, place: str) -> None:
        """Record that a guard was set."""
        self._places = sorted({*self.places(), place})

    def put_up_here(self, place: str) -> None:
        """Record that this run, not an earlier run, set a guard."""
        self._put_up_here.add(place)

    def was_put_up_here(self, place: str) -> bool:
        """Return whether this run set a guard."""
        return place in self._put_up_here

    def names_to_look_at(self, place: str, seen: Seen, folder: str) -> list[str]:
        """Return the watched files to check before a guard is lifted.

        For a guard of an earlier run, all watched files are returned. For a guard of this run, those of the root and of
        the partition itself are enough, because this run holds the lock, which keeps brokers out, and checks the lock
        before it lifts a guard. Checking all files for every partition would take time quadratic in the number of
        partitions.

        Args:
            place: path of the guard.
            seen: states of the watched files when the guard was set.
            folder: name of the partition folder.
        """
        if place not in self._put_up_here:
            return list(seen)
        return [name for name in seen if "/" not in name or name.startswith(f"{folder}/")]

    def is_down(self, place: str) -> None:
        """Record that a guard was lifted."""
        self._put_up_here.discard(place)
        self._places = [other for other in self.places() if other != place]

    def seen(self) -> Seen:
        """Return the states in which this run found the files that every unclean start changes.

        Only files that this run itself has changed are read again. Any other change may be a broker's, so a guard that
        is raised later must be compared with the first state.

        Raises:
            OSError: a folder could not be read.
        """
        tree = self._disk.tree
        if self._entries is None:
            self._entries = {
                name: _watched(tree, self._log_dir, name, found)
                for name, found in tree.entries(self._log_dir)
            }
            self._seen = None
            self._changed_here.clear()
        for name in sorted(self._changed_here):
            found = tree.status(f"{self._log_dir}/{name}")
            self._entries[name] = {} if found is None else _watched(tree, self._log_dir, name, found)
            self._seen = None
            self._changed_here.discard(name)
        if self._seen is None:
            self._seen = {path: was for seen in self._entries.values() for path, was in seen.items()}
        return self._seen

    def look_again(self, paths: Iterable[str]) -> None:
        """Record that krepair itself changed these files, so that their folders are read again.

        Args:
            paths: paths relative to the log directory.
        """
        self._changed_here.update(path.partition("/")[0] for path in paths)

    @contextlib.contextmanager
    def our_own_change(self, paths: Iterable[str]) -> Iterator[None]:
        """Mark changes of these files as krepair's own while open, so that no guard mistakes them for a broker's start.

        Args:
            paths: paths of the files that will change, relative to the log directory.

        Raises:
            OSError: a call failed. Then a guard may no longer watch some of these files, which is safe.
        """
        names = frozenset(paths)
        tree = self._disk.tree
        watching = [
            (place, seen)
            for place in self.places()
            if (seen := _read_seen(tree, place)) is not None and not names.isdisjoint(seen)
        ]
        for place, seen in watching:
            _write_seen(self._disk, place, {name: was for name, was in seen.items() if name not in names})
        try:
            yield
        finally:
            self.look_again(names)
        for place, seen in watching:
            now = {name: _look(tree, f"{self._log_dir}/{name}") for name in names if name in seen}
            _write_seen(self._disk, place, seen | now)


def standing_fences(tree: Tree, log_dir: str) -> list[str]:
    """Return the sorted paths of all guards that are set in a log directory, of any plan.

    Raises:
        OSError: a folder could not be read.
    """
    places = []
    for folder, status in tree.entries(log_dir):
        if not stat.S_ISDIR(status.st_mode) or parse_folder_name(folder).kind is FolderKind.FOREIGN:
            continue
        with contextlib.suppress(FileNotFoundError):  # a broker just deleted the folder with its topic
            names = (name for name in tree.names(f"{log_dir}/{folder}") if plan_id_of(name) is not None)
            # krepair makes no links with the name of a work folder.
            private = [place for name in names if tree.is_folder(place := f"{log_dir}/{folder}/{name}")]
            fences = (f"{place}/fence" for place in private)
            places += [place for place in fences if tree.is_folder(place)]
    return places


def _write_seen(disk: Disk, place: str, seen: Seen) -> None:
    old = disk.tree.status(place)
    owner = (old.st_uid, old.st_gid) if old else None
    data = msgspec.json.encode(seen)
    put_whole(
        disk,
        f"{place}/{_SEEN}",
        f"{place}/{_SEEN_NEW}",
        lambda new: disk.create(new, data, owner=owner),
    )


def _read_seen(tree: Tree, place: str) -> Seen | None:
    """Return the watched files of a guard; None if the list is not written yet, ``_DAMAGED`` for a damaged list."""
    data = tree.read(f"{place}/{_SEEN}", MOST_SEEN_BYTES)
    try:
        return msgspec.json.decode(data, type=Seen) if data is not None else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _DAMAGED


def _read(tree: Tree, path: str) -> bytes | None:
    data = tree.read(path, MOST_CHECKPOINT_BYTES + 1)
    if data is not None and len(data) > MOST_CHECKPOINT_BYTES:
        raise RefusedError(f"{path}: larger than {MOST_CHECKPOINT_BYTES} bytes")
    return data


def _look(tree: Tree, path: str) -> tuple[int, int] | None:
    status = tree.status(path)
    return None if status is None else (status.st_size, status.st_mtime_ns)


def _watched(tree: Tree, log_dir: str, name: str, found: os.stat_result) -> Seen:
    """Return the files of one entry of the log directory that every unclean start changes.

    Recovery resets and resizes the indexes of the last segment even if its log is undamaged (``LogSegment.recover``).
    """
    if stat.S_ISDIR(found.st_mode) and name.isascii():
        with contextlib.suppress(FileNotFoundError):
            return _active_files_of(tree, log_dir, name)
    elif stat.S_ISREG(found.st_mode) and name in _ROOT_FILES:
        return {name: (found.st_size, found.st_mtime_ns)}
    return {}


def _active_files_of(tree: Tree, log_dir: str, folder: str) -> Seen:
    files = [(parse_file_name(name), found) for name, found in tree.entries(f"{log_dir}/{folder}")]
    live = [
        (name, found)
        for name, found in files
        if name.kind in _ACTIVE_KINDS and name.state is NameState.LIVE and name.is_canonical
    ]
    logs = [
        name.base_offset for name, _ in live if name.kind is FileKind.LOG and name.base_offset is not None
    ]
    return {
        f"{folder}/{name.name}": (found.st_size, found.st_mtime_ns)
        for name, found in live
        if logs and name.base_offset == max(logs) and stat.S_ISREG(found.st_mode)
    }
