"""Carry out, resume and undo the changes of one partition.

``begin.py`` begins a change and an executor (``executor.py``) carries out the change. This module ensures the order:
intent record, steps, done record. It finds unfinished changes by the journal and the files, so that any call may be
repeated after a crash at any instant. If a broker that was started in between has finished a swap or removed staged
files, the work resumes from that state. ``StalePlanError`` names a file that is neither an original nor one of
krepair's own.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, Literal

from msgspec.structs import replace

from krepair.commit.begin import (
    StagedGroup,
    Target,
    are_together,
    begin,
    check_before,
    check_not_written_since,
    executor_of,
)
from krepair.commit.by_disk import has_more, logs_made, telling
from krepair.commit.executor import ExecutionResult
from krepair.commit.fence import Fence, Point, Watch
from krepair.commit.folder import ROOT, PartitionFolder
from krepair.commit.group import GroupFiles
from krepair.commit.guards import Guards
from krepair.commit.journal import Done, FolderListing, Freed, Intent, Journal, Step, Undo
from krepair.commit.listing import marker_of, take_listing
from krepair.commit.mend import cut_names
from krepair.commit.purge import remove_private_folder
from krepair.commit.result import ChangeOutcome, ChangeResult, failed
from krepair.commit.stepping import run
from krepair.commit.steps import Remove, Take, forget_files, synced
from krepair.commit.unrecorded import check_all_recorded, check_nothing_kept
from krepair.commit.visited import Answer, check_evidence, detect_visit
from krepair.durable.writing_error import WritingError
from krepair.errors import (
    DamagedJournalError,
    ExitCode,
    InterruptedAtSafePointError,
    KrepairError,
    LockLostError,
    RefusedError,
    StalePlanError,
    VerifyFailedError,
)
from krepair.formats.filenames import parse_file_name
from krepair.next_command import NOTHING, PLAN, Next
from krepair.plan.changes import FileChange
from krepair.plan.keep import is_freed_by_apply
from krepair.plan.model import Change, Commit, PartitionPlan

_LOG: Final = logging.getLogger(__name__)
Verify = Callable[[Sequence[Change]], Mapping[str, str]]
"""Function that reads the new files of changes again and returns the errors by change id."""

Failure = KrepairError | OSError
_EVENTS: Final[dict[type[Step], str]] = {Intent: "begun", Undo: "undo begun", Freed: "originals freed"}
_STOPS_ALL: Final = (InterruptedAtSafePointError, LockLostError)
_APPLIED: Final = frozenset({"committing", "committed", "undoing", "freed"})
"""States of changes that ``undo`` rolls back, or refuses because their originals are freed."""


def commit_partition(
    folder: PartitionFolder,
    partition: PartitionPlan,
    commit: Commit,
    guards: Guards,
    stage: Callable[[Change], None],
    *,
    verify: Verify = lambda changes: {},
    staged: Mapping[str, StagedGroup] | None = None,
) -> list[ChangeResult]:
    """Carry out every change that is not committed yet, in the plan's order; stop at the first failure.

    Args:
        commit: order of the renames, and use of the recovery guard.
        stage: function that completes, verifies and syncs the staged files of a change. The function is called right
            before the change, unless the change has passed its commit; the staged files may exist already.
        verify: function that reads the new files again before originals are freed; see ``Verify``.
        staged: evidence of rewritten groups' staged files, by change id.

    Returns:
        One result per change, in the plan's order; one more result if the recovery guard could not be lifted.

    Raises:
        LockLostError: krepair no longer holds the lock; nothing more was touched.
        InterruptedAtSafePointError: a stop was requested; every begun change is finished and the guard is lifted.
    """
    run = _Forward(folder, partition, commit, guards, staged)
    return run.through(lambda: run.commit_all(stage, verify))


def finish_partition(
    folder: PartitionFolder,
    partition: PartitionPlan,
    commit: Commit,
    guards: Guards,
    *,
    may_not_begin: bool = False,
) -> list[ChangeResult]:
    """Finish or roll back the changes that an interrupted apply began; called before anything else is read.

    Args:
        commit: order of the renames, and use of the recovery guard.
        may_not_begin: True to roll back a swap of segments that has not passed its commit.

    Returns:
        One result per unfinished change that is committed now or could not be finished; one more result if the guard
        could not be lifted. Changes that were rolled back have no result.

    Raises:
        LockLostError: krepair no longer holds the lock; nothing more was touched.
        InterruptedAtSafePointError: a stop was requested.
    """
    run = _Forward(folder, partition, commit, guards)
    return run.through(lambda: run.finish_all(may_not_begin=may_not_begin))


def undo_partition(
    folder: PartitionFolder,
    partition: PartitionPlan,
    commit: Commit,
    guards: Guards,
    *,
    bad_copies: Mapping[str, str] | None = None,
    journal: Journal | None = None,
) -> list[ChangeResult]:
    """Restore the originals of every change, last change first, then remove the work folder.

    Args:
        commit: use of the recovery guard, and order of the renames.
        bad_copies: error in the backups of a change, by change id. Undo stops before the first of these changes.
        journal: journal that the caller has just read with ``to_write``, under the same lock; None to read the journal
            here.

    Returns:
        One result per change, last change first; one more result if the recovery guard or the work folder still exists.

    Raises:
        DamagedJournalError: the records cannot be trusted.
        LockLostError: krepair no longer holds the lock; nothing more was touched.
        InterruptedAtSafePointError: a stop was requested.
    """
    run = _Backward(folder, partition, commit, guards, journal=journal)
    results = run.through(lambda: run.undo_all(bad_copies or {}))
    return results if any(result.failed for result in results) else results + run.clean_up()


def fence_of(folder: PartitionFolder, partition: PartitionPlan, watch: Watch) -> Fence:
    """Return the recovery guard of a partition."""
    point = Point(partition.topic, partition.partition, min(_recovered_from(partition), default=0))
    return Fence(folder, point, watch)


def _recovered_from(partition: PartitionPlan) -> list[int]:
    offsets = (change.recovers_from for change in partition.changes)
    return [offset for offset in offsets if offset is not None]


class _Run:
    """Changes, journal and recovery guard of one partition during one call of apply or undo."""

    shows_damage = False
    """True to raise the error of a damaged journal; False to return the error as a failure of the first change."""
    why_skipped = "an earlier change of this partition failed"

    def __init__(
        self,
        folder: PartitionFolder,
        partition: PartitionPlan,
        commit: Commit,
        guards: Guards,
        staged: Mapping[str, StagedGroup] | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.folder = folder
        folder.order = commit.order
        self.partition = partition
        self.changes = partition.changes
        self.guards = guards
        self.target = Target(folder, partition, commit.order, staged or {})
        self.watch = guards.watch or Watch(folder.disk, folder.log_dir)
        self.fence = fence_of(folder, partition, self.watch)
        self.fenced = commit.fence and bool(_recovered_from(partition))
        self.fence_is_up = False
        self.undo_begun = False
        self._has_listed = False
        self._given = journal
        self.journal: Journal

    def through(self, work: Callable[[], list[ChangeResult]]) -> list[ChangeResult]:
        """Open the journal, do the work, and lift the recovery guard.

        The partition's folders stay open between two records of the journal.
        """
        with self.folder.tree.keeping_folders():
            try:
                self._open()
            except LockLostError:
                raise
            except (KrepairError, OSError) as error:
                if self.shows_damage and isinstance(error, DamagedJournalError):
                    raise
                first = self.changes[0].change_id if self.changes else ""
                return [
                    self.failure(first, error),
                    *self.skipped(self.changes[1:], "nothing was done in this partition"),
                ]
            try:
                results = work()
            except InterruptedAtSafePointError as error:
                error.message += "".join(f"; {failure.why}" for failure in self._close())
                raise
            return results + self._close()

    def _open(self) -> None:
        self.guards.hold()
        folder = self.folder
        self.journal = self._given or folder.journal(to_write=True)
        if self.journal.purging:
            raise RefusedError(
                f"{self.journal.path}: the kept originals are being purged; run purge again",
                next_command=Next.of("purge", PLAN),
            )
        if folder.tree.is_folder(folder.private):
            made = (
                file.name
                for change in self.changes
                for file in telling(change)
                if file.how in {"made", "new", "lines"}
            )
            check_all_recorded(folder, self.journal, self.target.planned, made)
            answer = self._detect_visit()
            self.journal.settle()
            if self.journal.at_work():
                folder.make_private_folders()  # an undo whose last records were lost may have removed these
            if not self.guards.settled:
                folder.sync_all()
            self._record_visit(answer)

    def _detect_visit(self) -> Answer:
        """Check whether another program changed the folder since an earlier run was interrupted; see ``visited``."""
        left = self.fence.is_up() and not self.watch.was_put_up_here(self.fence.place)
        if not left and not self.journal.unfinished():
            return Answer()
        return detect_visit(self.folder, self.journal, self._marker(), self.guards.judge)

    def _marker(self) -> str:
        return marker_of(self.folder, self.watch.places())

    def _record_visit(self, answer: Answer) -> None:
        """Record the changes that another program completed or rolled back, and lift the guard as after a start."""
        if not answer.why:
            return
        for change_id in answer.new:
            intent = self.journal.intents[change_id]
            if executor_of(intent).fenced and self.journal.states[change_id] == "committing":
                before = self.folder.file_names()
                group = GroupFiles(self.folder, intent)
                run(self.folder, synced([Take(name) for name in intent.snapshots]), group)
                group.remove_litter()
                self.guards.taken_back += [change_id] if self.folder.file_names() != before else []
            elif self.journal.states[change_id] == "undoing":  # another program restored the new files
                run(self.folder, [Remove(self.folder.names.out(made.name)) for made in intent.made])
        for change_id in answer.old:
            intent = self.journal.intents[change_id]
            run(self.folder, forget_files([*intent.names, *cut_names(intent)], self.folder.names))
        self.append(
            *(Done(change_id=change_id, state="committed") for change_id in answer.new),
            *(Done(change_id=change_id, state=self._gone_back(change_id)) for change_id in answer.old),
        )
        self.guards.taken_back += answer.old
        if self.fence.is_up():
            self.guards.hold()
            self.fence.forget()

    def _gone_back(self, change_id: str) -> Literal["rolled back", "undone"]:
        return "undone" if self.journal.states[change_id] == "undoing" else "rolled back"

    def _listing(self) -> FolderListing | None:
        """Return a listing of the folder for the first record of this run; None for all other records."""
        if self._has_listed or self.journal.unfinished():
            return None
        self._has_listed = True
        return take_listing(self.folder, self._marker())

    def _close(self) -> list[ChangeResult]:
        """Lift the recovery guard, unless an unfinished change needs it until the next run."""
        try:
            if not self.journal.unfinished() and not self.undo_begun and self.fence.is_up():
                self._lift_fence()
        except LockLostError:
            raise
        except (KrepairError, OSError) as error:
            why = "the recovery guard is still set, and a broker's start would recover this partition"
            return [self._left(f"{self.folder.folder}/fence", error, why, "run the same command again")]
        if self.fence.keeps_marker_away:
            self.guards.not_given_back.append(self.folder.folder)
        return []

    def _left(self, what: str, error: Failure, why: str, then: str) -> ChangeResult:
        """Return the failure for a recovery guard or work folder that still exists although all changes are done."""
        result = failed(self.folder.folder, error, what, code=ExitCode.PARTLY)
        return replace(result, why=f"{why}: {result.why}; {then}")

    def _lift_fence(self) -> None:
        """Lift the guard; report a guard of an earlier run, because lifting it changes the next start."""
        earlier = not self.watch.was_put_up_here(self.fence.place)
        self.guards.hold()  # only the lock proves that no broker was started since the recovery guard was set
        self.guards.begun = True
        self.fence.lift()
        if earlier:
            self.guards.taken_back.append(f"the recovery guard of {self.folder.folder}")

    def append(self, *records: Step) -> None:
        """Append records to the journal."""
        self.guards.begun = True
        self.folder.tree.let_go()  # the record must go into the folder that has this name now
        self.journal.append(*records)
        for record in records:
            if isinstance(record, Intent | Undo | Done | Freed):
                event = record.state if isinstance(record, Done) else _EVENTS[type(record)]
                _LOG.info("%s: %s", record.change_id, event)

    def set_fence(self, *, fenced: bool) -> None:
        """Set the recovery guard for a swap; lift it for other changes, because these may change active segments."""
        self.guards.begun = True
        if fenced and self.fenced and not self.fence_is_up:
            self.fence.put_up()
            self.fence_is_up = True
        elif not fenced and self.fence.is_up():
            self._lift_fence()
            self.fence_is_up = False

    def result(self, change_id: str, outcome: ChangeOutcome, why: str = "") -> ChangeResult:
        """Return the result of a change that did not fail."""
        return ChangeResult(change_id=change_id, partition=self.folder.folder, outcome=outcome, why=why)

    def failure(self, change_id: str, error: Failure, *, half_done: bool = False) -> ChangeResult:
        """Return the failure of a change; the exit code of an unfinished change is always PARTLY."""
        return failed(self.folder.folder, error, change_id, code=ExitCode.PARTLY if half_done else None)

    def skipped(self, changes: Sequence[Change], why: str = "") -> list[ChangeResult]:
        """Return the results of changes that are skipped."""
        return [self.result(change.change_id, "skipped", why or self.why_skipped) for change in changes]

    def check_not_freed(self, change: Change, intent: Intent) -> None:
        """Check that all backups of a change exist, if apply frees its backups and no record says that it has.

        Raises:
            RefusedError: an original is gone; the message names the file.
        """
        if not is_freed_by_apply(change):
            return
        for kept in executor_of(intent).kept(self.folder, intent):
            if self.folder.state(kept.path) is None:
                raise RefusedError(
                    f"{self.folder.at(kept.path)}: is gone, and no record says that apply has freed it; nothing can be "
                    "undone, and krepair purge ends this plan",
                    next_command=self.journal.command("purge"),
                )

    def put_back(self, intents: Sequence[Intent]) -> list[ChangeResult]:
        """Undo changes that have passed their commit; return one result per change."""
        if not intents:
            return []
        try:
            outcome = self.go_back(intents, committed=True)
        except (KrepairError, OSError) as error:
            outcome = ExecutionResult(0, error)
        results = [self.result(intent.change_id, "undone") for intent in intents[: outcome.done]]
        if outcome.error is not None:
            results += [self.not_back(intent.change_id, outcome.error) for intent in intents[outcome.done :]]
        return results

    def go_back(self, intents: Sequence[Intent], *, committed: bool) -> ExecutionResult:
        """Undo or roll back changes that belong together, so that every file is as it was before these changes.

        Args:
            committed: True if the changes have passed their commit. Then an ``Undo`` record is written first. A
                rollback before the commit needs no record: a later run repeats an interrupted rollback.

        Raises:
            KrepairError, OSError: none of the changes counts as undone, or a change cannot be rolled back.
        """
        executor = executor_of(intents[0])
        if committed:
            self.set_fence(fenced=executor.fenced)
            new = [
                intent.change_id for intent in intents if self.journal.states[intent.change_id] != "undoing"
            ]
            before = self._listing() if new else None
            self.append(
                *(Undo(change_id=intent, before=before if intent == new[0] else None) for intent in new)
            )
        try:
            with self.own_changes(intents) if committed else contextlib.nullcontext():
                outcome = executor.go_back(self.folder, intents, committed=committed)
        finally:
            if not committed:
                self.watch.look_again(
                    self.folder.relative(name) for intent in intents for name in intent.names
                )
        state: Literal["undone", "rolled back"] = "undone" if committed else "rolled back"
        self.append(*(Done(change_id=intent.change_id, state=state) for intent in intents[: outcome.done]))
        if outcome.error is not None and not committed:
            raise outcome.error
        return outcome

    def not_back(self, change_id: str, error: Failure) -> ChangeResult:
        """Return the failure of an undo; after its undo has begun, a change is unfinished."""
        half_done = self.journal.states[change_id] not in {"committed", "freed"}
        return self.failure(change_id, error, half_done=half_done)

    def own_changes(self, intents: Sequence[Intent]) -> contextlib.AbstractContextManager[None]:
        """Mark changes of active segments as krepair's own, because guards treat other changes as a broker's start.

        Changes under the guard usually concern closed segments only, but a broker's swap may replace the active one.
        """
        names = {
            name
            for intent in intents
            for name in map(self.folder.relative, intent.names)
            if not executor_of(intent).fenced or name in self.watch.seen()
        }
        return self.watch.our_own_change(names) if names else contextlib.nullcontext()


def _in_batches(
    changes: Iterable[Change], phase: Callable[[Change], str] = lambda change: ""
) -> list[list[Change]]:
    """Group neighbouring changes that share their syncs and are in the same phase; other changes stay alone."""
    batches: list[list[Change]] = []
    for (together, _), neighbours in itertools.groupby(
        changes, lambda change: (are_together(change), phase(change))
    ):
        group = list(neighbours)
        batches += [group] if together else [[change] for change in group]
    return batches


class _Forward(_Run):
    """Run that carries out the changes of one partition, in the plan's order."""

    _may_not_begin = False

    def finish_all(self, *, may_not_begin: bool) -> list[ChangeResult]:
        """Finish or roll back only the changes that an interrupted run began."""
        self._may_not_begin = may_not_begin
        results: list[ChangeResult] = []
        for batch in _in_batches(change for change in self.changes if self._phase(change) == "half done"):
            results += self._resume_batch(batch)
            if any(result.failed for result in results):
                break
        return results

    def commit_all(self, stage: Callable[[Change], None], verify: Verify) -> list[ChangeResult]:
        """Carry out or resume all changes; return one result per change.

        If apply frees originals, it verifies each group of segments and frees its originals before the next group
        begins. All other changes are verified after the last change, because one file may be right only together with
        others.
        """
        results: dict[str, ChangeResult] = {}
        stopped = False
        for batch in _in_batches(self.changes, self._phase):
            done = self._apply_batch(batch, stage, stopped=stopped)
            if all(result.outcome == "committed" for result in done):
                done += self._free([change for change in batch if change.by_itself], verify)
            results |= {result.change_id: result for result in done}
            stopped = stopped or any(result.failed for result in done)
        if not stopped:
            results |= {result.change_id: result for result in self._free(self.changes, verify)}
        return [results[change.change_id] for change in self.changes]

    def _phase(self, change: Change) -> str:
        """Return the phase of a change: to do, half done or done."""
        state = self.journal.states.get(change.change_id)
        if state in {"committing", "undoing"}:
            return "half done"
        return "done" if state in {"committed", "freed"} else "to do"

    def _apply_batch(
        self, batch: Sequence[Change], stage: Callable[[Change], None], *, stopped: bool
    ) -> list[ChangeResult]:
        """Carry out changes that belong together and are in the same phase; return one result per change."""
        half_done = self._phase(batch[0]) == "half done" and not stopped
        results = {result.change_id: result for result in (self._resume_batch(batch) if half_done else ())}
        for change in batch:
            self._add_result_of_done(change, results)
        todo = [change for change in batch if change.change_id not in results]
        stopped = stopped or any(result.failed for result in results.values())
        new = self.skipped(todo) if stopped else self._commit_batch(todo, stage)
        results |= {result.change_id: result for result in new}
        return [results[change.change_id] for change in batch]

    def _add_result_of_done(self, change: Change, results: dict[str, ChangeResult]) -> None:
        """Add the result of a committed or freed change, unless some of its checkpoint entries must still be changed.

        If originals are in their places although the journal says committed, the record of an undo may have been lost.
        """
        change_id, state = change.change_id, self.journal.states.get(change.change_id)
        if state not in {"committed", "freed"} or (change_id in results and results[change_id].failed):
            return
        intent = self.journal.intents[change_id]
        try:
            if state == "freed":
                self._remove_kept([intent])  # an earlier run may have ended before it removed every original
            elif change_id not in results:
                self._check_not_back(intent)
            if state == "committed" and has_more(self.folder, change, intent):
                results.pop(change_id, None)
            else:
                results.setdefault(change_id, self.result(change_id, "committed"))
        except (KrepairError, OSError) as error:
            results[change_id] = self.failure(change_id, error, half_done=state == "freed")

    def _check_not_back(self, intent: Intent) -> None:
        if executor_of(intent).is_back(self.folder, intent) or self._went_with_its_segment(intent):
            self.undo_begun = True
            raise RefusedError(
                f"{intent.change_id}: its originals are back, at least in part: an undo was begun and has to end first",
                next_command=Next.of("undo", PLAN),
            )

    def _went_with_its_segment(self, intent: Intent) -> bool:
        """Return whether a new file is gone although its new segment was never made.

        Retention deletes such a file only together with the segment. Without the segment, an undo removed the file.
        """
        if intent.originals or any(self.folder.state(name) is not None for name in intent.names):
            return False
        bases = {parse_file_name(name).base_offset for name in intent.names}
        return any(
            change.change_id not in self.journal.states and getattr(change, "base_offset", -1) in bases
            for change in self.changes
        )

    # -- freeing

    def _free(self, changes: Sequence[Change], verify: Verify) -> list[ChangeResult]:
        """Verify changes whose originals apply frees, then free these originals; return the failures."""
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
            return [self.failure(ready[0].change_id, error, half_done=True)]
        return []

    def _remove_kept(self, intents: Sequence[Intent]) -> None:
        """Remove the backups of changes that have a ``Freed`` record; may be repeated.

        The sync at the end makes the freed disk space available for the next changes.
        """
        folder, gone = self.folder, False
        for intent in intents:
            kept = [folder.at(folder.names.keep(original.name)) for original in intent.originals]
            existing = [path for path in kept if folder.tree.is_there(path)]
            self.guards.begun = self.guards.begun or bool(existing)
            for path in existing:
                folder.disk.unlink(path)
            gone = gone or bool(existing)
        if gone:
            folder.disk.sync_dir(folder.at(folder.names.keep()))

    def _not_right(self, change: Change, text: str) -> ChangeResult:
        """Restore the originals of a wrong change, if no later change depends on this change; return the failure."""
        where = self.changes.index(change)
        later = [self.journal.states.get(other.change_id) for other in self.changes[where + 1 :]]
        end, command = "its originals are still kept: krepair undo PLAN puts them back", Next.of("undo", PLAN)
        if not {"committed", "freed"}.intersection(later):
            back = self.put_back([self.journal.intents[change.change_id]])
            if all(result.outcome == "undone" for result in back):
                end, command = "its originals are back", NOTHING
        error = VerifyFailedError(f"{change.change_id}: {text}; {end}", next_command=command)
        return self.failure(change.change_id, error)

    # -- unfinished changes of an earlier run

    def _resume_batch(self, batch: Sequence[Change]) -> list[ChangeResult]:
        able: list[Intent] = []
        for change in batch:
            intent = self.journal.intents[change.change_id]
            try:
                self.guards.check()
                if self.journal.states[change.change_id] == "undoing":
                    raise RefusedError(
                        f"{change.change_id}: its undo was interrupted and has to end first",
                        next_command=Next.of("undo", PLAN),
                    )
                if not self._must_begin_again(intent) and executor_of(intent).can_go_on(self.folder, intent):
                    able.append(intent)
                else:
                    self.go_back([intent], committed=False)
                    self.guards.taken_back.append(change.change_id)
            except _STOPS_ALL:
                raise
            except (KrepairError, OSError) as error:
                # The exit code stays that of the error: after the rollback nothing is unfinished here.
                if self.journal.states[change.change_id] == "committing" and self._roll_back([intent]):
                    self.guards.taken_back.append(change.change_id)
                return [*self._carry_out(able, earlier=True), self.failure(change.change_id, error)]
        return self._carry_out(able, earlier=True)

    def _must_begin_again(self, intent: Intent) -> bool:
        """Return whether a change before its commit has to be rolled back instead of resumed.

        This applies to a swap that may not begin now or has a different order of renames, and to every file of the
        root: an advanced recovery point is true only of files that no other program has changed since krepair read the
        files.
        """
        executor = executor_of(intent)
        if executor.is_committed(self.folder, intent):
            return False
        swap = executor.fenced and (self._may_not_begin or intent.order != self.target.order)
        return swap or self.folder.folder == ROOT

    # -- a change

    def _commit_batch(self, batch: Sequence[Change], stage: Callable[[Change], None]) -> list[ChangeResult]:
        intents: list[Intent] = []
        stopped: list[ChangeResult] = []
        for number, change in enumerate(batch):
            try:
                self.guards.check()
                if number == 0:
                    check_before(self.target, batch)
                intents.append(self._begin(change, stage))
            except _STOPS_ALL:
                raise
            except (KrepairError, OSError) as error:
                stopped = [self._not_begun(change, error)]
                break
        try:
            if intents:
                self.guards.keep_plan(self.folder)
                self.folder.sync_new()
                self.journal.begin_as(self.guards.number())
                self.append(replace(intents[0], before=self._listing()), *intents[1:])
        except (KrepairError, OSError) as error:
            # Without a record no file has changed.
            first, *others = batch
            return [self._not_begun(first, error), *self.skipped(others)]
        results = self._carry_out(intents)
        if len(results) == len(intents):
            results += stopped
        return [*results, *self.skipped(batch[len(results) :])]

    def _not_begun(self, change: Change, error: Failure) -> ChangeResult:
        """Return the failure of a change that changed no file; the exit code of a write error is then UNWRITABLE."""
        code = ExitCode.UNWRITABLE if isinstance(error, WritingError) else None
        return failed(self.folder.folder, error, change.change_id, code=code)

    def _begin(self, change: Change, stage: Callable[[Change], None]) -> Intent:
        self.guards.begun = True
        self.folder.make_private_folders()  # an interrupted undo may have removed some of these folders
        stage(change)
        intent = begin(self.target, change)
        if self.journal.states.get(change.change_id) == "committed":
            earlier = self.journal.intents[change.change_id]
            # An earlier run changed some of the entries. The backup of that run, which precedes all changed entries,
            # remains the original.
            intent = replace(intent, originals=earlier.originals, over=earlier.made[0])
        return intent

    def _carry_out(self, intents: Sequence[Intent], *, earlier: bool = False) -> list[ChangeResult]:
        """Carry out changes that belong together and have intent records.

        Args:
            earlier: True if an earlier run wrote the records.

        Returns:
            One result per change that is done, then the failure of the next change; later changes have no result. If it
            is unknown which changes are done, one failure per change.
        """
        if not intents:
            return []
        executor = executor_of(intents[0])
        try:
            self.set_fence(fenced=executor.fenced)
            with self.own_changes(intents):
                outcome = executor.go_on(self.folder, intents)
            done, remaining = intents[: outcome.done], intents[outcome.done :]
            self.append(*(Done(change_id=intent.change_id, state="committed") for intent in done))
        except (KrepairError, OSError) as error:
            return self._stopped(intents, intents, error, earlier=earlier)
        results = [self.result(intent.change_id, "committed") for intent in done]
        if outcome.error is not None:
            results += self._stopped(remaining, remaining[:1], outcome.error, earlier=earlier)
        return results

    def _stopped(
        self, left: Sequence[Intent], named: Sequence[Intent], error: Failure, *, earlier: bool
    ) -> list[ChangeResult]:
        back = self._roll_back(left)
        if back and earlier:
            self.guards.taken_back += [intent.change_id for intent in named]
        return [self.failure(intent.change_id, error, half_done=not back) for intent in named]

    def _roll_back(self, intents: Sequence[Intent]) -> bool:
        """Roll changes back if none of them is committed; return whether every file is as before."""
        executor = executor_of(intents[0])
        try:
            if any(executor.is_committed(self.folder, intent) for intent in intents):
                return False
            self.guards.hold()
            self.go_back(intents, committed=False)
        except (KrepairError, OSError):
            return False
        return True


