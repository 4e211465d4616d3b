"""``krepair apply``."""

from __future__ import annotations

from krepair.cli.carry_out import carry_out
from krepair.cli.options import PlanArgument, takes
from krepair.options import Options


@takes("expect scratch engine master metrics json quiet")
def apply(plan: PlanArgument, *, options: Options) -> None:
    """Carry out a plan: stage, verify, swap. Run again after an interruption it continues.

    Example: krepair apply offsets.krplan --expect 5c2e8d0a41f7b96380de12c4a97b3f65
    """
    from krepair.ops import apply as ops

    carry_out("apply", plan, ops.apply, options)
