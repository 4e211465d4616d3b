"""The scratch folder, for data that does not fit into memory. It is never in a log directory.

It is removed at the end of the run, or when a signal ends krepair. After a SIGKILL it stays, and the next run that
creates a scratch folder beside it removes it: a run holds a lock in its folder, so if the lock is free, the run has
ended.

The folder holds hashes and offsets, but no record bytes. Its files need no sync, because nothing depends on them later:
the result of a compaction is verified without them.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import signal
import stat
import uuid
from collections.abc import Iterable
from types import FrameType
from typing import Any, Final

import numpy as np
from msgspec import Struct

from krepair.durable.written import note
from krepair.errors import RefusedError
from krepair.formats.arrays import Int64s
from krepair.next_command import SCRATCH

_PREFIX: Final = "krepair-scratch-"
_LOCK: Final = "owner.lock"
_LOCK_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


def make_scratch(parent: str, log_dirs: Iterable[str], *, asked: bool) -> str:
    """Create a scratch folder that only this user can read.

    Args:
        parent: path of the folder in which the scratch folder is created.
        log_dirs: log directories. The scratch folder must not be on their file systems, because an apply needs that
            space.
        asked: True if the operator named ``parent``; then any file system is allowed.

    Returns:
        The absolute path of the new folder.

    Raises:
        RefusedError: the folder would be in a log directory, or on its file system without the operator's request.
        OSError: the folder cannot be created.
    """
    parent = os.path.realpath(parent)
    for log_dir in map(os.path.realpath, log_dirs):
        if os.path.commonpath([parent, log_dir]) == log_dir:
            raise RefusedError(
                f"{parent} is inside the log directory {log_dir}; nothing but the broker's files belongs there",
                next_command=SCRATCH,
            )
        if not asked and os.stat(parent).st_dev == os.stat(log_dir).st_dev:
            raise RefusedError(
                f"{parent} is on the file system of the log directory {log_dir}; there krepair writes only with "
                "--scratch",
                next_command=SCRATCH,
            )
    path = os.path.join(parent, f"{_PREFIX}{uuid.uuid4().hex}")
    os.mkdir(path, 0o700)
    return path


def remove_ownerless(parent: str) -> None:
    """Remove this user's scratch folders in ``parent`` whose owner is gone, as far as possible.

    A folder without a lock stays: it belongs to another user, or was just created.
    """
    with contextlib.suppress(OSError):
        # A temporary folder may hold thousands of names, so names that are not ours cost no call each.
        for name in [name for name in os.listdir(parent) if name.startswith(_PREFIX)]:
            with contextlib.suppress(OSError):
                _remove_if_ownerless(os.path.join(parent, name))


def _remove_if_ownerless(path: str) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(folder).st_uid != os.geteuid():
            return
        lock = os.open(_LOCK, _LOCK_FLAGS, dir_fd=folder)
        try:
            if stat.S_ISREG(os.fstat(lock).st_mode):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_scratch(path)
        finally:
            os.close(lock)
    finally:
        os.close(folder)


class Scratch:
    """Scratch folder that is created when it is first needed.

    Args:
        parent: path that the operator gave. If it is empty, the system's temporary folder is used, unless that is on
            the file system of a log directory.
        log_dirs: log directories, see ``make_scratch``.
    """

    def __init__(self, parent: str, log_dirs: Iterable[str]) -> None:
        self._parent = parent
        self._log_dirs = tuple(log_dirs)
        self._path: str | None = None
        self._lock = -1
        self._handlers: dict[int, Any] = {}

    @property
    def path(self) -> str:
        """Absolute path of the folder; empty if the operator named none and the temporary folder cannot be used.

        Raises:
            RefusedError: the operator's place is not allowed, or the folder cannot be created there.
        """
        if self._path is None:
            self._path = self._made()
        return self._path

    def _made(self) -> str:
        import tempfile

        parent = os.path.realpath(self._parent or tempfile.gettempdir())
        try:
            path = make_scratch(parent, self._log_dirs, asked=bool(self._parent))
            try:
                self._own(path)
            except OSError:
                remove_scratch(path)  # no later run removes a folder without a lock
                raise
        except OSError as error:
            if not self._parent:
                return ""
            raise RefusedError(
                f"--scratch {self._parent}: no folder can be made there: {error.strerror}",
                next_command=SCRATCH,
            ) from None
        except RefusedError:
            if not self._parent:
                return ""
            raise
        remove_ownerless(parent)
        return path

    def _own(self, path: str) -> None:
        """Lock the new folder, and arrange for its removal when a signal ends this process."""
        # The lock file gets its name after it is locked, so that no other run sees it unlocked.
        self._lock = os.open(f"{path}/new-{_LOCK}", _LOCK_FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
        with contextlib.suppress(OSError):  # on a file system without locks leftovers stay
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(f"{path}/new-{_LOCK}", f"{path}/{_LOCK}")

        def end(number: int, frame: FrameType | None) -> None:
            del frame
            remove_scratch(path)
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

        with contextlib.suppress(ValueError):  # not the main thread: the next run removes the folder
            for number in _ENDING:
                if signal.getsignal(number) == signal.SIG_DFL:
                    self._handlers[number] = signal.signal(number, end)

    def close(self) -> None:
        """Remove the folder if it was created."""
        if self._path:
            remove_scratch(self._path)
        self._path = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        with contextlib.suppress(ValueError):
            while self._handlers:
                signal.signal(*self._handlers.popitem())


def remove_scratch(path: str) -> None:
    """Remove the folder and everything in it. A missing folder is not an error."""
    import shutil

    shutil.rmtree(path, ignore_errors=True)


def write_scratch(folder: str, name: str, arrays: Iterable[Any]) -> str:
    """Write arrays one after another into a new file.

    Args:
        folder: path of a folder from ``make_scratch``.
        name: first part of the file name.
        arrays: contiguous numpy arrays.

    Returns:
        The path of the file.

    Raises:
        OSError: the file cannot be written; it is removed.
    """
    path = os.path.join(folder, f"{name}-{uuid.uuid4().hex}")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for array in arrays:
                file.write(memoryview(array).cast("B") if array.size else b"")
    except OSError:
        os.unlink(path)
        raise
    note(path)
    return path


_INLINE: Final = 1 << 12
"""Largest number of rows that a task returns in its result; more rows go to the scratch folder, if there is one."""
_COLUMNS: Final = 3


class SpilledRows(Struct, frozen=True, kw_only=True):
    """Rows, int64[N, 3], that may be too many for memory, so that a file of the scratch folder holds them.

    Attributes:
        path: path of the file in the scratch folder; empty if ``data`` holds the rows.
        data: bytes of the rows.
    """

    path: str = ""
    data: bytes = b""

    @property
    def rows(self) -> Int64s:
        """All rows; each use reads them again if a file holds them.

        Raises:
            OSError: the file cannot be read.
        """
        if not self.path:
            return np.frombuffer(self.data, np.int64).reshape(-1, _COLUMNS)
        mapped: Int64s = np.memmap(self.path, np.int64, "r").reshape(-1, _COLUMNS)
        return mapped


def spilled(pieces: Iterable[Int64s], scratch: str, name: str) -> SpilledRows:
    """Keep rows in memory if they are few, else write them to a file of the scratch folder.

    Args:
        pieces: rows, int64[N, 3] each.
        scratch: path of the scratch folder; empty to keep all rows in memory.
        name: first part of the file name.

    Raises:
        OSError: the file cannot be written.
    """
    waiting = iter(pieces)
    first: list[Int64s] = []
    count = 0
    for piece in waiting:
        first.append(piece)
        count += len(piece)
        if scratch and count > _INLINE:
            pieces = map(np.ascontiguousarray, itertools.chain(first, waiting))
            return SpilledRows(path=write_scratch(scratch, name, pieces))
    return SpilledRows(data=np.concatenate([np.empty((0, _COLUMNS), np.int64), *first]).tobytes())
