"""Pages of the reports of ``apply``, ``undo``, ``purge`` and ``verify``, and of the list of backups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from krepair.checks.recovery_time import duration_text
from krepair.commit.reports import ApplyReport, KeptPlan, KeptReport
from krepair.commit.result import ChangeOutcome
from krepair.errors import EXIT_CODE_MEANING, ExitCode
from krepair.formats.words import count_text, names_text, time_text
from krepair.next_command import Next
from krepair.plan.view import Section, View, bytes_text, bytes_words, size_text, table_of

if TYPE_CHECKING:
    from krepair.ops.verify import VerifyEachReport, VerifyReport

_MOST_ROWS = 8
"""Largest number of rows of a table about partitions or changes; more would hide the rest of the page."""

_MOST_KINDS = 3
"""Largest number of kinds of files whose checks are described."""

_NOTHING_LEFT = {
    "apply": "Done: every change was done before.",
    "undo": "Done: nothing of this plan is applied here, so there is nothing to undo.",
    "purge": "Done: nothing of this plan is kept here. It was purged, undone, or never applied here.",
}
_DONE_OUTCOMES: Final[dict[str, ChangeOutcome]] = {"apply": "committed", "undo": "undone", "purge": "purged"}


def place_text(file: str, position: int) -> str:
    """Format a place in a partition: a file, and the byte in it if known."""
    if not file:
        return "-"
    return file if position < 0 else f"{file} at {position}"


def apply_view(report: ApplyReport) -> View:
    """Build the page of ``apply``, ``undo`` or ``purge``; every failure has its own line."""
    failed = tuple(
        (result.change_id, result.outcome, str(result.exit_code), _with_next(result.why, result.next_command))
        for result in report.results
        if result.outcome in {"failed", "skipped"}
    )
    lines = [_ended(report)]
    if report.digest:
        lines.append(f"Digest {report.digest}")
    lines += report.notes
    if report.results:
        lines.append(freed_in_all(report.verb, report.bytes_freed))
    elif report.interrupted:
        lines.append("It was stopped before the first change began.")
    else:
        lines.append("There was nothing to do.")
    if report.uncleanable_partitions:
        lines.append(
            f"Uncleanable (KIP-346): {count_text(report.uncleanable_partitions, 'partition')}, "
            f"{bytes_text(report.uncleanable_bytes)}."
        )
    sections = (
        Section(title=f"Plan {report.plan_id} in {report.log_dir}", lines=tuple(lines)),
        Section(
            title="Deleted by the broker",
            lines=tuple(result.why for result in report.results if result.outcome == "gone"),
        ),
        Section(
            title="Not done",
            lines=(f"The first {_MOST_ROWS} of {len(failed):,}; the same command with --json lists all.",)
            if len(failed) > _MOST_ROWS
            else (),
            table=table_of("change | outcome | code | why", failed[:_MOST_ROWS]),
        ),
        Section(
            title="By hand, while the broker is stopped",
            commands=tuple(map(Next.by_hand, report.by_hand)),
        ),
        *end_of_page(report.next_command, report.slow_because),
    )
    return View(title=f"krepair {report.verb}", sections=sections)


def _with_next(why: str, command: Next) -> str:
    return f"{why}; next: {command}" if command else why


def _ended(report: ApplyReport) -> str:
    """Describe in a sentence how the run ended, by what was done.

    The sentence names every outcome, because many readers stop after it.
    """
    counts = Counter(result.outcome for result in report.results)
    counted = "; ".join(_counted(report, counts))
    missed = counts["failed"] + counts["skipped"]
    unfinished = (
        f"; {missed:,} not done, each with its reason below. What is done stays done." if missed else "."
    )
    if report.exit_code not in (ExitCode.DONE, ExitCode.PARTLY):
        meaning = EXIT_CODE_MEANING[report.exit_code]
        return (
            f"{meaning[0].upper()}{meaning[1:]}.{f' Done so far: {counted}{unfinished}' if counted else ''}"
        )
    if missed:
        return f"Partly done: {counted}{unfinished}"
    if set(counts) == {"already"}:
        return _NOTHING_LEFT[report.verb]
    return f"Done: {counted}." if counted else "Done."


def _counted(report: ApplyReport, counts: Mapping[ChangeOutcome, int]) -> Iterator[str]:
    """Yield a text for each outcome with its count. Purge counts folders, the other verbs changes."""
    done, before = counts.get(_DONE_OUTCOMES[report.verb], 0), counts.get("already", 0)
    partly = report.exit_code is ExitCode.PARTLY
    if done or partly:
        yield _done_text(report.verb, done, whole=not partly)
    if before and report.verb == "purge":
        yield f"nothing was kept in {count_text(before, 'folder')}"
    elif before:
        words = {"apply": "done before", "undo": "not applied here"}
        yield f"{count_text(before, 'change')} {words[report.verb]}"
    if counts.get("gone"):
        yield f"{count_text(counts['gone'], 'folder')} deleted by the broker"


def _done_text(verb: str, done: int, *, whole: bool) -> str:
    if verb == "purge":
        return f"the originals in {count_text(done, 'folder')} were purged"
    if verb == "undo":
        return f"{count_text(done, 'change')} undone"
    read = "; every new file was read again before it replaced anything" if whole else ""
    return f"{count_text(done, 'change')} made{read}"


def freed_in_all(verb: str, count: int) -> str:
    """Describe the space that a verb freed or took; after an undo nothing is left for a purge to free."""
    if count >= 0:
        return f"Freed: {bytes_words(count)}."
    more = f"It takes {bytes_words(-count)} more now"
    return f"{more}." if verb == "undo" else f"{more}; purge frees the originals."


def kept_view(verb: str, report: KeptReport) -> View:
    """Build the list of each plan's backups, the plan written last first."""
    rows = tuple(
        (
            plan.plan_id,
            plan.state,
            names_text(plan.partitions),
            f"{plan.bytes:,}",
            time_text(plan.last_written_ms) if plan.last_written_ms >= 0 else "-",
            duration_text(plan.age_seconds) if plan.age_seconds >= 0 else "-",
            plan.copy,
            _undo_words(plan),
        )
        for plan in report.plans
    )
    line = "1 plan keeps originals." if rows else "No plan keeps originals here."
    if len(rows) > 1:
        line = f"{len(rows)} plans keep originals. If two of them changed the same partition, undo the upper one first."
    sections = (
        Section(
            title=f"Kept originals in {report.log_dir}",
            lines=(line,),
            table=table_of(
                "plan id | state | partitions | # bytes | last written | age | copy of plan | undo", rows
            ),
        ),
        *end_of_page(report.next_command),
    )
    return View(title=f"krepair {verb}", sections=sections)


