"""What each verb hands back: plain values that the command line prints as text or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct, field

from krepair.checks.catalogue import Finding, Severity, counts
from krepair.commit.result import ChangeResult
from krepair.errors import ExitCode
from krepair.logdir.config import Setting
from krepair.next_command import NOTHING, Next
from krepair.start.line import ForecastLine

KeptState = Literal["applied", "half done", "undone", "being purged", "staged", "unknown"]

_DONE_OUTCOMES = frozenset({"committed", "already", "undone", "purged", "gone"})


class Report(Struct, frozen=True, kw_only=True):
    """What a verb hands back: figures, what to type next, and the exit code that follows from them.

    Attributes:
        engine: which engine was used, and why, one line; empty where none was.
        next_command: what to type next, or empty.
    """

    engine: str = ""
    next_command: Next = field(default_factory=Next)

    @property
    def exit_code(self) -> ExitCode:
        """DONE, unless a report says otherwise of itself."""
        return ExitCode.DONE


class PartitionSummary(Struct, frozen=True, kw_only=True):
    """What a partition is made of.

    Attributes:
        partition: folder name.
        segments: how many.
        log_bytes: size of all its ``.log`` files.
        batches: valid batches.
        markers: commit and abort markers.
        marker_bytes: their bytes.
        emptied: batches without records that are no markers.
        emptied_bytes: their bytes.
        log_start_offset: first offset.
        log_end_offset: offset after the last valid batch.
    """

    partition: str
    segments: int
    log_bytes: int
    batches: int
    markers: int
    marker_bytes: int
    emptied: int
    emptied_bytes: int
    log_start_offset: int
    log_end_offset: int


class KeptPlan(Struct, frozen=True, kw_only=True):
    """What one plan keeps in a log directory.

    Attributes:
        plan_id: of the plan.
        state: ``applied``; ``half done`` (a change was interrupted); ``undone`` (only what is left over has to go);
            ``being purged``; ``staged`` (new files only, nothing was changed); ``unknown`` (a journal or folder could
            not be read).
        partitions: names of the folders that hold something of it, ascending.
        bytes: of the files that have no other name: what purge frees.
        last_written_ms: when a journal of it was last written, epoch milliseconds; -1 if there is none.
        age_seconds: since then, by ``now_ms``; -1 if it is not known.
        copy: of the plan, among what it keeps: ``there``, ``missing``, or ``damaged`` (no copy can be used).
        undo: whether it can be undone, by what is to be seen without reading the kept files: ``yes``, ``partly`` (not
            in every partition), ``no``.
        why_not: of ``partly`` and ``no``: the first reason; of a copy that cannot be used: what is wrong with it.
        next_command: what to type about that reason, such as of a damaged journal; may be empty.
        forbidden: whether nothing but the permissions is in the way of a look at it.
        fence: folders whose fence is up: a broker that starts now recovers the partition.
        half_done: ids of the changes that were interrupted.
    """

    plan_id: str
    state: KeptState
    partitions: tuple[str, ...] = ()
    bytes: int = 0
    last_written_ms: int = -1
    age_seconds: int = -1
    copy: Literal["there", "missing", "damaged"] = "missing"
    undo: Literal["yes", "partly", "no"] = "no"
    why_not: str = ""
    next_command: Next = field(default_factory=Next)
    forbidden: bool = False
    fence: tuple[str, ...] = ()
    half_done: tuple[str, ...] = ()


class KeptReport(Report, frozen=True, kw_only=True):
    """What ``undo`` and ``purge`` of a log directory list when no plan is named.

    Attributes:
        log_dir: its path.
        plans: the one written last comes first, which is the order in which they can be undone.
    """

    log_dir: str
    plans: tuple[KeptPlan, ...] = ()


class RuleSummary(Struct, frozen=True, kw_only=True):
    """What was found of one rule, as far as it is equally bad.

    Attributes:
        rule: ``KRnnn``.
        severity: how bad it is here.
        title: of the rule.
        fix: name for ``--fix`` that mends it, or ``none``.
        findings: how many.
        partitions: folders, that with most bytes first.
        bytes: that the findings are about.
        command: what to type, where it is the same for all of them; else empty.
    """

    rule: str
    severity: Severity
    title: str
    fix: str
    findings: int
    partitions: tuple[str, ...] = ()
    bytes: int = 0
    command: Next = field(default_factory=Next)


class LogDirReport(Struct, frozen=True, kw_only=True):
    """One log directory as ``check`` saw it.

    Attributes:
        log_dir: its path.
        cluster_id: from ``meta.properties``, may be empty.
        broker_id: from ``meta.properties``, may be empty.
        findings: by partition, then rule, then file and position.
        rules: the same summed up by rule, the worst first.
        partitions: what each is made of, by topic and number.
        forecast: what the next start would do, by topic and number.
        settings: topic -> its settings, each with its source.
        retention_not_known: partitions with segments past ``retention.ms``, whose ``cleanup.policy`` is not known: the
            forecast says nothing of retention there.
        uncleanable_partitions: KIP-346's count.
        uncleanable_bytes: KIP-346's bytes.
        scanned_bytes: how much ``.log`` was read.
        start_needs_bytes: bytes the next start may write on this disk, -1 if it was not worked out.
        start_reserves_bytes: by how much it extends index files without writing to them, -1 likewise.
        free_bytes: what the file system has left, -1 if that is not known.
        start_needs_files: new files that the next start may make, -1 if that was not worked out.
        free_files: new files that the file system has room for, -1 if it has no such limit.
        start_opens_files: files that the start opens, and the broker keeps open.
        start_maps_files: index files that it maps into memory.
        kept: what applied plans keep, the one written last first.
    """

    log_dir: str
    cluster_id: str = ""
    broker_id: str = ""
    findings: tuple[Finding, ...] = ()
    rules: tuple[RuleSummary, ...] = ()
    partitions: tuple[PartitionSummary, ...] = ()
    forecast: tuple[ForecastLine, ...] = ()
    settings: dict[str, tuple[Setting, ...]] = {}
    retention_not_known: tuple[str, ...] = ()
    uncleanable_partitions: int = 0
    uncleanable_bytes: int = 0
    scanned_bytes: int = 0
    start_needs_bytes: int = -1
    start_reserves_bytes: int = -1
    free_bytes: int = -1
    start_needs_files: int = -1
    free_files: int = -1
    start_opens_files: int = 0
    start_maps_files: int = 0
    kept: tuple[KeptPlan, ...] = ()


class CheckReport(Report, frozen=True, kw_only=True):
    """What ``check`` found.

    Attributes:
        log_dirs: one entry per log directory, in the order given.
        left_out: log directories that the broker's configuration names and that were not looked at.
        oldest_version: the oldest release that can read all of them, of those that krepair knows; empty if none can.
        newest_version: the newest one.
    """

    log_dirs: tuple[LogDirReport, ...] = ()
    left_out: tuple[str, ...] = ()
    oldest_version: str = ""
    newest_version: str = ""

    @property
    def exit_code(self) -> ExitCode:
        """FOUND when any finding is more than information, else DONE."""
        found = any(counts(finding) for report in self.log_dirs for finding in report.findings)
        return ExitCode.FOUND if found else ExitCode.DONE


class ApplyReport(Report, frozen=True, kw_only=True):
    """What ``apply``, ``undo`` or ``purge`` did.

    Attributes:
        verb: which of them.
        plan_id: of the plan.
        log_dir: where.
        results: by partition and base offset, in the order of the plan.
        slow_because: why Spark could not be taken, where it would be sooner done; else empty.
        uncleanable_partitions: KIP-346's count after this run.
        uncleanable_bytes: KIP-346's bytes after this run.
        interrupted: whether it was stopped at a safe point.
        digest: of the plan, all 64 hex digits; empty where the plan was not read.
        notes: what has to be known besides, one sentence each: such as that the directory was moved.
        taken_back: what an earlier run had left and this one has taken back, where nothing else is done: the fence
            of a partition, or the id of a change that was half done.
        by_hand: of ``undo``: the lines of a shell that put originals back where a journal is damaged; a person types
            them while the broker is stopped.
    """

    verb: Literal["apply", "undo", "purge"]
    plan_id: str
    log_dir: str
    results: tuple[ChangeResult, ...] = ()
    slow_because: str = ""
    uncleanable_partitions: int = 0
    uncleanable_bytes: int = 0
    interrupted: bool = False
    digest: str = ""
    notes: tuple[str, ...] = ()
    taken_back: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """DONE when all is done; the one common code when nothing is done, and nothing was taken back; else PARTLY."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        missed = [result for result in self.results if result.outcome not in _DONE_OUTCOMES]
        if not missed:
            return ExitCode.DONE
        if len(missed) < len(self.results) or self.taken_back:
            return ExitCode.PARTLY
        return _worst(result.exit_code for result in missed)

    @property
    def bytes_freed(self) -> int:
        """Sum over the results."""
        return sum(result.bytes_freed for result in self.results)


