"""``krepair plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from krepair.cli.commands import Filling, exact_errors
from krepair.cli.metrics import MetricsOf
from krepair.cli.options import takes
from krepair.cli.outcome import finish
from krepair.cli.progress import ProgressOf
from krepair.errors import ExitCode
from krepair.options import Options

if TYPE_CHECKING:
    from krepair.pipeline.progress import Progress
    from krepair.plan.model import Plan
    from krepair.plan.view import View


@takes(
    "out preview fixes accepted_losses replicas "
    "cluster delete_horizon keep merge assume_high_watermark only_replica "
    "as_broker config topic_config settings now_ms broker_version topics partitions scratch "
    "engine master metrics json quiet"
)
def plan(
    log_dir: Annotated[
        str, typer.Argument(metavar="LOGDIR", help="The log directory of a stopped broker; a plan is of one.")
    ],
    *,
    options: Options,
) -> None:
    """Write down every change for review. Touches nothing; exits with 2 when there is something to do.

    Names for --fix:

    \b
    markers      removes transaction markers and emptied batches that nobody needs (the default)
    compact      keeps the last record of each key, where the cleaner stands still
    tail         cuts torn tails; other damage in logs only with --accept-data-loss
    index        mends .index, .timeindex and .txnindex files
    epochs       mends leader-epoch-checkpoint
    snapshots    removes wrong producer snapshots, and makes one at the log end
    leftovers    finishes swaps, and removes what a broker's start deletes
    checkpoints  mends the four offset checkpoints of the log directory
    recovery     does the work of the next start before it, after an unclean stop

    What lets markers and tombstones go, in the order in which to try them:

    \b
    --cluster FILE             the other brokers run: those past delete.retention.ms
    --replicas with --cluster  the logs of all others: at any horizon
    --only-replica TOPIC       there is no other replica: at any horizon
    --as-broker                consent: those past delete.retention.ms, as Kafka does

    Example: krepair plan /var/lib/kafka --topic __consumer_offsets --out offsets.krplan
    """  # noqa: D301
    fill = Filling(log_dir=log_dir, options=options)
    with MetricsOf(options.metrics, "plan", [log_dir]) as run:
        if options.out is not None:
            from krepair.ops import show

            with exact_errors(fill):
                show.check_place(options.out, log_dir)
        with ProgressOf(quiet=options.quiet) as progress, exact_errors(fill):
            run.report = made = _made(log_dir, options, progress, preview=options.preview)
        if options.out is not None:
            with exact_errors(fill):
                show.save(options.out, made)
        finish(
            "plan", made, _exit_code_of(made), lambda: _view_of(made, options.out or "PLAN", options), options
        )


def _made(log_dir: str, options: Options, progress: Progress, *, preview: bool) -> Plan:
    if preview:
        from krepair.ops.preview import make_preview

        return make_preview(log_dir, options, progress)
    from krepair.ops.plan import make_plan

    return make_plan(log_dir, options, progress)


def _view_of(made: Plan, path: str, options: Options) -> View:
    from krepair.ops.room import planned_view

    return planned_view(made, path, options).short


def _exit_code_of(made: Plan) -> ExitCode:
    """FOUND where there is something to do, or something that cannot be cleaned."""
    changes = made.root is not None or any(partition.changes for partition in made.partitions)
    return ExitCode.FOUND if made.uncleanable_partitions or changes else ExitCode.DONE
