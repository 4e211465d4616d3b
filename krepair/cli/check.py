"""``krepair check``."""

from __future__ import annotations

from typing import Annotated

import typer

from krepair.cli.commands import Filling, as_typed
from krepair.cli.one_run import run_and_finish
from krepair.cli.options import takes
from krepair.options import Options


@takes(
    "config topic_config settings now_ms broker_version topics partitions deep every rule engine "
    "master metrics html json quiet"
)
def check(
    log_dirs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="LOGDIR...", help="Log directories of one broker; left out, all that --config names."
        ),
    ] = None,
    *,
    options: Options,
) -> None:
    """Find what is wrong. Writes nothing; exits with 2 when there are findings.

    The answer is summed up by rule. Each finding is shown with --rule, --topic, --partition or --all.

    Example: krepair check /var/lib/kafka --config /etc/kafka/server.properties
    """
    from krepair.cli.views.check import CheckPage, check_view, later_version_note
    from krepair.cli.views.text import terminal_width
    from krepair.ops import check as ops
    from krepair.ops.log_dirs_given import log_dirs_asked_for

    paths = log_dirs_asked_for(log_dirs or (), options.config)
    only = paths[0] if len(paths) == 1 else ""
    run_and_finish(
        "check",
        paths,
        lambda progress: as_typed(ops.check(paths, options, progress), options),
        lambda report: check_view(
            report,
            CheckPage(
                width=terminal_width(),
                every=options.every,
                rule=options.rule,
                rows=bool(options.topics or options.partitions),
                note=later_version_note(options.broker_version),
            ),
        ),
        options,
        fill=Filling(log_dir=only, options=options),
    )
