"""Who holds a lock: the process, and its name."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

UNKNOWN_PID: Final = -1


class Holder(NamedTuple):
    """Who holds the lock.

    Attributes:
        pid: process id, -1 where the kernel does not say: an open file description lock belongs to no
        process. command: the command's name, may be empty.
    """

    pid: int
    command: str

    def __str__(self) -> str:
        if self.pid == UNKNOWN_PID:
            return (
                "a process that the kernel does not name (most likely another krepair, run by another user)"
            )
        return f"process {self.pid} ({self.command})" if self.command else f"process {self.pid}"


def identity(status: os.stat_result) -> tuple[int, int]:
    """What a file or folder is known by, whatever its name: its file system and its inode."""
    return status.st_dev, status.st_ino


def pid_of_lock(wanted: tuple[int, int]) -> int:
    """The process that has a locked descriptor of a file or folder, -1 if none can be seen.

    The kernel shows the locks of a descriptor in its ``fdinfo``.
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
            # Somebody else's process, or one that has ended.
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
    """Name of a process, empty if it cannot be seen."""
    if pid <= 0:
        return ""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as comm:
            return comm.read(64).strip()
    except OSError:
        return ""
