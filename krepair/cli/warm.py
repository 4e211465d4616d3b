"""``krepair warm``."""

from __future__ import annotations

from typing import Annotated

import typer

from krepair.cli import options as shared
from krepair.cli.compiling import CompilingLines
from krepair.cli.outcome import finish
from krepair.errors import ExitCode


def warm(
    *,
    into: Annotated[
        str,
        typer.Option(
            "--into", metavar="DIR", help="Where to; left out: into the installation, for all its users."
        ),
    ] = "",
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Compile now what the first run of the other verbs would compile. Part of an installation.

    Example: krepair warm
    """
    from krepair.ops import warm as ops

    report = ops.warm(into, None if quiet or json else CompilingLines())
    finish("warm", report, ExitCode.DONE, lambda: ops.warm_view(report), as_json=json, quiet=quiet)
