"""``krepair show``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from krepair.cli import options as shared
from krepair.cli.outcome import finish
from krepair.errors import ExitCode, UsageError


def show(
    plan: shared.PlanArgument,
    *,
    output_format: Annotated[
        str,
        typer.Option(
            "--format", metavar="text|md|html|json", help="For a terminal, a ticket, a browser, a program."
        ),
    ] = "text",
    json: shared.JsonOption = False,
) -> None:
    """Show a plan again, and what the review says against it.

    Example: krepair show offsets.krplan --format html > ticket.html
    """
    from krepair.ops import show as ops

    read = ops.load(plan)
    if output_format != "text" and json:
        raise UsageError(
            "--json and --format do not go together; --format json gives the plan file's own text"
        )
    if output_format == "html":
        from krepair.cli.views.page import plan_page

        sys.stdout.buffer.write(plan_page(read, ops.show_view(read, plan)).encode())
        raise typer.Exit(0)
    if output_format != "text":
        text = ops.show_text(read, output_format, plan)
        sys.stdout.buffer.write(text.encode())
        raise typer.Exit(0)
    finish("show", read, ExitCode.DONE, lambda: ops.show_view(read, plan), as_json=json, quiet=False)
