"""Report the state of each change of a plan, and other plans at work in the same partitions; nothing is written."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from krepair.commit.begin import StagedGroup
from krepair.commit.by_disk import is_made, is_planned
from krepair.commit.folder import ROOT, PartitionFolder
from krepair.commit.journal import Journal
from krepair.commit.unrecorded import is_all_recorded
from krepair.durable.real_disk import RealDisk
from krepair.errors import RefusedError
from krepair.formats.filenames import ROOT_SUFFIX
from krepair.logdir.reading import opened_folder
from krepair.logdir.values import LogDir, Partition, PrivateFolder
from krepair.plan.model import Change, FileFingerprint, PartitionPlan


class ChangeState(StrEnum):
    """State of a change."""

    PLANNED = "planned"
    COMMITTING = "committing"
    COMMITTED = "committed"
    FREED = "freed"
    UNDOING = "undoing"
    UNDONE = "undone"
    PURGED = "purged"
    UNKNOWN = "unknown"


def staged_groups(journal: Journal) -> dict[str, StagedGroup]:
    """Return the journal's evidence of rewritten groups' staged files, by change id."""
    return {
        name: StagedGroup(intent.parts, intent.digests)
        for name, intent in journal.intents.items()
        if intent.executor == "segments"
    }


def status_in(
    folder: PartitionFolder, partition: PartitionPlan, journal: Journal | None = None
) -> dict[str, ChangeState]:
    """Return the state of each change of a partition or of the root, by change id.

    ``freed``: the change is committed and verified, and its originals were freed. ``committing`` and ``undoing``: apply
    or undo was interrupted, and the same command resumes. ``purged``: the new file is in its place and no backup
    exists; the file is identified by its digest if the plan has a digest, else by size and time. ``unknown``: the files
    have neither their planned old nor their planned new states.

    Args:
        journal: journal of the folder, just read; None to read the journal here.

    Raises:
        RefusedError: the journal is damaged, or belongs to another plan.
        OSError: a file could not be read.
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
            states[change.change_id] = ChangeState.PLANNED if state == "rolled back" else ChangeState(state)
    return states


def _without_journal(
    folder: PartitionFolder, journal: Journal, planned: Mapping[str, FileFingerprint], change: Change
) -> ChangeState:
    if is_planned(folder, planned, change):
        return ChangeState.PLANNED
    purged = is_made(folder, planned, change) and is_all_recorded(folder, journal)
    return ChangeState.PURGED if purged else ChangeState.UNKNOWN


# -- work folders of other plans for the same files, one of which may have to be completed first


class Beside(NamedTuple):
    """Work folder of another plan for the same files.

    Attributes:
        holder: partition folder that contains the work folder.
        private: the work folder itself.
    """

    holder: Partition
    private: PrivateFolder


def half_done(partition: Partition) -> str:
    """Return why a swap here may belong to an interrupted change of krepair; empty if the swap is a broker's."""
    return why_half_done(
        Beside(partition, private) for private in partition.private if not private.name.endswith(ROOT_SUFFIX)
    )


def plans_beside(view: LogDir, partition: Partition | None, but: str) -> list[Beside]:
    """Return other plans' work folders for the files of a partition or of the root.

    Args:
        view: the log directory.
        partition: the listed partition; None for the root.
        but: id of the plan whose own work folders are ignored.
    """
    holders = view.partitions if partition is None else (partition,)
    return [
        Beside(holder, private)
        for holder in holders
        for private in holder.private
        if private.plan_id != but and private.name.endswith(ROOT_SUFFIX) == (partition is None)
    ]


def why_half_done(others: Iterable[Beside]) -> str:
    """Return why another plan must be resumed or undone before a change begins; empty if no plan must."""
    for beside in others:
        try:
            changes = _journal(*beside).unfinished()
        except (RefusedError, OSError) as error:
            return f"{beside.private.name}: its journal could not be read: {error}"
        if changes:
            text = f"{changes[0]} of plan {beside.private.plan_id} is half done here"
            return f"{text}: krepair apply or undo that plan first"
    return ""


def why_not_ended(others: Sequence[Beside], names: Collection[str]) -> str:
    """Return why another plan must be resumed or undone before a new plan changes these files; empty if no plan must.

    A plan with staged files will replace the files with the same names. A plan without staged files may remove any
    file.

    Args:
        others: work folders of other plans.
        names: names of the files that the new plan changes.
    """
    half = why_half_done(others)
    return half or next((why for beside in others if (why := _why_begun(beside, names))), "")


def _why_begun(beside: Beside, names: Collection[str]) -> str:
    journal, staged = _journal(*beside), _staged(beside.private)
    begun = not staged.isdisjoint(names) or (not staged and not journal.states)
    if journal.purging or not begun:
        return ""
    return f"plan {beside.private.plan_id} has begun here and has not ended: krepair apply or undo that plan first"


def _journal(holder: Partition, private: PrivateFolder) -> Journal:
    is_root = private.name.endswith(ROOT_SUFFIX)
    return Journal(RealDisk(), private.path, private.plan_id, ROOT if is_root else holder.folder)


def _staged(private: PrivateFolder) -> frozenset[str]:
    """Return the names of the staged files in a work folder."""
    try:
        with opened_folder(f"{private.path}/stage") as descriptor:
            return frozenset(os.listdir(descriptor))
    except OSError:
        return frozenset()
