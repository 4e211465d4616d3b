"""A way out where a journal is damaged: what every change came to is told by the files, and a new journal says so.

Nothing that a broker reads is touched. The damaged journal stays beside the new one. What is half done counts as an
undo that was begun: its originals are in their places or kept, and every state of an undo is one of apply's, so undo
can end it from wherever it is. What is at rest counts as done.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from krepair.errors import KrepairError, PersonDecidesError, RefusedError, StalePlanError
from krepair.journal.actions.action import Target
from krepair.journal.actions.table import action_for, action_of
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import (
    JOURNAL_NAME,
    MOST_BYTES,
    Done,
    Freed,
    Header,
    Here,
    Intent,
    PurgeIntent,
    Record,
    Step,
    Together,
    UndoIntent,
    new_journal,
    whole_records,
)
from krepair.plan.keep import is_freed_by_apply
from krepair.plan.model import Change, Commit, PartitionPlan

Told = Literal["original", "new", "half", "freed", "past"]
DAMAGED_NAME: Final = "journal.damaged"
LAST_COPY: Final = (
    "nothing is in the place of these segments: unless retention or the leader has deleted them,"
)
"""Of what is past: before it is purged, a person has to look."""
_MOST_DAMAGED: Final = 100


class ToldChange(NamedTuple):
    """What the files tell of one change.

    Attributes:
        change_id: of the change.
        told: ``original``: the originals are in their places. ``new``: what was made is, and the originals are kept.
            ``half``: neither, and every original is in its place or kept. ``freed``: what was made is in its place, and
            apply has freed originals. ``past``: what was made, or what was written since, is in its place, and cannot
            be taken back.
        why: of ``past``: what is in the way; else empty.
        records: for the new journal.
    """

    change_id: str
    told: Told
    why: str
    records: tuple[Step, ...]


def is_whole(folder: PartitionFolder, told: Sequence[ToldChange]) -> bool:
    """Whether a journal can be gone by: it can be read, and knows of every change that the files tell of.

    A change that it has as half done, and of which a broker has written the files since, can neither be finished nor
    taken back: then it is written anew. A purge that was begun goes on by itself, whatever the files tell.

    Raises:
        OSError: something else than the journal could not be looked at.
    """
    try:
        journal = folder.journal()
    except RefusedError:
        return False
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return False
    known, half_done = set(journal.at_work()), set(journal.unfinished())
    if journal.purging is not None:
        return True
    if any(_is_over(folder, one) for one in told if one.change_id in half_done):
        return False
    return all(
        change.told == "original"
        or (change.change_id in known and (change.told == "freed") <= (change.change_id in journal.freed))
        for change in told
    )


def is_over(target: Target, change: Change, intent: Intent) -> bool:
    """Whether a change that is half done can neither be finished nor taken back: a broker has written its files since.

    Where its files cannot be looked at this is not known: then it is said of none.
    """
    with contextlib.suppress(KrepairError, OSError):
        return _is_over(target.folder, _tell(target, change, intent, None))
    return False


def _is_over(folder: PartitionFolder, told: ToldChange) -> bool:
    """Where originals are back, at least in part, a purge would take what an undo still needs."""
    intents = [one for one in told.records if isinstance(one, Intent)]
    return told.told == "past" and not any(action_of(one).is_back(folder, one) for one in intents)


def tell(folder: PartitionFolder, partition: PartitionPlan, commit: Commit) -> list[ToldChange]:
    """What the files tell of every change of a partition, in the plan's order; writes nothing.

    Args:
        folder: the partition folder.
        partition: its part of the plan.
        commit: order of the renames.

    Raises:
        PersonDecidesError: the files of a change can be neither what was there nor what was made, or an original is
            gone in the middle of a change; the message names the file.
        OSError: a file could not be looked at.
    """
    target = Target(folder, partition, commit.order)
    known, freed = _still_known(folder)
    return [
        _tell(target, change, known.get(change.change_id), freed.get(change.change_id))
        for change in partition.changes
    ]


def _tell(target: Target, change: Change, known: Intent | None, freed: Freed | None) -> ToldChange:
    folder, action, name = target.folder, action_for(change), change.change_id
    try:
        intent: Intent | None = action.from_disk(target, change, known)
        if intent is None:
            return ToldChange(name, "original", "", (Done(change_id=name, state="rolled back"),))
        lost = [one.path for one in action.kept(folder, intent) if folder.state(one.path) is None]
        done = Done(change_id=name, state="committed")
        if action.is_done(folder, intent):
            if lost and is_freed_by_apply(change):
                record = freed or Freed(change_id=change.change_id)
                return ToldChange(name, "freed", "", (intent, done, record))
            why = f"{folder.at(lost[0])}: is gone" if lost else _obstacle(folder, intent)
            if why and not lost and action.is_out_of_place(folder, intent):
                why += f"; {LAST_COPY} {folder.at(folder.names.keep())} holds the last copy"
            return ToldChange(name, "past" if why else "new", why, (intent, done))
    except (StalePlanError, RefusedError) as error:
        raise PersonDecidesError(f"{name}: {error.message}; the journal stays as it is") from error
    if lost:
        raise PersonDecidesError(
            f"{name}: it is half done, and {folder.at(lost[0])} is neither kept nor in its place; the journal stays as "
            "it is: fetch this partition from another replica"
        )
    undo = UndoIntent(change_id=name, order=target.order)
    return ToldChange(name, "half", "", (intent, undo))


def _obstacle(folder: PartitionFolder, intent: Intent) -> str:
    try:
        action_of(intent).check_undo(folder, intent, "committed")
    except KrepairError as error:
        return error.message
    return ""


def _still_known(folder: PartitionFolder) -> tuple[Mapping[str, Intent], Mapping[str, Freed]]:
    """What a damaged journal still says: by the id of the change, the last intent and the last freeing."""
    try:
        data = folder.tree.read(f"{folder.private}/{JOURNAL_NAME}", MOST_BYTES) or b""
    except OSError:
        return {}, {}
    intents: dict[str, Intent] = {}
    freed: dict[str, Freed] = {}

    def take(record: Record) -> None:
        match record:
            case Together():
                for part in record.records:
                    take(part)
            case Freed():
                freed[record.change_id] = record
            case Header() | UndoIntent() | Done() | PurgeIntent() | Here():
                pass
            case _:
                intents[record.change_id] = record
                freed.pop(record.change_id, None)

    for each in whole_records(data, folder.plan_id, folder.folder):
        take(each)
    return intents, freed


def here_in_damaged(folder: PartitionFolder) -> Here | None:
    """The directory of which a damaged journal still tells, or None."""
    found = None
    with contextlib.suppress(OSError):
        data = folder.tree.read(f"{folder.private}/{JOURNAL_NAME}", MOST_BYTES) or b""
        for record in whole_records(data, folder.plan_id, folder.folder):
            steps = record.records if isinstance(record, Together) else (record,)
            found = next((step for step in steps if isinstance(step, Here)), found)
    return found


def write_anew(folder: PartitionFolder, told: list[ToldChange], here: Here | None = None) -> str:
    """Sets the damaged journal aside and puts one in its place that says what was told; in one step, durably.

    Args:
        folder: the partition folder.
        told: of every change.
        here: where the inodes hold, in a directory that was moved.

    Returns:
        Path of the damaged one; empty if there was none.

    Raises:
        RefusedError: too many were set aside.
        OSError: a call failed; the journal is the old one or the new one.
    """
    path, disk = f"{folder.private}/{JOURNAL_NAME}", folder.disk
    aside = ""
    if folder.tree.is_there(path):
        names = (f"{folder.private}/{DAMAGED_NAME}-{number}" for number in range(1, _MOST_DAMAGED))
        aside = next((name for name in names if not folder.tree.is_there(name)), "")
        if not aside:
            raise RefusedError(f"{folder.private}: {_MOST_DAMAGED} damaged journals were set aside here")
        disk.link(path, aside)
        disk.sync_dir(folder.private)
    records: list[Record] = [
        *([] if here is None else [here]),
        *(record for change in told for record in change.records),
    ]
    new_journal(disk, folder.private, folder.plan_id, folder.folder, folder.owner(), records)
    return aside
