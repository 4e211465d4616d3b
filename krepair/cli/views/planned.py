"""Page of a plan that was just made, with what it does not repair."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from krepair.commit.ready import targets_of
from krepair.errors import KrepairError
from krepair.fixes.checkpoints import CHECKPOINTS, compare_checkpoints, moved_away
from krepair.fixes.leftovers import LEFTOVERS
from krepair.fixes.missing_tails import missing_tails_in
from krepair.fixes.table import requested_fixes
from krepair.formats.words import count_text, names_text
from krepair.logdir.config import configured_id, why_of_another_broker
from krepair.logdir.view import read_log_dir
from krepair.next_command import PLAN, Next, in_one_plan
from krepair.ops.show import page_context_of
from krepair.options import Options
from krepair.plan.codes import OTHERS_FIRST
from krepair.plan.commands import options_of
from krepair.plan.facts import fix_names
from krepair.plan.model import Plan
from krepair.plan.render import plan_view
from krepair.plan.short import NOT_REPAIRED, damage_that_stays, damaged_partitions, partly_repaired
from krepair.plan.view import Section, View
from krepair.rules.missing_tails import MissingTail
from krepair.start.log_dirs_given import named_and_missing
from krepair.start.room import observe


def planned_view(plan: Plan, path: str, options: Options | None = None) -> View:
    """Return the page of a plan that was just made, with the free space of its disk and what it does not repair.

    Args:
        path: path of the plan file.
        options: options as typed; those that say where the work is done matter.
    """
    options = options or Options()
    place = options.words("scratch")
    context = page_context_of(plan, path, place)._replace(
        observed=observe(plan, options),
        unmended=not_mended(plan),
        doubt=_of_another_broker(plan, options),
    )
    return plan_view(plan, context)


def _of_another_broker(plan: Plan, options: Options) -> str:
    """Build a warning if the settings of a plan belong to another broker; empty if nothing shows it."""
    text = why_of_another_broker(options.config, plan.log_dir, plan.broker_id)
    return f"{text}. The settings are those of broker {configured_id(options.config)}" if text else ""


_MOST: Final = 3


def not_mended(plan: Plan) -> Section:
    """Return the section on damage that the plan leaves, with commands, and on ``check`` where nothing is planned."""
    names = ", ".join(fix.name for fix in requested_fixes(plan.policy.fixes))
    lines = damage_that_stays(plan)
    commands: list[Next] = []
    if damaged := [*damaged_partitions(plan), *partly_repaired(plan)]:
        if any(partition.what_next.accepts_loss for partition in damaged):
            lines.append(OTHERS_FIRST)
        what_next = (partition.what_next.filled(log_dir=plan.log_dir) for partition in damaged)
        commands += in_one_plan(filter(None, what_next), plan.policy.fixes)
    swaps, away, gone = _leftovers_in(plan.log_dir)
    waiting = [
        missing_tail
        for missing_tail in gone
        if missing_tail.consent and missing_tail.consent not in plan.policy.accepted_losses
    ]
    if waiting and CHECKPOINTS in requested_fixes(plan.policy.fixes):
        lines.append(f"{waiting[0].folder}: {waiting[0].text}. These entries prove the loss, so they stay.")
        lines += [f"So do those of {count_text(len(waiting) - 1, 'more partition')}."] if waiting[1:] else []
        lines.append(OTHERS_FIRST)
        words = (plan.log_dir, "--fix", "checkpoints", "--accept-data-loss", waiting[0].consent)
        commands.append(Next.of("plan", *words, out=PLAN).carrying(options_of(plan)))
    if away:
        lines.append(f"{away}.")
    if swaps and LEFTOVERS.name not in fix_names(plan.policy):
        lines.append(f"{count_text(swaps, 'file')} of an unfinished swap (KR601, data loss) would stay.")
        first = Next.of("plan", plan.log_dir, "--fix", LEFTOVERS.name, out=PLAN)
        commands.append(first.carrying(options_of(plan)))
    if not plan.partitions:
        lines += [
            f"No partition was examined for --fix {fix.name}: it takes {fix.takes}."
            for fix in requested_fixes(plan.policy.fixes)
            if fix.takes
        ]
    elif unseen := _named_and_not_there(plan):
        lines.append(
            f"Not examined: {names_text(unseen)}. This directory does not contain it, or --fix {names} does not "
            "apply to it."
        )
    if lines or not targets_of(plan):
        lines.append(
            f"This plan only looks for what --fix {names} repairs. krepair check looks for everything else."
        )
        commands += _why_nothing(plan)
        commands.append(Next.of("check", plan.log_dir).carrying(options_of(plan)))
    kept = [command for command in dict.fromkeys(commands) if command]
    if len(kept) > _MOST:
        lines.append("Each partition is below, with its command.")
    return Section(
        title=NOT_REPAIRED,
        lines=tuple(lines),
        commands=tuple(kept[:_MOST]),
        part="partitions",
    )


def _why_nothing(plan: Plan) -> Iterator[Next]:
    """Yield what comes before a plan that changes nothing; after ``check`` alone the same plan would come again."""
    if targets_of(plan):
        return
    skipped = [partition for partition in plan.partitions if partition.status == "left alone"]
    first = [
        partition.what_next.filled(log_dir=plan.log_dir) or Next.of("explain", partition.code)
        for partition in skipped
    ]
    yield from in_one_plan(first, plan.policy.fixes)
    if any(partition.keeps_all for partition in plan.partitions):
        yield Next.of("explain", "evidence")


def _named_and_not_there(plan: Plan) -> list[str]:
    """Return typed topics and partitions that the plan does not contain; a typing error must not look like success."""
    there = {(partition.topic, partition.partition) for partition in plan.partitions}
    return [f"{kind} {name}" for kind, name in named_and_missing(options_of(plan), there)]


def _leftovers_in(log_dir: str) -> tuple[int, str, tuple[MissingTail, ...]]:
    """Return the files of unfinished swaps, a line on partitions that were moved away, and missing log tails."""
    try:
        view = read_log_dir(log_dir)
    except KrepairError:
        return 0, "", ()
    there = {partition.key: None for partition in (*view.marked, *view.partitions)}
    swaps = sum(leftover.kind == "swap" for partition in view.partitions for leftover in partition.leftovers)
    gone = missing_tails_in(view, {partition.folder for partition in view.partitions}, torn=True)
    return swaps, moved_away(compare_checkpoints(view, there)), gone
