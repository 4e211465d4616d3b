"""``krepair plan``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from krepair import options as parsing
from krepair.cli import options as shared
from krepair.cli.commands import exact_errors
from krepair.cli.metrics import MetricsOf
from krepair.cli.outcome import finish
from krepair.cli.progress import ProgressOf
from krepair.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from krepair.ops.preview import PlannedFrom
    from krepair.options import Options
    from krepair.pipeline.progress import Progress
    from krepair.plan.model import Plan
    from krepair.plan.sequence import PlanSequence
    from krepair.plan.view import View

_WITH_FROM: Final = frozenset(
    {"from_preview", "out", "broker_version", "engine", "master", "metrics", "json", "quiet"}
)


def plan(
    ctx: typer.Context,
    log_dirs: Annotated[
        list[str] | None,
        typer.Argument(metavar="LOGDIR", help="The log directory; a plan is of one. Not with --from."),
    ] = None,
    *,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", metavar="PLAN", help="Where to write the plan; never in LOGDIR. With --each a folder."
        ),
    ] = None,
    ask: Annotated[
        str,
        typer.Option(
            "--ask",
            metavar="FILE",
            help="Write a question and no plan: krepair facts --answer FILE answers it on the hosts of the other "
            "brokers, and then --replicas ID=ANSWER lets tombstones go.",
        ),
    ] = "",
    each: Annotated[
        bool,
        typer.Option(
            "--each",
            help="One plan for each of several log directories, of the brokers of a cluster; they are each other's "
            "--replicas. --out names the folder of the plans.",
        ),
    ] = False,
    preview: Annotated[
        bool,
        typer.Option(
            "--preview",
            help="Beside a running broker: a plan to read and to agree on, which apply refuses.",
        ),
    ] = False,
    from_preview: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="PREVIEW",
            help="After the stop: the real plan with the options and the clock of a preview, and what changed since.",
        ),
    ] = "",
    free: Annotated[
        bool,
        typer.Option(
            "--free",
            help="For a full disk: a sequence of plans, each of which makes the room that the next one needs.",
        ),
    ] = False,
    fix: shared.FixOption = None,
    include_active: Annotated[
        bool,
        typer.Option(
            "--include-active", help="With --fix index: also the active segments, where padding is normal."
        ),
    ] = False,
    no_roll: Annotated[
        bool,
        typer.Option(
            "--no-roll",
            help="With --fix recovery: no empty segment at the log ends; then active segments are still read.",
        ),
    ] = False,
    accept_data_loss: shared.AcceptOption = None,
    replicas: shared.ReplicasOption = None,
    cluster: shared.ClusterOption = "",
    cluster_as_of: shared.ClusterAsOfOption = None,
    cluster_config: shared.ClusterConfigOption = None,
    delete_horizon: shared.HorizonOption = "newest",
    keep: shared.KeepOption = "inplace",
    no_merge: shared.NoMergeOption = False,
    assume_high_watermark: shared.AssumeOption = "",
    only_replica: shared.OnlyReplicaOption = None,
    as_broker: shared.AsBrokerOption = False,
    alone: shared.AloneOption = None,
    config: shared.ConfigOption = None,
    topic_config: shared.TopicConfigOption = None,
    setting: shared.SetOption = None,
    now: shared.NowOption = None,
    broker_version: shared.BrokerVersionOption = "",
    topic: shared.TopicOption = None,
    partition: shared.PartitionOption = None,
    scratch: shared.ScratchOption = "",
    use_reserved: shared.UseReservedOption = False,
    engine: shared.EngineOption = "auto",
    master: shared.MasterOption = "",
    metrics: shared.MetricsOption = "",
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
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
    refetch      sets a wrong replica aside, so that its broker fetches it anew

    What lets markers and tombstones go, in the order in which to try them:

    \b
    --cluster FILE             the other brokers run: those past delete.retention.ms
    --replicas with --cluster  the logs of all others, or their facts: at any horizon
    --only-replica TOPIC       there is no other replica: at any horizon
    --as-broker                consent: those past delete.retention.ms, as Kafka does
    --alone TOPIC-PARTITION    consent: all others will be fetched anew from this one

    Example: krepair plan /var/lib/kafka --topic __consumer_offsets --out offsets.krplan
    """  # noqa: D301
    if from_preview:
        _refuse_other_options(ctx)
        _plan_from(
            from_preview,
            out,
            broker_version=broker_version,
            engine=engine,
            master=master,
            metrics=metrics,
            json=json,
            quiet=quiet,
        )
    if (log_dirs is None or len(log_dirs) != 1) and not each:
        raise UsageError(
            f"{len(log_dirs or ())} log directories: a plan is of one; for several brokers type --each",
            next_command="krepair plan --each LOGDIR LOGDIR --out FOLDER",
        )
    from krepair.fixes.table import parse_fixes

    options = shared.common_options(
        config=config,
        topic_config=topic_config,
        settings=setting,
        now=now,
        as_of=cluster_as_of,
        broker_version=broker_version,
        topics=topic,
        partitions=partition,
        engine=engine,
        master=master,
        scratch=scratch,
        fixes=parsing.DEFAULT_FIXES if fix is None else parse_fixes(fix),
        delete_horizon=parsing.parse_delete_horizon(delete_horizon),
        keep=parsing.parse_keep(keep),
        free=free,
        merge=not no_merge,
        use_reserved=use_reserved,
        replicas=tuple(replicas or ()),
        cluster=cluster,
        cluster_configs=tuple(cluster_config or ()),
        assume_high_watermark=parsing.parse_assume_high_watermark(assume_high_watermark),
        include_active=include_active,
        roll=not no_roll,
        accepted_losses=tuple(sorted({parsing.parse_accepted_loss(text) for text in accept_data_loss or ()})),
        as_broker=as_broker,
        alone=tuple(sorted({parsing.parse_partition(text, "--alone") for text in alone or ()})),
        **({} if only_replica is None else {"only_replica": tuple(sorted(set(only_replica)))}),
    )
    log_dirs = list(log_dirs or ())
    if ask:
        if out is not None or preview or metrics or each:
            raise UsageError(
                "--ask writes a question and no plan: without --out, --preview, --each and --metrics"
            )
        _ask(log_dirs[0], ask, options, as_json=json, quiet=quiet)
    if each:
        if preview:
            raise UsageError("--each with --preview: a preview is of one running broker")
        if free:
            raise UsageError("--each with --free: a sequence is of one full disk; make it there")
        _plan_each(log_dirs, out, options, metrics=metrics, json=json, quiet=quiet)
    with MetricsOf(metrics, "plan", log_dirs) as run:
        if out is not None:
            from krepair.ops import show

            with exact_errors(log_dir=log_dirs[0], typed=options):
                show.check_place(out, log_dirs[0])
        make = _maker(preview=preview, free=free)
        with ProgressOf(quiet=quiet) as progress, exact_errors(log_dir=log_dirs[0], typed=options):
            run.report = made = make(log_dirs[0], options, progress)
        if out is not None:
            with exact_errors(log_dir=log_dirs[0], typed=options):
                show.save(out, made)
        finish(
            "plan",
            made,
            _exit_code_of(made),
            lambda: _view_of(made, out or "PLAN", options),
            as_json=json,
            quiet=quiet,
        )


