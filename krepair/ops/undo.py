"""``krepair undo``: puts the kept originals back, byte for byte, last change first."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress

from krepair.durable.disk import Disk
from krepair.errors import (
    DamagedJournalError,
    ExitCode,
    InterruptedAtSafePointError,
    KrepairError,
    LockLostError,
    RefusedError,
)
from krepair.journal.by_hand import by_hand
from krepair.journal.fence import Watch
from krepair.journal.folder import PartitionFolder
from krepair.journal.guards import Guards
from krepair.journal.journals_seen import JournalsSeen
from krepair.journal.record import Journal
from krepair.journal.run import fence_of
from krepair.journal.runner import undo_partition
from krepair.journal.safe_points import SafePoints, signals_wait
from krepair.journal.status import ChangeState, status_in
from krepair.logdir.lock import hold_lock
from krepair.ops.kept import private_of
from krepair.ops.kept_copies import BadCopies, bad_copies, bytes_to_read, kept_in
from krepair.ops.reports import ApplyReport, ChangeResult, next_of
from krepair.ops.result_lines import (
    Measured,
    failed_by,
    failed_partition,
    failed_whole,
    notes_of_fences,
    result_of,
    with_taken_back,
)
from krepair.ops.target import (
    check_ground,
    check_no_fence,
    check_target,
    disk_of,
    is_root,
    journal_folder,
    undo_order,
    view_of,
    why_left_alone,
)
from krepair.options import Options
from krepair.pipeline.engines.choice import WorkKind, choose_engine
from krepair.pipeline.progress import Progress, SilentProgress
from krepair.plan.changes import trusted_after
from krepair.plan.keep import can_all_be_taken_back
from krepair.plan.model import PartitionPlan, Plan

_BEGUN = {ChangeState.COMMITTING, ChangeState.COMMITTED, ChangeState.UNDOING}


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
        log_dir: see ``krepair.ops.target.check_target``.

    Raises:
        LockedError: a broker is using the directory.
        RefusedError: the review objects.
        StalePlanError: the plan is for another host or directory.
        UnwritableError: what apply left could not be written out.
    """
    plan = check_target(plan, log_dir)
    progress = progress or SilentProgress()
    with disk_of(plan, disk) as writes:
        check_ground(plan, writes)
        folders = [journal_folder(writes, plan, target) for target in undo_order(plan)]
        with hold_lock(plan.log_dir, writes) as lock, signals_wait(SafePoints()) as safe_points:
            journals = JournalsSeen()
            watch, measured = Watch(writes, plan.log_dir), Measured(writes.tree, folders)
            _check_names_all(plan, list(zip(undo_order(plan), folders, strict=True)), journals)
            guards = Guards(lock, safe_points, lambda change: None, watch)
            results, interrupted = _undo_all(plan, options, writes, guards, progress, journals)
            notes = notes_of_fences(guards.not_given_back)
    order = {partition.folder: number for number, partition in enumerate(plan.partitions)}
    again = "krepair undo PLAN"
    report = ApplyReport(
        verb="undo",
        plan_id=plan.plan_id,
        log_dir=plan.log_dir,
        results=tuple(sorted(results, key=lambda one: (order.get(one.partition, -1), one.change_id))),
        interrupted=interrupted,
        notes=notes,
        by_hand=tuple(guards.by_hand),
        next_command=again
        if interrupted
        else next_of(
            results, again, next(iter(guards.asked_for), f"krepair verify {shlex.quote(plan.log_dir)}")
        ),
    )
    return with_taken_back(measured.told_in(report), guards.taken_back)


def _check_names_all(
    plan: Plan, parts: Sequence[tuple[PartitionPlan, PartitionFolder]], journals: JournalsSeen
) -> None:
    """Check that the plan names everything that is kept under its id: whoever may write the directory may edit a copy.

    Raises:
        RefusedError: it does not; nothing was changed.
    """
    changes: dict[str, set[str]] = {}
    for target, folder in parts:
        named = changes.setdefault("/".join(folder.private.split("/")[-2:]), set())
        named.update(change.change_id for change in target.changes)
    there = [f"{one.folder}/{private.name}" for one, private in private_of(view_of(plan), plan.plan_id)]
    unknown = [path for path in there if path not in changes]
    for _, folder in parts:
        named = changes["/".join(folder.private.split("/")[-2:])]
        with suppress(KrepairError, OSError):  # the partition's own undo says what is wrong
            unknown += [f"{folder.private}: {one}" for one in journals.of(folder).states if one not in named]
    if unknown:
        raise RefusedError(
            f"{unknown[0]}: is kept by plan {plan.plan_id}, but this plan does not name it: it was edited. Nothing was "
            "changed",
            next_command="krepair undo PLAN-FILE",
        )


