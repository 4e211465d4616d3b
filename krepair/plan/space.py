"""Every figure of space: the blocks of the disk that changes need, keep and give back. Pure.

What is free is read in ``krepair.ops.room``. Figures are upper bounds of what is needed, and so lower bounds of what
comes back: the sizes of new indexes are, and a change has a block for each folder entry that it may need.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from krepair.formats.filenames import LOG, SEGMENT_SUFFIXES
from krepair.plan.facts import OnDisk
from krepair.plan.keep import AUTO, INPLACE, UNTIL_VERIFIED, is_freed_by_apply, undo_for
from krepair.plan.model import Change, KeepOriginal, PartitionPlan, Plan, Policy, ReasonTally, Room
from krepair.plan.planfile import kept_copy
from krepair.rules.reasons import Reason

ROUNDING_BYTES: Final = 4096
"""Bytes that a new file may need beyond its size: one block."""

REMOVAL_BYTES: Final = 1024
"""Bytes that the removal of a file needs: two records in the journal, and a folder entry for the kept file."""

PRIVATE_FOLDER_BYTES: Final = 64 * 1024
"""Bytes for journal, folder and fence files of one partition during apply."""

_OF_FIGURES: Final = 256
"""Bytes of the copy of a plan for the fields that depend on its size, and are left out where it is worked out."""


class Space(NamedTuple):
    """What a change costs and frees: bytes of blocks on the disk, but for ``log_shrinks``.

    Attributes:
        made: what its new files take at most.
        back: what is free once its originals are gone.
        peak: what it needs on top while it is applied.
        log_shrinks: bytes that the ``.log`` files of the partition lose; negative if they grow.
        kept_anew: what keeping its originals takes besides ``made``: bytes that are kept as a copy.
    """

    made: int
    back: int
    peak: int
    log_shrinks: int
    kept_anew: int = 0


def space_of(change: Change, on_disk: OnDisk) -> Space:
    """The space that a change needs and frees.

    Of a log that is cut in its place only the bytes that go are copied. A broker's swap only changes
    its name.

    Args:
        change: the change.
        on_disk: what the files of the partition take.
    """
    made = back = copied = kept_anew = shrinks = 0
    for file in change.files:
        before, after = on_disk.sizes.get(file.name, 0), max(file.size, 0)
        comes_back = on_disk.freed_without([file.name])
        if file.how == "cut":
            kept = on_disk.takes(before - after)
            comes_back = max(comes_back - on_disk.takes(after), 0)
            copied += kept
            kept_anew += kept - comes_back
        elif file.how not in {"swapped", "goes", "swap"}:
            made += on_disk.takes(after)
        if file.how != "swap":
            back += comes_back
        if file.copied:
            copied += on_disk.takes(before)
        if file.name.endswith(LOG):
            shrinks += before - after
    return Space(made, back, made + copied + _entries(change), shrinks, kept_anew)


def _entries(change: Change) -> int:
    """Bytes for the folder entries of the new files, and of a front or a copy of a log that loses bytes."""
    if not change.leaves:
        return REMOVAL_BYTES * len(change.takes_out)
    if change.in_order:
        return ROUNDING_BYTES * len(SEGMENT_SUFFIXES)
    return ROUNDING_BYTES * (len(change.leaves) + bool(change.log_effect.ranges))


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


def freed_at_apply(change: Change, space: Space) -> int:
    """Bytes that are free right after apply; negative while the originals are kept."""
    return (space.back if is_freed_by_apply(change) else -space.kept_anew) - space.made


class _Parts(NamedTuple):
    """The changes of a partition, by when they are staged.

    Attributes:
        begin: what is there until the end: journal and folders, and all that is staged before the first group.
        comes_back: bytes of originals of these that can be freed, once the last group is done.
        groups: each by itself: what it needs, and how much of that its originals give back.
    """

    begin: OnTop
    comes_back: int
    groups: list[tuple[Change, OnTop, int]]


def _parts_of(partition: PartitionPlan, policy: Policy) -> _Parts:
    on_disk = OnDisk.of(partition.files, policy)
    staged_first, comes_back = PRIVATE_FOLDER_BYTES, 0
    groups = []
    for change in partition.changes:
        space = space_of(change, on_disk)
        if change.by_itself:
            groups.append((change, OnTop(space.peak, space.peak), space.back))
        else:
            staged_first += space.peak
            comes_back += space.back if is_freed_by_apply(change) else 0
    return _Parts(OnTop(staged_first, staged_first), comes_back, groups)


def on_top(partition: PartitionPlan, policy: Policy) -> OnTop:
    """The extra bytes that the changes of one partition, or of the root, need.

    Changes that cannot be staged by themselves are staged before the first group, and freed after the last one.
    """
    if not partition.changes:
        return NOTHING
    parts = _parts_of(partition, policy)
    together = parts.begin
    for change, top, back in parts.groups:
        together = together.then(OnTop(top.peak, top.after - (back if is_freed_by_apply(change) else 0)))
    return together.then(OnTop(0, -parts.comes_back))


def on_top_of_all(partitions: Iterable[PartitionPlan], policy: Policy) -> OnTop:
    """The extra bytes that partitions need if they are changed one after the other, in this order."""
    together = NOTHING
    for partition in partitions:
        together = together.then(on_top(partition, policy))
    return together


# -- the order of apply


def apply_order(plan: Plan) -> list[PartitionPlan]:
    """Partitions with changes, in the order in which apply carries them out.

    If originals are kept in place, partitions that free most and need the least extra space come first. If apply itself
    frees originals, partitions that need the least come first, so that others can use the bytes that they free.
    Partitions that free nothing come last, the largest need first. If a disk has too little space for this order, it
    has too little for every order.
    """
    changing = [partition for partition in plan.partitions if partition.changes]
    if plan.policy.keep == INPLACE:
        return sorted(changing, key=_most_for_least)
    needs = {one.folder: on_top(_as_freed(one), plan.policy) for one in changing}
    return sorted(changing, key=lambda one: (*_fits_first(needs[one.folder]), _name(one)))


def _as_freed(partition: PartitionPlan) -> PartitionPlan:
    """The partition as if apply freed all originals that it may free."""
    changes = tuple(replace(change, undo=undo_for(UNTIL_VERIFIED, change)) for change in partition.changes)
    return replace(partition, changes=changes)


def _most_for_least(partition: PartitionPlan) -> tuple[float, tuple[str, int]]:
    return -partition.freed_at_purge / max(partition.peak_extra_bytes, 1), _name(partition)


def _fits_first(need: OnTop) -> tuple[bool, int, int]:
    if need.after <= 0:
        return False, need.peak, need.after
    return True, need.after - need.peak, need.after


def _name(partition: PartitionPlan) -> tuple[str, int]:
    return partition.topic, partition.partition


# -- the whole plan


def root_on_top(plan: Plan) -> OnTop:
    """What files of the root need. They are changed around all partitions, and are always kept."""
    if plan.root is None:
        return NOTHING
    root = PartitionPlan(
        topic="", partition=0, folder="", status="change", files=plan.root.files, changes=plan.root.changes
    )
    return on_top(root, plan.policy)


def plan_copy_bytes(plan: Plan) -> int:
    """Bytes that the copy of the plan beside the kept originals takes at most; 0 if the plan changes nothing.

    Fields that depend on this figure are left out.
    """
    if plan.root is None and not any(partition.changes for partition in plan.partitions):
        return 0
    block = plan.policy.block_bytes
    bare = replace(plan, peak_extra_bytes=0, freed_at_apply=0, digest="", plan_id="", unchanged_digest=UNSET)
    return -(-(len(kept_copy(bare)) + _OF_FIGURES) // block) * block


def parts_on_top(plan: Plan) -> OnTop:
    """What is needed while the root and the partitions are changed, without the copy of the plan."""
    return _kept(root_on_top(plan).peak).then(on_top_of_all(apply_order(plan), plan.policy))


def plan_peak_bytes(plan: Plan) -> int:
    """Extra bytes that are needed while the whole plan is applied. The plan's own ``peak_extra_bytes`` is ignored."""
    return parts_on_top(plan).peak + plan_copy_bytes(plan)


