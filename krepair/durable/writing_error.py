"""What the operating system says when it cannot write, with the file system that it was about.

The message of a full disk names no disk, and the same number (``EIO``) means a file that cannot be read and one that
cannot be written. Here, where it is known that krepair was writing, the words are made.
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
    """Something could not be written: no space, no inode, the quota, an I/O error, or a read-only file system."""


class FileSystem(NamedTuple):
    """A mounted file system.

    Attributes:
        mounted_at: its mount point; where it is not known, the folder that was asked for.
        kind: as ``ext4``, may be empty.
    """

    mounted_at: str
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.mounted_at} ({self.kind})" if self.kind else self.mounted_at


def file_system_of(path: str) -> FileSystem:
    """The file system that holds a path, or would hold it; never fails.

    Args:
        path: absolute.
    """
    folder = os.path.dirname(path)
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as lines:
            mounts = [mount for line in lines if (mount := _mount(line)) is not None]
    except OSError:
        return FileSystem(folder)
    holding = [mount for mount in mounts if _holds(mount.mounted_at, path)]
    # Of several on one mount point the last one hides the others.
    return max(reversed(holding), key=lambda mount: len(mount.mounted_at), default=FileSystem(folder))


def _mount(line: str) -> FileSystem | None:
    words = line.split(" ")
    if "-" not in words or len(words) < 8:
        return None
    place = words[4].encode("utf-8", "surrogateescape").decode("unicode_escape")
    return FileSystem(place.encode("latin-1").decode("utf-8", "surrogateescape"), words[words.index("-") + 1])


def _holds(mounted_at: str, path: str) -> bool:
    return path == mounted_at or path.startswith(mounted_at.rstrip("/") + "/")


def said_of_writing(error: OSError, path: str) -> OSError:
    """The same error as one of writing, with the file system in its words; any other error as it is.

    Args:
        error: of a call that was to write.
        path: absolute, of what was to be written.
    """
    if error.errno not in _OF_WRITING or isinstance(error, WritingError):
        return error
    # Of two names the second one is the one that is made.
    name = error.filename2 or error.filename
    where = os.fsdecode(name) if isinstance(name, str | bytes) and os.path.isabs(os.fsdecode(name)) else path
    number = error.errno or 0
    # What krepair itself noticed says more than the number: that the kernel took nothing, and where.
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
    """Makes the errors of a method that writes a path, its first argument, into errors of writing."""

    @wraps(call)
    def told(self: object, path: str, *rest: Any, **named: Any) -> Any:
        try:
            return call(self, path, *rest, **named)
        except OSError as error:
            said = said_of_writing(error, path)
            if said is error:
                raise
            raise said from error

    return cast("Call", told)
