"""Implement ``krepair purge``: delete the backups of a plan; afterwards the plan cannot be undone.

A broker may be running (see ``krepair.commit.purge``); the lock keeps out only other runs of krepair.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from krepair.checks.tail import is_torn_tail
from krepair.commit.folder import ROOT, PartitionFolder
from krepair.commit.guards import Guards, HeldLock, SafePoints
from krepair.commit.kept import check_keeps, folders_of, load_kept
from krepair.commit.purge import check_all_finished, purge_partition
from krepair.commit.ready import (
    check_may_purge,
    check_target,
    disk_below,
    journal_folder,
    targets_of,
    why_left_alone,
)
from krepair.commit.reports import ApplyReport, next_of
from krepair.commit.result import ChangeOutcome, ChangeResult, failed
from krepair.commit.stack import Stack
from krepair.commit.unrecorded import swaps_in
from krepair.durable.disk import Disk
from krepair.engine.progress import Progress, SilentProgress
from krepair.errors import KrepairError, LockLostError, RefusedError, StalePlanError, UnreadableError
from krepair.fixes.missing_tails import missing_tails_in
from krepair.fixes.true_indexes import untrue_index
from krepair.formats.filenames import CLEAN_SHUTDOWN, FolderKind, parse_folder_name
from krepair.formats.words import names_text
from krepair.logdir.fingerprint import scan_batches
from krepair.logdir.lock import hold_own_lock
from krepair.logdir.reading import why
from krepair.logdir.view import read_log_dir
from krepair.next_command import PLAN, Next
from krepair.options import Options
from krepair.plan.model import Plan
from krepair.rules.missing_tails import RULE, MissingTail

_FENCE_WENT: Final = (
    "purge also deleted the recovery guard of {}, without restoring the clean-shutdown file and the recovery points: "
    "the next start recovers the active segments, and these partitions from a lower recovery point on."
)
_Planned = Mapping[str, Collection[str]]
"""Names of the files that existed when a plan was made, by partition folder."""


def purge(
    plan: Plan, options: Options, progress: Progress | None = None, *, disk: Disk | None = None
) -> ApplyReport:
    """Delete the backups of a plan.

    Args:
        plan: plan as read from its file.
        options: options of the run, none of which changes a purge.
        progress: receives the number of finished folders.
        disk: writer to use instead of the real one, for tests.

    Raises:
        LockedError: another krepair is working in the directory.
        RefusedError: the review objects, a change of the plan is half done, or this user may not delete the backups.
        StalePlanError: the plan is for another host or directory.
        UnreadableError: a file or folder could not be read.
    """
    plan = check_target(plan)

    def folders(writes: Disk) -> list[PartitionFolder]:
        return [journal_folder(writes, plan, target) for target in targets_of(plan)]

    return _purge(plan.log_dir, plan.plan_id, folders, lambda folders: _planned(plan), progress, disk)


def purge_by_id(
    log_dir: str,
    plan_id: str,
    options: Options,
    progress: Progress | None = None,
    *,
    disk: Disk | None = None,
) -> ApplyReport:
    """Delete the backups of the plan with an id.

    The plan file is not needed: the journals in the work folders show whether the folders may be deleted. The copy of
    the plan is read only if a ``.swap`` is pending. If that copy is missing or damaged, and the journal is damaged too,
    krepair cannot distinguish a broker's ``.swap`` from its own, and treats the ``.swap`` as its own.

    Args:
        options: options of the run, none of which changes a purge.
        progress: receives the number of finished folders.
        disk: writer to use instead of the real one, for tests.

    Raises:
        NotALogDirError: the path is no log directory.
        StalePlanError: no plan with this id has backups.
        UnreadableError: a partition folder cannot be read.
        LockedError: another krepair is working in the directory.
        RefusedError: a change of the plan is half done.
    """
    view = read_log_dir(log_dir)
    check_keeps(view, plan_id)

    def planned(folders: Sequence[PartitionFolder]) -> _Planned:
        with contextlib.suppress(KrepairError, OSError):
            if any(map(_has_swaps, folders)):
                return _planned(load_kept(view, plan_id))
        return {}

    return _purge(
        view.path,
        plan_id,
        lambda writes: folders_of(read_log_dir(log_dir), plan_id, writes),
        planned,
        progress,
        disk,
    )


def _planned(plan: Plan) -> _Planned:
    """Return the names of a plan's files by folder; the plan may be a copy that was not reviewed."""
    return {partition.folder: partition.by_name for partition in plan.partitions}


def _has_swaps(folder: PartitionFolder) -> bool:
    try:
        return bool(swaps_in(folder))
    except OSError:
        return False  # a broker is deleting the folder


