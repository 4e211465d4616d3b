"""How much room a file system has, and whether it can be written at all."""

from __future__ import annotations

import os
from typing import NamedTuple

from krepair.durable.tree import Tree, without_links


class Space(NamedTuple):
    """The state of the file system that holds a path.

    Attributes:
        free_bytes: bytes that the caller may still take.
        free_inodes: files that the caller may still make; -1 where the file system does not count them.
        block_bytes: a file takes multiples of it.
        mounted_read_only: whether nothing can be written.
    """

    free_bytes: int
    free_inodes: int
    block_bytes: int
    mounted_read_only: bool


def read_space(path: str, tree: Tree | None = None) -> Space:
    """Ask the file system that holds ``path``.

    Root may also take the blocks that are reserved for it. An apply that counts on them leaves none to the
    broker, which rarely is root, so they are never counted.

    Args:
        path: absolute path of a folder; no link is followed.
        tree: below which it is; None: anywhere.

    Raises:
        OSError: the path is not there or cannot be reached.
    """
    folder = (tree or without_links()).open_folder(path)
    try:
        state = os.statvfs(folder)
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(folder)
    return Space(
        free_bytes=state.f_bavail * state.f_frsize,
        free_inodes=state.f_favail if state.f_files else -1,
        block_bytes=state.f_frsize,
        mounted_read_only=bool(state.f_flag & os.ST_RDONLY),
    )


def mounted_read_only(path: str) -> bool:
    """Say whether the file system that holds ``path`` is mounted read-only.

    Raises:
        OSError: as of ``read_space``.
    """
    return read_space(path).mounted_read_only
