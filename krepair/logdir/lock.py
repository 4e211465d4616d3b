"""The locks of a log directory: the broker's, krepair's own, and who holds them.

A broker holds an fcntl write lock on the whole of ``.lock``. An open file description lock (``F_OFD_SETLK``) conflicts
with it. Unlike ``lockf``, it is not lost when another descriptor of the file is closed.

Brokers from 3.9 on delete ``.lock`` on a clean stop. So a held lock may be on a file that has lost its name, and
another broker can create a new ``.lock`` and start. That is why the inode is compared before every commit.

Source: ``FileLock.scala`` (2.2.1), ``FileLock.java`` (3.9).

krepair has a second lock of its own, so that only one krepair at a time changes a log directory: ``purge`` may run
while the broker runs, and so cannot take the broker's lock, but it must not run together with an ``apply`` or an
``undo``. This lock is ``flock`` on the log directory itself and needs no file. A lock file would be a problem in every
place: brokers do not expect it in the root, a partition folder disappears with its topic, a work folder disappears with
the purge, and a full disk may have no room for it. Brokers do not lock folders. The lock ends with the process that
holds it.

The mount options that keep a lock on this host, invisible to other hosts with the same mount, are documented in
``nfs(5)`` (``local_lock`` and ``nolock``, which the kernel shows as ``local_lock=all``); ``mount.cifs(8)`` (``nobrl``);
``mount.lustre(8)`` (``localflock`` and ``noflock``); Linux, ``Documentation/filesystems``: ``ceph.rst``, ``gfs2.rst``
and ``ocfs2.rst`` (``localflocks``).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from krepair.durable import medium
from krepair.durable.attributes import read_attributes
from krepair.durable.disk import Disk
from krepair.durable.tree import Tree, without_links
from krepair.durable.writing_error import file_system_of
from krepair.errors import LockedError, RefusedError, UnreadableError
from krepair.formats.filenames import LOCK
from krepair.logdir.reading import kind_of, opened_for_reading, why
from krepair.logdir.view import shown_path

UNKNOWN_PID: Final = -1
_KREPAIR: Final = "krepair"
_JAVA: Final = "java"


# -- who holds a lock


class Holder(NamedTuple):
    """Process that holds a lock.

    Attributes:
        pid: process id; -1 if unknown, because an open file description lock belongs to no process.
        command: name of the process's command, may be empty.
        many_hosts: True if other hosts may mount the file system too.
    """

    pid: int
    command: str
    many_hosts: bool = False

    def __str__(self) -> str:
        if self.pid == UNKNOWN_PID and self.many_hosts:
            return (
                "a process that this host does not know (most likely a broker or a krepair on another host that mounts "
                "this directory)"
            )
        if self.pid == UNKNOWN_PID:
            return (
                "a process that the kernel does not name (most likely another krepair, run by another user)"
            )
        return f"process {self.pid} ({self.command})" if self.command else f"process {self.pid}"

    @property
    def is_krepair(self) -> bool:
        """True if the holder is known to be another krepair, which ends by itself."""
        return self.command == _KREPAIR

    def what_to_do(self) -> str:
        """Return the advice for the operator, as a phrase."""
        if self.is_krepair:
            return "wait until it has ended"
        if self.command == _JAVA:
            return "stop the broker"
        return "stop the broker, or wait until the other krepair has ended"


def identity(status: os.stat_result) -> tuple[int, int]:
    """Return (device, inode) of a file or folder, which a rename does not change."""
    return status.st_dev, status.st_ino


def pid_of_lock(wanted: tuple[int, int]) -> int:
    """Find the process that has a locked descriptor of a file or folder; -1 if this user can see no such process.

    Source: ``/proc/PID/fdinfo`` shows the locks of a descriptor (``proc(5)``).

    Args:
        wanted: ``identity`` of the file or folder.

    Source: ``/proc/PID/fdinfo`` shows the locks of a descriptor (``proc(5)``).
    """
    try:
        pids = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return UNKNOWN_PID
    for pid in pids:
        try:
            for number in os.listdir(f"/proc/{pid}/fd"):
                if _is_locked_descriptor(pid, number, wanted):
                    return int(pid)
        except OSError:
            # The process belongs to another user, or has ended.
            continue
    return UNKNOWN_PID


def _is_locked_descriptor(pid: str, number: str, wanted: tuple[int, int]) -> bool:
    try:
        if identity(os.stat(f"/proc/{pid}/fd/{number}")) != wanted:
            return False
        with open(f"/proc/{pid}/fdinfo/{number}", encoding="ascii", errors="replace") as information:
            return any(line.startswith("lock:") for line in information)
    except OSError:
        return False


def command_of(pid: int) -> str:
    """Return the command name of a process; empty if unknown."""
    if pid <= 0:
        return ""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as comm:
            return comm.read(64).strip()
    except OSError:
        return ""


# -- krepair's own lock


class OwnLock:
    """Held lock of krepair's own.

    Args:
        log_dir: absolute path of the log directory.
        descriptor: descriptor of the locked folder.
    """

    def __init__(self, log_dir: str, descriptor: int) -> None:
        self.log_dir = log_dir
        self._descriptor = descriptor

    def check(self) -> None:
        """Check that the path still names the locked log directory.

        Raises:
            RefusedError: the path now names another directory, or does not exist.
            UnreadableError: the path cannot be looked up.
        """
        try:
            path_status, locked = without_links().status(self.log_dir), os.fstat(self._descriptor)
        except OSError as error:
            raise UnreadableError(
                f"{shown_path(self.log_dir)}: could not be looked at: {why(error)}"
            ) from error
        if path_status is None or identity(path_status) != identity(locked):
            raise RefusedError(f"{shown_path(self.log_dir)}: another directory has this name now")


@contextlib.contextmanager
def own_lock(log_dir: str, tree: Tree) -> Iterator[OwnLock | None]:
    """Hold krepair's own lock while the body runs; yield None if the file system cannot lock a folder.

    Network file systems lock only files that are open for writing, and a folder cannot be opened for writing.

    Args:
        log_dir: absolute path of the log directory.
        tree: tree in which the log directory is opened.

    Raises:
        LockedError: another krepair is working there; the message names its process.
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
    """Lock an open folder; return whether its file system supports that."""
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