def next_of(results: Sequence[ChangeResult], again: Next, otherwise: Next) -> Next:
    """What to type after a verb of a plan.

    Args:
        results: what it did.
        again: the same command: it continues what stopped half done, or at a full disk.
        otherwise: where no failure asks for anything.
    """
    failed = [result for result in results if result.outcome == "failed"]
    told = next((result.next_command for result in (*failed, *results) if result.next_command), NOTHING)
    told = told or next((again.at(result.again) for result in failed if result.again), NOTHING)
    goes_on = {result.exit_code for result in failed} & {ExitCode.UNWRITABLE, ExitCode.PARTLY}
    return told or (again if goes_on else otherwise)


def _worst(codes: Iterable[int]) -> ExitCode:
    """The code they share; PARTLY where it is among them; else REFUSED: nothing was changed, for several reasons."""
    known = {code for code in codes if code}
    if ExitCode.PARTLY in known:
        return ExitCode.PARTLY
    if len(known) != 1:
        return ExitCode.REFUSED
    try:
        return ExitCode(known.pop())
    except ValueError:
        return ExitCode.BUG


class Problem(Struct, frozen=True, kw_only=True):
    """One thing that ``verify`` found wrong.

    Attributes:
        partition: folder name, or empty for the log directory itself.
        file: file name, or empty.
        position: byte in the file, -1 if it is about the whole file.
        text: what was expected and what is there.
        change_id: of the change it belongs to, or empty.
        next_command: what to type about it; may be empty.
        forbidden: whether it is only that this user may not look.
    """

    partition: str
    file: str
    position: int
    text: str
    change_id: str = ""
    next_command: Next = field(default_factory=Next)
    forbidden: bool = False


