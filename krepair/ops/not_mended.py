"""What a plan met, or can see without reading, and does not mend: other fixes have to be named for it."""

from __future__ import annotations

import shlex
from typing import Final

from krepair.errors import KrepairError
from krepair.fixes.checkpoints import CHECKPOINTS, moved_away, see_checkpoints
from krepair.fixes.gone_ends import gone_of
from krepair.fixes.leftovers import LEFTOVERS
from krepair.fixes.table import asked
from krepair.logdir.view import read_log_dir
from krepair.ops.log_dirs_given import named_and_missing
from krepair.ops.plan_command import left_alone_command, options_of, with_options
from krepair.plan.facts import fix_names
from krepair.plan.last_copy import OTHERS_FIRST, loses_data
from krepair.plan.model import Plan
from krepair.plan.view import Section, count_text
from krepair.rules.gone_ends import GoneEnd

_MOST: Final = 3


def not_mended(plan: Plan) -> Section:
    """What is damaged and stays so, with the commands; and that ``check`` looks for more, where nothing is planned."""
    name = shlex.quote(plan.log_dir)
    damaged = [partition for partition in plan.partitions if partition.uncleanable_bytes]
    names = ", ".join(fix.name for fix in asked(plan.policy.fixes))
    lines, commands = [], []
    if damaged:
        many = count_text(len(damaged), "damaged partition")
        lines.append(f"{many} would stay damaged: {damaged[0].folder}: {damaged[0].why}.")
        if any(loses_data(partition.next_command) for partition in damaged):
            lines.append(OTHERS_FIRST)
        commands += [partition.next_command.replace("LOGDIR", name) for partition in damaged]
    swaps, away, gone = _seen_in(plan.log_dir)
    waiting = [one for one in gone if one.consent and one.consent not in plan.policy.accepted_losses]
    if waiting and CHECKPOINTS in asked(plan.policy.fixes):
        lines.append(f"{waiting[0].folder}: {waiting[0].text}. These lines tell of the loss, so they stay.")
        lines += [f"So do those of {count_text(len(waiting) - 1, 'more partition')}."] if waiting[1:] else []
        lines.append(OTHERS_FIRST)
        again = f"krepair plan {name} --fix checkpoints --accept-data-loss {waiting[0].consent} --out PLAN"
        commands.append(again)
    if away:
        lines.append(f"{away}.")
    if swaps and LEFTOVERS.name not in fix_names(plan.policy):
        lines.append(f"{count_text(swaps, 'file')} of an unfinished swap (KR601, data loss) would stay.")
        commands.append(
            left_alone_command(f"krepair plan {name} --fix leftovers --out PLAN", options_of(plan))
        )
    if not plan.partitions:
        lines += [
            f"No partition was looked at for --fix {fix.name}: it takes {fix.takes}."
            for fix in asked(plan.policy.fixes)
            if fix.takes
        ]
    elif unseen := _named_and_not_there(plan):
        others = len(unseen) - _MOST
        more = f", and {others} more" if others > 0 else ""
        lines.append(
            f"Nothing was looked at of {', '.join(unseen[:_MOST])}{more}: it is not in this directory, or "
            f"--fix {names} does not take it."
        )
    nothing = plan.root is None and not any(partition.changes for partition in plan.partitions)
    if nothing or lines:
        lines.append(
            f"This plan only looks for what --fix {names} mends. krepair check looks for all the rest."
        )
        commands.append(with_options(f"krepair check {name}", options_of(plan).words("reading")))
    kept = [command for command in dict.fromkeys(commands) if command]
    if len(kept) > _MOST:
        lines.append("Each partition is below, with its command.")
    return Section(
        title="What this plan does not mend",
        lines=tuple(lines),
        commands=tuple(kept[:_MOST]),
        part="partitions",
    )


def _named_and_not_there(plan: Plan) -> list[str]:
    """Topics and partitions that were named, and of which the plan holds nothing: a typing error would look well."""
    there = {(one.topic, one.partition) for one in plan.partitions}
    return [f"{kind} {name}" for kind, name in named_and_missing(options_of(plan), there)]


def _seen_in(log_dir: str) -> tuple[int, str, tuple[GoneEnd, ...]]:
    """Files of unfinished swaps, what is said of partitions that were moved away, and ends that are gone."""
    try:
        view = read_log_dir(log_dir)
    except KrepairError:
        return 0, "", ()
    there = {one.key: None for one in (*view.marked, *view.partitions)}
    swaps = sum(one.kind == "swap" for partition in view.partitions for one in partition.leftovers)
    gone = gone_of(view, {one.folder for one in view.partitions})
    return swaps, moved_away(see_checkpoints(view, there)), gone
