"""Page of ``krepair check``: verdict, findings by rule, summary of the forecast; single rows only on request."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from krepair.checks.catalogue import CATALOGUE, CHECK, IN_USE, RULES, Finding, Severity, severity_of
from krepair.checks.recovery_time import recovery_text
from krepair.checks.retention import WHAT_TELLS
from krepair.cli.views.reports import place_text
from krepair.findings.by_rule import WORST_FIRST, by_rule, fix_of
from krepair.findings.reports import CheckReport, LogDirReport, PartitionSummary, RuleSummary
from krepair.formats.broker_version import LATEST_TRIED, why_not_tried
from krepair.formats.kafka_versions import KRAFT_SINCE, RELEASES, release_of
from krepair.formats.words import count_text, names_text
from krepair.next_command import NOTHING, Next
from krepair.options import Options
from krepair.plan.codes import OTHERS_FIRST
from krepair.plan.commands import is_with_evidence
from krepair.plan.fit import shortage_at_start
from krepair.plan.view import Cell, Section, View, bytes_words, share_text, size_text, table_of
from krepair.rules.evidence import DESCRIBE
from krepair.start.line import Expected, ForecastLine

_SCREEN_ROWS: Final = 9
"""Rows of the table by rule on a terminal of 24 lines, without its heading."""
_PAGE_ROWS: Final = 22
"""Rows of the table by rule in a page of at most 60 lines."""
_WORST: Final = 5
_PAGE_WIDTH: Final = 120
_PLACES: Final = 9
"""Width in columns of the cell with a number of bytes."""


class _PageRequest(NamedTuple):
    """Requested part of a report, and the place of the page.

    Attributes:
        options: options as they were typed.
        width: columns of the terminal; 0 if the page goes into a file.
    """

    options: Options
    width: int

    @property
    def screen(self) -> bool:
        """True if the page goes to a terminal and has to fit its screen."""
        return bool(self.width) and not self.options.every


def check_view(
    report: CheckReport, options: Options | None = None, width: int = 0, *, browser: bool = False
) -> View:
    """Build the page of ``check``.

    On a terminal the verdict and the next command come last, just above the prompt; in a file they come first.

    Args:
        options: options as they were typed.
        width: columns of the terminal; 0 if the page goes into a file.
        browser: True to put the rows by rule into a table, which a browser fits to its window.
    """
    request = _PageRequest(options or Options(), width)
    return View(title="krepair check", sections=tuple(_sections(report, request, browser=browser)))


def _sections(report: CheckReport, request: _PageRequest, *, browser: bool) -> Iterator[Section]:
    rule, every = request.options.rule, request.options.every
    verdict_section = Section(
        title="Verdict", lines=(*verdict(report), *_untested_version_warning(request.options))
    )
    rules = [row for row in rules_of(report) if not rule or row.rule == rule]
    if not request.screen:
        yield verdict_section
    if browser:
        yield from map(_table_by_rule, report.log_dirs)
    else:
        yield _by_rule(report, rules, request)
    if rule and not rules:
        yield Section(title="", lines=(_none_of(rule),))
    if every:
        for log_dir in report.log_dirs:
            yield from _log_dir(log_dir)
    elif rule or request.options.topics or request.options.partitions:
        yield from _rows(report, rule)
    if request.screen:
        yield Section(
            title=verdict_section.title, lines=verdict_section.lines, commands=_typed(report.next_command)
        )
        return
    yield _forecast_summed(report.log_dirs)
    if report.left_out:
        yield Section(title="Not looked at", lines=(_left_out_text(report.left_out),))
    yield Section(title="Not looked for", lines=tuple(_not_looked_for()))
    yield Section(title="Next", commands=_typed(report.next_command))


def _untested_version_warning(options: Options) -> Iterator[str]:
    """Yield a warning that names the version of the forecast, if the broker's version is later than all tested ones."""
    version = options.broker_version
    if later := why_not_tried(version):
        latest = ".".join(map(str, LATEST_TRIED))
        yield f"{version} is {later}: the forecast is that of {latest}."


