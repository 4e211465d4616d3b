"""Staging and verification for ``apply`` and ``verify``; each fix of the table makes and verifies its own changes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from krepair.durable import medium
from krepair.fixes.fix import Fix
from krepair.fixes.second_readings import read_again
from krepair.fixes.staging import Staging, Work
from krepair.fixes.table import FIXES, owner_of
from krepair.plan.model import Change


def stage_all(work: Work, stagings: Sequence[Staging]) -> None:
    """Rebuild, verify and sync the bytes of all changes; a partition's problem is stored in the partition's staging."""
    with work.engine.writing(work.view.path, partial(_private_folder, stagings)):
        _stage_all(work, stagings)


def _private_folder(stagings: Sequence[Staging]) -> str:
    """Create a work folder in the first partition that allows it; return the folder's path, empty if none allows it."""
    for staging in stagings:
        if staging.problem is None:
            with staging.taking_problems():
                staging.folder.make_private_folders()
                return staging.folder.private
    return ""


def _stage_all(work: Work, stagings: Sequence[Staging]) -> None:
    work.together = _worth_one_barrier(work, stagings)
    for fix, parts in _by_owner(stagings).items():
        owned = [(staging, part) for staging, part in parts if staging.problem is None]
        if owned:
            fix.stage(work, [part for _, part in owned])
        for staging, part in owned:
            staging.problem = part.problem
            staging.unsynced = staging.unsynced or part.unsynced
    for staging in stagings:
        if staging.problem is None:
            with staging.taking_problems():
                if staging.folder.has_private_folders():
                    # The copy of the plan must be durable before the first intent record: without the copy, an intent
                    # could not be undone after the plan file is lost.
                    work.keep_plan(staging.folder)
    able = [staging for staging in stagings if staging.problem is None]
    if work.together:
        _make_all_durable(work, able)
    else:
        for staging in able:
            with staging.taking_problems():
                _make_durable(work, staging)


def _worth_one_barrier(work: Work, stagings: Sequence[Staging]) -> bool:
    if sum(len(staging.changes) for staging in stagings) < medium.MANY:
        return False
    return medium.can_sync_file_system(work.disk.tree, work.view.path, _paths_of(stagings))


def _paths_of(stagings: Sequence[Staging]) -> list[str]:
    return [staging.folder.path for staging in stagings]


def _make_durable(work: Work, staging: Staging) -> None:
    """Make the names of a partition's small files durable with one sync, and those of a new work folder."""
    folder = staging.folder
    if staging.unsynced and not folder.is_unsynced:
        work.disk.sync_dir(staging.stage_folder)
    folder.sync_new()


def _make_all_durable(work: Work, stagings: Sequence[Staging]) -> None:
    """Make the files and names of all partitions durable with one barrier; a write error fails its partition.

    Nothing is renamed into place before this: a power cut would leave a name with an empty or partial file.
    """
    new = [staging for staging in stagings if staging.unsynced or staging.folder.is_unsynced]
    if not new:
        return
    try:
        done = work.disk.sync_file_system(work.view.path, _paths_of(new))
    except OSError:
        for staging in new:
            with staging.taking_problems():
                raise
        return
    for staging in new:
        with staging.taking_problems():
            for name in work.disk.tree.names(staging.stage_folder) if staging.unsynced else ():
                path = f"{staging.stage_folder}/{name}"
                if done:
                    work.disk.check_written(path)
                else:
                    work.disk.sync_file(path)
            if done:
                staging.folder.everything_is_synced()
            else:
                _make_durable(work, staging)


def verify_all(work: Work, stagings: Sequence[Staging]) -> None:
    """Read the new files again, with code that shares nothing with the writer; problems are stored in ``work``."""
    owned = _by_owner(stagings)
    read_again(work, ((part, fix.second_readings) for fix, parts in owned.items() for _, part in parts))


def _by_owner(stagings: Sequence[Staging]) -> dict[Fix, list[tuple[Staging, Staging]]]:
    """Return pairs (staging, the same staging with only the fix's changes) by fix, in the order of the table."""
    parts: dict[Fix, list[tuple[Staging, Staging]]] = {fix: [] for fix in FIXES}
    for staging in stagings:
        owned: dict[Fix, list[Change]] = {}
        for change in staging.changes:
            owned.setdefault(owner_of(change), []).append(change)
        for fix, changes in owned.items():
            parts[fix].append((staging, staging.only(*changes)))
    return parts
