"""Page of ``krepair check``: findings first, then totals, then what is not as it should be; the rest is summed up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from krepair.checks.catalogue import CATALOGUE, RULES, Finding, Severity, counts
from krepair.checks.rule import CHECK
from krepair.cli.views.reports import end_of_page, place_text
from krepair.formats.filenames import parse_folder_name
from krepair.ops.reports import CheckReport, ForecastLine, LogDirReport, PartitionSummary
from krepair.plan.view import Section, Table, View, bytes_text, share_bar

_INFORMATION_AT_MOST: Final = 5
_PARTITION_COLUMNS: Final = ("segments", ".log bytes", "markers", "emptied", "share of both")


def check_view(report: CheckReport, *, every: bool = False) -> View:
    """What ``check`` found: findings, what partitions are made of, the forecast.

    Args:
        report: what was found.
        every: one line for each partition, instead of sums of those that are as they should be.
    """
    sections: list[Section] = []
    if report.left_out:
        sections.append(Section(title="Not looked at", lines=(_left_out_text(report.left_out),)))
    for log_dir in report.log_dirs:
        sections += _log_dir(log_dir, every=every)
    sections.append(Section(title="Not looked for", lines=tuple(_not_looked_for())))
    sections += end_of_page(report.engine, report.next_command)
    return View(title="krepair check", sections=tuple(sections))


def _left_out_text(paths: Iterable[str]) -> str:
    return (
        f"The configuration names more log directories than were given: {', '.join(paths)}. They were not looked at. "
        "Without LOGDIR krepair checks all of them."
    )


def _not_looked_for() -> Iterator[str]:
    planned = [rule.code for rule in CATALOGUE if rule.planned]
    if planned:
        yield f"This version does not look for {len(planned)} rules yet: {', '.join(planned)}"
    asked = [f"{rule.code} ({rule.command})" for rule in CATALOGUE if rule.command != CHECK]
    yield f"Only looked for when asked: {', '.join(asked)}"


def _log_dir(report: LogDirReport, *, every: bool) -> list[Section]:
    name = report.log_dir
    troubled = {finding.partition for finding in report.findings if counts(finding)}
    troubled |= {line.partition for line in report.forecast if line.expected != "start"}
    shown = [one for one in report.partitions if every or one.partition in troubled]
    summed = [] if every else [one for one in report.partitions if one.partition not in troubled]
    lines = [
        f"{len(report.partitions):,} partitions, {bytes_text(report.scanned_bytes)} of .log read.",
        f"{len(report.findings):,} findings." if report.findings else "Nothing found.",
    ]
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
            table=Table(
                columns=("rule", "severity", "partition", "file", "evidence", "fix"),
                rows=tuple(_findings(report.findings, every=every)),
            ),
        ),
        Section(
            title=f"Partitions in {name}",
            table=Table(
                columns=("partition", *_PARTITION_COLUMNS),
                rows=tuple((one.partition, *_made_of([one])) for one in shown),
                right=frozenset({1, 2, 3, 4}),
            ),
        ),
        Section(
            title=f"Partitions as they should be in {name}, by topic (--all lists each)",
            table=Table(
                columns=("topic", "partitions", *_PARTITION_COLUMNS),
                rows=tuple(_by_topic(summed)),
                right=frozenset({1, 2, 3, 4, 5}),
            ),
        ),
        Section(
            title=f"What the next start would do in {name}",
            table=Table(
                columns=("partition", "expected", "why", "bytes to read"),
                rows=tuple(_forecast(report.forecast, troubled, every=every)),
                right=frozenset({3}),
            ),
        ),
    ]


def _findings(findings: Sequence[Finding], *, every: bool) -> Iterator[tuple[str, ...]]:
    """A line for each; of what is only information, and the same of many, a few and how many more there are."""
    seen: Counter[str] = Counter()
    for finding in findings:
        rule = RULES[finding.rule]
        seen[finding.rule] += 1
        if every or counts(finding) or seen[finding.rule] <= _INFORMATION_AT_MOST:
            place = place_text(finding.file, finding.position)
            severity = rule.severity.value
            yield finding.rule, severity, finding.partition or ".", place, finding.evidence, rule.fix
    for code, count in seen.items():
        rule = RULES[code]
        if not every and rule.severity is Severity.INFORMATION and count > _INFORMATION_AT_MOST:
            more = f"{count - _INFORMATION_AT_MOST:,} more of this kind; --all lists each"
            yield code, rule.severity.value, "...", "-", more, rule.fix


def _made_of(partitions: list[PartitionSummary]) -> tuple[str, ...]:
    log_bytes = sum(one.log_bytes for one in partitions)
    without_records = sum(one.marker_bytes + one.emptied_bytes for one in partitions)
    return (
        f"{sum(one.segments for one in partitions):,}",
        f"{log_bytes:,}",
        f"{sum(one.markers for one in partitions):,}",
        f"{sum(one.emptied for one in partitions):,}",
        share_bar(without_records, log_bytes),
    )


def _by_topic(partitions: Iterable[PartitionSummary]) -> Iterator[tuple[str, ...]]:
    topics: dict[str, list[PartitionSummary]] = {}
    for one in partitions:
        topics.setdefault(_topic(one.partition), []).append(one)
    for topic, members in topics.items():
        yield topic, f"{len(members):,}", *_made_of(members)


def _forecast(lines: Iterable[ForecastLine], troubled: set[str], *, every: bool) -> Iterator[tuple[str, ...]]:
    """Each partition that is not as it should be; one line for all others of a topic of which the same is said."""
    alike: dict[tuple[str, str, str], list[ForecastLine]] = {}
    for line in lines:
        if every or line.partition in troubled:
            yield line.partition, line.expected, line.text, f"{line.bytes_read:,}"
        else:
            alike.setdefault((_topic(line.partition), line.expected, line.text), []).append(line)
    for (topic, expected, text), members in alike.items():
        count = f"{len(members):,} partitions" if len(members) > 1 else "1 partition"
        yield f"{topic}: {count}", expected, text, f"{sum(line.bytes_read for line in members):,}"


def _topic(folder: str) -> str:
    return parse_folder_name(folder).topic or folder


def _space_text(report: LogDirReport) -> str:
    text = f"The next start needs {bytes_text(report.start_needs_bytes)} on this disk"
    if report.free_bytes >= 0:
        text += f", {bytes_text(report.free_bytes)} are free"
    if report.start_reserves_bytes > 0:
        text += f"; it extends active indexes by {bytes_text(report.start_reserves_bytes)}, written only as they fill"
    return f"{text}."
