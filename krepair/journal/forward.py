"""Apply of one partition: what is half done is finished or taken back, then every other change is carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from krepair.durable.writing_error import WritingError
from krepair.errors import (
    ExitCode,
    InterruptedAtSafePointError,
    KrepairError,
    LockLostError,
    RefusedError,
    VerifyFailedError,
)
from krepair.formats.filenames import parse_file_name
from krepair.journal.actions.table import action_for, action_of
from krepair.journal.outcome import ChangeFailed, Committed, Outcome, Undone, failed
from krepair.journal.record import Done, Freed, Intent
from krepair.journal.run import Run, in_batches
from krepair.plan.keep import is_freed_by_apply
from krepair.plan.model import Change

Verify = Callable[[Sequence[Change]], Mapping[str, str]]
"""Reads what changes made once more; gives what is wrong, by the id of the change."""


class Forward(Run):
    """Carries the changes of one partition out, in the plan's order."""

    def finish_all(self) -> Iterator[Outcome]:
        """What an interrupted run left half done, in the plan's order."""
        half_done = [change for change in self.changes if change.change_id in self.journal.unfinished()]
        for batch in in_batches(half_done):
            outcomes = self._finish(batch)
            yield from outcomes
            if any(isinstance(outcome, ChangeFailed) for outcome in outcomes):
                return

    def commit_all(self, stage: Callable[[Change], None], verify: Verify) -> Iterator[Outcome]:
        """What is half done, then the rest; one outcome per change.

        Where apply frees originals, each group of segments is verified and freed before the next one is begun, and all
        other changes once the last one is made: what one of them says may hold only with those behind it.
        """
        outcomes = {outcome.change_id: outcome for outcome in self.finish_all()}
        todo = []
        for change in self.changes:
            state = self.journal.states.get(change.change_id)
            if state == "freed":
                outcomes[change.change_id] = self._go_on_freeing(change.change_id)
            elif state == "committed":
                outcomes.setdefault(change.change_id, self._look_at_committed(change.change_id))
            if change.change_id not in outcomes:
                todo.append(change)
            elif isinstance(outcomes[change.change_id], Committed):
                self._begin_again(change, outcomes, todo)
        # An earlier run may have ended between the commit of a group and its verification.
        left = {change.change_id for change in todo}
        begun = [[change] for change in self.changes if change.change_id not in left and change.by_itself]
        stopped = any(isinstance(outcome, ChangeFailed) for outcome in outcomes.values())
        for batch in (*begun, *in_batches(todo)):
            new = [change for change in batch if change.change_id not in outcomes]
            done = list(self.skipped(new)) if stopped else self._commit(new, stage)
            outcomes |= {outcome.change_id: outcome for outcome in done}
            if all(isinstance(outcomes[change.change_id], Committed) for change in batch):
                alone = [change for change in batch if change.by_itself]
                done += self._free(alone, verify)
                outcomes |= {outcome.change_id: outcome for outcome in done}
            stopped = stopped or any(isinstance(outcome, ChangeFailed) for outcome in done)
        if all(isinstance(outcome, Committed) for outcome in outcomes.values()):
            outcomes |= {failure.change_id: failure for failure in self._free(self.changes, verify)}
        yield from (outcomes[change.change_id] for change in self.changes)

    def _begin_again(self, change: Change, outcomes: dict[str, Outcome], todo: list[Change]) -> None:
        """A change that is committed is still to do if it left something undone."""
        if self.journal.states[change.change_id] != "committed":
            return
        intent = self.journal.intents[change.change_id]
        try:
            if action_for(change).has_more(self.folder, change, intent):
                del outcomes[change.change_id]
                todo.append(change)
        except OSError as error:
            outcomes[change.change_id] = self.failure(change.change_id, error, rolled_back=True)

    # -- freeing

    def _free(self, changes: Sequence[Change], verify: Verify) -> list[ChangeFailed]:
        """Verifies changes whose originals apply frees, and frees them; gives what stopped it."""
        ready = [
            change
            for change in changes
            if is_freed_by_apply(change) and self.journal.states[change.change_id] == "committed"
        ]
        if not ready:
            return []
        try:
            self.guards.hold()
            for change in ready:
                self.check_not_freed(change, self.journal.intents[change.change_id])
            wrong = verify(ready)
            if wrong:
                return [
                    self._not_right(change, wrong[change.change_id])
                    for change in ready
                    if change.change_id in wrong
                ]
            intents = [self.journal.intents[change.change_id] for change in ready]
            self.append(*(Freed(change_id=intent.change_id) for intent in intents))
            self._remove_kept(intents)
        except LockLostError:
            raise
        except (KrepairError, OSError) as error:
            return [self.failure(ready[0].change_id, error, rolled_back=False)]
        return []

    def _remove_kept(self, intents: Sequence[Intent]) -> None:
        """Frees the originals of changes whose records say so; may be repeated: what is gone is gone.

        The sync gives the space back to the others.
        """
        folder, gone = self.folder, False
        for intent in intents:
            kept = [folder.at(folder.names.keep(original.name)) for original in intent.originals]
            there = [path for path in kept if folder.tree.is_there(path)]
            self.guards.begun = self.guards.begun or bool(there)
            for path in there:
                folder.disk.unlink(path)
            gone = gone or bool(there)
        if gone:
            folder.disk.sync_dir(folder.at(folder.names.keep()))

    def _go_on_freeing(self, change_id: str) -> Outcome:
        """An earlier run may have ended before all originals of a change were gone."""
        try:
            self._remove_kept([self.journal.intents[change_id]])
        except (KrepairError, OSError) as error:
            return self.failure(change_id, error, rolled_back=False)
        return Committed(change_id)

    def _went_with_its_segment(self, intent: Intent) -> bool:
        """Whether a new file is gone together with the segment of its name, of which no record says that it was made.

        A broker deletes both by retention, but only once the segment is there; before that an undo took them away.
        """
        if intent.originals or any(self.folder.state(name) is not None for name in intent.names):
            return False
        bases = {parse_file_name(name).base_offset for name in intent.names}
        return any(
            change.change_id not in self.journal.states and getattr(change, "base_offset", -1) in bases
            for change in self.changes
        )

    def _not_right(self, change: Change, text: str) -> ChangeFailed:
        """What was read again is wrong: the originals come back, if nothing was built on the change since."""
        where = self.changes.index(change)
        later = [self.journal.states.get(other.change_id) for other in self.changes[where + 1 :]]
        back = False
        if not {"committed", "freed"}.intersection(later):
            outcomes = self.put_back([self.journal.intents[change.change_id]])
            back = all(isinstance(outcome, Undone) for outcome in outcomes)
        end, command = (
            ("its originals are back", "")
            if back
            else ("its originals are still kept: krepair undo PLAN puts them back", "krepair undo PLAN")
        )
        error = VerifyFailedError(f"{change.change_id}: {text}; {end}", next_command=command)
        return failed(change.change_id, error, rolled_back=back)

    def _look_at_committed(self, change_id: str) -> Outcome:
        """The journal is not believed where the originals are back: its last line, an undo's, may have been lost."""
        intent = self.journal.intents[change_id]
        try:
            action = action_of(intent)
            if not action.is_back(self.folder, intent) and not self._went_with_its_segment(intent):
                return Committed(change_id)
        except (KrepairError, OSError) as error:
            return failed(change_id, error, rolled_back=True)
        self.undo_begun = True
        refused = RefusedError(
            f"{change_id}: its originals are back, at least in part: an undo was begun and has to end first",
            next_command="krepair undo PLAN",
        )
        return failed(change_id, refused, rolled_back=True)

    def _finish(self, batch: Sequence[Change]) -> list[Outcome]:
        outcomes = self._finish_batch(batch)
        stopped = (
            outcome for outcome in outcomes if isinstance(outcome, ChangeFailed) and outcome.rolled_back
        )
        self.guards.taken_back += [outcome.change_id for outcome in stopped]
        return outcomes

    def _finish_batch(self, batch: Sequence[Change]) -> list[Outcome]:
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
                    self.forget([intent])
                    self.guards.taken_back.append(change.change_id)
            except (InterruptedAtSafePointError, LockLostError):
                raise
            except (KrepairError, OSError) as error:
                # The code is that of what stands in the way; if all is as before, the next plan can begin anew.
                back = self.journal.states[change.change_id] == "committing" and self._roll_back([intent])
                return [*self._go_on(able), failed(change.change_id, error, rolled_back=back)]
        return self._go_on(able)

    def _commit(self, batch: Sequence[Change], stage: Callable[[Change], None]) -> list[Outcome]:
        intents: list[Intent] = []
        stopped: ChangeFailed | None = None
        for number, change in enumerate(batch):
            try:
                self.guards.check(change)
                if number == 0:
                    action_for(change).check_before(self.target, batch)
                intents.append(self._begin(change, stage))
            except (InterruptedAtSafePointError, LockLostError):
                raise
            except (KrepairError, OSError) as error:
                stopped = self._not_begun(change, error)
                break
        try:
            if intents:
                self.guards.keep_plan(self.folder)
                self.folder.sync_new()
                self.append(*intents)
        except (KrepairError, OSError) as error:
            # Nothing was announced, so nothing was done.
            first, *others = batch
            return [self._not_begun(first, error), *self.skipped(others)]
        outcomes = self._go_on(intents)
        if stopped is not None and len(outcomes) == len(intents):
            outcomes.append(stopped)
        return [*outcomes, *self.skipped(batch[len(outcomes) :])]

    def _not_begun(self, change: Change, error: KrepairError | OSError) -> ChangeFailed:
        """A change of which no file was touched: a full disk is then all that is wrong."""
        what = self.failure(change.change_id, error, rolled_back=True)
        return what._replace(code=ExitCode.UNWRITABLE) if isinstance(error, WritingError) else what

    def _begin(self, change: Change, stage: Callable[[Change], None]) -> Intent:
        self.guards.begun = True
        self.folder.make_private_folders()  # an interrupted undo may have removed some of them
        stage(change)
        intent: Intent = action_for(change).begin(self.target, change)
        if self.journal.states.get(change.change_id) == "committed":
            earlier = self.journal.intents[change.change_id]
            intent = action_for(change).continued(earlier, intent)
        return intent

    def _go_on(self, intents: Sequence[Intent]) -> list[Outcome]:
        """Carries out changes that are announced and belong together.

        Returns:
            One outcome per change that is done. Then what stopped the next one, and nothing for those after it; or,
            where it is not known how far they came, a failure of each.
        """
        if not intents:
            return []
        action = action_of(intents[0])
        try:
            self.set_fence(fenced=action.fenced)
            with self.ours(intents):
                came = action.go_on_all(self.folder, intents)
            done, left = intents[: came.done], intents[came.done :]
            self.append(*(Done(change_id=intent.change_id, state="committed") for intent in done))
        except (KrepairError, OSError) as error:
            back = self._roll_back(intents)
            return [self.failure(intent.change_id, error, rolled_back=back) for intent in intents]
        outcomes: list[Outcome] = [Committed(intent.change_id) for intent in done]
        if came.error is not None:
            back = self._roll_back(left)
            outcomes.append(self.failure(left[0].change_id, came.error, rolled_back=back))
        return outcomes

    def _roll_back(self, intents: Sequence[Intent]) -> bool:
        """Takes changes back of which none has passed its commit; returns whether everything is as before them."""
        action = action_of(intents[0])
        try:
            if any(action.is_committed(self.folder, intent) for intent in intents):
                return False
            self.guards.hold()
            self.forget(intents)
        except (KrepairError, OSError):
            return False
        return True
