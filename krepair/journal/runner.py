"""Carries a partition's changes out, continues what was interrupted, and takes them back.

Each change is one group at a time: intent, steps, done. What an interrupted run left is told from the
journal and from what is on the disk, so that any call may be repeated after a crash at any instant. A
broker that was started in between may have finished a swap itself, or removed what was staged: then it goes
on from there. Where a file is neither an original nor one of ours, ``StalePlanError`` names it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple, Protocol

from krepair.errors import (
    InterruptedAtSafePointError,
    KrepairError,
    LockedError,
    RefusedError,
    StalePlanError,
)
from krepair.journal import lossy, swap
from krepair.journal.fence import Fence, Point
from krepair.journal.folder import PartitionFolder, Whereabouts
from krepair.journal.freshness import check_fresh, check_fresh_file, check_no_pending_swap, check_staged
from krepair.journal.lossy import LossyIntent
from krepair.journal.outcome import Committed, Failed, Outcome, Skipped, Undone, failed
from krepair.journal.purge import remove_private_folder
from krepair.journal.record import ApplyIntent, Done, Intent, Journal, ReplaceIntent, SwapIntent, UndoIntent
from krepair.journal.replace import (
    can_be_replaced,
    check_replaced,
    is_gone_by_others,
    put_replaced_back,
    replace_file,
)
from krepair.journal.safe_points import SafePoints
from krepair.journal.steps import commit_steps, forget_steps, keep_steps, roll_back_steps, undo_steps
from krepair.plan.model import (
    Change,
    Commit,
    CompleteSwap,
    MendLog,
    PartitionPlan,
    ReplaceFile,
    RewriteSegments,
    SetAside,
)


class HeldLock(Protocol):
    """The log directory's lock, as ``krepair.logdir.lock`` gives it."""

    def check(self) -> None:
        """Raises ``LockedError`` when it is no longer ours."""


class Guards(NamedTuple):
    """What is asked before each group.

    Attributes:
        lock: of the log directory, held.
        safe_points: whether somebody asked to stop.
        check_space: given a change, raises ``RefusedError`` when there is not enough free space for it.
    """

    lock: HeldLock
    safe_points: SafePoints
    check_space: Callable[[Change], None]

    def check(self, change: Change) -> None:
        """All of them."""
        self.safe_points.check()
        self.lock.check()
        self.check_space(change)


def commit_partition(
    folder: PartitionFolder,
    partition: PartitionPlan,
    commit: Commit,
    guards: Guards,
    stage: Callable[[Change], None],
    *,
    damaged: Collection[int] = (),
) -> tuple[Outcome, ...]:
    """Carries out every change that is not in place yet, ascending; the first failure stops it.

    Args:
        folder: the partition folder.
        partition: its part of the plan.
        commit: order of the renames, and whether under the fence.
        guards: asked before each change.
        stage: makes the staged files of a change complete, verified and synced; called right before the
            change unless it has passed its commit already. It may find them there.
        damaged: base offsets of segments known to be damaged: they are kept as real copies.

    Returns:
        One outcome per change, in the plan's order.

    Raises:
        LockedError: the lock is no longer ours.
        InterruptedAtSafePointError: somebody asked to stop; what was begun is finished and the fence is down.
    """
    return tuple(_Run(folder, partition, commit, guards, frozenset(damaged)).commit_all(stage))


def undo_partition(
    folder: PartitionFolder, partition: PartitionPlan, commit: Commit, guards: Guards
) -> tuple[Outcome, ...]:
    """Puts the originals of every change back, last change first, then removes the private sub-folder.

    Args:
        folder: the partition folder.
        partition: its part of the plan.
        commit: order for changes whose undo has not begun, and whether under the fence.
        guards: asked before each change.

    Returns:
        One outcome per change, last change first.

    Raises:
        LockedError: the lock is no longer ours.
        InterruptedAtSafePointError: somebody asked to stop.
    """
    return tuple(_Run(folder, partition, commit, guards, frozenset()).undo_all())


