"""Purge: remove the work folder with all backups; afterwards the plan cannot be undone.

Purge works beside a running broker. A broker ignores the work folder, unless the broker deletes the whole partition:
then it renames the partition folder, waits for ``log.segment.delete.delay.ms`` (60 s), and removes the folder with its
content. If a file that a broker of 2.2.1 has listed is missing a moment later, that broker takes the log directory
offline (``Utils.delete``; 3.9.2 ignores the missing file). So purge touches nothing in a renamed folder: every call
uses the partition folder's original name, and the first call after the renaming fails.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from krepair.commit.begin import executor_of
from krepair.commit.fence import standing_fences
from krepair.commit.folder import PartitionFolder
from krepair.commit.journal import COPY_NAME, JOURNAL_NAME, FileState, Intent, Journal, Purge
from krepair.commit.listing import marker_of
from krepair.commit.steps import CLEANED
from krepair.commit.unrecorded import (
    check_all_recorded,
    check_nothing_kept,
    is_displaced,
    kept_for,
    last_copies,
    swaps_of_kept,
)
from krepair.commit.visited import Judge, detect_visit
from krepair.errors import DamagedJournalError, RefusedError, StalePlanError
from krepair.formats.filenames import SWAP, FileKind, NameState, base_offset_of, log_name, parse_file_name
from krepair.logdir.fingerprint import scan_batches
from krepair.logdir.reading import SECTOR
from krepair.next_command import NOTHING, PLAN, Next, of_error

_LAST = (COPY_NAME, JOURNAL_NAME)


_LOG: Final = logging.getLogger(__name__)


def purge_partition(
    folder: PartitionFolder, planned: Collection[str] = (), judge: Judge = lambda folder, names: ""
) -> int:
    """Remove the work folder of a plan; may be repeated after a crash at any instant.

    Args:
        planned: names of the files that existed when the plan was made; a swap among these files is a broker's. If
            ``planned`` is empty and a record is missing, a swap at the base offset of a backup is treated as krepair's.
        judge: function that checks indexes written by another program, see ``visited.Judge``.

    Returns:
        Bytes freed on the disk; a hard link frees nothing if its file has another name.

    Raises:
        RefusedError: a change is unfinished or the guard is set, so that apply or undo must be completed first; or the
            journal is damaged and a backup may be the last copy; or a new segment was damaged since apply, see
            ``_check_still_good``.
        OSError: a call failed; run it again.
    """
    _LOG.info("%s: purge of the originals begins", folder.folder)
    if not folder.tree.is_folder(folder.private):
        return _gone(folder)
    try:
        journal = folder.journal(to_write=True)
        check_all_recorded(folder, journal, planned)
    except DamagedJournalError as error:
        _check_not_needed(folder, planned, error)
        return remove_private_folder(folder, with_fence=True)
    with_fence = _check_finished(folder, journal, judge)
    _check_still_good(folder, journal)
    journal.settle()
    if not journal.purging:
        if journal.at_work():
            journal.append(Purge())
        else:
            check_nothing_kept(folder, journal)
    return remove_private_folder(folder, with_fence=with_fence)


def drop_finished(folder: PartitionFolder) -> None:
    """Remove the work folder, if it exists, of a partition whose originals apply has freed completely.

    Raises:
        RefusedError: a change is not freed, or something is still kept.
        OSError: a call failed; run it again.
    """
    if folder.tree.is_folder(folder.private):
        journal = folder.journal()
        unfreed = [change for change, state in journal.states.items() if state != "freed"]
        if unfreed:
            raise RefusedError(f"{unfreed[0]}: is not freed")
        check_nothing_kept(folder, journal)
    remove_private_folder(folder)


def check_all_finished(folders: Iterable[PartitionFolder], judge: Judge = lambda folder, names: "") -> None:
    """Check that no folder needs apply or undo first: a purge of some folders must not make both impossible in others.

    A folder that cannot be judged, or whose journal has lost a record, is skipped here: the purge of that folder
    reports the error, and the other folders are purged.

    Raises:
        RefusedError: a change is unfinished or a recovery guard is set; the message names it.
    """
    for folder in folders:
        with contextlib.suppress(OSError, StalePlanError):
            if not folder.tree.is_folder(folder.private):
                continue
            try:
                journal = folder.journal()
                check_all_recorded(folder, journal)
            except DamagedJournalError:
                continue
            _check_finished(folder, journal, judge)


def _check_not_needed(folder: PartitionFolder, planned: Collection[str], error: DamagedJournalError) -> None:
    """Check, for a damaged journal, that no backup is needed and no swap is pending at the base offset of a backup.

    Raises:
        DamagedJournalError: a backup may be needed, or a swap is pending; the message names the file.
        OSError: a file could not be read.
    """
    for name in swaps_of_kept(folder, planned):
        error.message += f"; nothing is purged while {folder.at(name)} waits: undo shows how to roll it back"
        raise error
    kept = folder.at(folder.names.keep())
    for name in last_copies(folder):
        raise DamagedJournalError(
            f"{error.message}; {kept}/{name} is not in its place and may be the last copy: "
            "undo shows how the originals come back; if krepair verify ends with 0 and you keep the new files, type "
            f"mv {shlex.quote(kept)} DIRECTORY (one outside of {folder.log_dir}) and then purge again",
            next_command=of_error(error),
        )


def _check_finished(folder: PartitionFolder, journal: Journal, judge: Judge) -> bool:
    """Check that neither apply nor undo must be completed first; return whether the purge also removes a guard.

    Raises:
        RefusedError: apply or undo must be completed; or neither can be completed and a backup may be the last copy.
        OSError: a file could not be read.
    """
    if journal.purging:
        return True  # an earlier check decided that the purge may remove a recovery guard that is still set
    half_done = journal.unfinished()
    why = _why_refused(folder, journal, judge) if half_done or _has_fence(folder) else ""
    for change_id in half_done:
        _check_given_up(folder, journal, change_id, refused=bool(why))
    if not half_done and _has_fence(folder):
        _check_fence_given_up(folder, journal, why)
        return True
    _check_none_goes_back(folder, journal)
    return bool(half_done)


def _why_refused(folder: PartitionFolder, journal: Journal, judge: Judge) -> str:
    """Return why apply and undo refuse a folder that another program changed; empty if neither refuses the folder."""
    try:
        detect_visit(folder, journal, marker_of(folder, standing_fences(folder.tree, folder.log_dir)), judge)
    except StalePlanError as error:
        return error.message
    return ""


def _check_fence_given_up(folder: PartitionFolder, journal: Journal, why: str) -> None:
    """Check, if only the recovery guard remains, that apply cannot lift it and no backup is needed.

    Raises:
        RefusedError: apply can lift the recovery guard, or a backup may be the last copy.
        OSError: a file could not be read.
    """
    if not why:
        _check_no_fence(folder)
    for change_id in journal.at_work():
        _check_not_last(folder, _needed(folder, journal.intents[change_id]), why, NOTHING)


def _check_given_up(folder: PartitionFolder, journal: Journal, change_id: str, *, refused: bool) -> None:
    """Check that an unfinished change needs none of its backups, because a broker has written its files since.

    An undo that can be completed must be completed: without the backups, some files would remain new while others are
    old. For an unfinished apply the check asks only what would be lost, not whether the apply could be completed. So a
    purge always ends the plan after a person has dealt with the files that the message names.

    Raises:
        RefusedError: the change can be resumed, a swap is pending, or a backup may be the last copy.
        OSError: a file could not be read.
    """
    intent, undoing = journal.intents[change_id], journal.states[change_id] == "undoing"
    executor, command = executor_of(intent), Next.of("undo" if undoing else "apply", PLAN)
    what = f"{change_id}: is half done; nothing is purged of the whole plan"
    names = [name + suffix for name in intent.names for suffix in (SWAP, CLEANED)]
    waiting = [name for name in names if folder.state(name) is not None]
    if waiting:
        raise RefusedError(
            f"{what}; if {command} is refused, start the broker and stop it: that ends the swap of "
            f"{folder.at(waiting[0])}",
            next_command=command,
        )
    if undoing and not refused and _can_go_back(folder, intent):
        raise RefusedError(what, next_command=command)
    goes_on = not (undoing or refused) and _can_go_on(folder, intent)
    if goes_on and not executor.kept(folder, intent):
        raise RefusedError(what, next_command=command)
    kept = [name for name in kept_for(folder, intent) if is_displaced(folder, name)]
    needed = kept if goes_on else _needed(folder, intent)
    _check_not_last(folder, needed, f"{what}; if {command} is refused", command)


def _needed(folder: PartitionFolder, intent: Intent) -> list[str]:
    """Return the backups of a change that may be last copies and whose offsets no broker's log covers."""
    kept = last_copies(folder, kept_for(folder, intent))
    return [name for name in kept if not _is_covered(folder, name)]


