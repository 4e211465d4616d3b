"""Executors that swap in new segments, complete brokers' swaps, and undo both in the order of the commit protocol."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence

from krepair.commit.executor import ExecutionResult, Executor, KeptFile
from krepair.commit.folder import PartitionFolder
from krepair.commit.group import GroupFiles, Whereabouts
from krepair.commit.journal import FileState, Intent
from krepair.commit.stepping import run
from krepair.commit.steps import (
    CLEANED,
    Step,
    backwards,
    commit_steps,
    extensions_to_undo,
    forget_steps,
    keep_steps,
    replace_steps,
    staged_extensions,
    synced,
    waiting_steps,
)
from krepair.errors import StalePlanError
from krepair.formats.filenames import LOG, SWAP, FileKind, NameState, parse_file_name
from krepair.plan.changes import CompleteSwap, RewriteSegments
from krepair.plan.model import FileFingerprint


class _OfGroup(Executor):
    """Common part of all swaps of segments, begun by krepair or by a broker."""

    fenced = True

    @abstractmethod
    def _steps_to_commit(self, folder: PartitionFolder, intent: Intent) -> list[Step]:
        """Return the steps that keep the originals and then commit the swap."""

    def go_on(self, folder: PartitionFolder, intents: Sequence[Intent]) -> ExecutionResult:
        """Carry the swap out, or resume it.

        Raises:
            StalePlanError: a file is neither an original nor one of krepair's own.
            OSError: a call failed; run it again.
        """
        [intent] = intents
        group, made = GroupFiles(folder, intent), staged_extensions(intent)
        order, names = folder.order or intent.order, folder.names
        if not self.is_committed(folder, intent):
            run(folder, self._steps_to_commit(folder, intent), group)
        steps = [*waiting_steps(intent, names, order, made), *replace_steps(intent, names, order, made)]
        run(folder, synced(steps), group)
        group.remove_litter()
        group.check_replaced()
        return ExecutionResult(1)

    def check_undo(self, folder: PartitionFolder, intent: Intent, state: str) -> None:
        """Check that the new segment is unchanged, all originals are kept, and no broker would delete the swap.

        An undo that was begun is resumed even if a broker's cleaner left a ``.cleaned``, because no other state would
        be better. An undo without a record in the journal is resumed too, because the steps are the same from any
        state.
        """
        group = GroupFiles(folder, intent)
        where = group.whereabouts()
        if where is Whereabouts.FINAL and state != "undoing":
            _check_no_cleaner(folder, intent)
        group.check_logs()
        if where in {Whereabouts.STAGED, Whereabouts.OUT, Whereabouts.GONE}:
            raise folder.written_since(intent.log.name)
        for path, original, _ in self.kept(folder, intent):
            current = folder.state(path)
            # Opening an index may change the index's time, never its size. A log with the original's size and time was
            # not cut.
            exact = original.name.endswith(LOG)
            if (
                current is None
                or current.size != original.size
                or (exact and current.mtime_ns != original.mtime_ns)
            ):
                raise StalePlanError(
                    f"{folder.at(path)}: is not the original of {original.size} bytes that was kept"
                )

    def is_back(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Return whether an undo has begun: an original snapshot or ``.log`` is back, or a new file lost its name.

        Snapshots are restored first. While the new ``.log`` has its final name, it is not compared with the original of
        that name: an original that is kept as a copy is identified only by size and time.
        """
        group = GroupFiles(folder, intent)
        where = group.whereabouts()
        if where in {Whereabouts.SWAP, Whereabouts.CLEANED, Whereabouts.OUT}:
            return True
        # The log is left out, because a cleaner with nothing to clean may have left an identical log, see
        # ``whereabouts``.
        leaving = (
            (path, made)
            for made in intent.made
            if made != intent.log
            for path in (made.name + SWAP, made.name + CLEANED, folder.names.out(made.name))
        )
        if any(folder.holds(path, made) for path, made in leaving):
            return True
        logs = [state.name for state in intent.originals if state.name.endswith(LOG)]
        new = intent.log.name if where is Whereabouts.FINAL else ""
        return any(group.is_original(name) for name in (*intent.snapshots, *logs) if name != new)

    def kept(self, folder: PartitionFolder, intent: Intent) -> list[KeptFile]:
        """Return the backups of the originals that are missing from the partition folder."""
        group = GroupFiles(folder, intent)
        return [
            KeptFile(folder.names.keep(original.name), original)
            for original in intent.originals
            if not group.is_original(original.name)
        ]


