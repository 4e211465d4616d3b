"""Findings summed up by rule, the worst first: what a page of one screen and a program both begin with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from typing import Final

from msgspec.structs import replace

from krepair.checks.catalogue import RULES, Finding, Severity, severity_of
from krepair.fixes.table import FIXES
from krepair.fixes.untouched import LEFTOVERS_FIRST
from krepair.next_command import NOTHING, PLAN, Next
from krepair.ops.reports import RuleSummary

WORST_FIRST: Final = {severity: place for place, severity in enumerate(Severity)}


def by_rule(findings: Iterable[Finding]) -> tuple[RuleSummary, ...]:
    """One row for each rule and severity, the worst first."""
    rows: defaultdict[tuple[str, Severity], list[Finding]] = defaultdict(list)
    for finding in findings:
        rows[finding.rule, severity_of(finding)].append(finding)
    order = sorted(rows, key=lambda row: (WORST_FIRST[row[1]], row[0]))
    return tuple(_row(code, severity, rows[code, severity]) for code, severity in order)


def _row(code: str, severity: Severity, found: Sequence[Finding]) -> RuleSummary:
    sizes: defaultdict[str, int] = defaultdict(int)
    for finding in found:
        if finding.partition:
            sizes[finding.partition] += finding.bytes
    names = sorted(sizes, key=lambda name: -sizes[name])
    fixes = {fix_of(finding) for finding in found} - {"none"}
    return RuleSummary(
        rule=code,
        severity=severity,
        title=RULES[code].title,
        fix=min(fixes, default="none"),
        findings=len(found),
        partitions=tuple(names),
        bytes=sum(finding.bytes for finding in found),
        command=_one_command(found),
    )


def _one_command(found: Sequence[Finding]) -> Next:
    """The command that is the same for all of them; empty where each has its own."""
    commands = {finding.command for finding in found}
    return commands.pop() if len(commands) == 1 else NOTHING


def fix_of(finding: Finding) -> str:
    """Name of the fix that has something for a finding, or ``none``."""
    return finding.fix or next((fix.name for fix in FIXES if fix.answers(finding)), "none")


def told(
    log_dir: str, findings: Sequence[Finding], ways: dict[str, str], waiting: Set[str] = frozenset()
) -> tuple[Finding, ...]:
    """The findings with all that a program wants to know of each: severity, fix and command.

    Args:
        log_dir: path of the log directory.
        findings: of one log directory.
        ways: name of a fix -> the way that is advised, see ``Fix.best_way``; empty: it has nothing to do after all.
        waiting: folders of partitions in which a swap has to be finished before any other fix.
    """
    return tuple(
        _after_leftovers(log_dir, one) if one.partition in waiting else one
        for one in (_told(log_dir, finding, ways) for finding in findings)
    )


def _after_leftovers(log_dir: str, finding: Finding) -> Finding:
    """With the command that comes first: until then its own would plan nothing."""
    if finding.command.verb != "plan":
        return finding
    return replace(finding, command=LEFTOVERS_FIRST.filled(log_dir=log_dir))


def _told(log_dir: str, finding: Finding, ways: dict[str, str]) -> Finding:
    fix = fix_of(finding)
    word = ways.get(fix, fix)
    command = finding.command
    if not command and fix != "none" and word:
        command = Next.of("plan", log_dir, *(() if word == "markers" else ("--fix", word)), out=PLAN)
    return replace(finding, severity=severity_of(finding), fix=fix if word else "none", command=command)
