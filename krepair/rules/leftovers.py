"""Decisions on files that an interrupted broker left in a partition folder (``.swap``, ``.cleaned``, ``.deleted``).

This module opens no file: ``--fix leftovers`` reads the files and passes the results.

A ``.swap`` holds data. Every broker completes a swap at its next start: the swap becomes a segment, and the segments
with a base offset in the swap's range are deleted. If broker versions would end with different records, or a broker
would lose records, krepair shows the swap and the segments and leaves the decision to the user. Files that the next
start would delete are removed, unless a swap beside them needs a decision of the user.

Source: Log.removeTempFilesAndCollectSwapFiles and completeSwapOperations (2.2.1), LogLoader.load (3.0 and later); table
of experiments in ``docs/leftovers.md``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from krepair.formats.broker_version import Version
from krepair.formats.filenames import FileKind, offset_name, parse_file_name, segment_name
from krepair.formats.words import count_text
from krepair.logdir.values import FileRef, Leftover, Special
from krepair.logdir.view import shown_path

RENAMES_SINCE: Final = (3, 0, 0)
"""Version from which on a broker renames swaps unread, and deletes all segments between the first and the last swap."""

_LEFT_BEHIND: Final[tuple[tuple[Literal["deleted", "cleaned"], str], ...]] = (
    ("deleted", "set aside to be deleted"),
    ("cleaned", "an unfinished cleaning"),
)


class LiveSegment(NamedTuple):
    """Segment whose files have no suffix.

    Attributes:
        base_offset: base offset of the segment.
        end_offset: the offset after its last valid batch.
        log_bytes: size of its ``.log`` in bytes.
        batches: number of valid batches.
        damaged: True if a part of the ``.log`` is invalid.
    """

    base_offset: int
    end_offset: int
    log_bytes: int
    batches: int
    damaged: bool = False


class PendingSwap(NamedTuple):
    """``.log.swap`` file that no broker has completed.

    Attributes:
        base_offset: base offset of the swap.
        end_offset: the offset after its last batch; the base offset if the swap has no batch.
        log_bytes: size of the file in bytes.
        batches: number of valid batches.
        problem: reason why the file cannot be completed, or empty.
        missing: number of the swap's batches that no segment without a suffix has; 0 if the batches were not counted.
    """

    base_offset: int
    end_offset: int
    log_bytes: int
    batches: int
    problem: str = ""
    missing: int = 0

    @property
    def name(self) -> str:
        """Name of the file."""
        return segment_name(self.base_offset, ".log.swap")


class Completion(NamedTuple):
    """Completion of a swap, which becomes a segment.

    Attributes:
        swap: swap that is completed.
        replaces: segments that the swap replaces, ascending.
    """

    swap: PendingSwap
    replaces: tuple[LiveSegment, ...]


class SwapDecision(NamedTuple):
    """Decision on the swaps of a partition.

    Attributes:
        completions: swaps that are completed, ascending.
        void: swaps that every broker deletes without losing records, ascending.
        skip_reason: reason for skipping all swaps, or empty.
        comparisons: (name of a swap, comparison of the swap with the segments that it would replace), for the reviewer.
    """

    completions: tuple[Completion, ...] = ()
    void: tuple[PendingSwap, ...] = ()
    skip_reason: str = ""
    comparisons: tuple[tuple[str, str], ...] = ()


class Removal(NamedTuple):
    """Removal of a file that the next start would delete.

    Attributes:
        kind: kind of the leftover.
        file: the file that is removed.
        why: reason in one line.
    """

    kind: Literal["void swap", "index swap", "deleted", "cleaned", "orphan"]
    file: FileRef
    why: str


def decide_swaps(
    swaps: Sequence[PendingSwap], live: Sequence[LiveSegment], cleaned: Iterable[int], version: Version
) -> SwapDecision:
    """Decide on the swaps of one partition.

    Args:
        swaps: swaps of the partition, ascending by base offset.
        live: segments without a suffix, ascending by base offset.
        cleaned: base offsets of the ``.cleaned`` files.
        version: version of the broker that will start next, None if it is not known.
    """
    if not swaps:
        return SwapDecision()
    lowest = min(cleaned, default=None)
    # A .cleaned shows that the cleaner had not begun to swap there: every broker deletes the swaps from the base offset
    # of the .cleaned on (KAFKA-6264).
    void = [swap for swap in swaps if lowest is not None and swap.base_offset >= lowest]
    valid = [swap for swap in swaps if swap not in void]
    completions = tuple(Completion(swap, _segments_in_swap(swap, live)) for swap in valid)
    reason = next((text for swap in void if (text := _why_void_swap_kept(swap, lowest or 0))), "")
    reason = reason or _skip_reason(completions, live, version)
    comparisons = tuple(
        (swap.name, _comparison_text(Completion(swap, _segments_in_swap(swap, live)), live)) for swap in swaps
    )
    if reason:
        return SwapDecision(skip_reason=reason, comparisons=comparisons)
    return SwapDecision(completions, tuple(void), comparisons=comparisons)


def _segments_in_swap(swap: PendingSwap, live: Sequence[LiveSegment]) -> tuple[LiveSegment, ...]:
    return tuple(segment for segment in live if swap.base_offset <= segment.base_offset < swap.end_offset)


def _comparison_text(completion: Completion, live: Sequence[LiveSegment]) -> str:
    swap, replaced = completion
    text = (
        f"{swap.log_bytes} bytes, {_batches(swap.batches)}, ends at {swap.end_offset}"
        f"{f', {swap.problem}' if swap.problem else ''}"
    )
    if not replaced:
        return f"{text}; no segment that it replaces is left{_log_end(live)}"
    size, batches = (
        sum(segment.log_bytes for segment in replaced),
        sum(segment.batches for segment in replaced),
    )
    return (
        f"{text}; against segments {replaced[0].base_offset} to {replaced[-1].base_offset} ({len(replaced)}): {size} "
        f"bytes, {_batches(batches)}, end at {max(segment.end_offset for segment in replaced)}{_log_end(live)}"
    )


def _batches(count: int) -> str:
    return count_text(count, "batch", "batches")


def _log_end(live: Sequence[LiveSegment]) -> str:
    return f"; the log ends at {live[-1].end_offset}" if live else ""


def _why_void_swap_kept(swap: PendingSwap, cleaned: int) -> str:
    """Return the reason why a void swap must not be deleted; empty if other segments have each of its batches."""
    fact = f"{swap.name}: the .cleaned at {cleaned} makes every broker delete this swap"
    if swap.problem:
        by_hand = "by hand, move it out of the folder and keep it: then a start is safe"
        return f"{fact}, but krepair cannot compare it with the segments: {swap.problem}; {by_hand}"
    if not swap.missing:
        return ""
    batches = f"{swap.missing:,} of its {_batches(swap.batches)}"
    return f"{fact}, but no segment has {batches}: the swap may hold the only copy"


def _skip_reason(completions: Sequence[Completion], live: Sequence[LiveSegment], version: Version) -> str:
    """Return the reason why krepair leaves a partition's swaps to the user; empty if it completes them."""
    for completion in completions:
        text = _why_swap_is_left(completion, live)
        if text:
            return text
    for first, second in pairwise(completions):
        if second.swap.base_offset < first.swap.end_offset:
            return f"{second.swap.name}: begins inside of {first.swap.name}, which ends at {first.swap.end_offset}"
    return _why_versions_differ(completions, live, version)


