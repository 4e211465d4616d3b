"""Tells whether a file is still the one that a plan was made of."""

from __future__ import annotations

import hashlib
import os
from typing import NamedTuple

from krepair.durable.tree import Tree
from krepair.formats.damage import Bytes
from krepair.logdir.reading import kind_of, opened_for_reading, status_of, why
from krepair.logdir.values import FileRef

DIGEST_BYTES = 16
_CHUNK_BYTES = 1 << 20


class StatTriple(NamedTuple):
    """What changes when a file is written or replaced.

    Attributes:
        size: bytes.
        mtime_ns: modification time in nanoseconds.
        inode: inode number.
    """

    size: int
    mtime_ns: int
    inode: int


def triple_of(file: FileRef) -> StatTriple:
    """Take the triple from a file that was listed."""
    return StatTriple(file.size, file.mtime_ns, file.inode)


def read_triple(path: str) -> StatTriple:
    """Read the triple of a path; no symlink is followed.

    Raises:
        OSError: the path is not there or cannot be reached.
    """
    status = status_of(path)
    return StatTriple(status.st_size, status.st_mtime_ns, status.st_ino)


def digest_file(path: str, tree: Tree | None = None) -> str:
    """Digest a file's bytes: 32 hex digits, BLAKE2b of 128 bits. Reads it in chunks; meant for small files.

    Raises:
        OSError: the file cannot be read, or is a symlink or no regular file.
    """
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    with opened_for_reading(path, tree) as descriptor:
        while chunk := os.read(descriptor, _CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def digest_bytes(data: Bytes) -> str:
    """Digest bytes as ``digest_file`` does those of a file."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def changed(before: StatTriple, path: str) -> str:
    """Explain how a file differs from what it was.

    Args:
        before: what the plan says.
        path: absolute path.

    Returns:
        One line without the path, or an empty string if nothing differs. A file that is gone, cannot be
        reached or is no longer a regular file differs.
    """
    try:
        status = status_of(path)
    except FileNotFoundError:
        return "it is gone"
    except OSError as error:
        return f"it cannot be reached: {why(error)}"
    kind = kind_of(status.st_mode)
    if kind != "file":
        return f"it was a file and is a {kind}"
    now = StatTriple(status.st_size, status.st_mtime_ns, status.st_ino)
    pairs = zip(("size", "mtime_ns", "inode"), before, now, strict=True)
    return ", ".join(f"{name} was {old} and is {new}" for name, old, new in pairs if old != new)