# -- whether a lock reaches other hosts

_NFS: Final = frozenset({"nolock", "local_lock=all", "local_lock=posix", "local_lock=flock"})
_CIFS: Final = frozenset({"nobrl"})
_CLUSTER: Final = frozenset({"localflocks"})
_LOCAL: Final = frozenset[str]()

KEEP_LOCKS_HERE: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(("bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2"), _LOCAL),
    **dict.fromkeys(
        ("ntfs3", "overlay", "ramfs", "reiserfs", "tmpfs", "ubifs", "vfat", "xfs", "zfs"), _LOCAL
    ),
    "nfs": _NFS,
    "nfs4": _NFS,
    "cifs": _CIFS,
    "smb3": _CIFS,
    "ceph": _LOCAL,
    "lustre": frozenset({"localflock", "noflock"}),
    "gfs2": _CLUSTER,
    "ocfs2": _CLUSTER,
}
"""File system types, as the kernel names them, and the mount options that keep their locks on this host."""


def refuse_if_locks_stay_here(log_dir: str, tree: Tree) -> None:
    """Check that a broker or another krepair on another host would see a lock of the log directory.

    Args:
        log_dir: absolute path of the log directory.
        tree: tree that holds the log directory.

    Raises:
        RefusedError: the mount keeps locks on this host, or krepair does not know this type of file system.
    """
    with contextlib.suppress(OSError):  # taking the lock will report the problem of the directory
        if medium.is_of_one_host(tree, log_dir):
            return
    system = file_system_of(log_dir)
    options = KEEP_LOCKS_HERE.get(system.kind)
    if options is None:
        raise RefusedError(
            f"{shown_path(log_dir)}: the file system {system} is of a type of which krepair does not know whether a "
            "lock reaches other hosts; copy the log directory to a local disk; nothing was changed"
        )
    local = sorted(options.intersection(system.options.split(",")))
    if local:
        raise RefusedError(
            f"{shown_path(log_dir)}: the file system {system} is mounted with {local[0]}, so a lock does not reach "
            f"other hosts, and nobody there would be kept away; mount it without {local[0]}; nothing was changed"
        )


