"""Whether a lock of this host keeps everybody out who can mount the file system of a log directory.

Sources: ``nfs(5)``, ``local_lock`` and ``nolock`` (which the kernel shows as ``local_lock=all``); ``mount.cifs(8)``,
``nobrl``; ``mount.lustre(8)``, ``localflock`` and ``noflock``; Linux, ``Documentation/filesystems``: ``ceph.rst``,
``gfs2.rst`` and ``ocfs2.rst``, ``localflocks``.
"""

from __future__ import annotations

import contextlib
from typing import Final

from krepair.durable import medium
from krepair.durable.tree import Tree
from krepair.durable.writing_error import file_system_of
from krepair.errors import RefusedError
from krepair.logdir.not_a_log_dir import shown_path

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
"""Type of a file system, as the kernel names it -> options of a mount with which its locks do not leave the host."""


def refuse_if_locks_stay_here(log_dir: str, tree: Tree) -> None:
    """Check that a broker, or another krepair, on another host would see a lock of the log directory.

    Args:
        log_dir: absolute path of the log directory.
        tree: the tree that holds it.

    Raises:
        RefusedError: the mount keeps locks on this host, or nobody knows what this type of file system does.
    """
    with contextlib.suppress(OSError):  # the lock itself says what is wrong with the directory
        if medium.is_of_one_host(tree, log_dir):
            return
    system = file_system_of(log_dir)
    options = KEEP_LOCKS_HERE.get(system.kind)
    if options is None:
        raise RefusedError(
            f"{shown_path(log_dir)}: the file system {system} is of a type of which krepair does not know whether a "
            "lock reaches other hosts; copy the log directory to a local disk; nothing was changed"
        )
    found = sorted(options.intersection(system.options.split(",")))
    if found:
        raise RefusedError(
            f"{shown_path(log_dir)}: the file system {system} is mounted with {found[0]}, so a lock does not reach "
            f"other hosts, and nobody there would be kept away; mount it without {found[0]}; nothing was changed"
        )
