"""Purge: the kept originals are removed for good, with the private sub-folder. Undo is no longer possible."""

from __future__ import annotations

import os
import stat

from krepair.errors import RefusedError
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import JOURNAL_NAME, Journal


def purge_partition(folder: PartitionFolder) -> int:
    """Removes the private sub-folder of a plan; may be repeated after a crash at any instant.

    Returns:
        Bytes of the files that went (a hard link to a file that lives on counts as nothing).

    Raises:
        RefusedError: a change is half done, or the fence is up: apply or undo has to end first.
        OSError: a call failed; run it again.
    """
    if not folder.tree.is_folder(folder.private):
        return _gone(folder)
    journal = Journal(folder.disk, folder.private, folder.plan_id, folder.folder, folder.owner())
    journal.settle()
    half_done = journal.unfinished()
    if half_done:
        command = f"krepair {'undo' if journal.states[half_done[0]] == 'undoing' else 'apply'} PLAN"
        raise RefusedError(f"{half_done[0]}: is half done; nothing is purged", next_command=command)
    if folder.tree.is_folder(f"{folder.private}/fence"):
        raise RefusedError(
            f"{folder.private}/fence: the fence is still up", next_command="krepair apply PLAN"
        )
    committed = tuple(change for change, state in journal.states.items() if state == "committed")
    if not committed and journal.purging is None:
        check_nothing_kept(folder)
    if committed and journal.purging is None:
        journal.begin_purge(committed)
    return remove_private_folder(folder)


def check_nothing_kept(folder: PartitionFolder) -> None:
    """Checks that no original would go with the private sub-folder: each kept file is also in its place.

    To be asked wherever the journal says that nothing is applied. Its last record may have been damaged on the disk,
    and looks then like one that was torn by a crash and never happened.

    Raises:
        RefusedError: a kept file is not in its place; the message names it.
        OSError: something could not be looked at.
    """
    keep = folder.names.keep()
    if not folder.tree.is_folder(folder.at(keep)):
        return
    for name in folder.tree.names(folder.at(keep)):
        kept, here = folder.state(f"{keep}/{name}"), folder.state(name)
        if kept is not None and (here is None or here.inode != kept.inode):
            raise RefusedError(
                f"{folder.at(keep)}/{name}: is kept and not in its place, but the journal has no record of a change; "
                "the journal may be damaged, and nothing is removed",
                next_command=f"krepair check {folder.log_dir}",
            )


def remove_private_folder(folder: PartitionFolder) -> int:
    """Removes everything in the private sub-folder, the journal last, and the sub-folder itself.

    Returns:
        Bytes of the files whose last name went.

    Raises:
        RefusedError: the fence is up: the clean-shutdown marker would go with it.
        OSError: a call failed; run it again.
    """
    if not folder.tree.is_folder(folder.private):
        return _gone(folder)
    if folder.tree.is_folder(f"{folder.private}/fence"):
        raise RefusedError(
            f"{folder.private}/fence: the fence is still up", next_command="krepair apply PLAN"
        )
    freed = 0
    for name, found in folder.tree.entries(folder.private):
        if name != JOURNAL_NAME:
            freed += _remove(folder, f"{folder.private}/{name}", found)
    # Only when nothing is left that the journal speaks of may the journal go.
    folder.disk.sync_dir(folder.private)
    journal = f"{folder.private}/{JOURNAL_NAME}"
    left = folder.tree.status(journal)
    if left is not None:
        freed += _remove(folder, journal, left)
    folder.disk.remove_dir(folder.private)
    folder.disk.sync_dir(os.path.dirname(folder.private))
    return freed


def _gone(folder: PartitionFolder) -> int:
    """The run that removed it may have been killed before that was durable."""
    if folder.tree.is_folder(folder.holder):
        folder.disk.sync_dir(folder.holder)
    return 0


def _remove(folder: PartitionFolder, path: str, found: os.stat_result) -> int:
    if not stat.S_ISDIR(found.st_mode):
        folder.disk.unlink(path)
        return found.st_size if found.st_nlink == 1 else 0
    freed = sum(_remove(folder, f"{path}/{name}", inner) for name, inner in folder.tree.entries(path))
    folder.disk.remove_dir(path)
    return freed
