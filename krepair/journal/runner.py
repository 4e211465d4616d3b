"""Carries a partition's changes out, continues what was interrupted, and takes them back.

What kind a change is, only its action knows (see ``krepair.journal.actions``). The runner keeps the order: what an
interrupted run left half done comes first; then intent, steps, done. What was left is told from the journal and from
what is on the disk, so that any call may be repeated after a crash at any instant. A broker that was started in between
may have finished a swap itself, or removed what was staged: then it goes on from there. Where a file is neither an
original nor one of ours, ``StalePlanError`` names it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from krepair.errors import (
    ExitCode,
    InterruptedAtSafePointError,
    KrepairError,
    LockLostError,
    RefusedError,
    VerifyFailedError,
)
from krepair.formats.filenames import FileState, parse_file_name
from krepair.journal.action import Ground, StagedGroup
from krepair.journal.actions import BY_CHANGE, REPLACE, action_of
from krepair.journal.fence import Fence, Point, Watch
from krepair.journal.folder import PartitionFolder
from krepair.journal.guards import Guards
from krepair.journal.outcome import Committed, Failed, Outcome, Skipped, Undone, failed
from krepair.journal.purge import check_nothing_kept, remove_private_folder
from krepair.journal.record import Done, Intent, Journal, Order, ReplaceIntent, UndoIntent
from krepair.plan.model import Change, Commit, PartitionPlan

_APPLIED = frozenset({"committing", "committed", "undoing"})


def commit_partition(
    folder: PartitionFolder,
    partition: PartitionPlan,
    commit: Commit,
    guards: Guards,
    stage: Callable[[Change], None],
    *,
    damaged: Collection[int] = (),
    staged: Mapping[str, StagedGroup] | None = None,
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
        staged: change id -> how the staged files of a rewritten group are known.

    Returns:
        One outcome per change, in the plan's order; and one more if the fence could not be taken down.

    Raises:
        LockLostError: the lock is no longer ours; nothing more was touched.
        InterruptedAtSafePointError: somebody asked to stop; what was begun is finished and the fence is down.
    """
    run = _Run(folder, partition, commit, guards, frozenset(damaged), staged or {})
    return tuple(run.through(lambda: run.commit_all(stage)))


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
    run = _Run(folder, partition, commit, guards, frozenset(), {})
    return tuple(run.through(run.finish_all))


def undo_partition(
    folder: PartitionFolder,
    partition: PartitionPlan,
    commit: Commit,
    guards: Guards,
    *,
    bad_copies: Mapping[str, str] | None = None,
) -> tuple[Outcome, ...]:
    """Puts the originals of every change back, last change first, then removes the private sub-folder.

    Args:
        folder: the partition folder.
        partition: its part of the plan.
        commit: order for changes whose undo has not begun, and whether under the fence.
        guards: asked before each change.
        bad_copies: change id -> what is wrong with its kept originals. Undo stops before the first of them: what lies
            below it belongs to a log in which it has its say.

    Returns:
        One outcome per change, last change first; and one more if the fence, or what was kept, is still there.

    Raises:
        LockLostError: the lock is no longer ours; nothing more was touched.
        InterruptedAtSafePointError: somebody asked to stop.
    """
    run = _Run(folder, partition, commit, guards, frozenset(), {})
    outcomes = list(run.through(lambda: run.undo_all(bad_copies or {})))
    if not any(isinstance(outcome, Failed) for outcome in outcomes):
        outcomes += run.clean_up()
    return tuple(outcomes)