def free_after_apply(plan: Plan) -> int:
    """Bytes that are free right after apply at least, compared with now; negative if more is used.

    Until purge the folders of krepair, their journals and the copy of the plan take blocks beside the new files. Where
    all originals are freed they are gone, too.
    """
    changes = [change for partition in plan.partitions for change in partition.changes]
    if plan.root is None and all(map(is_freed_by_apply, changes)):
        return plan.freed_at_apply
    return -(parts_on_top(plan).after + plan_copy_bytes(plan))


def _kept(size: int) -> OnTop:
    return OnTop(size, size)


# -- --keep auto


class Fit(NamedTuple):
    """How a plan fits into a room.

    Attributes:
        begin: bytes that its first group needs, with the journal and the copy of the plan.
        lacks: bytes that have to become free before the first group fits; 0 if it does.
        left: folders of partitions that do not fit, even after all that is freed before them.
    """

    begin: int
    lacks: int
    left: tuple[str, ...]


def fit_of(plan: Plan, room: Room, copy_bytes: int) -> Fit:
    """How a plan fits whose groups make room for each other.

    What only root has counts for a partition that gives back at once what it takes.

    Args:
        plan: with its undo decided, or all freed.
        room: what is free.
        copy_bytes: of the copy of the plan.
    """
    top = copy_bytes + root_on_top(plan).peak
    begin, lacks = 0, 0
    left = []
    for partition in apply_order(plan):
        need = on_top(partition, plan.policy)
        first = begins_with(partition, plan.policy)
        has = room.free_bytes + (room.reserve_bytes if need.after <= 0 else 0)
        if not begin:
            begin, lacks = top + first, max(top + first - has, 0)
        if top + need.peak > has:
            left.append(partition.folder)
        else:
            top += need.after
    if not plan.changing:
        begin, lacks = top, max(top - room.free_bytes, 0)
    return Fit(begin, lacks if len(left) == len(plan.changing) else 0, tuple(left))


