"""What apply and undo of one partition have in common: the journal, the fence, and what is done with the half done."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from krepair.errors import (
    DamagedJournalError,
    ExitCode,
    InterruptedAtSafePointError,
    KrepairError,
    LockLostError,
    RefusedError,
)
from krepair.journal.actions.action import StagedGroup, Target
from krepair.journal.actions.table import action_for, action_of
from krepair.journal.fence import Fence, Point, Watch
from krepair.journal.folder import PartitionFolder
from krepair.journal.guards import Guards
from krepair.journal.outcome import ChangeFailed, Outcome, Skipped, Undone, failed
from krepair.journal.record import Done, Intent, Journal, Order, Step, Undo
from krepair.journal.unrecorded import check_all_recorded
from krepair.plan.keep import is_freed_by_apply
from krepair.plan.model import Change, Commit, PartitionPlan


class Run:
    """The changes of one partition, its journal and its fence, for one call of apply or undo.

    Args:
        folder: the partition folder.
        partition: its part of the plan.
        commit: order of the renames, and whether under the fence.
        guards: asked before each change.
        damaged: base offsets of segments known to be damaged.
        staged: change id -> how the staged files of a rewritten group are known.
        journal: what the caller has just read with ``to_write``, under the same lock; None: it is read here.
    """

    def __init__(
        self,
        folder: PartitionFolder,
        partition: PartitionPlan,
        commit: Commit,
        guards: Guards,
        damaged: frozenset[int] = frozenset(),
        staged: Mapping[str, StagedGroup] | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.folder = folder
        self.changes = partition.changes
        self.guards = guards
        self.target = Target(folder, partition, commit.order, damaged, staged or {})
        self.watch = guards.watch or Watch(folder.disk, folder.log_dir)
        self.fence = fence_of(folder, partition, self.watch)
        self.fenced = commit.fence and bool(_recovered_from(partition))
        self.fence_is_up = False
        self.undo_begun = False
        self._given = journal
        self.journal: Journal

    shows_damage = False
    """Whether a damaged journal is raised, and not told as a failure of the first change."""

    def through(self, work: Callable[[], Iterator[Outcome]]) -> Iterator[Outcome]:
        """Opens the journal, does the work, and takes the fence down.

        The folders of the partition are kept open from one record of the journal to the next.
        """
        with self.folder.tree.keeping_folders():
            for outcome in self._through(work):
                if isinstance(outcome, ChangeFailed) and outcome.next_command:
                    self.guards.asked_for.append(outcome.next_command)
                yield outcome

    def _through(self, work: Callable[[], Iterator[Outcome]]) -> Iterator[Outcome]:
        refused = self._open()
        if refused is not None:
            yield refused
            yield from (
                Skipped(change.change_id, "nothing was done in this partition") for change in self.changes[1:]
            )
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

    def _open(self) -> ChangeFailed | None:
        self.guards.hold()
        try:
            folder = self.folder
            self.journal = self._given or folder.journal(to_write=True)
            if self.journal.purging:
                raise RefusedError(
                    f"{self.journal.path}: the kept originals are being purged; run purge again",
                    next_command="krepair purge PLAN",
                )
            if folder.tree.is_folder(folder.private):
                check_all_recorded(folder, self.journal, self.target.planned, self._made())
                self.journal.settle()
                if self.journal.at_work():
                    folder.make_private_folders()  # an undo whose last records were lost may have removed some
                if not self.guards.settled:
                    folder.sync_all()
        except DamagedJournalError as error:
            if self.shows_damage:
                raise
            return failed(self.changes[0].change_id if self.changes else "", error, rolled_back=True)
        except (KrepairError, OSError) as error:
            return failed(self.changes[0].change_id if self.changes else "", error, rolled_back=True)
        return None

    def _made(self) -> Iterator[str]:
        """Names of the files that tell of the changes of the plan."""
        return (name for one in self.changes for name in action_for(one).told_by(one))

    def _close(self) -> ChangeFailed | None:
        """Lifts the fence, unless a change is half done and needs it until the next run."""
        try:
            if not self.journal.unfinished() and not self.undo_begun and self.fence.is_up():
                self._lift_fence()
        except LockLostError:
            raise
        except (KrepairError, OSError) as error:
            what = failed(f"{self.folder.folder}/fence", error, rolled_back=False)
            return what._replace(
                code=ExitCode.PARTLY,
                why=f"the fence is still up, and a broker's start would recover this partition: {what.why}; "
                "run the same command again",
            )
        if self.fence.keeps_marker_away:
            self.guards.not_given_back.append(self.folder.folder)
        return None

    def _lift_fence(self) -> None:
        """Takes the fence down. One that an earlier run has left is told of: a broker sees that it is down."""
        earlier = not self.watch.was_put_up_here(self.fence.place)
        self.guards.hold()  # what tells that no broker was started since it went up
        self.guards.begun = True
        self.fence.lift()
        if earlier:
            self.guards.taken_back.append(f"the fence of {self.folder.folder}")

    def append(self, *records: Step) -> None:
        """Writes to the journal."""
        self.guards.begun = True
        self.folder.tree.let_go()  # a record goes into the folder that has the name now
        self.journal.append(*records)

    def set_fence(self, *, fenced: bool) -> None:
        """Up for a swap. Down for all else: what those change of an active segment looks like a broker's work."""
        self.guards.begun = True
        if fenced and self.fenced and not self.fence_is_up:
            self.fence.put_up()
            self.fence_is_up = True
        elif not fenced and self.fence.is_up():
            self._lift_fence()
            self.fence_is_up = False

    def failure(self, change_id: str, error: KrepairError | OSError, *, rolled_back: bool) -> ChangeFailed:
        """While a change is half done, whatever stopped it: the directory is changed partly."""
        what = failed(change_id, error, rolled_back=rolled_back)
        return what if rolled_back else what._replace(code=ExitCode.PARTLY)

    def check_not_freed(self, change: Change, intent: Intent) -> None:
        """Checks, of a change whose originals apply frees, that they are there as long as no record says otherwise.

        Raises:
            RefusedError: one is gone; the message names it.
        """
        if not is_freed_by_apply(change):
            return
        for kept in action_of(intent).kept(self.folder, intent):
            if self.folder.state(kept.path) is None:
                raise RefusedError(
                    f"{self.folder.at(kept.path)}: is gone, and no record says that apply has freed it; nothing can be "
                    "taken back, and krepair purge ends this plan",
                    next_command=self.journal.command("purge"),
                )

    def put_back(self, intents: Sequence[Intent]) -> list[Outcome]:
        """Puts the originals of changes back that belong together; one outcome per change, as far as they came."""
        if not intents:
            return []
        action = action_of(intents[0])
        try:
            orders = {intent.change_id: self._undo_order(intent) for intent in intents}
            new = [intent for intent in intents if self.journal.states[intent.change_id] != "undoing"]
            self.set_fence(fenced=action.fenced)
            self.append(*(Undo(change_id=intent.change_id, order=orders[intent.change_id]) for intent in new))
            with self.ours(intents):
                came = action.undo_all(self.folder, intents, orders[intents[0].change_id])
            done, left = intents[: came.done], intents[came.done :]
            self.append(*(Done(change_id=intent.change_id, state="undone") for intent in done))
        except (KrepairError, OSError) as failure:
            return [self._undo_failed(intent, failure) for intent in intents]
        outcomes: list[Outcome] = [Undone(intent.change_id) for intent in done]
        if came.error is not None:
            outcomes += [self._undo_failed(intent, came.error) for intent in left]
        return outcomes

    def _undo_failed(self, intent: Intent, error: KrepairError | OSError) -> ChangeFailed:
        untouched = self.journal.states[intent.change_id] == "committed"
        return self.failure(intent.change_id, error, rolled_back=untouched)

    def _undo_order(self, intent: Intent) -> Order:
        """The state of a half-done swap is one of its own order only."""
        state = self.journal.states[intent.change_id]
        if state == "undoing":
            return self.journal.undos[intent.change_id].order
        return intent.order if state == "committing" else self.target.order

    why_skipped = "an earlier change of this partition failed"

    def skipped(self, changes: Sequence[Change]) -> Iterator[Outcome]:
        """Nothing is done for these."""
        for change in changes:
            yield Skipped(change.change_id, self.why_skipped)

    def ours(self, intents: Sequence[Intent]) -> contextlib.AbstractContextManager[None]:
        """Fences watch active segments; what krepair itself changes of them is no sign of a broker.

        A change under the fence touches closed segments as a rule. A swap that a broker began may be of the active one.
        """
        names = {
            name
            for intent in intents
            for name in map(self.folder.relative, intent.names)
            if not action_of(intent).fenced or name in self.watch.seen()
        }
        return self.watch.our_own_change(names) if names else contextlib.nullcontext()

    def forget(self, intents: Sequence[Intent]) -> None:
        """Ends changes that belong together and never committed: every file is as before them."""
        action = action_of(intents[0])
        try:
            action.forget_all(self.folder, intents)
        finally:
            self.watch.look_again(self.folder.relative(name) for intent in intents for name in intent.names)
        self.append(*(Done(change_id=intent.change_id, state="rolled back") for intent in intents))


def fence_of(folder: PartitionFolder, partition: PartitionPlan, watch: Watch) -> Fence:
    """The fence of a partition."""
    point = Point(partition.topic, partition.partition, min(_recovered_from(partition), default=0))
    return Fence(folder, point, watch)


def _recovered_from(partition: PartitionPlan) -> list[int]:
    offsets = (action_for(change).recovers_from(change) for change in partition.changes)
    return [offset for offset in offsets if offset is not None]


def in_batches(changes: Sequence[Change]) -> list[list[Change]]:
    """Neighbours that are carried out together; every other change by itself."""
    batches: list[list[Change]] = []
    for action, run in itertools.groupby(changes, action_for):
        group = list(run)
        batches += [group] if action.together else [[change] for change in group]
    return batches
