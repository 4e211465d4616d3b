"""Changes on their way: what a fix is given to make their bytes again at ``apply``, and to verify them."""

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
from krepair.fixes.context import Context, place_in, watermark_of
from krepair.fixes.logs import facts_of, parts_after, scan_item
from krepair.fixes.survey import LogFacts, Survey
from krepair.formats.filenames import RECOVERY_POINT_CHECKPOINT
from krepair.formats.java_numbers import INT64_MAX
from krepair.logdir.config import Settings, TopicSettings, recorded_settings
from krepair.logdir.reading import why
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import LockedDirs
from krepair.next_command import NOTHING, Next, of_error
from krepair.options import Options
from krepair.plan.model import Change, ChangeLines, FileFingerprint, PartitionPlan, Plan
from krepair.rules.checkpoint_lines import ChangedLine
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
    """The error that a task's failure stands for."""
    return _ERROR_OF_CODE.get(_CODE_OF_FAILURE.get(failure, ExitCode.REFUSED), RefusedError)(why)


@dataclass(eq=False)
class Staging:
    """Changes of one partition, or of the root, on their way.

    Attributes:
        plan: its part of the plan; of the root, see ``krepair.commit.folder.as_partition``.
        partition: as listed now; None of the root.
        folder: for the journal.
        changes: those that have to be staged, or verified.
        facts: of its segments, from the scans made while staging; ranges that the plan removes are left out.
        staged: change id -> how the new files of a group are known.
        unsynced: whether names were put into ``stage/`` that are not durable yet.
        problem: why it stops, or None.
        freed: names of the files whose originals apply has freed: nothing is kept of them.
        made: ids of the changes that were carried out, and read again, since ``partition`` was listed.
        decided: base offset -> what was decided on the markers of the whole partition when its first group was staged;
            empty before. It stays right: the lock is held, and each source is held against the plan when it is copied.
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
        """The partition, of changes that are not the root's."""
        assert self.partition is not None, "asked of the root"
        return self.partition

    @property
    def stage_folder(self) -> str:
        """Absolute path of what is staged."""
        return f"{self.folder.private}/stage"

    @cached_property
    def planned(self) -> Mapping[str, FileFingerprint]:
        """Fingerprints of its files as they were planned, by name."""
        return self.plan.by_name

    @property
    def keep_path(self) -> str:
        """Absolute path of the folder in which originals are kept, or were until they were purged."""
        return f"{self.folder.private}/keep"

    @property
    def keep(self) -> str:
        """The same, empty where it is not there."""
        return self.keep_path if self.folder.tree.is_folder(self.keep_path) else ""

    def only(self, *changes: Change) -> Staging:
        """The same, with these changes alone; what is known of logs and staged files is shared."""
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
        """What goes wrong inside is its problem, and stops nobody else. Its folders are kept open meanwhile."""
        try:
            with self.folder.tree.keeping_folders():
                yield
        except KrepairError as error:
            self.problem = self.problem or error
        except OSError as error:
            why = f"{error.filename or self.folder.path}: {error.strerror or error}"
            kind = UnwritableError if isinstance(error, WritingError) else RefusedError
            self.problem = self.problem or kind(why)

    def fails(self, failed: Failed | None) -> None:
        """What a task has against it is its problem, if it has none yet."""
        if failed is not None:
            self.problem = self.problem or error_of(failed.kind, failed.why)


class Wrong(NamedTuple):
    """One thing that a verification found.

    Attributes:
        folder: of the partition; ``.`` of the root.
        change_id: of the change.
        text: what was expected and what is there.
        name: of the file, or empty.
        next_command: what to type about it; may be empty.
        forbidden: whether it is only that this user may not look.
    """

    folder: str
    change_id: str
    text: str
    name: str = ""
    next_command: Next = NOTHING
    forbidden: bool = False


class Kind(NamedTuple):
    """A kind of files that are verified, as it is told.

    Attributes:
        what: the files, plural.
        how: each of them is checked.
        is_log: whether it is a log that is read whole.
    """

    what: str
    how: str
    is_log: bool = False


