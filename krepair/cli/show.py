"""``krepair show``."""

from __future__ import annotations

import socket
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from krepair.cli.options import PlanArgument, takes
from krepair.cli.outcome import finish
from krepair.errors import ExitCode, UsageError
from krepair.options import Options

if TYPE_CHECKING:
    from krepair.plan.model import Plan
    from krepair.plan.short import Observed
    from krepair.plan.view import View

_IN_SECTIONS: Final = ("text", "md")


@takes("output_format section json")
def show(plan: PlanArgument, *, options: Options) -> None:
    """Show a plan again: its short page, and all the rest in sections.

    Example: krepair show offsets.krplan --section risks
    """
    from krepair.ops.show import load

    if options.output_format != "text" and options.json:
        raise UsageError(
            "--json and --format do not go together; --format json gives the plan file's own text"
        )
    if options.section and options.output_format not in _IN_SECTIONS:
        raise UsageError(f"--section goes with --format {' and '.join(_IN_SECTIONS)}")
    read = load(plan)
    observed = "" if options.json or options.output_format == "json" else _observed(read)
    if options.output_format == "text":
        page = partial(_view, read, plan, observed, options.section)
        finish("show", read, page, options, ExitCode.DONE)
    sys.stdout.buffer.write(_text(read, plan, options.output_format, observed, options.section).encode())


def _observed(read: Plan) -> Observed | str:
    """What the disk says of it; a plan of another host is shown without what looks at disks."""
    if read.host != socket.gethostname():
        return f"not looked at: this host is not {read.host}"
    from krepair.ops.room import observe_again

    return observe_again(read)


def _view(read: Plan, path: str, observed: Observed | str, part: str = "") -> View:
    from krepair.ops.show import show_view

    page = show_view(read, path, observed=observed)
    return page.only(part) if part else page


def _text(read: Plan, path: str, output_format: str, observed: Observed | str, part: str) -> str:
    if output_format == "html":
        from krepair.cli.views.page import plan_page

        return plan_page(read, _view(read, path, observed), observed)
    if output_format == "md":
        from krepair.cli.views.text import markdown

        return markdown(_view(read, path, observed, part))
    from krepair.plan.planfile import dumps

    return dumps(read).decode()
