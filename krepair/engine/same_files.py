"""Whether a Spark worker has the very files that this host has.

A host name proves nothing: two hosts can mount one volume, and one host can have a clone of it under the same path. So
each bundle of items carries what this host sees of the folders that they read. While krepair writes, a number lies in
its own folder of a partition as well: a clone of the block device has equal sizes, times and inodes, but not what was
written a moment ago. A worker looks before the first item and after the last one. What it wrote meanwhile, this host
looks for.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import socket
import stat
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import Any, Final, NamedTuple

from msgspec import Struct

from krepair.durable.medium import is_of_one_host
from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.engine.items import Failed, Place
from krepair.errors import KrepairError, UnwritableError
from krepair.logdir.lock import is_locked
from krepair.logdir.reading import why

NONCE: Final = "hosts~"
_NONCE_BYTES: Final = 16
_DIGEST_SIZE: Final = 16
_DEEPEST: Final = 4
"""How deep a place can be in an item: a bundle of parts, a part, its reading, its place."""

Listed = dict[Place, str]
"""Digest of each folder that was listed, by the place that names it."""


class Nonce(NamedTuple):
    """A number that was written a moment ago.

    Attributes:
        log_dir: absolute path of the log directory, whose lock the driver holds.
        path: absolute path of the file.
        data: what is in it.
    """

    log_dir: str
    path: str
    data: bytes


class SeenFiles(NamedTuple):
    """What the driver sees; a worker has to see the same.

    Attributes:
        host: the driver's host name.
        versions: of krepair and Python there.
        folders: (place, 32 hex digits over name, inode, size and modification time of all its files); folders do not
            count: krepair's own sub-folder fills while workers stage.
        scratch: (absolute path, inode) of the scratch folder, which was made for this run; empty path: there is none.
        nonce: None if the items only read.
    """

    host: str
    versions: str
    folders: tuple[tuple[Place, str], ...]
    scratch: tuple[str, int]
    nonce: Nonce | None


class WrittenFile(NamedTuple):
    """A file as a worker left it.

    Attributes:
        path: absolute path.
        inode: of it.
        size: in bytes.
        mtime_ns: time of its last change.
    """

    path: str
    inode: int
    size: int
    mtime_ns: int


def versions() -> str:
    """Versions of krepair and of Python in this process: equal kernels and pickles need both."""
    return f"krepair {version('krepair')}, Python {sys.version_info.major}.{sys.version_info.minor}"


def seen_here(items: Iterable[Any], nonce: Nonce | None, listed: Listed) -> SeenFiles:
    """What this process sees of the files of items.

    Args:
        items: of any function.
        nonce: see ``SeenFiles``.
        listed: folders that were listed a moment ago, which are not listed again; those that are listed come to it.
    """
    places = dict[Place, None]()
    scratch = ""
    for item in items:
        scratch = scratch or getattr(item, "scratch", "")
        places |= dict.fromkeys(places_of(item))
    for place in places:
        if place not in listed:
            listed[place] = _listing(place)
    return SeenFiles(
        socket.gethostname(),
        versions(),
        tuple((place, listed[place]) for place in places),
        (scratch, _inode(scratch)),
        nonce,
    )


def places_of(item: Any, depth: int = _DEEPEST) -> Iterator[Place]:
    """All places that an item names, however deep."""
    if isinstance(item, Place):
        yield item
    elif depth and isinstance(item, Struct):
        for name in item.__struct_fields__:
            yield from places_of(getattr(item, name), depth - 1)
    elif depth and isinstance(item, tuple | list):
        for one in item:
            if isinstance(one, Struct):
                yield from places_of(one, depth - 1)


def other_than(seen: SeenFiles) -> Failed | None:
    """What this process sees of the same files, if it is something else."""
    try:
        return _other_files(seen) or _other_lock(seen)
    except (KrepairError, OSError) as error:
        return _failed("sees other files", error.message if isinstance(error, KrepairError) else _said(error))


def _other_files(seen: SeenFiles) -> Failed | None:
    text = ""
    if versions() != seen.versions:
        text = f"it has {versions()}, {seen.host} has {seen.versions}"
    elif seen.scratch[0] and _inode(seen.scratch[0]) != seen.scratch[1]:
        path = seen.scratch[0]
        text = f"{path} is not the folder that it is on {seen.host}; --scratch has to name storage that all share"
    elif seen.nonce is not None and not _has(seen.nonce):
        text = f"it does not see what {seen.host} has just written to {seen.nonce.path}"
    else:
        other = next((place for place, digest in seen.folders if _listing(place) != digest), None)
        text = f"{other.path} has other files, sizes or times than on {seen.host}" if other else ""
    return _failed("sees other files", text) if text else None


def _other_lock(seen: SeenFiles) -> Failed | None:
    if seen.nonce is None or is_locked(seen.nonce.log_dir) is not None:
        return None
    return _failed(
        "sees no lock",
        f"{seen.host} holds the lock of {seen.nonce.log_dir}, and it looks free here: a broker would not be kept away; "
        "mount it so that locks reach all hosts (NFS: without nolock and local_lock)",
    )


def _failed(kind: Any, text: str) -> Failed:
    return Failed(kind, text, socket.gethostname())


def _said(error: OSError) -> str:
    return f"{error.filename or 'the log directory'}: {why(error)}"


def _inode(folder: str) -> int:
    """Inode of a folder, 0 if there is none."""
    try:
        status = os.lstat(folder)
    except OSError:
        return 0
    return status.st_ino if stat.S_ISDIR(status.st_mode) else 0


def _has(nonce: Nonce) -> bool:
    with Tree(nonce.log_dir) as tree:
        return tree.read(nonce.path, len(nonce.data) + 1) == nonce.data


def _listing(place: Place) -> str:
    """Digest of the files that a place names; empty if they cannot be listed: each item says so in its own words."""
    digest = hashlib.blake2b(digest_size=_DIGEST_SIZE)
    try:
        with Tree(place.log_dir, place.log_dir_inode) as tree:
            for path in (place.path, f"{place.path}/{place.kept}") if place.kept else (place.path,):
                entries = (
                    sorted(tree.entries(path), key=lambda entry: entry[0]) if tree.is_folder(path) else []
                )
                for name, status in entries:
                    if not stat.S_ISDIR(status.st_mode):
                        facts = f"{status.st_ino} {status.st_size} {status.st_mtime_ns}"
                        digest.update(os.fsencode(name) + b"\0" + facts.encode() + b"\0")
    except OSError:
        return ""
    return digest.hexdigest()


# -- what workers write


@contextlib.contextmanager
def new_nonce(log_dir: str, folder: str) -> Iterator[Nonce]:
    """A number in krepair's own sub-folder of a partition while the body runs.

    Args:
        log_dir: absolute path of the log directory.
        folder: absolute path of the sub-folder.

    Raises:
        UnwritableError: it cannot be written there.
    """
    token = secrets.token_hex(_NONCE_BYTES)
    nonce = Nonce(log_dir, f"{folder}/{NONCE}{token}", token.encode())
    with Tree(log_dir) as tree:
        disk = RealDisk(tree)
        try:
            disk.create(nonce.path, nonce.data)
            disk.sync_dir(folder)
        except OSError as error:
            raise UnwritableError(f"{error.filename or nonce.path}: {why(error)}") from error
        try:
            yield nonce
        finally:
            # Where it cannot be removed it is in nobody's way: purge and undo remove the sub-folder.
            with contextlib.suppress(OSError):
                disk.unlink(nonce.path)


def left_by(paths: Iterable[str]) -> tuple[WrittenFile, ...]:
    """How this process has left files that it changed; without those that are gone again."""
    return tuple(found for path in sorted(paths) if (found := _looked_at(path)) is not None)


def has_come(written: WrittenFile) -> bool:
    """Whether a file that a worker wrote is here. Others may have written to it since."""
    if _is(written):
        return True
    with contextlib.suppress(OSError), Tree(os.path.dirname(written.path)) as tree:
        if not is_of_one_host(tree, tree.path):
            # What a server answers says that the folder has changed, so a client lets go of what it has cached of it.
            # Tried with NFS 3 and 4.2: it sees the file at once instead of after 30 s.
            path = f"{tree.path}/{NONCE}{secrets.token_hex(_NONCE_BYTES)}"
            RealDisk(tree).create(path, b"", synced=False)
            RealDisk(tree).unlink(path)
    return _is(written)


def _is(written: WrittenFile) -> bool:
    found = _looked_at(written.path)
    return (
        found is not None
        and found.inode == written.inode
        and found.size >= written.size
        and found.mtime_ns >= written.mtime_ns
    )


def _looked_at(path: str) -> WrittenFile | None:
    """A file as it is: it is opened, since a client of a network file system asks the server only then."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return WrittenFile(path, found.st_ino, found.st_size, found.st_mtime_ns)