def _why_swap_is_left(completion: Completion, live: Sequence[LiveSegment]) -> str:
    swap, replaced = completion
    if swap.problem:
        return (
            f"{swap.name}: {swap.problem}; a broker before 3.0 truncates a swap where it is damaged and rebuilds its "
            "indexes, a later one uses both as they are, and each deletes the segments that it replaces; "
            f"{_advice_for_unreadable(swap, live)}"
        )
    if not swap.batches:
        return (
            f"{swap.name}: holds no batch, and every broker replaces the segment at {swap.base_offset} by it; krepair "
            "cannot tell whether the cleaner removed all of that segment, or the content of the swap was lost"
        )
    end = max((segment.end_offset for segment in replaced), default=0)
    if replaced and replaced[-1] is live[-1] and end > swap.end_offset:
        text = f"{swap.name}: ends at {swap.end_offset}, but the log ends at {end}"
        return f"{text}: completing it would lower the log end"
    return ""


def _advice_for_unreadable(swap: PendingSwap, live: Sequence[LiveSegment]) -> str:
    """Return advice on an unreadable swap, including whether a broker may be started with it."""
    base = swap.base_offset
    if any(segment.base_offset == base and not segment.damaged for segment in live):
        return (
            f"no start is safe with it. Segment {base} is still whole, which a cleaner deletes first, so the swap has "
            f"nothing that the segments lack: by hand, move the {offset_name(base)}.*.swap files out of the folder and "
            "keep them; then a start is safe"
        )
    return (
        f"no start is safe: segment {base} is gone or damaged, so the swap may be the only copy. Compare the replicas "
        "first (krepair compare); if no other one has these records, read the file from a copy of the disk before a "
        "broker starts"
    )


