"""Executors that swap in new segments, complete brokers' swaps, and undo both, in the order of the commit protocol."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from krepair.commit.executor import ExecutionResult, Executor, KeptFile
from krepair.commit.folder import PartitionFolder, Whereabouts
from krepair.commit.journal import FileState, Intent, Order
from krepair.commit.stepping import run
from krepair.commit.steps import (
    CLEANED,
    Keep,
    Names,
    PutOver,
    Step,
    SyncDir,
    back_steps,
    commit_steps,
    finish_steps,
    forget_steps,
    keep_steps,
    moved,
    pending_indexes,
    roll_back_steps,
    undo_steps,
)
from krepair.errors import StalePlanError
from krepair.formats.filenames import (
    INDEX_SUFFIXES,
    SWAP,
    FileKind,
    NameState,
    parse_file_name,
    segment_name,
)
from krepair.plan.changes import CompleteSwap, RewriteSegments
from krepair.plan.model import FileFingerprint


class _OfGroup(Executor):
    """Common part of all swaps of segments, whether krepair or a broker began them."""

    fenced = True

    @abstractmethod
    def _steps_to_commit(self, folder: PartitionFolder, intent: Intent) -> list[Step]:
        """Return the steps that keep the originals and commit the swap."""

    def go_on(self, folder: PartitionFolder, intents: Sequence[Intent]) -> ExecutionResult:
        """Carry the swap out, or resume it.

        Raises:
            StalePlanError: a file is neither an original nor one of krepair's own.
            OSError: a call failed; run it again.
        """
        [intent] = intents
        if not self.is_committed(folder, intent):
            run(folder, self._steps_to_commit(folder, intent), intent)
        run(folder, finish_steps(intent, folder.names, folder.order or intent.order), intent)
        folder.remove_litter(intent)
        folder.check_finished(intent)
        return ExecutionResult(1)

    def check_undo(self, folder: PartitionFolder, intent: Intent, state: str) -> None:
        """Check that the new segment is unchanged, the originals are kept, and no broker would delete the swap."""
        check_group_undo(folder, intent, state)

    def is_back(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Return whether an undo has begun: a source's ``.log`` is in its place, or the new segment lost its name."""
        return is_group_back(folder, intent)

    def kept(self, folder: PartitionFolder, intent: Intent) -> list[KeptFile]:
        """Return the backups of the sources' files and of the removed snapshots."""
        return kept_of_group(folder, intent)


