"""``krepair compare``."""

from __future__ import annotations

from typing import Annotated

import typer

from krepair.cli import options as shared
from krepair.cli.metrics import MetricsOf
from krepair.cli.outcome import finish
from krepair.cli.page_file import PageFile
from krepair.cli.progress import ProgressOf


def compare(
    sides: Annotated[
        list[str],
        typer.Argument(
            metavar="ID=LOGDIR[,LOGDIR]|ID=FACTS...",
            help="Each side is one broker: its id, and its log directories or a file of krepair facts.",
        ),
    ],
    *,
    config: shared.ConfigOption = None,
    topic_config: shared.TopicConfigOption = None,
    setting: shared.SetOption = None,
    topic: shared.TopicOption = None,
    partition: shared.PartitionOption = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also one line for each partition that is as it should be.")
    ] = False,
    engine: shared.EngineOption = "auto",
    master: shared.MasterOption = "",
    scratch: Annotated[
        str,
        typer.Option(
            "--scratch",
            metavar="DIR",
            help="Where hashes go that do not fit into memory; on a log directory's file system only if named here.",
        ),
    ] = "",
    metrics: shared.MetricsOption = "",
    html: Annotated[
        str, typer.Option("--html", metavar="FILE", help="At the end write a page for a browser here, too.")
    ] = "",
    output_format: Annotated[
        str, typer.Option("--format", metavar="text|md", help="For a terminal, or for a ticket.")
    ] = "text",
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Find where the replicas of partitions disagree, and who is right. Writes nothing.

    Exits with 2 when replicas have diverged or are damaged, with 4 when it cannot be told.

    Example: krepair compare 1=/mnt/b1/kafka 2=/mnt/b2/kafka,/mnt/b2/kafka2 3=b3.facts
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
    )
    from krepair.cli.views.compare import compare_view, print_markdown
    from krepair.errors import UsageError
    from krepair.ops import compare as ops
    from krepair.ops.sides import parse_sides

    if output_format not in {"text", "md"} or (json and output_format != "text"):
        raise UsageError(f"--format {output_format!r}: expected text or md, and not together with --json")
    typed = parse_sides(sides, at_least=2)
    paths = [path for side in typed for path in side.log_dirs]
    page = PageFile(html, paths)
    with MetricsOf(metrics, "compare", paths) as run:
        with ProgressOf(quiet=quiet) as progress:
            report = ops.compare(typed, options, progress)
        run.report = report
        page.write(report)
        if output_format == "md" and not quiet:
            print_markdown(compare_view(report, every=every))
        finish(
            "compare",
            report,
            report.exit_code,
            lambda: compare_view(report, every=every),
            as_json=json,
            quiet=quiet or output_format == "md",
        )
