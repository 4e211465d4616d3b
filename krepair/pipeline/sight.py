"""What this process sees of a log directory, so that a Spark worker can prove that it sees the same one.

A host name proves nothing: two hosts can mount the same volume, and one host can have a clone of it under the same
path. So the driver sends what it sees with every bundle of items, and a worker looks at the same things before the
first item and after the last one. What differs is said, and then the items are done by another worker.
"""

from __future__ import annotations

import errno
import hashlib
import os
import random
import socket
import stat
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import Any, Final

from msgspec import Struct

from krepair.durable.tree import Tree
from krepair.formats.filenames import META_PROPERTIES
from krepair.logdir.reading import why
from krepair.pipeline.items import Place

_DIGEST_SIZE: Final = 16
_SAMPLES: Final = 4
_SAMPLE_BYTES: Final = 4096
_DEEPEST: Final = 4
"""How deep a place can be in an item: a bundle of parts, a part, its reading, its place."""


_File = tuple[str, os.stat_result]
"""Name and status of a file."""
Listed = dict[str, list[_File] | None]
"""Absolute path of a folder -> its files; None if it could not be listed."""


class Sample(Struct, frozen=True, kw_only=True):
    """Some bytes of one file.

    Attributes:
        path: absolute path.
        position: of the first byte.
        digest: 32 hex digits over at most 4 KiB from there.
    """

    path: str
    position: int
    digest: str


class FolderSight(Struct, frozen=True, kw_only=True):
    """The files of one folder.

    Attributes:
        path: absolute path.
        digest: 32 hex digits over name, inode, size and modification time of all its files, by name. Folders do not
            count: krepair's own sub-folder fills while workers stage.
    """

    path: str
    digest: str


class Sight(Struct, frozen=True, kw_only=True):
    """What the driver sees of one log directory.

    Attributes:
        host: the driver's host name, for people.
        versions: of krepair and Python there.
        log_dir: absolute path.
        inode: of the log directory.
        meta: 32 hex digits over ``meta.properties``, empty if there is none.
        folders: the folders that the items read.
        samples: bytes of some of their files, chosen anew each time.
        scratch: (absolute path, inode) of the scratch folder; empty path if the items use none.
    """

    host: str
    versions: str
    log_dir: str
    inode: int
    meta: str
    folders: tuple[FolderSight, ...]
    samples: tuple[Sample, ...]
    scratch: tuple[str, int] = ("", 0)


def versions() -> str:
    """Versions of krepair and of Python in this process: equal kernels and equal wire formats need both."""
    return f"krepair {version('krepair')}, Python {sys.version_info.major}.{sys.version_info.minor}"


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


def sights_of(items: Iterable[Any], rng: random.Random, listed: Listed | None = None) -> list[Sight]:
    """What this process sees of the log directories that items are in.

    Args:
        items: of any tasks.
        rng: draws the samples.
        listed: folders that were listed a moment ago, which are not listed again; those that are listed come to it.

    Raises:
        OSError: this process cannot look itself.
    """
    known = {} if listed is None else listed
    found: dict[tuple[str, int], dict[str, None]] = {}
    scratch = ""
    for item in items:
        scratch = scratch or getattr(item, "scratch", "")
        for place in places_of(item):
            folders = found.setdefault((place.log_dir, place.log_dir_inode), {})
            folders[place.path] = None
            if place.kept:
                folders[f"{place.path}/{place.kept}"] = None
    return [_sight(*log_dir, sorted(folders), scratch, rng, known) for log_dir, folders in found.items()]


def _sight(
    log_dir: str, inode: int, folders: list[str], scratch: str, rng: random.Random, known: Listed
) -> Sight:
    with Tree(log_dir, inode) as tree:
        for path in folders:
            if path not in known:
                known[path] = _listed(tree, path)
        listed = {path: known[path] for path in folders}
        samples = _samples(tree, listed, rng)
        return Sight(
            host=socket.gethostname(),
            versions=versions(),
            log_dir=log_dir,
            inode=inode,
            meta=_meta(tree, log_dir),
            folders=tuple(
                FolderSight(path=path, digest=_listing(files))
                for path, files in listed.items()
                if files is not None
            ),
            samples=tuple(samples),
            scratch=(scratch, os.stat(scratch).st_ino if scratch else 0),
        )


