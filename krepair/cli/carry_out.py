"""What ``apply``, ``undo`` and ``purge`` do alike: read the plan, carry it out under a progress bar, report."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import NoReturn

from msgspec.structs import replace

from krepair.cli.commands import exact, exact_errors
from krepair.cli.metrics import MetricsOf
from krepair.cli.options import Typed
from krepair.cli.outcome import finish
from krepair.cli.progress import ProgressOf
from krepair.errors import ExitCode, UsageError
from krepair.ops.reports import ApplyReport, SequenceReport
from krepair.options import Options
from krepair.pipeline.progress import Progress
from krepair.plan.model import Plan
from krepair.plan.sequence import PlanSequence


def carry_out(
    path: str,
    run: Callable[[Plan, Options, Progress], ApplyReport],
    typed: Typed,
    *,
    through: Callable[[PlanSequence, Options, Progress], SequenceReport] | None = None,
) -> NoReturn:
    """Do to the log directory of a plan what a verb does.

    Args:
        path: of the plan file.
        run: the verb.
        typed: what was typed.
        through: the verb for a sequence of plans; None where a sequence will not do.

    Raises:
        typer.Exit: always, with the report's exit code, unless there is an error.
    """
    from krepair.cli.views.reports import apply_view
    from krepair.ops import show
    from krepair.ops.expected_digest import check_digest
    from krepair.ops.plan_command import options_of

    options = typed.options()
    plan = show.load_any(path) if through is not None else show.load(path)
    if typed.expect:
        check_digest(plan, typed.expect, path)
    if isinstance(plan, PlanSequence):
        assert through is not None
        _carry_out_sequence(path, plan, through, options, typed)
    if options.without_undo:
        raise UsageError(
            f"--free goes with a sequence of plans, made with krepair plan --free; {path} is one plan"
        )
    made_with, log_dir, at = options_of(plan), options.at or plan.log_dir, options.at
    with MetricsOf(typed.metrics, "apply", (log_dir,)) as measured:
        with (
            ProgressOf(quiet=typed.quiet) as progress,
            exact_errors(plan=path, log_dir=log_dir, options=made_with, at=at),
        ):
            report = _with_others(run(plan, options, progress))
        report = replace(
            exact(report, plan=path, log_dir=log_dir, options=made_with, at=at), digest=plan.digest
        )
        measured.report = report
        finish(report.verb, report, report.exit_code, lambda: apply_view(report), typed)


def _carry_out_sequence(
    path: str,
    sequence: PlanSequence,
    run: Callable[[PlanSequence, Options, Progress], SequenceReport],
    options: Options,
    typed: Typed,
) -> NoReturn:
    from krepair.cli.views.sequence import sequence_report_view
    from krepair.ops.sequence import options_of_sequence

    made_with, log_dir, at = options_of_sequence(sequence), options.at or sequence.log_dir, options.at
    with MetricsOf(typed.metrics, "apply", (log_dir,)) as measured:
        with (
            ProgressOf(quiet=typed.quiet) as progress,
            exact_errors(plan=path, log_dir=log_dir, options=made_with, at=at),
        ):
            report = run(sequence, options, progress)
        report = exact(report, plan=path, log_dir=log_dir, options=made_with, at=at)
        measured.report = report
        finish(report.verb, report, report.exit_code, lambda: sequence_report_view(report), typed)


def _with_others(report: ApplyReport) -> ApplyReport:
    """Where undo or purge found nothing, but other plans keep something, the next command lists that."""
    from krepair.ops import kept

    idle = all(
        result.outcome in {"already", "purged"} and not result.bytes_freed for result in report.results
    )
    if report.verb == "apply" or report.exit_code is not ExitCode.DONE or not idle:
        return report
    if not kept.others_keep(report.log_dir, report.plan_id):
        return report
    return replace(report, next_command=f"krepair {report.verb} {shlex.quote(report.log_dir)}")
