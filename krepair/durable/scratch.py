"""A folder for data that does not fit into memory. It is never in a log directory, and it is removed after the work.

It holds hashes and offsets, no bytes of records. Its files need no sync, because nothing depends on them later: the
result of a compaction is verified without them.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from typing import Any

from krepair.errors import RefusedError


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
                next_command="krepair ... --scratch DIR with a directory elsewhere",
            )
        if not asked and os.stat(parent).st_dev == os.stat(log_dir).st_dev:
            raise RefusedError(
                f"{parent} is on the file system of the log directory {log_dir}; its space is not taken unasked",
                next_command="krepair ... --scratch DIR, on another file system where there is one",
            )
    path = os.path.join(parent, f"krepair-scratch-{uuid.uuid4().hex}")
    os.mkdir(path, 0o700)
    return path


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

        try:
            return make_scratch(
                self._parent or tempfile.gettempdir(), self._log_dirs, asked=bool(self._parent)
            )
        except OSError as error:
            if not self._parent:
                return ""
            raise RefusedError(
                f"--scratch {self._parent}: no folder can be made there: {error.strerror}",
                next_command="krepair ... --scratch DIR with a directory that this user may write",
            ) from None
        except RefusedError:
            if not self._parent:
                return ""
            raise

    def close(self) -> None:
        """Remove the folder, if it was made."""
        if self._path:
            remove_scratch(self._path)
        self._path = None


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
    return path
