"""Compute all space that changes need, keep and give back: blocks of the disk, and files. Pure.

``krepair.plan.fit`` computes whether the changes fit. Figures are upper bounds of the need, and so lower bounds of the
space that becomes free: the sizes of new indexes are upper bounds, and each folder entry that a change may need counts
as a block.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from krepair.formats.filenames import LOG, SEGMENT_SUFFIXES
from krepair.plan.facts import OnDisk
from krepair.plan.keep import INPLACE, UNTIL_VERIFIED, is_freed_by_apply, undo_for
from krepair.plan.model import Change, PartitionPlan, Plan, Policy, ReasonTally
from krepair.plan.planfile import kept_copy
from krepair.rules.reasons import Reason

ROUNDING_BYTES: Final = 4096
"""Bytes that a new file may need in addition to its size: one block."""

REMOVAL_BYTES: Final = 1024
"""Bytes that removing a file needs: two records in the journal, and a folder entry for the kept file."""

PRIVATE_FOLDER_BYTES: Final = 64 * 1024
"""Lower bound of the bytes for journal, folders and recovery guard of one partition while it is changed."""
_PRIVATE_FILES: Final = 12
"""Files of one partition while it is changed: folders, journal and its successor, recovery guard, copy of the plan."""
_FOLDERS_THAT_STAY: Final = 5
"""Blocks that remain in use until purge: the work folder, its folders, and one for a larger partition folder."""
_FILES_THAT_STAY: Final = 5
"""Files that exist until purge: the work folder, three folders in it, and the journal."""
_RECORDS_OF_A_CHANGE: Final = 512
_RECORD_OF_A_FILE: Final = 200
_LISTED_FILE: Final = 40
"""Bytes that a journal needs for a file in the listing of a run. The two figures above are for a change, and for a file
that the change touches."""

COPY_FIGURES: Final = 256
"""Bytes in the copy of a plan for the fields that depend on the copy's size, which are not counted otherwise."""


class Space(NamedTuple):
    """Space that a change costs and frees: bytes of disk blocks (except ``log_shrinks``), and files.

    Attributes:
        made: upper bound of the bytes that its new files take.
        back: bytes that become free when its originals are deleted.
        peak: most extra bytes that it needs while it is applied.
        log_shrinks: bytes that the ``.log`` files of the partition lose; negative if they grow.
        kept_anew: bytes that keeping its originals takes in addition to ``made``, because they are kept as a copy.
        files: upper bound of the number of new files.
        files_back: number of files that are deleted with its originals.
        touches: number of names that it touches.
    """

    made: int
    back: int
    peak: int
    log_shrinks: int
    kept_anew: int = 0
    files: int = 0
    files_back: int = 0
    touches: int = 0


def space_of(change: Change, on_disk: OnDisk) -> Space:
    """Compute the space that a change needs and frees.

    If a log is truncated in place, only the removed bytes are copied. A broker's swap only changes its name.

    Args:
        on_disk: disk usage of the partition's files.
    """
    made = back = copied = kept_anew = shrinks = files = files_back = 0
    all_files = change.files
    for file in all_files:
        before, after = on_disk.sizes.get(file.name, 0), max(file.size, 0)
        comes_back = on_disk.freed_without([file.name])
        if file.how == "cut":
            kept = on_disk.takes(before - after)
            comes_back = max(comes_back - on_disk.takes(after), 0)
            copied += kept
            kept_anew += kept - comes_back
            files += 1
        elif file.how not in {"swapped", "goes", "swap"}:
            made += on_disk.takes(after)
            files += 1
        if file.how != "swap":
            back += comes_back
            files_back += file.name in on_disk.sizes and (comes_back > 0 or not before)
        if file.copied:
            copied += on_disk.takes(before)
            files += 1
        if file.name.endswith(LOG):
            shrinks += before - after
    peak = made + copied + _entries(change, sum(not file.goes for file in all_files), len(all_files))
    return Space(made, back, peak, shrinks, kept_anew, files, files_back, len(all_files))


def _entries(change: Change, leaves: int, touches: int) -> int:
    """Return bytes for the folder entries of the new files, and of the front or copy of a log that loses bytes."""
    if not leaves:
        return REMOVAL_BYTES * touches
    if change.in_order:
        return ROUNDING_BYTES * len(SEGMENT_SUFFIXES)
    return ROUNDING_BYTES * (leaves + bool(change.log_effect.ranges))


