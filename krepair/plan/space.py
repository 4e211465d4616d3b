"""Every figure of space that changes need, keep and give back: blocks of the disk, and files. Pure.

Whether they fit is worked out in ``krepair.plan.fit``. Figures are upper bounds of what is needed, and so lower bounds
of what comes back: the sizes of new indexes are, and a change has a block for each folder entry that it may need.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from krepair.formats.filenames import LOG, SEGMENT_SUFFIXES
from krepair.plan.facts import OnDisk
from krepair.plan.keep import INPLACE, UNTIL_VERIFIED, is_freed_by_apply, undo_for
from krepair.plan.model import Change, PartitionPlan, Plan, Policy, ReasonTally
from krepair.plan.planfile import kept_copy
from krepair.rules.reasons import Reason

ROUNDING_BYTES: Final = 4096
"""Bytes that a new file may need beyond its size: one block."""

REMOVAL_BYTES: Final = 1024
"""Bytes that the removal of a file needs: two records in the journal, and a folder entry for the kept file."""

PRIVATE_FOLDER_BYTES: Final = 64 * 1024
"""Bytes for journal, folders and fence files of one partition while it is changed, at least."""
_PRIVATE_FILES: Final = 12
"""Folders, journal and its successor, fence files and the name of the plan's copy of one partition meanwhile."""
_FOLDERS_THAT_STAY: Final = 5
"""The private sub-folder and those in it; and a block by which the partition's own folder may have grown."""
_FILES_THAT_STAY: Final = 5
"""Until purge: the private sub-folder, three in it, and the journal."""
_RECORDS_OF_A_CHANGE: Final = 512
_RECORD_OF_A_FILE: Final = 200
_LISTED_FILE: Final = 40
"""Bytes in a journal: of a change, of a file that it touches, of a file of the partition in the listing of a run."""

COPY_FIGURES: Final = 256
"""Bytes of the copy of a plan for the fields that depend on its size, and are left out where it is worked out."""


class Space(NamedTuple):
    """What a change costs and frees: bytes of blocks on the disk, but for ``log_shrinks``; and files.

    Attributes:
        made: what its new files take at most.
        back: what is free once its originals are gone.
        peak: what it needs on top while it is applied.
        log_shrinks: bytes that the ``.log`` files of the partition lose; negative if they grow.
        kept_anew: what keeping its originals takes besides ``made``: bytes that are kept as a copy.
        files: new files, at most.
        files_back: files that are gone with its originals.
        touches: names that it touches.
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
    """The space that a change needs and frees.

    Of a log that is cut in its place only the bytes that go are copied. A broker's swap only changes
    its name.

    Args:
        change: the change.
        on_disk: what the files of the partition take.
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
    """Bytes for the folder entries of the new files, and of a front or a copy of a log that loses bytes."""
    if not leaves:
        return REMOVAL_BYTES * touches
    if change.in_order:
        return ROUNDING_BYTES * len(SEGMENT_SUFFIXES)
    return ROUNDING_BYTES * (leaves + bool(change.log_effect.ranges))


class OnTop(NamedTuple):
    """What a series of changes needs on top, compared with what there was before the first of them.

    Attributes:
        peak: largest number of extra bytes at any moment.
        after: extra bytes after all changes; negative if they have freed more than they need.
        files: largest number of extra files at any moment.
        files_after: extra files after all changes.
    """

    peak: int
    after: int
    files: int = 0
    files_after: int = 0

    def then(self, other: OnTop) -> OnTop:
        """The need of these changes followed by others."""
        return OnTop(
            max(self.peak, self.after + other.peak),
            self.after + other.after,
            max(self.files, self.files_after + other.files),
            self.files_after + other.files_after,
        )


NOTHING: Final = OnTop(0, 0)


def freed_at_apply(change: Change, space: Space) -> int:
    """Bytes that are free right after apply; negative while the originals are kept."""
    return (space.back if is_freed_by_apply(change) else -space.kept_anew) - space.made


class OwnGroup(NamedTuple):
    """A change that is staged, verified and freed by itself: what it needs, and what its originals give back."""

    change: Change
    needs: OnTop
    back: int
    files_back: int

    def freed(self) -> OnTop:
        """What it needs where apply frees its originals."""
        peak, after, files, files_after = self.needs
        return OnTop(peak, after - self.back, files, files_after - self.files_back)


class Parts(NamedTuple):
    """The changes of a partition, by when they are staged.

    Attributes:
        begin: what is there until the end: journal and folders, and all that is staged before the first group.
        groups: each by itself.
        end: what goes after the last group: the fence, and originals of the other changes that can be freed.
        end_if_kept: what goes then where all originals are kept.
    """

    begin: OnTop
    groups: list[OwnGroup]
    end: OnTop
    end_if_kept: OnTop


def parts_of(partition: PartitionPlan, policy: Policy) -> Parts:
    """The needs of a partition's changes."""
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
            needs = OnTop(space.peak, space.peak, new, new)
            groups.append(OwnGroup(change, needs, space.back, space.files_back))
        else:
            begin += space.peak
            files += new
            if is_freed_by_apply(change):
                back += space.back
                files_back += space.files_back
    return Parts(
        begin=OnTop(begin, begin, files, files),
        groups=groups,
        end=OnTop(0, -back, 0, -files_back),
        end_if_kept=OnTop(0, -lowered, 0, -files_lowered),
    )


def _journal_bytes(partition: PartitionPlan, touched: int) -> int:
    return (
        _RECORDS_OF_A_CHANGE * (len(partition.changes) + 1)
        + _RECORD_OF_A_FILE * touched
        + _LISTED_FILE * len(partition.files)
    )


def on_top(partition: PartitionPlan, policy: Policy) -> OnTop:
    """What the changes of one partition, or of the root, need on top.

    Changes that cannot be staged by themselves are staged before the first group, and freed after the last one.
    """
    if not partition.changes:
        return NOTHING
    parts = parts_of(partition, policy)
    together = parts.begin
    for group in parts.groups:
        together = together.then(group.freed() if is_freed_by_apply(group.change) else group.needs)
    return together.then(parts.end)


def on_top_of_all(partitions: Iterable[PartitionPlan], policy: Policy) -> OnTop:
    """What partitions need on top if they are changed one after the other, in this order."""
    together = NOTHING
    for partition in partitions:
        together = together.then(on_top(partition, policy))
    return together


def files_at_most(segments: int) -> int:
    """New files at most, where every segment of a partition is written anew."""
    return _PRIVATE_FILES + len(SEGMENT_SUFFIXES) * segments


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
    needs = {one.folder: on_top(as_freed(one), plan.policy) for one in changing}
    return sorted(changing, key=lambda one: (*_fits_first(needs[one.folder]), _name(one)))


def as_freed(partition: PartitionPlan) -> PartitionPlan:
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
    return -(-(len(kept_copy(bare)) + COPY_FIGURES) // block) * block


def parts_on_top(plan: Plan) -> OnTop:
    """What is needed while the root and the partitions are changed, without the copy of the plan."""
    root = root_on_top(plan)
    return OnTop(root.peak, root.peak, root.files, root.files).then(
        on_top_of_all(apply_order(plan), plan.policy)
    )


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
