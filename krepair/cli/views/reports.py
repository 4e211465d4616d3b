"""Pages of the reports of ``check``, ``apply``, ``undo``, ``purge`` and ``verify``, and of what is kept."""

from __future__ import annotations

from collections.abc import Iterator

from krepair.checks.catalogue import CATALOGUE, RULES
from krepair.checks.recovery_time import duration_text
from krepair.checks.rule import CHECK
from krepair.errors import EXIT_CODE_MEANING
from krepair.ops.reports import (
    ApplyReport,
    ChangeResult,
    CheckReport,
    KeptPlan,
    KeptReport,
    LogDirReport,
    VerifyReport,
)
from krepair.plan.view import Section, Table, View, bytes_text, share_bar, time_text

_DONE_WORDS = {"apply": "applied", "undo": "taken back", "purge": "purged"}


def check_view(report: CheckReport) -> View:
    """What ``check`` found: findings, what partitions are made of, the forecast."""
    sections: list[Section] = []
    for log_dir in report.log_dirs:
        sections += _log_dir(log_dir)
    sections.append(Section(title="Not looked for", lines=tuple(_not_looked_for())))
    sections += _end(report.engine, report.next_command)
    return View(title="krepair check", sections=tuple(sections))


def _not_looked_for() -> Iterator[str]:
    planned = [rule.code for rule in CATALOGUE if rule.planned]
    if planned:
        yield f"This version does not look for {len(planned)} rules yet: {', '.join(planned)}"
    asked = [f"{rule.code} ({rule.command})" for rule in CATALOGUE if rule.command != CHECK]
    yield f"Only looked for when asked: {', '.join(asked)}"


def _log_dir(report: LogDirReport) -> list[Section]:
    name = report.log_dir
    findings = tuple(
        (
            finding.rule,
            RULES[finding.rule].severity.value,
            finding.partition or ".",
            _place(finding.file, finding.position),
            finding.evidence,
            RULES[finding.rule].fix,
        )
        for finding in report.findings
    )
    partitions = tuple(
        (
            partition.partition,
            f"{partition.segments:,}",
            f"{partition.log_bytes:,}",
            f"{partition.markers:,}",
            f"{partition.emptied:,}",
            share_bar(partition.marker_bytes + partition.emptied_bytes, partition.log_bytes),
        )
        for partition in report.partitions
    )
    forecast = tuple(
        (line.partition, line.expected, line.text, f"{line.bytes_read:,}") for line in report.forecast
    )
    lines = [f"{bytes_text(report.scanned_bytes)} of .log read."]
    if not findings:
        lines.append("Nothing found.")
    if report.uncleanable_partitions:
        lines.append(
            f"Uncleanable (KIP-346): {report.uncleanable_partitions} partitions, "
            f"{bytes_text(report.uncleanable_bytes)}."
        )
    if report.start_needs_bytes >= 0:
        lines.append(_space_text(report))
    return [
        Section(
            title=f"Findings in {name}",
            lines=tuple(lines),
            table=Table(columns=("rule", "severity", "partition", "file", "evidence", "fix"), rows=findings),
        ),
        Section(
            title=f"Partitions in {name}",
            table=Table(
                columns=("partition", "segments", ".log bytes", "markers", "emptied", "share of both"),
                rows=partitions,
                right=frozenset({1, 2, 3, 4}),
            ),
        ),
        Section(
            title=f"What the next start would do in {name}",
            table=Table(
                columns=("partition", "expected", "why", "bytes to read"), rows=forecast, right=frozenset({3})
            ),
        ),
    ]


def _space_text(report: LogDirReport) -> str:
    text = f"The next start needs {bytes_text(report.start_needs_bytes)} on this disk"
    if report.free_bytes >= 0:
        text += f", {bytes_text(report.free_bytes)} are free"
    if report.start_reserves_bytes > 0:
        text += f"; it extends active indexes by {bytes_text(report.start_reserves_bytes)}, written only as they fill"
    return f"{text}."


def _place(file: str, position: int) -> str:
    if not file:
        return "-"
    return file if position < 0 else f"{file} at {position}"


