"""A file that says which krepair is at work on a log directory, for another krepair on a host that mounts it, too.

Locks of krepair's own reach other hosts only as far as the mount carries them. So where a file system is not known to
be of one host alone, ``apply``, ``undo`` and ``purge`` also make a file with ``O_EXCL`` in krepair's own sub-folder of
a partition. It says host, process and time. Then they look for those of others, and withdraw if there is one. It is a
guard against another krepair only: no file keeps a broker away.

It never expires by a clock. Where the same kernel can say that its process is gone, it no longer counts. Elsewhere a
person has to say so.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import Struct

from krepair.durable import medium
from krepair.durable.disk import Disk
from krepair.errors import KrepairError, LockedError, RefusedError, UnwritableError
from krepair.formats.filenames import PRIVATE_PREFIX
from krepair.journal.folder import PartitionFolder
from krepair.journal.guards import HeldLock
from krepair.journal.purge import remove_private_folder
from krepair.logdir.reading import why

LEASE: Final = "lease"
_AT_MOST: Final = 4096


class Holder(Struct, frozen=True, kw_only=True):
    """Who is at work.

    Attributes:
        host: its host name, for people.
        pid: its process.
        since: when it began, by its clock, for people.
        kernel: boot id and process namespace: within them a process id means one process.
        started: when the process began, in ticks of that kernel.
        token: 16 hex digits, anew for each lease.
    """

    host: str
    pid: int
    since: str
    kernel: str
    started: str
    token: str

    @property
    def name(self) -> str:
        """As ``--take-over`` names it."""
        return f"{self.host}:{self.pid}"


class Lease:
    """The log directory's lock, and a lease beside it, which is asked whenever the lock is.

    Args:
        lock: of the log directory, held.
        folder: whose private sub-folder holds the lease.
        data: bytes of the lease.
    """

    def __init__(self, lock: HeldLock, folder: PartitionFolder, data: bytes) -> None:
        self._lock = lock
        self._folder = folder
        self._data = data
        self.path = f"{folder.private}/{LEASE}"

    def check(self) -> None:
        """Make sure that both are still ours.

        Raises:
            RefusedError: somebody has taken the lease over.
            KrepairError: see the lock.
        """
        self._lock.check()
        try:
            # The last step of undo and purge takes the sub-folder away, and the lease with it.
            if self._folder.tree.is_folder(self._folder.private) and self._read() != self._data:
                raise RefusedError(f"{self.path}: is no longer the lease of this krepair; it was taken over")
        except OSError as error:
            raise RefusedError(f"{self.path}: {why(error)}") from error

    def release(self) -> None:
        """Remove it, if it is still there and ours. What cannot be removed stays, and the next krepair names it."""
        with contextlib.suppress(OSError, KrepairError):
            if self._read() == self._data:
                self._folder.disk.unlink(self.path)
                self._folder.disk.sync_dir(self._folder.private)

    def _read(self) -> bytes | None:
        return self._folder.tree.read(self.path, _AT_MOST)


@contextlib.contextmanager
def leased(
    folders: Sequence[PartitionFolder], lock: HeldLock, take_over: str = "", *, make: bool = False
) -> Iterator[HeldLock]:
    """Hold a lease while the body runs; gives what is to be asked before each change.

    Where the file system is known to be of one host, no file is made: the lock is enough.

    Args:
        folders: those of the plan, in the order in which they are worked on. The last one that has a private
            sub-folder holds the lease, since it is the last to go.
        lock: of the log directory, held.
        take_over: ``HOST:PID`` of a lease that a person knows to be without an owner, or empty.
        make: whether the private sub-folder of the last folder is made if none is there.

    Raises:
        LockedError: another krepair is at work; the message says how to take its lease over.
        UnwritableError: the lease could not be made.
        OSError: something could not be looked at.
    """
    if not folders or medium.is_of_one_host(folders[0].tree, folders[0].log_dir):
        yield lock
        return
    there = [folder for folder in folders if _is_there(folder, folder.private)]
    able = there or ([folder for folder in folders if _is_there(folder, folder.holder)] if make else [])
    if not able:
        yield lock
        return
    folder = able[-1]
    try:
        if make or not there:
            folder.make_private_folders()  # one that a killed run has left unfinished is made anew
            folder.sync_new()
        lease = _make(folder, lock, take_over)
    except OSError as error:
        raise UnwritableError(
            f"{error.filename or folder.private}: {why(error)}; nothing was changed"
        ) from error
    try:
        _refuse_others(folder.disk, folder.log_dir, lease.path, take_over)
        yield lease
    finally:
        lease.release()
        if not there:
            _remove_if_unused(folder)


def _is_there(folder: PartitionFolder, path: str) -> bool:
    """Whether a folder can hold the lease. One that cannot be looked at is left to its own partition's turn."""
    try:
        return folder.tree.is_folder(path)
    except OSError:
        return False


