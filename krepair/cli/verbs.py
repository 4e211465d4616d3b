"""The verbs: their arguments, help and implementation. A verb loads its modules only when it is typed."""

from __future__ import annotations

import os
import socket
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from krepair.cli.one_run import (
    CommandFiller,
    as_typed,
    carry_out,
    carry_out_by_id,
    is_log_dir,
    list_kept,
    run_and_finish,
    run_on_plan,
    without_plan_file,
)
from krepair.cli.options import LogDirArgument, PlanArgument, PlanOrLogDirArgument, takes
from krepair.cli.outcome import finish, say_of_warm
from krepair.errors import ExitCode, UsageError
from krepair.next_command import Next
from krepair.options import Options

if TYPE_CHECKING:
    from krepair.engine.progress import Progress
    from krepair.plan.model import Plan
    from krepair.plan.short import DiskObservation
    from krepair.plan.view import View

_IN_SECTIONS: Final = ("text", "md")


@takes(
    "config topic_config settings now_ms broker_version topics partitions deep every rule engine "
    "master metrics html json quiet verbose log"
)
def check(
    log_dirs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="LOGDIR", help="Log directories of one broker; by default all that --config names."
        ),
    ] = None,
    *,
    options: Options,
) -> None:
    """Find what is wrong. Writes nothing; exits with 2 when there are findings.

    The page counts findings by rule. --rule, --topic, --partition or --all shows each finding.

    Example: krepair check /var/lib/kafka --config /etc/kafka/server.properties
    """
    from krepair.cli.views.check import check_view
    from krepair.cli.views.writers import terminal_width
    from krepair.ops import check as ops
    from krepair.start.log_dirs_given import log_dirs_asked_for

    paths = log_dirs_asked_for(log_dirs or (), options.config)
    only = paths[0] if len(paths) == 1 else ""
    run_and_finish(
        "check",
        paths,
        lambda progress: as_typed(ops.check(paths, options, progress), options),
        lambda report: check_view(report, options, terminal_width()),
        options,
        browser=partial(check_view, options=Options(every=True), browser=True),
        fill=CommandFiller(log_dir=only, options=options),
        same=Next.of("check", *(log_dirs or ())).carrying(options),
    )


@takes(
    "out preview fixes accepted_losses replicas "
    "cluster delete_horizon keep merge assume_high_watermark only_replica "
    "as_broker config topic_config settings now_ms broker_version topics partitions scratch "
    "engine master metrics json quiet verbose log"
)
def plan(
    log_dir: Annotated[
        str,
        typer.Argument(
            metavar="LOGDIR", help="Log directory of a stopped broker; each plan covers one log directory."
        ),
    ],
    *,
    options: Options,
) -> None:
    """Write a plan of every proposed change, for review. Changes no log; exits with 2 when there is something to do.

    Names for --fix:

    \b
    markers      removes transaction markers and empty batches that nobody needs (the default)
    compact      keeps the last record of each key, if the cleaner makes no progress
    tail         cuts torn tails; other damage in logs only with --accept-data-loss
    index        repairs .index, .timeindex and .txnindex files
    epochs       repairs leader-epoch-checkpoint
    snapshots    removes wrong producer snapshots, and builds one at the log end
    leftovers    completes swaps, and removes files that a broker's start deletes
    checkpoints  repairs the four offset checkpoints of the log directory
    recovery     after an unclean stop, runs the broker's log recovery in advance

    By default all markers and tombstones stay. To remove old ones, try these options in this order:

    \b
    --cluster FILE             removes those older than delete.retention.ms if all other replicas are in sync
    --replicas with --cluster  reads the logs of all other replicas, and then allows any age
    --only-replica TOPIC       states that there is no other replica, and then allows any age
    --as-broker                consents to Kafka's rule: removes those older than delete.retention.ms

    Example: krepair plan /var/lib/kafka --topic __consumer_offsets --out offsets.krplan
    """  # noqa: D301
    run_and_finish(
        "plan",
        [log_dir],
        partial(_made_and_saved, log_dir, options),
        lambda made: _view_of(made, options.out or "PLAN", options),
        options,
        fill=CommandFiller(log_dir=log_dir, options=options),
    )


