"""``krepair purge``."""

from __future__ import annotations

from krepair.cli import options as shared
from krepair.cli.by_id import carry_out_by_id, is_log_dir
from krepair.cli.carry_out import carry_out
from krepair.options import parse_at, parse_take_over


def purge(
    plan: shared.PlanOrLogDirArgument,
    *,
    plan_id: shared.PlanIdOption = "",
    at: shared.AtOption = "",
    engine: shared.EngineOption = "auto",
    master: shared.MasterOption = "",
    take_over: shared.TakeOverOption = "",
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Free the kept originals of a plan that was applied. There is no undo after it.

    Where the plan file is lost: krepair purge LOGDIR lists what plans keep there and changes nothing;
    krepair purge LOGDIR --plan-id ID does it.

    Example: krepair purge offsets.krplan
    """
    options = shared.common_options(
        engine=engine, master=master, at=parse_at(at), take_over=parse_take_over(take_over)
    )
    if is_log_dir(plan, plan_id):
        from krepair.ops import by_id

        carry_out_by_id("purge", plan, plan_id, by_id.purge_by_id, options, json=json, quiet=quiet)
    from krepair.ops import purge as ops
    from krepair.ops.sequence import purge_sequence

    carry_out(plan, ops.purge, options, through=purge_sequence, json=json, quiet=quiet)
