"""Errors of write calls, with messages that name the file system.

The system's message for a full disk does not name the disk, and an I/O error (``EIO``) does not say whether reading or
writing failed. Calls that write are decorated with ``writes``, so that their errors say both.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, NamedTuple, TypeVar, cast

_MOUNTS: Final = "/proc/self/mountinfo"
_OF_WRITING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS})

Call = TypeVar("Call", bound=Callable[..., Any])


class WritingError(OSError):
    """A write failed: no space, no inode, a full quota, an I/O error, or a read-only file system."""


class FileSystem(NamedTuple):
    """A mounted file system.

    Attributes:
        mounted_at: mount point; if unknown, the folder of the path.
        kind: type of file system, such as ``ext4``; may be empty.
        options: mount options of the file system itself, separated by commas; may be empty.
    """

    mounted_at: str
    kind: str = ""
    options: str = ""

    def __str__(self) -> str:
        return f"{self.mounted_at} ({self.kind})" if self.kind else self.mounted_at


def file_system_of(path: str) -> FileSystem:
    """Return the file system that holds a path, or would hold it, without raising.

    Source: ``/proc/self/mountinfo`` (``proc(5)``).
    """
    # If several are mounted at one place, the last one hides the others.
    nowhere = FileSystem(os.path.dirname(path))
    return max(reversed(_mounts_of(path)), key=lambda mount: len(mount.mounted_at), default=nowhere)


def _mounts_of(path: str) -> list[FileSystem]:
    """List the mounted file systems that hold a path, in mount order; empty if they are unknown."""
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as lines:
            return [mount for line in lines if (mount := _mount(line, path)) is not None]
    except OSError:
        return []


def _mount(line: str, path: str) -> FileSystem | None:
    before, divided, after = line.partition(" - ")
    words = before.split(" ", 5)
    if not divided or len(words) < 6:
        return None
    mounted_at = words[4]
    if "\\" in mounted_at:  # the kernel writes special bytes in octal
        place = mounted_at.encode("utf-8", "surrogateescape").decode("unicode_escape")
        mounted_at = place.encode("latin-1").decode("utf-8", "surrogateescape")
    # A host has hundreds of mounts, and only one or two hold a path: the others are skipped early.
    if path != mounted_at and not path.startswith(mounted_at.rstrip("/") + "/"):
        return None
    return FileSystem(mounted_at, after.partition(" ")[0], after.rpartition(" ")[2].strip())


def folder_with_room(folder: str, needed: int) -> str:
    """Return a writable folder on another file system that has enough space; empty if none is known.

    Args:
        folder: path of the folder on the full file system.
        needed: required space in bytes.
    """
    for other in (os.path.expanduser("~"), "/var/tmp", "/tmp"):  # noqa: S108 - only named in an advice
        try:
            elsewhere = os.stat(other).st_dev != os.stat(folder).st_dev
            space = os.statvfs(other)
        except OSError:
            continue
        if elsewhere and os.access(other, os.W_OK | os.X_OK) and space.f_bavail * space.f_frsize > needed:
            return other
    return ""


def as_writing_error(error: OSError, path: str) -> OSError:
    """Turn an error into a ``WritingError`` whose message names the file system; keep errors of other kinds.

    Args:
        error: error of a call that was writing.
        path: absolute path of the file that was being written.
    """
    if error.errno not in _OF_WRITING or isinstance(error, WritingError):
        return error
    # If the error has two names, the second is that of the new file.
    name = error.filename2 or error.filename
    where = os.fsdecode(name) if isinstance(name, str | bytes) and os.path.isabs(os.fsdecode(name)) else path
    number = error.errno or 0
    # A message by krepair says more than the error number, for example at which position nothing was written.
    noticed = "" if error.strerror in (None, os.strerror(number)) else f"{error.strerror}; "
    return WritingError(number, f"could not be written: {noticed}{_reason(number, where)}", where)


def _reason(number: int, path: str) -> str:
    system = file_system_of(path)
    if number == errno.EDQUOT:
        return f"the disk quota on the file system {system} is used up"
    if number == errno.EROFS:
        return f"the file system {system} is mounted read-only"
    if number == errno.EIO:
        return f"the file system {system} reports an I/O error; the kernel's log (dmesg) says more"
    if _no_inode_is_left(system):
        return f"the file system {system} has no inode left for another file"
    return f"no space is left on the file system {system}"


def _no_inode_is_left(system: FileSystem) -> bool:
    try:
        state = os.statvfs(system.mounted_at)
    except OSError:
        return False
    return state.f_files > 0 and state.f_favail == 0


def writes(call: Call) -> Call:
    """Decorate a method that writes the path in its first argument: its errors become write errors."""

    @wraps(call)
    def call_and_explain(self: object, path: str, *rest: Any, **named: Any) -> Any:
        try:
            return call(self, path, *rest, **named)
        except OSError as error:
            write_error = as_writing_error(error, path)
            if write_error is error:
                raise
            raise write_error from error

    return cast("Call", call_and_explain)
