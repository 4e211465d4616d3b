"""Apply of one partition: what is half done is finished or taken back, then every other change is carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from krepair.errors import InterruptedAtSafePointError, KrepairError, LockLostError, RefusedError
from krepair.journal.actions.table import action_for, action_of
from krepair.journal.outcome import Committed, Failed, Outcome, failed
from krepair.journal.record import Done, Intent
from krepair.journal.run import Run, in_batches
from krepair.plan.model import Change


class Forward(Run):
    """Carries the changes of one partition out, in the plan's order."""

    def finish_all(self) -> Iterator[Outcome]:
        """What an interrupted run left half done, in the plan's order."""
        half_done = [change for change in self.changes if change.change_id in self.journal.unfinished()]
        for batch in in_batches(half_done):
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
        for batch in in_batches(todo):
            done = list(self.skipped(batch)) if stopped else self._commit(batch, stage)
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
        self.undo_begun = True
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
                    self.forget([intent])
            except (InterruptedAtSafePointError, LockLostError):
                raise
            except (KrepairError, OSError) as error:
                # The code is that of what stands in the way; if all is as before, the next plan can begin anew.
                back = self.journal.states[change.change_id] == "committing" and self._roll_back([intent])
                return [*self._go_on(able), failed(change.change_id, error, rolled_back=back)]
        return self._go_on(able)

    def _commit(self, batch: Sequence[Change], stage: Callable[[Change], None]) -> list[Outcome]:
        intents: list[Intent] = []
        stopped: Failed | None = None
        for number, change in enumerate(batch):
            try:
                self.guards.check(change)
                if number == 0:
                    action_for(change).check_before(self.ground, batch)
                intents.append(self._begin(change, stage))
            except (InterruptedAtSafePointError, LockLostError):
                raise
            except (KrepairError, OSError) as error:
                stopped = self.failure(change.change_id, error, rolled_back=True)
                break
        try:
            if intents:
                self.guards.keep_plan(self.folder)
                self.append(*intents)
        except (KrepairError, OSError) as error:
            # Nothing was announced, so nothing was done.
            first, *others = batch
            return [self.failure(first.change_id, error, rolled_back=True), *self.skipped(others)]
        outcomes = self._go_on(intents)
        if stopped is not None and len(outcomes) == len(intents):
            outcomes.append(stopped)
        return [*outcomes, *self.skipped(batch[len(outcomes) :])]

    def _begin(self, change: Change, stage: Callable[[Change], None]) -> Intent:
        self.guards.begun = True
        self.folder.make_private_folders()  # an interrupted undo may have removed some of them
        stage(change)
        intent: Intent = action_for(change).begin(self.ground, change)
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
