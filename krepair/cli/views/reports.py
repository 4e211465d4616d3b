"""Pages of the reports of ``apply``, ``undo``, ``purge`` and ``verify``, and of what is kept."""

from __future__ import annotations

from dataclasses import replace

from krepair.checks.recovery_time import duration_text
from krepair.errors import EXIT_CODE_MEANING, ExitCode
from krepair.ops.reports import (
    ApplyReport,
    ChangeResult,
    KeptPlan,
    KeptReport,
    VerifyEachReport,
    VerifyReport,
)
from krepair.plan.view import Section, View, bytes_text, bytes_words, count_text, table_of, time_text

_MOST_ROWS = 8
"""Rows of a table about partitions or changes; more of them would hide the rest of the page."""

_DONE_WORDS = {"apply": "applied", "undo": "taken back", "purge": "purged"}
_BEFORE_WORDS = {"apply": "in place before", "undo": "not applied here", "purge": "of which nothing was kept"}
_NOT_BEFORE = {"undo": "not applied here", "purge": "nothing kept here"}
"""Of a plan of which nothing is here: nobody knows whether it was ever applied."""
_NOTHING_LEFT = {
    "apply": "Done: every change is in place already.",
    "undo": "Done: nothing of this plan is applied here, so there is nothing to take back.",
    "purge": "Done: nothing of this plan is kept here. It was purged, or taken back, or never applied here.",
}
_DONE_OUTCOMES = {"apply": "committed", "undo": "undone", "purge": "purged"}


def place_text(file: str, position: int) -> str:
    """Where in a partition something is: a file, and the byte in it where that is known."""
    if not file:
        return "-"
    return file if position < 0 else f"{file} at {position}"


def apply_view(report: ApplyReport) -> View:
    """What ``apply``, ``undo`` or ``purge`` did, by partition; every failure on its own line."""
    by_partition: dict[str, list[ChangeResult]] = {}
    for result in report.results:
        by_partition.setdefault(result.partition, []).append(result)
    rows = _partition_rows(by_partition)
    failed = tuple(
        (result.change_id, result.outcome, str(result.exit_code), result.why)
        for result in report.results
        if result.outcome in {"failed", "skipped"}
    )
    lines = [_ended(report)]
    if report.digest:
        lines.append(f"Digest of the plan: {report.digest}.")
    lines += report.notes
    if report.results:
        lines.append(_freed_in_all(report.bytes_freed))
    elif report.interrupted:
        lines.append("It was stopped before the first change was begun.")
    else:
        lines.append("There was nothing to do.")
    if report.uncleanable_partitions:
        lines.append(
            f"Uncleanable (KIP-346): {count_text(report.uncleanable_partitions, 'partition')}, "
            f"{bytes_text(report.uncleanable_bytes)}."
        )
    sections = (
        Section(
            title=f"Plan {report.plan_id}, {_what_was_done(report)}, in {report.log_dir}",
            lines=tuple(lines),
            table=table_of("partition | changes | # bytes freed", rows),
        ),
        Section(
            title="What the files tell",
            lines=_told_lines(report),
            table=table_of("change | where it is", _told(report)),
        ),
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
        *end_of_page(report.engine, report.next_command),
    )
    return View(title=f"krepair {report.verb}", sections=sections)


def _partition_rows(by_partition: dict[str, list[ChangeResult]]) -> tuple[tuple[str, ...], ...]:
    """Each partition, if they are few; else those with something that is not done, and one row for all others."""
    told = [name for name, results in by_partition.items() if not all(map(_is_done, results))]
    if len(by_partition) <= _MOST_ROWS:
        told = list(by_partition)
    told = told[:_MOST_ROWS]
    rest = [result for name, results in by_partition.items() if name not in told for result in results]
    rows = [(name, _outcomes(by_partition[name]), _freed(by_partition[name])) for name in told]
    if rest:
        others = count_text(len(by_partition) - len(told), f"{'other ' if told else ''}partition")
        rows.append((others, _outcomes(rest), _freed(rest)))
    return tuple(rows)


def _is_done(result: ChangeResult) -> bool:
    return result.outcome not in {"failed", "skipped"}


def _ended(report: ApplyReport) -> str:
    """How it ended, in a sentence: what was done, and not what could have been."""
    if report.exit_code is ExitCode.PARTLY:
        return _partly(report)
    if report.exit_code is not ExitCode.DONE:
        return f"{report.exit_code.name.lower()}: {EXIT_CODE_MEANING[report.exit_code]}."
    done = sum(result.outcome == _DONE_OUTCOMES[report.verb] for result in report.results)
    before = sum(result.outcome == "already" for result in report.results)
    if not done:
        return _NOTHING_LEFT[report.verb] if before else "Done."
    words = {
        "apply": "made; every new file was read again before it replaced anything",
        "undo": "taken back",
        "purge": "purged; its originals are gone",
    }
    earlier = f"; {count_text(before, 'change')} {_BEFORE_WORDS[report.verb]}" if before else ""
    return f"Done: {count_text(done, 'change')} {words[report.verb]}{earlier}."


