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
        list[str], typer.Argument(metavar="LOGDIR...", help="Log directories of one broker.")
    ],
    *,
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

    Example: krepair check /var/lib/kafka --config /etc/kafka/server.properties
    """
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
    from krepair.cli.views.reports import check_view
    from krepair.ops import check as ops

    only = log_dirs[0] if len(log_dirs) == 1 else ""
    page = PageFile(html, log_dirs)
    with MetricsOf(metrics, "check", log_dirs) as run:
        with ProgressOf(quiet=quiet) as progress, exact_errors(log_dir=only, typed=options):
            report = ops.check(log_dirs, options, progress)
        run.report = report = exact(report, log_dir=only, typed=options)
        page.write(report)
        finish("check", report, report.exit_code, lambda: check_view(report), as_json=json, quiet=quiet)
