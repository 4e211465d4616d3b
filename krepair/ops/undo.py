"""Implement ``krepair undo``: restore the backups byte for byte, last change first.

Every backup is read before the first one is restored, since a damaged backup must not replace a whole file. A backup of
a log is compared with the plan's digest over its batch headers, and every batch with its CRC. A log with bytes outside
valid batches, and every other file, is compared with the digest that was journalled when the backup was made.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import NamedTuple

from msgspec.structs import replace

from krepair.commit.begin import executor_of
from krepair.commit.carried_out import (
    Measured,
    failed_partition,
    failed_whole,
    notes_of_fences,
    with_rolled_back,
)
from krepair.commit.executor import KeptFile
from krepair.commit.fence import Watch
from krepair.commit.folder import PartitionFolder
from krepair.commit.guards import Guards, SafePoints, signals_wait
from krepair.commit.journal import Journal
from krepair.commit.kept import check_keeps, folders_of, load_kept, nothing_to_undo, private_of
from krepair.commit.partition import fence_of, undo_partition
from krepair.commit.ready import (
    check_no_fence,
    check_target,
    disk_below,
    is_root,
    journal_folder,
    ready,
    undo_order,
    why_left_alone,
)
from krepair.commit.reports import ApplyReport, next_of
from krepair.commit.result import ChangeResult, failed
from krepair.commit.stack import Stack
from krepair.commit.status import ChangeState, status_in
from krepair.commit.unrecorded import by_hand
from krepair.durable.disk import Disk
from krepair.durable.scratch import Scratch
from krepair.engine.choice import WorkKind, choose_engine
from krepair.engine.engine import Engine
from krepair.engine.items import Failed, Place, ScanItem, ScanResult
from krepair.engine.progress import Progress, SilentProgress
from krepair.errors import (
    DamagedJournalError,
    ExitCode,
    InterruptedAtSafePointError,
    KrepairError,
    LockLostError,
    RefusedError,
)
from krepair.fixes.order import commit_now, damage_now
from krepair.fixes.true_indexes import untrue_index
from krepair.formats.filenames import LOG
from krepair.formats.java_numbers import INT64_MAX
from krepair.kernels.classes import D_NONE
from krepair.logdir.fingerprint import digest_content, digest_file
from krepair.logdir.lock import hold_lock
from krepair.logdir.view import read_log_dir
from krepair.next_command import PLAN, Next, by_id
from krepair.ops.purge import purge_folders
from krepair.options import Options
from krepair.plan.changes import trusted_after
from krepair.plan.keep import is_freed_by_apply
from krepair.plan.model import Change, Commit, FileFingerprint, PartitionPlan, Plan

_BEGUN = {ChangeState.COMMITTING, ChangeState.COMMITTED, ChangeState.UNDOING}
_AGAIN = Next.of("undo", PLAN)


def undo_by_id(
    log_dir: str,
    plan_id: str,
    options: Options,
    progress: Progress | None = None,
    *,
    disk: Disk | None = None,
) -> ApplyReport:
    """Undo the plan of an id, using the copy of the plan that lies with its backups.

    Raises:
        NotALogDirError: the path is no log directory.
        StalePlanError: no plan of this id has backups; or the reasons of ``undo``.
        RefusedError: no copy can be used, or the review objects.
        LockedError: a broker is using the directory.
    """
    view = read_log_dir(log_dir)
    check_keeps(view, plan_id)
    try:
        plan = load_kept(view, plan_id)
    except RefusedError:
        # An undo that was interrupted at its very end has removed the copy already: only leftover files are there.
        with disk_below(view.path, disk) as writes, hold_lock(view.path, writes) as lock:
            if not nothing_to_undo(read_log_dir(log_dir), plan_id):
                raise
            folders = folders_of(read_log_dir(log_dir), plan_id, writes)
            results = purge_folders(folders, lock, progress or SilentProgress(), "already")
            return _report(view.path, plan_id, results)
    return undo(plan, options, progress, disk=disk, log_dir=view.path)


def undo(
    plan: Plan,
    options: Options,
    progress: Progress | None = None,
    *,
    disk: Disk | None = None,
    log_dir: str = "",
) -> ApplyReport:
    """Undo a plan.

    Args:
        plan: plan as read from its file.
        options: options of the run; ``engine`` and ``master`` say where the backups of logs are read.
        progress: receives the bytes of finished partitions.
        disk: writer to use instead of the real one, for tests.
        log_dir: path of the log directory where it is not the plan's own, see ``krepair.commit.ready.check_target``.

    Raises:
        LockedError: a broker is using the directory.
        RefusedError: the review objects.
        StalePlanError: the plan is for another host or directory.
        UnwritableError: files that apply wrote could not be flushed to the disk.
    """
    plan = check_target(plan, log_dir)
    with ready(plan, disk) as (writes, lock), signals_wait(SafePoints()) as safe_points:
        parts = [(target, journal_folder(writes, plan, target)) for target in undo_order(plan)]
        kept = _backups_to_restore(plan, parts)
        measured = Measured(writes.tree, [folder for _, folder in parts])
        guards = Guards(lock, safe_points, watch=Watch(writes, plan.log_dir), judge=untrue_index)
        engine = choose_engine(options.engine, options.master, {WorkKind.READ: _bytes_of(kept)}, progress)
        with closing(engine), closing(Scratch(options.scratch, (plan.log_dir,))) as scratch:
            commit = _commit_now(plan, parts, guards, engine, scratch, options)
            bad = bad_copies(plan, kept, engine)
        # One flush of what apply wrote, for all folders together, in place of several flushes as each is opened. It
        # has to come before the first file moves: a power loss could otherwise undo a rename that undo relies on.
        guards.settle([folder for _, folder in parts])
        undoing = _Undo(plan, commit, guards, bad, progress or SilentProgress())
        interrupted = undoing.is_interrupted(parts)
    order = {partition.folder: number for number, partition in enumerate(plan.partitions)}
    results = sorted(undoing.results, key=lambda result: (order.get(result.partition, -1), result.change_id))
    report = _report(plan.log_dir, plan.plan_id, results)
    report = replace(
        report,
        interrupted=interrupted,
        notes=notes_of_fences(guards.not_given_back),
        by_hand=tuple(undoing.by_hand),
        next_command=_AGAIN if interrupted else report.next_command,
    )
    return with_rolled_back(measured.told_in(report), guards.taken_back)


def _commit_now(
    plan: Plan,
    parts: Sequence[tuple[PartitionPlan, PartitionFolder]],
    guards: Guards,
    engine: Engine,
    scratch: Scratch,
    options: Options,
) -> Commit:
    """Choose the order of the renames for the broker that is there now.

    This runs before a recovery guard is set, as a recovery guard changes the files that the choice depends on.
    """
    view, begun = read_log_dir(plan.log_dir), [target for target, folder in parts if folder.was_begun()]
    keeps_marker = guards.watch is not None and guards.watch.keeps_marker()
    harm = damage_now(plan, view, begun, engine, scratch, keeps_marker)
    return commit_now(plan, view, begun, harm, options.broker_version)


def _report(log_dir: str, plan_id: str, results: Sequence[ChangeResult]) -> ApplyReport:
    return ApplyReport(
        verb="undo",
        plan_id=plan_id,
        log_dir=log_dir,
        results=tuple(results),
        next_command=next_of(results, _AGAIN, Next.of("verify", log_dir)),
    )


# -- a directory


class _Undo:
    def __init__(
        self, plan: Plan, commit: Commit, guards: Guards, bad: Mapping[str, str], progress: Progress
    ) -> None:
        self.plan = plan
        self.commit = commit
        self.guards = guards
        self.bad = bad
        self.progress = progress
        self.results: list[ChangeResult] = []
        self.stack = Stack(read_log_dir(plan.log_dir), plan.plan_id)
        self.by_hand: list[str] = []
        """Shell lines that a person types where a journal is damaged."""

    def is_interrupted(self, parts: Sequence[tuple[PartitionPlan, PartitionFolder]]) -> bool:
        """Undo the targets in turn; return True if somebody requested a stop."""
        still_trusted: frozenset[tuple[str, int]] = frozenset()
        self.progress.start("undo", sum(target.log_bytes_before for target, _ in parts))
        try:
            for number, (target, folder) in enumerate(parts):
                # A damaged file of the root was replaced first, so that guards could read it: it is restored last.
                if is_root(target) and number and any(result.failed for result in self.results):
                    self.results += _skipped_in_root(target, folder)
                    continue
                # With a recovery point still raised, a start would trust the old indexes and snapshots restored here.
                if (target.topic, target.partition) in still_trusted and not is_root(target):
                    why = f"{folder.path}: its recovery point has to be undone first, and was not"
                    self.results.append(failed_whole(target.folder, why, ExitCode.REFUSED))
                    continue
                done = self._undo_one(target, folder)
                if any(result.failed for result in done):
                    still_trusted |= trusted_after(target.changes)
                self.results += done
                self.progress.advance(target.log_bytes_before)
        except InterruptedAtSafePointError:
            return True
        except LockLostError as error:
            known = {result.partition for result in self.results}
            self.results += [
                failed(target.folder, error) for target, _ in parts if target.folder not in known
            ]
        self.progress.finish()
        return False

    # -- a partition

    def _undo_one(self, target: PartitionPlan, folder: PartitionFolder) -> Sequence[ChangeResult]:
        try:
            gone = why_left_alone(folder)
            if gone:
                return [failed_whole(target.folder, gone, ExitCode.STALE_PLAN)]
            journal = folder.journal(to_write=True)
            if journal.at_work():
                self.stack.check(folder, journal.number, "undo")
            states = status_in(folder, target, journal)
            if _BEGUN & set(states.values()):
                check_no_fence(target, self.guards.watch)
            purged = _purged_changes(journal, target, states)
            if not _were_made_by_others(folder, journal, purged):
                why = _why_purged(folder, journal, target, purged)
                return [failed_whole(target.folder, why, ExitCode.REFUSED)]
            return undo_partition(
                folder, target, self.commit, self.guards, bad_copies=self.bad, journal=journal
            )
        except DamagedJournalError as error:
            return [self._advise_by_hand(target, folder, error)]
        except (InterruptedAtSafePointError, LockLostError):
            raise
        except (KrepairError, OSError) as error:
            return [failed(target.folder, error)]

    def _advise_by_hand(
        self, target: PartitionPlan, folder: PartitionFolder, error: DamagedJournalError
    ) -> ChangeResult:
        """Return what a person has to do where the journal is damaged.

        Without a record nobody knows which file is the original, so krepair moves none by itself. Once all originals
        are in place, the recovery guard is lifted.
        """
        purge, again = (by_id(verb, folder.log_dir, folder.plan_id) for verb in ("purge", "undo"))
        try:
            steps = by_hand(folder, target)
        except (KrepairError, OSError) as failure:
            return failed_partition(target, failure)
        if not steps.lines and not steps.left:
            fence = fence_of(folder, target, self.guards.watch or Watch(folder.disk, folder.log_dir))
            self.guards.hold()
            if fence.is_up():
                fence.lift()
            why = f"{error.message}; every original is in its place"
            return replace(
                failed_whole(target.folder, why, ExitCode.DONE, next_command=purge), outcome="already"
            )
        self.by_hand += steps.lines
        way = "type the lines under By hand, which put its originals back, and then undo again"
        why = f"{error.message}; {way if steps.lines else steps.left}"
        return failed_whole(
            target.folder, why, ExitCode.REFUSED, next_command=again if steps.lines else purge
        )


def _skipped_in_root(target: PartitionPlan, folder: PartitionFolder) -> Iterator[ChangeResult]:
    """Yield the root's changes as skipped: its files are restored only after every partition."""
    for change in target.changes if folder.was_begun() else ():
        yield ChangeResult(
            change_id=change.change_id,
            partition=target.folder,
            outcome="skipped",
            why="undo restores it last, and not every partition is restored",
        )


