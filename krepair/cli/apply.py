"""``krepair apply``."""

from __future__ import annotations

from krepair.cli import options as shared
from krepair.cli.carry_out import carry_out


def apply(
    plan: shared.PlanArgument,
    *,
    engine: shared.EngineOption = "auto",
    master: shared.MasterOption = "",
    metrics: shared.MetricsOption = "",
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Carry out a plan: stage, verify, swap. Run again after an interruption it continues.

    Example: krepair apply offsets.krplan
    """
    options = shared.common_options(engine=engine, master=master)
    from krepair.ops import apply as ops

    carry_out(plan, ops.apply, options, json=json, quiet=quiet, metrics=metrics)
