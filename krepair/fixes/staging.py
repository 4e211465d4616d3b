"""Inputs with which a fix stages and verifies its changes: the plan, the folders, and facts of the logs."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from krepair.commit.begin import StagedGroup
from krepair.commit.folder import PartitionFolder
from krepair.durable.disk import Disk
from krepair.durable.scratch import Scratch
from krepair.durable.writing_error import WritingError
from krepair.engine.engine import Engine
from krepair.engine.items import Failed, Place, ScanResult
from krepair.errors import (
    ExitCode,
    KrepairError,
    RefusedError,
    StalePlanError,
    UnreadableError,
    UnwritableError,
    VerifyFailedError,
    is_forbidden,
)
from krepair.fixes.analysis import LogFacts, PartitionAnalysis
from krepair.fixes.context import Context, place_in, watermark_of
from krepair.fixes.logs import facts_of, parts_after, scan_item
from krepair.formats.filenames import RECOVERY_POINT_CHECKPOINT
from krepair.formats.java_numbers import INT64_MAX
from krepair.logdir.config import Settings, TopicSettings, recorded_settings
from krepair.logdir.reading import why
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import LockedDirs
from krepair.next_command import NOTHING, Next, of_error
from krepair.options import Options
from krepair.plan.model import Change, ChangeLines, FileFingerprint, PartitionPlan, Plan
from krepair.rules.changed_entries import ChangedLine
from krepair.rules.markers import StageInputs
from krepair.rules.model import SegmentFacts

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
    """Return the error that a task's failure stands for."""
    return _ERROR_OF_CODE.get(_CODE_OF_FAILURE.get(failure, ExitCode.REFUSED), RefusedError)(why)


@dataclass(eq=False)
class Staging:
    """Staging of the changes to one partition, or to the root.

    Attributes:
        plan: the partition's part of the plan; for the root see ``krepair.commit.folder.as_partition``.
        partition: the partition as listed now; None for the root.
        folder: the folder and its journal.
        changes: the changes to stage or to verify.
        facts: facts from the scans made during staging, without the ranges that the plan removes; by base offset.
        staged: identity of each group's new files, by change id.
        unsynced: True if ``stage/`` holds names that are not durable yet.
        problem: the error that stopped the partition, or None.
        freed: names of the files whose backups apply has deleted.
        made: ids of the changes that were carried out and verified since ``partition`` was listed.
        decided: base offset -> decision on the markers, for the whole partition; empty before its first group is
            staged. It stays right because the lock is held and each source is compared with the plan when it is
            copied.
    """

    plan: PartitionPlan
    partition: Partition | None
    folder: PartitionFolder
    changes: tuple[Change, ...]
    facts: dict[int, SegmentFacts] = field(default_factory=dict)
    staged: dict[str, StagedGroup] = field(default_factory=dict)
    unsynced: bool = False
    problem: KrepairError | None = None
    freed: set[str] = field(default_factory=set)
    made: set[str] = field(default_factory=set)
    decided: dict[int, StageInputs] = field(default_factory=dict)

    @property
    def listed(self) -> Partition:
        """The partition as listed; only for changes to a partition."""
        assert self.partition is not None, "asked of the root"
        return self.partition

    @property
    def stage_folder(self) -> str:
        """Absolute path of the folder with staged files."""
        return f"{self.folder.private}/stage"

    @cached_property
    def planned(self) -> Mapping[str, FileFingerprint]:
        """Fingerprints of its files at planning time, by name."""
        return self.plan.by_name

    @property
    def keep_path(self) -> str:
        """Absolute path of the folder with backups, which exists until they are purged."""
        return f"{self.folder.private}/keep"

    @property
    def keep(self) -> str:
        """Absolute path of the folder with backups, empty if there is none."""
        return self.keep_path if self.folder.tree.is_folder(self.keep_path) else ""

    def only(self, *changes: Change) -> Staging:
        """Return a staging of these changes alone, which shares what is known of logs and staged files."""
        return Staging(
            self.plan,
            self.partition,
            self.folder,
            changes,
            self.facts,
            self.staged,
            freed=self.freed,
            made=self.made,
            decided=self.decided,
        )

    @contextmanager
    def taking_problems(self) -> Iterator[None]:
        """Catch an error as this staging's problem, so that other partitions continue.

        The folders of the partition stay open until the end of the block.
        """
        try:
            with self.folder.tree.keeping_folders():
                yield
        except KrepairError as error:
            self.problem = self.problem or error
        except OSError as error:
            why = f"{error.filename or self.folder.path}: {error.strerror or error}"
            kind = UnwritableError if isinstance(error, WritingError) else RefusedError
            self.problem = self.problem or kind(why)

    def record_failure(self, failed: Failed | None) -> None:
        """Store a task's failure as the problem, if there is none yet."""
        if failed is not None:
            self.problem = self.problem or error_of(failed.kind, failed.why)