def _purge(
    log_dir: str,
    plan_id: str,
    folders_in: Callable[[Disk], list[PartitionFolder]],
    planned: Callable[[Sequence[PartitionFolder]], _Planned],
    progress: Progress | None,
    disk: Disk | None,
) -> ApplyReport:
    with disk_below(log_dir, disk) as writes, hold_own_lock(log_dir, writes) as lock:
        folders = folders_in(writes)
        _check_ground(folders)
        fenced = [folder for folder in folders if _has_fence(folder)]
        results = purge_folders(folders, lock, progress or SilentProgress(), planned=planned(folders))
        gone = [folder.folder for folder in fenced if not _has_fence(folder)]
    return ApplyReport(
        verb="purge",
        notes=(_FENCE_WENT.format(names_text(gone)),) if gone else (),
        plan_id=plan_id,
        log_dir=log_dir,
        results=tuple(results),
        next_command=next_of(results, Next.of("purge", PLAN), Next.of("verify", log_dir)),
    )


def purge_folders(
    folders: Sequence[PartitionFolder],
    lock: HeldLock,
    progress: Progress,
    outcome: ChangeOutcome = "purged",
    planned: _Planned | None = None,
) -> list[ChangeResult]:
    """Delete the backups of one plan, folder by folder; those of the root last, and only if no partition failed.

    A partition whose journal has lost a record, or whose log has lost its end, fails and keeps all of its backups; the
    other partitions are purged (KIP-346 isolates failures by partition in the same way).

    Args:
        folders: folders of the plan, including the root's.
        lock: krepair's own lock on the directory.
        progress: receives the number of finished folders.
        outcome: outcome to report for deleted backups.
        planned: names of the files that existed when the plan was made, see ``purge_partition``.

    Raises:
        RefusedError: a change is half done or a recovery guard is set in any of the folders; nothing was deleted.
    """
    folders = sorted(folders, key=lambda folder: folder.folder == ROOT)
    # Check all folders before the first deletion: undo of a half-done plan needs every folder.
    check_all_finished(folders, untrue_index)
    gone = _missing_tails(folders)
    stack = Stack(read_log_dir(folders[0].log_dir), folders[0].plan_id) if folders else None
    guards = Guards(lock, SafePoints())
    results: list[ChangeResult] = []
    progress.start("purge", len(folders))
    try:
        for folder in folders:
            guards.hold()
            done: ChangeOutcome = "already" if _keeps_nothing(folder) else outcome
            stays = (
                _why_root_stays(folder, results)
                or _why_still_needed(folder, gone)
                or _why_another_comes_first(folder, stack)
                or _why_start_would_cut(folder)
            )
            results.append(stays or _purge_one(folder, done, (planned or {}).get(folder.folder, ())))
            guards.begun = True
            progress.advance(1)
    except LockLostError as error:
        results += [failed(folder.folder, error) for folder in folders[len(results) :]]
    progress.finish()
    return results


def _keeps_nothing(folder: PartitionFolder) -> bool:
    """Return whether the folder holds no backups of the plan, which was purged, undone, or never applied here."""
    with contextlib.suppress(OSError):
        return folder.tree.is_folder(folder.holder) and not folder.tree.is_there(folder.private)
    return False


def _why_root_stays(folder: PartitionFolder, results: Sequence[ChangeResult]) -> ChangeResult | None:
    """Return a failure for the root if a partition still has backups, whose undo first restores root entries."""
    if folder.folder != ROOT:
        return None
    stays = next((result.partition for result in results if result.failed), "")
    if not stays or not folder.tree.is_folder(folder.private):
        return None
    text = f"{folder.private}: stays, because {stays} still has backups, and their undo needs this folder too"
    return failed(folder.folder, RefusedError(text))


def _missing_tails(folders: Sequence[PartitionFolder]) -> dict[str, MissingTail]:
    """Return the log tails missing since the last clean stop, by partition folder.

    The backups of such a partition may hold the only copy of the lost records.
    """
    if not folders:
        return {}
    view = read_log_dir(folders[0].log_dir)
    return {
        missing_tail.folder: missing_tail
        for missing_tail in missing_tails_in(view, {folder.folder for folder in folders})
    }


def _why_still_needed(folder: PartitionFolder, gone: Mapping[str, MissingTail]) -> ChangeResult | None:
    lost = gone.get(folder.folder)
    if lost is None or _keeps_nothing(folder) or _is_begun(folder):
        return None
    text = (
        f"{folder.folder}: {lost.text} ({RULE}); the backups of this partition stay until its files are back, or "
        "until a broker was started"
    )
    return failed(folder.folder, RefusedError(text, next_command=Next.of("check", folder.log_dir)))