def begins_with(partition: PartitionPlan, policy: Policy) -> int:
    """Bytes that a partition needs until its first group is done."""
    parts = _parts_of(partition, policy)
    return parts.begin.peak + (parts.groups[0][1].peak if parts.groups else 0)


def decided(plan: Plan) -> tuple[PartitionPlan, ...]:
    """The partitions of a plan, each change with how it is taken back, as its policy says.

    With ``--keep auto`` originals are kept while all that is kept, what comes later as if it were freed, and the next
    start fit into what is free for the broker's user; else they are freed. Of one partition the first ones are freed:
    undo takes back the last one first, and stops where originals are gone.
    """
    policy = plan.policy
    if policy.keep != AUTO:
        return tuple(
            replace(
                one,
                changes=tuple(replace(change, undo=undo_for(policy.keep, change)) for change in one.changes),
            )
            for one in plan.partitions
        )
    room = policy.room
    assert not isinstance(room, UnsetType)
    freed = replace(plan, partitions=tuple(map(_as_freed, plan.partitions)))
    copy_bytes = plan_copy_bytes(freed)
    left = frozenset(fit_of(freed, room, copy_bytes).left)
    order = [one for one in apply_order(freed) if one.folder not in left]
    laters = [NOTHING]
    for one in reversed(order):
        laters.append(on_top(one, policy).then(laters[-1]))
    made = {one.folder: one for one in freed.partitions}
    top = copy_bytes + root_on_top(plan).peak
    for one, later in zip(order, laters[-2::-1], strict=True):
        kept = _keeping_what_fits(one, policy, room.free_bytes - room.start_bytes - top, later)
        made[one.folder] = kept
        top += on_top(kept, policy).after
    return tuple(made[one.folder] for one in plan.partitions)


