"""``krepair verify``: reads everything again, independently, and says what is not as it should be. Writes nothing."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from krepair.durable.disk import Disk
from krepair.errors import KrepairError, StalePlanError
from krepair.fixes.snapshots import snapshot_problems
from krepair.fixes.survey import place_of
from krepair.fixes.swaps import not_completed
from krepair.journal.status import ChangeState, read_status, staged_groups
from krepair.logdir.config import load_settings
from krepair.logdir.reading import why
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import read_log_dir
from krepair.ops.reports import Problem, VerifyReport
from krepair.ops.root import RootRun
from krepair.ops.stage import Stager, Staging, is_made_here
from krepair.ops.target import check_target, disk_of, journal_folder, listed, view_of
from krepair.options import Options
from krepair.pipeline.compare import compare_with_sources
from krepair.pipeline.engine import Engine, choose_engine
from krepair.pipeline.indexes import MendItem
from krepair.pipeline.items import FinishItem, VerifyItem
from krepair.pipeline.jobs import FINISH, VERIFY, VERIFY_MENDED, Task
from krepair.pipeline.progress import Progress, SilentProgress
from krepair.pipeline.readings.choose import Ground, read_checkpoint_again, second_readings
from krepair.pipeline.readings.partition import Reading
from krepair.plan.model import (
    Change,
    CompleteSwap,
    PartitionPlan,
    Plan,
    ReplaceFile,
    RewriteSegments,
    RootPlan,
)


def verify_log_dir(path: str, options: Options, progress: Progress | None = None) -> VerifyReport:
    """Check every batch and every index of a log directory.

    Raises:
        NotALogDirError: the path is none.
        UsageError: a configuration file or value is wrong.
    """
    progress = progress or SilentProgress()
    view = read_log_dir(path)
    partitions = [each for each in view.partitions if options.wants(each.topic, each.number)]
    settings = load_settings(options.config, options.topic_config, dict(options.settings))
    items = [
        item
        for each in partitions
        for item in _segment_items(view, each, settings.topic(each.topic).index_interval_bytes)
    ]
    sizes = [segment.log.size for each in partitions for segment in each.segments]
    engine = choose_engine(options.engine, options.master, sum(sizes))
    problems = [
        Problem(partition=each.folder, file="", position=-1, text=each.unreadable)
        for each in partitions
        if each.unreadable
    ]
    problems += [
        Problem(partition=each.folder, file=name, position=position, text=text)
        for each in partitions
        for name, position, text in snapshot_problems(each)
    ]
    batches = read = 0
    progress.start("verify", sum(sizes))
    try:
        for index, result in engine.run(VERIFY, items):
            progress.advance(sizes[index])
            folder = items[index].place.folder
            if result.failure:
                problems.append(Problem(partition=folder, file="", position=-1, text=result.why))
            problems.extend(
                Problem(partition=folder, file=name, position=position, text=text)
                for name, position, text in result.problems
            )
            batches += result.batches
            read += result.bytes
    finally:
        progress.finish()
        engine.close()
    return VerifyReport(
        target=view.path,
        problems=tuple(sorted(problems, key=lambda each: (each.partition, each.file, each.position))),
        partitions=len(partitions),
        segments=len(items),
        batches=batches,
        bytes_read=read,
        engine=engine.why,
        next_command=f"krepair check {shlex.quote(view.path)}" if problems else "",
    )


def _segment_items(view: LogDir, partition: Partition, interval_bytes: int) -> list[VerifyItem]:
    return [
        VerifyItem(
            place=place_of(view, partition),
            base_offset=segment.base_offset,
            active=segment is partition.segments[-1],
            interval_bytes=interval_bytes,
            clean=view.clean_shutdown,
        )
        for segment in partition.segments
    ]


def _is_index(change: ReplaceFile) -> bool:
    return change.method != "remove" and not is_made_here(change.name)


def verify_plan(plan: Plan, options: Options, progress: Progress | None = None) -> VerifyReport:
    """Hold what apply made against the plan; with ``options.originals`` also against the kept originals.

    Before anything was swapped, apply has proven every source batch to be kept byte for byte or one without records.

    Raises:
        StalePlanError: the plan is for another host or directory.
        RefusedError: the review objects.
    """
    check_target(plan)
    progress = progress or SilentProgress()
    view = view_of(plan)
    partitions = [each for each in plan.partitions if each.changes]
    total = sum(
        change.log_bytes
        for each in partitions
        for change in each.changes
        if isinstance(change, RewriteSegments)
    )
    engine = choose_engine(options.engine, options.master, total)
    try:
        with disk_of(plan) as disk:
            run = _VerifyPlan(plan, view, engine, disk, progress, originals=options.originals)
            return run.report(partitions)
    finally:
        engine.close()


class _VerifyPlan:
    def __init__(
        self, plan: Plan, view: LogDir, engine: Engine, disk: Disk, progress: Progress, *, originals: bool
    ) -> None:
        self.plan = plan
        self.disk = disk
        self.view = view
        self.engine = engine
        self.progress = progress
        self.originals = originals
        self.problems: list[Problem] = []
        self.mended: list[tuple[PartitionPlan, MendItem]] = []
        self.again: list[tuple[PartitionPlan, Change, Task[Any, Reading], Any]] = []

    def report(self, partitions: Sequence[PartitionPlan]) -> VerifyReport:
        work = [(each, item) for each in partitions for item in self._items(each)]
        batches = read = segments = 0
        self.progress.start("verify", sum(item.change.log_bytes for _, item in work))
        for index, result in self.engine.run(FINISH, [item for _, item in work]):
            each, item = work[index]
            self.progress.advance(item.change.log_bytes)
            batches += result.batches
            read += result.bytes
            segments += 1
            problem = result.why or (self._against_originals(each, item) if self.originals else "")
            if problem:
                self._note(each, item.change.change_id, problem)
        self.progress.finish()
        segments += self._files() + self._read_again()
        if self.plan.root is not None:
            self._read_root(self.plan.root)
            segments += len(self.plan.root.changes)
        return VerifyReport(
            target=self.plan.log_dir,
            plan_id=self.plan.plan_id,
            problems=tuple(self.problems),
            partitions=len(partitions),
            segments=segments,
            batches=batches,
            bytes_read=read,
            engine=self.engine.why,
            next_command="krepair undo PLAN"
            if self.problems
            else "krepair purge PLAN   (when the brokers are well)",
        )

    def _items(self, plan: PartitionPlan) -> list[FinishItem]:
        partition = listed(self.view, plan)
        folder = journal_folder(self.disk, self.plan, plan)
        stager = Stager(self.plan, self.view, self.engine, self.disk, self.progress)
        items = []
        try:
            if partition is None:
                raise StalePlanError(f"{folder.path}: is gone")
            if partition.unreadable:
                raise StalePlanError(partition.unreadable)
            states = read_status(self.disk, self.plan.log_dir, self.plan.plan_id, plan)
            staging = Staging(plan, partition, folder, (), staged=staged_groups(folder))
            logs = {segment.base_offset: segment.log.size for segment in partition.segments}
            log_start = self.view.log_start.offsets.get((partition.topic, partition.number), -1)
            place = stager.place(staging)
            ground = Ground(self.plan, plan, place, tuple(logs), log_start, self.disk.tree)
            for change in plan.changes:
                state = states[change.change_id]
                if state not in {ChangeState.COMMITTED, ChangeState.PURGED}:
                    self._note(plan, change.change_id, f"is not applied: its state is {state.value}")
                elif isinstance(change, RewriteSegments):
                    items.append(stager.finish_item(staging, change, stage=folder.path, make=False))
                elif isinstance(change, CompleteSwap):
                    wrong = not_completed(
                        self.engine, stager.place(staging), plan, change, stager.interval_bytes(plan.topic)
                    )
                    if wrong:
                        self._note(plan, change.change_id, wrong)
                else:
                    self.again += [(plan, change, *work) for work in second_readings(ground, change)]
                    if isinstance(change, ReplaceFile) and _is_index(change):
                        target = f"{folder.path}/{change.name}"
                        self.mended.append((plan, stager.mend_item(staging, change, logs, target)))
        except (KrepairError, OSError) as error:
            text = error.message if isinstance(error, KrepairError) else f"{error.filename}: {error.strerror}"
            self._note(plan, "", text)
        return items

    def _read_root(self, root: RootPlan) -> None:
        """The checkpoints of the root: as the plan makes them, and right by other code."""
        run = RootRun(self.plan, root, self.disk)
        found = run.verify()
        self.problems += found
        for change in root.changes if not found else ():
            kept = f"{run.folder.private}/keep/{change.name}"
            try:
                texts = read_checkpoint_again(change.name, kept, self.view, self.engine, self.disk.tree)
            except OSError as error:
                texts = [f"{error.filename}: {why(error)}"]
            self.problems += [
                Problem(partition="", file=change.name, position=-1, text=text, change_id=change.change_id)
                for text in texts
            ]

    def _read_again(self) -> int:
        """What other code than that which made them has against the changes; how many were read."""
        for task in {task.name: task for _, _, task, _ in self.again}.values():
            mine = [(plan, change, item) for plan, change, other, item in self.again if other is task]
            for index, result in self.engine.run(task, [item for _, _, item in mine]):
                plan, change, _ = mine[index]
                for text in result.problems:
                    self._note(plan, change.change_id, text)
        return len(self.again)

    def _files(self) -> int:
        """Verify the replaced files; how many there are."""
        items = [item for _, item in self.mended]
        for index, result in self.engine.run(VERIFY_MENDED, items):
            plan, item = self.mended[index]
            if result.failure:
                self._note(plan, item.change.change_id, result.why)
        return len(items)

    def _against_originals(self, plan: PartitionPlan, item: FinishItem) -> str:
        keep = f"{journal_folder(self.disk, self.plan, plan).private}/keep"
        try:
            if not self.disk.tree.is_folder(keep):
                return ""
        except OSError as error:
            return f"{keep}: {why(error)}"
        return compare_with_sources(item.change, item.stage, keep, self.disk.tree)

    def _note(self, plan: PartitionPlan, change_id: str, text: str) -> None:
        self.problems.append(
            Problem(partition=plan.folder, file="", position=-1, text=text, change_id=change_id)
        )