class ExtraSpace(NamedTuple):
    """Extra space that a series of changes needs, compared with the state before the first of them.

    Attributes:
        peak: most extra bytes at any moment.
        after: extra bytes after all changes; negative if they have freed more than they need.
        files: most extra files at any moment.
        files_after: extra files after all changes.
    """

    peak: int
    after: int
    files: int = 0
    files_after: int = 0

    def then(self, other: ExtraSpace) -> ExtraSpace:
        """Return the need of these changes followed by others."""
        return ExtraSpace(
            max(self.peak, self.after + other.peak),
            self.after + other.after,
            max(self.files, self.files_after + other.files),
            self.files_after + other.files_after,
        )


NOTHING: Final = ExtraSpace(0, 0)


def freed_at_apply(change: Change, space: Space) -> int:
    """Return the bytes that are free right after apply; negative while the originals are kept."""
    return (space.back if is_freed_by_apply(change) else -space.kept_anew) - space.made


class SeparateGroup(NamedTuple):
    """A change that is staged, verified and freed by itself: its need, and what freeing its originals gives back."""

    change: Change
    needs: ExtraSpace
    back: int
    files_back: int

    def freed(self) -> ExtraSpace:
        """Return its need if apply frees its originals."""
        peak, after, files, files_after = self.needs
        return ExtraSpace(peak, after - self.back, files, files_after - self.files_back)


class Parts(NamedTuple):
    """Needs of a partition's changes, by the time when they are staged.

    Attributes:
        begin: need from the beginning to the end: journal and folders, and everything staged before the first group.
        groups: groups of segments that are staged one by one.
        end: what is freed after the last group: the recovery guard, and originals of other changes that may be freed.
        end_if_kept: what is freed after the last group if all originals are kept.
    """

    begin: ExtraSpace
    groups: list[SeparateGroup]
    end: ExtraSpace
    end_if_kept: ExtraSpace


def parts_of(partition: PartitionPlan, policy: Policy) -> Parts:
    """Compute the needs of a partition's changes."""
    on_disk = OnDisk.of(partition.files, policy)
    linked = policy.links_are_files is True
    spaces = [space_of(change, on_disk) for change in partition.changes]
    journal = on_disk.takes(_journal_bytes(partition, sum(space.touches for space in spaces)))
    stays = ROUNDING_BYTES * _FOLDERS_THAT_STAY + journal
    private = max(PRIVATE_FOLDER_BYTES, stays + 2 * journal)
    begin, files = private, _PRIVATE_FILES
    lowered, files_lowered = private - stays, _PRIVATE_FILES - _FILES_THAT_STAY
    back, files_back = lowered, files_lowered
    groups = []
    for change, space in zip(partition.changes, spaces, strict=True):
        new = space.files + (len(set(change.touches) & on_disk.sizes.keys()) if linked else 0)
        if change.by_itself:
            needs = ExtraSpace(space.peak, space.peak, new, new)
            groups.append(SeparateGroup(change, needs, space.back, space.files_back))
        else:
            begin += space.peak
            files += new
            if is_freed_by_apply(change):
                back += space.back
                files_back += space.files_back
    return Parts(
        begin=ExtraSpace(begin, begin, files, files),
        groups=groups,
        end=ExtraSpace(0, -back, 0, -files_back),
        end_if_kept=ExtraSpace(0, -lowered, 0, -files_lowered),
    )


def _journal_bytes(partition: PartitionPlan, touched: int) -> int:
    return (
        _RECORDS_OF_A_CHANGE * (len(partition.changes) + 1)
        + _RECORD_OF_A_FILE * touched
        + _LISTED_FILE * len(partition.files)
    )


def extra_space(partition: PartitionPlan, policy: Policy) -> ExtraSpace:
    """Return the extra space that the changes of one partition, or of the root, need.

    Changes that cannot be staged by themselves are staged before the first group, and freed after the last one.
    """
    if not partition.changes:
        return NOTHING
    parts = parts_of(partition, policy)
    together = parts.begin
    for group in parts.groups:
        together = together.then(group.freed() if is_freed_by_apply(group.change) else group.needs)
    return together.then(parts.end)


