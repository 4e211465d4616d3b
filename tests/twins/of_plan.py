"""Comparison of every small file that an applied plan derived from the logs with its twin."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from krepair.commit.ready import journal_folder, listed
from krepair.durable.real_disk import RealDisk
from krepair.durable.scratch import Scratch
from krepair.durable.tree import Tree
from krepair.engine.engine import InlineEngine
from krepair.fixes.files import RECOVERED
from krepair.fixes.recovery.make import floor_in
from krepair.fixes.staging import Staging, Work
from krepair.formats.broker_version import version_of
from krepair.formats.cleanup_policy import compacts
from krepair.formats.filenames import LEADER_EPOCH_CHECKPOINT, FileKind, parse_file_name, root_private_folder
from krepair.formats.java_numbers import INT64_MAX
from krepair.logdir.view import read_log_dir
from krepair.ops.verify import verify_plan
from krepair.options import Options
from krepair.plan.facts import setting
from krepair.plan.model import ChangeLines, MendLog, PartitionPlan, Plan, ReplaceFile
from krepair.rules.checkpoints import KIND_OF
from krepair.rules.epochs import writes_epoch_zero
from krepair.rules.snapshots import expiry_of
from krepair.rules.stale_transactions import STALE_TRANSACTION
from tests.twins.aborted import AbortedIndex, aborted_problems
from tests.twins.checkpoints import changed_keys, checkpoint_problems, log_end_of
from tests.twins.closed_snapshots import closed_problems
from tests.twins.epochs import MadeOf as EpochsMadeOf
from tests.twins.epochs import epoch_problems
from tests.twins.logs import LogPath, logs_before_compaction, logs_now
from tests.twins.snapshots import MadeOf as SnapshotMadeOf
from tests.twins.snapshots import snapshot_problems


def verified(plan: Plan, options: Options) -> list[str]:
    """What ``krepair verify`` finds wrong with an applied plan, and what the twins do."""
    return [one.text for one in verify_plan(plan, options).problems] + twin_problems(plan)


def twin_problems(plan: Plan) -> list[str]:
    """What the twins have against the small files of a plan, all of whose changes are applied."""
    return [*_of_partitions(plan), *_of_root(plan)]


def _of_partitions(plan: Plan) -> Iterator[str]:
    for part in plan.partitions:
        made = [one for one in part.changes if isinstance(one, ReplaceFile) and one.method != "remove"]
        for text in _Partition(plan, part).aborted():
            yield f"{part.folder}: {text}"
        for change in made:
            data = Path(plan.log_dir, part.folder, change.name).read_bytes()
            for text in _Partition(plan, part).problems(change, data):
                yield f"{change.change_id}: {text}"


class _Partition:
    """One partition of an applied plan."""

    def __init__(self, plan: Plan, part: PartitionPlan) -> None:
        view = read_log_dir(plan.log_dir)
        disk = RealDisk(Tree(view.path, view.inode))
        self.plan, self.part = plan, part
        self.work = Work(plan, view, InlineEngine(""), disk, Scratch("", (view.path,)))
        self.staging = Staging(part, listed(view, part), journal_folder(disk, plan, part), part.changes)
        self.version = version_of(plan.policy.broker_version)
        self.log_start = view.log_start.offsets.get((part.topic, part.partition), -1)

    @cached_property
    def logs(self) -> tuple[tuple[LogPath, ...], bool]:
        """What the files were made of, and whether all of that is there still."""
        before = logs_before_compaction(self.staging)
        return before or logs_now(self.staging), before is not None

    def problems(self, change: ReplaceFile, data: bytes) -> list[str]:
        """What the twin of a file has against these bytes; index files have their judges in krepair."""
        is_snapshot = parse_file_name(change.name).kind is FileKind.SNAPSHOT
        floor = floor_in(self.work, self.part) if change.rule == RECOVERED else -1
        if change.name == LEADER_EPOCH_CHECKPOINT:
            return epoch_problems(data, self._epochs(change, max(floor, 0)))
        if (
            is_snapshot
            and change.rule == STALE_TRANSACTION
            and self._kept(change.name).exists()
            and self.logs[1]
        ):
            kept = self._kept(change.name).read_bytes()
            return closed_problems(data, kept, self.logs[0], self.staging.folder.tree)
        if is_snapshot and change.rule != STALE_TRANSACTION and self.logs[1]:
            clean = change.rule != RECOVERED and self.work.view.clean_shutdown
            since = INT64_MAX if clean else floor_in(self.work, self.part)
            return snapshot_problems(data, self._snapshot(change, since))
        return []

    def aborted(self) -> list[str]:
        """What the twin has against the ``.txnindex`` files that were made, all by one replay."""
        names = [
            one.name for one in self.part.changes if isinstance(one, ReplaceFile) and one.method != "remove"
        ]
        names += [new.name for one in self.part.changes if isinstance(one, MendLog) for new in one.companions]
        planned = self.staging.planned
        indexes = [
            AbortedIndex(
                int(name.partition(".")[0]),
                self.staging.folder.at(name),
                str(self._kept(name)) if name in planned else "",
            )
            for name in names
            if name.endswith(".txnindex")
        ]
        return [text for text in aborted_problems(indexes, self.logs[0], self.staging.folder.tree) if text]

    def _kept(self, name: str) -> Path:
        return Path(self.staging.folder.private, "keep", name)

    def _setting(self, key: str, topic: str = "") -> str:
        return setting(self.plan.policy, topic, key)

    def _epochs(self, change: ReplaceFile, since: int) -> EpochsMadeOf:
        kept = self._kept(change.name)
        return EpochsMadeOf(
            original=kept.read_bytes() if kept.exists() else None,
            original_is_known=change.size_before < 0 or kept.exists(),
            logs=tuple(log for log in self.logs[0] if log.base_offset >= since),
            logs_are_whole=self.logs[1],
            tree=self.staging.folder.tree,
            log_start=self.log_start,
            compacts=compacts(self._setting("cleanup.policy", self.part.topic)),
            zero_counts=writes_epoch_zero(self.version),
        )

    def _snapshot(self, change: ReplaceFile, recovered_from: int) -> SnapshotMadeOf:
        earlier = []
        for file in self.part.files:
            name = parse_file_name(file.name)
            usable = name.kind is FileKind.SNAPSHOT and not name.state
            if usable and name.base_offset is not None and name.base_offset <= recovered_from:
                here = Path(self.plan.log_dir, self.part.folder, file.name)
                taken = file.name == change.name or not here.exists()
                earlier.append((name.base_offset, self._kept(file.name) if taken else here))
        expiries = ("producer.id.expiration.ms", "transactional.id.expiration.ms")
        return SnapshotMadeOf(
            log_end=int(change.name.partition(".")[0]),
            earlier=tuple(earlier),
            logs=self.logs[0],
            tree=self.staging.folder.tree,
            log_start=self.log_start,
            recovered_from=recovered_from,
            version=self.version or (),
            now_ms=self.plan.policy.now_ms,
            expiry_ms=expiry_of(self.version, *(int(self._setting(key)) for key in expiries)),
        )


def _of_root(plan: Plan) -> Iterator[str]:
    """Of the checkpoints that ``--fix checkpoints`` has mended; the lines of a recovery are proven by the broker."""
    view = read_log_dir(plan.log_dir)
    tree = Tree(view.path, view.inode)
    for change in () if plan.root is None else plan.root.changes:
        assert isinstance(change, ReplaceFile | ChangeLines)
        kind = KIND_OF.get(change.name)
        kept = Path(plan.log_dir, plan.root.keeper, root_private_folder(plan.plan_id), "keep", change.name)
        if kind is None or kind.rule != change.rule or not kept.exists():
            continue
        old, new = kept.read_bytes(), Path(plan.log_dir, change.name).read_bytes()
        changed = changed_keys(old, new)
        ends = {(one.topic, one.number): -1 for one in (*view.partitions, *view.marked)}
        for one in view.partitions:
            if one.has_an_end and (one.topic, one.number) in changed:
                last = one.segments[-1]
                log = LogPath(base_offset=last.base_offset, path=last.log.path, bytes=last.log.size)
                ends[one.topic, one.number] = log_end_of(log, tree)
        for text in checkpoint_problems(change.name, old, new, ends):
            yield f"{change.name}: {text}"