def _typed(command: Next) -> tuple[Next, ...]:
    """Return the commands to type: if the command reads an evidence file, the one that writes this file comes first."""
    if not command:
        return ()
    return (DESCRIBE, command) if is_with_evidence(command) else (command,)


# -- by rule


def _none_of(code: str) -> str:
    """Build the sentence for a rule without findings; it names the command that looks for it if ``check`` does not."""
    command = RULES[code].command
    other = "" if command == CHECK else f" Only {command} looks for it."
    return f"No findings of {code}.{other}"


def _by_rule(report: CheckReport, rules: Sequence[RuleSummary], request: _PageRequest) -> Section:
    dirs = report.log_dirs
    where = dirs[0].log_dir if len(dirs) == 1 else count_text(len(dirs), "log directory", "log directories")
    partitions = count_text(sum(len(log_dir.partitions) for log_dir in dirs), "partition")
    title = f"{partitions}, {size_text(sum(log_dir.scanned_bytes for log_dir in dirs))} read, in {where}"
    return Section(title=title, lines=tuple(_rule_lines(rules, request)))


def _table_by_rule(report: LogDirReport) -> Section:
    rows = [
        (
            rule.severity,
            rule.rule,
            rule.title,
            rule.findings,
            len(rule.partitions),
            size_text(rule.bytes) if rule.bytes else "-",
            rule.fix,
        )
        for rule in by_rule(report.findings)
    ]
    return Section(
        title=report.log_dir,
        lines=() if rows else ("Nothing found.",),
        table=table_of("how bad | rule | what | # findings | # partitions | # bytes | fix", rows),
    )


def _rule_lines(rules: Sequence[RuleSummary], request: _PageRequest) -> Iterator[str]:
    if not rules:
        return
    # The warning that the directory is in use takes one line of the verdict.
    most = _SCREEN_ROWS - any(rule.rule == IN_USE for rule in rules) if request.screen else _PAGE_ROWS
    width = request.width or _PAGE_WIDTH
    lines = [_rule_line(rule, width) for rule in rules]
    room = most - sum(map(len, lines))
    shown = len(rules) if room >= 0 else _fitting(lines, most - 1)
    yield f"{'rule':5}  {'how bad':11}  {'partitions':>10}  {'bytes':>{_PLACES}}  what"
    for place, rule in enumerate(rules[:shown]):
        yield from lines[place]
        if place < room and rule.partitions:
            yield _worst_line(rule.partitions, width)
    rest = [rule.rule for rule in rules[shown:]]
    if rest:
        yield f"and {count_text(len(rest), 'more row', 'more rows')} (--all): {names_text(rest)}"


def _rule_line(rule: RuleSummary, width: int) -> list[str]:
    """Return the row of a rule; its text is wrapped, never cut."""
    size = size_text(rule.bytes) if rule.bytes else "-"
    where = f"{len(rule.partitions):,}" if rule.partitions else "-"  # of the directory as a whole
    head = f"{rule.rule:5}  {rule.severity.value:11}  {where:>10}  {size:>{_PLACES}}  "
    first, *more = textwrap.wrap(rule.title, max(width - len(head), 20))
    return [head + first, *(" " * len(head) + line for line in more)]


def _fitting(lines: Sequence[Sequence[str]], most: int) -> int:
    """Return how many rows fit into ``most`` lines, at least one."""
    taken = list(accumulate(map(len, lines)))
    return max(sum(count <= most for count in taken), 1)


def _worst_line(names: Sequence[str], width: int) -> str:
    """List the worst partitions by name; a name is never cut."""
    taken: list[str] = []
    for name in names[:_WORST]:
        line = f"       {', '.join([*taken, name])}{_and_more(len(names) - len(taken) - 1)}"
        if taken and len(line) > width:
            break
        taken.append(name)
    return f"       {', '.join(taken)}{_and_more(len(names) - len(taken))}"


def _and_more(count: int) -> str:
    return f" and {count:,} more" if count > 0 else ""


