"""``krepair undo``."""

from __future__ import annotations

import shlex

from krepair.cli import options as shared
from krepair.cli.by_id import carry_out_by_id, is_log_dir
from krepair.cli.carry_out import carry_out
from krepair.errors import UsageError
from krepair.options import parse_at, parse_take_over


def undo(
    plan: shared.PlanOrLogDirArgument,
    *,
    plan_id: shared.PlanIdOption = "",
    at: shared.AtOption = "",
    rebuild_journal: shared.RebuildJournalOption = False,
    engine: shared.EngineOption = "auto",
    master: shared.MasterOption = "",
    take_over: shared.TakeOverOption = "",
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Put the kept originals back, byte for byte, with their modification times.

    Where the plan file is lost: krepair undo LOGDIR lists what plans keep there and changes nothing;
    krepair undo LOGDIR --plan-id ID does it. Where a journal is damaged, --rebuild-journal comes first.

    Example: krepair undo offsets.krplan
    """
    options = shared.common_options(
        engine=engine, master=master, at=parse_at(at), take_over=parse_take_over(take_over)
    )
    by_log_dir = is_log_dir(plan, plan_id)
    if rebuild_journal:
        from krepair.ops.rebuild import rebuild, rebuild_by_id

        if by_log_dir and not plan_id:
            raise UsageError(
                "--rebuild-journal of a log directory needs --plan-id",
                next_command=f"krepair undo {shlex.quote(plan)}",
            )
        if by_log_dir:
            carry_out_by_id("undo", plan, plan_id, rebuild_by_id, options, json=json, quiet=quiet)
        carry_out(plan, rebuild, options, json=json, quiet=quiet)
    if by_log_dir:
        from krepair.ops import by_id

        carry_out_by_id("undo", plan, plan_id, by_id.undo_by_id, options, json=json, quiet=quiet)
    from krepair.ops import undo as ops
    from krepair.ops.sequence import undo_sequence

    carry_out(plan, ops.undo, options, through=undo_sequence, json=json, quiet=quiet)
