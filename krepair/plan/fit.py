"""Compare the space that the changes and the next start need with the free space. No other module compares the two.

Bytes and files are treated alike: a file system needs a free inode for a new file as well as free blocks.
``krepair.plan.space`` computes what a change costs, and ``krepair.logdir.space`` reads what a file system has.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from krepair.formats.words import count_text
from krepair.logdir.space import VolumeSpace
from krepair.plan.changes import lines_of
from krepair.plan.keep import AUTO, INPLACE, is_freed_by_apply, undo_for
from krepair.plan.model import KeepOriginal, PartitionPlan, Plan, Policy, Room, RootPlan
from krepair.plan.planfile import kept_sizes
from krepair.plan.space import (
    COPY_FIGURES,
    NOTHING,
    ExtraSpace,
    apply_order,
    as_freed,
    changes_extra_space,
    extra_space,
    parts_of,
    plan_copy_bytes,
    root_extra_space,
)
from krepair.plan.view import bytes_text, bytes_words

NO_ROOM: Final = "no-room"
"""Code of a partition that is skipped because its changes do not fit on the disk now."""
WHY_NO_ROOM: Final = "its changes do not fit on the disk now"
AFTER_PURGE: Final = "after this plan is applied and purged"
_NO_LIMIT: Final = 1 << 62
_FILES_OF_THE_ROOT: Final = 40
"""Upper bound of the files in the root, with the copy of the plan."""


def room_in(path: str, space: VolumeSpace, start_bytes: int = 0, start_files: int = 0) -> Room:
    """Return the space that is free for the broker's user, and the reserve that only root may use.

    Args:
        path: path of the log directory; if its owner is root, so is the broker, which may use the reserve too.
        space: free space of its file system.
        start_bytes: bytes that the next start may write.
        start_files: number of files that the next start may create.
    """
    free, reserve = space.free_bytes, space.reserve_bytes
    if os.stat(path).st_uid == 0:
        free, reserve = max(free, 0) + reserve, 0
    return Room(
        free_bytes=free,
        reserve_bytes=reserve if os.geteuid() == 0 else 0,
        start_bytes=start_bytes,
        free_files=UNSET if space.free_inodes < 0 else space.free_inodes,
        start_files=UNSET if space.free_inodes < 0 else start_files,
    )


def _bytes_for(room: Room, need: ExtraSpace) -> int:
    """Return the bytes that are free for a need, with root's reserve only if the need gives back all that it takes."""
    return room.free_bytes + (room.reserve_bytes if need.after <= 0 else 0)


def _files_in(room: Room) -> int:
    return _NO_LIMIT if isinstance(room.free_files, UnsetType) else room.free_files


class Fit(NamedTuple):
    """Result of fitting a plan into the free space.

    Attributes:
        begin: need of the partition that needs least, with the root and the copy of the plan.
        lacks: bytes that have to become free before any partition fits; 0 if a partition fits.
        lacks_files: number of files that have to become free before any partition fits; 0 if a partition fits.
        left: folders of partitions that do not fit, even after everything before them is freed.
        needs: need of all partitions that fit, with the root and the copy of the plan.
    """

    begin: ExtraSpace
    lacks: int
    lacks_files: int
    left: tuple[str, ...]
    needs: ExtraSpace


def fit_of(plan: Plan, room: Room, *, as_it_is: bool = False) -> Fit:
    """Fit a plan into the free space; its partitions make room for each other.

    The copy of the plan is written first, and as a whole: each included partition takes room from the partitions before
    it.

    Args:
        plan: the plan, with its undo decided, or with all originals freed.
        room: space that is free.
        as_it_is: if true, the copy holds the whole plan even if not all of it fits; else it lacks the partitions that
            do not fit.
    """
    block = plan.policy.block_bytes
    size, sizes = kept_sizes(plan)
    size += COPY_FIGURES + (sum(sizes.values()) if as_it_is else 0)
    root = root_extra_space(plan)
    files = _files_in(room)
    top = ExtraSpace(root.peak, root.peak, root.files + 1, root.files + 1)
    spare = _NO_LIMIT  # least bytes that stay free at any moment of the partitions included so far
    begin: tuple[int, int, ExtraSpace] | None = None
    unfit = []
    for partition in apply_order(plan):
        need = extra_space(partition, plan.policy)
        more = 0 if as_it_is else sizes[partition.folder]
        grows = _whole(size + more, block) - _whole(size, block)
        now = ExtraSpace(top.after + need.peak + _whole(size + more, block), 0, top.files_after + need.files)
        has = _bytes_for(room, need)
        lacks, lacks_files = max(now.peak - has, grows - spare, 0), max(now.files - files, 0)
        if begin is None or (lacks, lacks_files, now.peak) < (*begin[:2], begin[2].peak):
            begin = lacks, lacks_files, now
        if lacks or lacks_files:
            unfit.append(partition.folder)
        else:
            spare = min(spare - grows, has - now.peak)
            top = top.then(need)
            size += more
    copy = _whole(size, block)
    if begin is None:
        now = ExtraSpace(top.peak + copy, 0, top.files)
        begin = max(now.peak - room.free_bytes, 0), max(now.files - files, 0), now
    needs = ExtraSpace(top.peak + copy, top.after + copy, top.files, top.files_after)
    if len(unfit) < len(plan.changing):
        return Fit(begin[2], 0, 0, tuple(unfit), needs)
    return Fit(begin[2], begin[0], begin[1], tuple(unfit), needs)