def _made_and_saved(log_dir: str, options: Options, progress: Progress) -> Plan:
    from krepair.plan import planfile

    if options.out is not None:
        planfile.check_place(options.out, log_dir)
    from krepair.ops import plan as ops

    made = (ops.make_preview if options.preview else ops.make_plan)(log_dir, options, progress)
    if options.out is not None:
        from krepair.durable.real_disk import RealDisk

        planfile.write_plan(options.out, made, RealDisk())
    return made


def _view_of(made: Plan, path: str, options: Options) -> View:
    from krepair.cli.views.planned import planned_view

    return planned_view(made, path, options).short


@takes("output_format section json")
def show(plan: PlanArgument, *, options: Options) -> None:
    """Show a plan again: its short page, and its details in sections.

    Example: krepair show offsets.krplan --section risks
    """
    from krepair.plan.planfile import read_plan

    if options.output_format != "text" and options.json:
        raise UsageError(
            "--json and --format do not go together; --format json gives the plan file's own text"
        )
    if options.section and options.output_format not in _IN_SECTIONS:
        raise UsageError(f"--section goes with --format {' and '.join(_IN_SECTIONS)}")
    read = read_plan(plan)
    observed = "" if options.json or options.output_format == "json" else _observed(read)
    if options.output_format == "text":
        page = partial(_view, read, plan, observed, options.section)
        finish("show", read, page, options, ExitCode.DONE)
    sys.stdout.buffer.write(_text(read, plan, options.output_format, observed, options.section).encode())


def _observed(read: Plan) -> DiskObservation | str:
    """Observe the disk again for a plan; a plan of another host is shown without that."""
    if read.host != socket.gethostname():
        return f"not checked: this host is not {read.host}"
    from krepair.start.room import observe_again

    return observe_again(read)


def _view(read: Plan, path: str, observed: DiskObservation | str, part: str = "") -> View:
    from krepair.ops.show import show_view

    page = show_view(read, path, observed=observed)
    return page.only(part) if part else page


def _text(read: Plan, path: str, output_format: str, observed: DiskObservation | str, part: str) -> str:
    if output_format == "html":
        from krepair.cli.views.page import plan_page

        return plan_page(read, _view(read, path, observed))
    if output_format == "md":
        from krepair.cli.views.writers import markdown

        return markdown(_view(read, path, observed, part))
    from krepair.plan.planfile import dumps

    return dumps(read).decode()


@takes("expect broker_version scratch engine master metrics json quiet verbose log")
def apply(plan: PlanArgument, *, options: Options) -> None:
    """Carry out a plan: stage, verify, swap. After an interruption the same command resumes.

    Example: krepair apply offsets.krplan --expect 5c2e8d0a41f7b96380de12c4a97b3f65
    """
    from krepair.ops import apply as ops

    carry_out("apply", plan, ops.apply, options)


@takes(
    "config topic_config settings topics partitions originals scratch engine master metrics json quiet verbose log"
)
def verify(
    targets: Annotated[
        list[str],
        typer.Argument(metavar="LOGDIR|PLAN", help="Log directories of one broker, or one plan file."),
    ],
    *,
    options: Options,
) -> None:
    """Check that logs and indexes are valid, and that a plan's result is as planned. Writes nothing.

    Gaps between offsets are no problem here, because compaction makes them. krepair check names them.

    Example: krepair verify offsets.krplan --originals
    """
    plan = next((path for path in targets if not os.path.isdir(path)), "")
    if plan and len(targets) > 1:
        raise UsageError(f"{plan}: is not a folder; give log directories, or one plan file alone")
    from krepair.cli.views.reports import verify_each_view, verify_view
    from krepair.plan.planfile import read_plan

    if plan:
        with without_plan_file("verify", plan):
            read = read_plan(plan)
    from krepair.ops import verify as ops

    if plan:
        run_on_plan("verify", read, plan, partial(ops.verify_plan, read, options), verify_view, options)
    if len(targets) > 1:
        run = partial(ops.verify_log_dirs, targets, options)
        run_and_finish("verify", targets, run, verify_each_view, options, fill=CommandFiller(options=options))
    fill = CommandFiller(log_dir=targets[0], options=options)
    run_and_finish(
        "verify", targets, partial(ops.verify_log_dir, targets[0], options), verify_view, options, fill=fill
    )


