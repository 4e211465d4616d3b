"""``krepair apply``: does exactly what a plan says: stages, verifies, swaps; run again it continues."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from krepair.durable.disk import Disk
from krepair.durable.writing_error import WritingError
from krepair.errors import (
    ExitCode,
    InterruptedAtSafePointError,
    KrepairError,
    LockLostError,
    RefusedError,
    StalePlanError,
)
from krepair.fixes.swaps import not_completed
from krepair.journal.fence import Watch
from krepair.journal.folder import PartitionFolder
from krepair.journal.guards import Guards
from krepair.journal.outcome import Committed, Failed, Outcome, Undone
from krepair.journal.plan_copy import PlanKeeper
from krepair.journal.purge import check_nothing_kept, remove_private_folder
from krepair.journal.runner import commit_partition, finish_partition
from krepair.journal.safe_points import SafePoints, signals_wait
from krepair.journal.status import ChangeState, read_status
from krepair.logdir.lock import Lock, hold_lock
from krepair.logdir.space import read_space
from krepair.ops.reports import ApplyReport, ChangeOutcome, ChangeResult
from krepair.ops.root import RootRun
from krepair.ops.stage import Stager, Staging
from krepair.ops.target import (
    check_ground,
    check_target,
    disk_of,
    journal_folder,
    listed,
    view_of,
    why_left_alone,
)
from krepair.options import Options
from krepair.pipeline.engine import Engine, choose_engine
from krepair.pipeline.jobs import FINISH
from krepair.pipeline.progress import Progress, SilentProgress
from krepair.plan.build import apply_order
from krepair.plan.figures import (
    PRIVATE_FOLDER_BYTES,
    freed_at_apply,
    peak_bytes,
    plan_copy_bytes,
    root_peak_bytes,
    sizes_by_name,
)
from krepair.plan.model import (
    Change,
    CompleteSwap,
    MendLog,
    PartitionPlan,
    Plan,
    ReplaceFile,
    RewriteSegments,
    SetAside,
)

# A partition that is healthy and whose apply failed for another reason (space, a stale plan) can be cleaned.
_UNCLEANABLE = {ExitCode.UNREADABLE, ExitCode.VERIFY_FAILED}
_FINISHED = {ChangeState.COMMITTED, ChangeState.PURGED}


def apply(
    plan: Plan, options: Options, progress: Progress | None = None, *, disk: Disk | None = None
) -> ApplyReport:
    """Carry out a plan.

    Args:
        plan: as read from its file.
        options: only ``engine`` and ``master`` count; everything else is the plan's.
        progress: told of bytes.
        disk: what writes; a test may wrap it.

    Raises:
        LockedError: a broker is using the directory.
        RefusedError: the review objects, there is no space, or the directory cannot be written.
        StalePlanError: the plan is for another host or directory.
    """
    check_target(plan)
    partitions = apply_order(plan)
    if not partitions and plan.root is None:
        return ApplyReport(verb="apply", plan_id=plan.plan_id, log_dir=plan.log_dir, engine="nothing to do")
    with contextlib.ExitStack() as stack:
        writes = stack.enter_context(disk_of(plan, disk))
        check_ground(plan, writes)
        lock = stack.enter_context(hold_lock(plan.log_dir, writes))
        safe_points = stack.enter_context(signals_wait(SafePoints()))
        engine = choose_engine(options.engine, options.master, _bytes_to_read(partitions))
        stack.callback(engine.close)
        run = _Apply(plan, engine, writes, lock, safe_points, progress or SilentProgress())
        return run.report(partitions)


def _bytes_to_read(partitions: Sequence[PartitionPlan]) -> int:
    changes = [change for each in partitions for change in each.changes]
    rewritten = sum(
        source.log_bytes
        for change in changes
        if isinstance(change, RewriteSegments)
        for source in change.sources
    )
    return rewritten + sum(change.size_before for change in changes if isinstance(change, MendLog))


class _Apply:
    def __init__(
        self, plan: Plan, engine: Engine, disk: Disk, lock: Lock, safe_points: SafePoints, progress: Progress
    ) -> None:
        self.plan = plan
        self.engine = engine
        self.disk = disk
        self.progress = progress
        self.guards = Guards(
            lock,
            safe_points,
            self._check_space,
            Watch(disk, plan.log_dir),
            keep_plan=PlanKeeper(disk, plan).keep_in,
        )
        self.states: dict[str, dict[str, ChangeState]] = {}
        self.finished: dict[str, set[str]] = {}

    def report(self, partitions: Sequence[PartitionPlan]) -> ApplyReport:
        results: list[ChangeResult] = []
        interrupted = False
        try:
            self._carry_out(partitions, results)
        except InterruptedAtSafePointError:
            interrupted = True
        except LockLostError as error:
            results += self._all_missing(partitions, results, error)
        order = {partition.folder: number for number, partition in enumerate(self.plan.partitions)}
        results.sort(key=lambda result: (order.get(result.partition, -1), result.change_id))
        failed = {result.partition for result in results if result.exit_code in _UNCLEANABLE}
        return ApplyReport(
            verb="apply",
            plan_id=self.plan.plan_id,
            log_dir=self.plan.log_dir,
            results=tuple(results),
            engine=self.engine.why,
            uncleanable_partitions=self.plan.uncleanable_partitions + len(failed),
            uncleanable_bytes=self.plan.uncleanable_bytes
            + sum(each.log_bytes_before for each in self.plan.partitions if each.folder in failed),
            interrupted=interrupted,
            next_command="krepair apply PLAN" if interrupted else "krepair verify PLAN",
        )

    def _carry_out(self, partitions: Sequence[PartitionPlan], results: list[ChangeResult]) -> None:
        """What was interrupted first, in all partitions; then the root, since fences need its files; then the rest."""
        able = [partition for partition in partitions if self._finish(partition, results)]
        self.view = view_of(self.plan)
        self.stager = Stager(self.plan, self.view, self.engine, self.disk, self.progress)
        stagings = [self._staging(partition, results) for partition in able]
        ready = [staging for staging in stagings if staging is not None]
        self._prove_purged(ready)
        self._check_total_space(ready)
        self.stager.stage([staging for staging in ready if staging.problem is None])
        if self.plan.root is not None:
            results.extend(RootRun(self.plan, self.plan.root, self.disk).apply(self.engine, self.guards))
        for staging in ready:
            results.extend(self._commit(staging))

    def _finish(self, partition: PartitionPlan, results: list[ChangeResult]) -> bool:
        """Finishes what an interrupted run left half done; returns whether the partition can go on."""
        folder = journal_folder(self.disk, self.plan, partition)
        try:
            if not self.disk.tree.is_folder(folder.private):
                return True
            outcomes = finish_partition(folder, partition, self.plan.commit, self.guards)
        except (InterruptedAtSafePointError, LockLostError):
            raise
        except (KrepairError, OSError) as error:
            results.append(failed_partition(partition, error))
            return False
        self.finished[partition.folder] = {
            outcome.change_id for outcome in outcomes if isinstance(outcome, Committed)
        }
        if not any(isinstance(outcome, Failed) for outcome in outcomes):
            return True
        results += [result_of(partition.folder, outcome) for outcome in outcomes]
        return False

    def _all_missing(
        self, partitions: Sequence[PartitionPlan], results: Sequence[ChangeResult], error: LockLostError
    ) -> list[ChangeResult]:
        """Every partition of which nothing was said yet: from here on nothing was touched."""
        known = {result.partition for result in results}
        return [
            failed_partition(partition, error) for partition in partitions if partition.folder not in known
        ]

    def _staging(self, plan: PartitionPlan, results: list[ChangeResult]) -> Staging | None:
        """What has to be staged for a partition; its refusal goes into the results."""
        partition = listed(self.view, plan)
        folder = journal_folder(self.disk, self.plan, plan)
        try:
            if partition is None or partition.unreadable:
                gone = why_left_alone(folder)
                raise StalePlanError(
                    gone or f"{folder.path}: {partition.unreadable if partition else 'is gone'}"
                )
            states = read_status(self.disk, self.plan.log_dir, self.plan.plan_id, plan)
            unknown = next((change for change, state in states.items() if state is ChangeState.UNKNOWN), "")
            if unknown:
                raise StalePlanError(
                    _why_unknown(folder, plan, unknown),
                    next_command=f"krepair plan {shlex.quote(self.plan.log_dir)} --out PLAN",
                )
        except (KrepairError, OSError) as error:
            results.append(failed_partition(plan, error))
            return None
        self.states[plan.folder] = states
        todo = [
            change
            for change in plan.changes
            if states[change.change_id] in {ChangeState.PLANNED, ChangeState.UNDONE}
        ]
        return Staging(
            plan,
            partition,
            folder,
            tuple(change for change in todo if isinstance(change, RewriteSegments)),
            tuple(change for change in todo if isinstance(change, ReplaceFile)),
            tuple(change for change in todo if isinstance(change, MendLog)),
            tuple(change for change in todo if isinstance(change, SetAside)),
            tuple(change for change in todo if isinstance(change, CompleteSwap)),
        )

    def _prove_purged(self, stagings: Sequence[Staging]) -> None:
        """Reads what looks like the work of an apply that was purged: size and time alone do not make it so."""
        work = []
        for staging in stagings:
            for change in staging.plan.changes:
                if self.states[staging.plan.folder][change.change_id] is not ChangeState.PURGED:
                    continue
                try:
                    if isinstance(change, RewriteSegments):
                        path = staging.folder.path
                        work.append(
                            (staging, self.stager.finish_item(staging, change, stage=path, make=False))
                        )
                    elif isinstance(change, CompleteSwap):
                        self._note_stale(staging, not_completed(staging.folder, staging.plan, change))
                except OSError as error:
                    self._note_stale(staging, f"{error.filename}: {error.strerror}")
        for index, result in self.engine.run(FINISH, [item for _, item in work]):
            self._note_stale(work[index][0], result.why)

    def _note_stale(self, staging: Staging, wrong: str) -> None:
        if wrong and staging.problem is None:
            staging.problem = StalePlanError(
                f"{wrong}; it is neither what the plan was made of nor what it makes",
                next_command=f"krepair plan {shlex.quote(self.plan.log_dir)} --out PLAN",
            )

    # -- space

    def _check_total_space(self, stagings: Sequence[Staging]) -> None:
        needed = (
            (plan_copy_bytes(self.plan) if any(each.to_stage for each in stagings) else 0)
            + root_peak_bytes(self.plan.root)
            + sum(
                PRIVATE_FOLDER_BYTES
                + sum(peak_bytes(change, sizes_by_name(each.plan.files)) for change in each.to_stage)
                for each in stagings
                if each.to_stage
            )
        )
        space = read_space(self.plan.log_dir, self.disk.tree)
        if space.mounted_read_only:
            raise RefusedError(f"{self.plan.log_dir}: the file system is mounted read-only")
        if needed > space.free_bytes:
            raise RefusedError(
                f"{self.plan.log_dir}: the plan needs {needed} bytes on top while it is applied, "
                f"{space.free_bytes} are free; plan fewer partitions at a time",
                next_command=f"krepair plan {shlex.quote(self.plan.log_dir)} --partition TOPIC-N --out PLAN",
            )

    def _check_space(self, change: Change) -> None:
        """Before a group nothing new is written but folder entries and the journal."""
        space = read_space(self.plan.log_dir, self.disk.tree)
        if space.free_bytes < space.block_bytes * 16:
            raise RefusedError(f"{change.change_id}: the disk is full; nothing was swapped for it")

    # -- commit

    def _commit(self, each: Staging) -> list[ChangeResult]:
        if each.problem is not None:
            self._drop_stage(each)
            return [failed_partition(each.plan, each.problem)]
        staged = {change.change_id for change in each.to_stage}

        def stage(change: Change) -> None:
            if change.change_id in staged:
                staged.discard(change.change_id)
                return
            self.stager.stage_change(each, change)

        before = self.states[each.plan.folder]
        left = tuple(
            change for change in each.plan.changes if before[change.change_id] is not ChangeState.PURGED
        )
        purged = [
            ChangeResult(change_id=change.change_id, partition=each.plan.folder, outcome="already")
            for change in each.plan.changes
            if change not in left
        ]
        if not left:
            return purged
        outcomes = commit_partition(
            each.folder,
            replace(each.plan, changes=left),
            self.plan.commit,
            self.guards,
            stage,
            staged=each.staged,
        )
        sizes = sizes_by_name(each.plan.files)
        changes = {change.change_id: change for change in each.plan.changes}
        return purged + [
            result_of(
                each.plan.folder,
                outcome,
                already=self._was_done(each.plan.folder, outcome.change_id),
                freed=freed_by(changes, outcome.change_id, sizes),
            )
            for outcome in outcomes
        ]

    def _was_done(self, folder: str, change_id: str) -> bool:
        """Whether an earlier run has done it, and not only begun it."""
        if change_id in self.finished.get(folder, ()):
            return False
        return self.states[folder].get(change_id) in _FINISHED

    def _drop_stage(self, each: Staging) -> None:
        """What was staged for a partition that is refused goes again, unless the journal holds something."""
        states = self.states[each.plan.folder].values()
        if all(state in {ChangeState.PLANNED, ChangeState.UNDONE} for state in states):
            try:
                check_nothing_kept(each.folder)
                remove_private_folder(each.folder)
            except (OSError, KrepairError):
                return  # the next apply or undo removes it


def freed_by(changes: Mapping[str, Change], change_id: str, sizes: dict[str, int]) -> int:
    """Bytes free right after a change; of an outcome that belongs to no change (the fence): nothing."""
    change = changes.get(change_id)
    return 0 if change is None else freed_at_apply(change, sizes)


def _why_unknown(folder: PartitionFolder, plan: PartitionPlan, change_id: str) -> str:
    """Name the first file that is not as the plan has it."""
    for file in plan.files:
        path = folder.at(file.name)
        found = folder.tree.status(path)
        if found is None:
            return f"{path}: is gone since the plan was made"
        if (found.st_size, found.st_mtime_ns) != (file.size, file.mtime_ns):
            return (
                f"{path}: changed since the plan was made: {file.size} bytes of mtime {file.mtime_ns} were "
                f"expected, found {found.st_size} of {found.st_mtime_ns}"
            )
    return f"{change_id}: its files are neither what the plan was made of nor what it makes"


def failed_partition(
    plan: PartitionPlan, error: KrepairError | OSError, *, otherwise: ExitCode = ExitCode.REFUSED
) -> ChangeResult:
    """The line of a partition that failed as a whole; ``otherwise`` is the code of an ``OSError``."""
    code = error.exit_code if isinstance(error, KrepairError) else otherwise
    if isinstance(error, WritingError) and code is ExitCode.REFUSED:
        code = ExitCode.UNWRITABLE
    why = error.message if isinstance(error, KrepairError) else f"{error.filename}: {error.strerror}"
    return ChangeResult(
        change_id=plan.folder, partition=plan.folder, outcome="failed", exit_code=int(code), why=why
    )


def result_of(folder: str, outcome: Outcome, *, already: bool = False, freed: int = 0) -> ChangeResult:
    """One line of the report."""
    if isinstance(outcome, Failed):
        return ChangeResult(
            change_id=outcome.change_id,
            partition=folder,
            outcome="failed",
            exit_code=int(outcome.code),
            why=outcome.why,
        )
    if isinstance(outcome, Committed):
        word: ChangeOutcome = "already" if already else "committed"
        return ChangeResult(
            change_id=outcome.change_id, partition=folder, outcome=word, bytes_freed=0 if already else freed
        )
    if isinstance(outcome, Undone):
        return ChangeResult(
            change_id=outcome.change_id, partition=folder, outcome="undone", bytes_freed=freed
        )
    return ChangeResult(change_id=outcome.change_id, partition=folder, outcome="skipped", why=outcome.why)