def _purged_changes(
    journal: Journal, partition: PartitionPlan, states: Mapping[str, ChangeState]
) -> list[Change]:
    """Return the changes that are in place without a record and may have been made by this run.

    A journal loses its last records only, so a change before a recorded one was not made by this run.
    """
    recorded = [change.change_id in journal.states for change in partition.changes]
    known = 0 if journal.purging or not any(recorded) else len(recorded) - recorded[::-1].index(True)
    return [change for change in partition.changes[known:] if states[change.change_id] is ChangeState.PURGED]


def _were_made_by_others(folder: PartitionFolder, journal: Journal, purged: Sequence[Change]) -> bool:
    """Return whether another plan, or a purged run, made every change that is in place without a record.

    A change whose files are still staged was not made by this run. A removal stages nothing; a removal by this plan has
    a backup, and so another state.
    """
    made = [change.leaves for change in purged if change.leaves]
    return not purged or (
        not journal.purging
        and bool(made)
        and all(any(folder.state(folder.names.stage(name)) is not None for name in names) for names in made)
    )


def _why_purged(
    folder: PartitionFolder, journal: Journal, partition: PartitionPlan, purged: Sequence[Change]
) -> str:
    """Return why there is nothing to restore.

    Only a journal proves that this plan was applied, as another plan may have made equal files.

    Raises:
        DamagedJournalError: the journal has no record of a change that is in place, which may be of this run.
        RefusedError: an earlier purge freed the originals of such a change.
    """
    if folder.tree.is_folder(folder.private) and folder.tree.names(folder.private):
        if not journal.purging:
            # Every change that replaces or removes a file has a backup until it is purged; an added file has none.
            freed = [
                change for change in purged if any(file.name in partition.by_name for file in change.files)
            ]
            if journal.states and freed:
                raise RefusedError(
                    f"{freed[0].change_id}: its originals were purged, and a later apply changed other files of this "
                    "partition; nothing here is undone, and krepair purge ends this plan",
                    next_command=journal.command("purge"),
                )
            raise journal.damaged(f"{journal.path}: has no record of a change that is in place")
        by_apply = any(map(is_freed_by_apply, partition.changes))
        freed_by = "freed once all was verified" if by_apply else "purged"
        return f"{folder.holder}: its originals were {freed_by}; there is nothing to restore"
    # An empty folder is no journal: the run that removed the backups was stopped before its last call.
    return (
        f"{folder.holder}: no journal of this plan is here, and files are as this plan makes them. Either it was "
        "applied and has no backups any more, or it was never applied here and another plan made equal files; there "
        "is nothing to restore"
    )


