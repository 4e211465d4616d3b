"""Whether a plan fits on the disk: the space and the files that its apply needs on top, against what is free now.

It is observed when ``plan`` is printed, and when ``apply`` begins. It is never part of the plan file, which stays the
same bytes for the same directory, options and clock.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from krepair.errors import KrepairError
from krepair.logdir.space import Space, read_reserve, read_space
from krepair.logdir.view import read_log_dir
from krepair.ops.again import plan_command
from krepair.ops.kept import by_id_command, kept_originals
from krepair.ops.show import show_view
from krepair.ops.target import is_root, targets_of
from krepair.options import Options
from krepair.plan.actions.table import action_of
from krepair.plan.facts import sizes_by_name
from krepair.plan.figures import in_apply_order, on_top_of_all, plan_copy_bytes, with_figures
from krepair.plan.keep import INPLACE, UNTIL_VERIFIED, copies_in, is_copied, is_freed_by_apply, with_undo
from krepair.plan.model import Change, PartitionPlan, Plan
from krepair.plan.view import Section, View, bytes_text

FILES_OF_A_TARGET: Final = 12
"""Folders, journals, fence files and the copy of the plan in one private sub-folder."""


class Need(NamedTuple):
    """What is needed on top while changes are applied.

    Attributes:
        bytes: at the peak.
        files: new files and folders; a kept original is one more name of a file that is there.
    """

    bytes: int
    files: int

    def fits(self, space: Space) -> bool:
        """Whether there is room for it."""
        return self.bytes <= space.free_bytes and (space.free_inodes < 0 or self.files <= space.free_inodes)


def need_of_all(plan: Plan, targets: Iterable[PartitionPlan]) -> Need:
    """What several targets of a plan need, one after the other as apply takes them, with the copy of the plan."""
    return _need(plan, targets, plan_copy_bytes(plan))


def needs_alone(plan: Plan, targets: Iterable[PartitionPlan]) -> list[Need]:
    """What each target needs by itself, with the copy of the plan, whose size is worked out once."""
    copy = plan_copy_bytes(plan)
    return [_need(plan, [target], copy) for target in targets]


def _need(plan: Plan, targets: Iterable[PartitionPlan], copy: int) -> Need:
    changing = [target for target in targets if target.changes]
    if not changing:
        return Need(0, 0)
    # The root is changed in two parts, around the partitions.
    root = on_top_of_all(target for target in changing if is_root(target)).peak
    partitions = on_top_of_all(target for target in changing if not is_root(target)).peak
    return Need(copy + root + partitions, sum(map(_files_of, changing)) + _files_of_a_group(changing))


def _files_of(target: PartitionPlan) -> int:
    """Files that stay until the end."""
    staying = [change for change in target.changes if not _is_let_go(change)]
    # A cut log keeps its cut bytes in a file of their own.
    return FILES_OF_A_TARGET + sum(len(action_of(change).touches(change).makes) + 1 for change in staying)


def _files_of_a_group(targets: Iterable[PartitionPlan]) -> int:
    """Files of the one group that is staged: the files that it replaces are gone before the next one."""
    groups = [change for target in targets for change in target.changes if _is_let_go(change)]
    return max((len(action_of(change).touches(change).makes) + 1 for change in groups), default=0)


def _is_let_go(change: Change) -> bool:
    return is_freed_by_apply(change) and action_of(change).by_itself(change)


def shortage(plan: Plan, targets: Sequence[PartitionPlan], space: Space) -> str:
    """Why changes do not fit, with the figures; empty if they do."""
    need = need_of_all(plan, targets)
    if need.fits(space):
        return ""
    if need.bytes > space.free_bytes:
        what = f"{need.bytes} bytes on top while it is applied, {space.free_bytes} are free"
    else:
        what = f"{need.files} new files while it is applied, the file system has room for {space.free_inodes}"
    return f"{plan.log_dir}: the plan needs {what}; {way_out(plan, targets, space)}"


def copies_shortage(plan: Plan, targets: Iterable[PartitionPlan]) -> str:
    """Why the copies of originals do not fit where ``--keep`` wants them; empty if they do, or if there are none."""
    path = copies_in(plan.policy.keep)
    needed = sum(
        action_of(change).space(change, sizes_by_name(target.files)).taken_out
        for target in targets
        for change in target.changes
        if is_copied(change)
    )
    if not path or not needed:
        return ""
    free = read_space(path).free_bytes
    return "" if needed <= free else f"{path}: the copies of originals need {needed} bytes, {free} are free"


def way_out(plan: Plan, targets: Sequence[PartitionPlan], space: Space) -> str:
    """What to do instead, in words."""
    freeing = _if_freed(plan, targets)
    if freeing and need_of_all(plan, freeing).fits(space):
        most = need_of_all(plan, freeing).bytes
        return (
            f"with --keep until-verified it fits: {most} bytes, since what one group frees is there for the next one; "
            "what is freed cannot be undone"
        )
    able = _fit_alone(plan, freeing or targets, space)
    if able and len(targets) > 1:
        fitting = f"{len(able)} of its {len(targets)} parts fit, one at a time"
        if freeing:
            return f"{fitting}, with --keep until-verified: plan and apply one, then the next"
        return f"{fitting}: plan, apply, verify and purge one, then the next"
    least = min(need.bytes for need in _first_groups(plan, freeing or targets)) - space.free_bytes
    more = (
        f"at least {max(least, 0)} more bytes have to be free" if least > 0 else "room for files is missing"
    )
    could = removable(plan.log_dir)
    safe = (
        f"; what can safely go: {'; '.join(could)}"
        if could
        else "; krepair knows of nothing here that can go"
    )
    return f"not even one group of it fits: {more}{safe}"


def next_command(
    plan: Plan, targets: Sequence[PartitionPlan], space: Space, at: Options | None = None
) -> str:
    """What to type next where a plan does not fit.

    Args:
        plan: the plan.
        targets: what is left to do.
        space: what is free.
        at: where the work is done, see ``krepair.ops.again.plan_command``.
    """
    freeing = _if_freed(plan, targets)
    keep = UNTIL_VERIFIED if freeing else None
    if freeing and need_of_all(plan, freeing).fits(space):
        return plan_command(plan, keep=keep, at=at)
    able = [target for target in _fit_alone(plan, freeing or targets, space) if target.topic]
    if able and len(targets) > 1:
        return plan_command(plan, keep=keep, only=(able[0].topic, able[0].partition), at=at)
    return f"krepair purge {shlex.quote(plan.log_dir)}"


def removable(log_dir: str) -> tuple[str, ...]:
    """What lies in a log directory and could go without loss, each with its bytes and the command; reads no file."""
    try:
        view = read_log_dir(log_dir)
    except KrepairError:
        return ()
    found = [
        f"{kept.bytes} bytes that plan {kept.plan_id} keeps ({by_id_command('purge', log_dir, kept.plan_id)}; no undo "
        "after it)"
        for kept in kept_originals(view, 0)
        if kept.bytes
    ]
    left = [
        one.file.size
        for part in view.partitions
        for one in part.leftovers
        if one.kind in {"deleted", "cleaned"}
    ]
    left += [file.size for part in view.partitions for file in part.orphan_indexes]
    if sum(left):
        found.append(
            f"{sum(left)} bytes in {len(left)} files that brokers left behind (KR701; krepair plan "
            f"{shlex.quote(log_dir)} --fix leftovers --keep until-verified, or the next start of the broker)"
        )
    deleted = [file.size for part in view.marked if part.role == "delete" for file in part.files()]
    if sum(deleted):
        found.append(
            f"{sum(deleted)} bytes of deleted partitions (KR701; the next start of the broker removes them)"
        )
    return tuple(found)


def _if_freed(plan: Plan, targets: Sequence[PartitionPlan]) -> list[PartitionPlan]:
    """The same as if apply freed originals; nothing, if it does so already."""
    if plan.policy.keep != INPLACE:
        return []
    other = [
        target if is_root(target) else with_figures(with_undo(UNTIL_VERIFIED, target)) for target in targets
    ]
    return in_apply_order(UNTIL_VERIFIED, other)


def _first_groups(plan: Plan, targets: Iterable[PartitionPlan]) -> list[Need]:
    """What the first group of each target needs, with all that has to be staged with it."""
    firsts = []
    for target in targets:
        groups = [change for change in target.changes if _is_let_go(change)]
        rest = [change for change in target.changes if change not in groups[1:]]
        firsts.append(replace(target, changes=tuple(rest)))
    return needs_alone(plan, firsts)


def _fit_alone(plan: Plan, targets: Sequence[PartitionPlan], space: Space) -> list[PartitionPlan]:
    needs = needs_alone(plan, targets)
    return [target for target, need in zip(targets, needs, strict=True) if need.fits(space)]


def why_reserve_does_not_do(plan: Plan, targets: Sequence[PartitionPlan], start_needs: int) -> str:
    """Why root's reserve must not be used: the broker would not have what its next start needs; or empty.

    Args:
        plan: reviewed.
        targets: what is left to do.
        start_needs: bytes, see ``krepair.ops.next_start.start_space.needed_at_most``.

    Raises:
        RefusedError: it is not known what is reserved.
    """
    after = on_top_of_all(targets).after + plan_copy_bytes(plan)
    left = read_reserve(plan.log_dir).free_for_others - after
    broker_is_root = os.stat(plan.log_dir).st_uid == 0
    if left >= start_needs or broker_is_root:
        return ""
    way = "krepair purge it before the start" if plan.policy.keep == INPLACE else "free more before"
    hint = "; plan it with --keep until-verified" if plan.policy.keep == INPLACE else ""
    return (
        f"{plan.log_dir}: after it {max(left, 0)} bytes would be free for the broker, which is not root and needs up "
        f"to {start_needs} for its start; {way}{hint}"
    )


def planned_view(plan: Plan, path: str, options: Options | None = None) -> View:
    """The page of a plan that was made just now: with what is free on its disk. First where it does not fit.

    Args:
        plan: the plan.
        path: of its file.
        options: as typed; ``use_reserved`` counts, and where the work is done.

    Raises:
        RefusedError: ``--use-reserved``, and it is not known what is reserved.
    """
    page, targets = show_view(plan, path), targets_of(plan)
    if not targets:
        return page
    try:
        space = read_space(plan.log_dir, use_reserved=options is not None and options.use_reserved)
    except OSError:
        return page  # the plan is made; what cannot be looked at, apply says
    observed = fit_section(plan, targets, space, options)
    fits = need_of_all(plan, targets).fits(space) and not copies_shortage(plan, targets)
    sections = (*page.sections, observed) if fits else (observed, *page.sections)
    return View(title=page.title, sections=sections)


def fit_section(
    plan: Plan, targets: Sequence[PartitionPlan], space: Space, options: Options | None = None
) -> Section:
    """The observation as a section of a page; see ``planned_view``."""
    need = need_of_all(plan, targets)
    inodes = "" if space.free_inodes < 0 else f", and room for {space.free_inodes:,} files"
    lines = [
        f"Bytes free now: {bytes_text(space.free_bytes)}{inodes}.",
        f"Bytes needed on top while the plan is applied: {bytes_text(need.bytes)}, for {need.files:,} files.",
    ]
    copies = copies_shortage(plan, targets)
    if copies:
        lines.append(f"{copies}.")
        return Section(title="Its copies do NOT fit: apply will refuse it", lines=tuple(lines))
    if need.fits(space):
        return Section(title="It fits on the disk", lines=tuple(lines))
    advice = way_out(plan, targets, space)
    lines.append(f"{advice[0].upper()}{advice[1:]}.")
    return Section(
        title="It does NOT fit on the disk: apply will refuse it",
        lines=tuple(lines),
        commands=(next_command(plan, targets, space, options),),
    )
