"""``krepair undo``."""

from __future__ import annotations

from krepair.cli import options as shared
from krepair.cli.by_id import carry_out_by_id, is_log_dir
from krepair.cli.carry_out import carry_out


def undo(
    plan: shared.PlanOrLogDirArgument,
    *,
    plan_id: shared.PlanIdOption = "",
    engine: shared.EngineOption = "auto",
    master: shared.MasterOption = "",
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Put the kept originals back, byte for byte, with their modification times.

    Where the plan file is lost: krepair undo LOGDIR lists what plans keep there and changes nothing;
    krepair undo LOGDIR --plan-id ID does it.

    Example: krepair undo offsets.krplan
    """
    options = shared.common_options(engine=engine, master=master)
    if is_log_dir(plan, plan_id):
        from krepair.ops import by_id

        carry_out_by_id("undo", plan, plan_id, by_id.undo_by_id, options, json=json, quiet=quiet)
    from krepair.ops import undo as ops

    carry_out(plan, ops.undo, options, json=json, quiet=quiet)