@takes("plan_id broker_version scratch engine master json quiet verbose log")
def undo(plan: PlanOrLogDirArgument, *, options: Options) -> None:
    """Restore the kept originals, byte for byte, with their modification times.

    If the plan file is lost: krepair undo LOGDIR lists the plans that keep originals and changes nothing;
    krepair undo LOGDIR --plan-id ID undoes one. If a journal is damaged, undo prints the commands to type.

    Example: krepair undo offsets.krplan
    """
    if is_log_dir(plan, options.plan_id) and not options.plan_id:
        list_kept("undo", plan, options)
    from krepair.ops import undo as ops

    if options.plan_id:
        carry_out_by_id("undo", plan, ops.undo_by_id, options)
    carry_out("undo", plan, ops.undo, options)


@takes("plan_id json quiet verbose log")
def purge(plan: PlanOrLogDirArgument, *, options: Options) -> None:
    """Delete the kept originals of an applied plan, which frees their space. It cannot be undone.

    If the plan file is lost: krepair purge LOGDIR lists the plans that keep originals and changes nothing;
    krepair purge LOGDIR --plan-id ID purges one.

    Example: krepair purge offsets.krplan
    """
    if is_log_dir(plan, options.plan_id) and not options.plan_id:
        list_kept("purge", plan, options)
    from krepair.ops import purge as ops

    if options.plan_id:
        carry_out_by_id("purge", plan, ops.purge_by_id, options)
    carry_out("purge", plan, ops.purge, options)


@takes("json quiet")
def diff(
    first: Annotated[str, typer.Argument(metavar="PLAN", help="The earlier plan.")],
    second: Annotated[str, typer.Argument(metavar="PLAN", help="The plan to compare it with.")],
    *,
    options: Options,
) -> None:
    """Show what changed between two plans of one directory. Exits with 0 if nothing changed, else with 2.

    Example: krepair diff approved.krplan new.krplan
    """
    from krepair.cli.views.comparisons import diff_view
    from krepair.ops.diff import diff_plans
    from krepair.plan.planfile import read_plan

    differences = diff_plans(read_plan(first), read_plan(second))
    finish("diff", differences, lambda: diff_view(differences, first, second), options)


@takes("batches records offsets grep limit keys values cut decode json_lines")
def dump(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="Files of a log directory; for a folder, its files in order."),
    ],
    *,
    options: Options,
) -> None:
    """Show the content of files of a log directory. Writes nothing; exits with 2 if something is damaged.

    Example: krepair dump /var/lib/kafka/__consumer_offsets-7 --records --grep my-group --json
    """
    from krepair.ops import dump as ops

    run = ops.Dump(files, options)
    out = sys.stdout.buffer
    sys.stdout.flush()
    for piece in run.lines():
        out.write(piece)
    out.flush()
    raise typer.Exit(int(run.exit_code))


@takes("group now_ms partitions engine master json quiet verbose log")
def groups(log_dir: LogDirArgument, *, options: Options) -> None:
    """Show the content of __consumer_offsets: groups, members, subscriptions, commits.

    Writes nothing; exits with 2 if members of a group subscribe to different topics (KR609), if a commit is unseen or
    out of range, or if something is damaged.

    Example: krepair groups /var/lib/kafka --group orders-app
    """
    from krepair.cli.views.coordinators import groups_view
    from krepair.ops import groups as ops

    run_and_finish(
        "groups",
        (log_dir,),
        partial(ops.groups, log_dir, options),
        partial(groups_view, wanted=options.group),
        options,
    )


