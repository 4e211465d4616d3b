"""``krepair explain``."""

from __future__ import annotations

from typing import Annotated

import typer

from krepair.cli.options import takes
from krepair.cli.outcome import finish
from krepair.options import Options


@takes("json")
def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE",
            help="A rule (KR101), a reason (D03), an objection (RV25), or the word evidence; all if left out.",
        ),
    ] = None,
    *,
    options: Options,
) -> None:
    """Say what a code means: its danger, its fix, and where it was read.

    Example: krepair explain KR101
    """
    from krepair.ops import explain as ops

    page = ops.explain_all() if code is None else ops.explain(code)
    report = ops.rows() if code is None else ops.row(code)
    finish("explain", report, lambda: page, options)