class _Run:
    def __init__(
        self,
        folder: PartitionFolder,
        partition: PartitionPlan,
        commit: Commit,
        guards: Guards,
        damaged: frozenset[int],
        staged: Mapping[str, StagedGroup],
    ) -> None:
        self.folder = folder
        self.changes = partition.changes
        self.guards = guards
        self.ground = Ground(folder, partition, commit.order, damaged, staged)
        self.watch = guards.watch or Watch(folder.disk, folder.log_dir)
        froms = [BY_CHANGE[type(change)].recovers_from(change) for change in self.changes]
        bases = [base for base in froms if base is not None]
        point = Point(partition.topic, partition.partition, min(bases, default=0))
        self.fence = Fence(folder, point, self.watch)
        self.fenced = commit.fence and bool(bases)
        self.fence_is_up = False
        self.taken_back = False
        self.journal: Journal

    # -- the whole partition

    def through(self, work: Callable[[], Iterator[Outcome]]) -> Iterator[Outcome]:
        """Opens the journal, does the work, and takes the fence down."""
        refused = self._open()
        if refused is not None:
            yield refused
            yield from self._skipped(self.changes[1:])
            return
        try:
            yield from work()
        except InterruptedAtSafePointError as error:
            left = self._close()
            if left is not None:
                error.message += f"; {left.why}"
            raise
        left = self._close()
        if left is not None:
            yield left

    def _open(self) -> Failed | None:
        self.guards.hold()
        try:
            folder = self.folder
            self.journal = Journal(folder.disk, folder.private, folder.plan_id, folder.folder, folder.owner())
            if self.journal.purging is not None:
                raise RefusedError(
                    f"{self.journal.path}: the kept originals are being purged; run purge again",
                    next_command="krepair purge PLAN",
                )
            if folder.tree.is_folder(folder.private):
                self.journal.settle()
                folder.sync_all()
        except (KrepairError, OSError) as error:
            return failed(self.changes[0].change_id if self.changes else "", error, rolled_back=True)
        return None

    def _close(self) -> Failed | None:
        """Lifts the fence, unless a change is half done and needs it until the next run."""
        try:
            if not self.journal.unfinished() and not self.taken_back and self.fence.is_up():
                self.guards.hold()
                self.fence.lift()
        except LockLostError:
            raise
        except (KrepairError, OSError) as error:
            what = failed(f"{self.folder.folder}/fence", error, rolled_back=False)
            return what._replace(
                code=ExitCode.PARTLY,
                why=f"the fence is still up, and a broker's start would recover this partition: {what.why}; "
                "run the same command again",
            )
        return None

    def _append(self, *records: Intent | UndoIntent | Done) -> None:
        self.guards.begun = True
        self.journal.append(*records)

    def _set_fence(self, *, fenced: bool) -> None:
        """Up for a swap. Down for all else: what those change of an active segment looks like a broker's work."""
        self.guards.begun = True
        if fenced and self.fenced and not self.fence_is_up:
            self.fence.put_up()
            self.fence_is_up = True
        elif not fenced and self.fence.is_up():
            self.fence.lift()
            self.fence_is_up = False

    def _failed(self, change_id: str, error: KrepairError | OSError, *, rolled_back: bool) -> Failed:
        """While a change is half done, whatever stopped it: the directory is changed partly."""
        what = failed(change_id, error, rolled_back=rolled_back)
        return what if rolled_back else what._replace(code=ExitCode.PARTLY)

    @staticmethod
    def _skipped(changes: Sequence[Change]) -> Iterator[Outcome]:
        for change in changes:
            yield Skipped(change.change_id, "an earlier change of this partition failed")

    # -- forward

    def finish_all(self) -> Iterator[Outcome]:
        """What an interrupted run left half done, in the plan's order."""
        half_done = [change for change in self.changes if change.change_id in self.journal.unfinished()]
        for batch in _batches(half_done):
            outcomes = self._finish(batch)
            yield from outcomes
            if any(isinstance(outcome, Failed) for outcome in outcomes):
                return

    def commit_all(self, stage: Callable[[Change], None]) -> Iterator[Outcome]:
        """What is half done, then the rest; one outcome per change."""
        outcomes = {outcome.change_id: outcome for outcome in self.finish_all()}
        todo = []
        for change in self.changes:
            if self.journal.states.get(change.change_id) == "committed":
                outcomes.setdefault(change.change_id, self._look_at_committed(change.change_id))
            elif change.change_id not in outcomes:
                todo.append(change)
        stopped = any(isinstance(outcome, Failed) for outcome in outcomes.values())
        for batch in _batches(todo):
            done = list(self._skipped(batch)) if stopped else self._commit(batch, stage)
            outcomes |= {outcome.change_id: outcome for outcome in done}
            stopped = stopped or any(isinstance(outcome, Failed) for outcome in done)
        yield from (outcomes[change.change_id] for change in self.changes)

    def _look_at_committed(self, change_id: str) -> Outcome:
        """The journal is not believed where the originals are back: its last line, an undo's, may have been lost."""
        intent = self.journal.intents[change_id]
        try:
            action = action_of(intent)
            if action.is_committed(self.folder, intent) or not action.is_back(self.folder, intent):
                return Committed(change_id)
        except (KrepairError, OSError) as error:
            return failed(change_id, error, rolled_back=True)
        self.taken_back = True
        refused = RefusedError(
            f"{change_id}: its originals are back, at least in part: an undo was begun and has to end first",
            next_command="krepair undo PLAN",
        )
        return failed(change_id, refused, rolled_back=True)

    def _finish(self, batch: Sequence[Change]) -> list[Outcome]:
        able: list[Intent] = []
        for change in batch:
            intent = self.journal.intents[change.change_id]
            try:
                self.guards.safe_points.check()
                self.guards.hold()
                if self.journal.states[change.change_id] == "undoing":
                    raise RefusedError(
                        f"{change.change_id}: its undo was interrupted and has to end first",
                        next_command="krepair undo PLAN",
                    )
                if action_of(intent).can_go_on(self.folder, intent):
                    able.append(intent)
                else:
                    self._forget(intent)
            except (InterruptedAtSafePointError, LockLostError):
                raise
            except (KrepairError, OSError) as error:
                # The code is that of what stands in the way; if all is as before, the next plan can begin anew.
                back = self.journal.states[change.change_id] == "committing" and self._roll_back(intent)
                return [*self._go_on(able), failed(change.change_id, error, rolled_back=back)]
        return self._go_on(able)

    def _commit(self, batch: Sequence[Change], stage: Callable[[Change], None]) -> list[Outcome]:
        intents: list[Intent] = []
        stopped: Failed | None = None
        for number, change in enumerate(batch):
            try:
                self.guards.check(change)
                if number == 0:
                    BY_CHANGE[type(change)].check_before(self.ground, batch)
                intents.append(self._begin(change, stage))
            except (InterruptedAtSafePointError, LockLostError):
                raise
            except (KrepairError, OSError) as error:
                stopped = self._failed(change.change_id, error, rolled_back=True)
                break
        try:
            if intents:
                self.guards.keep_plan(self.folder)
                self._append(*intents)
        except (KrepairError, OSError) as error:
            # Nothing was announced, so nothing was done.
            first, *others = batch
            return [self._failed(first.change_id, error, rolled_back=True), *self._skipped(others)]
        outcomes = self._go_on(intents)
        if stopped is not None and len(outcomes) == len(intents):
            outcomes.append(stopped)
        return [*outcomes, *self._skipped(batch[len(outcomes) :])]

    def _begin(self, change: Change, stage: Callable[[Change], None]) -> Intent:
        self.guards.begun = True
        self.folder.make_private_folders()  # an interrupted undo may have removed some of them
        stage(change)
        intent: Intent = BY_CHANGE[type(change)].begin(self.ground, change)
        return intent

    def _go_on(self, intents: Sequence[Intent]) -> list[Outcome]:
        """Carries out what is announced; one outcome per intent, and none after a failure of a whole batch."""
        if len(intents) > 1 or (intents and isinstance(intents[0], ReplaceIntent)):
            return self._replace([intent for intent in intents if isinstance(intent, ReplaceIntent)])
        outcomes: list[Outcome] = []
        for intent in intents:
            action = action_of(intent)
            try:
                self._set_fence(fenced=action.fenced)
                with self._ours([intent]):
                    action.go_on(self.folder, intent)
                self._append(Done(change_id=intent.change_id, state="committed"))
                outcomes.append(Committed(intent.change_id))
            except (KrepairError, OSError) as error:
                back = self._roll_back(intent)
                outcomes.append(self._failed(intent.change_id, error, rolled_back=back))
        return outcomes

    def _replace(self, intents: Sequence[ReplaceIntent]) -> list[Outcome]:
        """Carries out independent files together; what fails, and those after it, are taken back."""
        try:
            self._set_fence(fenced=False)
            with self._ours(intents):
                came = REPLACE.go_on_all(self.folder, intents)
            done = intents[: came.done]
            if done:
                self._append(*(Done(change_id=intent.change_id, state="committed") for intent in done))
        except (KrepairError, OSError) as error:
            # Of none it is known whether it is durable: the next run looks at each.
            return [self._failed(intent.change_id, error, rolled_back=False) for intent in intents]
        outcomes: list[Outcome] = [Committed(intent.change_id) for intent in done]
        if came.error is not None:
            left = intents[came.done :]
            back = self._roll_back_files(left)
            outcomes.append(self._failed(left[0].change_id, came.error, rolled_back=back))
        return outcomes

    def _ours(self, intents: Sequence[Intent]) -> contextlib.AbstractContextManager[None]:
        """Other partitions' fences watch active segments, which only a change without a fence touches."""
        names = {
            name
            for intent in intents
            if not action_of(intent).fenced
            for name in action_of(intent).touches(intent)
        }
        if not names:
            return contextlib.nullcontext()
        return self.watch.our_own_change(self.folder.relative(name) for name in names)

    # -- what was not committed

    def _forget(self, intent: Intent) -> None:
        """Ends an apply that never committed: every file is as before it."""
        action_of(intent).forget(self.folder, intent)
        self._append(Done(change_id=intent.change_id, state="rolled back"))

    def _roll_back(self, intent: Intent) -> bool:
        """Takes a change back that has not passed its commit; returns whether everything is as before it."""
        try:
            if action_of(intent).is_committed(self.folder, intent):
                return False
            self.guards.hold()
            self._forget(intent)
        except (KrepairError, OSError):
            return False
        return True

    def _roll_back_files(self, intents: Sequence[ReplaceIntent]) -> bool:
        try:
            self.guards.hold()
            here = [one for one in intents if not REPLACE.is_gone_by_others(self.folder, one)]
            came = REPLACE.undo_all(self.folder, here)
            if came.error is not None:
                return False
            self._append(*(Done(change_id=one.change_id, state="rolled back") for one in intents))
        except (KrepairError, OSError):
            return False
        return True

    # -- back

    def undo_all(self, bad_copies: Mapping[str, str]) -> Iterator[Outcome]:
        """Last change first; the first failure stops it."""
        stopped = False
        for batch in _batches(self.changes[::-1]):
            outcomes = list(self._skipped(batch)) if stopped else self._undo(batch, bad_copies)
            yield from outcomes
            stopped = stopped or any(isinstance(outcome, Failed) for outcome in outcomes)

    def _undo(self, batch: Sequence[Change], bad_copies: Mapping[str, str]) -> list[Outcome]:
        ready: list[Intent] = []
        outcomes: dict[str, Outcome] = {}
        for change in batch:
            if self.journal.states.get(change.change_id) not in _APPLIED:
                outcomes[change.change_id] = Skipped(change.change_id, "is not applied")
                continue
            intent = self.journal.intents[change.change_id]
            try:
                self.guards.safe_points.check()
                self.guards.hold()
                if self._was_never_committed(intent):
                    self._forget(intent)
                    outcomes[change.change_id] = Undone(change.change_id)
                    continue
                if change.change_id in bad_copies:
                    raise VerifyFailedError(bad_copies[change.change_id])
                action_of(intent).check_undo(self.folder, intent, self.journal.states[change.change_id])
                ready.append(intent)
            except (InterruptedAtSafePointError, LockLostError):
                raise
            except (KrepairError, OSError) as error:
                untouched = self.journal.states[change.change_id] == "committed"
                outcomes[change.change_id] = self._failed(change.change_id, error, rolled_back=untouched)
                break
        outcomes |= {outcome.change_id: outcome for outcome in self._put_back(ready)}
        missing = [change for change in batch if change.change_id not in outcomes]
        outcomes |= {outcome.change_id: outcome for outcome in self._skipped(missing)}
        return [outcomes[change.change_id] for change in batch]

    def _was_never_committed(self, intent: Intent) -> bool:
        half_done = self.journal.states[intent.change_id] == "committing"
        return half_done and not action_of(intent).is_committed(self.folder, intent)

    def _put_back(self, intents: Sequence[Intent]) -> list[Outcome]:
        if not intents:
            return []
        action = action_of(intents[0])
        try:
            orders = {intent.change_id: self._undo_order(intent) for intent in intents}
            new = [one for one in intents if self.journal.states[one.change_id] != "undoing"]
            self._set_fence(fenced=action.fenced)
            self._append(*(UndoIntent(change_id=one.change_id, order=orders[one.change_id]) for one in new))
            done = len(intents)
            error: KrepairError | OSError | None = None
            with self._ours(intents):
                files = [intent for intent in intents if isinstance(intent, ReplaceIntent)]
                if files:
                    done, error = REPLACE.undo_all(self.folder, files)
                else:
                    (intent,) = intents
                    action.undo(self.folder, intent, orders[intent.change_id])
            self._append(*(Done(change_id=one.change_id, state="undone") for one in intents[:done]))
        except (KrepairError, OSError) as failure:
            return [self._undo_failed(intent, failure) for intent in intents]
        outcomes: list[Outcome] = [Undone(intent.change_id) for intent in intents[:done]]
        if error is not None:
            outcomes += [self._undo_failed(intent, error) for intent in intents[done:]]
        return outcomes

    def _undo_failed(self, intent: Intent, error: KrepairError | OSError) -> Failed:
        untouched = self.journal.states[intent.change_id] == "committed"
        return self._failed(intent.change_id, error, rolled_back=untouched)

    def _undo_order(self, intent: Intent) -> Order:
        """The state of a half-done swap is one of its own order only."""
        state = self.journal.states[intent.change_id]
        if state == "undoing":
            return self.journal.undos[intent.change_id].order
        own = action_of(intent).order_of(intent) if state == "committing" else None
        return own or self.ground.order

    def clean_up(self) -> list[Outcome]:
        """Removes the private sub-folder once all originals are back.

        Returns:
            A failure if some of it is left, else nothing.
        """
        if self.journal.unfinished() or "committed" in self.journal.states.values():
            return []
        try:
            self.guards.hold()
            check_nothing_kept(self.folder)
            self._check_no_swap_of_ours()
            remove_private_folder(self.folder)
        except (KrepairError, OSError) as error:
            what = failed(f"{self.folder.folder}/{self.folder.names.private}", error, rolled_back=False)
            why = f"what was kept could not be removed: {what.why}; run undo again"
            return [what._replace(code=ExitCode.PARTLY, why=why)]
        return []

    def _check_no_swap_of_ours(self) -> None:
        """A swap that was not there when the plan was made is one of ours of which the journal has lost the record."""
        for name in map(parse_file_name, self.folder.file_names()):
            if name.state in {FileState.SWAP, FileState.CLEANED} and name.name not in self.ground.planned:
                raise RefusedError(
                    f"{self.folder.at(name.name)}: is there, but the journal knows of no change that made it; the "
                    "journal may be damaged, and nothing is removed"
                )


def _batches(changes: Sequence[Change]) -> list[list[Change]]:
    """Neighbours that are carried out together; every other change by itself."""
    batches: list[list[Change]] = []
    for together, run in itertools.groupby(changes, lambda change: BY_CHANGE[type(change)] is REPLACE):
        group = list(run)
        batches += [group] if together else [[change] for change in group]
    return batches