def _is_begun(folder: PartitionFolder) -> bool:
    """Return whether an earlier purge was interrupted; its backups may be incomplete, so only finishing is possible."""
    with contextlib.suppress(KrepairError, OSError):
        return folder.journal().purging
    return False


def _why_another_comes_first(folder: PartitionFolder, stack: Stack | None) -> ChangeResult | None:
    """Return a failure if an earlier plan must be purged first; None for an unreadable folder, which fails later."""
    try:
        journal = folder.journal()
        if stack is not None and journal.at_work() and not journal.purging:
            stack.check(folder, journal.number, "purge")
    except StalePlanError as error:
        return failed(folder.folder, error)
    except (KrepairError, OSError):
        return None
    return None


def _has_fence(folder: PartitionFolder) -> bool:
    with contextlib.suppress(OSError):
        return folder.tree.is_folder(f"{folder.private}/fence")
    return False


def _why_start_would_cut(folder: PartitionFolder) -> ChangeResult | None:
    """Return a failure if deleting the recovery guard would make the next start truncate a damaged log; else None.

    Without a recovery guard a clean start would not even read that log.
    """
    if not _has_fence(folder) or _is_begun(folder):
        return None
    view = read_log_dir(folder.log_dir)
    keeps_marker = folder.tree.is_there(f"{folder.private}/fence/{CLEAN_SHUTDOWN}")
    for partition in () if view.clean_shutdown else view.partitions:
        own = partition.folder == folder.folder
        for segment in partition.segments if own else partition.segments[-1:] if keeps_marker else ():
            path = segment.log.path
            try:
                summary = scan_batches(path, segment.base_offset)
            except OSError as error:
                return failed(folder.folder, error)
            is_active = segment is partition.segments[-1]
            if summary.damage and not (is_active and (not keeps_marker or is_torn_tail(path, summary))):
                text = (
                    f"{path}: is damaged at byte {summary.valid_bytes} ({summary.damage_text}). purge would delete "
                    f"the recovery guard of {folder.folder}; the next start would then recover this log and cut it "
                    "there. Nothing was purged in this partition. Repair the log first"
                )
                return failed(
                    folder.folder, RefusedError(text, next_command=Next.of("check", folder.log_dir))
                )
    return None


def _check_ground(folders: Sequence[PartitionFolder]) -> None:
    """Check, before any deletion, that this user may delete all of krepair's files, and that no such file is a link.

    Raises:
        UnreadableError: a file or folder could not be read.
    """
    for folder in folders:
        try:
            _check(folder)
        except OSError as error:
            if not _was_deleted_by_broker(folder, error):
                raise UnreadableError(f"{error.filename}: could not be read: {why(error)}") from error


def _check(folder: PartitionFolder) -> None:
    # A partition folder that is gone or is a link is skipped later.
    if folder.tree.is_folder(folder.holder):
        folder.check_no_links()
        check_may_purge(folder)


def _purge_one(folder: PartitionFolder, outcome: ChangeOutcome, planned: Collection[str]) -> ChangeResult:
    try:
        if _is_being_deleted(folder):
            return _deleted_by_broker(folder)
        left_alone = why_left_alone(folder)
        if left_alone:
            raise StalePlanError(left_alone)
        _check(folder)
        freed = purge_partition(folder, planned, untrue_index)
    except (KrepairError, OSError) as error:
        return (
            _deleted_by_broker(folder)
            if _was_deleted_by_broker(folder, error)
            else failed(folder.folder, error)
        )
    return ChangeResult(change_id=folder.folder, partition=folder.folder, outcome=outcome, bytes_freed=freed)


def _is_being_deleted(folder: PartitionFolder) -> bool:
    """Return whether a broker has deleted the partition's folder, or is about to, together with the backups in it."""
    name = os.path.basename(folder.holder)
    return parse_folder_name(name).kind is FolderKind.DELETE or not folder.tree.is_there(folder.holder)


def _was_deleted_by_broker(folder: PartitionFolder, error: KrepairError | OSError) -> bool:
    """Return whether a call failed because a broker deleted the partition's folder at the same time."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError | StalePlanError):
        return False
    with contextlib.suppress(OSError):
        return not folder.tree.is_there(folder.private)
    return False


def _deleted_by_broker(folder: PartitionFolder) -> ChangeResult:
    return ChangeResult(
        change_id=folder.folder,
        partition=folder.folder,
        outcome="gone",
        why=f"{folder.holder}: a broker has deleted this folder, or will: what was kept in it goes with it",
    )