def _check_not_last(folder: PartitionFolder, needed: Sequence[str], what: str, command: Next) -> None:
    """Raise an error if backups may be last copies; the message says how to move these backups away."""
    if needed:
        paths = " ".join(shlex.quote(folder.at(folder.names.keep(name))) for name in needed)
        raise RefusedError(
            f"{what}, this may be the last copy of what it holds; if you do not need it here, "
            f"type mv {paths} DIRECTORY (one outside of {folder.log_dir}) and then purge again",
            next_command=command,
        )


def _is_covered(folder: PartitionFolder, name: str) -> bool:
    """Return whether a broker's log covers a backup: the log is undamaged from the backup's base to its last offset.

    A snapshot's backup is covered if a log begins at or below the snapshot's offset: brokers derive snapshots from the
    log.
    """
    base = base_offset_of(name)
    files = map(parse_file_name, folder.file_names())
    logs = sorted(
        file.base_offset
        for file in files
        if file.kind is FileKind.LOG and file.state is NameState.LIVE and file.base_offset is not None
    )
    below = [log_base for log_base in logs if base is not None and log_base <= base]
    if base is None or not below:
        return False
    if parse_file_name(name).kind is FileKind.SNAPSHOT:
        return True
    last, end = scan_batches(folder.at(folder.names.keep(name)), base, folder.tree).last_offset, base
    for log_base in logs[logs.index(below[-1]) :]:
        summary = scan_batches(folder.at(log_name(log_base)), log_base, folder.tree)
        if summary.damage or log_base > end:  # records are missing before this log
            return False
        end = summary.last_offset + 1
        if end > last:
            return True
    return False


