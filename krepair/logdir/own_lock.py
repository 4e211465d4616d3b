"""krepair's own lock: one krepair at a time changes a log directory.

The broker's lock keeps a broker and krepair apart, and so two krepairs, too. But ``purge`` works beside a running
broker and cannot take that lock, and it must not meet an ``apply`` or an ``undo``. So all of them take this lock, too.

It is ``flock`` of the log directory itself, and needs no file. Any file would be in somebody's way. In the root no
broker expects one, and a folder there keeps it from starting. One in a partition folder goes with the topic, one in a
private folder goes with the purge, and a full disk may have no room for any. Brokers lock no folder. The lock ends with
the process that holds it.
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
from krepair.logdir.reading import why
from krepair.logdir.view import shown_path


class OwnLock:
    """krepair's own lock, held.

    Args:
        log_dir: absolute path of the log directory.
        descriptor: of the locked, open folder.
    """

    def __init__(self, log_dir: str, descriptor: int) -> None:
        self.log_dir = log_dir
        self._descriptor = descriptor

    def check(self) -> None:
        """Make sure that the path still names the log directory that is locked.

        Raises:
            RefusedError: it names another one, or none.
            UnreadableError: it cannot be looked at.
        """
        try:
            found = without_links().status(self.log_dir)
        except OSError as error:
            raise UnreadableError(
                f"{shown_path(self.log_dir)}: could not be looked at: {why(error)}"
            ) from error
        if found is None or identity(found) != identity(os.fstat(self._descriptor)):
            raise RefusedError(f"{shown_path(self.log_dir)}: another directory has this name now")


@contextlib.contextmanager
def own_lock(log_dir: str, tree: Tree) -> Iterator[OwnLock | None]:
    """Hold krepair's own lock while the body runs; None where the file system cannot lock a folder.

    Network file systems lock only files that are open for writing, which no folder is.

    Args:
        log_dir: absolute path of the log directory.
        tree: through which it is opened.

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
    """Lock an open folder; returns whether that is possible there."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in {errno.EAGAIN, errno.EACCES}:
            return False
        pid = pid_of_lock(identity(os.fstat(descriptor)))
        raise LockedError(
            f"{shown_path(log_dir)}: another krepair is at work there, and the log directory is locked by "
            f"{Holder(pid, command_of(pid))}: wait until it has ended"
        ) from error
    return True