def apply_view(report: ApplyReport) -> View:
    """What ``apply``, ``undo`` or ``purge`` did, by partition; every failure on its own line."""
    by_partition: dict[str, list[ChangeResult]] = {}
    for result in report.results:
        by_partition.setdefault(result.partition, []).append(result)
    rows = tuple((name, _outcomes(results), _freed(results)) for name, results in by_partition.items())
    failed = tuple(
        (result.change_id, result.outcome, str(result.exit_code), result.why)
        for result in report.results
        if result.outcome in {"failed", "skipped"}
    )
    lines = [f"{report.exit_code.name.lower()}: {EXIT_CODE_MEANING[report.exit_code]}."]
    if report.results:
        lines.append(f"Freed: {bytes_text(report.bytes_freed)}.")
    else:
        lines.append("There was nothing to do.")
    if report.uncleanable_partitions:
        lines.append(
            f"Uncleanable (KIP-346): {report.uncleanable_partitions} partitions, "
            f"{bytes_text(report.uncleanable_bytes)}."
        )
    sections = (
        Section(
            title=f"Plan {report.plan_id} {_DONE_WORDS[report.verb]} in {report.log_dir}",
            lines=tuple(lines),
            table=Table(columns=("partition", "changes", "bytes freed"), rows=rows, right=frozenset({2})),
        ),
        Section(
            title="Deleted by the broker",
            lines=tuple(result.why for result in report.results if result.outcome == "gone"),
        ),
        Section(title="Not done", table=Table(columns=("change", "outcome", "code", "why"), rows=failed)),
        *_end(report.engine, report.next_command),
    )
    return View(title=f"krepair {report.verb}", sections=sections)


def _outcomes(results: list[ChangeResult]) -> str:
    counts: dict[str, int] = {}
    for result in results:
        counts[result.outcome] = counts.get(result.outcome, 0) + 1
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items())


def _freed(results: list[ChangeResult]) -> str:
    return f"{sum(result.bytes_freed for result in results):,}"


def kept_view(verb: str, report: KeptReport) -> View:
    """What each plan keeps; the one that was written last comes first."""
    rows = tuple(
        (
            plan.plan_id,
            plan.state,
            ", ".join(plan.partitions[:3]) + (", ..." if len(plan.partitions) > 3 else ""),
            f"{plan.bytes:,}",
            time_text(plan.last_written_ms) if plan.last_written_ms >= 0 else "-",
            duration_text(plan.age_seconds) if plan.age_seconds >= 0 else "-",
            plan.copy,
            _undo_words(plan),
        )
        for plan in report.plans
    )
    columns = ("plan id", "state", "partitions", "bytes", "last written", "age", "copy of plan", "undo")
    line = "1 plan keeps something." if rows else "No plan keeps anything here."
    if len(rows) > 1:
        line = f"{len(rows)} plans keep something. Where two changed the same partition, undo the upper one first."
    sections = (
        Section(
            title=f"Kept originals in {report.log_dir}",
            lines=(line,),
            table=Table(columns=columns, rows=rows, right=frozenset({3})),
        ),
        *_end("", report.next_command),
    )
    return View(title=f"krepair {verb}", sections=sections)


def _undo_words(plan: KeptPlan) -> str:
    return f"{plan.undo}: {plan.why_not}" if plan.why_not else plan.undo


def verify_view(report: VerifyReport) -> View:
    """What ``verify`` proved, and every problem."""
    rows = tuple(
        (problem.partition or ".", _place(problem.file, problem.position), problem.text)
        for problem in report.problems
    )
    what = f"plan {report.plan_id} in {report.target}" if report.plan_id else report.target
    read = (
        f"Read {report.partitions:,} partitions, {report.segments:,} segments, {report.batches:,} batches, "
        f"{bytes_text(report.bytes_read)}."
    )
    lines = (
        read,
        "Everything is as it should be." if not rows else f"{len(rows)} problems.",
    )
    sections = (
        Section(
            title=f"Verified: {what}",
            lines=lines,
            table=Table(columns=("partition", "file", "problem"), rows=rows),
        ),
        *_end(report.engine, report.next_command),
    )
    return View(title="krepair verify", sections=sections)


def _end(engine: str, next_command: str) -> tuple[Section, Section]:
    return (
        Section(title="Engine", lines=(engine,) if engine else ()),
        Section(title="Next", commands=(next_command,) if next_command else ()),
    )
