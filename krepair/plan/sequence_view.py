"""The page of a sequence of plans, made from its file alone; each step's own page follows where all is shown."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from krepair.plan.keep import UNTIL_VERIFIED, copies_in
from krepair.plan.model import Plan
from krepair.plan.render import NEXT, NEXT_TITLES, from_command, plan_view, ways_back
from krepair.plan.replicas_view import replicas_sections
from krepair.plan.sequence import PlanSequence, Step, merged
from krepair.plan.ticket import names_text
from krepair.plan.view import (
    NAMES_AND_VALUES,
    Section,
    View,
    bytes_text,
    count_text,
    expected_text,
    size_text,
    table_of,
)

WITHOUT_UNDO = "There is no undo of some steps"
_MOST_ROWS = 40


def sequence_view(sequence: PlanSequence, path: str, apply: str, again: str = "") -> View:
    """The page of a sequence, without the pages of its steps.

    Args:
        sequence: any.
        path: of its file, for the commands.
        apply: the command that applies it.
        again: command that makes it again with what the other brokers say, or empty.
    """
    sections = [_preview(sequence, path), *_without_undo(sequence), _steps(sequence)]
    if sequence.steps:
        whole = merged(sequence)
        sections += [*replicas_sections(whole, again), _summary(sequence, whole)]
        sections.append(
            Section(title="Risks", lines=tuple(f"{risk.code}: {risk.text}" for risk in whole.risks))
        )
    sections += [_left_out(sequence), *_next(sequence, path, apply)]
    what = "preview of a sequence" if sequence.is_preview else "sequence"
    return View(
        title=f"krepair {what} {sequence.plan_id}",
        sections=tuple(section for section in sections if not section.empty),
    )


def whole_view(sequence: PlanSequence, path: str, apply: str, again: str = "") -> View:
    """The page of a sequence, and after it the page of each step without its commands; see ``sequence_view``."""
    page = sequence_view(sequence, path, apply, again)
    end = [section for section in page.sections if section.title in NEXT_TITLES]
    sections = [section for section in page.sections if section.title not in NEXT_TITLES]
    for number, step in enumerate(sequence.steps, 1):
        for section in plan_view(step.plan, path).sections:
            if section.title not in NEXT_TITLES:
                sections.append(
                    Section(title=f"Step {number}: {section.title}", lines=section.lines, table=section.table)
                )
    return View(title=page.title, sections=(*sections, *end))


def sequence_line(sequence: PlanSequence) -> str:
    """What the sequence is, in one line."""
    if not sequence.steps:
        return "Nothing of it fits on the disk now." if sequence.left_out else "There is nothing to change."
    first = sequence.steps[0]
    steps = count_text(len(sequence.steps), "step")
    which = "it needs" if len(sequence.steps) == 1 else "the first needs"
    if first.reserved_bytes and not sequence.free_bytes:
        only = f"{size_text(sequence.reserved_bytes)} that only root has"
        return f"{steps}, {which} {size_text(first.needs_bytes)} of the {only}."
    if first.reserved_bytes:
        free, only = size_text(sequence.free_bytes), size_text(sequence.reserved_bytes)
        return f"{steps}, {which} {size_text(first.needs_bytes)}: {free} are free for all, {only} more only root has."
    return f"{steps}, {which} {size_text(first.needs_bytes)} of the {size_text(sequence.free_bytes)} that are free."


def _preview(sequence: PlanSequence, path: str) -> Section:
    if not sequence.is_preview:
        return Section(title="")
    return Section(
        title="This is a preview: apply refuses it",
        lines=("It was made while a broker may have been running. After the stop, make the real one of it.",),
        commands=(from_command(path),),
    )


def _without_undo(sequence: PlanSequence) -> Iterator[Section]:
    numbers = [str(number) for number, step in enumerate(sequence.steps, 1) if not step.can_be_taken_back]
    if not numbers:
        return
    which = f"Steps {', '.join(numbers)}" if len(numbers) > 1 else f"Step {numbers[0]}"
    them = "the first of them" if len(numbers) > 1 else "it"
    freed = "apply frees originals, group by group, as soon as what replaces them is verified"
    lines = (
        f"{which} of {len(sequence.steps)}: {freed}.",
        f"For that --free={UNTIL_VERIFIED} has to be typed. Without it apply stops before {them}.",
    )
    yield Section(title=WITHOUT_UNDO, lines=lines)


def _steps(sequence: PlanSequence) -> Section:
    rows = [_row(number, step) for number, step in enumerate(sequence.steps, 1)]
    lines = [sequence_line(sequence)]
    if any(step.can_be_taken_back for step in sequence.steps):
        lines.append("What is kept is freed by krepair purge, which a person types. No step does that.")
    table = table_of(
        "# step | # partitions | originals | # needs | # free before | # free after | "
        "# freed by purge | plan",
        rows,
    )
    return Section(title="Steps", lines=tuple(lines), table=table if rows else None)


def _row(number: int, step: Step) -> tuple[str, ...]:
    plan = step.plan
    return (
        str(number),
        f"{len(plan.changing):,}",
        kept_where(plan.policy.keep),
        size_text(step.needs_bytes),
        size_text(step.free_before),
        size_text(step.free_after),
        size_text(max(plan.freed_at_purge - plan.freed_at_apply, 0)),
        plan.plan_id,
    )


def kept_where(keep: str) -> str:
    """What becomes of originals, by the word of ``--keep``, in a cell of a table."""
    if keep == UNTIL_VERIFIED:
        return "freed, no undo"
    return f"copied to {keep}" if copies_in(keep) else "kept until purge"


def _summary(sequence: PlanSequence, whole: Plan) -> Section:
    rows = (
        ("host", sequence.host),
        ("log directory", sequence.log_dir),
        ("partitions to change", f"{sum(len(step.plan.changing) for step in sequence.steps):,}"),
        ("freed right after apply", bytes_text(whole.freed_at_apply)),
        ("freed after purge", bytes_text(whole.freed_at_purge)),
        ("expected time of apply", expected_text(whole.expected_seconds)),
        ("digest", sequence.digest),
    )
    return Section(title="Summary", table=table_of(NAMES_AND_VALUES, rows))


def _left_out(sequence: PlanSequence) -> Section:
    """One row for all partitions of which the same is to be said."""
    same: dict[tuple[str, str, str], list[str]] = {}
    for one in sequence.left_out:
        same.setdefault((one.code, one.why, one.next_command), []).append(one.partition)
    rows = [
        (f"{len(names):,}", names_text(names), code, why, command)
        for (code, why, command), names in same.items()
    ]
    more = len(rows) - _MOST_ROWS
    return Section(
        title="Partitions in no step",
        lines=(f"{count_text(more, 'more row')}: see krepair show --format json.",) if more > 0 else (),
        table=table_of("# partitions | which | code | why | command", rows[:_MOST_ROWS]) if rows else None,
    )


def _next(sequence: PlanSequence, path: str, apply: str) -> tuple[Section, ...]:
    if not sequence.steps or sequence.is_preview:
        return ()
    name = shlex.quote(path)
    first = Section(
        title=NEXT,
        lines=("With the broker stopped, as a user who may write the log directory:",),
        commands=(apply, f"krepair verify {name}"),
    )
    kept = [step.can_be_taken_back for step in sequence.steps]
    return (first, *(ways_back(name, some=not all(kept)) if any(kept) else ()))