def extra_space_of_all(partitions: Iterable[PartitionPlan], policy: Policy) -> ExtraSpace:
    """Return the extra space that partitions need if they are changed one after the other, in this order."""
    together = NOTHING
    for partition in partitions:
        together = together.then(extra_space(partition, policy))
    return together


def files_at_most(segments: int) -> int:
    """Return an upper bound of the new files if every segment of a partition is rewritten."""
    return _PRIVATE_FILES + len(SEGMENT_SUFFIXES) * segments


# -- the order of apply


def apply_order(plan: Plan) -> list[PartitionPlan]:
    """Return the partitions with changes, in the order in which apply carries them out.

    If originals are kept in place, partitions that free most and need the least extra space come first. If apply itself
    frees originals, partitions that need the least come first, so that others can use the bytes that they free.
    Partitions that free nothing come last, the largest need first. A disk with too little space for this order has too
    little for every order. Where the file system has few inodes left, partitions that give inodes back come first.
    """
    changing = [partition for partition in plan.partitions if partition.changes]
    if plan.policy.keep == INPLACE:
        return sorted(changing, key=_most_for_least)
    needs = {each.folder: extra_space(as_freed(each), plan.policy) for each in changing}
    room = plan.policy.room
    free_files = UNSET if isinstance(room, UnsetType) else room.free_files
    takes = sum(max(need.files_after, 0) for need in needs.values())
    most = max((need.files for need in needs.values()), default=0)
    few_files = not isinstance(free_files, UnsetType) and takes + most > free_files
    return sorted(
        changing,
        key=lambda each: (
            few_files and needs[each.folder].files_after > 0,
            *_fits_first(needs[each.folder]),
            _name(each),
        ),
    )


def as_freed(partition: PartitionPlan) -> PartitionPlan:
    """Return the partition as if apply freed all originals that it may free."""
    changes = tuple(replace(change, undo=undo_for(UNTIL_VERIFIED, change)) for change in partition.changes)
    return replace(partition, changes=changes)


def _most_for_least(partition: PartitionPlan) -> tuple[float, tuple[str, int]]:
    return -partition.freed_at_purge / max(partition.peak_extra_bytes, 1), _name(partition)


def _fits_first(need: ExtraSpace) -> tuple[bool, int, int]:
    if need.after <= 0:
        return False, need.peak, need.after
    return True, need.after - need.peak, need.after


def _name(partition: PartitionPlan) -> tuple[str, int]:
    return partition.topic, partition.partition


# -- the whole plan


def root_extra_space(plan: Plan) -> ExtraSpace:
    """Return the need of the root's files. They change before and after all partitions, and are always kept."""
    if plan.root is None:
        return NOTHING
    root = PartitionPlan(
        topic="", partition=0, folder="", status="change", files=plan.root.files, changes=plan.root.changes
    )
    return extra_space(root, plan.policy)


