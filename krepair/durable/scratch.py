"""A folder for data that does not fit into memory. It is never in a log directory, and it is removed after the work.

It is removed at the end, and when a signal ends krepair. What is left after a SIGKILL is removed by the next run that
makes a folder beside it: the owner holds a lock, and a folder whose lock can be taken has no owner any more.

It holds hashes and offsets, no bytes of records. Its files need no sync, because nothing depends on them later: the
result of a compaction is verified without them.
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
        parent: path of the folder in which it is made.
        log_dirs: log directories. The folder must not be on their file systems, because an apply needs that space.
        asked: whether the operator named ``parent``; then it may be on any file system.

    Returns:
        Absolute path of the new folder.

    Raises:
        RefusedError: it would be in a log directory; or it would be on the file system of one, and the operator did not
            ask for that.
        OSError: it cannot be made.
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
    """Remove the scratch folders of this user in ``parent`` whose owner is gone; what cannot be removed stays.

    A folder without a lock is left: it is another user's work, or was made just now.
    """
    with contextlib.suppress(OSError):
        # Thousands of names may be in a temporary folder: those that are not ours are not looked at one by one.
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
    """A scratch folder that is made when it is first needed.

    Args:
        parent: path that the operator gave. If it is empty, the system's temporary folder is used, provided that it is
            not on the file system of a log directory.
        log_dirs: see ``make_scratch``.
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
            RefusedError: the place that the operator named is not allowed, or the folder cannot be made there.
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
                remove_scratch(path)  # nobody would ever remove a folder without a lock
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
        """Hold the lock of a new folder, and see that it is removed when a signal ends this process."""
        # It gets its name when it is held, so that nobody finds it without an owner.
        self._lock = os.open(f"{path}/new-{_LOCK}", _LOCK_FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
        with contextlib.suppress(OSError):  # a file system without locks: what is left there stays
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(f"{path}/new-{_LOCK}", f"{path}/{_LOCK}")

        def end(number: int, frame: FrameType | None) -> None:
            del frame
            remove_scratch(path)
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

        with contextlib.suppress(ValueError):  # not the main thread: then the next run removes it
            for number in _ENDING:
                if signal.getsignal(number) == signal.SIG_DFL:
                    self._handlers[number] = signal.signal(number, end)

    def close(self) -> None:
        """Remove the folder, if it was made."""
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
    """Write arrays one after the other into a new file.

    Args:
        folder: a folder from ``make_scratch``.
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
"""So many rows travel in a result; more go to the scratch folder, where there is one."""
_COLUMNS: Final = 3


class SpilledRows(Struct, frozen=True, kw_only=True):
    """int64[N, 3].

    Attributes:
        path: in the scratch folder; empty: ``data`` holds them.
        data: their bytes.
    """

    path: str = ""
    data: bytes = b""

    @property
    def rows(self) -> Int64s:
        """All of them; those of a file are read as they are used.

        Raises:
            OSError: the file cannot be read.
        """
        if not self.path:
            return np.frombuffer(self.data, np.int64).reshape(-1, _COLUMNS)
        found: Int64s = np.memmap(self.path, np.int64, "r").reshape(-1, _COLUMNS)
        return found


def spilled(pieces: Iterable[Int64s], scratch: str, name: str) -> SpilledRows:
    """Rows in memory if they are few, else in a file of the scratch folder.

    Args:
        pieces: int64[N, 3] each.
        scratch: path of the folder; without one they stay in memory.
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
