"""Finds the process that holds a lock."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

UNKNOWN_PID: Final = -1
_KREPAIR: Final = "krepair"
_JAVA: Final = "java"


class Holder(NamedTuple):
    """The process that holds the lock.

    Attributes:
        pid: process id; -1 if it is not known, because an open file description lock belongs to no process.
        command: name of the command, may be empty.
        many_hosts: whether other hosts may have the file system mounted, too.
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
        """Whether it is known to be another krepair, which ends by itself."""
        return self.command == _KREPAIR

    def what_to_do(self) -> str:
        """What a person does about it, in words."""
        if self.is_krepair:
            return "wait until it has ended"
        if self.command == _JAVA:
            return "stop the broker"
        return "stop the broker, or wait until the other krepair has ended"


def identity(status: os.stat_result) -> tuple[int, int]:
    """(device, inode) of a file or folder, which stay the same if it is renamed."""
    return status.st_dev, status.st_ino


def pid_of_lock(wanted: tuple[int, int]) -> int:
    """Id of the process that has a locked descriptor of a file or folder; -1 if this user can see none.

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
            # The process belongs to another user, or it has ended.
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
    """Name of the command of a process; empty if it is not known."""
    if pid <= 0:
        return ""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as comm:
            return comm.read(64).strip()
    except OSError:
        return ""
