"""Results of ``check``: plain values, which the command line prints as text or as JSON."""

from __future__ import annotations

from msgspec import Struct, field

from krepair.checks.catalogue import Finding, Severity, counts
from krepair.commit.reports import KeptPlan
from krepair.errors import ExitCode
from krepair.logdir.config import Setting
from krepair.next_command import Next
from krepair.report import Report
from krepair.start.line import ForecastLine


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
        emptied_bytes: size of the empty batches in bytes.
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
        start_needs_bytes: bytes the next start may write on this disk, -1 if it was not computed.
        start_reserves_bytes: bytes by which the next start extends index files without writing to them; -1 if it was
            not worked out.
        free_bytes: free bytes of the file system; -1 if unknown.
        start_needs_files: new files that the next start may make, -1 if that was not computed.
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