@dataclass(eq=False)
class Work:
    """What changes are staged and verified with.

    Attributes:
        plan: reviewed.
        view: the log directory now.
        engine: where tasks run.
        disk: what writes.
        scratch: for what does not fit into memory.
        originals: whether new files are held against the kept originals too.
        wrong: what verifications found.
        checked: how many files of each kind were verified.
        batches: that were verified.
        bytes_read: of ``.log``.
        together: whether ``stage_all`` makes the files that are staged now durable together, with one barrier at its
            end; else each is synced when it is made.
        keep_plan: puts the copy of the plan into a private sub-folder that is there, see ``PlanKeeper``.
        moved: (topic, number) -> why there may be another replica than when the plan was made.
        settled: folders of the partitions whose logs were written out and read from the disk again.
        other_dirs: the log directories of other replicas on which the plan rests; apply holds their locks.
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
        """The lines of recovery points that the plan changes, by topic and partition."""
        changes = () if self.plan.root is None else self.plan.root.changes
        return {
            (line.topic, line.partition): line
            for change in changes
            if isinstance(change, ChangeLines) and change.name == RECOVERY_POINT_CHECKPOINT
            for line in change.lines
        }

    def found(self, staging: Staging, change: Change, text: str) -> None:
        """Something is wrong with a change; nothing, if the text is empty."""
        if text:
            self.wrong.append(Wrong(staging.plan.folder, change.change_id, text))

    def found_all(self, staging: Staging, error: KrepairError | OSError) -> None:
        """None of the changes of a partition could be verified."""
        if isinstance(error, KrepairError):
            text, command = error.message, of_error(error)
        else:
            text, command = f"{error.filename}: {why(error)}", NOTHING
        self.wrong.append(
            Wrong(staging.plan.folder, "", text, next_command=command, forbidden=is_forbidden(error))
        )

    def place(self, staging: Staging) -> Place:
        """Where a partition's files are, as work items name it."""
        return place_in(self.view, staging.plan.folder)

    @cached_property
    def _settings(self) -> Settings:
        try:
            return recorded_settings(self.plan.policy.settings)
        except ValueError as error:
            raise StalePlanError(f"a setting of the plan is no whole number: {error}") from None

    @property
    def context(self) -> Context:
        """The log directory as it is now, with the settings and the options of the plan.

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

    def survey(self, staging: Staging, facts: Iterable[SegmentFacts] = ()) -> Survey:
        """A partition as fixes see it when they plan, with all changes of the plan proposed.

        Args:
            staging: of the partition.
            facts: of its logs, as they will be once these changes are made.

        Raises:
            StalePlanError: the plan was edited.
        """
        partition = staging.listed
        return Survey(
            partition,
            self.settings(staging),
            high_watermark=self.high_watermark(staging),
            log_start=self.view.log_start.offsets.get(partition.key, 0),
            log=LogFacts(tuple(facts)),
            changes=list(staging.plan.changes),
        )

    def topic(self, topic: str) -> TopicSettings:
        """The settings of a topic as the plan has them.

        Raises:
            StalePlanError: the plan was edited.
        """
        return self._settings.topic(topic)

    def settings(self, staging: Staging) -> TopicSettings:
        """Those of a partition's topic, see ``topic``."""
        return self.topic(staging.plan.topic)

    def scan_watermark(self, staging: Staging) -> int:
        """The high watermark that scans are told."""
        known = self.high_watermark(staging)
        return INT64_MAX if self.plan.policy.assume_high_watermark or known < 0 else known

    def high_watermark(self, staging: Staging) -> int:
        """That of the plan, or the one that is recorded now if it fell; -1 if there was none."""
        return min(staging.plan.high_watermark, watermark_of(self.view, staging.listed))

    def take_facts(
        self, staging: Staging, base_offset: int, result: ScanResult | Failed, *, with_txn_index: bool
    ) -> None:
        """Facts of one segment; a failure is the partition's problem.

        Args:
            staging: of the partition.
            base_offset: of the segment.
            result: of its scan.
            with_txn_index: whether its transaction index has to be right too. Who only asks what the log says does not
                care: another change of the same plan may mend that index.
        """
        if isinstance(result, Failed):
            staging.fails(result)
            return
        if with_txn_index and result.txn_damage:
            staging.fails(Failed("changed", result.txn_damage))
            return
        segments = staging.listed.segments
        segment = segments[bisect_left(segments, base_offset, key=lambda one: one.base_offset)]
        assert segment.base_offset == base_offset, "a log that is not listed was read"
        staging.facts[base_offset] = facts_of(segment, result)

    def all_facts(
        self, staging: Staging, since: int = 0, *, with_txn_index: bool = False
    ) -> list[SegmentFacts]:
        """Facts of every segment from a base offset on, as the logs will be after the plan; scans what is missing.

        Args:
            staging: of the partition.
            since: the base offset.
            with_txn_index: see ``take_facts``.

        Raises:
            KrepairError: a log could not be read.
        """
        from krepair.scan.scan import scan

        parts = [
            part for part in parts_after(staging.listed, staging.plan.changes) if part.base_offset >= since
        ]
        missing = [part for part in parts if part.base_offset not in staging.facts]
        if missing:
            context, survey = self.context, self.survey(staging)
        asked = (
            (part.base_offset, scan_item(context, survey, part.segment, without=part.without))
            for part in missing
        )
        for base_offset, result in self.engine.each(scan, asked):
            self.take_facts(staging, base_offset, result, with_txn_index=with_txn_index)
        if staging.problem is not None:
            raise staging.problem
        return [staging.facts[part.base_offset] for part in parts]
