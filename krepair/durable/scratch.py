"""A folder for what does not fit into memory, never in a log directory; gone when the work is done.

What lies in it is hashes and offsets, no byte of anybody's records, and nothing of it is believed: what compaction
writes with its help is verified without it. So nothing here is synced.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from typing import Any

from krepair.errors import RefusedError


def make_scratch(parent: str, log_dirs: Iterable[str], *, asked: bool) -> str:
    """Create a private folder.

    Args:
        parent: where.
        log_dirs: on whose file systems it must not be, so that it takes no space that an apply needs.
        asked: whether the operator named ``parent``: then it may be on any file system.

    Returns:
        Its path.

    Raises:
        RefusedError: it would be in a log directory, or on the file system of one without being asked for.
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
    """A scratch folder that is made when it is first asked for.

    Args:
        parent: where, as the operator named it; empty: the system's folder for temporary files, where that is on
            another file system than the log directories.
        log_dirs: see ``make_scratch``.
    """

    def __init__(self, parent: str, log_dirs: Iterable[str]) -> None:
        self._parent = parent
        self._log_dirs = tuple(log_dirs)
        self._path: str | None = None

    @property
    def path(self) -> str:
        """Absolute path of the folder; empty where none was asked for and there is no place for one.

        Raises:
            RefusedError: it must not be where the operator wants it, or cannot be made there.
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
    """Remove the folder with all that is in it; what is not there is no error."""
    import shutil

    shutil.rmtree(path, ignore_errors=True)


def write_scratch(folder: str, name: str, arrays: Iterable[Any]) -> str:
    """Write arrays one after the other into a new file; each call makes one of its own.

    Args:
        folder: from ``make_scratch``.
        name: begins the file's name.
        arrays: numpy arrays, contiguous.

    Returns:
        The path.

    Raises:
        OSError: it cannot be written; what was written is removed.
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