def _forecast_summed(dirs: Sequence[LogDirReport]) -> Section:
    sums: dict[str, list[ForecastLine]] = {}
    for log_dir in dirs:
        for line in log_dir.forecast:
            sums.setdefault(line.expected, []).append(line)
    rows = tuple(
        (
            expected,
            len(lines),
            sum(line.bytes_read for line in lines),
            lines[0].text if len(lines) == 1 else names_text([line.partition for line in lines]),
        )
        for expected, lines in sums.items()
    )
    return Section(
        title="What the next start would do (--all lists each partition)",
        lines=(held_text(dirs), *_unknown_policy_text(dirs)) if sums else (),
        table=table_of("expected | # partitions | # bytes to read | which, why", rows),
    )


def _unknown_policy_text(dirs: Sequence[LogDirReport]) -> Iterator[str]:
    names = [name for log_dir in dirs for name in log_dir.retention_not_known]
    if names:
        unknown = f"cleanup.policy is not known for {names_text(names)}"
        yield f"{unknown}: the forecast does not include retention there. {WHAT_TELLS}."


# -- each row


def _rows(report: CheckReport, rule: str) -> Iterator[Section]:
    """Yield each finding as a section, with its command on a separate line."""
    for log_dir in report.log_dirs:
        listed: set[Next] = set()
        for finding in log_dir.findings:
            if rule and finding.rule != rule:
                continue
            place = place_text(finding.file, finding.position)
            name = finding.partition or log_dir.log_dir
            head = (
                f"{finding.rule}  {severity_of(finding).value}  {name}{'' if place == '-' else f'/{place}'}"
            )
            # A command that serves several findings is shown once.
            new = finding.command if finding.command not in listed else NOTHING
            listed.add(finding.command)
            yield Section(
                title="",
                lines=(head, finding.evidence, *((OTHERS_FIRST,) if new.accepts_loss else ())),
                commands=tuple(_typed(new)),
            )


def _left_out_text(paths: Iterable[str]) -> str:
    return (
        f"The configuration names more log directories than were given: {', '.join(paths)}. They were not looked at. "
        "Without LOGDIR krepair checks all of them."
    )


def _not_looked_for() -> Iterator[str]:
    others = [rule for rule in CATALOGUE if rule.command != CHECK]
    commands = [
        f"{command} ({', '.join(rule.code for rule in others if rule.command == command)})"
        for command in dict.fromkeys(rule.command for rule in others)
    ]
    yield f"Found only by other commands: {'; '.join(commands)}"


def _log_dir(report: LogDirReport) -> Iterator[Section]:
    name = report.log_dir
    lines = [
        f"{count_text(len(report.partitions), 'partition')}, {bytes_words(report.scanned_bytes)} of .log read.",
        f"{count_text(len(report.findings), 'finding')}.",
    ]
    if report.start_needs_bytes >= 0:
        lines.append(_space_text(report))
    yield Section(
        title=f"Findings in {name}",
        lines=tuple(lines),
        table=table_of(
            "how bad | rule | partition | file | evidence | fix",
            map(_finding, sorted(report.findings, key=_worst_first)),
        ),
    )
    yield Section(
        title=f"Partitions in {name}",
        table=table_of(
            "partition | # segments | # .log bytes | # markers | # emptied | # markers and emptied",
            ((partition.partition, *_made_of(partition)) for partition in report.partitions),
        ),
    )
    yield Section(
        title=f"What the next start would do in {name}",
        table=table_of(
            "partition | expected | why | # bytes to read",
            ((line.partition, line.expected, line.text, f"{line.bytes_read:,}") for line in report.forecast),
        ),
    )


def _worst_first(finding: Finding) -> tuple[int, str]:
    return WORST_FIRST[severity_of(finding)], finding.rule


def _finding(finding: Finding) -> tuple[str, ...]:
    return (
        severity_of(finding),
        finding.rule,
        finding.partition or "-",
        place_text(finding.file, finding.position),
        finding.evidence,
        fix_of(finding),
    )


def _made_of(partition: PartitionSummary) -> tuple[Cell, ...]:
    return (
        partition.segments,
        partition.log_bytes,
        partition.markers,
        partition.emptied,
        share_text(partition.marker_bytes + partition.emptied_bytes, partition.log_bytes),
    )