@takes(
    "transactional_id config topic_config settings now_ms broker_version topics partitions engine master json quiet "
    "verbose log"
)
def transactions(log_dir: LogDirArgument, *, options: Options) -> None:
    """Show the transactions in __transaction_state and in the logs.

    Writes nothing; exits with 2 if a transaction never ends (KR103), or if something could not be read or judged.

    Example: krepair transactions /var/lib/kafka --broker-version 3.9.2
    """
    from krepair.cli.views.coordinators import transactions_view
    from krepair.ops import transactions as ops

    run_and_finish(
        "transactions",
        (log_dir,),
        partial(ops.transactions, log_dir, options),
        partial(transactions_view, wanted=options.transactional_id),
        options,
        fill=CommandFiller(log_dir=log_dir, options=options),
    )


@takes(
    "config topic_config settings topics partitions every_partition engine master scratch metrics html "
    "ticket_format json quiet verbose log"
)
def compare(
    sides: Annotated[
        list[str],
        typer.Argument(
            metavar="ID=LOGDIR[,LOGDIR]|ID=FACTS",
            help="Each argument is one broker: its id, and its log directories or a file of krepair facts.",
        ),
    ],
    *,
    options: Options,
) -> None:
    """Find where the replicas of partitions disagree, and which one is right. Writes nothing.

    Exits with 2 when replicas have diverged or are damaged, with 4 when krepair cannot tell.

    Example: krepair compare 1=/mnt/b1/kafka 2=/mnt/b2/kafka,/mnt/b2/kafka2 3=b3.facts
    """
    from krepair.cli.views.comparisons import compare_view
    from krepair.fixes.replicas import parse_brokers
    from krepair.ops import compare as ops

    if options.json and options.ticket_format != "text":
        raise UsageError(f"--format {options.ticket_format} and --json do not go together")
    read = parse_brokers(sides, at_least=2)
    paths = [path for broker in read for path in broker.log_dirs]
    run_and_finish(
        "compare",
        paths,
        lambda progress: ops.compare(read, options, progress),
        partial(compare_view, every=options.every_partition),
        options,
    )


@takes("facts_file config topics partitions engine master scratch json quiet verbose log")
def facts(
    log_dirs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="LOGDIR",
            help="All log directories of one broker; by default all that --config names.",
        ),
    ] = None,
    *,
    options: Options,
) -> None:
    """Write offsets and hashes of these replicas to a file, for krepair compare on another host.

    The file holds hashes, offsets and numbers, but no key and no value of a record.

    Example: krepair facts /var/lib/kafka --out b3.facts
    """
    from krepair.cli.views.comparisons import facts_view
    from krepair.ops import facts as ops
    from krepair.start.log_dirs_given import log_dirs_asked_for

    if not options.facts_file:
        raise UsageError("--out FILE is required: the facts are written to it")
    paths = log_dirs_asked_for(log_dirs or (), options.config)
    run_and_finish(
        "facts",
        paths,
        lambda progress: ops.facts(paths, options.facts_file, options, progress),
        facts_view,
        options,
        fill=CommandFiller(options=options),
    )


@takes("json")
def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE",
            help="Any code that is printed: a rule (KR101), a reason (D03, leftovers), a risk "
            "(late-readers), an objection (RV25), an exit code (13); or the word evidence. "
            "Without it, all codes are listed.",
        ),
    ] = None,
    *,
    options: Options,
) -> None:
    """Explain a code: its danger, its fix, and its source.

    Example: krepair explain KR101
    """
    from krepair.ops import explain as ops

    if code is None:
        finish("explain", ops.rows(), ops.explain_all, options)
    explained = ops.row(code)
    finish("explain", explained, partial(ops.explained, explained), options)


@takes("into json quiet")
def warm(*, options: Options) -> None:
    """Compile in advance what the other verbs would compile on their first run. Part of an installation.

    Example: krepair warm
    """
    from krepair.ops import warm as ops

    report = ops.warm(options.into, None if options.quiet or options.json else say_of_warm)
    finish("warm", report, lambda: ops.warm_view(report), options)
