"""The log directories of other replicas: each is listed once in a run, and then its root alone is looked at again."""

from __future__ import annotations

import os
import socket
from typing import NamedTuple

from krepair.logdir.reading import opened_folder
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import KNOWN_FILES, read_log_dir, read_partition


class _Root(NamedTuple):
    """What one listing of names tells of a log directory. As long as it is the same, so is all but the partitions.

    Attributes:
        host: name of this host.
        directory: device and inode number.
        folders: names of its folders and links.
        files: name, size, time in nanoseconds and inode number of the files of a broker.
    """

    host: str
    directory: tuple[int, int]
    folders: frozenset[str]
    files: frozenset[tuple[str, int, int, int]]


class _Kept(NamedTuple):
    """A log directory as listed.

    Attributes:
        root: as it was right before.
        partitions: names of the partition folders, those that a broker marked too.
        view: without its partitions.
    """

    root: _Root | None
    partitions: frozenset[str]
    view: LogDir


class LockedDirs:
    """Log directories of other replicas. Their partitions are many, and are not all listed again for each of ours."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    def look(self, log_dir: str, folder: str) -> tuple[LogDir, Partition | None]:
        """A log directory, and one partition folder of it, as they are now.

        Args:
            log_dir: absolute path of the log directory.
            folder: name of the folder.

        Returns:
            The directory without its partitions, but with the folders that a broker marked; and the folder, None if it
            is not there.

        Raises:
            NotALogDirError: it is no log directory any more.
            UnreadableError: it cannot be read.
        """
        root, kept = _root_of(log_dir), self._kept.get(log_dir)
        if kept is not None and root is not None and root == kept.root and folder in kept.partitions:
            here = _read(kept.view, folder)
            if here is not None:
                return kept.view, here
        listed = read_log_dir(log_dir)
        every = {one.folder: one for one in (*listed.partitions, *listed.marked)}
        view = listed._replace(partitions=())
        self._kept[log_dir] = _Kept(root, frozenset(every), view)
        return view, every.get(folder)


def _root_of(log_dir: str) -> _Root | None:
    """None if it cannot be listed."""
    folders, files = set[str](), set[tuple[str, int, int, int]]()
    try:
        with opened_folder(log_dir) as root:
            status = os.fstat(root)
            with os.scandir(root) as entries:
                for entry in entries:
                    if entry.name in KNOWN_FILES:
                        file = entry.stat(follow_symlinks=False)
                        files.add((entry.name, file.st_size, file.st_mtime_ns, file.st_ino))
                    elif entry.is_symlink() or entry.is_dir(follow_symlinks=False):
                        folders.add(entry.name)
    except OSError:
        return None
    directory = (status.st_dev, status.st_ino)
    return _Root(socket.gethostname(), directory, frozenset(folders), frozenset(files))


def _read(view: LogDir, folder: str) -> Partition | None:
    """A partition folder; None if it cannot be read: then a listing of the whole directory says what it is."""
    try:
        partition = read_partition(view, folder)
    except OSError:
        return None
    return None if partition.unreadable else partition
