"""Implement ``krepair verify``: read everything again, independently, and report what is wrong. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from krepair.commit.fence import standing_fences
from krepair.commit.folder import ROOT, PartitionFolder
from krepair.commit.journal import Journal
from krepair.commit.listing import marker_of
from krepair.commit.purge import check_not_half_done
from krepair.commit.ready import (
    FINISHED,
    check_target,
    disk_below,
    is_root,
    journal_folder,
    listed,
    targets_of,
)
from krepair.commit.status import ChangeState, staged_groups, status_in
from krepair.commit.visited import has_grown, names_written_since
from krepair.durable.scratch import Scratch
from krepair.engine.choice import WorkKind, choose_engine
from krepair.engine.engine import Engine
from krepair.engine.items import Failed, VerifyItem, VerifyResult
from krepair.engine.progress import Progress
from krepair.errors import AS_A_READER, ExitCode, KrepairError, RefusedError, StalePlanError, UsageError
from krepair.fixes.carry_out import verify_all
from krepair.fixes.checkpoints import log_ends
from krepair.fixes.context import log_of, place_of
from krepair.fixes.fix import named_or_all
from krepair.fixes.logs import next_base_of
from krepair.fixes.missing_tails import missing_tails
from krepair.fixes.snapshots import snapshot_problems
from krepair.fixes.staging import Staging, Work, Wrong
from krepair.formats.filenames import LOG, FileKind, NameState, log_name, parse_file_name, segment_name
from krepair.formats.words import count_text, names_text
from krepair.logdir.config import load_settings
from krepair.logdir.lock import is_locked
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import read_log_dir
from krepair.next_command import NOTHING, PLAN, Next, of_error
from krepair.options import Options
from krepair.plan.keep import is_freed_by_apply
from krepair.plan.model import Change, PartitionPlan, Plan
from krepair.report import Report
from krepair.rules.missing_tails import RULE, MissingTail
from krepair.start.log_dirs_given import check_named

if TYPE_CHECKING:
    from krepair.rewrite.indexes.transactions import TxnResult


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Problem that ``verify`` met.

    Attributes:
        partition: folder name, or empty for the log directory itself.
        file: file name, or empty.
        position: byte in the file, -1 if it is about the whole file.
        text: expected and actual state, in words.
        change_id: id of the change that the problem belongs to, or empty.
        next_command: the command to type about the problem; may be empty.
        forbidden: True if permissions alone keep this user from reading the file.
    """

    partition: str
    file: str
    position: int
    text: str
    change_id: str = ""
    next_command: Next = msgspec.field(default_factory=Next)
    forbidden: bool = False


class CheckedFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Files of one kind that ``verify`` of a plan has checked.

    Attributes:
        what: the files, in words, plural.
        files: number of files; a file that is checked in two ways counts for each.
        how: each of them was checked, in words.
    """

    what: str
    files: int
    how: str


class VerifyReport(Report, frozen=True, kw_only=True):
    """Result of ``verify`` for a plan or one log directory.

    Attributes:
        target: the plan file's log directory, or the log directory given.
        plan_id: id of the plan; empty if a log directory was verified.
        problems: all that is wrong, by partition and file.
        partitions: number of partitions that were read.
        segments: number of logs that were read whole; for a plan, of those that it made or changed.
        batches: number of batches that were checked.
        bytes_read: bytes of ``.log`` files that were read.
        slow_because: reason why Spark could not be used where it would be faster; else empty.
        checked: files of the plan that were checked, and how; empty if a log directory was verified.
        not_compared: with ``--originals``: where and why new files could not be compared with their originals; else
            empty.
        of_the_broker: number of the plan's files that a broker has rewritten or removed since the apply.
    """

    target: str
    plan_id: str = ""
    problems: tuple[Problem, ...] = ()
    partitions: int = 0
    segments: int = 0
    batches: int = 0
    bytes_read: int = 0
    slow_because: str = ""
    checked: tuple[CheckedFiles, ...] = ()
    not_compared: str = ""
    of_the_broker: int = 0

    @property
    def exit_code(self) -> ExitCode:
        """FOUND if there is a problem or a requested comparison was impossible, else DONE."""
        return ExitCode.FOUND if self.problems or self.not_compared else ExitCode.DONE


class VerifyEachReport(Report, frozen=True, kw_only=True):
    """Results of ``verify`` for several log directories.

    Attributes:
        reports: one for each, in the order given.
    """

    reports: tuple[VerifyReport, ...]

    @property
    def exit_code(self) -> ExitCode:
        """The largest of the codes of the single reports."""
        return max(report.exit_code for report in self.reports)


_VERIFIED = {
    FileKind.LOG,
    FileKind.OFFSET_INDEX,
    FileKind.TIME_INDEX,
    FileKind.TXN_INDEX,
    FileKind.SNAPSHOT,
}


def verify_log_dir(path: str, options: Options, progress: Progress | None = None) -> VerifyReport:
    """Check every batch and every index of a log directory; see ``verify_log_dirs`` for what it raises."""
    (report,) = verify_log_dirs([path], options, progress).reports
    return report


def verify_log_dirs(
    paths: Sequence[str], options: Options, progress: Progress | None = None
) -> VerifyEachReport:
    """Check every batch and every index of log directories, in one job.

    Raises:
        NotALogDirError: a path is none, or a partition that was named is in none of them.
        UsageError: a configuration file or value is wrong, or a directory is given twice.
    """
    views = [read_log_dir(path) for path in paths]
    named = [view.path for view in views]
    twice = next((path for path in named if named.count(path) > 1), "")
    if twice:
        raise UsageError(f"{twice} is given twice")
    check_named(views, options)
    settings = load_settings(options.config, options.topic_config, dict(options.settings))
    parts = [_VerifiedDir(view, named_or_all(view, options)) for view in views]
    items: list[VerifyItem] = []
    owners: list[_VerifiedDir] = []
    for part in parts:
        for partition in part.partitions:
            interval = settings.topic(partition.topic).index_interval_bytes
            some = _segment_items(part.view, partition, interval)
            items += some
            owners += [part] * len(some)
            part.segments += len(some)
    total = sum(item.bytes_to_read for item in items)
    from krepair.rewrite.indexes.transactions import inspect_txn
    from krepair.rewrite.segments.verify import verify_segment

    with closing(choose_engine(options.engine, options.master, {WorkKind.READ: total}, progress)) as engine:
        for index, result in engine.map(verify_segment, items):
            owners[index].take(items[index], result)
        items_by_partition = [
            ((part, partition), log_of(part.view, partition))
            for part in parts
            for partition in part.with_aborts()
        ]
        for (part, partition), replayed in engine.each(inspect_txn, items_by_partition):
            part.take_aborts(partition, replayed)
    reports = tuple(part.report(engine) for part in parts)
    return VerifyEachReport(
        reports=reports,
        engine=engine.why,
        next_command=next((report.next_command for report in reports if report.problems), NOTHING),
    )


class _VerifiedDir:
    """One log directory while it is verified."""

    def __init__(self, view: LogDir, partitions: Sequence[Partition]) -> None:
        self.view = view
        self.partitions = partitions
        self.segments = self.batches = self.read = 0
        self.problems = list(_problems_of_files(partitions))
        self.ends: dict[str, int] = {}
        self.with_markers: set[str] = set()

    def take(self, item: VerifyItem, result: VerifyResult | Failed) -> None:
        """Take the result of reading one segment."""
        folder = item.place.folder
        if isinstance(result, Failed):
            self._not_read(folder, result)
            return
        self.problems.extend(
            Problem(partition=folder, file=name, position=position, text=text)
            for name, position, text in result.problems
        )
        if result.markers:
            self.with_markers.add(folder)
        self.batches += result.batches
        self.read += result.bytes
        if item.active and result.end_offset >= 0:
            self.ends[folder] = result.end_offset

    def _not_read(self, folder: str, failed: Failed) -> None:
        """Record a file that could not be read; it is reported once, though every reading meets it."""
        problem = Problem(partition=folder, file="", position=-1, text=failed.why)
        if problem not in self.problems:
            self.problems.append(problem)

    def with_aborts(self) -> Iterator[Partition]:
        """Yield partitions that may hold aborts: only a replay tells whether a ``.txnindex`` lacks an entry."""
        for partition in self.partitions:
            if partition.folder in self.with_markers or any(
                segment.txn_index for segment in partition.segments
            ):
                yield partition

    def take_aborts(self, partition: Partition, result: TxnResult | Failed) -> None:
        """Take the result of a replay; after an unclean stop a start rebuilds the last transaction index."""
        if isinstance(result, Failed):
            self._not_read(partition.folder, result)
            return
        reported = {problem.file for problem in self.problems if problem.partition == partition.folder}
        rebuilt = -1 if self.view.clean_shutdown else partition.segments[-1].base_offset
        for entry in result.problems:
            name = segment_name(entry.base_offset, ".txnindex")
            if entry.base_offset != rebuilt and name not in reported:
                problem = Problem(
                    partition=partition.folder, file=name, position=entry.position, text=entry.text
                )
                self.problems.append(problem)
        # Damage was reported when its segment was read, unless the file has become shorter since.
        damaged = log_name(max(result.damaged, 0))
        if result.damaged >= 0 and not reported.intersection(("", damaged)):
            text = "changed while it was read: from here on, missing entries of a .txnindex were not detected"
            self.problems.append(Problem(partition=partition.folder, file=damaged, position=-1, text=text))

    def report(self, engine: Engine) -> VerifyReport:
        """Return the report on the log directory."""
        ends = {
            partition.key: self.ends.get(partition.folder) if partition.has_an_end else None
            for partition in self.partitions
        }
        self.problems += _of_missing_tails(missing_tails(self.view, ends))
        return VerifyReport(
            target=self.view.path,
            problems=tuple(
                sorted(self.problems, key=lambda problem: (problem.partition, problem.file, problem.position))
            ),
            partitions=len(self.partitions),
            segments=self.segments,
            batches=self.batches,
            bytes_read=self.read,
            engine=engine.why,
            slow_because=engine.slow_because,
            next_command=Next.of("check", self.view.path) if self.problems else NOTHING,
        )


def _of_missing_tails(gone: Iterable[MissingTail]) -> Iterator[Problem]:
    for missing_tail in gone:
        yield Problem(
            partition=missing_tail.folder, file="", position=-1, text=f"{missing_tail.text} ({RULE})"
        )


def _missing_tails_of(view: LogDir, targets: Sequence[PartitionPlan], engine: Engine) -> tuple[Problem, ...]:
    """Return logs of the plan with missing or unreadable tails; nothing after an unclean stop.

    Where the plan cut a torn tail, the log ended too early before the plan, whose page says so.
    """
    if not view.clean_shutdown:
        return ()
    partitions = [
        partition
        for target in targets
        if not _cuts_torn_tail(target) and (partition := listed(view, target)) is not None
    ]
    unread: dict[str, str] = {}
    gone = missing_tails(view, log_ends(view, engine, of=partitions, unread=unread))
    not_read = (
        Problem(partition=folder, file="", position=-1, text=f"{why}; its log end was not checked")
        for folder, why in unread.items()
    )
    return (*_of_missing_tails(gone), *not_read)


def _cuts_torn_tail(target: PartitionPlan) -> bool:
    cuts = (removed for change in target.changes for removed in change.damage_removed)
    return any(not removed.consent and not removed.is_padding for removed in cuts)


def _problems_of_files(partitions: Sequence[Partition]) -> Iterator[Problem]:
    """Yield the problems that show without reading a log."""
    for partition in partitions:
        if partition.unreadable:
            yield Problem(partition=partition.folder, file="", position=-1, text=partition.unreadable)
        for name, position, text in snapshot_problems(partition):
            yield Problem(partition=partition.folder, file=name, position=position, text=text)
        for special in partition.specials:
            if _is_read_by_a_broker(special.name):
                text = f"expected a regular file, found a {special.kind}"
                yield Problem(partition=partition.folder, file=special.name, position=-1, text=text)


def _is_read_by_a_broker(name: str) -> bool:
    """Return whether a name is that of a log, an index or a snapshot."""
    parsed = parse_file_name(name)
    return parsed.kind in _VERIFIED and parsed.state is NameState.LIVE


def _segment_items(view: LogDir, partition: Partition, interval_bytes: int) -> list[VerifyItem]:
    return [
        VerifyItem(
            place=place_of(view, partition),
            base_offset=segment.base_offset,
            size=segment.log.size,
            active=segment is partition.segments[-1],
            interval_bytes=interval_bytes,
            clean=view.clean_shutdown,
            next_base=next_base_of(view, partition, segment.base_offset),
        )
        for segment in partition.segments
    ]


def verify_plan(plan: Plan, options: Options, progress: Progress | None = None) -> VerifyReport:
    """Compare what apply made with the plan, and with ``options.originals`` also with the backups.

    Before the swap, apply proved that every source batch is kept byte for byte, or has no records.

    Raises:
        StalePlanError: the plan is for another host or directory.
        RefusedError: the review objects.
    """
    plan = check_target(plan)
    view = read_log_dir(plan.log_dir)
    targets = targets_of(plan)
    total = sum(change.work.verify for target in targets for change in target.changes)
    with (
        closing(choose_engine(options.engine, options.master, {WorkKind.READ: total}, progress)) as engine,
        closing(Scratch(options.scratch, (plan.log_dir,))) as scratch,
        disk_below(plan.log_dir) as disk,
    ):
        work = Work(plan, view, engine, disk, originals=options.originals, scratch=scratch)
        observed = _ObservedState(broker_seen=_broker_seen(work), marker=_marker(work, targets))
        # The root comes last: it has no log that grows, so the partitions tell whether its entries are a broker's now.
        last = sorted(targets, key=is_root)
        verify_all(work, [staging for target in last for staging in _applied(work, target, observed)])
        beside = (*_of_the_broker(work, observed), *_missing_tails_of(view, targets, engine))
    problems = [
        Problem(
            partition="" if wrong.folder == ROOT else wrong.folder,
            file=wrong.change_id.removeprefix(f"{ROOT}/") if wrong.folder == ROOT else "",
            position=-1,
            text=wrong.text,
            change_id=wrong.change_id,
            next_command=wrong.next_command,
            forbidden=wrong.forbidden,
        )
        for wrong in work.wrong
    ]
    return VerifyReport(
        target=plan.log_dir,
        plan_id=plan.plan_id,
        problems=(*problems, *beside),
        partitions=sum(not is_root(target) for target in targets),
        segments=sum(files for kind, files in work.checked.items() if kind.is_log),
        batches=work.batches,
        bytes_read=work.bytes_read,
        engine=engine.why,
        slow_because=engine.slow_because,
        next_command=_next(plan, problems, observed, beside),
        checked=tuple(
            CheckedFiles(what=kind.what, files=files, how=kind.how)
            for kind, files in work.checked.items()
            if files
        ),
        not_compared=observed.not_compared() if options.originals else "",
        of_the_broker=sum(map(len, observed.by_broker.values())),
    )


def _broker_seen(work: Work) -> bool:
    """Return whether a broker, or another program, holds the lock, or a high watermark is above that of the plan.

    Only brokers raise one. Asked of what was written down, never of times: they differ in a copy of the directory.
    Where the system fails to tell, no broker is known to have run, and each difference from the plan is a problem.
    """
    now = work.view.high_watermark.offsets
    if any(
        0 <= partition.high_watermark < now.get((partition.topic, partition.partition), -1)
        for partition in work.plan.changing
    ):
        return True
    try:
        return is_locked(work.view.path) is not None
    except KrepairError:
        return False


def _marker(work: Work, targets: Sequence[PartitionPlan]) -> str | None:
    """Return the digest of the clean-shutdown marker, empty if there is none; None if it cannot be read."""
    for folder in (journal_folder(work.disk, work.plan, target) for target in targets):
        try:
            return marker_of(folder, standing_fences(folder.tree, folder.log_dir))
        except OSError:
            break
    return None


def _of_the_broker(work: Work, observed: _ObservedState) -> Iterator[Problem]:
    """Yield problems of the files that a broker has written since; a difference from the plan is none."""
    from krepair.rewrite.segments.verify import verify_segment

    work.wrong = [wrong for wrong in work.wrong if (wrong.folder, wrong.change_id) not in observed.by_broker]
    by_broker: dict[str, set[str]] = {}
    for (folder, _), names in observed.by_broker.items():
        by_broker.setdefault(folder, set()).update(names)
    items: list[VerifyItem] = []
    for partition in work.view.partitions:
        if written := by_broker.get(partition.folder):
            yield from (problem for problem in _problems_of_files([partition]) if problem.file in written)
            bases = {parse_file_name(name).base_offset for name in written}
            interval = work.topic(partition.topic).index_interval_bytes
            some = _segment_items(work.view, partition, interval)
            items += [item for item in some if item.base_offset in bases]
    for index, result in work.engine.map(verify_segment, items):
        folder = items[index].place.folder
        if isinstance(result, Failed):
            yield Problem(partition=folder, file="", position=-1, text=result.why)
            continue
        work.batches += result.batches
        work.bytes_read += result.bytes
        for name, position, text in result.problems:
            if name.endswith(LOG):  # a running broker keeps zeros after the entries of an open index
                yield Problem(partition=folder, file=name, position=position, text=text)


@dataclass
class _ObservedState:
    """State of a plan's changes: which are not applied, and where the originals of the others are.

    Attributes:
        kept: partitions with originals in krepair's own sub-folders, with which new files are compared; the log
            directory itself counts as one.
        gone: partitions whose originals are nowhere.
        not_applied: states of changes that are not applied.
        rows_not_applied: number of problems that only report such states.
        half_done: the command to type where an apply or undo was interrupted, as purge says it; else empty.
        has_journal: True if there is anything for purge to remove.
        broker_seen: whether a broker runs, or has run since the plan was made, by what was looked at so far.
        marker: digest of the clean-shutdown marker, None if not known.
        by_broker: (folder, change id) -> files that a broker has rewritten or removed since.
    """

    broker_seen: bool
    marker: str | None
    kept: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    not_applied: set[ChangeState] = field(default_factory=set)
    rows_not_applied: int = 0
    half_done: Next = NOTHING
    has_journal: bool = False
    by_broker: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    def read_journal(self, folder: PartitionFolder, journal: Journal) -> None:
        """Read what the journal of a folder says about the next command.

        Raises:
            OSError: a file could not be read.
        """
        self.has_journal = self.has_journal or journal.bytes_read > 0
        try:
            check_not_half_done(folder, journal)
        except RefusedError as error:
            self.half_done = self.half_done or of_error(error)

    def take(self, target: PartitionPlan, change: Change, state: ChangeState) -> None:
        """Record where the originals of an applied change are."""
        if not change.has_originals:
            return
        places = self.kept if state is ChangeState.COMMITTED else self.gone
        name = "the log directory itself" if is_root(target) else target.folder
        if name not in places[-1:]:
            places.append(name)

    def not_compared(self) -> str:
        """Return what could not be compared with its originals, and why; empty if all could."""
        where = f" in {names_text(self.gone)}" if self.kept else ""
        return f"Not compared with the originals{where}: there are no backups any more" if self.gone else ""


def _next(plan: Plan, problems: list[Problem], observed: _ObservedState, beside: Sequence[Problem]) -> Next:
    """Return the command to type: first for problems in what the plan made, then for problems beside it."""
    if problems:
        return _next_for_problems(problems, observed)
    return (
        Next.of("check", plan.log_dir) if beside else observed.half_done or _next_when_right(plan, observed)
    )


def _next_for_problems(problems: list[Problem], observed: _ObservedState) -> Next:
    """Return the command to type about problems: a damaged journal first, then an interrupted run to finish."""
    if len(problems) == observed.rows_not_applied and observed.half_done:
        return observed.half_done
    if len(problems) == observed.rows_not_applied and observed.not_applied == {ChangeState.PLANNED}:
        return Next.of("apply", PLAN)
    if all(problem.forbidden for problem in problems):
        # No check failed, the files just could not be read: undo would give up a good result.
        return Next.of("verify", PLAN, when=AS_A_READER)
    return next((problem.next_command for problem in problems if problem.next_command), Next.of("undo", PLAN))


def _next_when_right(plan: Plan, observed: _ObservedState) -> Next:
    """Return the command to type once all is right: purge, only if there are backups that may go."""
    check = Next.of("check", plan.log_dir)
    changes = [change for target in targets_of(plan) for change in target.changes]
    if changes and all(map(is_freed_by_apply, changes)):
        return check
    return Next.of("purge", PLAN, when="when the brokers are well") if observed.has_journal else check


def _applied(work: Work, target: PartitionPlan, observed: _ObservedState) -> Iterator[Staging]:
    """Yield a target with its applied changes; the others become problems."""
    partition = listed(work.view, target)
    folder = journal_folder(work.disk, work.plan, target)
    staging = Staging(target, partition, folder, ())
    try:
        if not is_root(target) and partition is None:
            raise StalePlanError(f"{folder.path}: is gone")
        if partition is not None and partition.unreadable:
            raise StalePlanError(partition.unreadable) from (
                PermissionError() if partition.forbidden else None
            )
        with folder.tree.keeping_folders():
            journal = folder.journal()
            observed.read_journal(folder, journal)
            states = status_in(folder, target, journal)
            sizes = {} if partition is None else {file.name: file.size for file in partition.files()}
            broker_has_run = observed.broker_seen or has_grown(journal, observed.marker, sizes)
            if broker_has_run:
                observed.broker_seen = True
                by_broker = names_written_since(folder, journal)
                observed.by_broker |= {
                    (target.folder, change_id): names for change_id, names in by_broker.items()
                }
            staging.staged |= staged_groups(journal)
    except (KrepairError, OSError) as error:
        work.found_all(staging, error)
        return
    applied = []
    missing: dict[ChangeState, list[str]] = {}
    for change in target.changes:
        state = states[change.change_id]
        if state in FINISHED:
            # A start since then has read the recovery points and may have advanced them: the entries are the broker's.
            if not (broker_has_run and change.trusts):
                applied.append(change)
            observed.take(target, change, state)
            if state is ChangeState.FREED:
                staging.freed.update(change.touches)
        else:
            missing.setdefault(state, []).append(change.change_id)
    for state, changes in missing.items():
        observed.not_applied.add(state)
        observed.rows_not_applied += 1
        work.wrong.append(_not_applied(target, state, changes))
    yield staging.only(*applied)


def _not_applied(target: PartitionPlan, state: ChangeState, changes: Sequence[str]) -> Wrong:
    """Return one problem for all changes of a partition that are in the same state."""
    is_single = len(changes) == 1
    text = f"{count_text(len(changes), 'change')} {'is' if is_single else 'are'} not applied: "
    text += f"{'its' if is_single else 'their'} state is {state.value}"
    return Wrong(target.folder, changes[0] if is_single else "", text)
