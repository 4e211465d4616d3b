"""What to do instead where a plan does not fit on the disk: in words, and as the command to type."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import replace as with_options
from typing import Final, NamedTuple

from msgspec.structs import replace

from krepair.errors import KrepairError
from krepair.logdir.space import Space, read_reserve, read_space
from krepair.logdir.view import read_log_dir
from krepair.ops.need import Need, PartNeeds, bytes_that_stay, is_let_go, need_of_all, need_of_part, part_of
from krepair.ops.plan_command import plan_command
from krepair.ops.removable import Way, removable
from krepair.ops.target import is_root
from krepair.options import Options
from krepair.plan.figures import in_apply_order, with_figures
from krepair.plan.keep import INPLACE, UNTIL_VERIFIED, with_undo
from krepair.plan.model import PartitionPlan, Plan
from krepair.plan.view import bytes_text, bytes_words
from krepair.start.start_space import needed_at_most

MOST_NAMED: Final = 10
"""Partitions that one command names. What they free makes room for the next command."""


class _Room(NamedTuple):
    """Space that a way may use.

    Attributes:
        space: what is free.
        at: the options with which the work is done in it.
        more: bytes of root's reserve that are in it although nobody typed ``--use-reserved``; else 0.
    """

    space: Space
    at: Options | None
    more: int = 0

    @property
    def takes_reserve(self) -> bool:
        return self.at is not None and self.at.use_reserved


def way_out(plan: Plan, targets: Sequence[PartitionPlan], space: Space, at: Options | None = None) -> Way:
    """The first way that works: less is kept, or fewer partitions, or root's reserve; else what could go.

    Args:
        plan: the plan, which does not fit.
        targets: what is left to do.
        space: what is free.
        at: where the work is done, see ``krepair.ops.plan_command.plan_command``; ``use_reserved`` counts, too.
    """
    rooms = [_Room(space, at), *_with_reserve(plan, space, at)]
    found = (_by_planning(plan, targets, room) for room in rooms)
    return next((way for way in found if way is not None), None) or _by_freeing(plan, targets, rooms[-1])


def _by_planning(plan: Plan, targets: Sequence[PartitionPlan], room: _Room) -> Way | None:
    freeing = _if_freed(plan, targets)
    keep = UNTIL_VERIFIED if freeing else None
    hint = _reserve_hint(room)
    if freeing and _works(_keeping(plan, UNTIL_VERIFIED), freeing, room):
        most = need_of_all(plan, freeing).bytes
        alone = plan_command(plan, keep=keep, at=room.at)
        return Way(
            f"with --keep until-verified it fits{hint}: {bytes_words(most)}, since what one group frees is there "
            "for the next one; what is freed cannot be undone",
            alone,
        )
    if not freeing and hint and _works(plan, targets, room):
        return Way(f"it fits{hint}", plan_command(plan, at=room.at))
    if len(targets) < 2:
        return None
    first, able = _first_part(plan, freeing or targets, room)
    if not first:
        return None
    names = tuple((target.topic, target.partition) for target in first)
    parts = f"{able} of its {len(targets)} parts fit one at a time{hint}"
    what = f"begin with {len(first)} of them" if len(first) > 1 else "begin with one of them"
    end = "; what is freed cannot be undone" if freeing or plan.policy.keep != INPLACE else ""
    then = "plan and apply it" if end else "plan, apply, verify and purge it"
    return Way(
        f"{parts}; {what}, with --keep until-verified: {then}, then plan the rest{end}"
        if freeing
        else f"{parts}; {what}: {then}, then plan the rest{end}",
        plan_command(plan, keep=keep, only=names, at=room.at),
    )


def _by_freeing(plan: Plan, targets: Sequence[PartitionPlan], room: _Room) -> Way:
    """No part of it fits."""
    freeing = _if_freed(plan, targets) or targets
    least = min(need.bytes for need in _first_groups(plan, freeing))
    more = (
        f"at least {bytes_text(least - room.space.free_bytes + room.space.withheld_bytes)} more bytes have to be free"
        if least > room.space.free_bytes
        else "there is no room for so many files"
    )
    could = removable(plan.log_dir)
    safe = (
        f"what can safely go: {'; '.join(one.text for one in could)}"
        if could
        else "krepair knows of nothing here that can go without loss"
    )
    freed = next((one.command for one in could if one.command), "")
    text = f"not even one group of it fits: {more}; {safe}"
    return Way(text, freed or _check_command(plan))


def _check_command(plan: Plan) -> str:
    return f"krepair check {shlex.quote(plan.log_dir)}"


# -- what fits


def _works(plan: Plan, targets: Sequence[PartitionPlan], room: _Room) -> bool:
    """Whether apply would not refuse it for the space."""
    if not need_of_all(plan, targets).fits(room.space):
        return False
    return not room.takes_reserve or not why_reserve_does_not_do(plan, targets)


def _first_part(plan: Plan, targets: Sequence[PartitionPlan], room: _Room) -> tuple[list[PartitionPlan], int]:
    """As many partitions as fit into one plan, those with the least need first; and how many fit alone."""
    root = [target for target in targets if is_root(target)]
    parts = PartNeeds(plan)
    needs = [(parts.need([*root, target]), target) for target in targets if not is_root(target)]
    able = [target for need, target in sorted(needs, key=_by_need) if need.fits(room.space)]
    if not room.takes_reserve and not able:
        return [], 0
    chosen: list[PartitionPlan] = []
    for target in able:
        more = [*root, *chosen, target]
        if len(chosen) == MOST_NAMED or not need_of_part(plan, more).fits(room.space):
            break
        chosen.append(target)
    part = part_of(plan, [*root, *chosen])
    if chosen and room.takes_reserve and why_reserve_does_not_do(part, [*root, *chosen]):
        return [], 0
    return chosen, len(able)


def _by_need(one: tuple[Need, PartitionPlan]) -> tuple[int, str, int]:
    return one[0].bytes, one[1].topic, one[1].partition


def _keeping(plan: Plan, keep: str) -> Plan:
    return replace(plan, policy=replace(plan.policy, keep=keep))


def _if_freed(plan: Plan, targets: Sequence[PartitionPlan]) -> list[PartitionPlan]:
    """The same as if apply freed originals; nothing, if it does so already."""
    if plan.policy.keep != INPLACE:
        return []
    other = [
        target if is_root(target) else with_figures(with_undo(UNTIL_VERIFIED, target)) for target in targets
    ]
    return in_apply_order(UNTIL_VERIFIED, other)


def _first_groups(plan: Plan, targets: Sequence[PartitionPlan]) -> list[Need]:
    """What the first group of each target needs, with all that has to be staged with it."""
    firsts = []
    for target in targets:
        groups = [change for change in target.changes if is_let_go(change)]
        rest = [change for change in target.changes if change not in groups[1:]]
        firsts.append(replace(target, changes=tuple(rest)))
    parts = PartNeeds(plan)
    return [parts.need([first]) for first in firsts]


# -- root's reserve


def _with_reserve(plan: Plan, space: Space, at: Options | None) -> list[_Room]:
    """The space with the blocks that are reserved for root, where the caller is root and there are some."""
    if os.geteuid() != 0 or (at is not None and at.use_reserved):
        return []
    try:
        more = read_space(plan.log_dir, use_reserved=True)
    except (KrepairError, OSError):
        return []
    if more.free_bytes <= space.free_bytes:
        return []
    place = with_options(at, use_reserved=True) if at is not None else Options(use_reserved=True)
    return [_Room(space._replace(free_bytes=more.free_bytes), place, more.free_bytes - space.free_bytes)]


def _reserve_hint(room: _Room) -> str:
    if not room.more:
        return ""
    return f" with --use-reserved (on this disk {bytes_words(room.more)} are free for root alone)"


def why_reserve_does_not_do(plan: Plan, targets: Sequence[PartitionPlan]) -> str:
    """Why root's reserve must not be used: the broker would not have what its next start needs; or empty.

    A plan that ends with more bytes free than there were is a step out of a full disk. It takes nothing from a broker
    that cannot start anyway, so it is not refused.

    Args:
        plan: reviewed.
        targets: what is left to do.

    Raises:
        RefusedError: it is not known what is reserved.
    """
    if os.stat(plan.log_dir).st_uid == 0:
        return ""  # a broker that is root may use the reserve itself
    stays = bytes_that_stay(plan, targets)
    left = read_reserve(plan.log_dir).free_for_others - stays
    needs = needed_at_most(read_log_dir(plan.log_dir))
    if left >= needs or stays <= 0:
        return ""
    return (
        f"{plan.log_dir}: after it {bytes_words(max(left, 0))} would be free for the broker, which is not root "
        f"and needs up to {bytes_text(needs)} for its start; this plan frees nothing before krepair purge"
    )


def still_short_after(plan: Plan, targets: Sequence[PartitionPlan]) -> str:
    """What a broker still lacks after a plan that takes root's reserve; or empty."""
    if os.stat(plan.log_dir).st_uid == 0:
        return ""
    left = read_reserve(plan.log_dir).free_for_others - bytes_that_stay(plan, targets)
    needs = needed_at_most(read_log_dir(plan.log_dir))
    if left >= needs:
        return ""
    return (
        f"After it {bytes_words(max(left, 0))} are free for the broker, which is not root and needs up to "
        f"{bytes_text(needs)} for its start: apply this plan, then plan the rest before you start the broker."
    )
