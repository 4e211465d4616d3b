"""Runs the table for ``apply`` and ``verify``: each fix makes, and verifies, the changes that are its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from krepair.fixes.fix import Fix
from krepair.fixes.staging import Staging, Work
from krepair.fixes.table import FIXES


def stage_all(work: Work, stagings: Sequence[Staging]) -> None:
    """Make the bytes of all changes again, verified and synced; a partition's problem is put into its staging."""
    for fix in FIXES:
        able = [staging for staging in stagings if staging.problem is None]
        owned = list(_owned(fix, able))
        if owned:
            fix.stage(work, [part for _, part in owned])
        for staging, part in owned:
            staging.problem = part.problem
            staging.unsynced = staging.unsynced or part.unsynced
    for staging in stagings:
        if staging.problem is None:
            with staging.taking_problems():
                _make_durable(work, staging)


def _make_durable(work: Work, staging: Staging) -> None:
    """One barrier for all small files of a partition, and one for all that is new of its private sub-folder."""
    folder = staging.folder
    if work.disk.tree.is_folder(folder.private):
        work.keep_plan(folder)
    if staging.unsynced and not folder.is_unsynced:
        work.disk.sync_dir(staging.stage_folder)
    folder.sync_new()


def verify_all(work: Work, stagings: Sequence[Staging]) -> None:
    """Read what was made once more; problems are put into ``work``."""
    for fix in FIXES:
        parts = [part for _, part in _owned(fix, stagings)]
        if parts:
            fix.verify(work, parts)


def _owned(fix: Fix, stagings: Sequence[Staging]) -> Iterator[tuple[Staging, Staging]]:
    """Each staging that holds changes of a fix, and the same with these changes alone."""
    for staging in stagings:
        changes = [change for change in staging.changes if fix.owns(change)]
        if changes:
            yield staging, staging.only(*changes)