def _space_text(report: LogDirReport) -> str:
    text = f"The next start needs {bytes_words(report.start_needs_bytes)} on this disk"
    if report.free_bytes >= 0:
        text += f", {bytes_words(report.free_bytes)} are free"
    if report.free_files >= 0:
        text += f"; up to {count_text(report.start_needs_files, 'new file')}, {report.free_files:,} are free"
    if report.start_reserves_bytes > 0:
        text += f"; it extends active indexes by {bytes_words(report.start_reserves_bytes)}, written only as they fill"
    return f"{text}."


# -- the verdict: a few lines

_MANY_FILES: Final = 10_000
"""Number of open or mapped files from which a broker may reach a limit of the host."""
_DOES: Final[dict[Expected, tuple[str, str]]] = {
    "stray": ("is put aside (-stray)", "are put aside (-stray)"),
    "delete": ("loses segments", "lose segments"),
    "truncate": ("is cut", "are cut"),
    "recover": ("is read and recovered", "are read and recovered"),
    "unknown": ("could not be judged", "could not be judged"),
    "start": ("just starts", "just start"),
}
"""Forecast -> verb phrases for one partition and for several."""


def rules_of(report: CheckReport) -> tuple[RuleSummary, ...]:
    """Sum up the findings of all log directories by rule."""
    return by_rule(finding for log_dir in report.log_dirs for finding in log_dir.findings)


def verdict(report: CheckReport) -> tuple[str, ...]:
    """Return the few lines that sum up the findings and the next start."""
    rules = rules_of(report)
    lines = [
        *_in_use(report.log_dirs),
        *_start_fails(report.log_dirs),
        _worst(rules),
        *_next_start(report.log_dirs),
        *_versions(report),
        *_uncleanable(report.log_dirs),
    ]
    if report.left_out:
        many = count_text(len(report.left_out), "log directory", "log directories")
        lines.append(f"Not looked at: {many} of the configuration, see --all.")
    return tuple(lines)


_ZOOKEEPER_ONLY_VERSIONS: Final = frozenset(
    release_of(release) for release in RELEASES if release < KRAFT_SINCE
)
"""Versions that read only log directories of clusters with ZooKeeper."""


def _versions(report: CheckReport) -> Iterator[str]:
    """Yield the versions that can start on the directories, and a warning if ZooKeeper decides too."""
    oldest, newest = report.oldest_version, report.newest_version
    if oldest:
        versions = f"Kafka {oldest}" if oldest == newest else f"Kafka {oldest} to {newest}"
        known = f"of {release_of(RELEASES[0])} to {release_of(RELEASES[-1])}"
        yield f"Versions: {versions} can start on it, {known}."
    clusters = {log_dir.cluster_id for log_dir in report.log_dirs} - {""}
    if clusters and oldest in _ZOOKEEPER_ONLY_VERSIONS:
        yield (
            f"ZooKeeper was not queried: if its cluster.id is not {names_text(sorted(clusters))}, a broker of 2.4 or "
            "later does not start. In that case restore the data of ZooKeeper: without it the cluster has no topics, "
            "whatever meta.properties says."
        )


def _in_use(dirs: Sequence[LogDirReport]) -> Iterator[str]:
    """Yield the warning that the files may have changed while they were read."""
    for log_dir in dirs:
        text = next((finding.evidence for finding in log_dir.findings if finding.rule == IN_USE), "")
        if text:
            yield f"In use: {f'{log_dir.log_dir} is ' if len(dirs) > 1 else ''}{text}."


def _start_fails(dirs: Sequence[LogDirReport]) -> Iterator[str]:
    """Yield a warning if the broker will not start, or will rename partitions to ``-stray``."""
    lines = [line for log_dir in dirs for line in log_dir.forecast]
    refused = next((line for line in lines if line.expected == "refuse"), None)
    strays = [line.partition for line in lines if line.expected == "stray"]
    if refused is not None:
        yield f"Attention: {refused.text}"
    elif strays:
        many = count_text(len(strays), "partition will", "partitions will")
        yield f"Attention: {many} be put aside (-stray): {names_text(strays)}"


