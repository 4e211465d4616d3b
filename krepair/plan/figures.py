"""Every figure of a plan that follows from other fields: one place, for the builder and for the review.

Sizes of new indexes are upper bounds, so what is freed is never less than what is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from krepair.plan.model import (
    Change,
    CompleteSwap,
    FileFingerprint,
    KeepOriginal,
    MendLog,
    PartitionPlan,
    Plan,
    Policy,
    ReasonTally,
    ReplaceFile,
    RewriteSegments,
    RootPlan,
    SetAside,
)
from krepair.plan.planfile import dumps
from krepair.rules.reasons import Reason

EMPTIED_BATCH_BYTES: Final = 61
"""A v2 batch header without records (``DefaultRecordBatch.RECORD_BATCH_OVERHEAD``)."""

SMALLEST_MESSAGE_BYTES: Final = 26
"""A message of v0 without key and value."""

ROUNDING_BYTES: Final = 4096
"""What a new file may take beyond its size: one block."""

REMOVAL_BYTES: Final = 1024
"""What removing a file takes: its two records in the journal and a folder entry for the kept one."""

PRIVATE_FOLDER_BYTES: Final = 64 * 1024
"""Journal, folder and fence files of one partition while it is applied."""

PLAN_COPY_STEP_BYTES: Final = 64 * 1024
"""The size of a plan's copy is rounded up to a multiple of this, so that the plan can hold a figure of its own size."""

READ_BYTES_PER_SECOND: Final = 600_000_000
WRITTEN_BYTES_PER_SECOND: Final = 200_000_000

SOURCE_SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex")
LOG_NAME: Final = re.compile(r"([0-9]{20})\.log")

_DEFAULTS: Final = {"segment.bytes": "1073741824", "delete.retention.ms": "86400000"}
_COMPACT_BY_DEFAULT: Final = frozenset({"__consumer_offsets", "__transaction_state"})


def sizes_by_name(files: Iterable[FileFingerprint]) -> dict[str, int]:
    """File name to size."""
    return {file.name: file.size for file in files}


def segment_bases(files: Iterable[FileFingerprint]) -> list[int]:
    """Base offsets of the ``.log`` files, ascending."""
    return sorted(int(match[1]) for file in files if (match := LOG_NAME.fullmatch(file.name)))


def setting(policy: Policy, topic: str, key: str) -> str:
    """The value used for a topic: its own, else the broker's, else Kafka's default, else empty."""
    for scope in (topic, ""):
        for row in policy.settings.get(scope, ()):
            if row.key == key:
                return row.value
    if key == "cleanup.policy":
        return "compact" if topic in _COMPACT_BY_DEFAULT else "delete"
    return _DEFAULTS.get(key, "")


def new_bytes(change: Change) -> int:
    """Bytes that the new files of a change take, at most."""
    if isinstance(change, RewriteSegments):
        return change.log_bytes + change.index_bytes_at_most
    if isinstance(change, MendLog):
        log = change.size_after if change.method == "excise" else 0
        return log + sum(new.size_after for new in change.companions)
    if isinstance(change, SetAside):
        return 0
    if isinstance(change, CompleteSwap):
        return sum(file.size for file in change.makes)
    return max(change.size_after, 0)


def old_bytes(change: Change, sizes: dict[str, int]) -> int:
    """Bytes of the files that a change takes out of the folder."""
    if isinstance(change, ReplaceFile):
        return max(change.size_before, 0)
    if isinstance(change, SetAside):
        return sum(sizes.get(name, 0) for name in change.names)
    if isinstance(change, MendLog):
        log = change.size_before - (change.size_after if change.method == "cut" else 0)
        return log + sum(max(new.size_before, 0) for new in change.companions)
    if isinstance(change, CompleteSwap):
        return sum(sizes.get(name, 0) for name in change.goes)
    segments = sum(
        sizes.get(f"{source.base_offset:020d}{suffix}", 0)
        for source in change.sources
        for suffix in SOURCE_SUFFIXES
    )
    return segments + sum(sizes.get(name, 0) for name in change.removes_snapshots)


def peak_bytes(change: Change, sizes: Mapping[str, int] | None = None) -> int:
    """Bytes needed on top while a change is applied: its new files, each rounded up to a block.

    Args:
        change: any.
        sizes: of the partition's files: what has to be kept as a real copy counts too.
    """
    if isinstance(change, CompleteSwap) and sizes is not None:
        copies = sum(
            sizes.get(f"{base:020d}{suffix}", 0) for base in change.copied for suffix in SOURCE_SUFFIXES
        )
        return copies + new_bytes(change) + len(SOURCE_SUFFIXES) * ROUNDING_BYTES
    if isinstance(change, ReplaceFile) and change.method == "remove":
        return REMOVAL_BYTES
    if isinstance(change, SetAside):
        return REMOVAL_BYTES * len(change.names)
    if isinstance(change, MendLog):
        cut = change.size_before - change.size_after if change.method == "cut" else 0
        return new_bytes(change) + cut + (len(change.companions) + 2) * ROUNDING_BYTES
    files = 1 if isinstance(change, ReplaceFile) else len(SOURCE_SUFFIXES)
    return new_bytes(change) + files * ROUNDING_BYTES