def _why_versions_differ(
    completions: Sequence[Completion], live: Sequence[LiveSegment], version: Version
) -> str:
    if not completions:
        return ""
    replaced = {segment.base_offset for completion in completions for segment in completion.replaces}
    first, last = completions[0].swap, completions[-1].swap
    for completion in completions:
        over = next(
            (
                segment
                for segment in live
                if segment.base_offset < completion.swap.base_offset < segment.end_offset
                and segment.base_offset not in replaced
            ),
            None,
        )
        if over is not None:
            return (
                f"{completion.swap.name}: segment {over.base_offset} begins below the swap and ends inside it, at "
                f"{over.end_offset}; a broker before 3.0 deletes that segment, a later one keeps both"
            )
    between = [
        segment.base_offset
        for segment in live
        if first.base_offset <= segment.base_offset < last.end_offset and segment.base_offset not in replaced
    ]
    if between and (version is None or version >= RENAMES_SINCE):
        gone = count_text(len(between), "segment")
        return (
            f"{first.name} and {last.name}: a broker since 3.0 deletes the {gone} between them (from "
            f"{between[0]} on), an earlier one keeps them; start one before 3.0, or plan with its --broker-version"
        )
    return ""


def no_brokers_name(leftovers: Sequence[Leftover], specials: Sequence[Special]) -> str:
    """Describe the first leftover with a name that no broker writes; empty if there is none.

    Args:
        leftovers: leftovers in the folder.
        specials: names in the folder that are not regular files.
    """
    for leftover in leftovers:
        name = parse_file_name(leftover.file.name)
        if not leftover.file.name.isprintable():
            return f"{shown_path(leftover.file.name)}: not a name that a plan can hold; remove it by hand"
        # A cleaner swaps only logs and their indexes.
        snapshot = leftover.kind == "swap" and name.kind is FileKind.SNAPSHOT
        if snapshot or (leftover.kind in {"swap", "cleaned"} and not name.is_canonical):
            return f"{leftover.file.name}: no broker names a file so; move it out of the folder by hand"
    for special in specials:
        if parse_file_name(special.name).kind is not FileKind.FOREIGN:
            return f"{special.name}: a regular file was expected, found a {special.kind}"
    return ""


def decide_removals(
    leftovers: Sequence[Leftover],
    orphan_indexes: Sequence[FileRef],
    missing_logs: Collection[int],
    log_swaps: Collection[int],
    decision: SwapDecision,
    version: Version,
) -> Iterator[Removal]:
    """Choose the leftovers of one partition to remove, and the order of removal.

    Void swaps are removed first, and their ``.cleaned`` later: while the ``.cleaned`` exists, every broker deletes the
    swaps; without the ``.cleaned``, a broker would complete the swaps and delete the segments.

    Args:
        leftovers: leftovers in the folder.
        orphan_indexes: indexes without a log.
        missing_logs: base offsets of those whose segments are missing; they stay, because nothing else shows that a
            transaction may have batches in such a segment.
        log_swaps: base offsets of the ``.log.swap`` files.
        decision: decision on the swaps.
        version: version of the broker that will start next, None if it is not known.
    """
    void = {swap.base_offset for swap in decision.void}
    for leftover in leftovers:
        if leftover.kind == "swap" and leftover.base_offset in void:
            yield Removal(
                "void swap", leftover.file, "a swap that did not begin: its .cleaned is still there"
            )
        elif leftover.kind == "swap" and leftover.base_offset not in log_swaps:
            yield Removal(
                "index swap",
                leftover.file,
                f"an index swap without its log; {_why_lone_index_swap_removed(version)}",
            )
    for kind, text in _LEFT_BEHIND:
        for leftover in leftovers:
            if leftover.kind == kind:
                yield Removal(kind, leftover.file, f"{text}; the next start deletes it")
    for orphan in orphan_indexes:
        if int(orphan.name.partition(".")[0]) not in {*log_swaps, *missing_logs}:
            yield Removal("orphan", orphan, "an index of a deleted log; the next start deletes it")


def _why_lone_index_swap_removed(version: Version) -> str:
    later = "a broker since 3.0 renames it over the index that is there, unread"
    earlier = "one before 3.0 deletes the indexes of that segment and leaves it"
    if version is None:
        return f"{later}, {earlier}"
    return later if version >= RENAMES_SINCE else earlier