def _make(folder: PartitionFolder, lock: HeldLock, take_over: str) -> Lease:
    data = msgspec.json.encode(_this_process()) + b"\n"
    path = f"{folder.private}/{LEASE}"
    _end_ownerless(folder.disk, path, take_over)
    try:
        folder.disk.create(path, data, owner=folder.owner())
    except FileExistsError as error:
        raise LockedError(f"{path}: another krepair has made it just now; nothing was changed") from error
    folder.disk.sync_dir(folder.private)
    return Lease(lock, folder, data)


def _remove_if_unused(folder: PartitionFolder) -> None:
    """The private sub-folder was made for the lease alone: it goes if nothing else came into it."""
    with contextlib.suppress(OSError, KrepairError):
        inside = [f"{folder.private}/{name}" for name in folder.tree.names(folder.private)]
        if all(folder.tree.is_folder(path) and not folder.tree.names(path) for path in inside):
            remove_private_folder(folder)


def _refuse_others(disk: Disk, log_dir: str, own: str, take_over: str) -> None:
    """Look for leases of other plans, after the own one was made: of two that begin at once at least one sees both."""
    for folder in disk.tree.names(log_dir):
        parent = f"{log_dir}/{folder}"
        if not disk.tree.is_folder(parent):
            continue
        for name in disk.tree.names(parent):
            path = f"{parent}/{name}/{LEASE}"
            if name.startswith(PRIVATE_PREFIX) and path != own and disk.tree.is_folder(f"{parent}/{name}"):
                _end_ownerless(disk, path, take_over)


def _end_ownerless(disk: Disk, path: str, take_over: str) -> None:
    """Remove a lease whose process is gone, or that a person takes over.

    Raises:
        LockedError: its owner may be at work.
    """
    found = disk.tree.read(path, _AT_MOST)
    if found is None:
        return
    try:
        holder = msgspec.json.decode(found, type=Holder)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        holder = Holder(host="unknown", pid=0, since="an unknown time", kernel="", started="", token="")
    if not _is_gone(holder) and take_over != holder.name:
        raise LockedError(
            f"{path}: krepair is at work on this log directory as process {holder.pid} of host {holder.host}, since "
            f"{holder.since}. If that process has ended (look on that host), type the same command again with "
            f"--take-over {holder.name}; nothing was changed"
        )
    # Whoever renames it first ends it. One that another krepair has made meanwhile is put back.
    taken = f"{path}~{secrets.token_hex(8)}"
    try:
        disk.rename(path, taken)
    except FileNotFoundError as error:
        raise LockedError(
            f"{path}: another krepair has taken it over just now; nothing was changed"
        ) from error
    if disk.tree.read(taken, _AT_MOST) != found:
        with contextlib.suppress(FileExistsError):
            disk.link(taken, path)
        disk.unlink(taken)
        raise LockedError(f"{path}: another krepair has made it just now; nothing was changed")
    disk.unlink(taken)


def _this_process() -> Holder:
    pid = os.getpid()
    return Holder(
        host=socket.gethostname(),
        pid=pid,
        since=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        kernel=_kernel(),
        started=_start_of(pid),
        token=secrets.token_hex(8),
    )


def _is_gone(holder: Holder) -> bool:
    """Whether this kernel knows that the process has ended. Of another host's, or another container's, nothing is."""
    kernel = _kernel()
    return bool(kernel) and holder.kernel == kernel and _start_of(holder.pid) != holder.started


def _kernel() -> str:
    """Boot id and process namespace; empty if the kernel does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _start_of(pid: int) -> str:
    """When a process began, in ticks since the boot; empty if there is none.

    Source: ``/proc/PID/stat``, field 22 (``proc(5)``).
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return ""