def root_peak_bytes(root: RootPlan | None) -> int:
    """Bytes needed on top while the root's files are replaced."""
    return 0 if root is None else PRIVATE_FOLDER_BYTES + sum(map(peak_bytes, root.changes))


def plan_copy_bytes(plan: Plan) -> int:
    """Bytes that the copy of the plan beside the kept originals takes, at most; 0 if the plan changes nothing.

    The fields that follow from this figure are left out; ``ROUNDING_BYTES`` has room for them.
    """
    if plan.root is None and not any(partition.changes for partition in plan.partitions):
        return 0
    size = len(dumps(replace(plan, peak_extra_bytes=0, digest="", plan_id=""))) + ROUNDING_BYTES
    return -(-size // PLAN_COPY_STEP_BYTES) * PLAN_COPY_STEP_BYTES


def parts_peak_bytes(plan: Plan) -> int:
    """Bytes needed on top while the root and the partitions are changed, without the copy of the plan."""
    return root_peak_bytes(plan.root) + sum(partition.peak_extra_bytes for partition in plan.partitions)


def plan_peak_bytes(plan: Plan) -> int:
    """Bytes needed on top while the whole plan is applied; its own ``peak_extra_bytes`` does not matter."""
    return parts_peak_bytes(plan) + plan_copy_bytes(plan)


def freed_at_apply(change: Change, sizes: dict[str, int]) -> int:
    """Bytes free right after apply: with kept originals it takes space first."""
    kept = isinstance(change.undo, KeepOriginal)
    return (0 if kept else old_bytes(change, sizes)) - new_bytes(change)


def add_tallies(tallies: Iterable[ReasonTally]) -> tuple[ReasonTally, ...]:
    """Sums by reason, in the order of ``Reason``; an unknown code comes last."""
    batches: dict[str, int] = {}
    size: dict[str, int] = {}
    for tally in tallies:
        batches[tally.reason] = batches.get(tally.reason, 0) + tally.batches
        size[tally.reason] = size.get(tally.reason, 0) + tally.bytes
    order = {reason.value: place for place, reason in enumerate(Reason)}
    codes = sorted(batches, key=lambda code: (order.get(code, len(order)), code))
    return tuple(ReasonTally(reason=code, batches=batches[code], bytes=size[code]) for code in codes)


def with_figures(partition: PartitionPlan) -> PartitionPlan:
    """The partition with every figure that follows from its changes and files filled in."""
    sizes = sizes_by_name(partition.files)
    changes = tuple(_with_change_figures(change, sizes) for change in partition.changes)
    rewrites = [change for change in changes if isinstance(change, RewriteSegments)]
    swaps = [change for change in changes if isinstance(change, CompleteSwap)]
    taken = sum(source.log_bytes for change in rewrites for source in change.sources)
    taken += sum(sizes.get(f"{base:020d}.log", 0) for change in swaps for base in change.replaces)
    given = sum(change.log_bytes for change in rewrites) + sum(change.log_bytes for change in swaps)
    return replace(
        partition,
        changes=changes,
        log_bytes_after=partition.log_bytes_before - taken + given - _lost_bytes(changes, sizes),
        freed_at_apply=sum(freed_at_apply(change, sizes) for change in changes),
        freed_at_purge=sum(old_bytes(change, sizes) - new_bytes(change) for change in changes),
        peak_extra_bytes=sum(peak_bytes(change, sizes) for change in changes)
        + (PRIVATE_FOLDER_BYTES if changes else 0),
        reasons=add_tallies(
            tally for change in rewrites for source in change.sources for tally in source.reasons
        ),
    )


def _lost_bytes(changes: Iterable[Change], sizes: dict[str, int]) -> int:
    """Bytes of ``.log`` that are cut, cut out or set aside."""
    cut = 0
    for change in changes:
        if isinstance(change, MendLog):
            cut += change.size_before - change.size_after
        elif isinstance(change, SetAside):
            cut += sizes.get(f"{change.base_offset:020d}.log", 0)
    return cut


def _with_change_figures(change: Change, sizes: dict[str, int]) -> Change:
    if not isinstance(change, RewriteSegments):
        return change
    return replace(
        change,
        freed_at_purge=old_bytes(change, sizes) - new_bytes(change),
        peak_extra_bytes=peak_bytes(change),
    )


def loses_by_consent(partitions: Iterable[PartitionPlan]) -> bool:
    """Whether more goes than a torn tail."""
    changes = [change for partition in partitions for change in partition.changes]
    return any(isinstance(change, SetAside) for change in changes) or any(
        removed.consent for change in changes if isinstance(change, MendLog) for removed in change.removed
    )


def expected_seconds(partitions: Iterable[PartitionPlan]) -> float:
    """How long apply takes at a fixed, cautious rate.

    Sources are read twice (rewrite, verify), new files written and new logs read again. A rate measured on
    the host would make two plans of the same directory differ.
    """
    read = 0
    written = 0
    for partition in partitions:
        for change in partition.changes:
            written += new_bytes(change)
            if isinstance(change, MendLog):
                read += 2 * change.size_before
            if isinstance(change, RewriteSegments):
                read += 2 * sum(source.log_bytes for source in change.sources) + change.log_bytes
            elif isinstance(change, CompleteSwap):
                read += change.log_bytes
    return round(read / READ_BYTES_PER_SECOND + written / WRITTEN_BYTES_PER_SECOND, 1)
