"""``krepair apply``: stage, verify and swap what a plan says. A second run resumes an interrupted one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial

from msgspec import UNSET
from msgspec.structs import replace

from krepair.commit.carried_out import (
    Measured,
    failed_partition,
    failed_whole,
    notes_of_fences,
    with_completed,
    with_rolled_back,
)
from krepair.commit.fence import Watch
from krepair.commit.folder import PartitionFolder
from krepair.commit.guards import Guards, SafePoints, signals_wait
from krepair.commit.kept import PlanKeeper
from krepair.commit.partition import commit_partition, finish_partition
from krepair.commit.purge import drop_finished, remove_private_folder
from krepair.commit.ready import (
    FINISHED,
    NOT_DONE,
    check_no_fence,
    check_target,
    commit_order,
    is_root,
    journal_folder,
    listed,
    may_begin,
    ready,
    targets_of,
)
from krepair.commit.reports import ApplyReport, next_of
from krepair.commit.result import ChangeResult, failed
from krepair.commit.stack import next_number
from krepair.commit.status import ChangeState, plans_beside, staged_groups, status_in, why_half_done
from krepair.commit.unrecorded import check_nothing_kept
from krepair.durable.disk import Disk
from krepair.durable.real_disk import drop_from_cache
from krepair.durable.scratch import Scratch
from krepair.engine.choice import Load, WorkKind, choose_engine
from krepair.engine.engine import Engine
from krepair.engine.progress import Progress
from krepair.errors import (
    ExitCode,
    InterruptedAtSafePointError,
    KrepairError,
    LockLostError,
    RefusedError,
    StalePlanError,
    UnreadableError,
)
from krepair.fixes.carry_out import stage_all, verify_all
from krepair.fixes.evidence_now import check_evidence, dirs_rested_on
from krepair.fixes.order import commit_now, damage_now, lowest_changes
from krepair.fixes.staging import Staging, Work, Wrong
from krepair.fixes.true_indexes import untrue_index
from krepair.logdir.values import LogDir
from krepair.logdir.view import read_log_dir, read_partition
from krepair.next_command import NOTHING, PLAN, Next, of_error
from krepair.options import Options
from krepair.plan.commands import plan_command
from krepair.plan.keep import INPLACE, is_freed_by_apply
from krepair.plan.model import Change, FileFingerprint, PartitionPlan, Plan
from krepair.start.room import check_fits, why_no_room

# A partition that is healthy and whose apply failed for another reason (space, a stale plan) can be cleaned.
_UNCLEANABLE = {ExitCode.UNREADABLE, ExitCode.VERIFY_FAILED}
_AGAIN = Next.of("apply", PLAN)


def apply(
    plan: Plan, options: Options, progress: Progress | None = None, *, disk: Disk | None = None
) -> ApplyReport:
    """Carry out a plan.

    Args:
        plan: the plan, as read from its file.
        options: options, of which ``engine``, ``master``, ``scratch`` and the ``--cluster...`` options count; the plan
            decides everything else.
        progress: receiver of the bytes done so far.
        disk: writer of every file; a test may wrap it.

    Raises:
        LockedError: a broker is using the directory.
        RefusedError: the review objects, space is short, the directory is read-only, or a replica that the plan empties
            must not be emptied now.
        StalePlanError: the plan is for another host or directory.
        UnwritableError: files of an earlier run could not be flushed.
    """
    plan = check_target(plan)
    targets = targets_of(plan)
    if not targets:
        return ApplyReport(verb="apply", plan_id=plan.plan_id, log_dir=plan.log_dir, engine="nothing to do")
    with contextlib.ExitStack() as stack:
        scratch = Scratch(options.scratch, (plan.log_dir,))
        stack.callback(scratch.close)
        if options.scratch:
            # Refuse a bad scratch folder before krepair has written anything into the log directory.
            _ = scratch.path
        writes, lock = stack.enter_context(ready(plan, disk, dirs_rested_on(plan)))
        view, moved = check_evidence(plan)
        safe_points = stack.enter_context(signals_wait(SafePoints()))
        engine = choose_engine(options.engine, options.master, _work_of(targets), progress)
        stack.callback(engine.close)
        watch = Watch(writes, plan.log_dir)
        keep_plan = PlanKeeper(writes, plan).keep_in
        number = cache(partial(next_number, view, plan.plan_id))
        guards = Guards(lock, safe_points, watch, number=number, judge=untrue_index, keep_plan=keep_plan)
        folders = [journal_folder(writes, plan, target) for target in targets]
        measured = Measured(writes.tree, folders)
        # What an earlier run renamed may not be durable yet, and this run builds on it: flush it before any change.
        guards.settle(folders)
        report = _Apply(plan, engine, writes, guards, scratch, options, moved, view).report(targets)
        report = replace(report, notes=notes_of_fences(guards.not_given_back))
        return with_rolled_back(measured.told_in(report), guards.taken_back)


def _work_of(targets: Sequence[PartitionPlan]) -> Load:
    """Sum the bytes to stage by kind of work, since each kind costs differently."""
    work = dict.fromkeys(WorkKind, 0)
    for target in targets:
        kind = WorkKind.READ if target.compaction is UNSET else WorkKind.KEYS
        work[kind] += sum(change.work.stage for change in target.changes)
    return work


class _Apply:
    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        disk: Disk,
        guards: Guards,
        scratch: Scratch,
        options: Options,
        moved: Mapping[tuple[str, int], str],
        view: LogDir,
    ) -> None:
        self.plan = plan
        self.view = view
        """The log directory as it was under the lock, before anything was finished."""
        self.was_begun = False
        """True if an earlier run left a work folder, whose half-done changes were then finished or rolled back."""
        self.engine = engine
        self.disk = disk
        self.scratch = scratch
        self.guards = guards
        self.options = options
        self.moved = moved
        self.results: list[ChangeResult] = []
        self.states: dict[str, ChangeState] = {}
        """Change id -> state of the change before this run staged anything."""
        self.done_here: set[str] = set()
        """Ids of the changes that this run carried out or finished."""
        self.staged: set[str] = set()
        """Ids of the changes that are staged but not committed yet."""
        self.not_made: list[Wrong] = []
        self.completed: list[ChangeResult] = []
        """Changes that an earlier run left half done and this run finished."""
        self.work: Work
        self.commit = plan.commit
        """Order of the renames that suits the broker installed now."""

    def report(self, targets: Sequence[PartitionPlan]) -> ApplyReport:
        interrupted, stopped = False, NOTHING
        try:
            self._apply_targets(targets)
        except InterruptedAtSafePointError:
            interrupted = True
        except KrepairError as error:
            if not isinstance(error, LockLostError):
                self._drop_unused(targets)
                if not self.completed and not self.guards.taken_back:
                    raise
                stopped = of_error(error)
            # Partitions without a result were not touched: every later change failed with this error.
            known = {result.partition for result in self.results}
            self.results += [failed(target.folder, error) for target in targets if target.folder not in known]
        results = with_completed(self.results, self.completed)
        failed_folders = {result.partition for result in results if result.failed}
        # Something was omitted for one partition only, such as its recovery point entry.
        results += [
            failed_whole(wrong.folder, wrong.text, ExitCode.PARTLY)
            for wrong in self.not_made
            if wrong.folder not in failed_folders
        ]
        order = {partition.folder: number for number, partition in enumerate(self.plan.partitions)}
        results.sort(key=lambda result: (order.get(result.partition, -1), result.change_id))
        broken = {result.partition for result in results if result.exit_code in _UNCLEANABLE}
        broken_bytes = [
            partition.log_bytes_before for partition in self.plan.partitions if partition.folder in broken
        ]
        return ApplyReport(
            verb="apply",
            plan_id=self.plan.plan_id,
            log_dir=self.plan.log_dir,
            results=tuple(results),
            engine=self.engine.why,
            slow_because=self.engine.slow_because,
            uncleanable_partitions=self.plan.uncleanable_partitions + len(broken_bytes),
            uncleanable_bytes=self.plan.uncleanable_bytes + sum(broken_bytes),
            interrupted=interrupted,
            next_command=_AGAIN if interrupted else stopped or next_of(results, _AGAIN, self._next(results)),
        )

    def _next(self, results: Sequence[ChangeResult]) -> Next:
        """Return the next command: ``plan`` where a stale plan changed nothing, else ``verify``."""
        codes = {result.exit_code for result in results if result.failed}
        if codes == {ExitCode.STALE_PLAN} and all(
            result.outcome in {"failed", "skipped"} for result in results
        ):
            return plan_command(self.plan)
        return Next.of("verify", PLAN)

    # -- a directory

    def _apply_targets(self, targets: Sequence[PartitionPlan]) -> None:
        """Finish interrupted changes of all targets, then carry out one target after the other.

        If originals stay in place, everything is staged before the first commit, as one engine job. If apply frees the
        originals, only the next group is staged, because the group before it makes the room.
        """
        plan = self.plan
        harm = self._choose_order(targets)
        # Partitions before the root: its entries advance recovery points, which a start trusts, over their files.
        able = [target for target in sorted(targets, key=is_root) if self._finish_target(target, harm)]
        # Finished changes have replaced files: a listing from before them would make every later check stale.
        view = read_log_dir(plan.log_dir) if self.was_begun else self.view
        self.work = Work(
            plan,
            view,
            self.engine,
            self.disk,
            wrong=self.not_made,
            scratch=self.scratch,
            keep_plan=self.guards.keep_plan,
            moved=self.moved,
        )
        half_done_in_root = why_half_done(plans_beside(view, None, plan.plan_id))
        parts = [self._staging(target, half_done_in_root) for target in commit_order(able)]
        stagings = [staging for staging in parts if staging is not None]
        self._prove_purged(stagings)
        check_fits(plan, [_remaining(staging) for staging in stagings if staging.changes], self.options)
        # A broker may have run since the plan was made: under the recovery guard its next start could now cut a log.
        self._check_order(stagings)
        if plan.policy.keep == INPLACE:
            self._stage_ahead(stagings)
        with self.engine.as_one("apply", sum(staging.plan.log_bytes_before for staging in stagings)) as whole:
            for staging in stagings:
                whole.next(staging.plan.log_bytes_before)
                if plan.policy.keep != INPLACE:
                    self._leave_without_room(staging)
                    self._stage_ahead([staging])
                self.results += self._commit_target(staging)
                staging.decided.clear()
        self._drop_journals(targets)

    def _choose_order(self, targets: Sequence[PartitionPlan]) -> str:
        """Choose the order of the renames before anything half done is resumed; return the harm that the guard does."""
        half_done = []
        for target in targets:
            with contextlib.suppress(KrepairError, OSError):
                if journal_folder(self.disk, self.plan, target).journal().unfinished():
                    half_done.append(target)
        harm = self._damage_now(self.view, half_done) if half_done else ""
        with contextlib.suppress(RefusedError):
            self.commit = commit_now(self.plan, self.view, half_done, harm, self.options.broker_version)
        return harm

    def _finish_target(self, target: PartitionPlan, harm: str) -> bool:
        """Finish what an interrupted run left half done; return whether the target may proceed.

        A change before its commit that could not begin today is rolled back.
        """
        refusal = harm or self.moved.get((target.topic, target.partition), "")
        folder = journal_folder(self.disk, self.plan, target)
        try:
            if not self.disk.tree.is_folder(folder.private):
                return True
            self.was_begun = True
            check_no_fence(target, self.guards.watch)
            results = finish_partition(folder, target, self.commit, self.guards, may_not_begin=bool(refusal))
        except (InterruptedAtSafePointError, LockLostError):
            raise
        except (KrepairError, OSError) as error:
            self.results.append(failed_partition(target, error))
            return False
        self.done_here.update(result.change_id for result in results if result.outcome == "committed")
        if any(result.failed for result in results):
            self.results += results
            return False
        # A later step may refuse the partition; without this list no report would name the finished change.
        self.completed += results
        return True

    def _staging(self, target: PartitionPlan, half_done_in_root: str) -> Staging | None:
        """Return what has to be staged for a target; record its refusal as a result."""
        folder = journal_folder(self.disk, self.plan, target)
        try:
            states = may_begin(self.plan, self.work.view, target, folder, half_done_in_root)
        except (KrepairError, OSError) as error:
            self.results.append(failed_partition(target, error))
            return None
        self.states |= states
        todo = tuple(change for change in target.changes if states[change.change_id] in NOT_DONE)
        return Staging(target, listed(self.work.view, target), folder, todo)

    def _prove_purged(self, stagings: Sequence[Staging]) -> None:
        """Verify files that look like a purged apply's output: size and time alone do not prove it."""
        proof = Work(self.plan, self.work.view, self.engine, self.disk, scratch=self.scratch)
        verify_all(
            proof, [staging.only(*filter(self._is_purged, staging.plan.changes)) for staging in stagings]
        )
        wrong = {wrong_file.folder: wrong_file for wrong_file in reversed(proof.wrong)}
        for staging in stagings:
            mismatch = wrong.get(staging.plan.folder)
            if mismatch is not None:
                staging.problem = StalePlanError(
                    f"{mismatch.change_id}: {mismatch.text}; it is neither what the plan was made of nor what it makes",
                    next_command=plan_command(self.plan),
                )

    def _is_purged(self, change: Change) -> bool:
        return self.states[change.change_id] is ChangeState.PURGED

    def _check_order(self, stagings: Sequence[Staging]) -> None:
        """Check that the order of commit still suits the partitions that need the recovery guard or a certain order."""
        ordered = [
            staging
            for staging in stagings
            if staging.problem is None and lowest_changes([_remaining(staging)])
        ]
        remaining = [_remaining(staging) for staging in ordered]
        harm = self._damage_now(self.work.view, remaining)
        for staging in ordered if harm else ():
            staging.problem = StalePlanError(harm, next_command=plan_command(self.plan))
        self.commit = commit_now(self.plan, self.work.view, remaining, "", self.options.broker_version)

    def _damage_now(self, view: LogDir, remaining: Sequence[PartitionPlan]) -> str:
        keeps_marker = self.guards.watch is not None and self.guards.watch.keeps_marker()
        return damage_now(self.plan, view, remaining, self.engine, self.scratch, keeps_marker)

    def _leave_without_room(self, staging: Staging) -> None:
        """Refuse a partition that no longer fits on the disk."""
        why = why_no_room(self.plan, _remaining(staging)) if staging.changes else ""
        if why and staging.problem is None:
            staging.problem = RefusedError(why)

    def _stage_ahead(self, stagings: Sequence[Staging]) -> None:
        """Stage all changes that can be staged before anything is committed."""
        able = [staging for staging in stagings if staging.problem is None]
        parts = [
            staging.only(*(change for change in staging.changes if not self._waits(staging, change)))
            for staging in able
        ]
        self.staged.update(change.change_id for part in parts for change in part.changes)
        # From here on krepair has files in the directory, and they stay there if the lock is lost.
        self.guards.begun = self.guards.begun or any(part.changes for part in parts)
        stage_all(self.work, [part for part in parts if part.changes])
        for staging, part in zip(able, parts, strict=True):
            staging.problem = staging.problem or part.problem

    def _waits(self, staging: Staging, change: Change) -> bool:
        """Return whether a change is staged late: in the root, or after the groups that make its room."""
        keeps = self.plan.policy.keep == INPLACE
        return is_root(staging.plan) or (not keeps and change.by_itself)

    def _drop_journals(self, targets: Sequence[PartitionPlan]) -> None:
        """Remove the journals of a plan that is carried out completely and whose originals apply has freed."""
        if any(result.outcome not in {"committed", "already"} for result in self.results):
            return
        for target in targets:
            if all(map(is_freed_by_apply, target.changes)):
                try:
                    self.guards.hold()
                    drop_finished(journal_folder(self.disk, self.plan, target))
                except (KrepairError, OSError):
                    return  # the journal is no longer needed; purge removes it

    # -- a partition

    def _commit_target(self, staging: Staging) -> list[ChangeResult]:
        target = staging.plan
        if staging.problem is not None:
            self._drop_stage(target, staging.folder)
            return [failed(target.folder, staging.problem)]
        remaining = tuple(change for change in target.changes if not self._is_purged(change))
        results = [
            ChangeResult(change_id=change.change_id, partition=target.folder, outcome="already")
            for change in filter(self._is_purged, target.changes)
        ]
        if not remaining:
            return results
        try:
            check_no_fence(target, self.guards.watch)
        except (KrepairError, OSError) as error:
            return [*results, failed_partition(target, error)]
        committed = commit_partition(
            staging.folder,
            replace(
                target, changes=remaining, files=_files_after(target, filter(self._is_purged, target.changes))
            ),
            self.commit,
            self.guards,
            lambda change: self._stage(staging, change),
            verify=lambda changes: self._read_again(staging, changes),
            staged=staging.staged,
        )
        if not any(result.outcome == "committed" for result in committed):
            self._drop_stage(target, staging.folder)
        return results + [
            replace(result, outcome="already")
            if result.outcome == "committed" and self._was_done(result)
            else result
            for result in committed
        ]

    def _stage(self, staging: Staging, change: Change) -> None:
        # A committed change is only staged again to complete what it left undone: that is work of this run.
        self.done_here.add(change.change_id)
        if change.change_id in self.staged:
            self.staged.discard(change.change_id)
            return
        if is_root(staging.plan):
            # the root describes partitions that this run has changed
            self.work.view = read_log_dir(self.plan.log_dir)
        part = staging.only(change)
        stage_all(self.work, [part])
        if part.problem is not None:
            raise part.problem

    def _read_again(self, staging: Staging, changes: Sequence[Change]) -> dict[str, str]:
        """Verify the changes' files on disk against plan and originals; return change id -> what is wrong."""
        folder = staging.folder
        # Drop cached pages: otherwise the comparison reads memory and misses a write that the disk lost.
        for name in {name for change in changes for name in change.leaves}:
            path = folder.at(name)
            if self.disk.tree.is_there(path):
                drop_from_cache(path, self.disk.tree)
        part = staging.only(*changes)
        part.staged = staged_groups(folder.journal())
        part.partition = read_partition(self.work.view, staging.plan.folder)
        if part.partition is not None and part.partition.unreadable:
            raise UnreadableError(f"{part.partition.unreadable}; what it kept was not freed")
        proof = Work(self.plan, self.work.view, self.engine, self.disk, originals=True, scratch=self.scratch)
        verify_all(proof, [part])
        if not proof.wrong:
            staging.made.update(change.change_id for change in changes)
        return {
            mismatch.change_id or changes[0].change_id: mismatch.text for mismatch in reversed(proof.wrong)
        }

    def _was_done(self, result: ChangeResult) -> bool:
        """Return whether an earlier run had already completed a change, not just begun it."""
        return result.change_id not in self.done_here and self.states.get(result.change_id) in FINISHED

    def _drop_unused(self, targets: Sequence[PartitionPlan]) -> None:
        """Remove work folders without changes after the whole plan was refused."""
        with contextlib.suppress(KrepairError, OSError):
            self.guards.hold()
            for target in targets:
                folder = journal_folder(self.disk, self.plan, target)
                if self.disk.tree.is_folder(folder.private):
                    self._drop_stage(target, folder)

    def _drop_stage(self, target: PartitionPlan, folder: PartitionFolder) -> None:
        """Remove what was staged for a refused target, unless its journal records a change."""
        try:
            states = status_in(folder, target).values()
            if NOT_DONE.issuperset(states):
                # Backups without a record in the journal would be deleted together with the work folder.
                check_nothing_kept(folder, folder.journal())
                remove_private_folder(folder)
        except (OSError, KrepairError):
            return  # the next apply or undo removes it


def _remaining(staging: Staging) -> PartitionPlan:
    return replace(staging.plan, changes=staging.changes)


def _files_after(target: PartitionPlan, purged: Iterable[Change]) -> tuple[FileFingerprint, ...]:
    """Return the fingerprints to check before a change begins, updated for purged changes."""
    made = {
        file.name: file for change in purged for file in change.files if file.mtime_ns >= 0 and not file.goes
    }
    return tuple(
        replace(file, size=made[file.name].size, mtime_ns=made[file.name].mtime_ns, digest="")
        if file.name in made
        else file
        for file in target.files
    )
