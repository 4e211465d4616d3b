"""The fence: while it is up, a broker that is started recovers the partition, and so rebuilds its indexes.

The recovery point of the partition is lowered to its first group, then the clean-shutdown marker is moved
into the private sub-folder; at the end both are given back. Every partial state is right (see the commit
protocol in the docs). A marker that was not there is never written, and one is not given back when a broker
has been started in
between: its files may then no longer be as a clean stop left them.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

import msgspec

from krepair.durable.attributes import read_attributes
from krepair.errors import RefusedError
from krepair.formats.checkpoint import OffsetEntry, decode_offsets, encode_offsets
from krepair.formats.filenames import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    FileKind,
    FileState,
    parse_file_name,
)
from krepair.journal.folder import PartitionFolder

MOST_CHECKPOINT_BYTES = 64 << 20
_LOWERED = "lowered"
_SEEN = "seen.json"
_ROOT_FILES = frozenset({CLEANER_CHECKPOINT, LOG_START_CHECKPOINT, META_PROPERTIES, REPLICATION_CHECKPOINT})
_ACTIVE_KINDS = frozenset({FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX})

Seen = dict[str, tuple[int, int, int]]
"""Path relative to the log directory -> size, mtime in nanoseconds, inode."""


class Point(NamedTuple):
    """Where recovery is to begin.

    Attributes:
        topic: of the partition.
        partition: its number.
        base_offset: of its first group.
    """

    topic: str
    partition: int
    base_offset: int


def lowered_points(data: bytes, point: Point, path: str) -> bytes | None:
    """The recovery-point file with the partition's line lowered to the point; pure.

    Args:
        data: the file's bytes.
        point: where recovery is to begin.
        path: of the file, for the message.

    Returns:
        The new bytes, or None if the line is not there (a broker then starts from 0) or low enough already.

    Raises:
        RefusedError: the file is not as a broker writes it; one that cannot read it does not start.
    """
    checkpoint = decode_offsets(data)
    if not data:
        return None
    if checkpoint.damage:
        damage = checkpoint.damage[0]
        message = (
            f"{path}: byte {damage.position}: expected {damage.expected}, found "
            f"{damage.found}; the fence needs it whole"
        )
        raise RefusedError(message, next_command=f"krepair check {os.path.dirname(path)}")
    key = (point.topic, point.partition)
    entries = [
        OffsetEntry(e.topic, e.partition, point.base_offset)
        if (e.topic, e.partition) == key and e.offset > point.base_offset
        else e
        for e in checkpoint.entries
    ]
    return None if tuple(entries) == checkpoint.entries else encode_offsets(entries)


class Fence:
    """The fence of one partition; both calls may be repeated after a crash at any instant.

    Args:
        folder: the partition folder; what is set aside lies in its private sub-folder.
        point: where recovery is to begin.
    """

    def __init__(self, folder: PartitionFolder, point: Point) -> None:
        self._disk = folder.disk
        self._folder = folder
        self._point = point
        self._log_dir = folder.log_dir
        self._place = f"{folder.private}/fence"
        self._root_points = f"{self._log_dir}/{RECOVERY_POINT_CHECKPOINT}"
        self._root_marker = f"{self._log_dir}/{CLEAN_SHUTDOWN}"
        self._points = f"{self._place}/{RECOVERY_POINT_CHECKPOINT}"
        self._marker = f"{self._place}/{CLEAN_SHUTDOWN}"

    def is_up(self) -> bool:
        """Whether a run, perhaps an interrupted one, has left anything of the fence."""
        return os.path.isdir(self._place)

    def put_up(self) -> None:
        """Lowers the point and sets the clean-shutdown marker aside.

        Raises:
            RefusedError: the recovery-point file is damaged.
            OSError: a call failed; ``lift`` gives everything back.
        """
        if self.is_up() and self._broker_started():
            self._clear()
        if not self.is_up():
            self._disk.make_dir(self._place)
            self._disk.sync_dir(self._folder.private)
        if self._seen() is None:
            self._remove(_SEEN)
            self._disk.create(f"{self._place}/{_SEEN}", msgspec.json.encode(_active_files(self._log_dir)))
        self._lower_points()
        if os.path.lexists(self._root_marker):
            self._disk.sync_dir(self._place)
            self._move(self._root_marker, self._marker)

    def _lower_points(self) -> None:
        root = _read(self._root_points)
        if root is None:
            return
        kept = _read(self._points)
        lowered = lowered_points(root if kept is None else kept, self._point, self._root_points)
        if lowered is None or root == lowered:
            return
        if kept is None:
            self._disk.link(self._root_points, self._points)
        self._remove(_LOWERED)
        new = f"{self._place}/{_LOWERED}"
        self._disk.create(new, lowered)
        self._disk.set_attributes(new, read_attributes(self._root_points))
        self._disk.sync_file(new)
        self._disk.sync_dir(self._place)
        self._move(new, self._root_points)

    def lift(self) -> bool:
        """Gives the recovery points and the marker back, unless a broker was started since the fence went up.

        Returns:
            Whether a broker was started in between. Its own files then stay as they are.

        Raises:
            OSError: a call failed; call it again.
        """
        if not self.is_up():
            return False
        seen = self._seen()
        started = seen is not None and any(
            _look(f"{self._log_dir}/{name}") != was for name, was in seen.items()
        )
        self._give_points_back(started=started)
        if os.path.lexists(self._marker) and not started and not os.path.lexists(self._root_marker):
            self._move(self._marker, self._root_marker)
        self._clear()
        return started

    def _broker_started(self) -> bool:
        seen = self._seen()
        return seen is not None and any(_look(f"{self._log_dir}/{name}") != was for name, was in seen.items())

    def _clear(self) -> None:
        # What was seen goes last: while the marker is here, it says whether it may be given back.
        for name in (CLEAN_SHUTDOWN, _LOWERED, RECOVERY_POINT_CHECKPOINT, _SEEN):
            self._remove(name)
        self._disk.remove_dir(self._place)
        self._disk.sync_dir(self._folder.private)

    def _remove(self, name: str) -> None:
        if os.path.lexists(f"{self._place}/{name}"):
            self._disk.unlink(f"{self._place}/{name}")

    def _give_points_back(self, *, started: bool) -> None:
        kept, root = _read(self._points), _read(self._root_points)
        if kept is None or root is None or started:
            return
        # The point was lowered by us and nobody wrote the file since: the same bytes can only be ours.
        if root == lowered_points(kept, self._point, self._points):
            self._move(self._points, self._root_points)

    def _seen(self) -> Seen | None:
        """None after a crash before it was written: then nothing had been touched."""
        data = _read(f"{self._place}/{_SEEN}")
        try:
            return msgspec.json.decode(data, type=Seen) if data is not None else None
        except msgspec.MsgspecError:
            return None

    def _move(self, source: str, target: str) -> None:
        self._disk.rename(source, target)
        self._disk.sync_dir(os.path.dirname(target))
        self._disk.sync_dir(os.path.dirname(source))


def _read(path: str) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(MOST_CHECKPOINT_BYTES + 1)
    if len(data) > MOST_CHECKPOINT_BYTES:
        raise RefusedError(f"{path}: larger than {MOST_CHECKPOINT_BYTES} bytes")
    return data


def _look(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino


def _active_files(log_dir: str) -> Seen:
    """The files that every unclean start changes: those of each partition's active segment.

    Recovery resets and resizes the indexes of the last segment even when its log is right
    (``LogSegment.recover``).
    """
    seen: Seen = {}
    with os.scandir(log_dir) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and entry.name.isascii():
                seen.update(_active_files_of(log_dir, entry.name))
            elif entry.is_file(follow_symlinks=False) and entry.name in _ROOT_FILES:
                found = entry.stat(follow_symlinks=False)
                seen[entry.name] = (found.st_size, found.st_mtime_ns, found.st_ino)
    return seen


def _active_files_of(log_dir: str, folder: str) -> Seen:
    try:
        names = [parse_file_name(name) for name in os.listdir(f"{log_dir}/{folder}")]
    except FileNotFoundError:
        return {}
    live = [n for n in names if n.kind in _ACTIVE_KINDS and n.state is FileState.LIVE and n.is_canonical]
    logs = [n.base_offset for n in live if n.kind is FileKind.LOG and n.base_offset is not None]
    seen: Seen = {}
    for name in live:
        if logs and name.base_offset == max(logs):
            found = os.lstat(f"{log_dir}/{folder}/{name.name}")
            if stat.S_ISREG(found.st_mode):
                seen[f"{folder}/{name.name}"] = (found.st_size, found.st_mtime_ns, found.st_ino)
    return seen
