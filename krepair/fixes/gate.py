"""Check for every fix that the logs which the fix relies on are sound; if not, skip what depends on these logs.

These parts of a log must be sound for each fix:

* ``epochs``: the offsets of the batches from which an entry is derived. A file with which no broker starts is rebuilt
  from its own entries.
* ``index``, for a ``.txnindex``: the log between the first offset and the marker of each transaction whose entry
  changes.
* ``snapshots``, for a stale open transaction: no segment is missing from the transaction's first offset on.
* ``markers`` and ``compact``: every batch below the log end offset that the start finds, without a missing segment.

Damage elsewhere does not matter. A reason names the fix that must come first, or what a person can do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from krepair.fixes.analysis import PartitionAnalysis, log_end_of, next_start_of
from krepair.fixes.context import Context
from krepair.fixes.logs import read_logs
from krepair.fixes.tail.decide import damages_in, map_damaged_logs, maps_of
from krepair.formats.filenames import log_name
from krepair.formats.java_numbers import INT64_MAX
from krepair.kernels.classes import D_OFFSET_ORDER, D_OFFSET_RANGE
from krepair.logdir.config import TopicSettings
from krepair.logdir.values import LogDir, Partition
from krepair.next_command import LOG_DIR, PLAN, Next
from krepair.options import Options
from krepair.plan.model import Change
from krepair.rules.missing import Gaps, first_missing
from krepair.rules.model import SegmentFacts, Skipped


class Unsound(NamedTuple):
    """Range of offsets for which the log proves nothing.

    Attributes:
        first: first offset of the range.
        last: last offset of the range.
        why: fault of the log in this range, and the fix that must come first.
    """

    first: int
    last: int
    why: str


def unsound_ranges(context: Context, analyses: Sequence[PartitionAnalysis]) -> dict[str, list[Unsound]]:
    """Read logs; return the ranges in which a log is damaged, overlaps, or could not be read, by folder."""
    read_logs(context, analyses)
    map_damaged_logs(context, analyses)
    return {analysis.partition.folder: list(_unsound(context.view, analysis)) for analysis in analyses}


def _unsound(view: LogDir, analysis: PartitionAnalysis) -> Iterator[Unsound]:
    read = {facts.base_offset: facts for facts in analysis.segments}
    for segment, end in analysis.partition.segments_with_ends():
        if segment.base_offset not in read:
            yield Unsound(segment.base_offset, end - 1, f"{segment.log.name} could not be read")
    ends = {segment.base_offset: end for segment, end in analysis.partition.segments_with_ends()}
    for facts in analysis.segments:
        mapped = maps_of(analysis).get(facts.base_offset)
        if facts.summary.damage and (mapped is None or mapped.why or not mapped.complete):
            where = f"{log_name(facts.base_offset)}, position {facts.summary.valid_bytes}"
            last = ends[facts.base_offset] - 1
            yield Unsound(facts.end_offset, last, f"the log is damaged: {where}: first --fix tail")
    for damage in damages_in(view, analysis):
        behind = damage.range.next_offset if damage.range.next_offset >= 0 else ends[damage.base_offset]
        where = f"{log_name(damage.base_offset)}, position {damage.range.start} ({damage.range.text}): first --fix tail"
        yield Unsound(damage.range.first_lost, behind - 1, f"the log is damaged: {where}")
    for before, after in _overlaps(analysis.segments):
        names = f"{log_name(before.base_offset)} and {log_name(after.base_offset)}"
        text = f"{names} overlap: krepair compare shows which is right"
        yield Unsound(after.base_offset, before.end_offset - 1, text)
    end = log_end_of(analysis.segments)
    recorded = max(
        checkpoint.offsets.get(analysis.partition.key, -1)
        for checkpoint in (view.recovery_point, view.high_watermark)
    )
    if recorded > end:
        text = f"the log ends at {end}, and {recorded} is recorded: krepair explain KR312"
        yield Unsound(end, recorded - 1, text)
    gaps = gaps_of(view, analysis.partition, (), analysis.settings)
    for before, after in pairwise(analysis.segments):
        if before.summary.is_whole and gaps.is_missing(before.end_offset, after.base_offset):
            text = f"a segment is missing below {log_name(after.base_offset)}"
            yield Unsound(before.end_offset, after.base_offset - 1, text)


def uncertain_offsets(segments: Sequence[SegmentFacts]) -> tuple[tuple[int, int], ...]:
    """Return (first, last) of the ranges in which batches contradict each other's offsets.

    Such a range is shared by two segments, or is a segment whose offsets do not ascend or do not fit the segment.
    """
    ends = [facts.base_offset for facts in segments[1:]] + [INT64_MAX]
    inside = (
        (facts.base_offset, max(end - 1, facts.summary.last_offset))
        for facts, end in zip(segments, ends, strict=False)
        if facts.summary.damage in {D_OFFSET_ORDER, D_OFFSET_RANGE}
    )
    return (*inside, *((after.base_offset, before.end_offset - 1) for before, after in _overlaps(segments)))


def _overlaps(segments: Sequence[SegmentFacts]) -> Iterator[tuple[SegmentFacts, SegmentFacts]]:
    return ((before, after) for before, after in pairwise(segments) if before.end_offset > after.base_offset)


def why_unsound(ranges: Sequence[Unsound], first: int, last: int) -> str:
    """Return why the log proves nothing for some of these offsets; empty if the log is sound for all of them."""
    return next((unsound.why for unsound in ranges if unsound.first <= last and first <= unsound.last), "")


def gaps_of(view: LogDir, partition: Partition, changes: Iterable[Change], settings: TopicSettings) -> Gaps:
    """Return the reasons for offsets that are missing from a partition's segments, now or after changes."""
    log_start = view.log_start.offsets.get(partition.key, 0)
    has_line = partition.key in view.cleaner.offsets
    return Gaps(
        # Use the cleaner's checkpoint entry only if the policy is unknown: a topic that is not compacted may have an
        # old entry.
        compacts=settings.compacts or (has_line and not settings.policy_is_known),
        cleaned=view.cleaner.offsets.get(partition.key, log_start),
        orphans=partition.missing_logs,
        lost=tuple(lost_range for change in changes for lost_range in change.lost_inside()),
    )


