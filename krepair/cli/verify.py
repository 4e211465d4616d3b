"""``krepair verify``."""

from __future__ import annotations

import os
from functools import partial
from typing import Annotated, NoReturn

import typer

from krepair.cli.carry_out import run_on_plan, without_plan_file
from krepair.cli.commands import Filling
from krepair.cli.one_run import run_and_finish
from krepair.cli.options import takes
from krepair.errors import UsageError
from krepair.options import Options


@takes("config topic_config settings topics partitions originals scratch engine master metrics json quiet")
def verify(
    targets: Annotated[
        list[str],
        typer.Argument(metavar="LOGDIR...|PLAN", help="Log directories of one broker, or one plan file."),
    ],
    *,
    options: Options,
) -> None:
    """Prove that every file reads as it should, and that a plan's result is what was planned. Writes nothing.

    Offsets that no record has are no problem here, because compaction makes such gaps. krepair check tells of them.

    Example: krepair verify offsets.krplan --originals
    """
    if len(targets) > 1:
        _verify_each(targets, options)
    from krepair.cli.views.reports import verify_view
    from krepair.ops import show

    target = targets[0]
    plan = None
    if not os.path.isdir(target):
        with without_plan_file("verify"):
            plan = show.load(target)
    from krepair.ops import verify as ops

    if plan is not None:
        run_on_plan("verify", plan, target, partial(ops.verify_plan, plan, options), verify_view, options)
    fill = Filling(log_dir=target, options=options)
    run_and_finish(
        "verify", (target,), partial(ops.verify_log_dir, target, options), verify_view, options, fill=fill
    )


def _verify_each(targets: list[str], options: Options) -> NoReturn:
    """Several log directories in one job."""
    plan = next((path for path in targets if not os.path.isdir(path)), "")
    if plan:
        raise UsageError(f"{plan}: is no folder; of several targets each has to be a log directory")
    from krepair.cli.views.reports import verify_each_view
    from krepair.ops import verify as ops

    run_and_finish(
        "verify",
        targets,
        partial(ops.verify_log_dirs, targets, options),
        verify_each_view,
        options,
        fill=Filling(options=options),
    )
