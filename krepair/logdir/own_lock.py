"""krepair's own lock: only one krepair at a time changes a log directory.

The broker's lock keeps brokers and krepair apart, and also two krepairs. But ``purge`` may run while the broker runs,
so it cannot take that lock. It must not run together with an ``apply`` or an ``undo``. So all three take this lock too.

The lock is ``flock`` of the log directory itself and needs no file. A file would be a problem at every place: brokers
do not expect it in the root, a partition folder goes when its topic is deleted, a private folder goes with the purge,
and a full disk may have no room for it. Brokers do not lock folders. The lock ends with the process that holds it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator

from krepair.durable.tree import Tree, without_links
from krepair.errors import LockedError, RefusedError, UnreadableError
from krepair.logdir.holder import Holder, command_of, identity, pid_of_lock
from krepair.logdir.not_a_log_dir import shown_path
from krepair.logdir.reading import why


class OwnLock:
    """A held lock of krepair's own.

    Args:
        log_dir: absolute path of the log directory.
        descriptor: descriptor of the locked folder.
    """

    def __init__(self, log_dir: str, descriptor: int) -> None:
        self.log_dir = log_dir
        self._descriptor = descriptor

    def check(self) -> None:
        """Make sure that the path is still the path of the locked log directory.

        Raises:
            RefusedError: the path now names another directory, or nothing.
            UnreadableError: the path cannot be looked up.
        """
        try:
            found, locked = without_links().status(self.log_dir), os.fstat(self._descriptor)
        except OSError as error:
            raise UnreadableError(
                f"{shown_path(self.log_dir)}: could not be looked at: {why(error)}"
            ) from error
        if found is None or identity(found) != identity(locked):
            raise RefusedError(f"{shown_path(self.log_dir)}: another directory has this name now")


@contextlib.contextmanager
def own_lock(log_dir: str, tree: Tree) -> Iterator[OwnLock | None]:
    """Hold krepair's own lock while the body runs. Yields None if the file system cannot lock a folder.

    Network file systems lock only files that are open for writing, and a folder cannot be opened for writing.

    Args:
        log_dir: absolute path of the log directory.
        tree: the tree in which it is opened.

    Raises:
        LockedError: another krepair is at work there; the message names its process.
    """
    try:
        descriptor = tree.open_folder(log_dir)
    except OSError:
        yield None
        return
    try:
        yield OwnLock(log_dir, descriptor) if _lock(log_dir, descriptor) else None
    finally:
        os.close(descriptor)


def _lock(log_dir: str, descriptor: int) -> bool:
    """Lock an open folder; returns whether its file system can do that."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in {errno.EAGAIN, errno.EACCES}:
            return False
        pid = pid_of_lock(identity(os.fstat(descriptor)))
        raise LockedError(
            f"{shown_path(log_dir)}: another krepair is at work here: {Holder(pid, command_of(pid))}; wait until it "
            "has ended"
        ) from error
    return True
