"""What became of each change of a plan, read from the journal and the disk; writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from krepair.journal.actions.action import Found, StagedGroup
from krepair.journal.actions.table import action_for
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import Journal
from krepair.journal.unrecorded import is_all_recorded
from krepair.plan.model import Change, FileFingerprint, PartitionPlan


class ChangeState(StrEnum):
    """Where a change is."""

    PLANNED = "planned"
    COMMITTING = "committing"
    COMMITTED = "committed"
    FREED = "freed"
    UNDOING = "undoing"
    UNDONE = "undone"
    PURGED = "purged"
    UNKNOWN = "unknown"


_STATES = {
    "committing": ChangeState.COMMITTING,
    "committed": ChangeState.COMMITTED,
    "freed": ChangeState.FREED,
    "undoing": ChangeState.UNDOING,
    "undone": ChangeState.UNDONE,
    "rolled back": ChangeState.PLANNED,
}


def staged_groups(journal: Journal) -> dict[str, StagedGroup]:
    """Change id -> how the new files of a rewritten group are known, as it was journalled."""
    return {
        name: StagedGroup(intent.parts, intent.digests)
        for name, intent in journal.intents.items()
        if intent.kind == "rewrite segments"
    }


def status_in(
    folder: PartitionFolder, partition: PartitionPlan, journal: Journal | None = None
) -> dict[str, ChangeState]:
    """State of each change of a partition, or of the root, by its id.

    ``freed``: committed and verified, and its originals were freed. ``committing`` and ``undoing`` are half done: the
    same command continues. ``purged`` is told by the disk alone: the new file is in its place and nothing is kept. It
    is known by its bytes where the plan has a digest of them, else by size and time. ``unknown``: the files are neither
    those that the plan was made of, nor those that it makes.

    Args:
        folder: the partition folder.
        partition: its part of the plan.
        journal: of the folder, as it was just read; None: it is read here.

    Raises:
        RefusedError: the journal is damaged or of another plan.
        OSError: a file could not be looked at.
    """
    with folder.tree.keeping_folders():
        return _states_in(folder, partition, journal or folder.journal())


def _states_in(folder: PartitionFolder, partition: PartitionPlan, journal: Journal) -> dict[str, ChangeState]:
    states: dict[str, ChangeState] = {}
    at_work = frozenset(journal.at_work())
    planned = partition.by_name
    for change in partition.changes:
        state = journal.states.get(change.change_id)
        if state is None:
            states[change.change_id] = _without_journal(folder, journal, planned, change)
        elif journal.purging and change.change_id in at_work:
            states[change.change_id] = ChangeState.PURGED
        else:
            states[change.change_id] = _STATES[state]
    return states


def _without_journal(
    folder: PartitionFolder, journal: Journal, planned: Mapping[str, FileFingerprint], change: Change
) -> ChangeState:
    action = action_for(change)
    found = Found(planned, {name: folder.state(name) for name in action.told_by(change)})
    if action.is_planned(folder, change, found):
        return ChangeState.PLANNED
    purged = action.is_made(folder, change, found) and is_all_recorded(folder, journal)
    return ChangeState.PURGED if purged else ChangeState.UNKNOWN
