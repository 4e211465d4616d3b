"""``krepair undo``."""

from __future__ import annotations

import shlex

from krepair.cli.by_id import carry_out_by_id, is_log_dir
from krepair.cli.carry_out import carry_out
from krepair.cli.options import PlanOrLogDirArgument, Typed, takes
from krepair.errors import UsageError


@takes("plan_id at rebuild_journal use_reserved engine master json quiet")
def undo(plan: PlanOrLogDirArgument, *, typed: Typed) -> None:
    """Put the kept originals back, byte for byte, with their modification times.

    Where the plan file is lost: krepair undo LOGDIR lists what plans keep there and changes nothing;
    krepair undo LOGDIR --plan-id ID does it. Where a journal is damaged, --rebuild-journal comes first.

    Example: krepair undo offsets.krplan
    """
    by_log_dir = is_log_dir(plan, typed.plan_id)
    if typed.rebuild_journal:
        from krepair.ops.rebuild import rebuild, rebuild_by_id

        if by_log_dir and not typed.plan_id:
            raise UsageError(
                "--rebuild-journal of a log directory needs --plan-id",
                next_command=f"krepair undo {shlex.quote(plan)}",
            )
        if by_log_dir:
            carry_out_by_id("undo", plan, rebuild_by_id, typed)
        carry_out("undo", plan, rebuild, typed)
    if by_log_dir:
        from krepair.ops import by_id

        carry_out_by_id("undo", plan, by_id.undo_by_id, typed)
    from krepair.ops import undo as ops

    carry_out("undo", plan, ops.undo, typed)
