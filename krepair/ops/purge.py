"""``krepair purge``: frees the kept originals of a plan; from then on it cannot be undone."""

from __future__ import annotations

import contextlib
import shlex

from krepair.durable.disk import Disk
from krepair.errors import ExitCode, KrepairError, LockLostError, RefusedError, StalePlanError
from krepair.journal.guards import Guards
from krepair.journal.purge import purge_partition
from krepair.journal.safe_points import SafePoints
from krepair.journal.status import ChangeState, status_in
from krepair.logdir.lock import hold_lock
from krepair.ops.apply import failed_partition
from krepair.ops.reports import ApplyReport, ChangeResult
from krepair.ops.target import (
    check_ground,
    check_target,
    disk_of,
    journal_folder,
    targets_of,
    why_left_alone,
)
from krepair.options import Options
from krepair.pipeline.progress import Progress, SilentProgress
from krepair.plan.model import PartitionPlan, Plan


def purge(
    plan: Plan, options: Options, progress: Progress | None = None, *, disk: Disk | None = None
) -> ApplyReport:
    """Free the kept originals of a plan.

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
    progress = progress or SilentProgress()
    with disk_of(plan, disk) as writes:
        check_ground(plan, writes)
        with hold_lock(plan.log_dir, writes) as lock:
            _check_no_undo(plan, writes)
            results = _purge_all(plan, writes, Guards(lock, SafePoints(), lambda change: None), progress)
    return ApplyReport(
        verb="purge",
        plan_id=plan.plan_id,
        log_dir=plan.log_dir,
        results=tuple(results),
        next_command=f"krepair verify {shlex.quote(plan.log_dir)}",
    )


def _check_no_undo(plan: Plan, disk: Disk) -> None:
    """Half of a plan taken back and the other half purged is what nobody wants: the undo has to end first."""
    for target in targets_of(plan):
        with contextlib.suppress(OSError, StalePlanError):  # that partition's purge says what is wrong
            for change, state in status_in(journal_folder(disk, plan, target), target).items():
                if state is ChangeState.UNDOING:
                    raise RefusedError(
                        f"{change}: its undo was interrupted; nothing is purged of the whole plan",
                        next_command="krepair undo PLAN",
                    )


def _purge_all(plan: Plan, disk: Disk, guards: Guards, progress: Progress) -> list[ChangeResult]:
    targets = targets_of(plan)
    progress.start("purge", sum(target.log_bytes_before for target in targets))
    results: list[ChangeResult] = []
    try:
        for target in targets:
            guards.hold()
            results.append(_purge_one(plan, target, disk))
            guards.begun = True
            progress.advance(target.log_bytes_before)
    except LockLostError as error:
        results += [failed_partition(target, error) for target in targets[len(results) :]]
    progress.finish()
    return results


def _purge_one(plan: Plan, partition: PartitionPlan, disk: Disk) -> ChangeResult:
    folder = journal_folder(disk, plan, partition)
    try:
        gone = why_left_alone(folder)
        if gone:
            raise StalePlanError(gone)
        freed = purge_partition(folder)
    except (KrepairError, OSError) as error:
        return failed_partition(partition, error, otherwise=ExitCode.PARTLY)
    return ChangeResult(
        change_id=partition.folder, partition=partition.folder, outcome="purged", bytes_freed=freed
    )