def _ask(log_dir: str, path: str, options: parsing.Options, *, as_json: bool, quiet: bool) -> NoReturn:
    """A question to the other brokers."""
    from krepair.cli.views.compare import ask_view
    from krepair.ops import ask as ops

    with ProgressOf(quiet=quiet) as progress, exact_errors(log_dir=log_dir, typed=options):
        report = ops.ask(log_dir, path, options, progress)
    finish("plan", report, report.exit_code, lambda: ask_view(report), as_json=as_json, quiet=quiet)


def _plan_each(
    log_dirs: list[str], out: str | None, options: Options, *, metrics: str, json: bool, quiet: bool
) -> NoReturn:
    """One plan per log directory, and a page over them."""
    if out is None:
        raise UsageError(
            "--each needs --out FOLDER: where the plans go",
            next_command="krepair plan --each LOGDIR LOGDIR --out FOLDER",
        )
    from krepair.cli.views.each import each_view
    from krepair.ops.plan_each import plan_each, save_all
    from krepair.plan.markdown import markdown

    with MetricsOf(metrics, "plan", log_dirs), exact_errors(typed=options):
        with ProgressOf(quiet=quiet) as progress:
            report, made = plan_each(log_dirs, out, options, progress)
        save_all(report, made, markdown(each_view(report)))
        finish("plan", report, report.exit_code, lambda: each_view(report), as_json=json, quiet=quiet)


