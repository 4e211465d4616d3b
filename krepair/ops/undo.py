"""``krepair undo``: puts the kept originals back, byte for byte, last change first."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from krepair.durable.disk import Disk
from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode, InterruptedAtSafePointError, KrepairError
from krepair.journal.runner import Guards, undo_partition
from krepair.journal.safe_points import SafePoints, signals_wait
from krepair.journal.status import ChangeState, read_status
from krepair.logdir.lock import hold_lock
from krepair.ops.apply import result_of
from krepair.ops.options import Options
from krepair.ops.progress import Progress, SilentProgress
from krepair.ops.reports import ApplyReport, ChangeResult
from krepair.ops.root import RootRun
from krepair.ops.target import check_target, journal_folder
from krepair.plan.figures import freed_at_apply, sizes_by_name
from krepair.plan.model import Change, PartitionPlan, Plan


def undo(
    plan: Plan, options: Options, progress: Progress | None = None, *, disk: Disk | None = None
) -> ApplyReport:
    """Take a plan back.

    Args:
        plan: as read from its file.
        options: not used by this verb; it takes them as every verb does.
        progress: told of partitions' bytes.
        disk: what writes; a test may wrap it.

    Raises:
        LockedError: a broker is using the directory.
        RefusedError: the review objects.
        StalePlanError: the plan is for another host or directory.
    """
    del options
    check_target(plan)
    disk = disk or RealDisk()
    progress = progress or SilentProgress()
    partitions = [each for each in reversed(plan.partitions) if each.changes]
    results: list[ChangeResult] = []
    interrupted = False
    progress.start("undo", sum(each.log_bytes_before for each in partitions))
    with hold_lock(plan.log_dir, disk) as lock, signals_wait(SafePoints()) as safe_points:
        guards = Guards(lock, safe_points, lambda change: None)
        for each in partitions:
            try:
                results.extend(_undo_one(plan, each, disk, guards))
            except InterruptedAtSafePointError:
                interrupted = True
                break
            progress.advance(each.log_bytes_before)
        # Last: while a partition is half undone, its fence holds one of the root's files.
        failed = any(result.outcome == "failed" for result in results)
        if plan.root is not None and not interrupted and not failed:
            try:
                results.extend(RootRun(plan, plan.root, disk).undo(guards))
            except InterruptedAtSafePointError:
                interrupted = True
    progress.finish()
    order = {each.folder: number for number, each in enumerate(plan.partitions)}
    return ApplyReport(
        verb="undo",
        plan_id=plan.plan_id,
        log_dir=plan.log_dir,
        results=tuple(sorted(results, key=lambda one: (order.get(one.partition, -1), one.change_id))),
        interrupted=interrupted,
        next_command="krepair undo PLAN" if interrupted else f"krepair verify {shlex.quote(plan.log_dir)}",
    )


def _undo_one(plan: Plan, partition: PartitionPlan, disk: Disk, guards: Guards) -> Sequence[ChangeResult]:
    folder = journal_folder(disk, plan, partition)
    sizes = sizes_by_name(partition.files)
    changes: dict[str, Change] = {change.change_id: change for change in partition.changes}
    try:
        states = read_status(disk, plan.log_dir, plan.plan_id, partition)
        if ChangeState.PURGED in states.values():
            why = f"{folder.path}: its originals were purged; there is nothing to put back"
            return [_failed(partition, why, ExitCode.REFUSED)]
        outcomes = undo_partition(folder, partition, plan.commit, guards)
    except OSError as error:
        why = f"{error.filename or folder.path}: {error.strerror}"
        return [_failed(partition, why, ExitCode.PARTLY)]
    except InterruptedAtSafePointError:
        raise
    except KrepairError as error:
        return [_failed(partition, error.message, error.exit_code)]
    results = [
        result_of(partition.folder, outcome, freed=-freed_at_apply(changes[outcome.change_id], sizes))
        for outcome in outcomes
    ]
    return [_nothing_to_undo(each) if each.why == "is not applied" else each for each in results]


def _failed(partition: PartitionPlan, why: str, code: ExitCode) -> ChangeResult:
    return ChangeResult(
        change_id=partition.folder, partition=partition.folder, outcome="failed", exit_code=int(code), why=why
    )


def _nothing_to_undo(result: ChangeResult) -> ChangeResult:
    """A change that was never applied, or is undone already, is as undo wants it."""
    return ChangeResult(
        change_id=result.change_id, partition=result.partition, outcome="already", why=result.why
    )