def fits_whole(plan: Plan, room: Room) -> bool:
    """Return whether all of a plan fits, judging by its own figure and an upper bound of its files, without work."""
    files = sum(12 + len(partition.files) + 8 * len(partition.changes) for partition in plan.changing)
    return plan.peak_extra_bytes <= room.free_bytes and files + _FILES_OF_THE_ROOT <= _files_in(room)


def _whole(size: int, block: int) -> int:
    return -(-size // block) * block


# -- --keep auto


def with_undo_decided(plan: Plan) -> tuple[PartitionPlan, ...]:
    """Return the partitions of a plan with ``undo`` set for each change, as its policy says.

    With ``--keep auto`` originals are kept as long as everything kept, everything later (as if it were freed) and the
    next start fit into what is free for the broker's user; else they are freed. Within a partition the first changes
    are freed: undo rolls back the last change first, and stops at a change whose originals were freed.
    """
    policy = plan.policy
    if policy.keep != AUTO:
        return tuple(
            replace(
                partition,
                changes=tuple(
                    replace(change, undo=undo_for(policy.keep, change)) for change in partition.changes
                ),
            )
            for partition in plan.partitions
        )
    room = policy.room
    assert not isinstance(room, UnsetType)
    freed = replace(plan, partitions=tuple(map(as_freed, plan.partitions)))
    unfit = frozenset(fit_of(freed, room).left)
    order = [partition for partition in apply_order(freed) if partition.folder not in unfit]
    needs_after = [NOTHING]
    for partition in reversed(order):
        needs_after.append(extra_space(partition, policy).then(needs_after[-1]))
    made = {partition.folder: partition for partition in freed.partitions}
    without_unfit = tuple(
        replace(partition, changes=()) if partition.folder in unfit else partition
        for partition in freed.partitions
    )
    copy = plan_copy_bytes(replace(freed, partitions=without_unfit))
    root = root_extra_space(plan)
    top = ExtraSpace(0, copy + root.peak + room.start_bytes, 0, root.files + 1 + _start_files(room))
    for partition, later in zip(order, needs_after[-2::-1], strict=True):
        free = ExtraSpace(room.free_bytes - top.after, 0, _files_in(room) - top.files_after)
        kept = _keeping_what_fits(partition, policy, free, later)
        made[partition.folder] = kept
        top = top.then(extra_space(kept, policy))
    return tuple(made[partition.folder] for partition in plan.partitions)


def _start_files(room: Room) -> int:
    return 0 if isinstance(room.start_files, UnsetType) else room.start_files


def _keeping_what_fits(
    partition: PartitionPlan, policy: Policy, free: ExtraSpace, later: ExtraSpace
) -> PartitionPlan:
    """Free the originals of the first groups, just enough to keep the rest of the partition; or of all groups.

    Args:
        partition: partition in which everything is freed that may be.
        policy: policy of the plan.
        free: bytes and files that are free, as the highest peaks that they allow.
        later: need of the partitions after it.
    """
    parts = parts_of(partition, policy)
    kept_from = [parts.end_if_kept.then(later)]
    for group in reversed(parts.groups):
        kept_from.append(group.needs.then(kept_from[-1]))
    freed_to = parts.begin
    for count in range(len(parts.groups) + 1):
        needs = freed_to.then(kept_from[-1 - count])
        if needs.peak <= free.peak and needs.files <= free.files:
            goes = {group.change.change_id for group in parts.groups[:count]}
            changes = tuple(
                change if change.change_id in goes else replace(change, undo=KeepOriginal())
                for change in partition.changes
            )
            return replace(partition, changes=changes)
        if count < len(parts.groups):
            freed_to = freed_to.then(parts.groups[count].freed())
    return partition


# -- a plan is reduced to what fits now


def without_room(plan: Plan, room: Room) -> tuple[str, ...]:
    """Return folders of the partitions that do not fit beside the others; none if nothing fits at all."""
    folders = fit_of(plan, room).left
    return folders if len(folders) < len(plan.changing) else ()


def root_without(root: RootPlan | None, gone: Iterable[PartitionPlan]) -> RootPlan | None:
    """Return the changes of the root without the entries of some partitions; None if no change remains."""
    if root is None:
        return None
    keys = {(partition.topic, partition.partition) for partition in gone}
    changes = []
    for change in root.changes:
        lines = lines_of(change)
        stay = tuple(line for line in lines if (line.topic, line.partition) not in keys)
        if lines and not stay:
            continue
        changes.append(change if stay == lines else replace(change, lines=stay))
    names = {change.name for change in changes}
    files = tuple(file for file in root.files if file.name in names)
    return replace(root, changes=tuple(changes), files=files) if changes else None


class Shortage(NamedTuple):
    """Shortage of space: why a plan does not fit.

    Attributes:
        text: need and free space, in words.
        bytes: bytes that have to become free before a plan of one partition fits; 0 if only files are missing.
        files: number of files that have to become free before a plan of one partition fits.
        all_bytes: bytes that have to become free before this plan fits.
        all_files: number of files that have to become free before this plan fits.
    """

    text: str
    bytes: int
    files: int
    all_bytes: int
    all_files: int


def shortage_of(plan: Plan, space: VolumeSpace, *, for_root: bool = False) -> Shortage | None:
    """Return why a plan does not fit; None if it fits.

    With originals kept in place, everything is staged before the first change, so all of it has to fit.

    Args:
        plan: the part of the plan that is not carried out yet.
        space: free space of the disk.
        for_root: if true, root will apply it, whoever asks now.
    """
    room = room_in(plan.log_dir, space)
    if for_root:
        room = replace(room, reserve_bytes=space.reserve_bytes if room.free_bytes < _all_of(space) else 0)
    if fits_whole(plan, room):
        return None
    fit = fit_of(plan, room, as_it_is=True)
    if plan.policy.keep == INPLACE and fit.left:
        needs, when = whole_needs(plan), "while it is applied"
        lacks = max(needs.peak - _bytes_for(room, needs), 0)
        lacks_files = max(needs.files - _files_in(room), 0)
    else:
        needs, lacks, lacks_files, when = fit.begin, fit.lacks, fit.lacks_files, "to begin"
    if not lacks and not lacks_files:
        return None
    least = fit_of(plan, room)  # a new plan would consist of what fits
    bytes_wanted = f"{bytes_words(needs.peak)} on top {when}, {free_text(space, room)}" if lacks else ""
    files_wanted = (
        f"{count_text(needs.files, 'new file')} {when}, the file system has room for {_files_in(room):,}"
        if lacks_files
        else ""
    )
    text = " and ".join(filter(None, (bytes_wanted, files_wanted)))
    return Shortage(text, least.lacks, least.lacks_files, lacks, lacks_files)


def whole_needs(plan: Plan) -> ExtraSpace:
    """Return the need of the whole plan, whether it fits or not."""
    top, copy = changes_extra_space(plan), plan_copy_bytes(plan)
    return ExtraSpace(top.peak + copy, top.after + copy, top.files + 1, top.files_after + 1)


def _all_of(space: VolumeSpace) -> int:
    """Return the bytes that are free for a broker that runs as root."""
    return max(space.free_bytes, 0) + space.reserve_bytes


def free_text(space: VolumeSpace, room: Room) -> str:
    """Describe the free space, and for whom it is free."""
    free = bytes_text(max(room.free_bytes, 0))
    if space.reserve_bytes and room.free_bytes < _all_of(space):
        return f"{free} are free for users, {bytes_text(space.reserve_bytes)} for root"
    return f"{free} are free"


def why_not_begun(plan: Plan, partition: PartitionPlan, space: VolumeSpace) -> str:
    """Return why the disk has no room for a partition, or an empty string.

    Originals that ``--keep auto`` keeps must leave room for the next start, and must not use root's reserve.
    """
    policy = plan.policy
    need, room = extra_space(partition, policy), room_in(plan.log_dir, space)
    keeps = any(change.by_itself and not is_freed_by_apply(change) for change in partition.changes)
    bytes_needed, files_needed = need.peak, need.files
    if keeps and isinstance(policy.room, Room):
        bytes_needed += policy.room.start_bytes
        files_needed += _start_files(policy.room)
    has = _bytes_for(room, need) if policy.keep == AUTO else room.free_bytes + room.reserve_bytes
    if bytes_needed > has:
        return f"{partition.folder}: needs {bytes_needed} bytes, {max(has, 0)} are free; it is left as it is"
    if files_needed > _files_in(room):
        files = count_text(files_needed, "new file")
        return f"{partition.folder}: needs {files}, {_files_in(room)} are free; it is left as it is"
    return ""


# -- the next start


def shortage_at_start(
    bytes_needed: int, files_needed: int, free_bytes: int, free_files: int
) -> tuple[int, int]:
    """Return bytes and files that the next start lacks; free space is -1 if it is unknown or unlimited."""
    return (
        max(bytes_needed - free_bytes, 0) if free_bytes >= 0 else 0,
        max(files_needed - free_files, 0) if free_files >= 0 else 0,
    )