def _maker(*, preview: bool, free: bool) -> Callable[[str, Options, Progress], Plan | PlanSequence]:
    """What makes the plan, or the sequence of plans, that was asked for."""
    if free:
        from krepair.ops import sequence

        return sequence.make_preview_sequence if preview else sequence.make_sequence
    if preview:
        from krepair.ops.preview import make_preview

        return make_preview
    from krepair.ops.plan import make_plan

    return make_plan


def _view_of(made: Plan | PlanSequence, path: str, options: Options) -> View:
    from krepair.ops import fit
    from krepair.plan.sequence import PlanSequence

    if isinstance(made, PlanSequence):
        return fit.planned_sequence_view(made, path, options)
    return fit.planned_view(made, path, options)


def _exit_code_of(made: Plan | PlanSequence) -> ExitCode:
    """FOUND where there is something to do, or something that cannot be cleaned."""
    from krepair.plan.sequence import PlanSequence

    if isinstance(made, PlanSequence):
        return ExitCode.FOUND if made.steps or made.left_out else ExitCode.DONE
    changes = made.root is not None or any(partition.changes for partition in made.partitions)
    return ExitCode.FOUND if made.uncleanable_partitions or changes else ExitCode.DONE


def _refuse_other_options(ctx: typer.Context) -> None:
    """What a preview was made with is in it; typed again, it might be something else."""
    typed = [
        parameter.opts[0] if parameter.param_type_name == "option" else (parameter.metavar or "LOGDIR")
        for parameter in ctx.command.params
        if parameter.name not in _WITH_FROM and _is_typed(ctx, parameter.name or "")
    ]
    if typed:
        raise UsageError(
            f"--from with {', '.join(typed)}: log directory, options and clock are those of the preview",
            next_command="krepair plan --from PREVIEW --out PLAN",
        )


def _is_typed(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _plan_from(
    preview_path: str,
    out: str | None,
    *,
    broker_version: str,
    engine: str,
    master: str,
    metrics: str,
    json: bool,
    quiet: bool,
) -> NoReturn:
    """The real plan of a preview."""
    from krepair.cli.views.diff import from_view
    from krepair.ops import show
    from krepair.ops.preview import options_from, plan_from
    from krepair.ops.sequence import SequenceFrom, sequence_from
    from krepair.plan.sequence import PlanSequence, merged

    typed = shared.common_options(broker_version=broker_version, engine=engine, master=master)
    with exact_errors(plan=preview_path):
        preview = show.load_any(preview_path)
        is_sequence = isinstance(preview, PlanSequence)
        options = options_from(merged(preview) if isinstance(preview, PlanSequence) else preview, typed)
        options = replace(options, free=is_sequence)
    log_dir = preview.log_dir
    with MetricsOf(metrics, "plan", [log_dir]) as run, exact_errors(log_dir=log_dir, typed=options):
        if out is not None:
            show.check_place(out, log_dir)
        with ProgressOf(quiet=quiet) as progress:
            planned: PlannedFrom | SequenceFrom
            if isinstance(preview, PlanSequence):
                planned = sequence_from(preview, options, progress)
            else:
                planned = plan_from(preview, options, progress)
        run.report = made = planned.plan
        if out is not None:
            show.save(out, made)

        def page() -> View:
            own = _view_of(made, out or "PLAN", options)
            return own if planned.diff is None else from_view(planned.diff, own, preview_path)

        finish("plan", planned, _exit_code_of(made), page, as_json=json, quiet=quiet)
