"""Which log directories use the copies of one plan: one small file for each, beside the copies.

A log directory can be copied while a plan keeps originals elsewhere. Then two directories need the same copies. So the
folder of the copies says who uses it. A directory is written down before the first copy is made for it, and when
``apply`` or ``undo`` goes on in it after it was moved. Its file goes with its last journal. Each directory has a file
of its own, so that two hosts never write the same one.
"""

from __future__ import annotations

import hashlib
import time
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from krepair.durable.disk import Disk
from krepair.journal.record import Here

PREFIX: Final = "used-by-"
"""Of the names of these files."""
_NEW: Final = ".new"
_MAGIC: Final = "krepair user of copies"
_MOST_BYTES: Final = 1 << 16
_DIGITS: Final = 16


class User(Struct, frozen=True, kw_only=True):
    """A log directory that uses the copies.

    Attributes:
        magic: ``_MAGIC``.
        host: its name.
        log_dir: absolute path of the log directory.
        file_system: what ``statvfs`` calls the identity of its file system, in hex digits.
        inode: of the log directory.
        since_ms: when it was written down, epoch milliseconds.
    """

    magic: str
    host: str
    log_dir: str
    file_system: str
    inode: int
    since_ms: int


class Noted(NamedTuple):
    """A file that names a user.

    Attributes:
        path: of the file.
        user: None if it cannot be read.
    """

    path: str
    user: User | None


def name_of(here: Here) -> str:
    """Name of the file of a log directory."""
    known = "\0".join((here.host, here.log_dir, here.file_system, str(here.inode)))
    return PREFIX + hashlib.sha256(known.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGITS]


def is_users(name: str) -> bool:
    """Whether a file is one of these, or was left by a run that was killed while it wrote one."""
    return name.startswith(PREFIX)


def users_in(disk: Disk, own: str) -> list[Noted]:
    """Every user that is written down.

    Args:
        disk: of the folder.
        own: absolute path of the plan's folder.

    Raises:
        OSError: the folder could not be looked at.
    """
    if not disk.tree.is_folder(own):
        return []
    names = sorted(name for name in disk.tree.names(own) if is_users(name) and not name.endswith(_NEW))
    return [Noted(f"{own}/{name}", _read(disk, f"{own}/{name}")) for name in names]


def _read(disk: Disk, path: str) -> User | None:
    try:
        found = msgspec.json.decode(disk.tree.read(path, _MOST_BYTES) or b"", type=User)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found if found.magic == _MAGIC else None


def write_down(disk: Disk, own: str, here: Here, owner: tuple[int, int] | None) -> None:
    """Writes a user down, durably; nothing, if it is there.

    Args:
        disk: of the folder.
        own: absolute path of the plan's folder, which is there.
        here: the log directory.
        owner: (uid, gid) of the file; None: of whoever writes it.

    Raises:
        OSError: a call failed.
    """
    path = f"{own}/{name_of(here)}"
    if _read(disk, path) is None:
        user = User(
            magic=_MAGIC,
            host=here.host,
            log_dir=here.log_dir,
            file_system=here.file_system,
            inode=here.inode,
            since_ms=time.time_ns() // 1_000_000,
        )
        if disk.tree.is_there(path + _NEW):
            disk.unlink(path + _NEW)
        disk.create(path + _NEW, msgspec.json.encode(user) + b"\n", owner=owner)
        disk.rename(path + _NEW, path)
    # The run that wrote it may have been killed before its name was durable.
    disk.sync_dir(own)


def is_same(user: User, here: Here) -> bool:
    """Whether a user is this directory, or the one whose place this directory took: a disk that was replaced."""
    place = (user.file_system, user.inode) == (here.file_system, here.inode)
    return user.host == here.host and (user.log_dir == here.log_dir or place)


def strike_out(disk: Disk, own: str, here: Here) -> None:
    """Removes the files of a user, and what a killed run has left of them.

    Raises:
        OSError: a call failed; run it again.
    """
    unfinished = f"{own}/{name_of(here)}{_NEW}"
    mine = [one.path for one in users_in(disk, own) if one.user is not None and is_same(one.user, here)]
    for path in (*mine, *([unfinished] if disk.tree.is_there(unfinished) else ())):
        disk.unlink(path)
    disk.sync_dir(own)