def _undo_all(
    plan: Plan,
    options: Options,
    disk: Disk,
    guards: Guards,
    progress: Progress,
    journals: JournalsSeen,
) -> tuple[list[ChangeResult], bool]:
    """What became of each partition and of the root, and whether it was interrupted."""
    targets = undo_order(plan)
    parts = [(target, journal_folder(disk, plan, target)) for target in targets]
    kept = kept_in(parts, journals)
    with closing(
        choose_engine(options.engine, options.master, {WorkKind.READ: bytes_to_read(kept)}, progress)
    ) as engine:
        bad = bad_copies(plan, kept, engine)
    results: list[ChangeResult] = []
    guards.settle([folder for _, folder in parts])
    progress.start("undo", sum(target.log_bytes_before for target in targets))
    try:
        still_trusted: frozenset[tuple[str, int]] = frozenset()
        for number, (target, folder) in enumerate(parts):
            # A damaged file of the root was replaced first, so that fences could read it: it comes back last.
            if is_root(target) and number and any(result.outcome == "failed" for result in results):
                continue
            if (target.topic, target.partition) in still_trusted and not is_root(target):
                why = f"{folder.path}: its recovery point is still raised, which has to be taken back first"
                results.append(failed_whole(target.folder, why, ExitCode.REFUSED))
                continue
            done = _undo_one(plan, target, folder, guards, bad.get(target.folder, {}))
            if any(result.outcome == "failed" for result in done):
                still_trusted |= trusted_after(target.changes)
            results.extend(done)
            progress.advance(target.log_bytes_before)
    except InterruptedAtSafePointError:
        return results, True
    except LockLostError as error:
        known = {result.partition for result in results}
        results += [failed_partition(target, error) for target in targets if target.folder not in known]
    progress.finish()
    return results, False


def _undo_one(
    plan: Plan, partition: PartitionPlan, folder: PartitionFolder, guards: Guards, bad: BadCopies
) -> Sequence[ChangeResult]:
    try:
        gone = why_left_alone(folder)
        if gone:
            return [failed_whole(partition.folder, gone, ExitCode.STALE_PLAN)]
        journal = folder.journal(to_write=True)
        states = status_in(folder, partition, journal)
        if _BEGUN & set(states.values()):
            check_no_fence(partition, guards.watch)
        if ChangeState.PURGED in states.values() and not _are_still_staged(
            folder, journal, partition, states
        ):
            return [failed_whole(partition.folder, _why_purged(folder, journal, partition), ExitCode.REFUSED)]
        outcomes = undo_partition(folder, partition, plan.commit, guards, bad_copies=bad, journal=journal)
    except DamagedJournalError as error:
        return [_by_hand(partition, folder, guards, error)]
    except OSError as error:
        why = f"{error.filename or folder.path}: {error.strerror}"
        return [failed_whole(partition.folder, why, ExitCode.PARTLY)]
    except (InterruptedAtSafePointError, LockLostError):
        raise
    except KrepairError as error:
        return [failed_by(partition.folder, error)]
    return [result_of(partition.folder, outcome) for outcome in outcomes]


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
        freed = "purged" if can_all_be_taken_back(partition.changes) else "freed once all was verified"
        return f"{folder.holder}: its originals were {freed}; there is nothing to put back"
    # An empty folder is no journal: whoever removed what was kept was stopped before its last call.
    return (
        f"{folder.holder}: no journal of this plan is here, and files are as this plan makes them. Either it was "
        "applied and keeps nothing any more, or it was never applied here and another plan made equal files; there is "
        "nothing to put back"
    )


def _by_hand(
    partition: PartitionPlan, folder: PartitionFolder, guards: Guards, error: DamagedJournalError
) -> ChangeResult:
    """What a person does where the journal is damaged. Once all originals are back, the fence is taken down."""
    purge = f"krepair purge {shlex.quote(folder.log_dir)} --plan-id {folder.plan_id}"
    again = f"krepair undo {shlex.quote(folder.log_dir)} --plan-id {folder.plan_id}"
    try:
        told = by_hand(folder, partition)
    except (KrepairError, OSError) as failure:
        return failed_partition(partition, failure)
    if not told.lines and not told.left:
        fence = fence_of(folder, partition, guards.watch or Watch(folder.disk, folder.log_dir))
        guards.hold()
        if fence.is_up():
            fence.lift()
        guards.asked_for.append(purge)
        return ChangeResult(
            change_id=partition.folder,
            partition=partition.folder,
            outcome="already",
            why=f"{error.message}; every original is in its place",
        )
    guards.by_hand += told.lines
    lines = ["type the lines under By hand, which put its originals back, and then undo again"]
    back = lines if told.lines else [told.left]
    why = "; ".join([error.message, *back])
    return failed_whole(partition.folder, why, ExitCode.REFUSED, next_command=again if told.lines else purge)
