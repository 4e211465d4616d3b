"""What lies below a folder: whether its file system outlives a reboot, and on which disks it is.

Source: ``/proc/self/mountinfo`` (``proc(5)``), and ``/sys/dev/block`` (``Documentation/ABI/stable/sysfs-block`` of
Linux).
"""

from __future__ import annotations

import os
from typing import Final

from krepair.durable.writing_error import file_system_of

_BLOCK_DEVICES: Final = "/sys/dev/block"
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs", "rootfs"})
_DEEPEST: Final = 16


def memory_file_system(path: str) -> str:
    """Kind of the file system of a folder if it is in memory and so does not outlive a reboot; else empty.

    Args:
        path: absolute path of the folder.
    """
    kind = file_system_of(path).kind
    return (
        kind if kind in _IN_MEMORY or any(disk.startswith(("ram", "zram")) for disk in disks_of(path)) else ""
    )


def disks_of(path: str) -> frozenset[str]:
    """Names of the disks, such as ``sda``, that hold the file system of a folder; empty where that is not known.

    Partitions, volumes and loop devices are followed to the disks below them. A file system without a block device of
    its own (in memory, over a network, Btrfs, ZFS) has none that is known.

    Args:
        path: absolute path of the folder.
    """
    return _below(path, _DEEPEST)


def _below(path: str, depth: int) -> frozenset[str]:
    try:
        device = os.stat(path).st_dev
        return disks_below(os.path.realpath(f"{_BLOCK_DEVICES}/{os.major(device)}:{os.minor(device)}"), depth)
    except OSError:
        return frozenset()


def disks_below(device: str, depth: int = _DEEPEST) -> frozenset[str]:
    """Names of the disks below a block device.

    Args:
        device: its folder in sysfs.
        depth: how many layers are followed at most.

    Raises:
        OSError: something could not be looked at.
    """
    if not os.path.isdir(device) or not depth:
        return frozenset()
    if os.path.exists(f"{device}/partition"):
        return disks_below(os.path.dirname(device), depth - 1)
    slaves = f"{device}/slaves"
    parts = os.listdir(slaves) if os.path.isdir(slaves) else []
    if parts:
        below = (disks_below(os.path.realpath(f"{slaves}/{part}"), depth - 1) for part in parts)
        return frozenset().union(*below)
    backing = f"{device}/loop/backing_file"
    if os.path.exists(backing):
        with open(backing, encoding="utf-8", errors="surrogateescape") as name:
            return _below(name.read().rstrip("\n"), depth - 1)
    return frozenset({os.path.basename(device)})
