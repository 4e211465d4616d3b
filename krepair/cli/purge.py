"""``krepair purge``."""

from __future__ import annotations

from krepair.cli import options as shared
from krepair.cli.carry_out import carry_out


def purge(
    plan: shared.PlanArgument,
    *,
    engine: shared.EngineOption = "auto",
    master: shared.MasterOption = "",
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Free the kept originals of a plan that was applied. There is no undo after it.

    Example: krepair purge offsets.krplan
    """
    options = shared.common_options(engine=engine, master=master)
    from krepair.ops import purge as ops

    carry_out(plan, ops.purge, options, json=json, quiet=quiet)