def _worst(rules: Sequence[RuleSummary]) -> str:
    if not rules:
        return "Nothing found."
    worst = rules[0]
    if worst.severity is Severity.INFORMATION:
        return f"Nothing to repair; {count_text(sum(rule.findings for rule in rules), 'remark')}."
    alike = [rule for rule in rules if rule.severity is worst.severity]
    codes = ", ".join(rule.rule for rule in alike[:3]) + (" and more" if len(alike) > 3 else "")
    # A rule without partitions concerns the directory as a whole.
    folders = {name for rule in alike for name in rule.partitions} if all(r.partitions for r in alike) else ()
    where = f" in {count_text(len(folders), 'partition')}" if folders else ""
    size = sum(rule.bytes for rule in alike)
    return f"Worst: {worst.severity.value}: {codes}{where}{f'; {size_text(size)}' if size else ''}."


def _next_start(dirs: Sequence[LogDirReport]) -> Iterator[str]:
    lines = [line for log_dir in dirs for line in log_dir.forecast]
    counts = Counter(line.expected for line in lines)
    if not lines:
        return
    does = [
        count_text(counts[expected], f"partition {singular}", f"partitions {many}")
        for expected, (singular, many) in _DOES.items()
        if counts[expected]
    ]
    if counts["refuse"]:
        yield "Next start: the broker does not start."
    else:
        yield f"Next start: {does[0]}{f', {does[1]}' if len(does) > 1 else ''}{', and more' if len(does) > 2 else ''}."
    read = sum(line.bytes_read for line in lines)
    takes = (
        f"It reads {size_text(read)}, {recovery_text(sum(line.seconds for line in lines))}"
        if read
        else "It reads no logs"
    )
    yield f"{takes}{_start_space(dirs)}."
    if sum(log_dir.start_opens_files + log_dir.start_maps_files for log_dir in dirs) >= _MANY_FILES:
        yield held_text(dirs)


def _start_space(dirs: Sequence[LogDirReport]) -> str:
    """Describe the disk space that the start needs; with several directories, the free space of the tightest."""
    known = [log_dir for log_dir in dirs if log_dir.start_needs_bytes >= 0]
    if not known:
        return ""
    tight = min(known, key=lambda log_dir: log_dir.free_bytes - log_dir.start_needs_bytes)
    needs = f"; it needs {size_text(sum(log_dir.start_needs_bytes for log_dir in known))} of disk"
    if tight.free_bytes < 0:
        return f"{needs}{_start_files(known)}"
    free = f"{size_text(tight.free_bytes)} free"
    files = _start_files(known)
    return (
        f"{needs}, {free}{files}"
        if len(known) == 1
        else f"{needs}, in {tight.log_dir} {size_text(tight.start_needs_bytes)} of {free}{files}"
    )


def _start_files(dirs: Sequence[LogDirReport]) -> str:
    """Describe the lack of inodes in the directory that lacks most new files; empty if none lacks any."""
    worst = max(dirs, key=_lacks_files)
    if not _lacks_files(worst):
        return ""
    where = f" in {worst.log_dir}" if len(dirs) > 1 else ""
    return f"; and up to {count_text(worst.start_needs_files, 'new file')}{where}, {worst.free_files:,} free"


def _lacks_files(report: LogDirReport) -> int:
    return shortage_at_start(0, report.start_needs_files, 0, report.free_files)[1]


def held_text(dirs: Sequence[LogDirReport]) -> str:
    """Describe how many files the started broker holds open and maps."""
    opens, maps = (
        sum(log_dir.start_opens_files for log_dir in dirs),
        sum(log_dir.start_maps_files for log_dir in dirs),
    )
    held = f"{count_text(opens, 'file')} open, and maps {count_text(maps, 'index file')}"
    return f"It holds {held} (see LimitNOFILE and vm.max_map_count)."


def _uncleanable(dirs: Sequence[LogDirReport]) -> Iterator[str]:
    count = sum(log_dir.uncleanable_partitions for log_dir in dirs)
    if count:
        size = sum(log_dir.uncleanable_bytes for log_dir in dirs)
        yield f"Uncleanable (KIP-346): {count_text(count, 'partition')}, {size_text(size)}."
