"""``krepair verify``."""

from __future__ import annotations

import os
from typing import Annotated, NoReturn

import typer

from krepair.cli import options as shared
from krepair.cli.commands import exact, exact_errors
from krepair.cli.metrics import MetricsOf
from krepair.cli.outcome import finish
from krepair.cli.progress import ProgressOf
from krepair.errors import UsageError
from krepair.options import Options, parse_at
from krepair.plan.sequence import PlanSequence


def verify(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="LOGDIR...|PLAN", help="Log directories, also of several brokers; or one plan file."
        ),
    ],
    *,
    config: shared.ConfigOption = None,
    topic_config: shared.TopicConfigOption = None,
    setting: shared.SetOption = None,
    topic: shared.TopicOption = None,
    partition: shared.PartitionOption = None,
    originals: Annotated[
        bool,
        typer.Option(
            "--originals",
            help="Of a plan: also hold what apply made against the kept originals, byte for byte.",
        ),
    ] = False,
    at: shared.AtOption = "",
    scratch: shared.ScratchOption = "",
    engine: shared.EngineOption = "auto",
    master: shared.MasterOption = "",
    metrics: shared.MetricsOption = "",
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Prove that every file reads as it should, and that a plan's result is what was planned. Writes nothing.

    Offsets that no record has are no problem here, because compaction makes such gaps. krepair check tells of them.

    Example: krepair verify offsets.krplan --originals
    """
    options = shared.common_options(
        config=config,
        topic_config=topic_config,
        settings=setting,
        topics=topic,
        partitions=partition,
        engine=engine,
        master=master,
        scratch=scratch,
        originals=originals,
        at=parse_at(at),
    )
    if len(targets) > 1:
        if at:
            raise UsageError("--at goes with one plan file, not with log directories")
        _verify_each(targets, options, metrics=metrics, json=json, quiet=quiet)
    from krepair.cli.views.reports import verify_view
    from krepair.ops import show

    target = targets[0]
    plan = None if os.path.isdir(target) else show.load_any(target)
    if plan is None and at:
        raise UsageError(f"--at goes with a plan file, and {target} is a log directory")
    if isinstance(plan, PlanSequence):
        _verify_sequence(plan, target, options, metrics=metrics, json=json, quiet=quiet)
    from krepair.ops import verify as ops
    from krepair.ops.plan_command import options_of

    typed = options if plan is None else options_of(plan)
    log_dir = target if plan is None else options.at or plan.log_dir
    plan_path = "" if plan is None else target
    with MetricsOf(metrics, "verify", (log_dir,)) as run:
        with (
            ProgressOf(quiet=quiet) as progress,
            exact_errors(plan=plan_path, log_dir=log_dir, typed=typed, at=options.at),
        ):
            if plan is None:
                report = ops.verify_log_dir(target, options, progress)
            else:
                report = ops.verify_plan(plan, options, progress)
        run.report = report = exact(report, plan=plan_path, log_dir=log_dir, typed=typed, at=options.at)
        finish("verify", report, report.exit_code, lambda: verify_view(report), as_json=json, quiet=quiet)


def _verify_each(targets: list[str], options: Options, *, metrics: str, json: bool, quiet: bool) -> NoReturn:
    """Several log directories in one job."""
    plan = next((path for path in targets if not os.path.isdir(path)), "")
    if plan:
        raise UsageError(f"{plan}: is no folder; of several targets each has to be a log directory")
    from krepair.cli.views.reports import verify_each_view
    from krepair.ops import verify as ops

    with MetricsOf(metrics, "verify", targets):
        with ProgressOf(quiet=quiet) as progress, exact_errors(typed=options):
            report = ops.verify_log_dirs(targets, options, progress)
        finish(
            "verify", report, report.exit_code, lambda: verify_each_view(report), as_json=json, quiet=quiet
        )


def _verify_sequence(
    sequence: PlanSequence, path: str, options: Options, *, metrics: str, json: bool, quiet: bool
) -> NoReturn:
    from krepair.cli.views.sequence import sequence_verify_view
    from krepair.ops.sequence import options_of_sequence, verify_sequence

    typed, log_dir = options_of_sequence(sequence), options.at or sequence.log_dir
    with MetricsOf(metrics, "verify", (log_dir,)) as run:
        with (
            ProgressOf(quiet=quiet) as progress,
            exact_errors(plan=path, log_dir=log_dir, typed=typed, at=options.at),
        ):
            report = verify_sequence(sequence, options, progress)
        run.report = report = exact(report, plan=path, log_dir=log_dir, typed=typed, at=options.at)
        finish(
            "verify",
            report,
            report.exit_code,
            lambda: sequence_verify_view(report),
            as_json=json,
            quiet=quiet,
        )
