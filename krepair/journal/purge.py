"""Purge: the kept originals go, and with them the private sub-folder and the way back.

It works beside a running broker. A broker passes over the private sub-folder, unless it deletes the whole partition:
then it renames the partition folder, waits for ``log.segment.delete.delay.ms`` (60 s) and removes all that is in it. A
broker of 2.2.1 that lists a file and does not find it a moment later takes the log directory for broken
(``Utils.delete``; 3.9.2 passes over such a file). So nothing is touched in a folder that was renamed: every call goes
by the partition folder's own name, and the first call after the renaming fails.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable

from krepair.errors import RefusedError, StalePlanError
from krepair.journal.actions.table import action_of
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import COPY_NAME, JOURNAL_NAME, Journal
from krepair.journal.still_good import check_still_good
from krepair.journal.unrecorded import check_all_recorded, check_nothing_kept, has_originals

_LAST = (COPY_NAME, JOURNAL_NAME)
_APPLIED = frozenset({"committed", "freed"})


def purge_partition(folder: PartitionFolder) -> int:
    """Removes the private sub-folder of a plan; may be repeated after a crash at any instant.

    Returns:
        Bytes of the files that went (a hard link to a file that lives on counts as nothing).

    Raises:
        RefusedError: a change is half done, or the fence is up: apply or undo has to end first; or the journal has lost
            a record, see ``check_all_recorded``; or a new segment was damaged since, see ``check_still_good``.
        OSError: a call failed; run it again.
    """
    if not folder.tree.is_folder(folder.private):
        return _gone(folder)
    journal = folder.journal(to_write=True)
    _check_finished(folder, journal)
    check_all_recorded(folder, journal)
    check_still_good(folder, journal)
    journal.settle()
    committed = tuple(change for change, state in journal.states.items() if state in _APPLIED)
    if not committed and journal.purging is None:
        check_nothing_kept(folder, journal)
    if committed and journal.purging is None:
        journal.begin_purge(committed)
    return remove_private_folder(folder)


def drop_finished(folder: PartitionFolder) -> None:
    """Removes the private sub-folder of a partition of which apply has freed all; nothing, if it is gone already.

    Raises:
        RefusedError: a change is not freed, or something is still kept.
        OSError: a call failed; run it again.
    """
    if folder.tree.is_folder(folder.private):
        journal = folder.journal()
        left = [change for change, state in journal.states.items() if state != "freed"]
        if left:
            raise RefusedError(f"{left[0]}: is not freed")
        check_nothing_kept(folder, journal)
    remove_private_folder(folder)


def check_all_finished(folders: Iterable[PartitionFolder]) -> None:
    """Checks that apply or undo of a plan has come to its end: half of it gone would be in the way of the other half.

    A folder that cannot be judged is passed over, and so is one whose journal has lost a record: its own purge says
    what is wrong, and the others go on (KIP-346).

    Raises:
        RefusedError: a change is half done, or a fence is up; the message names it.
    """
    for folder in folders:
        with contextlib.suppress(OSError, StalePlanError):
            if not folder.tree.is_folder(folder.private):
                continue
            try:
                journal = folder.journal()
            except RefusedError:
                _check_no_fence(folder)
            else:
                _check_finished(folder, journal)


def _check_finished(folder: PartitionFolder, journal: Journal) -> None:
    check_not_half_done(folder, journal)
    if journal.purging is None:
        _check_none_goes_back(folder, journal)


def check_not_half_done(folder: PartitionFolder, journal: Journal) -> None:
    """Checks that no change of a folder is half done, by the records of its journal, and that no fence is up.

    Raises:
        RefusedError: one is; the next command ends it.
        OSError: the fence could not be looked at.
    """
    half_done = journal.unfinished()
    if half_done:
        command = f"krepair {'undo' if journal.states[half_done[0]] == 'undoing' else 'apply'} PLAN"
        raise RefusedError(
            f"{half_done[0]}: is half done; nothing is purged of the whole plan", next_command=command
        )
    _check_no_fence(folder)


def _check_none_goes_back(folder: PartitionFolder, journal: Journal) -> None:
    """Checks that no undo was begun of which the journal has lost the record: its originals would be lost half way."""
    for change_id, state in journal.states.items():
        if state != "committed":
            continue
        intent = journal.intents[change_id]
        # Where nothing was there before, nothing can be lost; a broker's retention deletes such files, too.
        if action_of(intent).is_back(folder, intent) and has_originals(folder, intent):
            raise RefusedError(
                f"{change_id}: its originals are back, at least in part: an undo was begun and has to end first; "
                "nothing is purged of the whole plan",
                next_command="krepair undo PLAN",
            )


def _check_no_fence(folder: PartitionFolder) -> None:
    if folder.tree.is_folder(f"{folder.private}/fence"):
        raise RefusedError(
            f"{folder.private}/fence: the fence is still up; nothing is purged",
            next_command="krepair apply PLAN",
        )


def remove_private_folder(folder: PartitionFolder) -> int:
    """Removes everything in the private sub-folder, the plan and the journal last, and the sub-folder itself.

    It comes to each file by its path, since purge runs beside a broker: one that renames the partition folder for its
    deletion ends this.

    Returns:
        Bytes of the files whose last name went.

    Raises:
        RefusedError: the fence is up: the clean-shutdown marker would go with it.
        OSError: a call failed; run it again.
    """
    if not folder.tree.is_folder(folder.private):
        return _gone(folder)
    _check_no_fence(folder)
    freed = 0
    for name, found in folder.tree.entries(folder.private):
        if name not in _LAST:
            freed += _remove(folder, f"{folder.private}/{name}", found)
    # The journal may go only when nothing is left of what it speaks of. Until then the copy of the plan is needed, too.
    folder.disk.sync_dir(folder.private)
    for path in (f"{folder.private}/{name}" for name in _LAST):
        left = folder.tree.status(path)
        if left is not None:
            freed += _remove(folder, path, left)
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