class _Backward(_Run):
    """Run that restores the originals of one partition, and then removes its work folder."""

    shows_damage = True
    why_skipped = "undo takes the last change back first, and has stopped at a later one of this partition"

    @cached_property
    def _logs_made(self) -> Mapping[str, FileChange]:
        return logs_made(self.changes)

    def undo_all(self, bad_copies: Mapping[str, str]) -> list[ChangeResult]:
        """Undo the changes, last change first; stop at the first failure."""
        results: list[ChangeResult] = []
        stopped = False
        for batch in _in_batches(self.changes[::-1]):
            done = self.skipped(batch) if stopped else self._undo(batch, bad_copies)
            results += done
            stopped = stopped or any(result.failed for result in done)
        return results

    def _undo(self, batch: Sequence[Change], bad_copies: Mapping[str, str]) -> list[ChangeResult]:
        ready: list[Intent] = []
        results: dict[str, ChangeResult] = {}
        for change in batch:
            change_id = change.change_id
            if self.journal.states.get(change_id) not in _APPLIED:
                results[change_id] = self.result(change_id, "already", "is not applied")
                continue
            intent = self.journal.intents[change_id]
            try:
                self.guards.check()
                if self._was_never_committed(intent):
                    self.go_back([intent], committed=False)
                    results[change_id] = self.result(change_id, "undone")
                    continue
                self._check_can_go_back(change, intent, bad_copies.get(change_id, ""))
                ready.append(intent)
            except _STOPS_ALL:
                raise
            except (KrepairError, OSError) as error:
                results[change_id] = self.not_back(change_id, error)
                break
        results |= {result.change_id: result for result in self.put_back(ready)}
        skipped = self.skipped([change for change in batch if change.change_id not in results])
        results |= {result.change_id: result for result in skipped}
        return [results[change.change_id] for change in batch]

    def _check_can_go_back(self, change: Change, intent: Intent, bad_copy: str) -> None:
        state = self.journal.states[change.change_id]
        if state == "freed":
            raise RefusedError(
                f"{change.change_id}: its originals were freed as soon as the new files were verified (plan "
                "--keep until-verified); it stays, and so does all that the plan changed before it in this "
                "partition"
            )
        if state == "committed":
            self.check_not_freed(change, intent)
        if bad_copy and change.change_id in self.journal.came_again:
            # Not damage: the interrupted undo had restored the names, and another program wrote to the files.
            raise StalePlanError(f"{change.change_id}: what is kept was written since")
        if bad_copy:
            raise VerifyFailedError(bad_copy)
        executor_of(intent).check_undo(self.folder, intent, state)
        check_not_written_since(self.folder, change, intent, state, self.target.planned, self._logs_made)
        if state == "committed":
            check_evidence(self.folder, self.partition, change, self.journal, self._marker())

    def not_back(self, change_id: str, error: Failure) -> ChangeResult:
        """Return the failure of an undo, with purge as next command if another program wrote files of the change."""
        half_done = self.journal.states[change_id] not in {"committed", "freed"}
        again = change_id in self.journal.came_again
        if (half_done or again) and isinstance(error, StalePlanError) and not error.next_command:
            error.next_command = self.journal.command("purge")
            how = "is half done and cannot be undone" if half_done else "was finished again, and stays"
            error.message += f"; it {how}"
        return super().not_back(change_id, error)

    def _was_never_committed(self, intent: Intent) -> bool:
        half_done = self.journal.states[intent.change_id] == "committing"
        return half_done and not executor_of(intent).is_committed(self.folder, intent)

    def clean_up(self) -> list[ChangeResult]:
        """Remove the work folder once all originals are back.

        Returns:
            A failure if a part of the folder still exists, else an empty list.
        """
        if self.journal.unfinished() or {"committed", "freed"} & set(self.journal.states.values()):
            return []
        try:
            self.guards.hold()
            check_nothing_kept(self.folder, self.journal)
            # Folders may stay open here, because the held lock keeps brokers from renaming these folders. Purge must
            # not keep folders open: beside a running broker, purge would continue in a folder that is marked for
            # deletion.
            with self.folder.tree.keeping_folders():
                remove_private_folder(self.folder)
        except (KrepairError, OSError) as error:
            path = f"{self.folder.folder}/{self.folder.names.private}"
            return [self._left(path, error, "what was kept could not be removed", "run undo again")]
        return []
