"""What ``check`` found in a few lines: whether the broker starts, what is worst, what it costs, how long a start is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import shorten
from typing import Final

from krepair.checks.catalogue import IN_USE, Severity
from krepair.checks.recovery_time import recovery_text
from krepair.ops.by_rule import by_rule
from krepair.ops.reports import CheckReport, LogDirReport, RuleSummary
from krepair.plan.view import count_text, size_text
from krepair.start.line import Expected

_MOST: Final = 110
_MANY_FILES: Final = 10_000
"""From here on what a start holds may meet a limit of the host."""
_DOES: Final[dict[Expected, str]] = {
    "stray": "are put aside (-stray)",
    "delete": "lose segments",
    "truncate": "are cut",
    "recover": "are read and recovered",
    "unknown": "could not be judged",
    "start": "just start",
}
_DOES_ONE: Final[dict[Expected, str]] = {
    "stray": "is put aside (-stray)",
    "delete": "loses segments",
    "truncate": "is cut",
    "recover": "is read and recovered",
    "unknown": "could not be judged",
    "start": "just starts",
}


def rules_of(report: CheckReport) -> tuple[RuleSummary, ...]:
    """All log directories together."""
    return by_rule(finding for one in report.log_dirs for finding in one.findings)


def verdict(report: CheckReport) -> tuple[str, ...]:
    """A few short lines."""
    rules = rules_of(report)
    lines = [
        *_in_use(report.log_dirs),
        *_start_fails(report.log_dirs),
        _worst(rules),
        *_next_start(report.log_dirs),
        *_uncleanable(report.log_dirs),
    ]
    if report.left_out:
        many = count_text(len(report.left_out), "log directory", "log directories")
        lines.append(f"Not looked at: {many} of the configuration, see --all.")
    return tuple(lines)


def _in_use(dirs: Sequence[LogDirReport]) -> Iterator[str]:
    """First of all: that what was read may have changed meanwhile."""
    for one in dirs:
        text = next((finding.evidence for finding in one.findings if finding.rule == IN_USE), "")
        if text:
            yield f"In use: {f'{one.log_dir} is ' if len(dirs) > 1 else ''}{text}."


def _start_fails(dirs: Sequence[LogDirReport]) -> Iterator[str]:
    """That the broker will not start, or that it puts partitions aside."""
    lines = [line for one in dirs for line in one.forecast]
    refused = next((line for line in lines if line.expected == "refuse"), None)
    strays = [line.partition for line in lines if line.expected == "stray"]
    if refused is not None:
        # As long as two lines: what it is stands in front, what to do often behind it.
        yield shorten(f"Attention: {refused.text}", 2 * _MOST, placeholder=" ...")
    elif strays:
        many = count_text(len(strays), "partition will", "partitions will")
        yield shorten(
            f"Attention: {many} be put aside (-stray): {', '.join(strays)}", _MOST, placeholder=" ..."
        )


def _worst(rules: Sequence[RuleSummary]) -> str:
    if not rules:
        return "Nothing found."
    worst = rules[0]
    if worst.severity is Severity.INFORMATION:
        return f"Nothing to mend; {count_text(sum(rule.findings for rule in rules), 'remark')}."
    alike = [rule for rule in rules if rule.severity is worst.severity]
    codes = ", ".join(rule.rule for rule in alike[:3]) + (" and more" if len(alike) > 3 else "")
    # A rule that was met in no partition is of the directory as a whole.
    folders = {name for rule in alike for name in rule.partitions} if all(r.partitions for r in alike) else ()
    where = f" in {count_text(len(folders), 'partition')}" if folders else ""
    size = sum(rule.bytes for rule in alike)
    return f"Worst: {worst.severity.value}: {codes}{where}{f'; {size_text(size)}' if size else ''}."


def _next_start(dirs: Sequence[LogDirReport]) -> Iterator[str]:
    lines = [line for one in dirs for line in one.forecast]
    counts = Counter(line.expected for line in lines)
    if not lines:
        return
    told = [
        f"{count_text(counts[expected], 'partition')} {_DOES_ONE[expected] if counts[expected] == 1 else does}"
        for expected, does in _DOES.items()
        if counts[expected]
    ]
    if counts["refuse"]:
        yield "Next start: the broker does not start."
    else:
        yield f"Next start: {told[0]}{f', {told[1]}' if len(told) > 1 else ''}{', and more' if len(told) > 2 else ''}."
    read = sum(line.bytes_read for line in lines)
    takes = (
        f"It reads {size_text(read)}, {recovery_text(sum(line.seconds for line in lines))}"
        if read
        else "It reads no logs"
    )
    known = [one for one in dirs if one.start_needs_bytes >= 0]
    needs = sum(one.start_needs_bytes for one in known)
    free = min((one.free_bytes for one in known), default=-1)
    space = f"; it needs {size_text(needs)} of disk" if known else ""
    yield f"{takes}{space}{f', {size_text(free)} free' if free >= 0 else ''}."
    if sum(one.start_opens_files + one.start_maps_files for one in dirs) >= _MANY_FILES:
        yield held_text(dirs)


def held_text(dirs: Sequence[LogDirReport]) -> str:
    """How many files the broker holds once it has started."""
    opens, maps = (
        sum(one.start_opens_files for one in dirs),
        sum(one.start_maps_files for one in dirs),
    )
    held = f"{count_text(opens, 'file')} open, and maps {count_text(maps, 'index file')}"
    return f"It holds {held} (see LimitNOFILE and vm.max_map_count)."


def _uncleanable(dirs: Sequence[LogDirReport]) -> Iterator[str]:
    count = sum(one.uncleanable_partitions for one in dirs)
    if count:
        size = sum(one.uncleanable_bytes for one in dirs)
        yield f"Uncleanable (KIP-346): {count_text(count, 'partition')}, {size_text(size)}."
