"""Whether this user can do all that a change takes, asked before anything is begun.

A new file takes over the owner of the one it replaces, which only root can give away; and the kernel lets nobody else
make a hard link to somebody's file. So whoever is not root must own what is changed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from krepair.durable.tree import Tree
from krepair.errors import WrongUserError
from krepair.formats.filenames import CLEAN_SHUTDOWN, RECOVERY_POINT_CHECKPOINT
from krepair.journal.folder import PartitionFolder

_ROOT = 0


def check_may_change_root(tree: Tree, log_dir: str) -> None:
    """Checks that the fence can be put up: the files in the root are this user's.

    Raises:
        WrongUserError: they are not; the message names the first one.
        OSError: one could not be looked at.
    """
    if os.geteuid() == _ROOT:
        return
    _check_folder(tree, log_dir)
    _check_files(tree, [f"{log_dir}/{name}" for name in (RECOVERY_POINT_CHECKPOINT, CLEAN_SHUTDOWN)])


def check_may_change(folder: PartitionFolder) -> None:
    """Checks that the files of a partition, and what krepair left in it, are this user's.

    Raises:
        WrongUserError: one is not; the message names it.
        OSError: one could not be looked at.
    """
    if os.geteuid() == _ROOT:
        return
    _check_files(folder.tree, [f"{folder.path}/{name}" for name in folder.file_names()])
    check_may_purge(folder)


def check_may_purge(folder: PartitionFolder) -> None:
    """Checks that what krepair left in a partition is this user's; of the partition's own files none matters.

    Raises:
        WrongUserError: something is not; the message names it.
        OSError: something could not be looked at.
    """
    if os.geteuid() == _ROOT:
        return
    tree = folder.tree
    _check_folder(tree, folder.holder)
    for path in (folder.private, *(f"{folder.private}/{name}" for name in ("stage", "keep", "out", "fence"))):
        if tree.is_folder(path):
            _check_folder(tree, path)
            _check_files(tree, [f"{path}/{name}" for name in tree.names(path)])


def _check_folder(tree: Tree, path: str) -> None:
    folder = tree.open_folder(path)
    try:
        # The system itself is asked: it also knows access control lists.
        may = os.access(f"/proc/self/fd/{folder}", os.R_OK | os.W_OK | os.X_OK, effective_ids=True)
    finally:
        os.close(folder)
    if not may:
        raise WrongUserError(
            f"{path}: {_who()} may not change this folder; run krepair as its owner, or as root"
        )


def _check_files(tree: Tree, paths: Iterable[str]) -> None:
    groups = {os.getegid(), *os.getgroups()}
    for path in paths:
        found = tree.status(path)
        if found is None or stat.S_ISDIR(found.st_mode):
            continue
        if found.st_uid != os.geteuid() or found.st_gid not in groups:
            raise WrongUserError(
                f"{path}: belongs to user {found.st_uid}, group {found.st_gid}; {_who()} could not give a new file "
                "the same owner; run krepair as that user, or as root"
            )


def _who() -> str:
    return f"user {os.geteuid()}"
