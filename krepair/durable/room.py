"""Tests whether a file system really gives the space that it reports as free."""

from __future__ import annotations

import errno
import os

from krepair.durable.tree import Tree

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def can_take(path: str, size: int, tree: Tree) -> bool:
    """Allocate bytes of a file system and free them again, to see whether that works.

    They are allocated in a file without a name, so nothing stays even if krepair is killed.

    Args:
        path: absolute path of a folder in the file system.
        size: number of bytes.
        tree: the tree that holds the folder.

    Returns:
        False if there is no room for them (full disk, quota, largest file size).

    Raises:
        OSError: the test is not possible here.
    """
    folder = tree.open_folder(path)
    try:
        file = os.open(f"/proc/self/fd/{folder}", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(file, 0, max(size, 1))
        except OSError as error:
            if error.errno in _NO_ROOM:
                return False
            raise
        finally:
            os.close(file)
    finally:
        os.close(folder)
    return True
