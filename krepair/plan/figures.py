"""Computes all figures of a plan that follow from other fields, for the builder.

Sizes of new indexes are upper bounds, so at least as many bytes are freed as the plan says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from krepair.plan.actions.action import ROUNDING_BYTES, Space
from krepair.plan.actions.table import action_of
from krepair.plan.facts import setting, sizes_by_name
from krepair.plan.keep import INPLACE, is_freed_by_apply
from krepair.plan.model import Change, KeepOriginal, PartitionPlan, Plan, ReasonTally, RootPlan
from krepair.plan.planfile import dumps
from krepair.rules.reasons import Reason

_ORDER: Final = {reason.value: place for place, reason in enumerate(Reason)}

__all__ = [
    "PLAN_COPY_STEP_BYTES",
    "PRIVATE_FOLDER_BYTES",
    "OnTop",
    "add_tallies",
    "apply_order",
    "copy_of_size",
    "expected_seconds",
    "freed_at_apply",
    "in_apply_order",
    "on_top",
    "on_top_of_all",
    "peak_bytes",
    "plan_copy_bytes",
    "plan_peak_bytes",
    "risks_of",
    "root_peak_bytes",
    "setting",
    "sizes_by_name",
    "with_figures",
]

PRIVATE_FOLDER_BYTES: Final = 64 * 1024
"""Bytes for journal, folder and fence files of one partition during apply."""

PLAN_COPY_STEP_BYTES: Final = 64 * 1024
"""The size of a plan's copy is rounded up to a multiple of this, so that a plan can contain its own size."""

READ_BYTES_PER_SECOND: Final = 600_000_000
WRITTEN_BYTES_PER_SECOND: Final = 200_000_000


def peak_bytes(change: Change, sizes: Mapping[str, int]) -> int:
    """Extra bytes that are needed while a change is applied.

    Args:
        change: any change.
        sizes: sizes of the partition's files, by name.
    """
    return action_of(change).space(change, sizes).peak


class OnTop(NamedTuple):
    """The extra bytes that a series of changes needs, compared with the bytes before the first of them.

    Attributes:
        peak: largest number of extra bytes at any moment.
        after: extra bytes after all changes; negative if they have freed more than they need.
    """

    peak: int
    after: int

    def then(self, other: OnTop) -> OnTop:
        """The need of these changes followed by others."""
        return OnTop(max(self.peak, self.after + other.peak), self.after + other.after)


NOTHING: Final = OnTop(0, 0)


def on_top(changes: Iterable[Change], sizes: Mapping[str, int]) -> OnTop:
    """The extra bytes that the changes of one partition, or of the root, need.

    Changes that cannot be staged by themselves are staged before the first group, and freed after the last one.

    Args:
        changes: changes in the order of the plan.
        sizes: sizes of the files, by name.
    """
    return _on_top((change, action_of(change).space(change, sizes)) for change in changes)


def _on_top(changes: Iterable[tuple[Change, Space]]) -> OnTop:
    staged_first = freed_last = 0
    groups = NOTHING
    some = False
    for change, space in changes:
        some = True
        freed = space.logs_out if is_freed_by_apply(change) else 0
        if freed and action_of(change).by_itself(change):
            groups = groups.then(OnTop(space.peak, space.peak - freed))
        else:
            staged_first += space.peak
            freed_last += freed
    if not some:
        return NOTHING
    own = OnTop(PRIVATE_FOLDER_BYTES + staged_first, PRIVATE_FOLDER_BYTES + staged_first)
    return own.then(groups).then(OnTop(0, -freed_last))


def on_top_of_all(partitions: Iterable[PartitionPlan]) -> OnTop:
    """The extra bytes that partitions need if they are changed one after the other, in this order."""
    together = NOTHING
    for partition in partitions:
        together = together.then(on_top(partition.changes, sizes_by_name(partition.files)))
    return together


def apply_order(plan: Plan) -> list[PartitionPlan]:
    """Partitions with changes, in the order in which apply carries them out.

    If originals are kept in place, partitions that free most and need the least extra space come first. If apply itself
    frees originals, partitions that need the least come first, so that others can use the bytes that they free.
    Partitions that free nothing come last, the largest need first. If a disk has too little space for this order, it
    has too little for every order.
    """
    return in_apply_order(plan.policy.keep, plan.partitions)


def in_apply_order(keep: str, partitions: Iterable[PartitionPlan]) -> list[PartitionPlan]:
    """As ``apply_order``, for any partitions.

    Args:
        keep: see ``Policy.keep``.
        partitions: partitions in any order.
    """
    changing = [partition for partition in partitions if partition.changes]
    if keep == INPLACE:
        return sorted(changing, key=_most_for_least)
    needs = {partition.folder: on_top_of_all([partition]) for partition in changing}
    return sorted(changing, key=lambda partition: (*_fits_first(needs[partition.folder]), _name(partition)))