# -- what would be put back


class KeptOriginal(NamedTuple):
    """Backup that undo would restore.

    Attributes:
        partition: the partition's part of the plan.
        change_id: id of the change that made the backup.
        file: location of the backup, and size and digest of the original.
    """

    partition: PartitionPlan
    folder: PartitionFolder
    change_id: str
    file: KeptFile


def _backups_to_restore(
    plan: Plan, parts: Sequence[tuple[PartitionPlan, PartitionFolder]]
) -> list[KeptOriginal]:
    """Return the backups that undo would restore; a partition whose journal is unreadable fails later by itself.

    The plan has to name every backup under its id, since whoever may write to the directory may edit the copy of the
    plan. Backups in a folder that a broker has marked for deletion are not restored.

    Raises:
        RefusedError: the plan does not name a backup; nothing was changed.
    """
    named: dict[str, set[str]] = {}
    for target, folder in parts:
        named.setdefault(_place(folder), set()).update(change.change_id for change in target.changes)
    there = private_of(read_log_dir(plan.log_dir), plan.plan_id)
    unknown = [
        path
        for listed, private in there
        if (path := f"{listed.folder}/{private.name}") not in named and listed.role == "normal"
    ]
    kept: list[KeptOriginal] = []
    for target, folder in parts:
        with suppress(KrepairError, OSError):
            journal = folder.journal()
            unknown += [
                f"{folder.private}: {change_id}"
                for change_id in journal.states
                if change_id not in named[_place(folder)]
            ]
            with folder.tree.keeping_folders():
                kept += [KeptOriginal(target, folder, *original) for original in _backups_of(folder, journal)]
    if unknown:
        raise RefusedError(
            f"{unknown[0]}: is a backup of plan {plan.plan_id}, but this plan does not name it: it was edited. Nothing "
            "was changed",
            next_command=Next.of("undo", "PLAN-FILE"),
        )
    return kept


