"""Whether a file system really gives the space that it says it has."""

from __future__ import annotations

import errno
import os

from krepair.durable.tree import Tree

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def can_take(path: str, size: int, tree: Tree) -> bool:
    """Take so many bytes of a file system, and give them back.

    The file has no name, so nothing of it is left, whatever happens meanwhile.

    Args:
        path: absolute path of a folder in it.
        size: bytes.
        tree: below which the folder is.

    Raises:
        OSError: that cannot be tried here.
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
