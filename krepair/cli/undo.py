"""``krepair undo``."""

from __future__ import annotations

from krepair.cli.carry_out import carry_out, carry_out_by_id, is_log_dir
from krepair.cli.options import PlanOrLogDirArgument, takes
from krepair.options import Options


@takes("plan_id engine master json quiet")
def undo(plan: PlanOrLogDirArgument, *, options: Options) -> None:
    """Put the kept originals back, byte for byte, with their modification times.

    Where the plan file is lost: krepair undo LOGDIR lists what plans keep there and changes nothing;
    krepair undo LOGDIR --plan-id ID does it. Where a journal is damaged, undo shows the lines to type.

    Example: krepair undo offsets.krplan
    """
    from krepair.ops import undo as ops

    if is_log_dir(plan, options.plan_id):
        carry_out_by_id("undo", plan, ops.undo_by_id, options)
    carry_out("undo", plan, ops.undo, options)
