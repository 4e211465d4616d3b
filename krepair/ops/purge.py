"""``krepair purge``: frees the kept originals of a plan; from then on it cannot be undone."""

from __future__ import annotations

import shlex

from krepair.durable.disk import Disk
from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode, KrepairError
from krepair.journal.purge import purge_partition
from krepair.logdir.lock import hold_lock
from krepair.ops.apply import failed_partition
from krepair.ops.options import Options
from krepair.ops.progress import Progress, SilentProgress
from krepair.ops.reports import ApplyReport, ChangeResult
from krepair.ops.root import RootRun
from krepair.ops.target import check_target, journal_folder
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
    disk = disk or RealDisk()
    progress = progress or SilentProgress()
    partitions = [each for each in plan.partitions if each.changes]
    progress.start("purge", sum(each.log_bytes_before for each in partitions))
    results = []
    with hold_lock(plan.log_dir, disk) as lock:
        for each in partitions:
            lock.check()
            results.append(_purge_one(plan, each, disk))
            progress.advance(each.log_bytes_before)
        if plan.root is not None:
            lock.check()
            results.append(RootRun(plan, plan.root, disk).purge())
    progress.finish()
    return ApplyReport(
        verb="purge",
        plan_id=plan.plan_id,
        log_dir=plan.log_dir,
        results=tuple(results),
        next_command=f"krepair verify {shlex.quote(plan.log_dir)}",
    )


def _purge_one(plan: Plan, partition: PartitionPlan, disk: Disk) -> ChangeResult:
    try:
        freed = purge_partition(journal_folder(disk, plan, partition))
    except (KrepairError, OSError) as error:
        return failed_partition(partition, error, otherwise=ExitCode.PARTLY)
    return ChangeResult(
        change_id=partition.folder, partition=partition.folder, outcome="purged", bytes_freed=freed
    )
