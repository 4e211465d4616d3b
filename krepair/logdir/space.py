"""Reads how much free space a file system has for krepair's files, and whether it is writable at all."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final, NamedTuple

from krepair.durable import medium
from krepair.durable.tree import Tree, named, without_links
from krepair.logdir.reading import SECTOR

_SUPERBLOCK_AT: Final = 1024
_SUPERBLOCK_BYTES: Final = 1024
_64_BIT: Final = 0x80  # s_feature_incompat
_NOT_GIVEN_BYTES: Final = {medium.XFS: 1 << 20}
"""Number of free bytes that a file system of this type reports, but does not give for data.

Before each call that creates or renames a file, XFS demands free blocks for inodes, folders and its trees, many more
than it then uses. Seen on Linux 6: with 192 KiB free it refused a new file of 4 KiB (ENOSPC).
"""
_OWN_SHARE: Final = 32
"""Divisor of the block count that gives at least what ext4 reserves for itself: a fiftieth of all blocks, counting its
own tables, which ``statvfs`` leaves out."""
_MOST_OWN: Final = 4096
"""Upper bound of the number of blocks that ext4 reserves for itself, used if ``/sys`` does not tell the number.

ext4 reserves a fiftieth of all blocks, but at most this number (``ext4_set_resv_clusters``).
"""
_PAUSE_S: Final = 0.1
"""Seconds between two readings while the file system releases blocks."""
_MOST_PAUSES: Final = 20
"""Largest number of such pauses."""


class VolumeSpace(NamedTuple):
    """Free space of the file system that holds a path.

    Attributes:
        free_bytes: bytes that users who are not root may still use; negative if that many must become free before these
            users get any (an XFS with less than its own reserve; ext4 if root asks after having used root's reserve).
        reserve_bytes: additional bytes that only root may use now.
        free_inodes: number of files that the caller may still create; -1 if the file system has no such limit.
        block_bytes: size of a block in bytes; a file occupies whole blocks.
        mounted_read_only: True if nothing can be written.
        links_are_files: True if a second name of a file counts as another file, as on tmpfs.
    """

    free_bytes: int
    free_inodes: int
    block_bytes: int
    mounted_read_only: bool
    reserve_bytes: int = 0
    links_are_files: bool = False
    gives_back_later: bool = False


def read_space(path: str, tree: Tree | None = None) -> VolumeSpace:
    """Read the free space of the file system that holds ``path``.

    Root may also use the blocks that are reserved for root. If an apply used up these blocks, the broker, which is
    rarely root, would have no space. So these blocks are reported separately.

    Args:
        path: absolute path of a folder without links.
        tree: tree that holds the path; None for any place.

    Raises:
        OSError: the path does not exist or cannot be reached.
    """
    with (tree or without_links()).reached(path) as folder, named(path):
        state, kind, device = os.statvfs(folder), medium.kind_of(folder), os.fstat(folder).st_dev
    free, every = state.f_bavail - _NOT_GIVEN_BYTES.get(kind, 0) // state.f_frsize, state.f_bfree
    reserve = 0
    if every > state.f_bavail:
        name = _block_device(device)
        own = _blocks_of_ext4(name, state.f_fsid)
        is_told = own >= 0
        if not is_told:
            own = min(state.f_blocks // _OWN_SHARE, _MOST_OWN) if kind == medium.EXT4 else 0
        reserve = max(every - state.f_bavail - own, 0)
        if not state.f_bavail and is_told:
            free = min(every - own - _root_blocks(name), 0)
    return VolumeSpace(
        free_bytes=free * state.f_frsize,
        # XFS creates inodes from free blocks and reports as many as these blocks could hold, which is no limit.
        free_inodes=state.f_favail if state.f_files and kind != medium.XFS else -1,
        block_bytes=state.f_frsize,
        mounted_read_only=bool(state.f_flag & os.ST_RDONLY),
        reserve_bytes=reserve * state.f_frsize,
        links_are_files=kind == medium.TMPFS,  # its ``shmem_link`` (mm/shmem.c) takes an inode for each name
        gives_back_later=kind == medium.XFS,
    )


def settled_space(path: str, tree: Tree | None = None) -> VolumeSpace:
    """Return the free space of a file system, including blocks that it will release soon.

    XFS frees removed files in the background (``xfs_inodegc_worker``): right after 3,000 files were removed, statvfs
    showed only 115 of 124 MB. This function waits for that. XFS also keeps blocks after the end of a file that was
    written and closed more than once, for five minutes, or until a write needs them (``xfs_blockgc_free_space``): 241
    MB for logs of 80 MB. These blocks are added. Seen on Linux 6.18.

    Args:
        path: absolute path of a folder; the blocks after the ends of files below it count as free.
        tree: tree that holds the path; None for any place.

    Raises:
        OSError: the path does not exist or cannot be reached.
    """
    place = tree or without_links()
    space = read_space(path, place)
    if not space.gives_back_later:
        return space
    for _ in range(_MOST_PAUSES):
        time.sleep(_PAUSE_S)
        before, space = space, read_space(path, place)
        if space.free_bytes <= before.free_bytes:
            break
    return space._replace(free_bytes=space.free_bytes + _bytes_after_ends(path, place, space.block_bytes))


def _bytes_after_ends(path: str, tree: Tree, block: int) -> int:
    """Return the bytes of blocks after the ends of the files below a folder."""
    inodes: set[int] = set()
    kept = 0
    for status in _with_all_below(path, tree):
        if stat.S_ISREG(status.st_mode) and status.st_ino not in inodes:
            inodes.add(status.st_ino)
            kept += max(status.st_blocks * SECTOR - -(-status.st_size // block) * block, 0)
    return kept


@cache
def _block_device(device: int) -> str:
    """Return the name of a block device by its number, as in ``/dev``."""
    return os.path.basename(os.path.realpath(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"))


@cache  # cached: a setting of the mounted file system that is needed before each change
def _blocks_of_ext4(device: str, file_system: int) -> int:
    """Read the number of blocks that ext4 reserves for itself; -1 if ``/sys`` does not tell it.

    Args:
        device: name of the block device.
        file_system: id of the mounted file system; a new file system on the same device has another id.
    """
    try:
        with open(f"/sys/fs/ext4/{device}/reserved_clusters", encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return -1


def _root_blocks(device: str) -> int:
    """Read the number of blocks that ext4 reserves for root; 0 if the device is not ext4 or cannot be read.

    The number is in the superblock, at bytes 8 and 340. ``statvfs`` shows it only while more blocks than that are free.

    Source: ``super.rst`` of the kernel's documentation of ext4.
    """
    try:
        with open(f"/dev/{device}", "rb") as file:
            file.seek(_SUPERBLOCK_AT)
            block = file.read(_SUPERBLOCK_BYTES)
    except OSError:
        return 0
    if len(block) < _SUPERBLOCK_BYTES or block[0x38:0x3A] != b"\x53\xef":
        return 0
    high = int.from_bytes(block[0x154:0x158], "little") if block[0x60] & _64_BIT else 0
    return int.from_bytes(block[0x08:0x0C], "little") + (high << 32)


def taken_below(paths: Iterable[str], tree: Tree) -> dict[str, int]:
    """Compute the bytes of disk that removing each folder, with everything below it, would free.

    A file is counted once, and only if all its names are below these folders. Files that cannot be examined are not
    counted.

    Args:
        paths: absolute paths of folders, none of them below another.
        tree: tree that holds the folders.
    """
    taken = dict.fromkeys(paths, 0)
    names_left: dict[tuple[int, int], int] = {}
    for path in taken:
        for status in _with_all_below(path, tree):
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                inode = (status.st_dev, status.st_ino)
                names_left[inode] = names_left.get(inode, status.st_nlink) - 1
                if names_left[inode]:
                    continue
            taken[path] += status.st_blocks * SECTOR
    return taken


def _with_all_below(path: str, tree: Tree) -> Iterator[os.stat_result]:
    with contextlib.suppress(OSError), tree.reached(path) as folder:
        yield os.fstat(folder)
        yield from _all_below(folder)


def _all_below(folder: int) -> Iterator[os.stat_result]:
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                yield (status := entry.stat(follow_symlinks=False))
                if stat.S_ISDIR(status.st_mode):
                    below = os.open(entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                    try:
                        yield from _all_below(below)
                    finally:
                        os.close(below)
