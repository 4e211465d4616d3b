"""``krepair undo LOGDIR --plan-id ID`` and ``krepair purge LOGDIR --plan-id ID``: without the plan file."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Literal

from krepair.durable.disk import Disk
from krepair.journal.folder import PartitionFolder
from krepair.logdir.lock import hold_lock, hold_own_lock
from krepair.logdir.values import LogDir
from krepair.logdir.view import read_log_dir
from krepair.ops.kept import by_id_command, folder_of, load_kept, nothing_to_undo, private_of, search_of
from krepair.ops.purge import purge_folders
from krepair.ops.reports import ApplyReport, ChangeResult, next_of
from krepair.ops.target import disk_below
from krepair.ops.undo import undo
from krepair.options import Options
from krepair.pipeline.progress import Progress, SilentProgress


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
        StalePlanError: nothing is kept by a plan of this id; or what ``krepair.ops.undo.undo`` raises.
        RefusedError: no copy can be used, or the review objects.
        LockedError: a broker is using the directory.
    """
    view = read_log_dir(log_dir)
    search_of(view, plan_id)
    # An undo that was interrupted at its very end has taken the copy away, and only left-over files are there.
    if nothing_to_undo(view, plan_id):
        with disk_below(view.path, disk) as writes, hold_lock(view.path, writes) as lock:
            if nothing_to_undo(read_log_dir(log_dir), plan_id):
                folders = _folders(read_log_dir(log_dir), plan_id, writes)
                results = purge_folders(folders, lock, progress or SilentProgress(), "already")
                return _report("undo", view.path, plan_id, results)
    return undo(load_kept(log_dir, plan_id), options, progress, disk=disk, log_dir=view.path)


def purge_by_id(
    log_dir: str,
    plan_id: str,
    options: Options,
    progress: Progress | None = None,
    *,
    disk: Disk | None = None,
) -> ApplyReport:
    """Free what the plan of an id keeps.

    The plan itself is not needed: its private sub-folders are removed, and their journals say whether they may
    be. So it also works where the copy is missing or damaged.

    Args:
        log_dir: its path.
        plan_id: of the plan.
        options: none of them counts.
        progress: told of partitions.
        disk: what writes; a test may wrap it.

    Raises:
        NotALogDirError: it is no log directory.
        StalePlanError: nothing is kept by a plan of this id.
        LockedError: another krepair is at work in the directory.
        RefusedError: something of the plan is half done.
    """
    view = read_log_dir(log_dir)
    search_of(view, plan_id)
    with disk_below(view.path, disk) as writes, hold_own_lock(view.path, writes) as lock:
        folders = _folders(read_log_dir(log_dir), plan_id, writes)
        results = purge_folders(folders, lock, progress or SilentProgress())
    return _report("purge", view.path, plan_id, results)


def _folders(view: LogDir, plan_id: str, disk: Disk) -> list[PartitionFolder]:
    return [
        folder_of(disk, view.path, partition.folder, private)
        for partition, private in private_of(view, plan_id)
    ]


def _report(
    verb: Literal["undo", "purge"], log_dir: str, plan_id: str, results: Sequence[ChangeResult]
) -> ApplyReport:
    return ApplyReport(
        verb=verb,
        plan_id=plan_id,
        log_dir=log_dir,
        results=tuple(results),
        next_command=_next_command(verb, log_dir, plan_id, results),
    )


def _next_command(
    verb: Literal["undo", "purge"], log_dir: str, plan_id: str, results: Sequence[ChangeResult]
) -> str:
    if any(result.outcome == "failed" for result in results):
        again = by_id_command(verb, log_dir, plan_id)
        return next_of(results, again, by_id_command("undo", log_dir, plan_id))
    return f"krepair verify {shlex.quote(log_dir)}"
