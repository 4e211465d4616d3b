"""Gate of all fixes: which partitions no fix changes, and which logs are sound enough for a fix to rely on.

No fix changes a partition that cannot be read, that is tiered, or whose swap waits for a broker. In other partitions
these parts of a log must be sound for each fix:

* ``tail`` and ``checkpoints``: nothing, because they repair what other fixes rely on.
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
from typing import Final, NamedTuple

from krepair.fixes.analysis import PartitionAnalysis, ResultKey, log_end_of, next_start_of
from krepair.fixes.context import Context
from krepair.fixes.damage import damages_in, map_damaged_logs, maps_of
from krepair.fixes.logs import read_logs
from krepair.formats.filenames import METADATA_TOPIC, log_name
from krepair.formats.java_numbers import INT64_MAX
from krepair.kernels.classes import D_OFFSET_ORDER, D_OFFSET_RANGE
from krepair.logdir.config import TopicSettings
from krepair.logdir.values import LogDir, Partition
from krepair.next_command import LOG_DIR, PLAN, Next
from krepair.options import Options
from krepair.plan.model import Change
from krepair.rules.missing import Gaps, first_missing
from krepair.rules.model import SegmentFacts, Skipped

_BESIDE: ResultKey[PartitionAnalysis] = ResultKey("beside leftovers")
LEFTOVERS_FIRST: Final = Next.of("plan", LOG_DIR, "--fix", "leftovers", out=PLAN)


def waits_for_leftovers_alone(partition: Partition, settings: TopicSettings) -> bool:
    """Return whether a swap is the only reason why a partition's files are not changed.

    A start deletes a ``.cleaned`` and reads the other files as they are, so a ``.cleaned`` alone is no obstacle.
    """
    return bool(partition.waiting_swap) and not _why_never_touched(partition, settings)


def why_untouched(partition: Partition, settings: TopicSettings) -> str:
    """Return why a partition's files are not changed, or empty."""
    never = _why_never_touched(partition, settings)
    if never or not partition.waiting_swap:
        return never
    return (
        f"{partition.waiting_swap} waits to be finished by a broker; first --fix leftovers, then plan again"
    )


def _why_never_touched(partition: Partition, settings: TopicSettings) -> str:
    if partition.unreadable:
        return partition.unreadable
    if partition.topic == METADATA_TOPIC:
        return f"{METADATA_TOPIC} is the KRaft metadata log"
    if settings.tiered:
        return settings.tiered
    for special in partition.special_logs:
        return f"{special.name}: a regular file was expected, found a {special.kind}"
    return ""


def analyses_apart(analyses: Iterable[PartitionAnalysis]) -> list[PartitionAnalysis]:
    """Return a separate analysis of each partition whose only obstacle is its leftovers.

    No part of that analysis enters a plan. The analysis only shows whether the plan skips a needed repair.
    """
    waiting = []
    for analysis in analyses:
        partition, settings = analysis.partition, analysis.settings
        if waits_for_leftovers_alone(partition, settings):
            separate = analysis_apart(analysis) or PartitionAnalysis(
                partition, settings, analysis.high_watermark
            )
            analysis.put(_BESIDE, separate)
            waiting.append(separate)
    return waiting


def analysis_apart(analysis: PartitionAnalysis) -> PartitionAnalysis | None:
    """Return the separate analysis of a partition with leftovers, or None if there is none."""
    return analysis.result(_BESIDE)


def left_for_leftovers(partition: Partition, repairs: str) -> Skipped:
    """Return the reason for skipping a partition that needs a repair, but has leftovers.

    Args:
        repairs: files that would be repaired, such as ``indexes``.
    """
    first = f"first --fix leftovers, then plan its {repairs} again"
    why = f"{partition.waiting_swap}: a broker left it, and one plan cannot repair both: {first}"
    return Skipped("leftovers", why, LEFTOVERS_FIRST, damaged=True)


def cannot_compact(partition: Partition, settings: TopicSettings) -> Skipped | None:
    """Return why a partition is not compacted, whatever its log holds; None if it may be."""
    reasons = (
        (
            partition.topic == METADATA_TOPIC,
            "refused-topic",
            f"{METADATA_TOPIC} is the KRaft metadata log; krepair never changes it",
        ),
        (
            bool(settings.tiered),
            "tiered",
            f"{settings.tiered}; krepair never changes it",
        ),
        (bool(partition.unreadable), "unreadable", partition.unreadable),
        (
            not settings.compacts,
            "not-compacted",
            "cleanup.policy has no compact; only compacted topics are cleaned",
        ),
    )
    for applies, code, text in reasons:
        if applies:
            return Skipped(code, text, damaged=code == "unreadable")
    odd = _odd_file(partition)
    if odd is None and not partition.segments:
        return Skipped("empty", "the folder has no .log file")
    return odd


def _odd_file(partition: Partition) -> Skipped | None:
    """Return the reason for skipping a partition with leftovers or with special files in place of its own, or None."""
    for leftover in partition.leftovers:
        if leftover.kind != "foreign":
            advice = "finish or remove it first (--fix leftovers), then plan again"
            why = f"{leftover.file.name}: a broker left it; {advice}"
            return Skipped("leftovers", why, LEFTOVERS_FIRST, damaged=True)
    special = partition.special
    if special is None:
        return None
    text = f"{special.name}: a regular file was expected, found a {special.kind}"
    return Skipped("special-file", text, damaged=True)


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