def _place(folder: PartitionFolder) -> str:
    """Return the path of the work folder, relative to the log directory."""
    return "/".join(folder.private.split("/")[-2:])


def _backups_of(folder: PartitionFolder, journal: Journal) -> Iterator[tuple[str, KeptFile]]:
    for change_id, state in journal.states.items():
        if state in {"committing", "committed", "undoing"}:
            intent = journal.intents[change_id]
            if state != "committing" or executor_of(intent).is_committed(folder, intent):
                for kept in executor_of(intent).kept(folder, intent):
                    yield change_id, kept


def _bytes_of(kept: Iterable[KeptOriginal]) -> int:
    """Return the bytes of all backups to read, for the choice of the engine."""
    return sum(original.file.original.size for original in kept)


def bad_copies(plan: Plan, kept: Sequence[KeptOriginal], engine: Engine) -> dict[str, str]:
    """Read the backups that undo would restore.

    Args:
        plan: plan that the review has passed.
        kept: backups of the plan's partitions.

    Returns:
        Change id -> what is wrong with a backup, for the changes with a damaged one.
    """
    from krepair.scan.scan import scan

    bad: dict[str, str] = {}
    logs: list[tuple[KeptOriginal, ScanItem]] = []
    planned: dict[str, Mapping[str, FileFingerprint]] = {}
    for original in kept:
        with suppress(KrepairError, OSError):  # undo meets the same error later, and reports it
            if original.file.original.digest or not original.file.original.name.endswith(LOG):
                if wrong := _file_problem(original.folder, original.file):
                    bad.setdefault(original.change_id, wrong)
            elif original.folder.state(original.file.path) is not None:
                if original.partition.folder not in planned:
                    planned[original.partition.folder] = original.partition.by_name
                logs.append((original, _scan_of(plan, original)))
    for index, result in engine.map(scan, [item for _, item in logs]):
        original, _ = logs[index]
        fingerprint = planned[original.partition.folder].get(original.file.original.name)
        digest = fingerprint.digest if fingerprint is not None else ""
        if wrong := _log_problem(
            original.folder.at(original.file.path), original.file.original.size, digest, result
        ):
            bad.setdefault(original.change_id, wrong)
    return bad


