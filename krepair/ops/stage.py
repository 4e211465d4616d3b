"""Fills the private sub-folders: new segments and indexes, staged on the engine and verified before any swap."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from krepair.durable.attributes import read_attributes
from krepair.durable.disk import Disk
from krepair.durable.writing_error import WritingError
from krepair.errors import (
    ExitCode,
    KrepairError,
    RefusedError,
    StalePlanError,
    UnreadableError,
    UnwritableError,
    VerifyFailedError,
)
from krepair.fixes.epochs import log_start_of, made_anew, see_epochs
from krepair.fixes.snapshot_state import see_snapshots, state_rules, target_of
from krepair.fixes.snapshots import is_snapshot, made_from_log
from krepair.fixes.survey import facts_of, newest_snapshot
from krepair.fixes.swaps import stage_swap
from krepair.formats.filenames import LEADER_EPOCH_CHECKPOINT
from krepair.journal.action import StagedGroup
from krepair.journal.folder import PartitionFolder
from krepair.journal.freshness import check_fresh
from krepair.kernels.scan import INT64_MAX
from krepair.logdir.values import LogDir, Partition
from krepair.pipeline.damage import MendedItem, MendedResult
from krepair.pipeline.engine import Engine
from krepair.pipeline.indexes import MendItem
from krepair.pipeline.items import FinishItem, Place, ScanItem, ScanResult, StageItem
from krepair.pipeline.jobs import FINISH, MAKE_MENDED, MEND, SCAN, STAGE
from krepair.pipeline.progress import Progress, SilentProgress
from krepair.plan.figures import setting
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
from krepair.rules.markers import stage_inputs
from krepair.rules.model import MarkerPolicy, SegmentFacts

_CODE_OF_FAILURE = {
    "unreadable": ExitCode.UNREADABLE,
    "elsewhere": ExitCode.STALE_PLAN,
    "changed": ExitCode.STALE_PLAN,
    "verify": ExitCode.VERIFY_FAILED,
    "disk": ExitCode.UNWRITABLE,
}
_ERROR_OF_CODE: dict[ExitCode, type[KrepairError]] = {
    ExitCode.UNREADABLE: UnreadableError,
    ExitCode.STALE_PLAN: StalePlanError,
    ExitCode.VERIFY_FAILED: VerifyFailedError,
    ExitCode.UNWRITABLE: UnwritableError,
}


def error_of(failure: str, why: str) -> KrepairError:
    """The error that a task's failure stands for."""
    return _ERROR_OF_CODE.get(_CODE_OF_FAILURE.get(failure, ExitCode.REFUSED), RefusedError)(why)


@dataclass
class Staging:
    """One partition on its way.

    Attributes:
        plan: its part of the plan.
        partition: as listed now.
        folder: for the journal.
        changes: groups that have to be staged.
        files: replaced files that have to be staged.
        logs: damaged logs whose new files have to be staged.
        aside: segments that are set aside; nothing is staged for them.
        swaps: swaps whose indexes have to be staged.
        facts: of its segments, from the scans made while staging.
        staged: change id -> how the new files of a group are known.
        problem: why it stops, or None.
    """

    plan: PartitionPlan
    partition: Partition
    folder: PartitionFolder
    changes: tuple[RewriteSegments, ...]
    files: tuple[ReplaceFile, ...] = ()
    logs: tuple[MendLog, ...] = ()
    aside: tuple[SetAside, ...] = ()
    swaps: tuple[CompleteSwap, ...] = ()
    facts: dict[int, SegmentFacts] = field(default_factory=dict)
    staged: dict[str, StagedGroup] = field(default_factory=dict)
    problem: KrepairError | None = None

    @property
    def to_stage(self) -> list[Change]:
        """Groups, files, logs, what is set aside, and swaps."""
        return [*self.changes, *self.files, *self.logs, *self.aside, *self.swaps]


