"""``krepair check``."""

from __future__ import annotations

from typing import Annotated

import typer

from krepair.cli import options as shared
from krepair.cli.commands import exact, exact_errors
from krepair.cli.metrics import MetricsOf
from krepair.cli.outcome import finish
from krepair.cli.page_file import PageFile
from krepair.cli.progress import ProgressOf


def check(
    log_dirs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="LOGDIR...", help="Log directories of one broker; left out, all that --config names."
        ),
    ] = None,
    *,
    each: Annotated[
        bool,
        typer.Option(
            "--each", help="The log directories are of several brokers; each broker is judged by itself."
        ),
    ] = False,
    config: shared.ConfigOption = None,
    topic_config: shared.TopicConfigOption = None,
    setting: shared.SetOption = None,
    now: shared.NowOption = None,
    broker_version: shared.BrokerVersionOption = "",
    topic: shared.TopicOption = None,
    partition: shared.PartitionOption = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also decompress all compressed content (KR307); costs CPU time.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Each finding, each partition and each line of the forecast.")
    ] = False,
    more: Annotated[
        bool, typer.Option("--more", help="On a terminal: a page of at most 60 lines, as in a file.")
    ] = False,
    rule: Annotated[
        str,
        typer.Option("--rule", metavar="KRnnn", help="Each finding of this rule, and what to type for it."),
    ] = "",
    engine: shared.EngineOption = "auto",
    master: shared.MasterOption = "",
    metrics: shared.MetricsOption = "",
    html: Annotated[
        str, typer.Option("--html", metavar="FILE", help="At the end write a page for a browser here, too.")
    ] = "",
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Find what is wrong. Writes nothing; exits with 2 when there are findings.

    The answer is summed up by rule. Each finding is shown with --rule, --topic, --partition or --all.

    Example: krepair check /var/lib/kafka --config /etc/kafka/server.properties
    """
    code = shared.parse_rule(rule)
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
        deep=deep,
    )
    from krepair.cli.views.check import Asked, check_view
    from krepair.cli.views.text import terminal_width
    from krepair.ops import check as ops
    from krepair.ops.asked import log_dirs_asked_for

    paths = log_dirs_asked_for(log_dirs or (), config)
    only = paths[0] if len(paths) == 1 else ""
    page = PageFile(html, paths)
    with MetricsOf(metrics, "check", paths) as run:
        with ProgressOf(quiet=quiet) as progress, exact_errors(log_dir=only, typed=options):
            report = ops.check(paths, options, progress, each=each)
        run.report = report = exact(report, log_dir=only, typed=options)
        page.write(report)
        finish(
            "check",
            report,
            report.exit_code,
            lambda: check_view(
                report,
                Asked(
                    width=terminal_width(),
                    more=more,
                    every=every,
                    rule=code,
                    rows=bool(options.topics or options.partitions),
                ),
            ),
            as_json=json,
            quiet=quiet,
        )
