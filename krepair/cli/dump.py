"""``krepair dump``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from krepair.cli.options import takes
from krepair.options import Options


@takes("batches records offsets grep limit keys values cut decode json_lines")
def dump(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="Files of a log directory; a folder means its files in order."
        ),
    ],
    *,
    options: Options,
) -> None:
    """Show what is in files of a log directory. Writes nothing; exits with 2 when something is damaged.

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
