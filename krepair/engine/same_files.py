"""Proof that a Spark worker sees the same files as the driver, not a copy of them.

A host name proves nothing: two hosts can mount one volume, and a host can have a clone of the volume under the same
path. So each bundle of items carries the names, sizes, times and inodes of the files that the items read, as the driver
sees them, and the worker compares them before its first item and after its last. A clone of the block device may have
all of these, so while krepair writes, a new random number lies in its work folder, too. The driver in turn checks that
it sees the files that the worker wrote.
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
from krepair.engine.items import Failed, Place, arguments_of
from krepair.errors import KrepairError, UnwritableError
from krepair.logdir.lock import is_locked
from krepair.logdir.reading import why

NONCE: Final = "hosts~"
_NONCE_BYTES: Final = 16
_DIGEST_SIZE: Final = 16
_DEEPEST: Final = 4
"""Number of levels at which a place can be nested in an item."""

Listed = dict[Place, str]
"""Digest of each listed folder, by its place."""


class Nonce(NamedTuple):
    """Random number in a file that the driver has just written, which no clone of the volume has.

    Attributes:
        log_dir: absolute path of the log directory, whose lock the driver holds.
        path: absolute path of the nonce file.
        data: content of the nonce file.
    """

    log_dir: str
    path: str
    data: bytes


class DriverFiles(NamedTuple):
    """Files as the driver sees them, which a worker must see equally.

    Attributes:
        host: host name of the driver.
        versions: versions of krepair and Python on the driver.
        folders: (place, 32 hex digits over name, inode, size and modification time of all its files). Subfolders do not
            count, because workers write into krepair's work folder.
        scratch: absolute path and inode of the scratch folder, which was created for this run; an empty path if there
            is none.
        nonce: random number on the disk; None if the items only read.
    """

    host: str
    versions: str
    folders: tuple[tuple[Place, str], ...]
    scratch: tuple[str, int]
    nonce: Nonce | None


class WrittenFile(NamedTuple):
    """File in the state in which a worker left it.

    Attributes:
        path: absolute path of the file.
        size: size of the file in bytes.
        mtime_ns: modification time in nanoseconds.
    """

    path: str
    inode: int
    size: int
    mtime_ns: int


def versions() -> str:
    """Return this process's versions of krepair and Python, on which equal kernels and pickles depend."""
    return f"krepair {version('krepair')}, Python {sys.version_info.major}.{sys.version_info.minor}"


def files_seen_here(items: Iterable[Any], nonce: Nonce | None, listed: Listed) -> DriverFiles:
    """Collect what this process sees of the items' files.

    Args:
        items: work items of any function.
        nonce: random number on the disk, see ``DriverFiles``.
        listed: digests of folders that need not be listed again; the digests of other folders are added.
    """
    places = dict[Place, None]()
    scratch = ""
    for item in items:
        scratch = scratch or getattr(arguments_of(item)[0], "scratch", "")
        places |= dict.fromkeys(places_of(item))
    for place in places:
        if place not in listed:
            listed[place] = _listing(place)
    return DriverFiles(
        socket.gethostname(),
        versions(),
        tuple((place, listed[place]) for place in places),
        (scratch, _inode(scratch)),
        nonce,
    )


def places_of(item: Any, depth: int = _DEEPEST) -> Iterator[Place]:
    """Yield all places that an item names, at any depth."""
    if isinstance(item, Place):
        yield item
    elif depth and isinstance(item, Struct):
        for name in item.__struct_fields__:
            yield from places_of(getattr(item, name), depth - 1)
    elif depth and isinstance(item, tuple | list):
        for element in item:
            if isinstance(element, Struct):
                yield from places_of(element, depth - 1)


def why_other_files(expected: DriverFiles) -> Failed | None:
    """Return a failure if this process does not see the driver's files; else None."""
    try:
        return _other_files(expected) or _other_lock(expected)
    except (KrepairError, OSError) as error:
        return _failed(
            "sees other files", error.message if isinstance(error, KrepairError) else _error_text(error)
        )


