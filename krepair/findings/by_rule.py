"""Findings grouped by rule, the worst first: the start of every page and of the JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from typing import Final

from msgspec.structs import replace

from krepair.checks.catalogue import RULES, Finding, Severity, severity_of
from krepair.findings.reports import RuleSummary
from krepair.fixes.gate import LEFTOVERS_FIRST
from krepair.fixes.table import FIXES
from krepair.next_command import NOTHING, PLAN, Next

WORST_FIRST: Final = {severity: place for place, severity in enumerate(Severity)}


def by_rule(findings: Iterable[Finding]) -> tuple[RuleSummary, ...]:
    """Group findings by rule and severity, the worst first."""
    rows: defaultdict[tuple[str, Severity], list[Finding]] = defaultdict(list)
    for finding in findings:
        rows[finding.rule, severity_of(finding)].append(finding)
    order = sorted(rows, key=lambda row: (WORST_FIRST[row[1]], row[0]))
    return tuple(_row(code, severity, rows[code, severity]) for code, severity in order)


def _row(code: str, severity: Severity, findings: Sequence[Finding]) -> RuleSummary:
    sizes: defaultdict[str, int] = defaultdict(int)
    for finding in findings:
        if finding.partition:
            sizes[finding.partition] += finding.bytes
    names = sorted(sizes, key=lambda name: -sizes[name])
    fixes = {fix_of(finding) for finding in findings} - {"none"}
    return RuleSummary(
        rule=code,
        severity=severity,
        title=RULES[code].title,
        fix=min(fixes, default="none"),
        findings=len(findings),
        partitions=tuple(names),
        bytes=sum(finding.bytes for finding in findings),
        command=_one_command(findings),
    )


def _one_command(findings: Sequence[Finding]) -> Next:
    """Return the command that all findings share, or an empty one if they differ."""
    commands = {finding.command for finding in findings}
    return commands.pop() if len(commands) == 1 else NOTHING


def fix_of(finding: Finding) -> str:
    """Return the name of the fix that handles a finding, or ``none``."""
    return finding.fix or next((fix.name for fix in FIXES if fix.answers(finding)), "none")


def with_next_commands(
    log_dir: str,
    findings: Sequence[Finding],
    modes: dict[str, str],
    waiting: Set[str] = frozenset(),
    tiered: Set[str] = frozenset(),
) -> tuple[Finding, ...]:
    """Add severity, fix and next command to each finding.

    Args:
        log_dir: path of the log directory.
        findings: findings of one log directory.
        modes: name of a fix -> recommended mode of that fix, see ``Fix.best_mode``; empty if the fix has nothing to do
            after all.
        waiting: folders of partitions whose interrupted swap has to be finished before any other fix.
        tiered: folders of partitions that no fix changes, so that a plan of their findings would be empty.
    """
    return tuple(
        _without_plan(finding)
        if finding.partition in tiered
        else _after_leftovers(log_dir, finding)
        if finding.partition in waiting
        else finding
        for finding in (_with_advice(log_dir, finding, modes) for finding in findings)
    )


def _without_plan(finding: Finding) -> Finding:
    command = NOTHING if finding.command.verb == "plan" else finding.command
    return replace(finding, fix="none", command=command)


def _after_leftovers(log_dir: str, finding: Finding) -> Finding:
    """Replace a finding's ``plan`` by the one that finishes swaps: until then its own would plan nothing.

    Leader epochs with which no broker starts are repaired first.
    """
    ends_start = finding.rule == "KR401" and finding.severity is not Severity.CONFUSING
    if finding.command.verb != "plan" or ends_start:
        return finding
    return replace(finding, command=LEFTOVERS_FIRST.filled(log_dir=log_dir))


def _with_advice(log_dir: str, finding: Finding, modes: dict[str, str]) -> Finding:
    fix = fix_of(finding)
    mode = modes.get(fix, fix)
    command = finding.command
    if not command and fix != "none" and mode:
        command = Next.of("plan", log_dir, *(() if mode == "markers" else ("--fix", mode)), out=PLAN)
    return replace(finding, severity=severity_of(finding), fix=fix if mode else "none", command=command)