# struct flock of 64-bit Linux: short l_type, short l_whence, off_t l_start, off_t l_len, pid_t l_pid
# -- the broker's lock

_FLOCK = struct.Struct("hhqqi4x")
_TRIES = 16
"""Number of attempts to lock a ``.lock`` that other processes replace at the same time."""
_NOBODY = 0
_PERMISSION_BITS_FOR_FILES = 0o666


class Lock:
    """Held lock of a broker's kind.

    Args:
        path: path of the ``.lock`` file.
        descriptor: descriptor of the locked file.
        tree: tree in which the name is looked up.
        created: True if krepair created the file.
    """

    def __init__(self, path: str, descriptor: int, tree: Tree, *, created: bool) -> None:
        self.path = path
        self.tree = tree
        self.created = created
        self._descriptor = descriptor
        self._device, self._inode = identity(os.fstat(descriptor))

    def check(self) -> None:
        """Check that the lock still keeps brokers away, because the locked file still has its name.

        Call it before each commit: a broker from 3.9 on may have deleted ``.lock`` after krepair opened it.

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
    the broker can open it. It is removed at the end, while it is still locked. A ``.lock`` that existed before is kept.

    Args:
        log_dir: absolute path of the log directory.
        disk: disk that creates and removes ``.lock``.

    Raises:
        LockedError: another process holds the lock; the message names it.
        RefusedError: ``.lock`` is not a regular file, cannot be written (no permission, full disk, mounted read-only),
            or was replaced again and again while krepair tried to lock it; or locks do not leave this host, see
            ``krepair.logdir.lock``.
        UnreadableError: an I/O error occurred.
    """
    refuse_if_locks_stay_here(log_dir, disk.tree)
    # krepair's own lock comes first: a krepair that is refused here must not lock out a broker even for a moment.
    with own_lock(log_dir, disk.tree), _broker_lock(log_dir, disk) as lock:
        yield lock


