"""Carries a partition's changes out, continues what was interrupted, and takes them back.

Only its action knows of which kind a change is (see ``krepair.journal.actions``). The runner keeps the order: what an
interrupted run left half done comes first; then intent, steps, done. What was left is told from the journal and from
what is on the disk, so that any call may be repeated after a crash at any instant. A broker that was started in between
may have finished a swap itself, or removed what was staged: then it goes on from there. Where a file is neither an
original nor one of ours, ``StalePlanError`` names it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from krepair.journal.actions.action import StagedGroup
from krepair.journal.backward import Backward
from krepair.journal.folder import PartitionFolder
from krepair.journal.forward import Forward, Verify
from krepair.journal.guards import Guards
from krepair.journal.outcome import ChangeFailed, Outcome
from krepair.journal.record import Journal
from krepair.plan.model import Change, Commit, PartitionPlan


def commit_partition(
    folder: PartitionFolder,
    partition: PartitionPlan,
    commit: Commit,
    guards: Guards,
    stage: Callable[[Change], None],
    *,
    verify: Verify = lambda changes: {},
    damaged: Collection[int] = (),
    staged: Mapping[str, StagedGroup] | None = None,
) -> tuple[Outcome, ...]:
    """Carries out every change that is not in place yet, ascending; the first failure stops it.

    Args:
        folder: the partition folder.
        partition: its part of the plan.
        commit: order of the renames, and whether under the fence.
        guards: asked before each change.
        stage: makes the staged files of a change complete, verified and synced. It is called right before the change,
            unless the change has passed its commit. It may find the files there.
        verify: reads what changes made once more, before their originals are freed; see ``Verify``.
        damaged: base offsets of segments known to be damaged: they are kept as real copies.
        staged: change id -> how the staged files of a rewritten group are known.

    Returns:
        One outcome per change, in the plan's order; and one more if the fence could not be taken down.

    Raises:
        LockLostError: the lock is no longer ours; nothing more was touched.
        InterruptedAtSafePointError: somebody asked to stop; what was begun is finished and the fence is down.
    """
    run = Forward(folder, partition, commit, guards, frozenset(damaged), staged)
    return tuple(run.through(lambda: run.commit_all(stage, verify)))


def finish_partition(
    folder: PartitionFolder, partition: PartitionPlan, commit: Commit, guards: Guards
) -> tuple[Outcome, ...]:
    """Finishes, or takes back, what an interrupted apply left half done, before anything else is looked at.

    Returns:
        An outcome per change that was half done and is committed now, or could not be finished; and one more if the
        fence could not be taken down. None for those that are as before.

    Raises:
        LockLostError: the lock is no longer ours; nothing more was touched.
        InterruptedAtSafePointError: somebody asked to stop.
    """
    run = Forward(folder, partition, commit, guards)
    return tuple(run.through(run.finish_all))


def undo_partition(
    folder: PartitionFolder,
    partition: PartitionPlan,
    commit: Commit,
    guards: Guards,
    *,
    bad_copies: Mapping[str, str] | None = None,
    journal: Journal | None = None,
) -> tuple[Outcome, ...]:
    """Puts the originals of every change back, last change first, then removes the private sub-folder.

    Args:
        folder: the partition folder.
        partition: its part of the plan.
        commit: order for changes whose undo has not begun, and whether under the fence.
        guards: asked before each change.
        bad_copies: change id -> what is wrong with its kept originals. Undo stops before the first of them.
        journal: see ``krepair.journal.run.Run``.

    Returns:
        One outcome per change, last change first; and one more if the fence, or what was kept, is still there.

    Raises:
        LockLostError: the lock is no longer ours; nothing more was touched.
        InterruptedAtSafePointError: somebody asked to stop.
    """
    run = Backward(folder, partition, commit, guards, journal=journal)
    outcomes = list(run.through(lambda: run.undo_all(bad_copies or {})))
    if not any(isinstance(outcome, ChangeFailed) for outcome in outcomes):
        outcomes += run.clean_up()
    return tuple(outcomes)
