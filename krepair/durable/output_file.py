"""Writing of output files (plan, facts, metrics, page), which never lie in a log directory.

Such a file is written completely or not at all, and never replaces a file that krepair did not write.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from krepair.durable.disk import Attributes, Disk, put_whole_or_nothing
from krepair.durable.real_disk import RealDisk
from krepair.durable.writing_error import WritingError, folder_with_room
from krepair.errors import KrepairError, RefusedError, UnwritableError, UsageError
from krepair.next_command import Next

_MODE: Final = 0o644
"""Permission bits: others read the file, such as the node exporter or a browser."""
_WRITE_BYTES: Final = 4 << 20
_THE_SAME: Final = Next.by_hand("the same command with")


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputKind:
    """One kind of output file.

    Attributes:
        option: option that names the file.
        what: noun for such files, in the plural.
        first: bytes at the start of every file of the kind.
        suffix: required suffix of the file name, or empty.
        why_suffix: reason for ``suffix``, as the start of a sentence.
        again: command that writes the file to another place, without the option.
        another: placeholder for the new place if krepair finds none with enough space.
    """

    option: str
    what: str
    first: bytes
    suffix: str = ""
    why_suffix: str = ""
    again: Next = _THE_SAME
    another: str = "FILE elsewhere"

    def written_to(self, place: str = "") -> Next:
        """Return the command that writes the file to another place."""
        if self.again.verb:
            return Next.of(self.again.verb, *self.again.words, out=place or self.another)
        return Next.by_hand(f"{self.again} {self.option} {shlex.quote(place) if place else self.another}")


def place_of(kind: OutputKind, path: str, log_dirs: Iterable[str]) -> str:
    """Resolve the path of an output file, and refuse one in a log directory, where a broker would find it.

    Returns:
        The absolute path with links in its folders resolved.

    Raises:
        RefusedError: the path is in a log directory.
        UsageError: the suffix is wrong, or the folder does not exist.
    """
    folder, name = os.path.split(os.path.abspath(path))
    folder = os.path.realpath(folder)
    target = os.path.join(folder, name)
    if not name.endswith(kind.suffix):
        raise UsageError(f"{kind.option} {path!r}: {kind.why_suffix} {kind.suffix}")
    for log_dir in log_dirs:
        root = os.path.realpath(log_dir)
        if target == root or target.startswith(root.rstrip("/") + "/"):
            raise RefusedError(
                f"{path}: {kind.what} are never written into the log directory {root}",
                next_command=kind.written_to(),
            )
    if not os.path.isdir(folder):
        raise UsageError(f"{kind.option} {path!r}: the folder {folder} is not there")
    return target


def check_place(kind: OutputKind, path: str, log_dirs: Iterable[str]) -> str:
    """Check, before any work, that an output file may be written to a path.

    Args:
        path: path as the operator gave it.
        log_dirs: log directories of this run.

    Returns:
        See ``place_of``.

    Raises:
        RefusedError: the path is in a log directory, or names a file that krepair did not write.
        UsageError: the suffix is wrong, or the folder does not exist.
    """
    target = place_of(kind, path, log_dirs)
    if not _replaceable(kind, target):
        raise RefusedError(
            f"{path}: is there and was not written by krepair; it is not overwritten",
            next_command=Next.by_hand(f"the same command with another file after {kind.option}"),
        )
    return target


def _replaceable(kind: OutputKind, target: str) -> bool:
    try:
        # Without O_NONBLOCK, a FIFO of that name would block; a link could lead to a file in a log directory.
        descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        head = os.read(descriptor, len(kind.first))
        return not head or head == kind.first
    finally:
        os.close(descriptor)


def write(kind: OutputKind, target: str, data: bytes, disk: Disk | None = None) -> None:
    """Write a whole file at once; readers see the old file or the new one, see ``write_streamed``."""
    write_streamed(kind, target, lambda put: put(data), disk)


Put = Callable[[bytes], None]
"""Function that receives the next bytes of a file."""


def write_streamed(
    kind: OutputKind, target: str, fill: Callable[[Put], None], disk: Disk | None = None
) -> None:
    """Write a file piece by piece; readers see the whole old file or the whole new one.

    Args:
        target: path from ``check_place``.
        fill: function that passes the content, piece by piece, to its argument.

    Raises:
        OSError: the operating system refused.
    """
    disk = disk or RealDisk()

    def make(new: str) -> None:
        _filled(disk, new, fill)
        made = os.stat(new)
        disk.set_attributes(new, Attributes(made.st_uid, made.st_gid, _MODE, made.st_mtime_ns, {}))
        # Checked again: during a run of hours another file, even another plan, may have taken the name.
        if not _replaceable(kind, target):
            raise FileExistsError(
                errno.EEXIST, f"a file is there that krepair did not write as {kind.what}", target
            )

    put_whole_or_nothing(disk, target, make)


def not_written(kind: OutputKind, target: str, error: OSError, needed: int = 0) -> KrepairError:
    """Build the error for a file that could not be written; if the disk is full, it proposes another place.

    Args:
        target: path from ``check_place``.
        error: error that ``write_streamed`` raised.
        needed: size of the file in bytes, if known.
    """
    words = error.strerror or str(error)
    if not isinstance(error, WritingError):
        return RefusedError(f"{target}: cannot be written: {words}")
    folder, name = os.path.split(target)
    where = os.fsdecode(error.filename or target)
    if os.path.dirname(where) != folder:  # the error is about a temporary file in another folder
        return UnwritableError(f"{where}: {words}")
    elsewhere = folder_with_room(folder, needed)
    place = os.path.join(elsewhere, name) if elsewhere else ""
    return UnwritableError(f"{target}: {words}", next_command=kind.written_to(place))


def _filled(disk: Disk, path: str, fill: Callable[[Put], None]) -> None:
    """Create a file from all pieces; small pieces are written together."""
    waiting = bytearray()
    begun = False

    def flush() -> None:
        nonlocal begun
        if begun:
            disk.append(path, bytes(waiting))
        else:
            disk.create(path, bytes(waiting))
        begun = True
        waiting.clear()

    def put(piece: bytes) -> None:
        waiting.extend(piece)
        if len(waiting) >= _WRITE_BYTES:
            flush()

    fill(put)
    if waiting or not begun:
        flush()
