"""Takes the lock that a broker takes on a log directory, and asks who holds it.

A broker holds an fcntl write lock on the whole of ``.lock``. An open file description lock (``F_OFD_SETLK``) conflicts
with it. Unlike ``lockf``, it is not lost when another descriptor of the file is closed.

Brokers from 3.9 on delete ``.lock`` on a clean stop. So a held lock may be on a file without a name, and then another
broker can make a new ``.lock`` and start. That is why the inode is compared again and again.

Source: ``FileLock.scala`` (2.2.1), ``FileLock.java`` (3.9).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator

from krepair.durable import medium
from krepair.durable.attributes import read_attributes
from krepair.durable.disk import Disk
from krepair.durable.tree import Tree, without_links
from krepair.errors import LockedError, RefusedError, UnreadableError
from krepair.formats.filenames import LOCK
from krepair.logdir.holder import UNKNOWN_PID, Holder, command_of, identity, pid_of_lock
from krepair.logdir.lock_reach import refuse_if_locks_stay_here
from krepair.logdir.not_a_log_dir import shown_path
from krepair.logdir.own_lock import OwnLock, own_lock
from krepair.logdir.reading import kind_of, opened_for_reading, why

# struct flock of 64-bit Linux: short l_type, short l_whence, off_t l_start, off_t l_len, pid_t l_pid
_FLOCK = struct.Struct("hhqqi4x")
_TRIES = 16
_NOBODY = 0
_PERMISSION_BITS_FOR_FILES = 0o666


class Lock:
    """A held lock.

    Args:
        path: path of the ``.lock`` file.
        descriptor: descriptor of the locked file.
        tree: the tree in which the name is looked up.
        created: whether krepair has made the file.
    """

    def __init__(self, path: str, descriptor: int, tree: Tree, *, created: bool) -> None:
        self.path = path
        self.tree = tree
        self.created = created
        self._descriptor = descriptor
        self._device, self._inode = identity(os.fstat(descriptor))

    def check(self) -> None:
        """Make sure that the lock still keeps brokers away, because the locked file still has its name.

        Call it before each commit.

        Raises:
            RefusedError: ``.lock`` was deleted or replaced, so a broker may have started or may start.
            LockedError: another process holds the lock of the new ``.lock``.
            UnreadableError: ``.lock`` cannot be looked up.
        """
        try:
            status = self.tree.status(self.path)
            if status is None:
                raise RefusedError(
                    f"{shown_path(self.path)}: the lock's file is gone, a broker may have started"
                )
            if identity(status) == (self._device, self._inode):
                return
            holder = holder_of_file(self.path, self.tree)
        except OSError as error:
            raise _not_opened(self.path, error) from error
        if holder is not None:
            raise _locked(self.path, holder)
        raise RefusedError(
            f"{shown_path(self.path)}: the lock's file was replaced, a broker may have started"
        )


@contextlib.contextmanager
def hold_lock(log_dir: str, disk: Disk) -> Iterator[Lock]:
    """Hold the broker's lock of the log directory, and krepair's own lock, while the body runs.

    A missing ``.lock`` is created with the owner, group and mode of the log directory (without execute bits), so that
    the broker can open it. It is removed at the end, while it is still locked. A ``.lock`` that was there stays.

    Args:
        log_dir: absolute path of the log directory.
        disk: creates and removes ``.lock``.

    Raises:
        LockedError: another process holds the lock; the message names it.
        RefusedError: ``.lock`` is not a regular file, cannot be written (no permission, full disk, mounted read-only),
            or was replaced again and again while krepair tried to lock it; or locks do not leave this host, see
            ``krepair.logdir.lock_reach``.
        UnreadableError: an I/O error.
    """
    refuse_if_locks_stay_here(log_dir, disk.tree)
    # krepair's own lock comes first: a krepair that has to stop here must not lock out a broker for a moment.
    with own_lock(log_dir, disk.tree), _broker_lock(log_dir, disk) as lock:
        yield lock


@contextlib.contextmanager
def hold_own_lock(log_dir: str, disk: Disk) -> Iterator[OwnLock | Lock]:
    """Keep every other krepair out while the body runs. A broker may run.

    If the file system cannot lock a folder, the broker's lock is taken instead. Then no broker may run.

    Args:
        log_dir: absolute path of the log directory.
        disk: creates and removes ``.lock`` if it is needed.

    Raises:
        LockedError: another krepair is at work there.
        RefusedError: see ``hold_lock``.
        UnreadableError: see ``hold_lock``; only if the broker's lock is needed.
    """
    refuse_if_locks_stay_here(log_dir, disk.tree)
    with own_lock(log_dir, disk.tree) as own:
        if own is not None:
            yield own
            return
        with _broker_lock(log_dir, disk) as lock:
            yield lock


@contextlib.contextmanager
def _broker_lock(log_dir: str, disk: Disk) -> Iterator[Lock]:
    lock = _take(os.path.join(log_dir, LOCK), disk)
    try:
        yield lock
    finally:
        _release(lock, disk)


def is_locked(log_dir: str) -> Holder | None:
    """The holder of the log directory's lock, or None. It takes no lock and writes nothing.

    ``F_OFD_GETLK`` for a write lock works with a descriptor that can only read.

    Args:
        log_dir: absolute path of the log directory.

    Raises:
        UnreadableError: ``.lock`` is there but cannot be opened.
        RefusedError: ``.lock`` is not a regular file.
    """
    path = os.path.join(log_dir, LOCK)
    try:
        return holder_of_file(path, without_links())
    except OSError as error:
        raise _not_opened(path, error) from error


def _take(path: str, disk: Disk) -> Lock:
    # If krepair made the file but could not lock it, the file stays: a broker may hold it already, and can use it.
    created = False
    for _ in range(_TRIES):
        try:
            descriptor = disk.tree.open(path, os.O_RDWR)
        except FileNotFoundError:
            created = _create(path, disk)
            continue
        except OSError as error:
            raise _not_lockable(path, "opened for writing as a regular file", error) from error
        try:
            _lock_descriptor(path, descriptor)
            if _still_named(path, descriptor, disk.tree):
                created = created or _take_over(path, descriptor, disk)
                return Lock(path, descriptor, disk.tree, created=created)
        except OSError as error:
            os.close(descriptor)
            raise _not_lockable(path, "looked at", error) from error
        except BaseException:
            os.close(descriptor)
            raise
        # A broker (3.9 and later) deleted the file after krepair had opened it. The locked file has no name.
        os.close(descriptor)
        created = False
    raise RefusedError(f"{shown_path(path)}: was replaced {_TRIES} times while krepair tried to lock it")


def _take_over(path: str, descriptor: int, disk: Disk) -> bool:
    """Take over a ``.lock`` of a krepair that was killed just after it made the file; returns whether it is one.

    Such a file is empty and belongs to this user, but not to the owner of the log directory. So the broker could not
    open it.
    """
    like = read_attributes(os.path.dirname(path), disk.tree)
    found = os.fstat(descriptor)
    owner = (found.st_uid, found.st_gid)
    if found.st_size or owner != (os.geteuid(), os.getegid()) or owner == (like.uid, like.gid):
        return False
    now = read_attributes(path, disk.tree)
    mode = like.mode & _PERMISSION_BITS_FOR_FILES
    disk.set_attributes(path, now._replace(uid=like.uid, gid=like.gid, mode=mode), found.st_ino)
    return True


def _create(path: str, disk: Disk) -> bool:
    """Make ``.lock``; returns whether krepair made it. False: another process was faster."""
    try:
        like = read_attributes(os.path.dirname(path), disk.tree)
        # The file gets its owner at once. If krepair is killed here, the broker can open what is left.
        disk.create(path, b"", owner=(like.uid, like.gid))
    except FileExistsError:
        return False
    except OSError as error:
        raise _not_lockable(path, "created", error) from error
    try:
        now = read_attributes(path, disk.tree)
        # Extended attributes of the folder are not copied: a default ACL means something else on a file.
        disk.set_attributes(path, now._replace(mode=like.mode & _PERMISSION_BITS_FOR_FILES))
    except OSError as error:
        # A file with a wrong mode could keep the broker from starting.
        with contextlib.suppress(OSError):
            disk.unlink(path)
        raise _not_lockable(path, "given the log directory's mode", error) from error
    return True


def _lock_descriptor(path: str, descriptor: int) -> None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError(f"{shown_path(path)}: expected a regular file, found a {kind_of(status.st_mode)}")
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _whole_file(fcntl.F_WRLCK))
    except OSError as error:
        if error.errno not in {errno.EAGAIN, errno.EACCES}:
            raise _not_lockable(path, "locked", error) from error
        raise _locked(path, _holder_of(descriptor) or Holder(UNKNOWN_PID, "")) from error


def _release(lock: Lock, disk: Disk) -> None:
    """Close the file, which frees the lock.

    A ``.lock`` that krepair made is removed before that, so that nobody locks a file without a name.
    """
    descriptor = lock._descriptor  # noqa: SLF001 - the two halves of one thing
    try:
        # If the file cannot be removed, it does no harm: every broker can use it.
        with contextlib.suppress(OSError):
            if lock.created and _still_named(lock.path, descriptor, lock.tree):
                disk.unlink(lock.path)
    finally:
        os.close(descriptor)


def _still_named(path: str, descriptor: int, tree: Tree) -> bool:
    found = tree.status(path)
    return found is not None and identity(found) == identity(os.fstat(descriptor))


def holder_of_file(path: str, tree: Tree) -> Holder | None:
    """The holder of a lock on the whole of one file, None if nobody holds one or the file is not there.

    Raises:
        OSError: it cannot be opened.
    """
    try:
        with opened_for_reading(path, tree) as descriptor:
            return _holder_of(descriptor)
    except FileNotFoundError:
        return None


def _holder_of(descriptor: int) -> Holder | None:
    answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _whole_file(fcntl.F_WRLCK))
    kind, _, _, _, pid = _FLOCK.unpack(answer)
    if kind == fcntl.F_UNLCK:
        return None
    many_hosts = not medium.is_open_on_one_host(descriptor)
    if pid < 0 or many_hosts:  # a process id that came over a network is one of another kernel
        pid = pid_of_lock(identity(os.fstat(descriptor)))
    return Holder(pid, command_of(pid), many_hosts)


def _whole_file(kind: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, 0, 0, _NOBODY)


def _locked(path: str, holder: Holder) -> LockedError:
    log_dir = shown_path(os.path.dirname(path))
    return LockedError(f"{log_dir}: is locked by {holder}: {holder.what_to_do()}")


def _not_opened(path: str, error: OSError) -> UnreadableError | RefusedError:
    if error.errno in {errno.ELOOP, errno.EINVAL, errno.EISDIR, errno.ENXIO}:
        return RefusedError(f"{shown_path(path)}: expected a regular file: {why(error)}")
    return UnreadableError(f"{shown_path(path)}: could not be opened: {why(error)}")


def _not_lockable(path: str, doing: str, error: OSError) -> UnreadableError | RefusedError:
    """Unreadable for a failing disk; refused if krepair may not or cannot write."""
    if error.errno == errno.EIO:
        return UnreadableError(f"{shown_path(path)}: could not be {doing}: {why(error)}")
    return RefusedError(
        f"{shown_path(path)}: could not be {doing}, and without the lock nothing may be changed: {why(error)}"
    )
