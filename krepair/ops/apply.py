"""``krepair apply``: does exactly what a plan says: stages, verifies, swaps; run again it continues."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from krepair.durable.disk import Disk
from krepair.durable.real_disk import drop_from_cache
from krepair.durable.scratch import Scratch
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
from krepair.fixes.context import Context, told_version
from krepair.fixes.staging import Staging, Work, Wrong
from krepair.formats.filenames import log_name
from krepair.journal.fence import Watch
from krepair.journal.folder import PartitionFolder
from krepair.journal.guards import Guards
from krepair.journal.outcome import ChangeFailed, Committed, Outcome
from krepair.journal.plan_copy import PlanKeeper
from krepair.journal.purge import drop_finished, remove_private_folder
from krepair.journal.runner import commit_partition, finish_partition
from krepair.journal.safe_points import SafePoints, signals_wait
from krepair.journal.status import ChangeState, staged_groups, status_in
from krepair.journal.unrecorded import check_nothing_kept
from krepair.logdir.config import load_settings
from krepair.logdir.lock import Lock, hold_lock
from krepair.logdir.values import LogDir
from krepair.logdir.view import read_partition
from krepair.ops.may_begin import NOT_DONE, MayBegin
from krepair.ops.order import active_segments, damage_met, lowest_changes
from krepair.ops.plan_command import plan_command
from krepair.ops.reports import ApplyReport, ChangeResult, next_of
from krepair.ops.rests_on import assigned_since, hold_others, moved_since
from krepair.ops.result_lines import (
    Measured,
    failed_partition,
    failed_whole,
    notes_of_fences,
    result_of,
    with_completed,
    with_taken_back,
)
from krepair.ops.room import check_fits, why_not_begun, why_not_now
from krepair.ops.target import (
    check_ground,
    check_no_fence,
    check_target,
    commit_order,
    disk_of,
    is_root,
    journal_folder,
    listed,
    targets_of,
    view_of,
)
from krepair.options import Options
from krepair.pipeline.engines.choice import Load, WorkKind, choose_engine
from krepair.pipeline.engines.engine import Engine
from krepair.pipeline.progress import Progress
from krepair.plan.facts import OnDisk
from krepair.plan.keep import INPLACE
from krepair.plan.model import Change, FreeWhenVerified, PartitionPlan, Plan

# A partition that is healthy and whose apply failed for another reason (space, a stale plan) can be cleaned.
_UNCLEANABLE = {ExitCode.UNREADABLE, ExitCode.VERIFY_FAILED}
_FINISHED = {ChangeState.COMMITTED, ChangeState.FREED, ChangeState.PURGED}


def apply(
    plan: Plan, options: Options, progress: Progress | None = None, *, disk: Disk | None = None
) -> ApplyReport:
    """Carry out a plan.

    Args:
        plan: as read from its file.
        options: only ``engine``, ``master``, ``at`` and those of ``--cluster...``
            count; everything else is the plan's.
        progress: told of bytes.
        disk: what writes; a test may wrap it.

    Raises:
        LockedError: a broker is using the directory.
        RefusedError: the review objects, there is no space, the directory cannot be written, or a replica must not be
            emptied (any more).
        StalePlanError: the plan is for another host or directory.
        UnwritableError: what an earlier run left could not be written out.
    """
    plan = check_target(plan)
    targets = targets_of(plan)
    if not targets:
        return ApplyReport(verb="apply", plan_id=plan.plan_id, log_dir=plan.log_dir, engine="nothing to do")
    with contextlib.ExitStack() as stack:
        scratch = Scratch(options.scratch, (plan.log_dir,))
        stack.callback(scratch.close)
        if options.scratch:
            # a place that will not do is refused before anything of ours is in the log directory
            _ = scratch.path
        writes = stack.enter_context(disk_of(plan, disk))
        check_ground(plan, writes)
        lock = stack.enter_context(hold_lock(plan.log_dir, writes))
        hold_others(plan, stack)
        moved = moved_since(plan)
        view = view_of(plan)
        moved |= assigned_since(plan, view)
        safe_points = stack.enter_context(signals_wait(SafePoints()))
        engine = choose_engine(options.engine, options.master, _work_of(targets), progress)
        stack.callback(engine.close)
        guards = _guards(plan, writes, lock, safe_points)
        guards.keep_plan = PlanKeeper(writes, plan).keep_in
        measured = Measured(writes.tree, [journal_folder(writes, plan, target) for target in targets])
        report = _Apply(plan, engine, writes, guards, scratch, options, moved, view).report(targets)
        report = replace(report, notes=notes_of_fences(guards.not_given_back))
        return with_taken_back(measured.told_in(report), guards.taken_back)


def _guards(plan: Plan, disk: Disk, lock: Lock, safe_points: SafePoints) -> Guards:
    on_disk = {target.folder: OnDisk.of(target.files, plan.policy) for target in targets_of(plan)}

    def check_space(change: Change) -> None:
        why = why_not_now(plan, change, on_disk[change.change_id.partition("/")[0]])
        if why:
            raise RefusedError(why)

    return Guards(lock, safe_points, check_space, Watch(disk, plan.log_dir))


def _next(plan: Plan, results: Sequence[ChangeResult], asked_for: Sequence[str]) -> str:
    """What to type where nothing is left to continue.

    A plan of which nothing was carried out because the directory has changed since has to be made again.
    """
    failed = {result.exit_code for result in results if result.outcome == "failed"}
    if failed == {ExitCode.STALE_PLAN} and all(result.outcome in {"failed", "skipped"} for result in results):
        return plan_command(plan)
    return next(iter(asked_for), "krepair verify PLAN")


def _waits(staging: Staging, change: Change, keep: str) -> bool:
    """Whether a change is staged only when the changes before it are done: a group whose room those make; the root."""
    return is_root(staging.plan) or (keep != INPLACE and change.by_itself)


def _work_of(targets: Sequence[PartitionPlan]) -> Load:
    """Bytes that are staged, by what that costs."""
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
        """Whether an earlier run has left something: what it left half done was finished, or taken back."""
        self.engine = engine
        self.disk = disk
        self.scratch = scratch
        self.guards = guards
        self.options = options
        self.moved = moved
        self.states: dict[str, dict[str, ChangeState]] = {}
        self.finished: dict[str, set[str]] = {}
        self.staged: dict[str, set[str]] = {}
        """Folder -> ids of the changes that are staged and not committed yet."""
        self.not_made: list[Wrong] = []
        self.completed: list[ChangeResult] = []
        """Changes that an earlier run left half done and that this one has finished."""
        self.work: Work
        self.may_begin: MayBegin

    def report(self, targets: Sequence[PartitionPlan]) -> ApplyReport:
        results: list[ChangeResult] = []
        interrupted, stopped, again = False, "", "krepair apply PLAN"
        try:
            self._carry_out(targets, results)
        except InterruptedAtSafePointError:
            interrupted = True
        except LockLostError as error:
            results += self._all_missing(targets, results, error)
        except KrepairError as error:
            if not self.completed and not self.guards.taken_back:
                raise
            stopped = error.next_command
            results += self._all_missing(targets, results, error)
        results[:] = with_completed(results, self.completed)
        told = {result.partition for result in results if result.outcome == "failed"}
        # What was left out for one partition only, as the line of its recovery point.
        results += [
            failed_whole(wrong.folder, wrong.text, ExitCode.PARTLY)
            for wrong in self.not_made
            if wrong.folder not in told
        ]
        order = {partition.folder: number for number, partition in enumerate(self.plan.partitions)}
        results.sort(key=lambda result: (order.get(result.partition, -1), result.change_id))
        failed = {result.partition for result in results if result.exit_code in _UNCLEANABLE}
        failed_bytes = [one.log_bytes_before for one in self.plan.partitions if one.folder in failed]
        return ApplyReport(
            verb="apply",
            plan_id=self.plan.plan_id,
            log_dir=self.plan.log_dir,
            results=tuple(results),
            engine=self.engine.why,
            slow_because=self.engine.slow_because,
            uncleanable_partitions=self.plan.uncleanable_partitions + len(failed_bytes),
            uncleanable_bytes=self.plan.uncleanable_bytes + sum(failed_bytes),
            interrupted=interrupted,
            next_command=again
            if interrupted
            else stopped or next_of(results, again, _next(self.plan, results, self.guards.asked_for)),
        )

    def _carry_out(self, targets: Sequence[PartitionPlan], results: list[ChangeResult]) -> None:
        """What was interrupted first, in all targets; then one target after the other.

        Where originals stay in place, all is staged before the first one: that is one job. Where apply frees them, only
        what the next group needs is.
        """
        self.guards.settle([journal_folder(self.disk, self.plan, target) for target in targets])
        try:
            self._carry_out_settled(targets, results)
        except (InterruptedAtSafePointError, LockLostError):
            raise
        except KrepairError:
            self._drop_unused(targets)
            raise

    def _carry_out_settled(self, targets: Sequence[PartitionPlan], results: list[ChangeResult]) -> None:
        able = [target for target in sorted(targets, key=is_root) if self._finish(target, results)]
        self.work = Work(
            self.plan,
            view_of(self.plan) if self.was_begun else self.view,
            self.engine,
            self.disk,
            wrong=self.not_made,
            scratch=self.scratch,
            keep_plan=self.guards.keep_plan,
            moved=self.moved,
        )
        self.may_begin = MayBegin(self.plan, self.work.view)
        stagings = [self._staging(part, results) for part in commit_order(able)]
        ready = [staging for staging in stagings if staging is not None]
        self._prove_purged(ready)
        check_fits(self.plan, [_left(staging) for staging in ready if staging.changes], self.options)
        self._check_order(ready)
        alone: list[Sequence[Staging]] = [[staging] for staging in ready]
        rounds = [ready] if self.plan.policy.keep == INPLACE else alone
        for one_round in rounds:
            for staging in one_round if self.plan.policy.keep != INPLACE else ():
                self._leave_without_room(staging)
            self._stage_ahead([staging for staging in one_round if staging.problem is None])
            for staging in one_round:
                results.extend(self._commit(staging))
                staging.decided.clear()
        self._drop_journals(targets, results)

    def _leave_without_room(self, staging: Staging) -> None:
        """A partition for which there is no room any more is left as it is."""
        why = why_not_begun(self.plan, _left(staging)) if staging.changes else ""
        if why and staging.problem is None:
            staging.problem = RefusedError(why)

    def _stage_ahead(self, stagings: Sequence[Staging]) -> None:
        """Everything of these targets that is staged before any of it is committed."""
        parts = []
        for staging in stagings:
            ahead = [
                change for change in staging.changes if not _waits(staging, change, self.plan.policy.keep)
            ]
            self.staged[staging.plan.folder] = {change.change_id for change in ahead}
            parts.append((staging, staging.only(*ahead)))
        # From here on files of ours are in the directory, and they stay if the lock is lost.
        self.guards.begun = self.guards.begun or any(part.changes for _, part in parts)
        stage_all(self.work, [part for _, part in parts if part.changes])
        for staging, part in parts:
            staging.problem = staging.problem or part.problem

    def _drop_journals(self, targets: Sequence[PartitionPlan], results: Sequence[ChangeResult]) -> None:
        """The whole plan is carried out: where apply freed everything, its records go too."""
        if any(result.outcome not in {"committed", "already"} for result in results):
            return
        for target in targets:
            if all(isinstance(change.undo, FreeWhenVerified) for change in target.changes):
                try:
                    self.guards.hold()
                    drop_finished(journal_folder(self.disk, self.plan, target))
                except (KrepairError, OSError):
                    return  # it holds nothing that anybody needs; purge removes it

    def _finish(self, partition: PartitionPlan, results: list[ChangeResult]) -> bool:
        """Finishes what an interrupted run left half done; returns whether the target can go on."""
        folder = journal_folder(self.disk, self.plan, partition)
        try:
            if not self.disk.tree.is_folder(folder.private):
                return True
            self.was_begun = True
            check_no_fence(partition, self.guards.watch)
            outcomes = finish_partition(folder, partition, self.plan.commit, self.guards)
        except (InterruptedAtSafePointError, LockLostError):
            raise
        except (KrepairError, OSError) as error:
            results.append(failed_partition(partition, error))
            return False
        self.finished[partition.folder] = {
            outcome.change_id for outcome in outcomes if isinstance(outcome, Committed)
        }
        if not any(isinstance(outcome, ChangeFailed) for outcome in outcomes):
            # What comes after may be refused, and then nobody else tells that this was done.
            self.completed += [result_of(partition.folder, outcome) for outcome in outcomes]
            return True
        results += [result_of(partition.folder, outcome) for outcome in outcomes]
        return False

    def _all_missing(
        self, targets: Sequence[PartitionPlan], results: Sequence[ChangeResult], error: KrepairError
    ) -> list[ChangeResult]:
        """Every target of which nothing was said yet: from here on nothing was touched."""
        known = {result.partition for result in results}
        return [failed_partition(target, error) for target in targets if target.folder not in known]

    def _staging(self, target: PartitionPlan, results: list[ChangeResult]) -> Staging | None:
        """What has to be staged for a target; its refusal goes into the results."""
        partition = listed(self.work.view, target)
        folder = journal_folder(self.disk, self.plan, target)
        try:
            states = self.may_begin.states_of(target, partition, folder)
        except (KrepairError, OSError) as error:
            results.append(failed_partition(target, error))
            return None
        self.states.setdefault(target.folder, {}).update(states)
        todo = tuple(change for change in target.changes if states[change.change_id] in NOT_DONE)
        return Staging(target, partition, folder, todo)

    def _prove_purged(self, stagings: Sequence[Staging]) -> None:
        """Reads what looks like the work of an apply that was purged: size and time alone do not make it so."""
        looks_purged = [
            staging.only(
                *(
                    change
                    for change in staging.plan.changes
                    if self.states[staging.plan.folder][change.change_id] is ChangeState.PURGED
                )
            )
            for staging in stagings
        ]
        proof = Work(self.plan, self.work.view, self.engine, self.disk, scratch=self.scratch)
        verify_all(proof, looks_purged)
        wrong = {one.folder: one for one in reversed(proof.wrong)}
        for staging in stagings:
            found = wrong.get(staging.plan.folder)
            if found is not None:
                staging.problem = StalePlanError(
                    f"{found.change_id}: {found.text}; it is neither what the plan was made of nor what it makes",
                    next_command=plan_command(self.plan),
                )

    # -- the order of commit

    def _check_order(self, stagings: Sequence[Staging]) -> None:
        """The fence must still be right: other active segments than those of the plan are read again.

        Without the fence the order is that of the broker's version, which is right whatever there is.
        """
        commit, view = self.plan.commit, self.work.view
        fenced = [one for one in stagings if one.problem is None and lowest_changes([_left(one)])]
        if not commit.fence and fenced and not (self.plan.policy.broker_version or told_version(view)):
            raise RefusedError(
                f"plan {self.plan.plan_id} goes without the fence, and nothing says which broker will be started, so "
                "the safe order of the swaps is not known; plan again with --broker-version",
                next_command=plan_command(self.plan),
            )
        if not commit.fence or not fenced or commit.looked_at == active_segments(view):
            return
        watch = self.guards.watch
        clean = view.clean_shutdown or (watch is not None and watch.keeps_marker())
        options = Options(now_ms=self.plan.policy.now_ms)
        settings = load_settings(None, None, {})
        context = Context(view._replace(clean_shutdown=clean), settings, options, self.engine, self.scratch)
        met = damage_met(context, [_left(one) for one in fenced])
        for staging in fenced if met else ():
            staging.problem = StalePlanError(
                f"{met[0].folder}/{log_name(met[0].base_offset)} is damaged, and was not when the plan was made: under "
                "the fence a broker that is started meanwhile would cut it",
                next_command=plan_command(self.plan),
            )

    # -- commit

    def _commit(self, staging: Staging) -> list[ChangeResult]:
        target, before = staging.plan, self.states[staging.plan.folder]
        if staging.problem is not None:
            self._drop_stage(target, staging.folder)
            return [failed_partition(target, staging.problem)]
        left = tuple(
            change for change in target.changes if before[change.change_id] is not ChangeState.PURGED
        )
        purged = [
            ChangeResult(change_id=change.change_id, partition=target.folder, outcome="already")
            for change in target.changes
            if change not in left
        ]
        if not left:
            return purged
        outcomes = self._commit_changes(staging, left)
        if isinstance(outcomes, ChangeResult):
            return [*purged, outcomes]
        if not any(isinstance(outcome, Committed) for outcome in outcomes):
            self._drop_stage(target, staging.folder)
        return purged + [
            result_of(
                target.folder,
                outcome,
                already=self._was_done(target.folder, outcome.change_id),
            )
            for outcome in outcomes
        ]

    def _commit_changes(self, staging: Staging, left: Sequence[Change]) -> Sequence[Outcome] | ChangeResult:
        staged = self.staged[staging.plan.folder]

        def stage(change: Change) -> None:
            # A committed change is staged once more for what it left undone: then this run does it.
            self.finished.setdefault(staging.plan.folder, set()).add(change.change_id)
            if change.change_id in staged:
                staged.discard(change.change_id)
                return
            if is_root(staging.plan):
                self.work.view = view_of(self.plan)  # the partitions have changed by now
            again = staging.only(change)
            stage_all(self.work, [again])
            if again.problem is not None:
                raise again.problem

        try:
            check_no_fence(staging.plan, self.guards.watch)
        except (KrepairError, OSError) as error:
            return failed_partition(staging.plan, error)
        return commit_partition(
            staging.folder,
            replace(staging.plan, changes=tuple(left)),
            self.plan.commit,
            self.guards,
            stage,
            verify=lambda changes: self._read_again(staging, changes),
            staged=staging.staged,
        )

    def _read_again(self, staging: Staging, changes: Sequence[Change]) -> dict[str, str]:
        """Reads what changes made from the disk, against the plan and the originals; gives what is wrong, by change."""
        folder = staging.folder
        for name in {name for change in changes for name in change.leaves}:
            path = folder.at(name)
            if self.disk.tree.is_there(path):
                drop_from_cache(path, self.disk.tree)
        again = staging.only(*changes)
        again.staged = staged_groups(folder.journal())
        again.partition = read_partition(self.work.view, staging.plan.folder)
        if again.partition is not None and again.partition.unreadable:
            raise UnreadableError(f"{again.partition.unreadable}; what it kept was not freed")
        proof = Work(self.plan, self.work.view, self.engine, self.disk, originals=True, scratch=self.scratch)
        verify_all(proof, [again])
        if not proof.wrong:
            staging.made.update(change.change_id for change in changes)
        return {one.change_id or changes[0].change_id: one.text for one in reversed(proof.wrong)}

    def _was_done(self, folder: str, change_id: str) -> bool:
        """Whether an earlier run has done it, and not only begun it."""
        if change_id in self.finished.get(folder, ()):
            return False
        return self.states[folder].get(change_id) in _FINISHED

    def _drop_unused(self, targets: Sequence[PartitionPlan]) -> None:
        """A refusal of the whole plan leaves nothing of ours where nothing was changed."""
        with contextlib.suppress(KrepairError, OSError):
            self.guards.hold()
            for target in targets:
                folder = journal_folder(self.disk, self.plan, target)
                if self.disk.tree.is_folder(folder.private):
                    self._drop_stage(target, folder)

    def _drop_stage(self, target: PartitionPlan, folder: PartitionFolder) -> None:
        """What was staged for a target that is refused goes again, unless the journal holds something."""
        try:
            states = status_in(folder, target).values()
            if NOT_DONE.issuperset(states):
                check_nothing_kept(folder, folder.journal())
                remove_private_folder(folder)
        except (OSError, KrepairError):
            return  # the next apply or undo removes it


def _left(staging: Staging) -> PartitionPlan:
    return replace(staging.plan, changes=staging.changes)
