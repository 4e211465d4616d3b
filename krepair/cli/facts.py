"""``krepair facts``."""

from __future__ import annotations

from typing import Annotated

import typer

from krepair.cli import options as shared
from krepair.cli.outcome import finish
from krepair.cli.progress import ProgressOf


def facts(
    log_dirs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="LOGDIR...", help="All log directories of one broker; left out, all that --config names."
        ),
    ] = None,
    *,
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="The facts file to write.")] = "",
    answer: Annotated[
        str,
        typer.Option(
            "--answer",
            metavar="QUESTION",
            help="Answer what krepair plan --ask of another broker wrote: which of those keys have a record here.",
        ),
    ] = "",
    config: shared.ConfigOption = None,
    topic: shared.TopicOption = None,
    partition: shared.PartitionOption = None,
    engine: shared.EngineOption = "auto",
    master: shared.MasterOption = "",
    scratch: shared.ScratchOption = "",
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Write down what another host has to know of this broker's replicas, so that no data travels.

    The file holds hashes, offsets and numbers: no key and no value of a record.

    With --answer it holds what a plan of the asking broker has to know, and nothing for krepair compare.

    Example: krepair facts /var/lib/kafka --out b3.facts
    """
    options = shared.common_options(
        config=config, topics=topic, partitions=partition, engine=engine, master=master, scratch=scratch
    )
    from krepair.cli.views.compare import facts_view
    from krepair.errors import UsageError
    from krepair.ops import facts as ops
    from krepair.ops.asked import log_dirs_asked_for

    if not out:
        raise UsageError("--out FILE is needed: where the facts go")
    with ProgressOf(quiet=quiet) as progress:
        report = ops.facts(
            log_dirs_asked_for(log_dirs or (), config), out, options, progress, question=answer
        )
    finish("facts", report, report.exit_code, lambda: facts_view(report), as_json=json, quiet=quiet)
