"""``krepair diff``."""

from __future__ import annotations

from typing import Annotated

import typer

from krepair.cli.options import takes
from krepair.cli.outcome import finish
from krepair.options import Options


@takes("json quiet")
def diff(
    first: Annotated[str, typer.Argument(metavar="PLAN", help="The plan that was there before.")],
    second: Annotated[str, typer.Argument(metavar="PLAN", help="The plan to compare it with.")],
    *,
    options: Options,
) -> None:
    """Say what changed between two plans of one directory. Exits with 0 when nothing did, with 2 when something did.

    Example: krepair diff approved.krplan new.krplan
    """
    from krepair.cli.views.diff import diff_view
    from krepair.ops.diff import diff_plans
    from krepair.ops.show import load

    found = diff_plans(load(first), load(second))
    finish("diff", found, lambda: diff_view(found, first, second), options)
