"""Results that the verbs return: plain values, which the command line prints as text or as JSON."""

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
    """Result of a verb: figures, the next command, and the exit code that follows from them.

    Attributes:
        engine: name of the engine that was used, and why, in one line; empty where none was used.
        next_command: the command to type next; may be empty.
    """

    engine: str = ""
    next_command: Next = field(default_factory=Next)

    @property
    def exit_code(self) -> ExitCode:
        """Exit code of the report: DONE, unless a subclass decides otherwise."""
        return ExitCode.DONE


class PartitionSummary(Struct, frozen=True, kw_only=True):
    """Figures of one partition.

    Attributes:
        partition: folder name of the partition.
        segments: number of segments.
        log_bytes: size of all ``.log`` files of the partition.
        batches: number of valid batches.
        markers: commit and abort markers.
        marker_bytes: size of the markers in bytes.
        emptied: number of batches without records that are not markers.
        emptied_bytes: size of the emptied batches in bytes.
        log_start_offset: base offset of the first segment; 0 if there is none.
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
    """Backups of one plan in a log directory.

    Attributes:
        plan_id: id of the plan.
        state: ``applied``; ``half done`` (a change was interrupted); ``undone`` (only what is left over has to go);
            ``being purged``; ``staged`` (new files only, nothing was changed); ``unknown`` (a journal or folder could
            not be read).
        partitions: names of the folders that hold something of it, ascending.
        bytes: size of the files that have no other name, which is what purge frees.
        last_written_ms: time of the last write to a journal of the plan, in epoch milliseconds; -1 if there is no
            journal.
        age_seconds: seconds since the last write, counted up to ``now_ms``; -1 if unknown.
        copy: state of the copy of the plan: ``there``, ``missing``, or ``damaged`` (no copy can be used).
        undo: ``yes``, ``partly`` (not in every partition) or ``no``: can the plan be undone, judged without reading the
            backups.
        why_not: first reason for ``partly`` or ``no``, or the fault of a copy that cannot be used.
        next_command: the command to type about ``why_not``, such as for a damaged journal; may be empty.
        forbidden: true if permissions alone keep this user from reading the backups.
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
    """List of backups that ``undo`` and ``purge`` print when no plan is named.

    Attributes:
        log_dir: path of the log directory.
        plans: the one written last comes first, which is the order in which they can be undone.
    """

    log_dir: str
    plans: tuple[KeptPlan, ...] = ()


class RuleSummary(Struct, frozen=True, kw_only=True):
    """Findings of one rule and one severity, summed up.

    Attributes:
        rule: code of the rule, as in ``KR101``.
        severity: severity that these findings share.
        title: title of the rule.
        fix: name for ``--fix`` that repairs the findings, or ``none``.
        findings: number of findings.
        partitions: partition folders, the one with the most bytes first.
        bytes: bytes that the findings concern.
        command: the command to type, where all findings share one; else empty.
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
        log_dir: path of the log directory.
        cluster_id: cluster id in ``meta.properties``; may be empty.
        broker_id: broker id in ``meta.properties``; may be empty.
        findings: all findings, sorted by partition, rule, file and position.
        rules: the findings summed up by rule, the worst first.
        partitions: figures of each partition, by topic and number.
        forecast: expected effects of the next start, by topic and number.
        settings: topic -> its settings, each with its source.
        retention_not_known: partitions with segments past ``retention.ms``, whose ``cleanup.policy`` is not known: the
            forecast says nothing of retention there.
        uncleanable_partitions: number of uncleanable partitions, as KIP-346 counts them.
        uncleanable_bytes: uncleanable bytes, as KIP-346 counts them.
        scanned_bytes: bytes of ``.log`` files that were read.
        start_needs_bytes: bytes the next start may write on this disk, -1 if it was not worked out.
        start_reserves_bytes: bytes by which the next start extends index files without writing to them; -1 if it was
            not worked out.
        free_bytes: free bytes of the file system; -1 if unknown.
        start_needs_files: new files that the next start may make, -1 if that was not worked out.
        free_files: new files that the file system has room for, -1 if it has no such limit.
        start_opens_files: files that the start opens, and the broker keeps open.
        start_maps_files: index files that it maps into memory.
        kept: backups of applied plans, the plan written last first.
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
    """Result of ``check``.

    Attributes:
        log_dirs: one entry per log directory, in the order given.
        left_out: log directories that the broker's configuration names and that were not looked at.
        oldest_version: the oldest release that can read all of them, of those that krepair knows; empty if none can.
        newest_version: the newest release that can read all of them; empty if none can.
    """

    log_dirs: tuple[LogDirReport, ...] = ()
    left_out: tuple[str, ...] = ()
    oldest_version: str = ""
    newest_version: str = ""

    @property
    def exit_code(self) -> ExitCode:
        """FOUND if any finding is more than information, else DONE."""
        is_found = any(counts(finding) for report in self.log_dirs for finding in report.findings)
        return ExitCode.FOUND if is_found else ExitCode.DONE


class ApplyReport(Report, frozen=True, kw_only=True):
    """Result of ``apply``, ``undo`` or ``purge``.

    Attributes:
        verb: the verb that ran.
        plan_id: id of the plan.
        log_dir: path of the log directory.
        results: results of the changes, in the order of the plan.
        slow_because: reason why Spark could not be used where it would be faster; else empty.
        uncleanable_partitions: KIP-346's count after this run.
        uncleanable_bytes: KIP-346's bytes after this run.
        interrupted: true if the run was stopped at a safe point.
        digest: digest of the plan, all 64 hex digits; empty where the plan was not read.
        notes: other facts to know, one sentence each, such as that the directory was moved.
        taken_back: leftovers of an earlier run that this one undid, where nothing else was done: the fence of a
            partition, or the id of a half-done change.
        by_hand: shell lines of ``undo`` that put backups in place where a journal is damaged; a person types them while
            the broker is stopped.
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
        """DONE if all is done; the shared code if nothing was done or undone; else PARTLY."""
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
        """Bytes freed by all results together."""
        return sum(result.bytes_freed for result in self.results)


def next_of(results: Sequence[ChangeResult], again: Next, otherwise: Next) -> Next:
    """Return the command to type after a verb that works on a plan.

    Args:
        results: results of the verb's changes.
        again: the same command, which resumes after a crash or a full disk.
        otherwise: the command for a run in which no failure asks for another one.
    """
    failed = [result for result in results if result.outcome == "failed"]
    command = next((result.next_command for result in (*failed, *results) if result.next_command), NOTHING)
    command = command or next((again.at(result.again) for result in failed if result.again), NOTHING)
    resumable = {result.exit_code for result in failed} & {ExitCode.UNWRITABLE, ExitCode.PARTLY}
    return command or (again if resumable else otherwise)


def _worst(codes: Iterable[int]) -> ExitCode:
    """Return the code that all share; PARTLY if it is among them; else REFUSED, as nothing was changed."""
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
    """Problem that ``verify`` met.

    Attributes:
        partition: folder name, or empty for the log directory itself.
        file: file name, or empty.
        position: byte in the file, -1 if it is about the whole file.
        text: expected and actual state, in words.
        change_id: id of the change that the problem belongs to, or empty.
        next_command: the command to type about the problem; may be empty.
        forbidden: true if permissions alone keep this user from reading the file.
    """

    partition: str
    file: str
    position: int
    text: str
    change_id: str = ""
    next_command: Next = field(default_factory=Next)
    forbidden: bool = False


class CheckedFiles(Struct, frozen=True, kw_only=True):
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