def why_not_here(sight: Sight) -> str:
    """What this worker sees differently, one sentence; empty if it sees the same."""
    if versions() != sight.versions:
        return f"it has {versions()}, the driver {sight.versions}"
    try:
        with Tree(sight.log_dir, None) as tree:
            return _difference(tree, sight)
    except OSError as error:
        return f"{error.filename or sight.log_dir}: {why(error)}"


def why_changed(sight: Sight) -> str:
    """What has changed in the folders since the items began, one sentence; empty if nothing has."""
    try:
        with Tree(sight.log_dir, sight.inode) as tree:
            return _folder_difference(tree, sight)
    except OSError as error:
        return f"{error.filename or sight.log_dir}: {why(error)}"


def _difference(tree: Tree, sight: Sight) -> str:
    status = tree.status(sight.log_dir)
    inode = status.st_ino if status is not None else 0
    if inode != sight.inode:
        return f"{sight.log_dir} has inode {inode}, on {sight.host} it has {sight.inode}"
    if _meta(tree, sight.log_dir) != sight.meta:
        return f"{sight.log_dir}/{META_PROPERTIES} is another one than on {sight.host}"
    wrong = _folder_difference(tree, sight)
    if wrong:
        return wrong
    for sample in sight.samples:
        if not _has_bytes(tree, sample):
            return f"{sample.path}, position {sample.position}: other bytes than on {sight.host}"
    return _scratch_difference(sight)


def _has_bytes(tree: Tree, sample: Sample) -> bool:
    """Whether a file has the bytes of a sample. Of one that gives an I/O error nothing is known: its task will say so.

    Raises:
        OSError: it cannot be read for another reason: this is not the driver's file.
    """
    try:
        return _digest_of(tree, sample.path, sample.position) == sample.digest
    except OSError as error:
        if error.errno == errno.EIO:
            return True
        raise


def _scratch_difference(sight: Sight) -> str:
    path, inode = sight.scratch
    if path and not (os.path.isdir(path) and os.stat(path).st_ino == inode):
        return f"{path} is not the folder that it is on {sight.host}; --scratch has to name storage that all share"
    return ""


def _folder_difference(tree: Tree, sight: Sight) -> str:
    for folder in sight.folders:
        if _listing(_files(tree, folder.path)) != folder.digest:
            return f"{folder.path} has other files, sizes or times than it had on {sight.host}"
    return ""


def _listed(tree: Tree, path: str) -> list[_File] | None:
    """Files of a folder; None if the driver cannot list it, which is for the task to say."""
    try:
        return _files(tree, path)
    except OSError:
        return None


def _files(tree: Tree, path: str) -> list[_File]:
    if not tree.is_folder(path):
        return []  # each task says in its own words that its partition is gone
    return [(name, status) for name, status in tree.entries(path) if not stat.S_ISDIR(status.st_mode)]


def _listing(files: list[_File]) -> str:
    digest = hashlib.blake2b(digest_size=_DIGEST_SIZE)
    for name, status in sorted(files, key=lambda file: file[0]):
        facts = f"{status.st_ino} {status.st_size} {status.st_mtime_ns}"
        digest.update(os.fsencode(name) + b"\0" + facts.encode() + b"\0")
    return digest.hexdigest()


def _meta(tree: Tree, log_dir: str) -> str:
    path = f"{log_dir}/{META_PROPERTIES}"
    return _bytes_digest(tree, path, 0) if tree.is_there(path) else ""


def _samples(tree: Tree, listed: dict[str, list[_File] | None], rng: random.Random) -> Iterator[Sample]:
    """Some bytes of some files; a file that goes meanwhile is passed over, its item will say so."""
    filled = [
        (f"{path}/{name}", status.st_size)
        for path, files in listed.items()
        for name, status in files or ()
        if status.st_size and stat.S_ISREG(status.st_mode)
    ]
    for path, size in rng.sample(filled, min(_SAMPLES, len(filled))):
        position = rng.randrange(size)
        digest = _bytes_digest(tree, path, position)
        if digest:
            yield Sample(path=path, position=position, digest=digest)


def _bytes_digest(tree: Tree, path: str, position: int) -> str:
    """Digest of some bytes of a file; empty if they cannot be read, which is for the task to say."""
    try:
        return _digest_of(tree, path, position)
    except OSError:
        return ""


def _digest_of(tree: Tree, path: str, position: int) -> str:
    with tree.opened(path) as descriptor:
        data = os.pread(descriptor, _SAMPLE_BYTES, position)
    return hashlib.blake2b(data, digest_size=_DIGEST_SIZE).hexdigest()