class _Run:
    def __init__(
        self,
        folder: PartitionFolder,
        partition: PartitionPlan,
        commit: Commit,
        guards: Guards,
        damaged: frozenset[int],
    ) -> None:
        self.folder = folder
        self.partition = partition
        self.order = commit.order
        self.guards = guards
        self.damaged = damaged
        bases = [c.base_offset for c in partition.changes if isinstance(c, RewriteSegments | CompleteSwap)]
        point = Point(partition.topic, partition.partition, min(bases, default=0))
        self.fence = Fence(folder, point)
        self.fenced = commit.fence and bool(bases)
        self.fence_is_up = False
        self.planned = {fingerprint.name: fingerprint for fingerprint in partition.files}
        self.swap_looked_for = False

    # -- the whole partition

    def commit_all(self, stage: Callable[[Change], None]) -> Iterator[Outcome]:
        yield from self._each(self.partition.changes, lambda change: self._commit(change, stage))

    def undo_all(self) -> Iterator[Outcome]:
        clean = True
        for outcome in self._each(self.partition.changes[::-1], self._undo):
            clean = clean and not isinstance(outcome, Failed)
            yield outcome
        if (
            clean
            and not self.fence.is_up()
            and not self.journal.unfinished()
            and "committed" not in self.journal.states.values()
        ):
            with contextlib.suppress(OSError):  # the originals are back; undo run again removes the rest
                remove_private_folder(self.folder)

    def _each(self, changes: tuple[Change, ...], do: Callable[[Change], Outcome]) -> Iterator[Outcome]:
        stopped: Failed | None = None
        try:
            opened = self._open(changes)
            for change in changes:
                if stopped is None and isinstance(opened, Failed):
                    stopped = opened._replace(change_id=change.change_id)
                    yield stopped
                elif stopped is not None:
                    yield Skipped(change.change_id, "an earlier change of this partition failed")
                else:
                    outcome = do(change)
                    stopped = outcome if isinstance(outcome, Failed) else None
                    yield outcome
        except (InterruptedAtSafePointError, LockedError):
            self._close()
            raise
        self._close()

    def _open(self, changes: tuple[Change, ...]) -> Failed | None:
        self.guards.lock.check()
        try:
            self.journal = Journal(
                self.folder.disk, self.folder.private, self.folder.plan_id, self.folder.folder
            )
            if self.journal.purging is not None:
                raise RefusedError(
                    f"{self.journal.path}: the kept originals are being purged; run purge again"
                )
            if os.path.isdir(self.folder.private):
                self.folder.sync_all()
        except (KrepairError, OSError) as error:
            return failed(changes[0].change_id if changes else "", error, rolled_back=True)
        return None

    def _close(self) -> None:
        """Lifts the fence, unless a change is half done and needs it until the next run."""
        if hasattr(self, "journal") and not self.journal.unfinished():
            with contextlib.suppress(OSError, KrepairError):  # the next run, of any verb, lifts it
                self.fence.lift()

    def _put_up_fence(self) -> None:
        if self.fenced and not self.fence_is_up:
            self.fence.put_up()
            self.fence_is_up = True

    def _lift_fence(self) -> None:
        """Before an index is replaced: of the active segment, it would look like a broker's work."""
        if self.fence.is_up():
            self.fence.lift()
        self.fence_is_up = False

    # -- one change forward

    def _commit(self, change: Change, stage: Callable[[Change], None]) -> Outcome:
        state = self.journal.states.get(change.change_id)
        if state == "committed":
            return Committed(change.change_id)
        try:
            if state == "undoing":
                raise RefusedError(
                    f"{change.change_id}: its undo was interrupted and has to end first",
                    next_command="krepair undo PLAN",
                )
            self.guards.check(change)
            self._begin(change, stage)
            self._go_on(self.journal.intents[change.change_id])
        except (InterruptedAtSafePointError, LockedError):
            raise
        except (KrepairError, OSError) as error:
            return failed(change.change_id, error, rolled_back=self._roll_back(change.change_id))
        return Committed(change.change_id)

    def _begin(self, change: Change, stage: Callable[[Change], None]) -> None:
        """Writes the intent of a change, unless an interrupted run has, and it can go on."""
        if self.journal.states.get(change.change_id) == "committing":
            intent = self.journal.intents[change.change_id]
            if self._can_go_on(intent):
                return
            self._forget(intent)
        others = self.journal.unfinished()
        if others:
            raise RefusedError(f"{others[0]}: is half done and has to be finished before {change.change_id}")
        names = self.folder.names
        if not all(
            os.path.isdir(self.folder.at(path)) for path in (names.stage(), names.keep(), names.out())
        ):
            self.folder.make_private_folders()  # an interrupted undo may have removed some of them
        # A stale partition is refused before anything is staged for it.
        if isinstance(change, RewriteSegments):
            check_fresh(self.folder, self.partition, change)
        stage(change)
        self.journal.append(self._intent(change))

    def _intent(self, change: Change) -> Intent:
        if isinstance(change, ReplaceFile):
            # What only goes is nothing that a pending swap needs, and may be what voids it.
            if not self.swap_looked_for and change.method != "remove":
                check_no_pending_swap(self.folder)
                self.swap_looked_for = True
            original, staged = check_fresh_file(self.folder, self.planned, change)
            return ReplaceIntent(change_id=change.change_id, original=original, replacement=staged)
        if isinstance(change, MendLog | SetAside):
            return lossy.begin(self.folder, self.planned, change)
        if isinstance(change, CompleteSwap):
            return swap.swap_intent(self.folder, self.planned, change, self.order)
        originals = check_fresh(self.folder, self.partition, change)
        sources = tuple(source.base_offset for source in change.sources)
        bad = {f"{base:020d}" for base in self.damaged & set(sources)}
        return ApplyIntent(
            change_id=change.change_id,
            base_offset=change.base_offset,
            sources=sources,
            order=self.order,
            originals=originals,
            snapshots=change.removes_snapshots,
            copied=tuple(state.name for state in originals if state.name.partition(".")[0] in bad),
            merged=check_staged(self.folder, change),
        )

    def _can_go_on(self, intent: Intent) -> bool:
        """Whether an interrupted change is committed, or has all it needs to be."""
        if isinstance(intent, ReplaceIntent):
            return can_be_replaced(self.folder, intent)
        if isinstance(intent, LossyIntent):
            return lossy.can_go_on(self.folder, intent)
        if isinstance(intent, SwapIntent):
            return swap.can_go_on(self.folder, intent)
        if self.folder.is_committed(intent):
            return True
        self._check_originals(intent)
        return self.folder.staged_are_there(intent)

    def _check_originals(self, intent: ApplyIntent) -> None:
        for original in intent.originals:
            if self.folder.state(original.name) != original:
                raise StalePlanError(
                    f"{self.folder.at(original.name)}: changed while the apply was interrupted"
                )

    def _go_on(self, intent: Intent) -> None:
        if isinstance(intent, ReplaceIntent):
            self._lift_fence()
            replace_file(self.folder, intent)
        elif isinstance(intent, LossyIntent):
            self._lift_fence()
            lossy.go_on(self.folder, intent)
        elif isinstance(intent, SwapIntent):
            self._put_up_fence()
            swap.complete(self.folder, intent)
        else:
            self._put_up_fence()
            if not self.folder.is_committed(intent):
                self._check_originals(intent)
                self.folder.run(keep_steps(intent, self.folder.names), intent)
            self.folder.run(commit_steps(intent, self.folder.names), intent)
            self.folder.remove_litter(intent)
            self.folder.check_finished(intent)
        self.journal.append(Done(change_id=intent.change_id, state="committed"))

    def _roll_back(self, change_id: str) -> bool:
        """Takes a change back that has not passed its commit; returns whether everything is as before it."""
        if self.journal.states.get(change_id) != "committing":
            return True
        intent = self.journal.intents[change_id]
        try:
            if self._is_committed(intent):
                return False
            self._forget(intent)
        except (KrepairError, OSError):
            return False
        return True

    def _is_committed(self, intent: Intent) -> bool:
        if isinstance(intent, ReplaceIntent):
            return check_replaced(self.folder, intent)
        if isinstance(intent, LossyIntent):
            return lossy.is_committed(self.folder, intent)
        if isinstance(intent, SwapIntent):
            return swap.is_completed(self.folder, intent)
        return self.folder.is_committed(intent)

    def _forget(self, intent: Intent) -> None:
        """Ends an apply that never committed: staged files back, litter and kept originals away."""
        if isinstance(intent, ApplyIntent):
            lost = self.folder.missing_logs(intent)
            if lost and self.folder.whereabouts(intent) is Whereabouts.GONE:
                raise StalePlanError(f"{self.folder.at(lost[0])}: is gone, and so is the new segment")
            self.folder.run(roll_back_steps(intent, self.folder.names), intent)
            self.folder.remove_litter(intent)
        elif isinstance(intent, LossyIntent):
            lossy.put_back(self.folder, intent)
        elif isinstance(intent, SwapIntent):
            swap.restore(self.folder, intent, intent.group.order)
            self.folder.run(forget_steps(intent.group, self.folder.names), intent.group)
        elif not is_gone_by_others(self.folder, intent):
            put_replaced_back(self.folder, intent)
        self.journal.append(Done(change_id=intent.change_id, state="rolled back"))

    # -- one change back

    def _undo(self, change: Change) -> Outcome:
        state = self.journal.states.get(change.change_id)
        if state not in {"committing", "committed", "undoing"}:
            return Skipped(change.change_id, "is not applied")
        intent = self.journal.intents[change.change_id]
        try:
            self.guards.safe_points.check()
            self.guards.lock.check()
            if state == "committing" and not self._is_committed(intent):
                self._forget(intent)
                return Undone(change.change_id)
            if isinstance(intent, ReplaceIntent):
                self._undo_file(intent)
            elif isinstance(intent, LossyIntent):
                self._undo_lossy(intent)
            elif isinstance(intent, SwapIntent):
                self._undo_swap(intent, state)
            else:
                self._undo_group(intent, state)
        except (InterruptedAtSafePointError, LockedError):
            raise
        except (KrepairError, OSError) as error:
            untouched = self.journal.states[change.change_id] == "committed"
            return failed(change.change_id, error, rolled_back=untouched)
        return Undone(change.change_id)

    def _undo_file(self, intent: ReplaceIntent) -> None:
        if self.journal.states[intent.change_id] != "undoing":
            if not check_replaced(self.folder, intent):
                raise StalePlanError(f"{self.folder.at(intent.name)}: was written since the plan was applied")
            self.journal.append(UndoIntent(change_id=intent.change_id, order=self.order))
        self._lift_fence()
        put_replaced_back(self.folder, intent)
        self.journal.append(Done(change_id=intent.change_id, state="undone"))

    def _undo_lossy(self, intent: LossyIntent) -> None:
        if self.journal.states[intent.change_id] != "undoing":
            if self.journal.states[intent.change_id] == "committed":
                lossy.check_committed(self.folder, intent)
            self.journal.append(UndoIntent(change_id=intent.change_id, order=self.order))
        self._lift_fence()
        lossy.put_back(self.folder, intent)
        self.journal.append(Done(change_id=intent.change_id, state="undone"))

    def _undo_group(self, group: ApplyIntent, state: str) -> None:
        if state == "undoing":
            order = self.journal.undos[group.change_id].order
        else:
            # The state of a half-done swap is one of its own order only.
            order = group.order if state == "committing" else self.order
        if self._is_undone(group):
            self.folder.put_back_missing(group)
        else:
            self._check_undo(group, state)
            self._put_up_fence()
            if state != "undoing":
                self.journal.append(UndoIntent(change_id=group.change_id, order=order))
            self.folder.run(undo_steps(group, order, self.folder.names), group)
        self._finish_undo(group)

    def _undo_swap(self, intent: SwapIntent, state: str) -> None:
        group = intent.group
        if state == "undoing":
            order = self.journal.undos[intent.change_id].order
        else:
            order = group.order if state == "committing" else self.order
        if not swap.is_restored(self.folder, intent):
            self._check_undo(group, state)
            self._put_up_fence()
            if state != "undoing":
                self.journal.append(UndoIntent(change_id=intent.change_id, order=order))
            swap.restore(self.folder, intent, order)
        self.folder.run(forget_steps(group, self.folder.names), group)
        self.journal.append(Done(change_id=intent.change_id, state="undone"))

    def _is_undone(self, group: ApplyIntent) -> bool:
        gone = self.folder.whereabouts(group) in {Whereabouts.OUT, Whereabouts.GONE}
        return gone and not self.folder.missing_logs(group)

    def _check_undo(self, group: ApplyIntent, state: str) -> None:
        """Checks before the first step that the new segment is untouched and the originals can come back."""
        names = self.folder.names
        where = self.folder.whereabouts(group)
        self.folder.check_logs(group)
        elsewhere = where in {Whereabouts.STAGED, Whereabouts.OUT, Whereabouts.GONE}
        if elsewhere or (state == "committed" and where is not Whereabouts.FINAL):
            log = f"{group.base_offset:020d}.log"
            raise StalePlanError(
                f"{self.folder.at(log)}: was written since the plan was applied; nothing was changed"
            )
        for original in group.originals:
            if self.folder.is_original(group, original.name):
                continue
            kept = self.folder.state(names.keep(original.name))
            # A broker's look at an index may touch its time, never its size; a log it only ever cuts.
            exact = original.name.endswith(".log")
            if kept is None or kept.size != original.size or (exact and kept.mtime_ns != original.mtime_ns):
                path = self.folder.at(names.keep(original.name))
                raise StalePlanError(f"{path}: is not the original of {original.size} bytes that was kept")

    def _finish_undo(self, group: ApplyIntent) -> None:
        self.folder.remove_litter(group)
        missing = self.folder.missing_logs(group)
        if missing:
            raise StalePlanError(f"{self.folder.at(missing[0])}: is not the original that was kept")
        self.folder.run(forget_steps(group, self.folder.names), group)
        self.journal.append(Done(change_id=group.change_id, state="undone"))
