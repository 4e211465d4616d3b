"""Purge: the kept originals go, and with them the private sub-folder and the way back."""

from __future__ import annotations

import os

from krepair.errors import RefusedError
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import JOURNAL_NAME, Journal, PurgeIntent


def purge_partition(folder: PartitionFolder) -> int:
    """Removes the private sub-folder of a plan; may be repeated after a crash at any instant.

    Returns:
        Bytes of the files that went (a hard link to a file that lives on counts as nothing).

    Raises:
        RefusedError: a change is half done, or the fence is up: apply or undo has to end first.
        OSError: a call failed; run it again.
    """
    if not os.path.isdir(folder.private):
        return 0
    journal = Journal(folder.disk, folder.private, folder.plan_id, folder.folder)
    half_done = journal.unfinished()
    if half_done:
        command = f"krepair {'undo' if journal.states[half_done[0]] == 'undoing' else 'apply'} PLAN"
        raise RefusedError(f"{half_done[0]}: is half done; nothing is purged", next_command=command)
    if os.path.isdir(f"{folder.private}/fence"):
        raise RefusedError(
            f"{folder.private}/fence: the fence is still up", next_command="krepair apply PLAN"
        )
    committed = tuple(change for change, state in journal.states.items() if state == "committed")
    if committed and journal.purging is None:
        journal.append(PurgeIntent(changes=committed))
    return remove_private_folder(folder)


def remove_private_folder(folder: PartitionFolder) -> int:
    """Removes everything in the private sub-folder, the journal last, and the sub-folder itself.

    Returns:
        Bytes of the files whose last name went.

    Raises:
        RefusedError: the fence is up: the clean-shutdown marker would go with it.
        OSError: a call failed; run it again.
    """
    if not os.path.isdir(folder.private):
        return 0
    if os.path.isdir(f"{folder.private}/fence"):
        raise RefusedError(
            f"{folder.private}/fence: the fence is still up", next_command="krepair apply PLAN"
        )
    freed = 0
    with os.scandir(folder.private) as entries:
        inner = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    for name, is_dir in inner:
        if name != JOURNAL_NAME:
            freed += _remove(folder, f"{folder.private}/{name}", is_dir=is_dir)
    # Only when nothing is left that the journal speaks of may the journal go.
    folder.disk.sync_dir(folder.private)
    journal = f"{folder.private}/{JOURNAL_NAME}"
    if os.path.lexists(journal):
        freed += _remove(folder, journal, is_dir=False)
    folder.disk.remove_dir(folder.private)
    folder.disk.sync_dir(os.path.dirname(folder.private))
    return freed


def _remove(folder: PartitionFolder, path: str, *, is_dir: bool) -> int:
    if not is_dir:
        found = os.lstat(path)
        folder.disk.unlink(path)
        return found.st_size if found.st_nlink == 1 else 0
    with os.scandir(path) as entries:
        inner = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    freed = sum(_remove(folder, f"{path}/{name}", is_dir=inner_is_dir) for name, inner_is_dir in inner)
    folder.disk.remove_dir(path)
    return freed
