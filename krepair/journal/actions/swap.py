"""Finishes a swap that a broker began, and takes it back to exactly the files that were pending.

A ``.log.swap`` among the segments that it replaces is the state in which a swap of our own has just passed its commit,
so the steps from there on are those of the proven protocol, and so is their order: ``P1`` up to 2.8 and everywhere
under the fence, ``P2`` from 3.0. Every instant is one from which any broker finishes to the same records. Undo runs
backwards, and stops where the swap is pending again.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from krepair.errors import StalePlanError
from krepair.formats.filenames import (
    INDEX_SUFFIXES,
    SWAP,
    FileKind,
    NameState,
    offset_name,
    parse_file_name,
    segment_name,
)
from krepair.journal.actions.action import Target
from krepair.journal.actions.rewrite import OfGroup, check_group_undo
from krepair.journal.folder import PartitionFolder, Whereabouts
from krepair.journal.freshness import check_staged_files, original, told_apart, unchanged
from krepair.journal.record import FileState, Intent, Order
from krepair.journal.stepping import run
from krepair.journal.steps import (
    Keep,
    Names,
    PutOver,
    Step,
    SyncDir,
    Unlink,
    forget_steps,
    moved,
    put_back,
    staged_extensions,
    take_out_originals,
)
from krepair.plan.model import CompleteSwap, FileFingerprint


class CompleteSwaps(OfGroup[CompleteSwap]):
    """Implements ``JournalAction`` for swaps that a broker began."""

    kind = CompleteSwap

    def begin(self, target: Target, change: CompleteSwap) -> Intent:
        """What a completion begins with, every file looked at once more.

        Raises:
            StalePlanError: a file changed, came or went since the plan was made; the message names it.
            RefusedError: a staged index is missing.
            VerifyFailedError: a staged index is not the plan's.
        """
        folder, planned = target.folder, target.planned
        log = segment_name(change.base_offset, ".log")
        pending = unchanged(folder, planned, log + SWAP)
        if pending is None:
            raise StalePlanError(f"{folder.at(log + SWAP)}: is gone since the plan was made")
        _check_others(folder, planned, change)
        bad = {offset_name(base) for base in change.copied}
        copied = [name for name in change.goes if name.partition(".")[0] in bad and not name.endswith(SWAP)]
        olds = [state for name in change.goes if (state := original(folder, planned, name)) is not None]
        originals, new = told_apart(folder, olds, replace(pending, name=log), log + SWAP)
        return Intent(
            change_id=change.change_id,
            kind="complete swap",
            originals=originals,
            made=(new, *check_staged_files(folder, change.makes)),
            order=target.order,
            copied=tuple(copied),
        )

    def is_committed(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Whether the swap has become the segment; a broker that was started in between does the same."""
        return folder.whereabouts(intent) is Whereabouts.FINAL

    def can_go_on(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Whether an interrupted completion has all its staged indexes.

        Raises:
            StalePlanError: the ``.log.swap`` is gone, and did not become the segment.
        """
        where = folder.whereabouts(intent)
        if where is Whereabouts.FINAL:
            return True
        if where is not Whereabouts.SWAP:
            log = segment_name(intent.base_offset, ".log") + SWAP
            raise StalePlanError(f"{folder.at(log)}: is gone, and so is the segment that it was to become")
        return all(
            any(
                folder.holds(path, made)
                for path in (folder.names.stage(made.name), made.name, made.name + SWAP)
            )
            for made in intent.made[1:]
        )

    def go_on(self, folder: PartitionFolder, intent: Intent) -> None:
        """Carries a completion out.

        Raises:
            StalePlanError: a file is neither an original nor one of ours.
            OSError: a call failed; run it again.
        """
        names = folder.names
        if not self.is_committed(folder, intent):
            here = [original for original in intent.originals if not _is_kept(folder, intent, original)]
            keeps: list[Step] = [
                Keep(original.name, names.keep(original.name), names.out(original.name)) for original in here
            ]
            run(folder, [*keeps, SyncDir(names.keep()), SyncDir(names.private)], intent)
        run(folder, completion_steps(intent, names), intent)
        folder.remove_litter(intent)
        folder.check_finished(intent)

    def forget(self, folder: PartitionFolder, intent: Intent) -> None:
        """Makes the swap pending again."""
        restore(folder, intent, intent.order)
        run(folder, forget_steps(intent, folder.names), intent)

    def check_undo(self, folder: PartitionFolder, intent: Intent, state: str) -> None:
        """As of a group that was rewritten; nothing if the swap is pending already."""
        if not is_restored(folder, intent):
            check_group_undo(folder, intent, state)

    def undo(self, folder: PartitionFolder, intent: Intent, order: Order) -> None:
        """Makes the swap pending again, with every file as it was."""
        if not is_restored(folder, intent):
            restore(folder, intent, order)
        run(folder, forget_steps(intent, folder.names), intent)


def _check_others(
    folder: PartitionFolder, planned: Mapping[str, FileFingerprint], change: CompleteSwap
) -> None:
    """Checks that no segment and no leftover is there that the plan does not know."""
    for text in folder.file_names():
        name = parse_file_name(text)
        if name.state is NameState.CLEANED and (name.base_offset or 0) <= change.base_offset:
            raise StalePlanError(f"{folder.at(text)}: makes the swap void, and the plan does not say so")
        pending = name.state is NameState.SWAP
        live = name.kind is FileKind.LOG and name.state is NameState.LIVE and name.base_offset is not None
        reached = live and change.base_offset <= (name.base_offset or 0) <= change.last_offset
        if (pending or reached) and text not in planned:
            raise StalePlanError(f"{folder.at(text)}: was not there when the plan was made")


def _is_kept(folder: PartitionFolder, group: Intent, original: FileState) -> bool:
    """Whether an original is gone from its place because an interrupted run took it out."""
    kept = folder.state(folder.names.keep(original.name))
    return kept is not None and kept.size == original.size and not folder.is_original(group, original.name)


def restore(folder: PartitionFolder, intent: Intent, order: Order) -> None:
    """Makes the swap pending again, with every file as it was.

    Raises:
        StalePlanError: a file is neither an original nor one of ours.
        OSError: a call failed; run it again.
    """
    run(folder, restoring_steps(intent, order, folder.names), intent)
    folder.remove_set_aside(intent)
    originals = [original.name for original in intent.originals]
    missing = [name for name in originals if not folder.is_original(intent, name)]
    if missing:
        raise StalePlanError(f"{folder.at(missing[0])}: is not the original that was kept")


def is_restored(folder: PartitionFolder, intent: Intent) -> bool:
    """Whether the swap is pending, and every original is in its place."""
    pending = folder.whereabouts(intent) is Whereabouts.SWAP
    return pending and all(folder.is_original(intent, original.name) for original in intent.originals)


def _pending_indexes(group: Intent) -> list[str]:
    return [state.name for state in group.originals if state.name.endswith(SWAP)]


def completion_steps(group: Intent, names: Names) -> list[Step]:
    """From a pending swap to the segment alone, in the group's order."""
    log = segment_name(group.base_offset, ".log")
    indexes = [segment_name(group.base_offset, e) for e in staged_extensions(group) if e != ".log"]
    stale: list[Step] = [Unlink(name) for name in _pending_indexes(group)]
    if group.order == "P1":
        steps: list[Step] = [*stale, SyncDir(""), *take_out_originals(group)]
        for name in indexes:
            steps += moved(names.stage(name), name)
        return steps + moved(log + SWAP, log)
    steps = []
    for name in indexes:
        steps += moved(names.stage(name), name + SWAP)
    steps += [*stale, SyncDir(""), *take_out_originals(group)]
    for name in (log, *indexes):
        steps += moved(name + SWAP, name)
    return steps


def restoring_steps(group: Intent, order: Order, names: Names) -> list[Step]:
    """From the segment back to the pending swap."""
    log = segment_name(group.base_offset, ".log")
    indexes = [segment_name(group.base_offset, extension) for extension in INDEX_SUFFIXES]
    pending = _pending_indexes(group)
    over: list[Step] = [PutOver(names.keep(name), name, names.out(f"{name}.back")) for name in pending]
    if order == "P1":
        steps = moved(log, log + SWAP)
        for name in indexes:
            steps += moved(name, names.out(name))
        return [*steps, *put_back(group, names), *over, SyncDir("")]
    steps = []
    for name in (*reversed(indexes), log):
        steps += moved(name, name + SWAP)
    steps += put_back(group, names)
    steps += [*over, SyncDir("")]
    for name in indexes:
        if name + SWAP not in pending:
            steps += moved(name + SWAP, names.out(name))
    return steps