def missing_segment(view: LogDir, analysis: PartitionAnalysis) -> Skipped | None:
    """Return why a log with a missing segment is not compacted, or None.

    Missing offsets prove a missing segment only above the cleaner's checkpoint. Without a checkpoint entry, the cleaner
    may have removed all missing offsets.
    """
    gaps = _gaps_by_line(view, analysis, ())
    whole = [facts for facts in analysis.segments if facts.summary.is_whole or facts is analysis.segments[-1]]
    gap = first_missing(gaps, ((facts.base_offset, facts.end_offset) for facts in whole))
    if gap is None or len(whole) != len(analysis.segments):
        return None
    return _missing(*gap, "the markers and records in it are not known")


def missing_in_range(
    view: LogDir, analysis: PartitionAnalysis, segments: Sequence[SegmentFacts], changes: Sequence[Change]
) -> Skipped | None:
    """Return why segments are not recovered if a segment between them is missing, or None.

    A recovery skips the gap and loses the producers and transactions of the missing segment. A person may still restore
    that segment. So only the broker's own start may recover across the gap, never a plan.

    Args:
        segments: segments that a start recovers after the changes, ascending.
    """
    gaps, end = _gaps_by_line(view, analysis, changes), segments[-1].end_offset
    gaps = gaps._replace(orphans=tuple(base for base in gaps.orphans if base < end))
    gap = first_missing(gaps, ((facts.base_offset, facts.end_offset) for facts in segments))
    if gap is None:
        return None
    return _missing(*gap, "the next start recovers the others and forgets the producers of this one")


def _gaps_by_line(view: LogDir, analysis: PartitionAnalysis, changes: Iterable[Change]) -> Gaps:
    """Return the reasons for missing offsets; without a cleaner checkpoint entry the cleaner may explain every gap."""
    gaps = gaps_of(view, analysis.partition, changes, analysis.settings)
    return gaps if analysis.partition.key in view.cleaner.offsets else gaps._replace(cleaned=INT64_MAX)


def _missing(first: int, end: int, effect: str) -> Skipped:
    text = f"a segment with offsets {first} to {end - 1} is missing, and {effect}"
    return Skipped("missing-segment", f"{text}; krepair compare shows what other replicas have", damaged=True)


def why_not_to_end(analysis: PartitionAnalysis, log_end: int, options: Options) -> Skipped | None:
    """Return why a log must not be rewritten by decisions that assume a certain log end offset, or None.

    If the start uses a lower log end offset, the broker truncates markers and records on which the decisions rely: a
    record that was removed in favour of a truncated record would be lost.

    Args:
        analysis: analysis of the partition, with the simulated start after all changes of the plan.
        log_end: log end offset that the decisions assume.
        options: options as they were typed.
    """
    start = next_start_of(analysis)
    ends = {version: loaded.log_end for version, loaded in start.by_version.items() if not loaded.failure}
    if not ends or set(ends.values()) == {log_end}:
        return None
    active = analysis.segments[-1].summary if analysis.segments else None
    differs = start.differs(lambda loaded: loaded.log_end)
    if differs:
        again = Next.of(
            "plan", LOG_DIR, "--fix", ",".join(options.fixes), "--broker-version", "VERSION", out=PLAN
        )
        return Skipped("log-end", f"its log end is not certain: {differs}", again, damaged=True)
    first = "index=regenerate" if active is not None and active.is_whole else "tail"
    first = "checkpoints" if analysis.log_start > log_end else first
    text = (
        f"the next start takes {next(iter(ends.values()))} for the log end, and the valid batches end at {log_end}: "
        f"first --fix {first}"
    )
    others = (word for word in options.fixes if word.partition("=")[0] != first.partition("=")[0])
    fixes = ",".join(sorted({first, *others}))
    return Skipped("log-end", text, Next.of("plan", LOG_DIR, "--fix", fixes, out=PLAN), damaged=True)
