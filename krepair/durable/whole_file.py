"""Puts a file in the place of another one: whoever reads the name finds all of the old bytes, or all of the new ones.

That holds after a power cut, too: a name is given to a file whose bytes are on the disk, and is synced after that.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from krepair.durable.disk import Disk


def put_whole(
    disk: Disk, path: str, new: str, make: Callable[[str], object], *, sync_name: bool = True
) -> None:
    """Make a file under a name of its own, then give it its name. After a failure the first one may be left.

    Args:
        disk: does it.
        path: absolute path that the file gets.
        new: absolute path of its first name, in the same folder; what a crash left there goes.
        make: makes the file, with its bytes on the disk, at the path that it is called with.
        sync_name: whether the name is durable at the end; else the caller syncs the folder.

    Raises:
        OSError: a call failed.
    """
    if disk.tree.is_there(new):
        disk.unlink(new)
    make(new)
    disk.rename(new, path)
    if sync_name:
        disk.sync_dir(os.path.dirname(path))


def put_whole_or_nothing(disk: Disk, path: str, make: Callable[[str], object]) -> None:
    """The same outside of log directories, where nobody comes back for a file that is left: it goes at once.

    Raises:
        OSError: a call failed.
    """
    folder, name = os.path.split(path)
    new = os.path.join(folder, f".{name}.{os.getpid()}.tmp")
    try:
        put_whole(disk, path, new, make)
    except OSError:
        with suppress(OSError):
            if disk.tree.is_there(new):
                disk.unlink(new)
        raise
