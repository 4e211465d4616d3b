"""What became of each change of a plan, read from the journal and the disk; writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from krepair.durable.disk import Disk
from krepair.journal.action import StagedGroup
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import ApplyIntent, Journal
from krepair.journal.steps import SWAP, segment_file
from krepair.logdir.fingerprint import digest_file
from krepair.plan.model import (
    Change,
    CompleteSwap,
    FileFingerprint,
    MendLog,
    PartitionPlan,
    ReplaceFile,
    RewriteSegments,
    SetAside,
)


class ChangeState(StrEnum):
    """Where a change is."""

    PLANNED = "planned"
    COMMITTING = "committing"
    COMMITTED = "committed"
    UNDOING = "undoing"
    UNDONE = "undone"
    PURGED = "purged"
    UNKNOWN = "unknown"


_STATES = {
    "committing": ChangeState.COMMITTING,
    "committed": ChangeState.COMMITTED,
    "undoing": ChangeState.UNDOING,
    "undone": ChangeState.UNDONE,
    "rolled back": ChangeState.PLANNED,
}


def read_status(disk: Disk, log_dir: str, plan_id: str, partition: PartitionPlan) -> dict[str, ChangeState]:
    """State of each change of a partition, by its id.

    ``committing`` and ``undoing`` are half done: the same command continues. ``purged`` is told by the disk
    alone: the new file is in its place and nothing is kept; by its bytes, where the plan has a digest of them, else by
    size and time. ``unknown``: neither what the plan was made of, nor what it makes.

    Raises:
        RefusedError: the journal is damaged or of another plan.
        OSError: a file could not be looked at.
    """
    return status_in(PartitionFolder(disk, log_dir, partition.folder, plan_id), partition)


def staged_groups(folder: PartitionFolder) -> dict[str, StagedGroup]:
    """Change id -> how the new files of a rewritten group are known, as it was journalled.

    Raises:
        RefusedError: the journal is damaged or of another plan.
        OSError: it could not be read.
    """
    journal = Journal(folder.disk, folder.private, folder.plan_id, folder.folder)
    groups = [intent for intent in journal.intents.values() if isinstance(intent, ApplyIntent)]
    return {group.change_id: StagedGroup(group.parts, group.made) for group in groups}


def status_in(folder: PartitionFolder, partition: PartitionPlan) -> dict[str, ChangeState]:
    """As ``read_status``, of a folder that is at hand (a partition's, or the root)."""
    journal = Journal(folder.disk, folder.private, folder.plan_id, folder.folder)
    states: dict[str, ChangeState] = {}
    planned = {fingerprint.name: fingerprint for fingerprint in partition.files}
    for change in partition.changes:
        state = journal.states.get(change.change_id)
        if state is None:
            states[change.change_id] = _without_journal(folder, planned, change)
        elif journal.purging is not None and state == "committed":
            states[change.change_id] = ChangeState.PURGED
        else:
            states[change.change_id] = _STATES[state]
    return states


def _without_journal(
    folder: PartitionFolder, planned: Mapping[str, FileFingerprint], change: Change
) -> ChangeState:
    names = _names(change)
    found = {name: folder.state(name) for name in names}
    if all(
        (state is None and name not in planned)
        or (
            state is not None
            and name in planned
            and (state.size, state.mtime_ns) == (planned[name].size, planned[name].mtime_ns)
            # A file made anew may have the old one's size, and has its time.
            and (isinstance(change, RewriteSegments | CompleteSwap) or state.inode == planned[name].inode)
        )
        for name, state in found.items()
    ):
        return ChangeState.PLANNED
    first = found[names[0]]
    if isinstance(change, SetAside):
        made = all(state is None for state in found.values())
    elif isinstance(change, MendLog):
        made = (
            first is not None
            and (first.size, first.mtime_ns) == (change.size_after, change.mtime_ns)
            and digest_file(folder.at(change.name)) == change.digest_after
        )
    elif isinstance(change, ReplaceFile):
        made = (-1 if first is None else first.size) == change.size_after and (
            first is None or digest_file(folder.at(change.name)) == change.digest_after
        )
    elif isinstance(change, CompleteSwap):
        # The segment has the swap's size and time; its inode is of no use here: a restored copy has another.
        pending = planned.get(segment_file(change.base_offset, ".log") + SWAP)
        log = folder.state(segment_file(change.base_offset, ".log"))
        gone = all(
            found[name] is None for name in change.goes if not name.startswith(f"{change.base_offset:020d}")
        )
        made = (
            gone
            and first is None
            and pending is not None
            and log is not None
            and (log.size, log.mtime_ns) == (pending.size, pending.mtime_ns)
        )
    else:
        alone = all(state is None for state in list(found.values())[1:])
        made = (
            first is not None
            and alone
            and (first.size, first.mtime_ns) == (change.log_bytes, change.mtime_ns)
        )
    return ChangeState.PURGED if made else ChangeState.UNKNOWN


def _names(change: Change) -> list[str]:
    if isinstance(change, RewriteSegments):
        return [segment_file(source.base_offset, ".log") for source in change.sources]
    if isinstance(change, SetAside):
        return list(change.names)
    if isinstance(change, CompleteSwap):
        return [segment_file(change.base_offset, ".log") + SWAP, *change.goes]
    return [change.name]