class Stager:
    """Stages the changes of a plan.

    Args:
        plan: reviewed.
        view: the log directory now.
        engine: where tasks run.
        disk: what writes.
        progress: told of bytes.
    """

    def __init__(self, plan: Plan, view: LogDir, engine: Engine, disk: Disk, progress: Progress) -> None:
        self.plan = plan
        self.view = view
        self.engine = engine
        self.disk = disk
        self.progress = progress

    def stage(self, stagings: Sequence[Staging]) -> None:
        """Stage, recheck, finish and verify; each partition's problem is put into its ``Staging``."""
        self._copy(stagings)
        for each in stagings:
            if each.problem is None and each.changes:
                each.problem = self._recheck(each)
        self._finish(stagings)
        self._mend(stagings)
        self._operate(stagings)
        for each in stagings:
            if each.problem is None:
                self._make_swaps(each)

    def stage_change(self, each: Staging, change: Change) -> None:
        """Stage one change right before its commit, when what was staged has been lost.

        Raises:
            KrepairError: why it cannot be.
        """
        if isinstance(change, ReplaceFile):
            again = Staging(each.plan, each.partition, each.folder, (), (change,))
            self._mend([again])
        elif isinstance(change, SetAside):
            return
        elif isinstance(change, MendLog):
            again = Staging(each.plan, each.partition, each.folder, (), logs=(change,))
            self._operate([again])
        elif isinstance(change, CompleteSwap):
            again = Staging(each.plan, each.partition, each.folder, (), swaps=(change,))
            self._make_swaps(again)
        else:
            again = Staging(each.plan, each.partition, each.folder, (change,))
            self._copy([again])
            if again.problem is None:
                self._finish([again])
            each.staged |= again.staged
        if again.problem is not None:
            raise again.problem

    # -- copy

    def _copy(self, stagings: Sequence[Staging]) -> None:
        work = [
            (each, item)
            for each in stagings
            if each.problem is None and each.changes
            for item in self._prepared(each)
        ]
        items = [item for _, item in work]
        self.progress.start("stage", sum(item.change.sources[item.source].log_bytes for item in items))
        crcs: dict[tuple[str, int], int] = {}
        for index, result in self.engine.run(STAGE, items):
            each, item = work[index]
            source = item.change.sources[item.source]
            self.progress.advance(source.log_bytes)
            self._note(each, source.base_offset, result)
            crcs[item.change.change_id, item.source] = result.written_crc
        for each in stagings:
            for change in each.changes:
                sources = enumerate(change.sources)
                parts = tuple(
                    (source.kept_bytes, crcs.get((change.change_id, n), 0)) for n, source in sources
                )
                each.staged[change.change_id] = StagedGroup(parts)
        self.progress.finish()

    def _prepared(self, each: Staging) -> list[StageItem]:
        """Folders and files that the copies are written into, and the items that write them."""
        try:
            items: list[StageItem] = []
            for change in each.changes:
                check_fresh(each.folder, each.plan, change)
            each.folder.make_private_folders()
            for change in each.changes:
                items.extend(self._items(each, change))
        except KrepairError as error:
            each.problem = error
            return []
        except OSError as error:
            kind = UnwritableError if isinstance(error, WritingError) else RefusedError
            each.problem = kind(f"{error.filename or each.folder.path}: {error.strerror or error}")
            return []
        return items

    def _items(self, each: Staging, change: RewriteSegments) -> list[StageItem]:
        target = f"{each.folder.private}/stage/{change.base_offset:020d}.log"
        if self.disk.tree.is_there(target):
            self.disk.unlink(target)
        self.disk.reserve(target, change.log_bytes)
        digests = {file.name: file.digest for file in each.plan.files}
        items = []
        position = 0
        for number, source in enumerate(change.sources):
            items.append(
                StageItem(
                    place=self._place(each),
                    change=change,
                    source=number,
                    target=target,
                    out_position=position,
                    headers=digests.get(f"{source.base_offset:020d}.log", ""),
                    now_ms=self.plan.policy.now_ms,
                    high_watermark=self._scan_watermark(each),
                )
            )
            position += source.kept_bytes
        return items

    def _place(self, each: Staging) -> Place:
        return Place(
            host=self.plan.host,
            log_dir=self.plan.log_dir,
            log_dir_inode=self.plan.log_dir_inode,
            folder=each.plan.folder,
        )

    def _scan_watermark(self, each: Staging) -> int:
        assumed = self.plan.policy.assume_high_watermark or each.plan.high_watermark < 0
        return INT64_MAX if assumed else each.plan.high_watermark

    def _note(self, each: Staging, base_offset: int, result: ScanResult) -> None:
        if result.failure or result.txn_damage:
            each.problem = each.problem or error_of(
                result.failure or "changed", result.why or result.txn_damage
            )
            return
        segment = next(one for one in each.partition.segments if one.base_offset == base_offset)
        each.facts[base_offset] = facts_of(segment, result)

    # -- recheck

    def _recheck(self, each: Staging) -> KrepairError | None:
        """Work out from fresh scans what the rewrites were told, and compare with the plan."""
        self._scan_missing(each)
        if each.problem is not None:
            return each.problem
        facts = [each.facts[segment.base_offset] for segment in each.partition.segments]
        try:
            found = stage_inputs(facts, self._policy(each, facts), dict(each.plan.kept_last))
        except OSError as error:
            return UnreadableError(f"{each.plan.folder}: {error}")
        for change in each.changes:
            for source in change.sources:
                now = found.get(source.base_offset)
                planned = (
                    source.carried_open,
                    source.keep_positions,
                    source.protected,
                    source.drop_unstamped,
                )
                if (
                    now is None
                    or (now.carried_open, now.keep_positions, now.protected, now.drop_unstamped) != planned
                ):
                    return StalePlanError(
                        f"{each.plan.folder}/{source.base_offset:020d}.log: the decisions made anew are not the plan's",
                        next_command=f"krepair plan {shlex.quote(self.plan.log_dir)} --out PLAN",
                    )
        return None

    def _policy(self, each: Staging, facts: Sequence[SegmentFacts]) -> MarkerPolicy:
        policy, topic = self.plan.policy, each.plan.topic
        log_end = max(one.summary.last_offset + 1 for one in facts)
        snapshot_offset, snapshot = newest_snapshot(each.partition.snapshots, log_end)
        high_watermark = each.plan.high_watermark
        if policy.assume_high_watermark == "log-end":
            high_watermark = max(high_watermark, log_end)

        def number(key: str, scope: str = topic) -> int:
            return int(setting(policy, scope, key))

        return MarkerPolicy(
            now_ms=policy.now_ms,
            horizon=str(each.plan.horizon_ms),
            delete_retention_ms=number("delete.retention.ms"),
            min_compaction_lag_ms=number("min.compaction.lag.ms"),
            segment_bytes=number("segment.bytes"),
            segment_index_bytes=number("segment.index.bytes"),
            index_interval_bytes=number("index.interval.bytes"),
            producer_expiry_ms=max(
                number("producer.id.expiration.ms", ""), number("transactional.id.expiration.ms", "")
            ),
            high_watermark=high_watermark,
            first_dirty_offset=-1,
            stamps=False,
            merge=policy.merge,
            snapshot_offset=snapshot_offset,
            snapshot=snapshot,
        )

    def _scan_missing(self, each: Staging) -> None:
        """Scans the segments of a partition that were not yet; what goes wrong is put into it."""
        missing = [segment for segment in each.partition.segments if segment.base_offset not in each.facts]
        items = [
            ScanItem(
                place=self._place(each),
                base_offset=segment.base_offset,
                size=segment.log.size,
                now_ms=self.plan.policy.now_ms,
                high_watermark=self._scan_watermark(each),
                check_crc=False,
            )
            for segment in missing
        ]
        for index, result in self.engine.run(SCAN, items):
            self._note(each, missing[index].base_offset, result)

    # -- finish

    def _finish(self, stagings: Iterable[Staging]) -> None:
        work = [
            (each, item)
            for each in stagings
            if each.problem is None
            for item in (self.finish_item(each, change) for change in each.changes)
        ]
        self.progress.start("verify", sum(item.change.log_bytes for _, item in work))
        for index, result in self.engine.run(FINISH, [item for _, item in work]):
            each, item = work[index]
            self.progress.advance(item.change.log_bytes)
            if result.failure:
                each.problem = each.problem or error_of(result.failure, result.why)
            known = each.staged.get(item.change.change_id, StagedGroup())
            each.staged[item.change.change_id] = known._replace(made=result.made)
        self.progress.finish()

    def finish_item(
        self, each: Staging, change: RewriteSegments, *, stage: str = "", make: bool = True
    ) -> FinishItem:
        """The item that finishes, or only verifies, a group."""
        known = each.staged.get(change.change_id, StagedGroup())
        attributes = read_attributes(_like(each.folder, change), each.folder.tree)._replace(
            mtime_ns=change.mtime_ns
        )
        return FinishItem(
            place=self._place(each),
            change=change,
            stage=stage or f"{each.folder.private}/stage",
            attributes=attributes,
            index_interval_bytes=int(setting(self.plan.policy, each.plan.topic, "index.interval.bytes")),
            make=make,
            parts=known.parts,
            made=dict(known.made),
        )

    # -- damaged logs

    def _operate(self, stagings: Iterable[Staging]) -> None:
        work: list[tuple[Staging, MendLog, MendedItem]] = []
        for each in stagings:
            if each.problem is not None or not each.logs:
                continue
            try:
                each.folder.make_private_folders()
            except OSError as error:
                each.problem = RefusedError(
                    f"{error.filename or each.folder.path}: {error.strerror or error}"
                )
                continue
            stage = f"{each.folder.private}/stage"
            work += [(each, change, self.mended_item(each, change, stage)) for change in each.logs]
        if not work:
            return
        self.progress.start("damage", sum(item.size for _, _, item in work))
        for index, result in self.engine.run(MAKE_MENDED, [item for _, _, item in work]):
            each, change, item = work[index]
            self.progress.advance(item.size)
            wrong = result.why if result.failure else _not_as_planned(change, result)
            if wrong:
                each.problem = each.problem or error_of(result.failure or "changed", wrong)
        self.progress.finish()

    def mended_item(self, each: Staging, change: MendLog, target: str) -> MendedItem:
        """The item that makes a log without its damage, and its indexes; without a target it only reads the new one."""
        return MendedItem(
            place=self._place(each),
            base_offset=change.base_offset,
            size=change.size_before if target else change.size_after,
            without=tuple((one.start, one.end) for one in change.removed) if target else (),
            interval_bytes=int(setting(self.plan.policy, each.plan.topic, "index.interval.bytes")),
            target=target,
            with_log=bool(target) and change.method == "excise",
        )

    # -- swaps

    def _make_swaps(self, each: Staging) -> None:
        """Stages the indexes of the swaps of a partition; what goes wrong is put into it."""
        try:
            for change in each.swaps:
                each.folder.make_private_folders()
                interval = int(setting(self.plan.policy, each.plan.topic, "index.interval.bytes"))
                stage_swap(self.disk, each.folder, change, interval)
        except KrepairError as error:
            each.problem = error
        except OSError as error:
            kind = UnwritableError if isinstance(error, WritingError) else RefusedError
            each.problem = kind(f"{error.filename or each.folder.path}: {error.strerror or error}")

    # -- replaced files

    def _mend(self, stagings: Sequence[Staging]) -> None:
        work = [
            (each, item)
            for each in stagings
            if each.problem is None and each.files
            for item in self._mend_items(each)
        ]
        if work:
            self.progress.start("indexes", len(work))
            for index, result in self.engine.run(MEND, [item for _, item in work]):
                each, _ = work[index]
                self.progress.advance(1)
                if result.failure:
                    each.problem = each.problem or error_of(result.failure, result.why)
            self.progress.finish()
        for each in stagings:
            self._sync_stage(each)

    def _sync_stage(self, each: Staging) -> None:
        """The names of all that is staged for a partition, made durable at once."""
        try:
            if each.problem is None and each.files:
                self.disk.sync_dir(f"{each.folder.private}/stage")
        except OSError as error:
            each.problem = RefusedError(f"{error.filename}: {error.strerror or error}")

    def _mend_items(self, each: Staging) -> list[MendItem]:
        try:
            each.folder.make_private_folders()
            logs = {segment.base_offset: segment.log.size for segment in each.partition.segments}
            stage = f"{each.folder.private}/stage"
            self._make_epochs(each)
            self._make_snapshot(each)
            return [
                self.mend_item(each, change, logs, f"{stage}/{change.name}")
                for change in each.files
                if change.method != "remove" and not is_made_here(change.name)
            ]
        except KrepairError as error:
            each.problem = error
        except OSError as error:
            kind = UnwritableError if isinstance(error, WritingError) else RefusedError
            each.problem = kind(f"{error.filename or each.folder.path}: {error.strerror or error}")
        return []

    def _make_epochs(self, each: Staging) -> None:
        """Stages the leader epoch checkpoint, its entries worked out anew from the log."""
        change = next((one for one in each.files if one.name == LEADER_EPOCH_CHECKPOINT), None)
        if change is None:
            return
        self._scan_missing(each)
        if each.problem is not None:
            raise each.problem
        segments = [each.facts[segment.base_offset] for segment in each.partition.segments]
        policy = setting(self.plan.policy, each.plan.topic, "cleanup.policy")
        seen = see_epochs(
            each.partition,
            segments,
            log_start_of(self.view, each.partition, segments),
            compacts="compact" in {word.strip() for word in policy.split(",")},
            broker_version=self.plan.policy.broker_version,
        )
        self._put(each, change, made_anew(seen, change, f"{each.folder.path}/{change.name}"))

    def _make_snapshot(self, each: Staging) -> None:
        """Stages the producer snapshot at the log end, its producers worked out anew from the log."""
        change = next(
            (one for one in each.files if is_snapshot(one.name) and one.method == "regenerate"), None
        )
        if change is None:
            return
        policy = self.plan.policy
        (seen,) = see_snapshots(
            [target_of(self.view, each.partition, self._place(each), each.facts.values())],
            state_rules(
                policy.broker_version,
                policy.now_ms,
                int(setting(policy, "", "producer.id.expiration.ms")),
                int(setting(policy, "", "transactional.id.expiration.ms")),
            ),
            self.engine,
            SilentProgress(),
            clean=self.view.clean_shutdown,
            always=True,
        )
        self._put(each, change, made_from_log(seen, change, f"{each.folder.path}/{change.name}"))

    def _put(self, each: Staging, change: ReplaceFile, data: bytes) -> None:
        """Writes a staged file that takes over what the old one was like."""
        staged = f"{each.folder.private}/stage/{change.name}"
        if self.disk.tree.is_there(staged):
            self.disk.unlink(staged)
        like = read_attributes(_like_file(each.folder, each.partition, change), self.disk.tree)
        self.disk.create(staged, data, like)

    def mend_item(self, each: Staging, change: ReplaceFile, logs: Mapping[int, int], target: str) -> MendItem:
        """The item that makes, or verifies, a replaced file.

        Raises:
            StalePlanError: its segment is gone.
            OSError: the file whose owner and mode it takes over cannot be looked at.
        """
        base_offset = int(change.name.partition(".")[0])
        if base_offset not in logs:
            raise StalePlanError(
                f"{each.folder.path}/{change.name}: its .log is gone since the plan was made"
            )
        return MendItem(
            place=self._place(each),
            change=change,
            base_offset=base_offset,
            log_bytes=logs[base_offset],
            interval_bytes=int(setting(self.plan.policy, each.plan.topic, "index.interval.bytes")),
            target=target,
            attributes=read_attributes(_like_file(each.folder, each.partition, change), each.folder.tree),
            segments=tuple(sorted(logs.items())) if change.name.endswith(".txnindex") else (),
        )