def _undo_words(plan: KeptPlan) -> str:
    return f"{plan.undo}: {_with_next(plan.why_not, plan.next_command)}" if plan.why_not else plan.undo


def verify_view(report: VerifyReport) -> View:
    """Build the page of ``verify``, with every problem."""
    rows = tuple(
        (
            problem.partition or "log directory",
            place_text(problem.file, problem.position),
            _with_next(problem.text, problem.next_command),
        )
        for problem in report.problems
    )
    subject = f"plan {report.plan_id} in {report.target}" if report.plan_id else report.target
    checked = not report.plan_id or bool(report.checked)
    lines = [*_checked_lines(report)]
    if report.of_the_broker:
        files = count_text(report.of_the_broker, "file")
        lines.append(f"A broker has run since the apply: {files} rewritten or removed by it.")
    if report.not_compared:
        lines.append(f"{report.not_compared}.")
    if rows:
        lines.append(f"{count_text(len(rows), 'problem')}.")
    elif not checked or report.not_compared:
        lines.append("Nothing was found wrong.")
    sections = (
        Section(
            title=f"{'Verified' if checked and not rows else 'Looked at'}: {subject}",
            lines=tuple(lines),
            table=table_of("partition | file | problem", rows),
        ),
        *end_of_page(report.next_command, report.slow_because),
    )
    return View(title="krepair verify", sections=sections)


def _checked_lines(report: VerifyReport) -> Iterator[str]:
    """Yield lines on the amount read and on the result; for a plan, also on the files checked and how."""
    right = "Everything is as it should be. " if not report.problems and not report.not_compared else ""
    looked = count_text(report.partitions, "partition")
    # Not every check counts batches; the line omits numbers that were not counted.
    read = [count_text(report.batches, "batch", "batches")] if report.batches else []
    read += [f"{size_text(report.bytes_read)} of .log"] if report.bytes_read else []
    if not report.plan_id:
        segments = count_text(report.segments, "segment")
        empty = [] if report.bytes_read or report.problems or not report.segments else ["all empty"]
        yield f"{right}Read {', '.join((looked, segments, *read, *empty))}."
        return
    if not report.checked:
        yield "No file of this plan was checked."
        return
    yield f"{right}Looked at {looked}{', and read ' if read else ''}{', '.join(read)}."
    if len(report.checked) > _MOST_KINDS:
        kinds = ", ".join(f"{checked.what} ({checked.files:,})" for checked in report.checked)
        yield f"Checked: {kinds}. With --json it says how."
        return
    for checked in report.checked:
        yield f"{checked.what.capitalize()} ({checked.files:,}): {checked.how}."


def verify_each_view(report: VerifyEachReport) -> View:
    """Build the page of ``verify`` for several log directories, each with its own result."""
    wrong = [each_report for each_report in report.reports if each_report.problems]
    sums = table_of(
        "log directory | # partitions | # segments | # batches | # bytes read | # problems",
        (
            (
                each_report.target,
                each_report.partitions,
                each_report.segments,
                each_report.batches,
                each_report.bytes_read,
                len(each_report.problems),
            )
            for each_report in report.reports
        ),
    )
    line = (
        f"There are problems in {count_text(len(wrong), 'log directory', 'log directories')}."
        if wrong
        else "Everything is as it should be."
    )
    details = (
        replace(verify_view(each_report).sections[0], title=each_report.target)
        for each_report in report.reports
        if each_report.problems
    )
    return View(
        title="krepair verify",
        sections=(
            Section(
                title=f"Verified: {count_text(len(report.reports), 'log directory', 'log directories')}",
                lines=(line,),
                table=sums,
            ),
            *details,
            *end_of_page(report.next_command, report.reports[0].slow_because),
        ),
    )


def end_of_page(next_command: Next, slow_because: str = "") -> tuple[Section, Section]:
    """Build the end of a page: the reason why the faster Spark could not be used, and the next command."""
    return (
        Section(title="Engine", lines=(slow_because,) if slow_because else ()),
        Section(title="Next", commands=(next_command,) if next_command else ()),
    )