def _most_for_least(partition: PartitionPlan) -> tuple[float, tuple[str, int]]:
    return -partition.freed_at_purge / max(partition.peak_extra_bytes, 1), _name(partition)


def _fits_first(need: OnTop) -> tuple[bool, int, int]:
    if need.after <= 0:
        return False, need.peak, need.after
    return True, need.after - need.peak, need.after


def _name(partition: PartitionPlan) -> tuple[str, int]:
    return partition.topic, partition.partition


def root_peak_bytes(root: RootPlan | None) -> int:
    """Extra bytes that are needed while files of the root are replaced."""
    return 0 if root is None else on_top(root.changes, sizes_by_name(root.files)).peak


def plan_copy_bytes(plan: Plan) -> int:
    """Largest size of the copy of the plan beside the kept originals; 0 if the plan changes nothing.

    Fields that depend on this figure are left out. ``ROUNDING_BYTES`` has room for them.
    """
    if plan.root is None and not any(partition.changes for partition in plan.partitions):
        return 0
    return copy_of_size(len(dumps(replace(plan, peak_extra_bytes=0, digest="", plan_id=""))))


def copy_of_size(size: int) -> int:
    """Bytes that are counted for the copy of a plan whose file has so many."""
    return -(-(size + ROUNDING_BYTES) // PLAN_COPY_STEP_BYTES) * PLAN_COPY_STEP_BYTES


def plan_peak_bytes(plan: Plan) -> int:
    """Extra bytes that are needed while the whole plan is applied. The plan's own ``peak_extra_bytes`` is ignored."""
    changes = root_peak_bytes(plan.root) + on_top_of_all(apply_order(plan)).peak
    return changes + plan_copy_bytes(plan)


def freed_at_apply(change: Change, sizes: Mapping[str, int]) -> int:
    """Net bytes that are free right after apply; negative while the originals are kept."""
    return _freed_at_apply(change, action_of(change).space(change, sizes))


def _freed_at_apply(change: Change, space: Space) -> int:
    return (0 if isinstance(change.undo, KeepOriginal) else space.taken_out) - space.made


def add_tallies(tallies: Iterable[ReasonTally]) -> tuple[ReasonTally, ...]:
    """Sums by reason, in the order of ``Reason``; an unknown code comes last."""
    batches: dict[str, int] = {}
    size: dict[str, int] = {}
    for tally in tallies:
        batches[tally.reason] = batches.get(tally.reason, 0) + tally.batches
        size[tally.reason] = size.get(tally.reason, 0) + tally.bytes
    codes = sorted(batches, key=lambda code: (_ORDER.get(code, len(_ORDER)), code))
    return tuple(ReasonTally(reason=code, batches=batches[code], bytes=size[code]) for code in codes)


def with_figures(partition: PartitionPlan) -> PartitionPlan:
    """The partition with all figures that follow from its changes and files."""
    sizes = sizes_by_name(partition.files)
    spaces = [(change, action_of(change).space(change, sizes)) for change in partition.changes]
    return replace(
        partition,
        changes=tuple(action_of(change).with_figures(change, space) for change, space in spaces),
        log_bytes_after=partition.log_bytes_before - sum(space.log_shrinks for _, space in spaces),
        freed_at_apply=sum(_freed_at_apply(change, space) for change, space in spaces),
        freed_at_purge=sum(space.taken_out - space.made for _, space in spaces),
        peak_extra_bytes=_on_top(spaces).peak,
        reasons=add_tallies(
            tally
            for change in partition.changes
            for source in action_of(change).sources(change)
            for tally in source.reasons
        ),
    )


def risks_of(partition: PartitionPlan) -> frozenset[str]:
    """Codes of the risks that a plan must state for the changes of a partition."""
    return frozenset(code for change in partition.changes for code in action_of(change).risks(change))


def expected_seconds(partitions: Iterable[PartitionPlan]) -> float:
    """Estimated seconds of apply, at a fixed and cautious rate.

    With a rate measured on the host, two plans of the same directory would differ.
    """
    read = 0
    written = 0
    for partition in partitions:
        sizes = sizes_by_name(partition.files)
        for change in partition.changes:
            read += action_of(change).work(change).apply
            written += action_of(change).space(change, sizes).made
    return round(read / READ_BYTES_PER_SECOND + written / WRITTEN_BYTES_PER_SECOND, 1)
