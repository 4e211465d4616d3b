"""``krepair undo LOGDIR --plan-id ID`` and ``krepair purge LOGDIR --plan-id ID``: without the plan file."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from krepair.durable.disk import Disk
from krepair.errors import KrepairError, PersonDecidesError
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import Here
from krepair.logdir.lock import hold_lock, hold_own_lock
from krepair.logdir.values import LogDir
from krepair.logdir.view import read_log_dir
from krepair.ops.clones import check_only_one, other_directories, told_places
from krepair.ops.kept import (
    by_id_command,
    check_named,
    check_path,
    folder_of,
    load_kept,
    nothing_to_undo,
    private_of,
    search_of,
)
from krepair.ops.located import Located, here_of
from krepair.ops.moved import Part, settle, settle_parts
from krepair.ops.purge import purge_folders
from krepair.ops.reports import ApplyReport, ChangeResult, next_of
from krepair.ops.target import check_target, disk_below, private_paths
from krepair.ops.undo import undo
from krepair.options import Options
from krepair.pipeline.progress import Progress, SilentProgress
from krepair.plan.model import Plan


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
        with disk_below(view.path, view.inode, disk) as writes, hold_lock(view.path, writes) as lock:
            if nothing_to_undo(read_log_dir(log_dir), plan_id):
                _locate(view, plan_id, writes, options.at)
                folders = _folders(read_log_dir(log_dir), plan_id, writes)
                results = purge_folders(folders, lock, progress or SilentProgress(), "already")
                return _report("undo", view.path, plan_id, results, options.at)
    return undo(load_kept(log_dir, plan_id, options.at), options, progress, disk=disk)


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
        options: only ``at`` counts.
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
    with disk_below(view.path, view.inode, disk) as writes, hold_own_lock(view.path, writes) as lock:
        folders = _folders(read_log_dir(log_dir), plan_id, writes)
        located = _locate(view, plan_id, writes, options.at)
        notes = _settle(view, plan_id, writes, located)
        results = purge_folders(folders, lock, progress or SilentProgress())
    return replace(_report("purge", view.path, plan_id, results, options.at), notes=notes)


class _LocatedById(NamedTuple):
    """A directory, and what of the plan of an id is known in it.

    Attributes:
        plan: None if no copy can be used: it is missing or damaged.
        private: the private sub-folders that are there, or that the plan can have, relative to the directory.
        others: absolute paths of other directories that hold a journal of the plan.
    """

    plan: Located | None
    private: tuple[str, ...]
    others: tuple[str, ...]
    here: Here


def _locate(view: LogDir, plan_id: str, disk: Disk, at: str) -> _LocatedById:
    """The directory of a plan whose copy may be lost.

    Raises:
        PersonDecidesError: the plan was begun at another path, or another directory holds a journal of it, too, and
            nobody has said which one is meant.
        UsageError: another directory was named.
    """
    check_named(view.path, at)
    here = here_of(view.path, "")
    there = [os.path.relpath(one.path, view.path) for _, one in private_of(view, plan_id)]
    told = told_places(disk, view.path, there)
    plan = _plan_of(view, plan_id, at)
    private = tuple(there if plan is None else private_paths(plan))
    made_for = [plan.log_dir] if plan is not None else told
    for path in made_for:
        check_path(view.path, path, plan_id, at)
    others = other_directories(view.path, private, [*made_for, *told])
    if not at:
        check_only_one(view.path, plan_id, others)
    located = None
    with contextlib.suppress(KrepairError):
        located = None if plan is None else check_target(plan, at)
    return _LocatedById(located, private, others, here if located is None else located.here)


def _plan_of(view: LogDir, plan_id: str, at: str) -> Plan | None:
    try:
        return load_kept(view.path, plan_id, at)
    except PersonDecidesError:
        raise
    except KrepairError:
        return None


def _settle(view: LogDir, plan_id: str, disk: Disk, located: _LocatedById) -> tuple[str, ...]:
    """Prove that the directory is the plan's, by the plan's copy if it can be used, else by the journals; the notes."""
    if located.plan is not None:
        return settle(located.plan, disk, made_too=False).notes
    parts = [Part(folder, None) for folder in _folders(view, plan_id, disk)]
    return settle_parts(parts, located.here, is_plans=True, made_too=False)[1]


def _folders(view: LogDir, plan_id: str, disk: Disk) -> list[PartitionFolder]:
    return [
        folder_of(disk, view.path, partition.folder, private)
        for partition, private in private_of(view, plan_id)
    ]


def _report(
    verb: Literal["undo", "purge"], log_dir: str, plan_id: str, results: Sequence[ChangeResult], at: str
) -> ApplyReport:
    return ApplyReport(
        verb=verb,
        plan_id=plan_id,
        log_dir=log_dir,
        results=tuple(results),
        next_command=_next_command(verb, log_dir, plan_id, results, at),
    )


def _next_command(
    verb: Literal["undo", "purge"], log_dir: str, plan_id: str, results: Sequence[ChangeResult], at: str
) -> str:
    if any(result.outcome == "failed" for result in results):
        again = by_id_command(verb, log_dir, plan_id, at)
        return next_of(results, again, by_id_command("undo", log_dir, plan_id, at))
    return f"krepair verify {shlex.quote(log_dir)}"