@contextlib.contextmanager
def hold_own_lock(log_dir: str, disk: Disk) -> Iterator[OwnLock | Lock]:
    """Keep every other krepair out while the body runs; a broker may run.

    If the file system cannot lock a folder, the broker's lock is taken instead. Then no broker may run.

    Args:
        log_dir: absolute path of the log directory.
        disk: disk that creates and removes ``.lock`` if needed.

    Raises:
        LockedError: another krepair is working there.
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
    """Return the holder of the log directory's lock, or None, without locking or writing anything.

    ``F_OFD_GETLK`` for a write lock works with a read-only descriptor.

    Args:
        log_dir: absolute path of the log directory.

    Raises:
        UnreadableError: ``.lock`` exists but cannot be opened.
        RefusedError: ``.lock`` is not a regular file.
    """
    path = os.path.join(log_dir, LOCK)
    try:
        return holder_of_file(path, without_links())
    except OSError as error:
        raise _not_opened(path, error) from error


def _take(path: str, disk: Disk) -> Lock:
    # If krepair created the file but could not lock it, krepair keeps it: a broker may already hold and use the file.
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
            if _names_locked_file(path, descriptor, disk.tree):
                created = created or _take_over(path, descriptor, disk)
                return Lock(path, descriptor, disk.tree, created=created)
        except OSError as error:
            os.close(descriptor)
            raise _not_lockable(path, "looked at", error) from error
        except BaseException:
            os.close(descriptor)
            raise
        # A broker (3.9 and later) deleted the file after krepair had opened it, so the locked file has no name.
        os.close(descriptor)
        created = False
    raise RefusedError(f"{shown_path(path)}: was replaced {_TRIES} times while krepair tried to lock it")


def _take_over(path: str, descriptor: int, disk: Disk) -> bool:
    """Adopt a ``.lock`` of a krepair that was killed right after creating it; return whether this is one.

    Such a file is empty and belongs to this user, not to the owner of the log directory. So the broker could not open
    the file.
    """
    like = read_attributes(os.path.dirname(path), disk.tree)
    status = os.fstat(descriptor)
    owner = (status.st_uid, status.st_gid)
    if status.st_size or owner != (os.geteuid(), os.getegid()) or owner == (like.uid, like.gid):
        return False
    now = read_attributes(path, disk.tree)
    mode = like.mode & _PERMISSION_BITS_FOR_FILES
    disk.set_attributes(path, now._replace(uid=like.uid, gid=like.gid, mode=mode), status.st_ino)
    return True


def _create(path: str, disk: Disk) -> bool:
    """Create ``.lock``; return False if another process was faster."""
    try:
        like = read_attributes(os.path.dirname(path), disk.tree)
        # The file gets its owner at once, so that the broker can open it even if krepair is killed here.
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
        # A lock of the open file description: a POSIX lock ends as soon as any part of this process closes the file.
        # The broker's POSIX lock conflicts with both.
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _whole_file(fcntl.F_WRLCK))
    except OSError as error:
        if error.errno not in {errno.EAGAIN, errno.EACCES}:
            raise _not_lockable(path, "locked", error) from error
        raise _locked(path, _holder_of(descriptor) or Holder(UNKNOWN_PID, "")) from error


def _release(lock: Lock, disk: Disk) -> None:
    """Close the file, which frees the lock.

    A ``.lock`` that krepair created is removed before that, so that nobody locks a file without a name.
    """
    descriptor = lock._descriptor  # noqa: SLF001 - the two halves of one thing
    try:
        # A file that cannot be removed does no harm: every broker can use it.
        with contextlib.suppress(OSError):
            if lock.created and _names_locked_file(lock.path, descriptor, lock.tree):
                disk.unlink(lock.path)
    finally:
        os.close(descriptor)


def _names_locked_file(path: str, descriptor: int, tree: Tree) -> bool:
    path_status = tree.status(path)
    return path_status is not None and identity(path_status) == identity(os.fstat(descriptor))


def holder_of_file(path: str, tree: Tree) -> Holder | None:
    """Return the holder of a lock on one whole file; None if it is not locked or does not exist.

    Raises:
        OSError: the file cannot be opened.
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
    if pid < 0 or many_hosts:  # a process id from a network lock belongs to another kernel
        pid = pid_of_lock(identity(os.fstat(descriptor)))
    return Holder(pid, command_of(pid), many_hosts)


def _whole_file(kind: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, 0, 0, _NOBODY)


def _locked(path: str, holder: Holder) -> LockedError:
    log_dir = shown_path(os.path.dirname(path))
    return LockedError(f"{log_dir}: is locked by {holder}: {holder.what_to_do()}")


def _not_opened(path: str, error: OSError) -> UnreadableError | RefusedError:
    if error.errno == errno.EINVAL:  # this message already says what was expected
        return RefusedError(f"{shown_path(path)}: {why(error)}")
    if error.errno in {errno.ELOOP, errno.EISDIR, errno.ENXIO}:
        return RefusedError(f"{shown_path(path)}: expected a regular file: {why(error)}")
    return UnreadableError(f"{shown_path(path)}: could not be opened: {why(error)}")


def _not_lockable(path: str, doing: str, error: OSError) -> UnreadableError | RefusedError:
    """Build the error: unreadable for a failing disk, refused if krepair may not or cannot write."""
    if error.errno == errno.EIO:
        return UnreadableError(f"{shown_path(path)}: could not be {doing}: {why(error)}")
    return RefusedError(
        f"{shown_path(path)}: could not be {doing}, and without the lock nothing may be changed: {why(error)}"
    )