def _keeping_what_fits(partition: PartitionPlan, policy: Policy, free: int, later: OnTop) -> PartitionPlan:
    """A partition whose first groups are freed, as few as make room for keeping all else of it; or all of them.

    Args:
        partition: with everything freed that may be.
        policy: of the plan.
        free: bytes.
        later: what the partitions after it need.
    """
    parts = _parts_of(partition, policy)
    kept_from = [later]
    for _, top, _ in reversed(parts.groups):
        kept_from.append(top.then(kept_from[-1]))
    freed_to = parts.begin
    for count in range(len(parts.groups) + 1):
        if freed_to.then(kept_from[-1 - count]).peak <= free:
            goes = {change.change_id for change, _, _ in parts.groups[:count]}
            changes = tuple(
                change if change.change_id in goes else replace(change, undo=KeepOriginal())
                for change in partition.changes
            )
            return replace(partition, changes=changes)
        if count < len(parts.groups):
            _, top, back = parts.groups[count]
            freed_to = freed_to.then(OnTop(top.peak, top.after - back))
    return partition


def without_undo(plan: Plan) -> list[Change]:
    """The changes of which there is no undo after apply: it begins with the last one, and stops where one is freed."""
    gone: list[Change] = []
    for one in plan.partitions:
        freed = [place for place, change in enumerate(one.changes) if is_freed_by_apply(change)]
        gone += one.changes[: freed[-1] + 1] if freed else ()
    return gone


# -- the figures of a plan that follow from other fields, for the builder

_ORDER: Final = {reason.value: place for place, reason in enumerate(Reason)}
READ_BYTES_PER_SECOND: Final = 600_000_000
WRITTEN_BYTES_PER_SECOND: Final = 200_000_000


def add_tallies(tallies: Iterable[ReasonTally]) -> tuple[ReasonTally, ...]:
    """Sums by reason, in the order of ``Reason``; an unknown code comes last."""
    batches: dict[str, int] = {}
    size: dict[str, int] = {}
    for tally in tallies:
        batches[tally.reason] = batches.get(tally.reason, 0) + tally.batches
        size[tally.reason] = size.get(tally.reason, 0) + tally.bytes
    codes = sorted(batches, key=lambda code: (_ORDER.get(code, len(_ORDER)), code))
    return tuple(ReasonTally(reason=code, batches=batches[code], bytes=size[code]) for code in codes)


def with_figures(partition: PartitionPlan, policy: Policy) -> PartitionPlan:
    """The partition with all figures that follow from its changes and files."""
    on_disk = OnDisk.of(partition.files, policy)
    spaces = [(change, space_of(change, on_disk)) for change in partition.changes]
    return replace(
        partition,
        log_bytes_after=partition.log_bytes_before - sum(space.log_shrinks for _, space in spaces),
        freed_at_apply=sum(freed_at_apply(change, space) for change, space in spaces),
        freed_at_purge=sum(space.back - space.made for _, space in spaces),
        peak_extra_bytes=on_top(partition, policy).peak,
        reasons=add_tallies(
            tally for change in partition.changes for source in change.decides_on for tally in source.reasons
        ),
    )


def made_bytes(partitions: Iterable[PartitionPlan], policy: Policy) -> int:
    """Bytes that apply writes, and that ``krepair verify PLAN`` reads."""
    return sum(
        space_of(change, on_disk).made
        for partition in partitions
        for on_disk in (OnDisk.of(partition.files, policy),)
        for change in partition.changes
    )


def expected_seconds(partitions: Iterable[PartitionPlan], policy: Policy) -> float:
    """Estimated seconds of apply, at a fixed and cautious rate.

    With a rate measured on the host, two plans of the same directory would differ.
    """
    changing = [partition for partition in partitions if partition.changes]
    read = sum(change.work.apply for one in changing for change in one.changes)
    return round(read / READ_BYTES_PER_SECOND + made_bytes(changing, policy) / WRITTEN_BYTES_PER_SECOND, 1)


def verify_seconds(plan: Plan) -> float:
    """Estimated seconds of ``krepair verify PLAN``, at the fixed rate of ``expected_seconds``."""
    return made_bytes(plan.changing, plan.policy) / READ_BYTES_PER_SECOND