def _partly(report: ApplyReport) -> str:
    """How many changes are done, and how many are not; whether apply can continue is said with each of these."""
    outcomes = [result.outcome for result in report.results]
    done = sum(outcome == _DONE_OUTCOMES[report.verb] for outcome in outcomes)
    before = outcomes.count("already")
    missed = sum(outcome in {"failed", "skipped"} for outcome in outcomes)
    earlier = f"; {count_text(before, 'change')} {_BEFORE_WORDS[report.verb]}" if before else ""
    return (
        f"partly: {count_text(done, 'change')} {_DONE_WORDS[report.verb]}{earlier}; {missed:,} not done, each with its "
        "reason below. What is done stays done."
    )


def _freed_in_all(count: int) -> str:
    if count < 0:
        return f"It takes {bytes_words(-count)} more now; purge frees the originals."
    return f"Freed: {bytes_words(count)}."


def _told(report: ApplyReport) -> tuple[tuple[str, ...], ...]:
    return tuple((one.change_id, one.why) for one in report.results if one.outcome == "rebuilt")


def _told_lines(report: ApplyReport) -> tuple[str, ...]:
    if not _told(report):
        return ()
    text = (
        "The journals of these changes were written anew. Nothing that a broker reads was touched, and the damaged "
        "journals lie beside the new ones."
    )
    return (text,)


def _what_was_done(report: ApplyReport) -> str:
    """The heading's word: it promises nothing that was not done."""
    if any(result.outcome == "rebuilt" for result in report.results):
        return "its journals rebuilt"
    word = _DONE_WORDS[report.verb]
    outcomes = {result.outcome for result in report.results}
    done = outcomes & {_DONE_OUTCOMES[report.verb], "already", "gone"}
    missed = outcomes - done
    if report.verb == "undo":
        done.discard("already")  # it was not applied, so it was not taken back
    if missed or report.interrupted:
        return f"{word} in part" if done else f"not {word}"
    if report.verb in _NOT_BEFORE and outcomes <= {"already", "gone"}:
        return _NOT_BEFORE[report.verb] if "already" in outcomes else "nothing to do"
    if outcomes <= {"already", "gone"}:
        return f"{word} before" if "already" in outcomes else "nothing to do"
    return word


def _outcomes(results: list[ChangeResult]) -> str:
    counts: dict[str, int] = {}
    for result in results:
        counts[result.outcome] = counts.get(result.outcome, 0) + 1
    return ", ".join(f"{count:,} {outcome}" for outcome, count in counts.items())


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
    line = "1 plan keeps something." if rows else "No plan keeps anything here."
    if len(rows) > 1:
        line = f"{len(rows)} plans keep something. Where two changed the same partition, undo the upper one first."
    sections = (
        Section(
            title=f"Kept originals in {report.log_dir}",
            lines=(line,),
            table=table_of(
                "plan id | state | partitions | # bytes | last written | age | copy of plan | undo", rows
            ),
        ),
        *end_of_page("", report.next_command),
    )
    return View(title=f"krepair {verb}", sections=sections)


def _undo_words(plan: KeptPlan) -> str:
    return f"{plan.undo}: {plan.why_not}" if plan.why_not else plan.undo


def verify_view(report: VerifyReport) -> View:
    """What ``verify`` proved, and every problem."""
    rows = tuple(
        (problem.partition or "log directory", place_text(problem.file, problem.position), problem.text)
        for problem in report.problems
    )
    what = f"plan {report.plan_id} in {report.target}" if report.plan_id else report.target
    read = (
        f"Read {count_text(report.partitions, 'partition')}, {count_text(report.segments, 'segment')}, "
        f"{count_text(report.batches, 'batch', 'batches')}, "
        f"{bytes_words(report.bytes_read)}."
    )
    lines = (
        read,
        "Everything is as it should be." if not rows else f"{count_text(len(rows), 'problem')}.",
    )
    sections = (
        Section(
            title=f"Verified: {what}",
            lines=lines,
            table=table_of("partition | file | problem", rows),
        ),
        *end_of_page(report.engine, report.next_command),
    )
    return View(title="krepair verify", sections=sections)


def verify_each_view(report: VerifyEachReport) -> View:
    """What ``verify`` proved of several log directories, each by itself."""
    each = list(zip(report.reports, report.brokers, strict=True))
    wrong = [one for one in report.reports if one.problems]
    sums = table_of(
        "broker | log directory | # partitions | # segments | # batches | # bytes read | # problems",
        (
            (
                broker or "unknown",
                one.target,
                one.partitions,
                one.segments,
                one.batches,
                one.bytes_read,
                len(one.problems),
            )
            for one, broker in each
        ),
    )
    line = (
        f"There are problems in {count_text(len(wrong), 'log directory', 'log directories')}."
        if wrong
        else "Everything is as it should be."
    )
    details = (
        replace(verify_view(one).sections[0], title=f"Broker {broker or 'unknown'}: {one.target}")
        for one, broker in each
        if one.problems
    )
    return View(
        title="krepair verify",
        sections=(
            Section(
                title=f"Verified: {count_text(len(each), 'log directory', 'log directories')} of "
                f"{count_text(len(set(report.brokers)), 'broker')}",
                lines=(line,),
                table=sums,
            ),
            *details,
            *end_of_page(report.reports[0].engine, next((one.next_command for one in wrong), "")),
        ),
    )


def end_of_page(engine: str, next_command: str) -> tuple[Section, Section]:
    """What every page ends with: the engine, and what to type next."""
    return (
        Section(title="Engine", lines=(engine,) if engine else ()),
        Section(title="Next", commands=(next_command,) if next_command else ()),
    )
