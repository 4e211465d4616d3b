"""How much room a file system has, and whether it can be written at all."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from krepair.durable import medium
from krepair.durable.tree import Tree, named, without_links
from krepair.errors import RefusedError

_SUPERBLOCK_AT = 1024
_SUPERBLOCK_BYTES = 1024
_64_BIT = 0x80  # s_feature_incompat
_NOT_GIVEN_BYTES: Final = {medium.XFS: 1 << 20}
"""Kind of file system -> free bytes that it does not give for data.

XFS asks for free blocks before each call that makes or renames a file, for inodes, folders and its trees, many more
than it then uses. Seen on Linux 6: with 192 KiB free it refused a new file of 4 KiB (ENOSPC).
"""


class Space(NamedTuple):
    """The state of the file system that holds a path.

    Attributes:
        free_bytes: bytes that the caller may still use, see ``_NOT_GIVEN_BYTES``.
        free_inodes: number of files that the caller may still make; -1 if the file system has no such limit.
        block_bytes: bytes of a block; a file uses whole blocks.
        mounted_read_only: whether nothing can be written.
        withheld_bytes: bytes that have to become free before ``free_bytes`` begins to grow; 0 but on an XFS that has
            less than it keeps for itself.
        links_are_files: whether a second name of a file counts as one more file, as on tmpfs.
    """

    free_bytes: int
    free_inodes: int
    block_bytes: int
    mounted_read_only: bool
    withheld_bytes: int = 0
    links_are_files: bool = False


def read_space(path: str, tree: Tree | None = None, *, use_reserved: bool = False) -> Space:
    """The free space of the file system that holds ``path``.

    Root may also use the blocks that are reserved for root. If an apply used them, the broker, which is rarely root,
    would have no space. So they count only if the operator asked for it.

    Args:
        path: absolute path of a folder; no link is followed.
        tree: the tree that holds the path; None for any place.
        use_reserved: whether blocks that only root may use count too, see ``read_reserve``.

    Raises:
        OSError: the path is not there or cannot be reached.
        RefusedError: ``use_reserved`` is set, but the size of the reserve is not known.
    """
    with (tree or without_links()).reached(path) as folder, named(path):
        state, kind = os.statvfs(folder), medium.kind_of(folder)
    free = state.f_bavail * state.f_frsize
    if use_reserved:
        free = max(state.f_bfree * state.f_frsize - read_reserve(path).own_bytes, free)
    given = free - _NOT_GIVEN_BYTES.get(kind, 0)
    return Space(
        free_bytes=max(given, 0),
        free_inodes=state.f_favail if state.f_files else -1,
        block_bytes=state.f_frsize,
        mounted_read_only=bool(state.f_flag & os.ST_RDONLY),
        withheld_bytes=max(-given, 0),
        links_are_files=kind == medium.TMPFS,  # its ``shmem_link`` (mm/shmem.c) takes an inode for each name
    )


def reserved_for_root(path: str) -> int:
    """Bytes that are free for root alone, as any user can see it.

    Raises:
        OSError: the path is not there or cannot be reached.
    """
    state = os.statvfs(path)
    try:
        own_blocks = _own_blocks(_device_name(path))
    except (OSError, ValueError):
        own_blocks = 0  # no ext4
    return max(state.f_bfree - state.f_bavail - own_blocks, 0) * state.f_frsize


def _device_name(path: str) -> str:
    """Name of the block device below a path, as in ``/dev``."""
    device = os.stat(path).st_dev
    return os.path.basename(os.path.realpath(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"))


def _own_blocks(device: str) -> int:
    """Blocks that an ext4 file system keeps for itself; every user may read their number."""
    with open(f"/sys/fs/ext4/{device}/reserved_clusters", encoding="ascii") as file:
        return int(file.read())


class Reserve(NamedTuple):
    """The reserves of an ext4 file system.

    Attributes:
        free_bytes: bytes of all free blocks, with the reserves.
        root_bytes: bytes that only root may use.
        own_bytes: bytes that nobody may use: the file system needs them for its own blocks.
    """

    free_bytes: int
    root_bytes: int
    own_bytes: int

    @property
    def free_for_others(self) -> int:
        """Bytes that other users than root may use; negative if root has already used a part of its reserve."""
        return self.free_bytes - self.root_bytes - self.own_bytes


def read_reserve(path: str) -> Reserve:
    """Read the reserves of an ext4 file system.

    The reserve of the file system is in ``/sys/fs/ext4/DEVICE/reserved_clusters``. Root's reserve is in the superblock,
    at bytes 8 and 340 of the 1024 bytes that begin at byte 1024. ``statvfs`` shows the sum of both only while more than
    that is free.

    Args:
        path: absolute path of a folder in the file system.

    Raises:
        RefusedError: it is not an ext4 file system, or its device cannot be read.
        OSError: the path cannot be looked up.

    Source: ``super.rst`` of the kernel's documentation of ext4.
    """
    name = _device_name(path)
    try:
        own_blocks = _own_blocks(name)
        with open(f"/dev/{name}", "rb") as file:
            file.seek(_SUPERBLOCK_AT)
            block = file.read(_SUPERBLOCK_BYTES)
    except (OSError, ValueError) as error:
        raise RefusedError(
            f"{path}: --use-reserved: expected an ext4 file system on a device that root can read: {error}"
        ) from error
    state = os.statvfs(path)
    if len(block) < _SUPERBLOCK_BYTES or block[0x38:0x3A] != b"\x53\xef":
        raise RefusedError(
            f"/dev/{name}: --use-reserved: expected the superblock of ext4 at byte {_SUPERBLOCK_AT}"
        )
    high = int.from_bytes(block[0x154:0x158], "little") if block[0x60] & _64_BIT else 0
    root_blocks = int.from_bytes(block[0x08:0x0C], "little") + (high << 32)
    size = state.f_frsize
    return Reserve(state.f_bfree * size, root_blocks * size, own_blocks * size)


def mounted_read_only(path: str) -> bool:
    """Whether the file system that holds ``path`` is mounted read-only.

    Raises:
        OSError: see ``read_space``.
    """
    return read_space(path).mounted_read_only