class CheckedFiles(Struct, frozen=True, kw_only=True):
    """Files that ``verify`` of a plan has checked, of one kind.

    Attributes:
        what: the files, in words, plural.
        files: how many of them; a file that is checked in two ways counts for each.
        how: each of them was checked, in words.
    """

    what: str
    files: int
    how: str


class VerifyReport(Report, frozen=True, kw_only=True):
    """What ``verify`` proved and what it could not.

    Attributes:
        target: the plan file's log directory, or the log directory given.
        plan_id: of the plan, empty when a log directory was verified.
        problems: all that is wrong, by partition and file.
        partitions: how many were looked at.
        segments: how many logs were read whole; of a plan those that it made or changed.
        batches: how many were checked.
        bytes_read: of ``.log``.
        slow_because: why Spark could not be taken, where it would be sooner done; else empty.
        checked: of a plan, which of its files were checked, and how; empty when a log directory was verified.
        not_compared: of ``--originals``: where and why new files could not be held against their originals; else empty.
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

    @property
    def exit_code(self) -> ExitCode:
        """FOUND when there is a problem, or what was asked for could not be done; else DONE."""
        return ExitCode.FOUND if self.problems or self.not_compared else ExitCode.DONE


class VerifyEachReport(Report, frozen=True, kw_only=True):
    """What ``verify`` proved of several log directories.

    Attributes:
        reports: one for each, in the order given.
    """

    reports: tuple[VerifyReport, ...]

    @property
    def exit_code(self) -> ExitCode:
        """The largest of the codes of the single reports."""
        return max(report.exit_code for report in self.reports)