def _file_problem(folder: PartitionFolder, kept: KeptFile) -> str:
    path = folder.at(kept.path)
    if folder.state(kept.path) is None or not kept.original.digest:
        return ""  # undo reports a missing file by itself; a log of whole batches is compared with the plan's digest
    digest = digest_file if kept.plain else digest_content
    return (
        ""
        if digest(path) == kept.original.digest
        else _damaged_backup(path, "its bytes are not those of the original")
    )


def _scan_of(plan: Plan, original: KeptOriginal) -> ScanItem:
    return ScanItem(
        place=Place(
            host=socket.gethostname(),
            log_dir=plan.log_dir,
            log_dir_inode=os.stat(plan.log_dir).st_ino,
            folder=f"{original.partition.folder}/{original.folder.names.keep()}",
        ),
        base_offset=int(original.file.original.name.partition(".")[0]),
        size=original.file.original.size,
        now_ms=plan.policy.now_ms,
        high_watermark=INT64_MAX,
    )


def _log_problem(path: str, size: int, digest: str, result: ScanResult | Failed) -> str:
    if isinstance(result, Failed):
        return _damaged_backup(path, result.why)
    summary = result.summary
    if digest and summary.headers == digest:
        return ""  # it may have been damaged before: plans of older krepair hold a digest of the batches only
    if summary.damage != D_NONE or summary.valid_bytes != size:
        return _damaged_backup(path, f"there is no valid batch at position {summary.valid_bytes}")
    return (
        _damaged_backup(path, "the headers of its batches are not those that the plan has recorded")
        if digest
        else ""
    )


def _damaged_backup(path: str, text: str) -> str:
    return (
        f"{path}: the backup is damaged: {text}; the file in its place stays, and so do all earlier changes of the "
        "partition; fetch it from another replica, or purge"
    )
