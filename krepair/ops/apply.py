"""``krepair apply``: does exactly what a plan says: stages, verifies, swaps; run again it continues."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial

from msgspec import UNSET
from msgspec.structs import replace

from krepair.commit.fence import Watch
from krepair.commit.folder import PartitionFolder
from krepair.commit.guards import Guards, SafePoints, signals_wait
from krepair.commit.partition import commit_partition, finish_partition
from krepair.commit.purge import drop_finished, remove_private_folder
from krepair.commit.result import ChangeResult, failed
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
from krepair.fixes.staging import Staging, Work, Wrong
from krepair.logdir.values import LogDir
from krepair.logdir.view import read_log_dir, read_partition
from krepair.next_command import NOTHING, PLAN, Next, of_error
from krepair.ops.carried_out import (
    Measured,
    failed_partition,
    failed_whole,
    notes_of_fences,
    with_completed,
    with_taken_back,
)
from krepair.ops.kept import PlanKeeper
from krepair.ops.order import commit_now, damage_now, lowest_changes
from krepair.ops.ready import (
    FINISHED,
    NOT_DONE,
    check_evidence,
    check_no_fence,
    check_target,
    commit_order,
    is_root,
    journal_folder,
    listed,
    may_begin,
    others_of,
    ready,
    targets_of,
)
from krepair.ops.reports import ApplyReport, next_of
from krepair.ops.room import check_fits, why_no_room
from krepair.ops.show import plan_command
from krepair.ops.stack import next_number
from krepair.ops.true_indexes import untrue_index
from krepair.options import Options
from krepair.plan.keep import INPLACE, is_freed_by_apply
from krepair.plan.model import Change, FileFingerprint, PartitionPlan, Plan

# A partition that is healthy and whose apply failed for another reason (space, a stale plan) can be cleaned.
_UNCLEANABLE = {ExitCode.UNREADABLE, ExitCode.VERIFY_FAILED}
_AGAIN = Next.of("apply", PLAN)


def apply(
    plan: Plan, options: Options, progress: Progress | None = None, *, disk: Disk | None = None
) -> ApplyReport:
    """Carry out a plan.

    Args:
        plan: as read from its file.
        options: only ``engine``, ``master``, ``scratch`` and those of ``--cluster...``
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
        writes, lock = stack.enter_context(ready(plan, disk, others_of(plan)))
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
        guards.settle(folders)
        report = _Apply(plan, engine, writes, guards, scratch, options, moved, view).report(targets)
        report = replace(report, notes=notes_of_fences(guards.not_given_back))
        return with_taken_back(measured.told_in(report), guards.taken_back)


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
        self.results: list[ChangeResult] = []
        self.states: dict[str, ChangeState] = {}
        """Change id -> its state before the first one was staged."""
        self.done_here: set[str] = set()
        """Ids of the changes that this run has carried out, or has finished."""
        self.staged: set[str] = set()
        """Ids of the changes that are staged and not committed yet."""
        self.not_made: list[Wrong] = []
        self.completed: list[ChangeResult] = []
        """Changes that an earlier run left half done and that this one has finished."""
        self.work: Work
        self.commit = plan.commit
        """The order of the renames, for the broker that is there now."""

    def report(self, targets: Sequence[PartitionPlan]) -> ApplyReport:
        interrupted, stopped = False, NOTHING
        try:
            self._carry_out(targets)
        except InterruptedAtSafePointError:
            interrupted = True
        except KrepairError as error:
            if not isinstance(error, LockLostError):
                self._drop_unused(targets)
                if not self.completed and not self.guards.taken_back:
                    raise
                stopped = of_error(error)
            # Of these nothing was said yet: from here on nothing was touched.
            known = {result.partition for result in self.results}
            self.results += [failed(one.folder, error) for one in targets if one.folder not in known]
        results = with_completed(self.results, self.completed)
        told = {result.partition for result in results if result.failed}
        # What was left out for one partition only, as the line of its recovery point.
        results += [
            failed_whole(wrong.folder, wrong.text, ExitCode.PARTLY)
            for wrong in self.not_made
            if wrong.folder not in told
        ]
        order = {partition.folder: number for number, partition in enumerate(self.plan.partitions)}
        results.sort(key=lambda result: (order.get(result.partition, -1), result.change_id))
        broken = {result.partition for result in results if result.exit_code in _UNCLEANABLE}
        broken_bytes = [one.log_bytes_before for one in self.plan.partitions if one.folder in broken]
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
        """A plan of which nothing was carried out because the directory has changed since has to be made again."""
        codes = {result.exit_code for result in results if result.failed}
        if codes == {ExitCode.STALE_PLAN} and all(one.outcome in {"failed", "skipped"} for one in results):
            return plan_command(self.plan)
        return Next.of("verify", PLAN)

    # -- a directory

    def _carry_out(self, targets: Sequence[PartitionPlan]) -> None:
        """What was interrupted first, in all targets; then one target after the other.

        Where originals stay in place, all is staged before the first one: that is one job. Where apply frees them, only
        what the next group needs is.
        """
        plan = self.plan
        harm = self._ask_first(targets)
        able = [target for target in sorted(targets, key=is_root) if self._finish(target, harm)]
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
        check_fits(plan, [_left(staging) for staging in stagings if staging.changes], self.options)
        self._check_order(stagings)
        if plan.policy.keep == INPLACE:
            self._stage_ahead(stagings)
        for staging in stagings:
            if plan.policy.keep != INPLACE:
                self._leave_without_room(staging)
                self._stage_ahead([staging])
            self.results += self._commit(staging)
            staging.decided.clear()
        self._drop_journals(targets)

    def _ask_first(self, targets: Sequence[PartitionPlan]) -> str:
        """What is asked before anything half done goes on: the order of the renames; gives what harm the fence does."""
        half_done = []
        for target in targets:
            with contextlib.suppress(KrepairError, OSError):
                if journal_folder(self.disk, self.plan, target).journal().unfinished():
                    half_done.append(target)
        harm = self._damage_now(self.view, half_done) if half_done else ""
        with contextlib.suppress(RefusedError):
            self.commit = commit_now(self.plan, self.view, half_done, harm, self.options.broker_version)
        return harm

    def _finish(self, target: PartitionPlan, harm: str) -> bool:
        """Finishes what an interrupted run left half done; returns whether the target can go on.

        What has not passed its commit, and would not be begun now, is taken back.
        """
        stays = harm or self.moved.get((target.topic, target.partition), "")
        folder = journal_folder(self.disk, self.plan, target)
        try:
            if not self.disk.tree.is_folder(folder.private):
                return True
            self.was_begun = True
            check_no_fence(target, self.guards.watch)
            results = finish_partition(folder, target, self.commit, self.guards, may_not_begin=bool(stays))
        except (InterruptedAtSafePointError, LockLostError):
            raise
        except (KrepairError, OSError) as error:
            self.results.append(failed_partition(target, error))
            return False
        self.done_here.update(one.change_id for one in results if one.outcome == "committed")
        if any(one.failed for one in results):
            self.results += results
            return False
        # What comes after may be refused, and then nobody else tells that this was done.
        self.completed += results
        return True

    def _staging(self, target: PartitionPlan, half_done_in_root: str) -> Staging | None:
        """What has to be staged for a target; its refusal goes into the results."""
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
        """Reads what looks like the work of an apply that was purged: size and time alone do not make it so."""
        proof = Work(self.plan, self.work.view, self.engine, self.disk, scratch=self.scratch)
        verify_all(proof, [one.only(*filter(self._is_purged, one.plan.changes)) for one in stagings])
        wrong = {one.folder: one for one in reversed(proof.wrong)}
        for staging in stagings:
            found = wrong.get(staging.plan.folder)
            if found is not None:
                staging.problem = StalePlanError(
                    f"{found.change_id}: {found.text}; it is neither what the plan was made of nor what it makes",
                    next_command=plan_command(self.plan),
                )

    def _is_purged(self, change: Change) -> bool:
        return self.states[change.change_id] is ChangeState.PURGED

    def _check_order(self, stagings: Sequence[Staging]) -> None:
        """The order of commit must still be right for the partitions that go under the fence, or in its order."""
        ordered = [one for one in stagings if one.problem is None and lowest_changes([_left(one)])]
        left = [_left(one) for one in ordered]
        why = self._damage_now(self.work.view, left)
        for staging in ordered if why else ():
            staging.problem = StalePlanError(why, next_command=plan_command(self.plan))
        self.commit = commit_now(self.plan, self.work.view, left, "", self.options.broker_version)

    def _damage_now(self, view: LogDir, left: Sequence[PartitionPlan]) -> str:
        keeps_marker = self.guards.watch is not None and self.guards.watch.keeps_marker()
        return damage_now(self.plan, view, left, self.engine, self.scratch, keeps_marker)

    def _leave_without_room(self, staging: Staging) -> None:
        """A partition for which there is no room any more is left as it is."""
        why = why_no_room(self.plan, _left(staging)) if staging.changes else ""
        if why and staging.problem is None:
            staging.problem = RefusedError(why)

    def _stage_ahead(self, stagings: Sequence[Staging]) -> None:
        """Everything of these targets that is staged before any of it is committed."""
        able = [staging for staging in stagings if staging.problem is None]
        parts = [
            staging.only(*(one for one in staging.changes if not self._waits(staging, one)))
            for staging in able
        ]
        self.staged.update(change.change_id for part in parts for change in part.changes)
        # From here on files of ours are in the directory, and they stay if the lock is lost.
        self.guards.begun = self.guards.begun or any(part.changes for part in parts)
        stage_all(self.work, [part for part in parts if part.changes])
        for staging, part in zip(able, parts, strict=True):
            staging.problem = staging.problem or part.problem

    def _waits(self, staging: Staging, change: Change) -> bool:
        """Whether it is staged only when those before it are done: a group whose room those make; the root."""
        keeps = self.plan.policy.keep == INPLACE
        return is_root(staging.plan) or (not keeps and change.by_itself)

    def _drop_journals(self, targets: Sequence[PartitionPlan]) -> None:
        """The whole plan is carried out: where apply freed everything, its records go too."""
        if any(result.outcome not in {"committed", "already"} for result in self.results):
            return
        for target in targets:
            if all(map(is_freed_by_apply, target.changes)):
                try:
                    self.guards.hold()
                    drop_finished(journal_folder(self.disk, self.plan, target))
                except (KrepairError, OSError):
                    return  # it holds nothing that anybody needs; purge removes it

    # -- a partition

    def _commit(self, staging: Staging) -> list[ChangeResult]:
        target = staging.plan
        if staging.problem is not None:
            self._drop_stage(target, staging.folder)
            return [failed(target.folder, staging.problem)]
        left = tuple(change for change in target.changes if not self._is_purged(change))
        results = [
            ChangeResult(change_id=change.change_id, partition=target.folder, outcome="already")
            for change in filter(self._is_purged, target.changes)
        ]
        if not left:
            return results
        try:
            check_no_fence(target, self.guards.watch)
        except (KrepairError, OSError) as error:
            return [*results, failed_partition(target, error)]
        came = commit_partition(
            staging.folder,
            replace(
                target, changes=left, files=_files_after(target, filter(self._is_purged, target.changes))
            ),
            self.commit,
            self.guards,
            lambda change: self._stage(staging, change),
            verify=lambda changes: self._read_again(staging, changes),
            staged=staging.staged,
        )
        if not any(one.outcome == "committed" for one in came):
            self._drop_stage(target, staging.folder)
        return results + [
            replace(one, outcome="already") if one.outcome == "committed" and self._was_done(one) else one
            for one in came
        ]

    def _stage(self, staging: Staging, change: Change) -> None:
        # A committed change is staged once more for what it left undone: then this run does it.
        self.done_here.add(change.change_id)
        if change.change_id in self.staged:
            self.staged.discard(change.change_id)
            return
        if is_root(staging.plan):
            self.work.view = read_log_dir(self.plan.log_dir)  # the partitions have changed by now
        again = staging.only(change)
        stage_all(self.work, [again])
        if again.problem is not None:
            raise again.problem

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

    def _was_done(self, result: ChangeResult) -> bool:
        """Whether an earlier run has done it, and not only begun it."""
        return result.change_id not in self.done_here and self.states.get(result.change_id) in FINISHED

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


def _files_after(target: PartitionPlan, purged: Iterable[Change]) -> tuple[FileFingerprint, ...]:
    """Return the files that are looked at before a change begins, as changes that were purged have left them."""
    made = {
        file.name: file for change in purged for file in change.files if file.mtime_ns >= 0 and not file.goes
    }
    return tuple(
        replace(one, size=made[one.name].size, mtime_ns=made[one.name].mtime_ns, digest="")
        if one.name in made
        else one
        for one in target.files
    )