def _can_go_on(folder: PartitionFolder, intent: Intent) -> bool:
    try:
        return executor_of(intent).can_go_on(folder, intent)
    except StalePlanError:
        return False


def _can_go_back(folder: PartitionFolder, intent: Intent) -> bool:
    executor = executor_of(intent)
    try:
        executor.check_undo(folder, intent, "undoing")
    except StalePlanError:
        return False
    # Only the undo of a swap restores an index whose time has changed.
    by_content = executor.fenced
    return by_content or all(
        kept.plain or folder.holds(kept.path, kept.original) for kept in executor.kept(folder, intent)
    )


def check_not_half_done(folder: PartitionFolder, journal: Journal) -> None:
    """Check by the records of a journal that no change is unfinished and no recovery guard is set.

    Raises:
        RefusedError: a change is unfinished or a recovery guard is set; the next command completes the change.
        OSError: the recovery guard could not be read.
    """
    half_done = journal.unfinished()
    if half_done:
        command = Next.of("undo" if journal.states[half_done[0]] == "undoing" else "apply", PLAN)
        raise RefusedError(
            f"{half_done[0]}: is half done; nothing is purged of the whole plan", next_command=command
        )
    _check_no_fence(folder)


def _check_none_goes_back(folder: PartitionFolder, journal: Journal) -> None:
    """Check that the journal has not lost the record of an undo: a purge would remove originals not restored yet.

    If undo cannot be completed, a person has moved some originals over the new files, and purge ends the plan.
    """
    for change_id, state in journal.states.items():
        if state != "committed":
            continue
        intent = journal.intents[change_id]
        # A change without originals has no backup to lose; the new files of such a change may also be deleted by
        # retention.
        if not executor_of(intent).is_back(folder, intent) or not intent.originals:
            continue
        what = f"{change_id}: its originals are back, at least in part"
        if _can_go_back(folder, intent):
            raise RefusedError(
                f"{what}: an undo was begun and has to end first; nothing is purged of the whole plan",
                next_command=Next.of("undo", PLAN),
            )
        _check_not_last(folder, _needed(folder, intent), what, NOTHING)


def _has_fence(folder: PartitionFolder) -> bool:
    return folder.tree.is_folder(f"{folder.private}/fence")


def _check_no_fence(folder: PartitionFolder) -> None:
    if _has_fence(folder):
        raise RefusedError(
            f"{folder.private}/fence: the recovery guard is still set; nothing is purged",
            next_command=Next.of("apply", PLAN),
        )