class SwapGroups(_OfGroup):
    """Executor for rewritten groups of segments."""

    def is_committed(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Return whether an apply of the group has committed, by the order of renames in the group's intent."""
        return folder.is_committed(intent)

    def can_go_on(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Return whether an interrupted swap is committed, or has its staged files and no broker would delete it.

        Raises:
            StalePlanError: an original changed in between.
        """
        if folder.is_committed(intent):
            return True
        _check_originals(folder, intent)
        return folder.staged_are_there(intent) and not _is_void(folder, intent)

    def _steps_to_commit(self, folder: PartitionFolder, intent: Intent) -> list[Step]:
        return [*keep_steps(intent, folder.names), *commit_steps(intent, folder.names)]

    def check_undo(self, folder: PartitionFolder, intent: Intent, state: str) -> None:
        """Check as the base class does, unless all originals are restored already."""
        if not _is_undone(folder, intent):
            super().check_undo(folder, intent, state)

    def go_back(
        self, folder: PartitionFolder, intents: Sequence[Intent], *, committed: bool
    ) -> ExecutionResult:
        """Restore the originals from any state; before the commit, the new files go back to ``stage/``.

        Raises:
            StalePlanError: a file is neither an original nor the new one; an original is gone; or a swap of another
                plan, or of a broker, is pending.
            OSError: a call failed.
        """
        [intent], names = intents, folder.names
        if not committed:
            _check_swap_is_of_group(folder, intent)
            lost = folder.missing_logs(intent)
            # While the new log is in stage/, krepair has not removed the original: a broker has deleted it.
            if lost and folder.whereabouts(intent) is not Whereabouts.STAGED:
                raise StalePlanError(
                    f"{folder.at(lost[0])}: is gone, and the new segment did not take its place"
                )
            run(folder, roll_back_steps(intent, names), intent)
        elif not _is_undone(folder, intent):
            run(folder, undo_steps(intent, names, folder.order or intent.order), intent)
        folder.remove_litter(intent)
        if committed:
            missing = folder.missing_logs(intent)
            if missing:
                raise StalePlanError(f"{folder.at(missing[0])}: is not the original that was kept")
            run(folder, forget_steps(intent, names), intent)
        return ExecutionResult(1)


def _check_originals(folder: PartitionFolder, intent: Intent) -> None:
    for original in intent.originals:
        if not folder.holds(original.name, original):
            raise StalePlanError(f"{folder.at(original.name)}: changed while the apply was interrupted")


def _is_void(folder: PartitionFolder, intent: Intent) -> bool:
    """Return whether a broker's cleaner left a ``.cleaned``: every broker then deletes a swap at or above it.

    With the order P2 the new files of this group are themselves ``.cleaned`` for a while. Files of other groups never
    are, since each group is finished before the next one begins.
    """
    return bool(_cleaned_of_a_broker(folder, intent, intent.base_offset - (intent.order == "P2")))


def _cleaned_of_a_broker(folder: PartitionFolder, group: Intent, highest: int) -> str:
    """Return another program's ``.cleaned`` that makes every broker delete a swap of a group; empty if there is none.

    Args:
        group: intent of the group.
        highest: highest base offset at which no ``.cleaned`` is the plan's; above, the log's content decides.
    """
    log = segment_name(group.base_offset, ".log") + CLEANED
    if folder.is_of_another_program(log, group):
        return log
    names = map(parse_file_name, folder.file_names())
    cleaned = (name for name in names if name.state is NameState.CLEANED)
    return next((name.name for name in cleaned if (name.base_offset or 0) <= highest), "")


def _check_no_cleaner(folder: PartitionFolder, group: Intent) -> None:
    """Check, before an undo begins, that no broker's cleaner left a ``.cleaned``: a start would delete the undo's swap.

    Raises:
        StalePlanError: there is such a file.
    """
    cleaned = _cleaned_of_a_broker(folder, group, group.base_offset - 1)
    if cleaned:
        raise StalePlanError(
            f"{folder.at(cleaned)}: a broker's cleaner was stopped here, and a broker deletes every swap at or above "
            "such a file; nothing was changed; start the broker and stop it: that removes the file"
        )


def check_nothing_between(
    folder: PartitionFolder,
    change: RewriteSegments | CompleteSwap,
    planned: Mapping[str, FileFingerprint],
) -> None:
    """Check, before an undo begins, that no new segment or pending swap has offsets of the originals.

    A broker that truncated the log may have begun a new segment there. If a swap is pending, the undo would add a
    second one, and brokers since 3.0 delete all segments between two swaps.

    Raises:
        StalePlanError: there is such a file; the message names it.
    """
    for file in map(parse_file_name, folder.file_names()):
        if file.name in planned or file.base_offset is None:
            continue
        if file.state is NameState.SWAP and file.base_offset != change.base_offset:
            raise folder.swap_of_others(file.name)
        live = file.kind is FileKind.LOG and file.state is NameState.LIVE
        if live and change.base_offset < file.base_offset <= change.last_offset:
            raise StalePlanError(
                f"{folder.at(file.name)}: appeared since the plan was made, and begins among the offsets of the kept "
                "originals: a broker has truncated the log and written to it; nothing was changed"
            )


def is_group_back(folder: PartitionFolder, group: Intent) -> bool:
    """Return whether an original snapshot or ``.log`` is in its place, or a new file lost its final name.

    Snapshots are restored first. While the new ``.log`` has its final name, it is not compared with the original of
    that name: an original that is kept as a copy is identified only by size and time.
    """
    where = folder.whereabouts(group)
    if where in {Whereabouts.SWAP, Whereabouts.CLEANED, Whereabouts.OUT}:
        return True
    # The log is left out: a cleaner with nothing to clean may have left an identical one, see ``whereabouts``.
    leaving = (
        (path, made)
        for made in group.made
        if made != group.log
        for path in (made.name + SWAP, made.name + CLEANED, folder.names.out(made.name))
    )
    if any(folder.holds(path, made) for path, made in leaving):
        return True
    logs = [state.name for state in group.originals if state.name.endswith(".log")]
    new = segment_name(group.base_offset, ".log") if where is Whereabouts.FINAL else ""
    return any(folder.is_original(group, name) for name in (*group.snapshots, *logs) if name != new)


def _is_undone(folder: PartitionFolder, group: Intent) -> bool:
    gone = folder.whereabouts(group) in {Whereabouts.OUT, Whereabouts.GONE}
    return gone and not folder.missing_logs(group)


def check_group_undo(folder: PartitionFolder, group: Intent, state: str) -> None:
    """Check before the first step of an undo that the new segment is unchanged and all originals are kept.

    An undo that was begun is resumed even if a broker's cleaner left a ``.cleaned``: no other state would be better.

    Args:
        state: state of the change, see ``Executor.check_undo``.

    Raises:
        StalePlanError: the new segment was written since, an original is not kept, or a broker would delete the swap.
    """
    where = folder.whereabouts(group)
    if where is Whereabouts.FINAL and state != "undoing":
        _check_no_cleaner(folder, group)
    folder.check_logs(group)
    # An undo that the journal does not mention may be resumed, too: the steps are the same from any state.
    if where in {Whereabouts.STAGED, Whereabouts.OUT, Whereabouts.GONE}:
        log = segment_name(group.base_offset, ".log")
        raise folder.written_since(log)
    for kept in kept_of_group(folder, group):
        original, current = kept.original, folder.state(kept.path)
        # Opening an index may change its time, never its size; a log with the original's size and time was not cut.
        exact = original.name.endswith(".log")
        if (
            current is None
            or current.size != original.size
            or (exact and current.mtime_ns != original.mtime_ns)
        ):
            raise StalePlanError(
                f"{folder.at(kept.path)}: is not the original of {original.size} bytes that was kept"
            )


def kept_of_group(folder: PartitionFolder, group: Intent) -> list[KeptFile]:
    """Return the backups of a group's originals that are not in their places."""
    return [
        KeptFile(folder.names.keep(original.name), original)
        for original in group.originals
        if not folder.is_original(group, original.name)
    ]


def _check_swap_is_of_group(folder: PartitionFolder, intent: Intent) -> None:
    """Check that a ``.log.swap`` is the group's own: another one may hold the only copy of the group's records.

    Such a swap remains if another plan, or a broker's cleaner, was stopped after its commit. The originals are then
    gone from their places, and their backups here may be the last copies.

    Raises:
        StalePlanError: the swap belongs to another program or plan.
    """
    swap = segment_name(intent.base_offset, ".log") + SWAP
    try:
        folder.check_log(swap, intent)
    except StalePlanError as error:
        raise folder.swap_of_others(swap) from error


# -- swaps that a broker began


class FinishSwaps(_OfGroup):
    """Executor for swaps that a broker began; undo restores exactly the files that were pending.

    A broker's ``.log.swap`` beside the segments that it replaces is like a swap of krepair that has just passed its
    commit. So the next steps and their order are those of the commit protocol: ``P1`` up to 2.8 and everywhere under
    the fence, ``P2`` from 3.0. A broker that is started at any instant ends with the same records. Undo does the same
    steps backwards, and ends when the swap is pending again.
    """

    def is_committed(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Return whether the swap became the segment; a broker that started in between does the same."""
        return folder.whereabouts(intent) is Whereabouts.FINAL

    def can_go_on(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Return whether an interrupted completion has all its staged indexes.

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

    def _steps_to_commit(self, folder: PartitionFolder, intent: Intent) -> list[Step]:
        names = folder.names
        in_place = [original for original in intent.originals if not _is_kept(folder, intent, original)]
        keeps = [
            Keep(original.name, names.keep(original.name), names.out(original.name)) for original in in_place
        ]
        return [*keeps, SyncDir(names.keep()), SyncDir(names.private)]

    def go_back(
        self, folder: PartitionFolder, intents: Sequence[Intent], *, committed: bool
    ) -> ExecutionResult:
        """Make the swap pending again, with every file as it was; the steps are the same from any state.

        Raises:
            StalePlanError: a file is neither an original nor one of krepair's own.
            OSError: a call failed; run it again.
        """
        [intent] = intents
        run(folder, restoring_steps(intent, folder.names, folder.order or intent.order), intent)
        folder.remove_set_aside(intent)
        originals = [original.name for original in intent.originals]
        missing = [name for name in originals if not folder.is_original(intent, name)]
        if missing:
            raise StalePlanError(f"{folder.at(missing[0])}: is not the original that was kept")
        run(folder, forget_steps(intent, folder.names), intent)
        return ExecutionResult(1)


def _is_kept(folder: PartitionFolder, group: Intent, original: FileState) -> bool:
    """Return whether an interrupted run has already removed an original from its place and kept it."""
    kept = folder.state(folder.names.keep(original.name))
    return kept is not None and kept.size == original.size and not folder.is_original(group, original.name)


def restoring_steps(group: Intent, names: Names, order: Order) -> list[Step]:
    """Return the steps that turn the new segment into the pending swap again."""
    pending = pending_indexes(group)
    indexes = [segment_name(group.base_offset, extension) for extension in INDEX_SUFFIXES]
    over: list[Step] = [PutOver(names.keep(name), name, names.out(f"{name}.back")) for name in pending]
    steps = [*back_steps(group, names, order), *over, SyncDir("")]
    for name in indexes if order == "P2" else ():
        if name + SWAP not in pending:
            steps += moved(name + SWAP, names.out(name))
    return steps
