"""``krepair show``."""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING, Final

from krepair.cli.options import PlanArgument, Typed, takes
from krepair.cli.outcome import finish
from krepair.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from krepair.ops.room import Observed
    from krepair.plan.model import Plan
    from krepair.plan.view import View

_FORMATS: Final = ("text", "md", "html", "json")


@takes("output_format json")
def show(plan: PlanArgument, *, typed: Typed) -> None:
    """Show a plan again, and what the review says against it.

    Example: krepair show offsets.krplan --format html > ticket.html
    """
    from krepair.ops.show import load

    if typed.output_format != "text" and typed.json:
        raise UsageError(
            "--json and --format do not go together; --format json gives the plan file's own text"
        )
    if typed.output_format not in _FORMATS:
        raise UsageError(f"--format {typed.output_format!r}: the formats are {', '.join(_FORMATS)}")
    read = load(plan)
    observed = None if typed.json or typed.output_format == "json" else _observed(read)
    if typed.output_format == "text":
        finish("show", read, ExitCode.DONE, lambda: _view(read, plan, observed), typed)
    sys.stdout.buffer.write(_text(read, plan, typed.output_format, observed).encode())


def _observed(read: Plan) -> Observed | None:
    """What the disk says of it; a plan of another host is shown without what looks at disks."""
    if read.host != socket.gethostname():
        return None
    from krepair.ops.room import observe_again

    return observe_again(read)


def _view(read: Plan, path: str, observed: Observed | None) -> View:
    from krepair.ops.show import show_view

    page = show_view(read, path)
    if observed is None:
        return page
    from krepair.ops.room import with_observed

    return with_observed(page, observed)


def _text(read: Plan, path: str, output_format: str, observed: Observed | None) -> str:
    if output_format == "html":
        from krepair.cli.views.page import plan_page

        return plan_page(read, _view(read, path, observed), observed)
    if output_format == "md":
        from krepair.plan.markdown import markdown

        return markdown(_view(read, path, observed))
    from krepair.plan.planfile import dumps

    return dumps(read).decode()
