"""``krepair plan``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from krepair.cli.commands import Filling
from krepair.cli.one_run import run_and_finish
from krepair.cli.options import takes
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
    run_and_finish(
        "plan",
        [log_dir],
        partial(_made_and_saved, log_dir, options),
        lambda made: _view_of(made, options.out or "PLAN", options),
        options,
        fill=Filling(log_dir=log_dir, options=options),
    )


def _made_and_saved(log_dir: str, options: Options, progress: Progress) -> Plan:
    if options.out is not None:
        from krepair.ops import show

        show.check_place(options.out, log_dir)
    if options.preview:
        from krepair.ops.preview import make_preview as make_plan
    else:
        from krepair.ops.plan import make_plan
    made = make_plan(log_dir, options, progress)
    if options.out is not None:
        show.save(options.out, made)
    return made


def _view_of(made: Plan, path: str, options: Options) -> View:
    from krepair.ops.room import planned_view

    return planned_view(made, path, options).short
