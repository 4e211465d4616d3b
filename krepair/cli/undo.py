"""``krepair undo``."""

from __future__ import annotations

from krepair.cli import options as shared
from krepair.cli.commands import exact, exact_errors
from krepair.cli.outcome import finish
from krepair.cli.progress import ProgressOf


def undo(
    plan: shared.PlanArgument,
    *,
    engine: shared.EngineOption = "auto",
    master: shared.MasterOption = "",
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Put the kept originals back, byte for byte, with their modification times.

    Example: krepair undo offsets.krplan
    """
    options = shared.common_options(engine=engine, master=master)
    from krepair.cli.views.reports import apply_view
    from krepair.ops import show

    reviewed = show.load_safe(plan)
    from krepair.ops import undo as ops

    with ProgressOf(quiet=quiet) as progress, exact_errors(plan=plan, log_dir=reviewed.log_dir):
        report = ops.undo(reviewed, options, progress)
    report = exact(report, plan=plan, log_dir=reviewed.log_dir)
    finish("undo", report, report.exit_code, lambda: apply_view(report), as_json=json, quiet=quiet)
