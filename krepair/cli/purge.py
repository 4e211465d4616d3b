"""``krepair purge``."""

from __future__ import annotations

from krepair.cli.carry_out import carry_out, carry_out_by_id, is_log_dir
from krepair.cli.options import PlanOrLogDirArgument, takes
from krepair.options import Options


@takes("plan_id engine master json quiet")
def purge(plan: PlanOrLogDirArgument, *, options: Options) -> None:
    """Free the kept originals of a plan that was applied. There is no undo after it.

    Where the plan file is lost: krepair purge LOGDIR lists what plans keep there and changes nothing;
    krepair purge LOGDIR --plan-id ID does it.

    Example: krepair purge offsets.krplan
    """
    from krepair.ops import purge as ops

    if is_log_dir(plan, options.plan_id):
        carry_out_by_id("purge", plan, ops.purge_by_id, options)
    carry_out("purge", plan, ops.purge, options)