class SwapGroups(_OfGroup):
    """Executor for rewritten groups of segments."""

    def is_committed(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Return whether an apply of the group has committed, judged by the order of renames in the intent record."""
        return GroupFiles(folder, intent).is_committed()

    def can_go_on(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Return whether an interrupted swap is committed, or has its staged files and would survive a broker's start.

        Raises:
            StalePlanError: an original changed in between.
        """
        group = GroupFiles(folder, intent)
        if group.is_committed():
            return True
        for original in intent.originals:
            if not folder.holds(original.name, original):
                raise StalePlanError(f"{folder.at(original.name)}: changed while the apply was interrupted")
        return group.staged_are_there() and not _is_void(folder, intent)

    def _steps_to_commit(self, folder: PartitionFolder, intent: Intent) -> list[Step]:
        names, made = folder.names, staged_extensions(intent)
        keeps = keep_steps(intent, names, [original.name for original in intent.originals])
        return [*keeps, *synced(commit_steps(intent, names, intent.order, made))]

    def check_undo(self, folder: PartitionFolder, intent: Intent, state: str) -> None:
        """Check the same as the base class, unless all originals are restored already."""
        if not _is_undone(GroupFiles(folder, intent)):
            super().check_undo(folder, intent, state)

    def go_back(
        self, folder: PartitionFolder, intents: Sequence[Intent], *, committed: bool
    ) -> ExecutionResult:
        """Restore the originals from any state; before the commit, the new files go back to ``stage/``.

        Raises:
            StalePlanError: a file is neither an original nor a new file; an original is gone; or a swap of another plan
                or of a broker is pending.
            OSError: a call failed.
        """
        [intent], names = intents, folder.names
        group = GroupFiles(folder, intent)
        if not committed:
            self._roll_back(folder, intent, group)
        elif not _is_undone(group):
            _run_backwards(folder, intent, group, (commit_steps, replace_steps))
        group.remove_litter()
        if committed:
            missing = group.missing_logs()
            if missing:
                raise StalePlanError(f"{folder.at(missing[0])}: is not the original that was kept")
            run(folder, forget_steps(intent, names))
        return ExecutionResult(1)

    def _roll_back(self, folder: PartitionFolder, intent: Intent, group: GroupFiles) -> None:
        """Move the new files back to ``stage/`` before the commit, and empty ``keep/``."""
        names, steps = folder.names, list[Step]()
        _check_swap_is_of_group(folder, intent)
        lost = group.missing_logs()
        # While the new log is in stage/, krepair has not removed any original: a broker has deleted a missing original.
        if lost and group.whereabouts() is not Whereabouts.STAGED:
            raise StalePlanError(f"{folder.at(lost[0])}: is gone, and the new segment did not take its place")
        if intent.order == "P2":  # P1 has nothing to reverse: its one rename commits
            done = commit_steps(intent, names, intent.order, staged_extensions(intent))
            steps = backwards(done, intent, names, committed=False)
        run(folder, [*synced(steps), *forget_steps(intent, names)], group)


def _is_void(folder: PartitionFolder, intent: Intent) -> bool:
    """Return whether a broker's cleaner left a ``.cleaned``: every broker then deletes a swap at or above it.

    With the order P2 the new files of this group have the suffix ``.cleaned`` for a while. Files of other groups never
    have it then, because each group is finished before the next group begins.
    """
    return bool(_cleaned_of_a_broker(folder, intent, intent.base_offset - (intent.order == "P2")))


def _cleaned_of_a_broker(folder: PartitionFolder, intent: Intent, highest: int) -> str:
    """Return another program's ``.cleaned`` that makes every broker delete a group's swap; empty if none exists.

    Args:
        intent: intent of the group.
        highest: highest base offset at which no ``.cleaned`` is the plan's; above this offset, the log's content
            decides.
    """
    log = intent.log.name + CLEANED
    if GroupFiles(folder, intent).is_of_another_program(log):
        return log
    names = map(parse_file_name, folder.file_names())
    cleaned = (name for name in names if name.state is NameState.CLEANED)
    return next((name.name for name in cleaned if (name.base_offset or 0) <= highest), "")


def _check_no_cleaner(folder: PartitionFolder, intent: Intent) -> None:
    """Check, before an undo, that no broker's cleaner left a ``.cleaned``: a start would delete the undo's swap.

    Raises:
        StalePlanError: a broker's ``.cleaned`` exists.
    """
    cleaned = _cleaned_of_a_broker(folder, intent, intent.base_offset - 1)
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
    """Check, before an undo, that no new segment or pending swap has offsets of the originals.

    A broker that truncated the log may have begun a new segment there. If a swap is pending, the undo would add a
    second one, and brokers since 3.0 delete all segments between two swaps.

    Raises:
        StalePlanError: such a segment or swap exists; the message names the file.
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


def _is_undone(group: GroupFiles) -> bool:
    gone = group.whereabouts() in {Whereabouts.OUT, Whereabouts.GONE}
    return gone and not group.missing_logs()


def _check_swap_is_of_group(folder: PartitionFolder, intent: Intent) -> None:
    """Check that a ``.log.swap`` belongs to the group: another swap may hold the only copy of the group's records.

    A swap remains if another plan or a broker's cleaner was stopped after the commit. The originals are then gone from
    the partition folder, and the backups here may be the last copies.

    Raises:
        StalePlanError: the swap belongs to another program or plan.
    """
    swap = intent.log.name + SWAP
    try:
        GroupFiles(folder, intent).check_log(swap)
    except StalePlanError as error:
        raise folder.swap_of_others(swap) from error


# -- swaps that a broker began


def _run_backwards(
    folder: PartitionFolder, intent: Intent, group: GroupFiles, parts: Sequence[Callable[..., list[Step]]]
) -> None:
    """Carry out the reversed steps of apply's parts, in the order of the broker that is there now."""
    names, order = folder.names, folder.order or intent.order
    steps = [step for part in parts for step in part(intent, names, order, extensions_to_undo(order))]
    run(folder, synced(backwards(steps, intent, names)), group)


class FinishSwaps(_OfGroup):
    """Executor for swaps that a broker began; undo restores exactly the files of the pending swap.

    A broker's ``.log.swap`` beside the segments that it replaces is like one of krepair's swaps that has just passed
    its commit. So the next steps and their order are those of the commit protocol: ``P1`` up to 2.8 and always under
    the guard, ``P2`` from 3.0. A broker that is started at any instant ends with the same records. Undo reverses the
    same steps in reverse order, until the swap is pending again.
    """

    def is_committed(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Return whether the swap became a segment, through krepair or through a broker that was started in between."""
        return GroupFiles(folder, intent).whereabouts() is Whereabouts.FINAL

    def can_go_on(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Return whether an interrupted completion has all its staged indexes.

        Raises:
            StalePlanError: the ``.log.swap`` is gone but did not become a segment.
        """
        where = GroupFiles(folder, intent).whereabouts()
        if where is Whereabouts.FINAL:
            return True
        if where is not Whereabouts.SWAP:
            log = intent.log.name + SWAP
            raise StalePlanError(f"{folder.at(log)}: is gone, and so is the segment that it was to become")
        return all(
            any(
                folder.holds(path, made)
                for path in (folder.names.stage(made.name), made.name, made.name + SWAP)
            )
            for made in intent.made[1:]
        )

    def _steps_to_commit(self, folder: PartitionFolder, intent: Intent) -> list[Step]:
        group = GroupFiles(folder, intent)
        in_place = [state.name for state in intent.originals if not _is_kept(folder, group, state)]
        return keep_steps(intent, folder.names, in_place)

    def go_back(
        self, folder: PartitionFolder, intents: Sequence[Intent], *, committed: bool
    ) -> ExecutionResult:
        """Make the swap pending again, with every file as before; the steps are the same from any state.

        Raises:
            StalePlanError: a file is neither an original nor one of krepair's own.
            OSError: a call failed; run it again.
        """
        [intent], names = intents, folder.names
        group = GroupFiles(folder, intent)
        _run_backwards(folder, intent, group, (waiting_steps, replace_steps))
        group.remove_set_aside()
        missing = [original.name for original in intent.originals if not group.is_original(original.name)]
        if missing:
            raise StalePlanError(f"{folder.at(missing[0])}: is not the original that was kept")
        run(folder, forget_steps(intent, names))
        return ExecutionResult(1)


def _is_kept(folder: PartitionFolder, group: GroupFiles, original: FileState) -> bool:
    """Return whether an interrupted run has already removed an original from its place and kept it."""
    kept = folder.state(folder.names.keep(original.name))
    return kept is not None and kept.size == original.size and not group.is_original(original.name)