def plan_copy_bytes(plan: Plan) -> int:
    """Return an upper bound of the plan's copy beside the backups, in bytes; 0 if the plan changes nothing.

    Fields that depend on this figure are left out.
    """
    if plan.root is None and not any(partition.changes for partition in plan.partitions):
        return 0
    block = plan.policy.block_bytes
    bare = replace(plan, peak_extra_bytes=0, freed_at_apply=0, digest="", plan_id="", unchanged_digest=UNSET)
    return -(-(len(kept_copy(bare)) + COPY_FIGURES) // block) * block


def changes_extra_space(plan: Plan) -> ExtraSpace:
    """Return the need while the root and the partitions are changed, without the copy of the plan."""
    root = root_extra_space(plan)
    return ExtraSpace(root.peak, root.peak, root.files, root.files).then(
        extra_space_of_all(apply_order(plan), plan.policy)
    )


def plan_peak_bytes(plan: Plan) -> int:
    """Return the extra bytes that applying the whole plan needs. Its own ``peak_extra_bytes`` is ignored."""
    return changes_extra_space(plan).peak + plan_copy_bytes(plan)


def free_after_apply(plan: Plan) -> int:
    """Return a lower bound of the bytes free right after apply, compared with now; negative if more is used.

    Until purge krepair's folders, journals and the copy of the plan take blocks beside the new files. If all originals
    are freed, apply removes these files too.
    """
    changes = [change for partition in plan.partitions for change in partition.changes]
    if plan.root is None and all(map(is_freed_by_apply, changes)):
        return plan.freed_at_apply
    return -(changes_extra_space(plan).after + plan_copy_bytes(plan))


def without_undo(plan: Plan) -> list[Change]:
    """Return the changes that cannot be undone after apply: undo starts at the last change and stops at a freed one."""
    gone: list[Change] = []
    for partition in plan.partitions:
        freed = [place for place, change in enumerate(partition.changes) if is_freed_by_apply(change)]
        gone += partition.changes[: freed[-1] + 1] if freed else ()
    return gone


# -- the figures of a plan that follow from other fields, for the builder

_ORDER: Final = {reason.value: place for place, reason in enumerate(Reason)}
READ_BYTES_PER_SECOND: Final = 600_000_000
WRITTEN_BYTES_PER_SECOND: Final = 200_000_000
# Many small partitions take their time for names and flushes, not for bytes; docs/benchmarks.md has the measurement.
SECONDS_PER_SYNC: Final = 0.006
SECONDS_PER_FILE: Final = 0.0005
SYNCS_OF_PARTITION, SYNCS_OF_REWRITE, SYNCS_OF_CHANGE = 8, 30, 4
SECONDS_TO_VERIFY: Final = 0.02
"""Seconds to verify one partition, without the time for reading its logs."""


def add_tallies(tallies: Iterable[ReasonTally]) -> tuple[ReasonTally, ...]:
    """Sum the tallies by reason, in the order of ``Reason``; an unknown code comes last."""
    batches: dict[str, int] = {}
    size: dict[str, int] = {}
    for tally in tallies:
        batches[tally.reason] = batches.get(tally.reason, 0) + tally.batches
        size[tally.reason] = size.get(tally.reason, 0) + tally.bytes
    codes = sorted(batches, key=lambda code: (_ORDER.get(code, len(_ORDER)), code))
    return tuple(ReasonTally(reason=code, batches=batches[code], bytes=size[code]) for code in codes)


def with_figures(partition: PartitionPlan, policy: Policy) -> PartitionPlan:
    """Return the partition with all figures that follow from its changes and files."""
    on_disk = OnDisk.of(partition.files, policy)
    spaces = [(change, space_of(change, on_disk)) for change in partition.changes]
    return replace(
        partition,
        log_bytes_after=partition.log_bytes_before - sum(space.log_shrinks for _, space in spaces),
        freed_at_apply=sum(freed_at_apply(change, space) for change, space in spaces),
        freed_at_purge=sum(space.back - space.made for _, space in spaces),
        peak_extra_bytes=extra_space(partition, policy).peak,
        reasons=add_tallies(
            tally for change in partition.changes for source in change.decides_on for tally in source.reasons
        ),
    )


def made_bytes(partitions: Iterable[PartitionPlan], policy: Policy) -> int:
    """Return the bytes that apply writes, and that ``krepair verify PLAN`` reads."""
    return sum(
        space_of(change, on_disk).made
        for partition in partitions
        for on_disk in (OnDisk.of(partition.files, policy),)
        for change in partition.changes
    )


def expected_seconds(partitions: Iterable[PartitionPlan], policy: Policy) -> float:
    """Estimate the seconds of apply, at fixed and cautious rates for bytes, files and flushes.

    With a rate measured on the host, two plans of the same directory would differ.
    """
    changing = [partition for partition in partitions if partition.changes]
    read = sum(change.work.apply for partition in changing for change in partition.changes)
    small = sum(map(_seconds_of_files, changing))
    written = made_bytes(changing, policy) / WRITTEN_BYTES_PER_SECOND
    return round(read / READ_BYTES_PER_SECOND + written + small, 1)


def _seconds_of_files(partition: PartitionPlan) -> float:
    """Estimate the seconds that apply spends on the names of files and on flushes, however small the files are."""
    syncs = SYNCS_OF_PARTITION + sum(
        SYNCS_OF_REWRITE if change.decides_on else SYNCS_OF_CHANGE for change in partition.changes
    )
    files = sum(len(change.touches) for change in partition.changes)
    return syncs * SECONDS_PER_SYNC + files * SECONDS_PER_FILE


def verify_seconds(plan: Plan) -> float:
    """Estimate the seconds of ``krepair verify PLAN``, at the fixed rate of ``expected_seconds``."""
    partitions = plan.changing
    return made_bytes(partitions, plan.policy) / READ_BYTES_PER_SECOND + len(partitions) * SECONDS_TO_VERIFY
