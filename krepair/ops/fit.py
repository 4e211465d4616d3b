"""Whether a plan fits on the disk: the space and the files that its apply needs on top, against what is free now.

It is observed when ``plan`` is printed, and when ``apply`` begins. It is never part of the plan file, which stays the
same bytes for the same directory, options and clock.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from krepair.logdir.space import Space, read_space
from krepair.ops.show import show_view
from krepair.ops.target import targets_of
from krepair.plan.actions.table import action_of
from krepair.plan.facts import sizes_by_name
from krepair.plan.figures import PRIVATE_FOLDER_BYTES, peak_bytes, plan_copy_bytes
from krepair.plan.model import PartitionPlan, Plan
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


def need_of(target: PartitionPlan) -> Need:
    """What the changes of one target need; nothing, if there are none."""
    if not target.changes:
        return Need(0, 0)
    sizes = sizes_by_name(target.files)
    made = sum(len(action_of(change).touches(change).makes) for change in target.changes)
    peak = PRIVATE_FOLDER_BYTES + sum(peak_bytes(change, sizes) for change in target.changes)
    # A cut log keeps its cut bytes in a file of their own.
    return Need(peak, FILES_OF_A_TARGET + made + len(target.changes))


def need_of_all(plan: Plan, targets: Iterable[PartitionPlan]) -> Need:
    """What several targets of a plan need together, with the copy of the plan."""
    needs = [need for need in map(need_of, targets) if need.files]
    copy = plan_copy_bytes(plan) if needs else 0
    return Need(copy + sum(need.bytes for need in needs), sum(need.files for need in needs))


def needs_alone(plan: Plan, targets: Iterable[PartitionPlan]) -> list[Need]:
    """What each target needs by itself, with the copy of the plan, whose size is worked out once."""
    copy = plan_copy_bytes(plan)
    return [Need(copy + need.bytes if need.files else 0, need.files) for need in map(need_of, targets)]


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


def way_out(plan: Plan, targets: Sequence[PartitionPlan], space: Space) -> str:
    """What to do instead, in words."""
    able = _fit_alone(plan, targets, space)
    if able and len(targets) > 1:
        fitting = f"{len(able)} of its {len(targets)} parts fit, one at a time"
        return f"{fitting}: plan, apply, verify and purge one, then the next"
    least = min(need.bytes for need in needs_alone(plan, targets)) - space.free_bytes
    more = (
        f"at least {max(least, 0)} more bytes have to be free" if least > 0 else "room for files is missing"
    )
    return f"not even one part of it fits: {more} (krepair purge frees what earlier plans keep)"


def next_command(plan: Plan, targets: Sequence[PartitionPlan], space: Space) -> str:
    """What to type next where a plan does not fit."""
    log_dir = shlex.quote(plan.log_dir)
    able = [target for target in _fit_alone(plan, targets, space) if target.topic]
    if able and len(targets) > 1:
        name = shlex.quote(f"{able[0].topic}-{able[0].partition}")
        return f"krepair plan {log_dir} --partition {name} --out PLAN"
    return f"krepair purge {log_dir}"


def _fit_alone(plan: Plan, targets: Sequence[PartitionPlan], space: Space) -> list[PartitionPlan]:
    needs = needs_alone(plan, targets)
    return [target for target, need in zip(targets, needs, strict=True) if need.fits(space)]


def planned_view(plan: Plan, path: str) -> View:
    """The page of a plan that was made just now: with what is free on its disk. First where it does not fit."""
    page, targets = show_view(plan, path), targets_of(plan)
    if not targets:
        return page
    try:
        space = read_space(plan.log_dir)
    except OSError:
        return page  # the plan is made; what cannot be looked at, apply says
    observed = fit_section(plan, targets, space)
    fits = need_of_all(plan, targets).fits(space)
    sections = (*page.sections, observed) if fits else (observed, *page.sections)
    return View(title=page.title, sections=sections)


def fit_section(plan: Plan, targets: Sequence[PartitionPlan], space: Space) -> Section:
    """The observation as a section of a page."""
    need = need_of_all(plan, targets)
    inodes = "" if space.free_inodes < 0 else f", and room for {space.free_inodes:,} files"
    needed = f"{need.bytes:,} bytes ({bytes_text(need.bytes)}), {need.files:,} files"
    lines = [
        f"Free now: {space.free_bytes:,} bytes ({bytes_text(space.free_bytes)}){inodes}.",
        f"Needed on top while the plan is applied: {needed}.",
    ]
    if need.fits(space):
        return Section(title="It fits on the disk", lines=tuple(lines))
    advice = way_out(plan, targets, space)
    lines.append(f"{advice[0].upper()}{advice[1:]}.")
    return Section(
        title="It does NOT fit on the disk: apply will refuse it",
        lines=tuple(lines),
        commands=(next_command(plan, targets, space),),
    )
