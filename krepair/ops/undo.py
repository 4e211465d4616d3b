"""``krepair undo``: puts the kept originals back, byte for byte, last change first.

Every kept original is read before anything is put back: what is damaged must not replace what is whole. A kept log is
held against the plan's digest over its batches' headers, and every batch against its CRC. A log with bytes outside of
valid batches, and every other file, is held against the digest that was journalled when it was kept.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import NamedTuple

from msgspec.structs import replace

from krepair.commit.begin import executor_of
from krepair.commit.executor import KeptFile
from krepair.commit.fence import Watch
from krepair.commit.folder import PartitionFolder
from krepair.commit.guards import Guards, SafePoints, signals_wait
from krepair.commit.journal import Journal
from krepair.commit.partition import fence_of, undo_partition
from krepair.commit.result import ChangeResult, failed
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
from krepair.formats.filenames import LOG
from krepair.formats.java_numbers import INT64_MAX
from krepair.kernels.classes import D_NONE
from krepair.logdir.fingerprint import digest_content, digest_file
from krepair.logdir.lock import hold_lock
from krepair.logdir.view import read_log_dir
from krepair.next_command import PLAN, Next, by_id
from krepair.ops.carried_out import (
    Measured,
    failed_partition,
    failed_whole,
    notes_of_fences,
    with_taken_back,
)
from krepair.ops.kept import check_keeps, folders_of, load_kept, nothing_to_undo, private_of
from krepair.ops.order import commit_now, damage_now
from krepair.ops.purge import purge_folders
from krepair.ops.ready import (
    check_no_fence,
    check_target,
    disk_below,
    is_root,
    journal_folder,
    ready,
    undo_order,
    why_left_alone,
)
from krepair.ops.reports import ApplyReport, next_of
from krepair.ops.stack import Stack
from krepair.ops.true_indexes import untrue_index
from krepair.options import Options
from krepair.plan.changes import trusted_after
from krepair.plan.keep import is_freed_by_apply
from krepair.plan.model import Commit, FileFingerprint, PartitionPlan, Plan

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
    """Take back the plan of an id, by the copy that lies with what it keeps.

    Raises:
        NotALogDirError: it is no log directory.
        StalePlanError: nothing is kept by a plan of this id; or what ``undo`` raises.
        RefusedError: no copy can be used, or the review objects.
        LockedError: a broker is using the directory.
    """
    view = read_log_dir(log_dir)
    check_keeps(view, plan_id)
    try:
        plan = load_kept(view, plan_id)
    except RefusedError:
        # An undo that was interrupted at its very end has taken the copy away, and only left-over files are there.
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
    """Take a plan back.

    Args:
        plan: as read from its file.
        options: ``engine`` and ``master``: where the kept logs are read.
        progress: told of partitions' bytes.
        disk: what writes; a test may wrap it.
        log_dir: see ``krepair.ops.ready.check_target``.

    Raises:
        LockedError: a broker is using the directory.
        RefusedError: the review objects.
        StalePlanError: the plan is for another host or directory.
        UnwritableError: what apply left could not be written out.
    """
    plan = check_target(plan, log_dir)
    with ready(plan, disk) as (writes, lock), signals_wait(SafePoints()) as safe_points:
        parts = [(target, journal_folder(writes, plan, target)) for target in undo_order(plan)]
        kept = _look_at_kept(plan, parts)
        measured = Measured(writes.tree, [folder for _, folder in parts])
        guards = Guards(lock, safe_points, watch=Watch(writes, plan.log_dir), judge=untrue_index)
        engine = choose_engine(options.engine, options.master, {WorkKind.READ: _bytes_of(kept)}, progress)
        with closing(engine), closing(Scratch(options.scratch, (plan.log_dir,))) as scratch:
            commit = _commit_now(plan, parts, guards, engine, scratch, options)
            bad = bad_copies(plan, kept, engine)
        guards.settle([folder for _, folder in parts])
        undoing = _Undo(plan, commit, guards, bad, progress or SilentProgress())
        interrupted = undoing.is_interrupted(parts)
    order = {partition.folder: number for number, partition in enumerate(plan.partitions)}
    results = sorted(undoing.results, key=lambda one: (order.get(one.partition, -1), one.change_id))
    report = _report(plan.log_dir, plan.plan_id, results)
    report = replace(
        report,
        interrupted=interrupted,
        notes=notes_of_fences(guards.not_given_back),
        by_hand=tuple(undoing.by_hand),
        next_command=_AGAIN if interrupted else report.next_command,
    )
    return with_taken_back(measured.told_in(report), guards.taken_back)


def _commit_now(
    plan: Plan,
    parts: Sequence[tuple[PartitionPlan, PartitionFolder]],
    guards: Guards,
    engine: Engine,
    scratch: Scratch,
    options: Options,
) -> Commit:
    """The order of the renames for the broker that is there now, asked before a fence goes up."""
    view, left = read_log_dir(plan.log_dir), [target for target, folder in parts if folder.was_begun()]
    keeps_marker = guards.watch is not None and guards.watch.keeps_marker()
    harm = damage_now(plan, view, left, engine, scratch, keeps_marker)
    return commit_now(plan, view, left, harm, options.broker_version)


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
        """Lines that a person types where a journal is damaged."""

    def is_interrupted(self, parts: Sequence[tuple[PartitionPlan, PartitionFolder]]) -> bool:
        """Take back one target after the other; returns whether somebody asked to stop."""
        still_trusted: frozenset[tuple[str, int]] = frozenset()
        self.progress.start("undo", sum(target.log_bytes_before for target, _ in parts))
        try:
            for number, (target, folder) in enumerate(parts):
                # A damaged file of the root was replaced first, so that fences could read it: it comes back last.
                if is_root(target) and number and any(result.failed for result in self.results):
                    self.results += _root_stays(target, folder)
                    continue
                if (target.topic, target.partition) in still_trusted and not is_root(target):
                    why = f"{folder.path}: its recovery point comes before it, and was not taken back"
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
            if ChangeState.PURGED in states.values() and not _are_still_staged(
                folder, journal, target, states
            ):
                return [failed_whole(target.folder, _why_purged(folder, journal, target), ExitCode.REFUSED)]
            return undo_partition(
                folder, target, self.commit, self.guards, bad_copies=self.bad, journal=journal
            )
        except DamagedJournalError as error:
            return [self._told_by_hand(target, folder, error)]
        except (InterruptedAtSafePointError, LockLostError):
            raise
        except (KrepairError, OSError) as error:
            return [failed(target.folder, error)]

    def _told_by_hand(
        self, target: PartitionPlan, folder: PartitionFolder, error: DamagedJournalError
    ) -> ChangeResult:
        """What a person does where the journal is damaged. Once all originals are back, the fence is taken down."""
        purge, again = (by_id(verb, folder.log_dir, folder.plan_id) for verb in ("purge", "undo"))
        try:
            told = by_hand(folder, target)
        except (KrepairError, OSError) as failure:
            return failed_partition(target, failure)
        if not told.lines and not told.left:
            fence = fence_of(folder, target, self.guards.watch or Watch(folder.disk, folder.log_dir))
            self.guards.hold()
            if fence.is_up():
                fence.lift()
            why = f"{error.message}; every original is in its place"
            return replace(
                failed_whole(target.folder, why, ExitCode.DONE, next_command=purge), outcome="already"
            )
        self.by_hand += told.lines
        way = "type the lines under By hand, which put its originals back, and then undo again"
        why = f"{error.message}; {way if told.lines else told.left}"
        return failed_whole(target.folder, why, ExitCode.REFUSED, next_command=again if told.lines else purge)


def _root_stays(target: PartitionPlan, folder: PartitionFolder) -> Iterator[ChangeResult]:
    """A file of the root that does not come back as long as a partition has not."""
    for change in target.changes if folder.was_begun() else ():
        yield ChangeResult(
            change_id=change.change_id,
            partition=target.folder,
            outcome="skipped",
            why="undo takes it back last, and not every partition is taken back",
        )


def _are_still_staged(
    folder: PartitionFolder, journal: Journal, partition: PartitionPlan, states: Mapping[str, ChangeState]
) -> bool:
    """Whether what is in place without a record was made by another plan: the files of this one are still staged.

    A removal stages nothing; where it was ours, its original is kept, and its state is another one.
    """
    touched = [
        change.leaves for change in partition.changes if states[change.change_id] is ChangeState.PURGED
    ]
    made = [names for names in touched if names]
    return (
        not journal.purging
        and bool(made)
        and all(any(folder.state(folder.names.stage(name)) is not None for name in names) for names in made)
    )


def _why_purged(folder: PartitionFolder, journal: Journal, partition: PartitionPlan) -> str:
    """Why there is nothing to put back.

    Only a journal proves that this plan was applied: another plan may have made equal files.

    Raises:
        DamagedJournalError: the journal does not know of what is in place.
    """
    if folder.tree.is_folder(folder.private) and folder.tree.names(folder.private):
        if not journal.purging:
            raise journal.damaged(f"{journal.path}: has no record of a change that is in place")
        by_apply = any(map(is_freed_by_apply, partition.changes))
        freed = "freed once all was verified" if by_apply else "purged"
        return f"{folder.holder}: its originals were {freed}; there is nothing to put back"
    # An empty folder is no journal: whoever removed what was kept was stopped before its last call.
    return (
        f"{folder.holder}: no journal of this plan is here, and files are as this plan makes them. Either it was "
        "applied and keeps nothing any more, or it was never applied here and another plan made equal files; there is "
        "nothing to put back"
    )


# -- what would be put back


class KeptOriginal(NamedTuple):
    """An original that undo would put back.

    Attributes:
        partition: its part of the plan.
        folder: as the journal sees it.
        change_id: of its change.
        file: where it is, and what it was.
    """

    partition: PartitionPlan
    folder: PartitionFolder
    change_id: str
    file: KeptFile


def _look_at_kept(plan: Plan, parts: Sequence[tuple[PartitionPlan, PartitionFolder]]) -> list[KeptOriginal]:
    """What undo would put back; where that cannot be told, the partition's own undo says what is wrong.

    The plan has to name everything that is kept under its id: whoever may write the directory may edit a copy. What
    lies in a folder that a broker has marked does not come back, whoever names it.

    Raises:
        RefusedError: it does not; nothing was changed.
    """
    named: dict[str, set[str]] = {}
    for target, folder in parts:
        named.setdefault(_place(folder), set()).update(change.change_id for change in target.changes)
    there = private_of(read_log_dir(plan.log_dir), plan.plan_id)
    unknown = [
        path
        for one, private in there
        if (path := f"{one.folder}/{private.name}") not in named and one.role == "normal"
    ]
    kept: list[KeptOriginal] = []
    for target, folder in parts:
        with suppress(KrepairError, OSError):
            journal = folder.journal()
            unknown += [
                f"{folder.private}: {one}" for one in journal.states if one not in named[_place(folder)]
            ]
            with folder.tree.keeping_folders():
                kept += [KeptOriginal(target, folder, *one) for one in _kept_by(folder, journal)]
    if unknown:
        raise RefusedError(
            f"{unknown[0]}: is kept by plan {plan.plan_id}, but this plan does not name it: it was edited. Nothing was "
            "changed",
            next_command=Next.of("undo", "PLAN-FILE"),
        )
    return kept


def _place(folder: PartitionFolder) -> str:
    """The private sub-folder, relative to the log directory."""
    return "/".join(folder.private.split("/")[-2:])


def _kept_by(folder: PartitionFolder, journal: Journal) -> Iterator[tuple[str, KeptFile]]:
    for change_id, state in journal.states.items():
        if state in {"committing", "committed", "undoing"}:
            intent = journal.intents[change_id]
            if state != "committing" or executor_of(intent).is_committed(folder, intent):
                for kept in executor_of(intent).kept(folder, intent):
                    yield change_id, kept


def _bytes_of(kept: Iterable[KeptOriginal]) -> int:
    """How much there is to read, for the choice of the engine."""
    return sum(one.file.original.size for one in kept)


def bad_copies(plan: Plan, kept: Sequence[KeptOriginal], engine: Engine) -> dict[str, str]:
    """Read what undo would put back.

    Args:
        plan: reviewed.
        kept: of its partitions.
        engine: where logs are read.

    Returns:
        Change id -> what is wrong with its kept originals, for those where something is.
    """
    from krepair.scan.scan import scan

    bad: dict[str, str] = {}
    logs: list[tuple[KeptOriginal, ScanItem]] = []
    planned: dict[str, Mapping[str, FileFingerprint]] = {}
    for one in kept:
        with suppress(KrepairError, OSError):  # undo itself meets it, and says so
            if one.file.original.digest or not one.file.original.name.endswith(LOG):
                if wrong := _file_problem(one.folder, one.file):
                    bad.setdefault(one.change_id, wrong)
            elif one.folder.state(one.file.path) is not None:
                if one.partition.folder not in planned:
                    planned[one.partition.folder] = one.partition.by_name
                logs.append((one, _scan_of(plan, one)))
    for index, result in engine.map(scan, [item for _, item in logs]):
        one, _ = logs[index]
        fingerprint = planned[one.partition.folder].get(one.file.original.name)
        digest = fingerprint.digest if fingerprint is not None else ""
        if wrong := _log_problem(one.folder.at(one.file.path), one.file.original.size, digest, result):
            bad.setdefault(one.change_id, wrong)
    return bad


def _file_problem(folder: PartitionFolder, kept: KeptFile) -> str:
    path = folder.at(kept.path)
    if folder.state(kept.path) is None or not kept.original.digest:
        return ""  # that it is gone, undo itself says; a log of whole batches has the digest of the plan
    digest = digest_file if kept.plain else digest_content
    return (
        "" if digest(path) == kept.original.digest else _bad(path, "its bytes are not those that were kept")
    )


def _scan_of(plan: Plan, one: KeptOriginal) -> ScanItem:
    return ScanItem(
        place=Place(
            host=socket.gethostname(),
            log_dir=plan.log_dir,
            log_dir_inode=os.stat(plan.log_dir).st_ino,
            folder=f"{one.partition.folder}/{one.folder.names.keep()}",
        ),
        base_offset=int(one.file.original.name.partition(".")[0]),
        size=one.file.original.size,
        now_ms=plan.policy.now_ms,
        high_watermark=INT64_MAX,
    )


def _log_problem(path: str, size: int, digest: str, result: ScanResult | Failed) -> str:
    if isinstance(result, Failed):
        return _bad(path, result.why)
    summary = result.summary
    if digest and summary.headers == digest:
        return ""  # it may have been damaged before: of such a log an older krepair knows the batches, not the bytes
    if summary.damage != D_NONE or summary.valid_bytes != size:
        return _bad(path, f"there is no valid batch at position {summary.valid_bytes}")
    return _bad(path, "the headers of its batches are not those that the plan was made of") if digest else ""


def _bad(path: str, text: str) -> str:
    return (
        f"{path}: the kept original is damaged: {text}; what is in its place now stays, and so does all that lies "
        "below it; fetch this partition from another replica, or purge"
    )
