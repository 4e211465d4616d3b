"""``krepair undo``."""

from __future__ import annotations

from krepair.cli import options as shared
from krepair.cli.carry_out import carry_out


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
    from krepair.ops import undo as ops

    carry_out(plan, ops.undo, options, json=json, quiet=quiet)