def remove_private_folder(folder: PartitionFolder, *, with_fence: bool = False) -> int:
    """Remove the work folder with all its content, the plan's copy and the journal last.

    Each call uses the full path, because purge runs beside a broker: after the broker has renamed the partition folder
    to delete it, the calls fail.

    Args:
        with_fence: True to remove a recovery guard as well; the next start is then like a start after an unclean stop.

    Returns:
        Bytes freed on the disk by the folders, and by files whose last link was removed.

    Raises:
        RefusedError: the recovery guard is set, and the purge would remove it with the clean-shutdown marker.
        OSError: a call failed; run it again.
    """
    if not folder.tree.is_folder(folder.private):
        return _gone(folder)
    if not with_fence:
        _check_no_fence(folder)
    own = folder.tree.status(folder.private)
    freed = own.st_blocks * SECTOR if own is not None else 0
    for name, status in folder.tree.entries(folder.private):
        if name not in _LAST:
            freed += _remove(folder, f"{folder.private}/{name}", status)
    # The journal and the plan's copy are needed until all files that they describe are removed, also after a power cut.
    folder.disk.sync_dir(folder.private)
    for path in (f"{folder.private}/{name}" for name in _LAST):
        left = folder.tree.status(path)
        if left is not None:
            freed += _remove(folder, path, left)
    folder.disk.remove_dir(folder.private)
    folder.disk.sync_dir(os.path.dirname(folder.private))
    return freed


def _gone(folder: PartitionFolder) -> int:
    """Sync the removal of the work folder, because a killed run may have removed the folder without a sync."""
    if folder.tree.is_folder(folder.holder):
        folder.disk.sync_dir(folder.holder)
    return 0


def _remove(folder: PartitionFolder, path: str, status: os.stat_result) -> int:
    if not stat.S_ISDIR(status.st_mode):
        folder.disk.unlink(path)
        return status.st_blocks * SECTOR if status.st_nlink == 1 else 0
    freed = sum(_remove(folder, f"{path}/{name}", inner) for name, inner in folder.tree.entries(path))
    folder.disk.remove_dir(path)
    return freed + status.st_blocks * SECTOR


# -- a new segment that was damaged since apply, whose kept originals may be the last good copy


def _check_still_good(folder: PartitionFolder, journal: Journal) -> None:
    """Check, before originals are removed, that no new segment was damaged since apply.

    Only files whose size or time has changed since apply are read, so the check usually costs nothing. A broker may
    replace a closed segment by cleaning, or truncate it at the end of a batch, and writes nothing else to closed
    segments. So if a closed segment contains anything but batches, no broker wrote these bytes. The last segment is not
    checked, because a broker may be writing there. A byte that decayed on the disk changes neither size nor time; only
    ``verify`` finds such damage.

    Raises:
        RefusedError: a new segment is damaged; the message names file and position.
        OSError: a file could not be read.
    """
    if journal.purging:
        return
    written = [
        log
        for log in _made(journal)
        if folder.state(log.name) is not None and not folder.holds(log.name, log)
    ]
    last = _last_base(folder) if written else -1
    for log in written:
        base_offset = base_offset_of(log.name)
        if base_offset is not None and base_offset < last:
            _check_batches(folder, log, base_offset)


def _made(journal: Journal) -> Iterator[FileState]:
    """Yield the new logs of changes whose originals are kept."""
    for change_id, state in journal.states.items():
        intent = journal.intents[change_id]
        if state == "committed" and intent.executor == "segments":
            yield intent.log


def _last_base(folder: PartitionFolder) -> int:
    names = map(parse_file_name, folder.file_names())
    logs = (file for file in names if file.kind is FileKind.LOG and file.state is NameState.LIVE)
    return max((file.base_offset for file in logs if file.base_offset is not None), default=-1)


def _check_batches(folder: PartitionFolder, log: FileState, base_offset: int) -> None:
    path = folder.at(log.name)
    summary = scan_batches(path, base_offset, folder.tree)
    current = folder.state(log.name)
    if not summary.damage or current is None or current.size < summary.file_size:
        return  # a broker may be cutting or deleting the log at this moment
    raise RefusedError(
        f"{path}: was written since apply and is damaged at byte {summary.valid_bytes} ({summary.damage_text}). What "
        f"is kept may be the last good copy, so nothing was purged of {folder.folder}. Mend this file first",
        next_command=Next.of("check", folder.log_dir),
    )
