"""``krepair compare``."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from krepair.cli.one_run import run_and_finish
from krepair.cli.options import takes
from krepair.options import Options


@takes(
    "config topic_config settings topics partitions every_partition engine master scratch metrics html "
    "ticket_format json quiet"
)
def compare(
    sides: Annotated[
        list[str],
        typer.Argument(
            metavar="ID=LOGDIR[,LOGDIR]|ID=FACTS...",
            help="Each side is one broker: its id, and its log directories or a file of krepair facts.",
        ),
    ],
    *,
    options: Options,
) -> None:
    """Find where the replicas of partitions disagree, and who is right. Writes nothing.

    Exits with 2 when replicas have diverged or are damaged, with 4 when it cannot be told.

    Example: krepair compare 1=/mnt/b1/kafka 2=/mnt/b2/kafka,/mnt/b2/kafka2 3=b3.facts
    """
    from krepair.cli.views.compare import compare_view
    from krepair.errors import UsageError
    from krepair.fixes.replicas import parse_sides
    from krepair.ops import compare as ops

    if options.json and options.ticket_format != "text":
        raise UsageError(f"--format {options.ticket_format} and --json do not go together")
    read = parse_sides(sides, at_least=2)
    paths = [path for side in read for path in side.log_dirs]
    run_and_finish(
        "compare",
        paths,
        lambda progress: ops.compare(read, options, progress),
        partial(compare_view, every=options.every_partition),
        options,
    )