class Wrong(NamedTuple):
    """One defect that a verification found.

    Attributes:
        folder: folder of the partition; ``.`` for the root.
        text: expected and actual state, in words.
        name: name of the file, or empty.
        next_command: the command to type next; may be empty.
        forbidden: True if permissions alone keep this user from reading the file.
    """

    folder: str
    change_id: str
    text: str
    name: str = ""
    next_command: Next = NOTHING
    forbidden: bool = False


class Kind(NamedTuple):
    """A kind of verified files, in words for the page.

    Attributes:
        what: the name of the files, plural.
        how: way in which each file is checked, in words.
        is_log: True for logs, which are read whole.
    """

    what: str
    how: str
    is_log: bool = False


@dataclass(eq=False)
class Work:
    """Inputs and results of staging and verifying changes.

    Attributes:
        plan: the plan, after its review.
        view: the log directory as it is now.
        disk: writer of all files.
        scratch: scratch folder for data that does not fit into memory.
        originals: True to compare new files also with the backups of the originals.
        wrong: defects that verifications found.
        checked: number of verified files of each kind.
        batches: number of batches that were verified.
        bytes_read: bytes of ``.log`` files that were read.
        together: True if ``stage_all`` makes all staged files durable with one barrier at its end; otherwise each
            file is synced when it is written.
        keep_plan: function that copies the plan into an existing work folder, see ``PlanKeeper``.
        moved: reason why a partition may have more replicas than at planning time, by (topic, number).
        settled: folders of the partitions whose logs were flushed and read from the disk again.
        other_dirs: log directories of other replicas that the plan relies on; apply holds their locks.
    """

    plan: Plan
    view: LogDir
    engine: Engine
    disk: Disk
    scratch: Scratch
    originals: bool = False
    wrong: list[Wrong] = field(default_factory=list)
    checked: Counter[Kind] = field(default_factory=Counter)
    batches: int = 0
    bytes_read: int = 0
    together: bool = False
    keep_plan: Callable[[PartitionFolder], None] = lambda folder: None
    moved: Mapping[tuple[str, int], str] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    other_dirs: LockedDirs = field(default_factory=LockedDirs)

    @cached_property
    def recovery_points(self) -> Mapping[tuple[str, int], ChangedLine]:
        """Recovery point entries that the plan changes, by topic and partition."""
        changes = () if self.plan.root is None else self.plan.root.changes
        return {
            (line.topic, line.partition): line
            for change in changes
            if isinstance(change, ChangeLines) and change.name == RECOVERY_POINT_CHECKPOINT
            for line in change.lines
        }

    def found(self, staging: Staging, change: Change, text: str) -> None:
        """Record a defect of a change, unless the text is empty."""
        if text:
            self.wrong.append(Wrong(staging.plan.folder, change.change_id, text))

    def found_all(self, staging: Staging, error: KrepairError | OSError) -> None:
        """Record that none of a partition's changes could be verified."""
        if isinstance(error, KrepairError):
            text, command = error.message, of_error(error)
        else:
            text, command = f"{error.filename}: {why(error)}", NOTHING
        self.wrong.append(
            Wrong(staging.plan.folder, "", text, next_command=command, forbidden=is_forbidden(error))
        )

    def place(self, staging: Staging) -> Place:
        """Return the location of a partition's files, for work items."""
        return place_in(self.view, staging.plan.folder)

    @cached_property
    def _settings(self) -> Settings:
        try:
            return recorded_settings(self.plan.policy.settings)
        except ValueError as error:
            raise StalePlanError(f"a setting of the plan is no whole number: {error}") from None

    @property
    def context(self) -> Context:
        """Context of the log directory as it is now, with the settings and options of the plan.

        Raises:
            StalePlanError: the plan was edited.
        """
        policy = self.plan.policy
        options = Options(
            now_ms=policy.now_ms,
            delete_horizon=policy.horizon,
            broker_version=policy.broker_version,
            fixes=policy.fixes,
            merge=policy.merge,
            assume_high_watermark=policy.assume_high_watermark,
            accepted_losses=policy.accepted_losses,
        )
        return Context(self.view, self._settings, options, self.engine, self.scratch)

    def analysis(self, staging: Staging, facts: Iterable[SegmentFacts] = ()) -> PartitionAnalysis:
        """Return a partition's analysis as fixes see it when they plan, with all changes of the plan proposed.

        Args:
            facts: facts of its logs as they will be after these changes.

        Raises:
            StalePlanError: the plan was edited.
        """
        partition = staging.listed
        return PartitionAnalysis(
            partition,
            self.settings(staging),
            high_watermark=self.high_watermark(staging),
            log_start=self.view.log_start.offsets.get(partition.key, 0),
            log=LogFacts(tuple(facts)),
            changes=list(staging.plan.changes),
        )

    def topic(self, topic: str) -> TopicSettings:
        """Return the settings of a topic as recorded in the plan.

        Raises:
            StalePlanError: the plan was edited.
        """
        return self._settings.topic(topic)

    def settings(self, staging: Staging) -> TopicSettings:
        """Return the settings of the partition's topic as recorded in the plan."""
        return self.topic(staging.plan.topic)

    def scan_watermark(self, staging: Staging) -> int:
        """Return the high watermark that scans use."""
        known = self.high_watermark(staging)
        return INT64_MAX if self.plan.policy.assume_high_watermark or known < 0 else known

    def high_watermark(self, staging: Staging) -> int:
        """Return the plan's high watermark, or the one recorded now if that is lower; -1 if there was none."""
        # A broker may have run since, and records above its lower high watermark may still be truncated: such records
        # supersede nothing.
        return min(staging.plan.high_watermark, watermark_of(self.view, staging.listed))

    def take_facts(
        self, staging: Staging, base_offset: int, result: ScanResult | Failed, *, with_txn_index: bool
    ) -> None:
        """Store the facts of one segment; a failure becomes the partition's problem.

        Args:
            result: result of the segment's scan.
            with_txn_index: True if its transaction index must be right as well. A caller that only asks what the
                log says ignores it: another change of the same plan may repair that index.
        """
        if isinstance(result, Failed):
            staging.record_failure(result)
            return
        if with_txn_index and result.txn_damage:
            staging.record_failure(Failed("changed", result.txn_damage))
            return
        segments = staging.listed.segments
        segment = segments[bisect_left(segments, base_offset, key=lambda segment: segment.base_offset)]
        assert segment.base_offset == base_offset, "a log that is not listed was read"
        staging.facts[base_offset] = facts_of(segment, result)

    def all_facts(
        self, staging: Staging, since: int = 0, *, with_txn_index: bool = False
    ) -> list[SegmentFacts]:
        """Return facts of every segment from a base offset on, as the logs will be after the plan.

        Segments without known facts are scanned.

        Args:
            since: the lowest base offset wanted.
            with_txn_index: True if the transaction indexes must be right as well, see ``take_facts``.

        Raises:
            KrepairError: a log could not be read.
        """
        from krepair.scan.scan import scan

        parts = [
            part for part in parts_after(staging.listed, staging.plan.changes) if part.base_offset >= since
        ]
        missing = [part for part in parts if part.base_offset not in staging.facts]
        if missing:
            context, analysis = self.context, self.analysis(staging)
        items = (
            (part.base_offset, scan_item(context, analysis, part.segment, without=part.without))
            for part in missing
        )
        for base_offset, result in self.engine.each(scan, items):
            self.take_facts(staging, base_offset, result, with_txn_index=with_txn_index)
        if staging.problem is not None:
            raise staging.problem
        return [staging.facts[part.base_offset] for part in parts]