def _other_files(expected: DriverFiles) -> Failed | None:
    text = ""
    if versions() != expected.versions:
        text = f"it has {versions()}, {expected.host} has {expected.versions}"
    elif expected.scratch[0] and _inode(expected.scratch[0]) != expected.scratch[1]:
        path = expected.scratch[0]
        text = f"{path} is not the folder that it is on {expected.host}; --scratch has to name storage that all share"
    elif expected.nonce is not None and not _has_nonce(expected.nonce):
        text = f"it does not see what {expected.host} has just written to {expected.nonce.path}"
    else:
        other = next((place for place, digest in expected.folders if _listing(place) != digest), None)
        text = f"{other.path} has other files, sizes or times than on {expected.host}" if other else ""
    return _failed("sees other files", text) if text else None


def _other_lock(expected: DriverFiles) -> Failed | None:
    if expected.nonce is None or is_locked(expected.nonce.log_dir) is not None:
        return None
    return _failed(
        "sees no lock",
        f"{expected.host} holds the lock of {expected.nonce.log_dir}, and it looks free here: "
        "a broker would not be kept away; mount it so that locks reach all hosts (NFS: without nolock and local_lock)",
    )


def _failed(kind: Any, text: str) -> Failed:
    return Failed(kind, text, socket.gethostname())


def _error_text(error: OSError) -> str:
    return f"{error.filename or 'the log directory'}: {why(error)}"


def _inode(folder: str) -> int:
    """Return the inode of a folder, 0 if it does not exist."""
    try:
        status = os.lstat(folder)
    except OSError:
        return 0
    return status.st_ino if stat.S_ISDIR(status.st_mode) else 0


def _has_nonce(nonce: Nonce) -> bool:
    with Tree(nonce.log_dir) as tree:
        return tree.read(nonce.path, len(nonce.data) + 1) == nonce.data


def _listing(place: Place) -> str:
    """Digest the files of a place; empty if they cannot be listed, which each item then reports itself."""
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
    """Keep a new random number in krepair's work folder of a partition while the body runs.

    Args:
        log_dir: absolute path of the log directory.
        folder: absolute path of the work folder.

    Raises:
        UnwritableError: the file cannot be written there.
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
            # A file that cannot be removed does no harm: purge and undo remove the work folder.
            with contextlib.suppress(OSError):
                disk.unlink(nonce.path)


def states_after_writing(paths: Iterable[str]) -> tuple[WrittenFile, ...]:
    """Return the state of each file that this process has changed, except those that were removed again."""
    return tuple(state for path in sorted(paths) if (state := _state_of(path)) is not None)


def is_visible_here(written: WrittenFile) -> bool:
    """Return whether this host sees a file that a worker wrote, in this state or a later one."""
    if _has_state(written):
        return True
    with contextlib.suppress(OSError), Tree(os.path.dirname(written.path)) as tree:
        if not is_of_one_host(tree, tree.path):
            # The server's answer tells the client that the folder has changed, so the client drops its cache of it.
            # Tried with NFS 3 and 4.2: this host then sees the file at once instead of after 30 s.
            path = f"{tree.path}/{NONCE}{secrets.token_hex(_NONCE_BYTES)}"
            RealDisk(tree).create(path, b"", synced=False)
            RealDisk(tree).unlink(path)
    return _has_state(written)


def _has_state(written: WrittenFile) -> bool:
    state = _state_of(written.path)
    return (
        state is not None
        and state.inode == written.inode
        and state.size >= written.size
        and state.mtime_ns >= written.mtime_ns
    )


def _state_of(path: str) -> WrittenFile | None:
    """Read the state of a file by opening it, since an NFS client asks the server only on open."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return WrittenFile(path, status.st_ino, status.st_size, status.st_mtime_ns)
