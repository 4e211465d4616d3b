"""``krepair undo --rebuild-journal``: a way out where a journal is damaged, by what is on the disk.

It says of every change where it is, and what may be done next. It touches nothing but journals; undo, apply and purge
then go by the new ones.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from krepair.durable.disk import Disk
from krepair.errors import KrepairError
from krepair.journal.fence import move_seen
from krepair.journal.folder import PartitionFolder
from krepair.journal.rebuild import LAST_COPY, Told, ToldChange, is_whole, tell, write_anew
from krepair.journal.record import Here
from krepair.logdir.lock import hold_lock
from krepair.ops.kept import load_kept
from krepair.ops.moved import settle_for_rebuild
from krepair.ops.reports import ApplyReport, ChangeResult
from krepair.ops.result_lines import failed_partition
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

_WORDS: Final[dict[Told, str]] = {
    "original": "the originals are in their places; nothing has to be done",
    "new": "the new files are in place, and the originals are kept; undo takes it back, purge keeps the new ones",
    "half": "it is half done, and every original is in its place or kept; undo takes it back",
    "freed": "the new files are in place, and apply has freed the originals; apply goes on from here, purge ends it",
    "past": "what is in place now stays, it cannot be taken back; purge ends it",
}


def rebuild(
    plan: Plan, options: Options, progress: Progress | None = None, *, disk: Disk | None = None
) -> ApplyReport:
    """Write the journals of a plan anew that are damaged, from what the files tell.

    Args:
        plan: as read from its file.
        options: only ``at`` counts.
        progress: told of partitions.
        disk: what writes; a test may wrap it.

    Raises:
        LockedError: a broker is using the directory.
        RefusedError: the review objects, or this user may not write.
        StalePlanError: the plan is for another host or directory.
    """
    located = check_target(plan, options.at, verb="undo")
    plan = located.plan
    progress = progress or SilentProgress()
    results: list[ChangeResult] = []
    with disk_of(plan, disk) as writes:
        check_ground(plan, writes)
        with hold_lock(plan.log_dir, writes) as lock:
            settled = settle_for_rebuild(located, writes)
            plan = settled.plan
            here = replace(located.here, adopted=True) if settled.moved else None
            targets = targets_of(plan)
            progress.start("undo", len(targets))
            for target in targets:
                lock.check()
                results += _rebuild_one(plan, target, journal_folder(writes, plan, target), here)
                progress.advance(1)
    progress.finish()
    order = {partition.folder: number for number, partition in enumerate(plan.partitions)}
    return ApplyReport(
        verb="undo",
        plan_id=plan.plan_id,
        log_dir=plan.log_dir,
        results=tuple(sorted(results, key=lambda one: order.get(one.partition, -1))),
        notes=settled.notes,
        next_command=_next_command(results),
        only_journals=True,
    )


def rebuild_by_id(
    log_dir: str,
    plan_id: str,
    options: Options,
    progress: Progress | None = None,
    *,
    disk: Disk | None = None,
) -> ApplyReport:
    """The same by the copy of the plan that lies with what it keeps.

    Raises:
        NotALogDirError: it is no log directory.
        StalePlanError: nothing is kept by a plan of this id; or what ``rebuild`` raises.
        RefusedError: no copy can be used, or the review objects.
        LockedError: a broker is using the directory.
    """
    return rebuild(load_kept(log_dir, plan_id, options.at), options, progress, disk=disk)


def _rebuild_one(
    plan: Plan, target: PartitionPlan, folder: PartitionFolder, here: Here | None
) -> list[ChangeResult]:
    try:
        if why_left_alone(folder) or not folder.tree.is_folder(folder.private):
            return [_nothing_to_do(target)]
        told = tell(folder, target, plan.commit)
        if is_whole(folder, told):
            return [_nothing_to_do(target)]
        if here is not None:
            move_seen(folder.disk, folder.log_dir, f"{folder.private}/fence")
        write_anew(folder, told, here)
    except (KrepairError, OSError) as error:
        return [failed_partition(target, error)]
    return [_result(target, change) for change in told]


def _nothing_to_do(target: PartitionPlan) -> ChangeResult:
    return ChangeResult(change_id=target.folder, partition=target.folder, outcome="already")


def _result(target: PartitionPlan, change: ToldChange) -> ChangeResult:
    why = _WORDS[change.told] + (f" ({change.why})" if change.why else "")
    return ChangeResult(change_id=change.change_id, partition=target.folder, outcome="rebuilt", why=why)


def _next_command(results: list[ChangeResult]) -> str:
    """The first thing that is safe to do: back, where that is possible."""
    words = {result.why.partition(" (")[0] for result in results if result.outcome == "rebuilt"}
    if not words and any(result.outcome == "failed" for result in results):
        return ""
    if words & {_WORDS["half"], _WORDS["new"], _WORDS["original"]} or not words:
        return "krepair undo PLAN"
    if any(LAST_COPY in result.why for result in results):
        return ""
    return "krepair apply PLAN" if _WORDS["freed"] in words else "krepair purge PLAN"
