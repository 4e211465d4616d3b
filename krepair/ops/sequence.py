"""``krepair plan --free``, and how every verb goes through the steps of such a file, one plan after the other.

Nothing here changes a log directory: each step is a plan, and the verb of a plan does what is to be done to it. Between
two steps nothing is held; the next one begins by asking anew who uses the directory, what is in it, and what is free.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace as with_options

from msgspec import Struct
from msgspec.structs import replace

from krepair import __version__
from krepair.errors import ExitCode, KrepairError, RefusedError
from krepair.formats.filenames import LOCK
from krepair.logdir.space import Space, read_reserve, read_space
from krepair.logdir.values import Partition
from krepair.logdir.view import read_log_dir
from krepair.ops.apply import apply
from krepair.ops.plan import looked_at, plan_of
from krepair.ops.plan_command import FREE_CONSENT, apply_command, asked_of, options_of
from krepair.ops.preview import check_here, read_beside
from krepair.ops.purge import purge
from krepair.ops.reports import (
    ApplyReport,
    SequenceReport,
    SequenceVerifyReport,
    StepReport,
    VerifyReport,
    next_in,
)
from krepair.ops.steps import Chosen, Make, Room, choose_steps, telling_of_others
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.options import Options
from krepair.pipeline.progress import Progress
from krepair.plan.diff import PlanDiff, diff_plans
from krepair.plan.keep import INPLACE, UNTIL_VERIFIED, copies_in
from krepair.plan.model import Plan
from krepair.plan.sequence import NO_ROOM, LeftOut, PlanSequence, Step, merged, originals_out, seal
from krepair.plan.view import bytes_words, count_text
from krepair.start.start_space import needed_at_most

Verb = Callable[[Plan, Options, Progress | None], ApplyReport]


# -- making one


def make_sequence(log_dir: str, options: Options, progress: Progress | None = None) -> PlanSequence:
    """Make the ordered set of plans that gets a disk free from where it is.

    Raises:
        KrepairError: see ``krepair.ops.plan.make_plan``.
    """
    with looked_at(log_dir, options, progress) as seen:
        names = {folder: _name(seen.context.surveys[folder].partition) for folder in seen.proposals}

        def make(keep: str, folders: Sequence[str]) -> Plan:
            seen.context.options = _options_of_step(options, keep, [names[folder] for folder in folders])
            wanted = frozenset(folders)
            chosen = {folder: one for folder, one in seen.proposals.items() if folder in wanted}
            return plan_of(seen.context, seen.fixes, chosen)

        return _sequence_of(make, list(names), options)


def make_preview_sequence(log_dir: str, options: Options, progress: Progress | None = None) -> PlanSequence:
    """The same beside a running broker: to be read, and never applied.

    Raises:
        KrepairError: see ``krepair.ops.preview.make_preview``.
    """
    reading = read_beside(log_dir, options, progress)
    names = {folder: (one.topic, one.partition) for folder, one in reading.done.items()}

    def make(keep: str, folders: Sequence[str]) -> Plan:
        step = _options_of_step(options, keep, [names[folder] for folder in folders])
        wanted = frozenset(folders)
        return reading.plan(step, [folder for folder in names if folder in wanted])

    return _sequence_of(make, list(names), options)


class SequenceFrom(Struct, frozen=True, kw_only=True):
    """What ``plan --from`` came to for the preview of a sequence.

    Attributes:
        plan: the real sequence.
        diff: what changed since the preview; the first plan of it is the preview. None if one of them has no step.
    """

    plan: PlanSequence
    diff: PlanDiff | None


def sequence_from(preview: PlanSequence, options: Options, progress: Progress | None = None) -> SequenceFrom:
    """Make the real sequence of a preview, and say what changed.

    Args:
        preview: as read from its file.
        options: see ``options_of_sequence``.
        progress: told of bytes.

    Raises:
        StalePlanError: the preview is of another host or directory.
        KrepairError: see ``make_sequence``.
    """
    check_here(merged(preview))
    made = make_sequence(preview.log_dir, options, progress)
    diff = diff_plans(merged(preview), merged(made)) if made.steps else None
    return SequenceFrom(plan=made, diff=diff)


def options_of_sequence(sequence: PlanSequence) -> Options:
    """The options and the clock that a sequence was made with; without a step, what was typed to choose partitions."""
    if not sequence.steps:
        asked = sequence.asked
        return Options(topics=asked.topics, partitions=asked.partitions, settings=asked.settings, free=True)
    return with_options(options_of(merged(sequence)), free=True)


def _name(partition: Partition) -> tuple[str, int]:
    return partition.topic, partition.number


def _options_of_step(options: Options, keep: str, names: Sequence[tuple[str, int]]) -> Options:
    return with_options(options, keep=keep, topics=(), partitions=tuple(sorted(names)), free=False)


def _sequence_of(make: Make, folders: Sequence[str], options: Options) -> PlanSequence:
    whole = make(INPLACE, folders)
    freeing = options.keep if copies_in(options.keep) else UNTIL_VERIFIED
    space = read_space(whole.log_dir)
    chosen = Chosen((), (), Room(0, -1, 0, 0))
    for room in _rooms(whole.log_dir, space, options):
        chosen = choose_steps(whole, make, room, freeing, keeps=options.keep != UNTIL_VERIFIED)
        if not chosen.rest:
            break
    chosen = telling_of_others(whole, make, chosen)
    return seal(
        PlanSequence(
            tool_version=__version__,
            host=whole.host,
            log_dir=whole.log_dir,
            free_bytes=space.free_bytes,
            free_files=space.free_inodes,
            reserved_bytes=chosen.room.reserved,
            keep=options.keep,
            asked=asked_of(options),
            steps=chosen.steps,
            left_out=tuple(_left_out(whole, chosen)),
        )
    )


def _rooms(log_dir: str, space: Space, options: Options) -> Iterator[Room]:
    """What is free; then, for root on ext4, with what only root has."""
    view = read_log_dir(log_dir)
    start_needs = needed_at_most(view)
    folder = copies_in(options.keep)
    elsewhere = read_space(folder).free_bytes if folder else 0
    free, files = space.free_bytes, space.free_inodes
    if files > 0 and not os.path.lexists(os.path.join(log_dir, LOCK)):
        files -= 1  # apply makes the broker's lock first
    room = Room(free, files, free, start_needs, 0, elsewhere, space.withheld_bytes, space.links_are_files)
    if not options.use_reserved:
        yield room
    try:
        more = read_space(log_dir, use_reserved=True).free_bytes - space.free_bytes
        for_others = read_reserve(log_dir).free_for_others
    except (KrepairError, OSError):
        more = for_others = 0
    if os.geteuid() == 0 and more > 0:
        total = space.free_bytes + more
        for_broker = total if os.stat(log_dir).st_uid == 0 else for_others
        yield room._replace(bytes=total, for_broker=for_broker, reserved=more)
    elif options.use_reserved:
        yield room


def _left_out(whole: Plan, chosen: Chosen) -> Iterator[LeftOut]:
    after = "even after all steps" if chosen.steps else "now"
    for one, missing in chosen.rest:
        if missing.bytes:
            why = f"{bytes_words(missing.bytes)} more have to be free than are {after}"
        elif missing.files:
            why = f"there has to be room for {count_text(missing.files, 'more file')} than there is {after}"
        else:
            why = f"there is no room for its copies {after}"
        yield LeftOut(
            partition=one.folder,
            code=NO_ROOM,
            why=why,
            bytes_missing=missing.bytes,
            files_missing=missing.files,
            originals=originals_out(one),
        )
    for one in whole.partitions:
        if one.status == "left alone":
            yield LeftOut(partition=one.folder, code=one.code, why=one.why, next_command=one.next_command)


# -- going through one


def apply_sequence(
    sequence: PlanSequence, options: Options, progress: Progress | None = None, *, verb: Verb = apply
) -> SequenceReport:
    """Carry out one step after the other; a step that is not done whole is the last one.

    Args:
        sequence: as read from its file.
        options: as of ``krepair.ops.apply.apply``; and ``without_undo``: whether steps that cannot be taken back begin.
        progress: told of bytes.
        verb: applies one plan; a test may wrap it.

    Raises:
        RefusedError: it is a preview, or it has no step.
    """
    _check_can_be_applied(sequence)
    reports: list[StepReport] = []
    for number, step in enumerate(sequence.steps, 1):
        why = _why_not_begun(number, step, options)
        if why:
            reports.append(_step_report(number, step, "stopped", ExitCode.PERSON_DECIDES, why))
            break
        # What only root has is taken by the steps for which it was said.
        own = with_options(options, use_reserved=options.use_reserved and step.reserved_bytes > 0)
        reports.append(_carried_out(number, step, verb, own, progress))
        if reports[-1].outcome != "done":
            break
    return _report("apply", sequence, reports, _next_of_apply(sequence, reports, options))


def undo_sequence(
    sequence: PlanSequence, options: Options, progress: Progress | None = None
) -> SequenceReport:
    """Take the steps back, the last one first; a step that cannot be taken back is the end."""
    reports: list[StepReport] = []
    for number, step in reversed(list(enumerate(sequence.steps, 1))):
        reports.append(_carried_out(number, step, undo, options, progress))
        if reports[-1].outcome != "done":
            break
    done = all(one.outcome == "done" for one in reports)
    command = (
        f"krepair verify {shlex.quote(sequence.log_dir)}"
        if done
        else _first_next(reports) or "krepair undo PLAN"
    )
    return _report("undo", sequence, reports, command)


def purge_sequence(
    sequence: PlanSequence, options: Options, progress: Progress | None = None
) -> SequenceReport:
    """Free what the steps keep; a step that cannot be purged keeps no other from it."""
    reports = [
        _carried_out(number, step, purge, options, progress) for number, step in enumerate(sequence.steps, 1)
    ]
    done = all(one.outcome == "done" for one in reports)
    command = (
        f"krepair verify {shlex.quote(sequence.log_dir)}"
        if done
        else _first_next(reports) or "krepair purge PLAN"
    )
    return _report("purge", sequence, reports, command)


def verify_sequence(
    sequence: PlanSequence, options: Options, progress: Progress | None = None
) -> SequenceVerifyReport:
    """Hold what the steps made against their plans.

    Raises:
        KrepairError: see ``krepair.ops.verify.verify_plan``.
    """
    reports: list[VerifyReport] = [verify_plan(step.plan, options, progress) for step in sequence.steps]
    wrong = any(report.problems for report in reports)
    own = [report.next_command for report in reports]
    right = next((command for command in own if command.startswith("krepair purge PLAN")), "")
    right = right or f"krepair check {shlex.quote(sequence.log_dir)}"
    first = next((report.next_command for report in reports if report.problems), "")
    return SequenceVerifyReport(
        target=sequence.log_dir,
        plan_id=sequence.plan_id,
        steps=tuple(reports),
        next_command=first if wrong else right,
    )


def _check_can_be_applied(sequence: PlanSequence) -> None:
    if sequence.is_preview:
        raise RefusedError(
            f"sequence {sequence.plan_id} is a preview, made while a broker may have been running: it is never applied",
            next_command="krepair plan --from PLAN --out PLAN",
        )
    if not sequence.steps and sequence.left_out:
        raise RefusedError(
            f"sequence {sequence.plan_id} has no step: nothing of it fits on the disk",
            next_command="krepair show PLAN",
        )


def _why_not_begun(number: int, step: Step, options: Options) -> str:
    """What a person has to type before a step may begin, or empty."""
    if not step.can_be_taken_back and not options.without_undo:
        return (
            f"step {number} frees originals as soon as what replaces them is verified: there is no undo of it. It "
            f"begins only with {FREE_CONSENT}"
        )
    if step.reserved_bytes and not options.use_reserved:
        return (
            f"step {number} needs {bytes_words(step.reserved_bytes)} of what only root has. It begins only with "
            "--use-reserved"
        )
    return ""


def _carried_out(
    number: int, step: Step, verb: Verb, options: Options, progress: Progress | None
) -> StepReport:
    try:
        report = verb(step.plan, options, progress)
    except KrepairError as error:
        why = f"{error.message}; next: {error.next_command}" if error.next_command else error.message
        return _step_report(number, step, "failed", error.exit_code, why)
    code = report.exit_code
    outcome = "done" if code is ExitCode.DONE else "interrupted" if code is ExitCode.INTERRUPTED else "failed"
    why = "" if outcome == "done" else next((one.why for one in report.results if one.why), "")
    return replace(_step_report(number, step, outcome, code, why), report=report)


def _step_report(number: int, step: Step, outcome: str, code: ExitCode, why: str) -> StepReport:
    return StepReport(
        number=number,
        plan_id=step.plan.plan_id,
        keep=step.plan.policy.keep,
        outcome=outcome,  # type: ignore[arg-type]
        exit_code=int(code),
        why=why,
    )


def _report(
    verb: str, sequence: PlanSequence, reports: Sequence[StepReport], next_command: str
) -> SequenceReport:
    begun = {one.number for one in reports}
    rest = [
        _step_report(number, step, "not begun", ExitCode.DONE, "")
        for number, step in enumerate(sequence.steps, 1)
        if number not in begun
    ]
    return SequenceReport(
        verb=verb,  # type: ignore[arg-type]
        plan_id=sequence.plan_id,
        log_dir=sequence.log_dir,
        steps=(*reports, *rest),
        digest=sequence.digest,
        next_command=next_command,
    )


def _next_of_apply(sequence: PlanSequence, reports: Sequence[StepReport], options: Options) -> str:
    last = reports[-1] if reports else None
    if last is None or last.outcome == "done":
        return "krepair verify PLAN"
    if last.outcome in ("stopped", "interrupted"):
        return apply_command(sequence, "PLAN", options)
    if last.exit_code in (ExitCode.UNWRITABLE, ExitCode.PARTLY, ExitCode.LOCKED):
        return apply_command(sequence, "PLAN", options)
    if last.number > 1 or last.exit_code in (ExitCode.REFUSED, ExitCode.STALE_PLAN):
        # What is free or what is there is not as it was: the rest is best asked for anew.
        return "krepair plan LOGDIR --free --out PLAN"
    return _first_next(reports)


def _first_next(reports: Sequence[StepReport]) -> str:
    failed = [one for one in reports if one.outcome != "done"]
    own = (one.report.next_command for one in failed if one.report is not None)
    return next((command for command in (*map(next_in, (one.why for one in failed)), *own) if command), "")
