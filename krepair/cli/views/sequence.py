"""Pages of what ``apply``, ``undo``, ``purge`` and ``verify`` did with the steps of a sequence of plans."""

from __future__ import annotations

from typing import Final

from krepair.cli.views.reports import apply_view, end_of_page, freed_in_all, verify_view
from krepair.errors import EXIT_CODE_MEANING, ExitCode
from krepair.ops.reports import SequenceReport, SequenceVerifyReport, StepReport
from krepair.plan.sequence_view import kept_where
from krepair.plan.view import Section, View, count_text, table_of

_ENDED: Final = {
    "done": " is done",
    "failed": " failed",
    "interrupted": " was interrupted",
    "stopped": " was not begun",
    "not begun": " was not begun",
}
_OF_A_STEP = ("What the files tell", "Deleted by the broker", "Not done")


def sequence_report_view(report: SequenceReport) -> View:
    """Each step in a line, and what was not done of the step that ended it."""
    done = sum(step.outcome == "done" for step in report.steps)
    lines = [f"{done} of {count_text(len(report.steps), 'step')} done."]
    if report.exit_code not in (ExitCode.DONE, ExitCode.PARTLY):
        lines.append(f"{report.exit_code.name.lower()}: {EXIT_CODE_MEANING[report.exit_code]}.")
    lines += [f"Step {step.number}{_ENDED[step.outcome]}: {step.why}." for step in report.steps if step.why]
    lines.append(f"Digest of the sequence: {report.digest}.")
    lines.append(freed_in_all(report.verb, report.bytes_freed))
    rows = tuple(_row(step) for step in report.steps)
    own = [
        Section(title=f"Step {step.number}: {section.title}", lines=section.lines, table=section.table)
        for step in report.steps
        if step.report is not None
        for section in apply_view(step.report).sections
        if section.title in _OF_A_STEP and not section.empty
    ]
    engine = next((step.report.engine for step in report.steps if step.report is not None), "")
    head = Section(
        title=f"Sequence {report.plan_id} in {report.log_dir}",
        lines=tuple(lines),
        table=table_of("# step | plan | originals | outcome | # bytes freed", rows),
    )
    return View(
        title=f"krepair {report.verb}", sections=(head, *own, *end_of_page(engine, report.next_command))
    )


def _row(step: StepReport) -> tuple[str, ...]:
    freed = f"{step.report.bytes_freed:,}" if step.report is not None else "-"
    return str(step.number), step.plan_id, kept_where(step.keep), step.outcome, freed


def sequence_verify_view(report: SequenceVerifyReport) -> View:
    """What ``verify`` proved of each step, and every problem."""
    sections = [
        Section(title=f"Step {number}: {section.title}", lines=section.lines, table=section.table)
        for number, step in enumerate(report.steps, 1)
        for section in verify_view(step).sections[:1]
    ]
    engine = report.steps[0].engine if report.steps else ""
    return View(title="krepair verify", sections=(*sections, *end_of_page(engine, report.next_command)))