def is_made_here(name: str) -> bool:
    """Whether a replaced file is made by the driver and not by a task."""
    return name == LEADER_EPOCH_CHECKPOINT or is_snapshot(name)


def _not_as_planned(change: MendLog, made: MendedResult) -> str:
    """How what was worked out anew differs from the plan, or empty."""
    companions = {f"{change.base_offset:020d}{one.suffix}": one for one in made.companions if not one.same}
    planned = {one.name: (one.size_before, one.size_after, one.digest_after) for one in change.companions}
    again = {name: (one.size_before, one.size_after, one.digest_after) for name, one in companions.items()}
    log = (made.size, made.digest, made.digest_gone, made.last_offset)
    if log != (change.size_after, change.digest_after, change.digest_removed, change.last_offset):
        return f"{change.change_id}: the bytes that go and stay are not those of the plan"
    if planned != again:
        return f"{change.change_id}: its indexes worked out anew are not those of the plan"
    return ""


def _like_file(folder: PartitionFolder, partition: Partition, change: ReplaceFile) -> str:
    """The file whose owner, mode, time and attributes a new one takes over: the original, else the last log."""
    for path in (f"{folder.private}/keep/{change.name}", f"{folder.path}/{change.name}"):
        if folder.tree.is_there(path):
            return path
    name = f"{change.name.partition('.')[0]}.log"
    names = [segment.log.name for segment in partition.segments]
    return f"{folder.path}/{name if name in names or not names else names[-1]}"


def _like(folder: PartitionFolder, change: RewriteSegments) -> str:
    """The file whose owner, mode and attributes the new ones take over: the last original, kept or in place."""
    name = f"{change.sources[-1].base_offset:020d}.log"
    for path in (f"{folder.private}/keep/{name}", f"{folder.path}/{name}"):
        if folder.tree.is_there(path):
            return path
    return f"{folder.path}/{change.base_offset:020d}.log"  # purged: only the new one is left
