"""``krepair plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from krepair.cli.commands import Filling, exact_errors
from krepair.cli.metrics import MetricsOf
from krepair.cli.options import Typed, takes
from krepair.cli.outcome import finish
from krepair.cli.progress import ProgressOf
from krepair.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from krepair.options import Options
    from krepair.pipeline.progress import Progress
    from krepair.plan.model import Plan
    from krepair.plan.view import View

_WITH_FROM: Final = frozenset(
    {"from_preview", "out", "broker_version", "engine", "master", "metrics", "json", "quiet"}
)


@takes(
    "out ask preview from_preview fix include_active no_roll accept_data_loss replicas "
    "cluster delete_horizon keep no_merge assume_high_watermark only_replica "
    "as_broker alone config topic_config setting now broker_version topic partition scratch use_reserved "
    "engine master metrics json quiet"
)
def plan(
    ctx: typer.Context,
    log_dirs: Annotated[
        list[str] | None,
        typer.Argument(metavar="LOGDIR", help="The log directory; a plan is of one. Not with --from."),
    ] = None,
    *,
    typed: Typed,
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
    --replicas with --cluster  the logs of all others, or their facts: at any horizon
    --only-replica TOPIC       there is no other replica: at any horizon
    --as-broker                consent: those past delete.retention.ms, as Kafka does
    --alone TOPIC-PARTITION    consent: all others will be fetched anew from this one

    Example: krepair plan /var/lib/kafka --topic __consumer_offsets --out offsets.krplan
    """  # noqa: D301
    if typed.from_preview:
        _refuse_other_options(ctx)
        _plan_from(typed)
    options = typed.options()
    log_dirs = list(log_dirs or ())
    _check_one(log_dirs, options)
    if typed.ask:
        if typed.out is not None or typed.preview or typed.metrics:
            raise UsageError("--ask writes a question and no plan: without --out, --preview and --metrics")
        _ask(log_dirs[0], options, typed)
    fill = Filling(log_dir=log_dirs[0], options=options)
    with MetricsOf(typed.metrics, "plan", log_dirs) as run:
        if typed.out is not None:
            from krepair.ops import show

            with exact_errors(fill):
                show.check_place(typed.out, log_dirs[0])
        make = _maker(preview=typed.preview)
        with ProgressOf(quiet=typed.quiet) as progress, exact_errors(fill):
            run.report = made = make(log_dirs[0], options, progress)
        if typed.out is not None:
            with exact_errors(fill):
                show.save(typed.out, made)
        finish("plan", made, _exit_code_of(made), lambda: _view_of(made, typed.out or "PLAN", options), typed)


def _check_one(log_dirs: list[str], options: Options) -> None:
    """One LOGDIR was typed. A person chooses it, also where the configuration names it."""
    if len(log_dirs) == 1:
        return
    if log_dirs:
        raise UsageError(
            f"{len(log_dirs)} log directories: a plan is of one; make a plan for each",
            next_command="krepair plan LOGDIR --out PLAN",
        )
    from krepair.logdir.log_dirs import configured_log_dirs

    named = configured_log_dirs(options.config)
    says = f"; {options.config} names {', '.join(named)}" if named else ""
    with exact_errors(Filling(log_dir=named[0] if named else "", options=options)):
        raise UsageError(
            f"no log directory is named: a plan is of one{says}",
            next_command="krepair plan LOGDIR --out PLAN",
        )


def _ask(log_dir: str, options: Options, typed: Typed) -> NoReturn:
    """A question to the other brokers."""
    from krepair.cli.views.compare import ask_view
    from krepair.ops import ask as ops

    with (
        ProgressOf(quiet=typed.quiet) as progress,
        exact_errors(Filling(log_dir=log_dir, options=options)),
    ):
        report = ops.ask(log_dir, typed.ask, options, progress)
    finish("plan", report, report.exit_code, lambda: ask_view(report), typed)


def _maker(*, preview: bool) -> Callable[[str, Options, Progress], Plan]:
    """What makes the plan that was asked for."""
    if preview:
        from krepair.ops.preview import make_preview

        return make_preview
    from krepair.ops.plan import make_plan

    return make_plan


def _view_of(made: Plan, path: str, options: Options) -> View:
    from krepair.ops import fits_on_disk

    return fits_on_disk.planned_view(made, path, options)


def _exit_code_of(made: Plan) -> ExitCode:
    """FOUND where there is something to do, or something that cannot be cleaned."""
    changes = made.root is not None or any(partition.changes for partition in made.partitions)
    return ExitCode.FOUND if made.uncleanable_partitions or changes else ExitCode.DONE


def _refuse_other_options(ctx: typer.Context) -> None:
    """What a preview was made with is in it; typed again, it might be something else."""
    others = [
        parameter.opts[0] if parameter.param_type_name == "option" else (parameter.metavar or "LOGDIR")
        for parameter in ctx.command.params
        if parameter.name not in _WITH_FROM and _is_typed(ctx, parameter.name or "")
    ]
    if others:
        raise UsageError(
            f"--from with {', '.join(others)}: log directory, options and clock are those of the preview",
            next_command="krepair plan --from PREVIEW --out PLAN",
        )


def _is_typed(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _plan_from(typed: Typed) -> NoReturn:
    """The real plan of a preview."""
    from krepair.cli.views.diff import from_view
    from krepair.ops import show
    from krepair.ops.preview import options_from, plan_from

    said, preview_path, out = typed.options(), typed.from_preview, typed.out
    with exact_errors(Filling(plan=preview_path)):
        preview = show.load(preview_path)
        options = options_from(preview, said)
    log_dir = preview.log_dir
    fill = Filling(log_dir=log_dir, options=options)
    with MetricsOf(typed.metrics, "plan", [log_dir]) as run, exact_errors(fill):
        if out is not None:
            show.check_place(out, log_dir)
        with ProgressOf(quiet=typed.quiet) as progress:
            planned = plan_from(preview, options, progress)
        run.report = made = planned.plan
        if out is not None:
            show.save(out, made)

        def page() -> View:
            own = _view_of(made, out or "PLAN", options)
            return from_view(planned.diff, own, preview_path)

        finish("plan", planned, _exit_code_of(made), page, typed)
