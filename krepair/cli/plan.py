"""``krepair plan``."""

from __future__ import annotations

from typing import Annotated

import typer

from krepair import options as parsing
from krepair.cli import options as shared
from krepair.cli.commands import exact_errors
from krepair.cli.metrics import MetricsOf
from krepair.cli.outcome import finish
from krepair.cli.progress import ProgressOf
from krepair.errors import ExitCode, UsageError


def plan(
    log_dirs: Annotated[
        list[str], typer.Argument(metavar="LOGDIR", help="The log directory; a plan is of one.")
    ],
    *,
    out: Annotated[
        str | None, typer.Option("--out", metavar="PLAN", help="Where to write the plan; never in LOGDIR.")
    ] = None,
    fix: shared.FixOption = None,
    include_active: Annotated[
        bool,
        typer.Option(
            "--include-active", help="With --fix index: also the active segments, where padding is normal."
        ),
    ] = False,
    accept_data_loss: shared.AcceptOption = None,
    delete_horizon: shared.HorizonOption = "newest",
    keep: shared.KeepOption = "inplace",
    no_merge: shared.NoMergeOption = False,
    assume_high_watermark: shared.AssumeOption = "",
    config: shared.ConfigOption = None,
    topic_config: shared.TopicConfigOption = None,
    setting: shared.SetOption = None,
    now: shared.NowOption = None,
    broker_version: shared.BrokerVersionOption = "",
    topic: shared.TopicOption = None,
    partition: shared.PartitionOption = None,
    use_reserved: shared.UseReservedOption = False,
    engine: shared.EngineOption = "auto",
    master: shared.MasterOption = "",
    metrics: shared.MetricsOption = "",
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Write down every change for review. Touches nothing; exits with 2 when there is something to do.

    Example: krepair plan /var/lib/kafka --topic __consumer_offsets --out offsets.krplan
    """
    if len(log_dirs) != 1:
        raise UsageError(f"{len(log_dirs)} log directories: a plan is of one; run krepair plan once for each")
    from krepair.fixes.table import parse_fixes

    options = shared.common_options(
        config=config,
        topic_config=topic_config,
        settings=setting,
        now=now,
        broker_version=broker_version,
        topics=topic,
        partitions=partition,
        engine=engine,
        master=master,
        fixes=parsing.DEFAULT_FIXES if fix is None else parse_fixes(fix),
        delete_horizon=parsing.parse_delete_horizon(delete_horizon),
        keep=parsing.parse_keep(keep),
        merge=not no_merge,
        use_reserved=use_reserved,
        assume_high_watermark=parsing.parse_assume_high_watermark(assume_high_watermark),
        include_active=include_active,
        accepted_losses=tuple(sorted({parsing.parse_accepted_loss(text) for text in accept_data_loss or ()})),
    )
    with MetricsOf(metrics, "plan", log_dirs) as run:
        from krepair.ops import show

        if out is not None:
            with exact_errors(log_dir=log_dirs[0], typed=options):
                show.check_place(out, log_dirs[0])
        from krepair.ops import fit
        from krepair.ops import plan as ops

        with ProgressOf(quiet=quiet) as progress, exact_errors(log_dir=log_dirs[0], typed=options):
            run.report = made = ops.make_plan(log_dirs[0], options, progress)
        if out is not None:
            with exact_errors(log_dir=log_dirs[0], typed=options):
                show.save(out, made)
        changes = made.root is not None or any(partition.changes for partition in made.partitions)
        found = made.uncleanable_partitions or changes
        finish(
            "plan",
            made,
            ExitCode.FOUND if found else ExitCode.DONE,
            lambda: fit.planned_view(made, out or "PLAN", use_reserved=use_reserved),
            as_json=json,
            quiet=quiet,
        )
