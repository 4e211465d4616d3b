"""The one gate of all fixes: whether what a fix reads is sound. If not, the part that rests on it is left alone.

What must be sound, by fix:

* ``index``, of a ``.txnindex``: the log from the first offset of each transaction whose entry changes to its marker.
* ``snapshots``, of a transaction that the log has forgotten: no segment is missing from its first offset on.
* ``markers`` and ``compact``: every batch below the log end that the start finds, and no segment is missing there.

Rot elsewhere is no objection. A reason names a fix that comes before, or what a person can do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from krepair.fixes.analysis import PartitionAnalysis, log_end_of, next_start_of
from krepair.fixes.context import Context
from krepair.fixes.logs import read_logs
from krepair.fixes.tail import damages_in, look_at_damage, maps_of
from krepair.formats.filenames import log_name, parse_file_name
from krepair.formats.java_numbers import INT64_MAX
from krepair.logdir.config import TopicSettings
from krepair.logdir.values import LogDir, Partition
from krepair.next_command import LOG_DIR, PLAN, Next
from krepair.options import Options
from krepair.plan.model import Change
from krepair.rules.missing import Gaps, first_missing
from krepair.rules.model import LeftAlone, SegmentFacts


class Unsound(NamedTuple):
    """Offsets of which the log tells nothing for certain.

    Attributes:
        first: the first of them.
        last: the last of them.
        why: what is wrong, and which fix comes first.
    """

    first: int
    last: int
    why: str


def unsound_ranges(context: Context, analyses: Sequence[PartitionAnalysis]) -> dict[str, list[Unsound]]:
    """Read logs, and return by partition folder where they are damaged, overlap, or could not be read."""
    read_logs(context, analyses)
    look_at_damage(context, analyses)
    return {analysis.partition.folder: list(_unsound(context.view, analysis)) for analysis in analyses}


def _unsound(view: LogDir, analysis: PartitionAnalysis) -> Iterator[Unsound]:
    read = {facts.base_offset: facts for facts in analysis.segments}
    for segment, end in analysis.partition.segments_with_ends():
        if segment.base_offset not in read:
            yield Unsound(segment.base_offset, end - 1, f"{segment.log.name} could not be read")
    ends = {segment.base_offset: end for segment, end in analysis.partition.segments_with_ends()}
    for facts in analysis.segments:
        found = maps_of(analysis).get(facts.base_offset)
        if facts.summary.damage and (found is None or found.why or not found.complete):
            where = f"{log_name(facts.base_offset)}, position {facts.summary.valid_bytes}"
            last = ends[facts.base_offset] - 1
            yield Unsound(facts.end_offset, last, f"the log is damaged: {where}: first --fix tail")
    for one in damages_in(view, analysis):
        behind = one.range.next_offset if one.range.next_offset >= 0 else ends[one.base_offset]
        where = (
            f"{log_name(one.base_offset)}, position {one.range.start} ({one.range.text}): first --fix tail"
        )
        yield Unsound(one.range.first_lost, behind - 1, f"the log is damaged: {where}")
    for before, after in pairwise(analysis.segments):
        if before.end_offset > after.base_offset:
            last = before.summary.last_offset
            names = f"{log_name(before.base_offset)} and {log_name(after.base_offset)}"
            text = f"{names} overlap: krepair compare tells which is right"
            yield Unsound(after.base_offset, last, text)
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


def why_unsound(ranges: Sequence[Unsound], first: int, last: int) -> str:
    """Return why the log tells nothing for certain of some of these offsets, or empty."""
    return next((one.why for one in ranges if one.first <= last and first <= one.last), "")


def gaps_of(view: LogDir, partition: Partition, changes: Iterable[Change], settings: TopicSettings) -> Gaps:
    """Return what explains offsets that no segment of a partition has, or will have after changes."""
    orphans = (parse_file_name(file.name).base_offset for file in partition.orphan_indexes)
    log_start = view.log_start.offsets.get(partition.key, 0)
    has_line = partition.key in view.cleaner.offsets
    return Gaps(
        # A line tells of compaction only where the policy is not known: that of a topic without it may be an old one.
        compacts=settings.compacts or (has_line and not settings.policy_is_known),
        cleaned=view.cleaner.offsets.get(partition.key, log_start),
        orphans=tuple(sorted({base for base in orphans if base is not None})),
        lost=tuple(one for change in changes for one in change.lost_inside()),
    )


def missing_segment(view: LogDir, analysis: PartitionAnalysis) -> LeftAlone | None:
    """Return why a log is not compacted in which a segment is missing, or None.

    Offsets that are gone tell of it only above the line of the cleaner. Without a line they are what it left.
    """
    gaps = _gaps_by_line(view, analysis, ())
    whole = [one for one in analysis.segments if one.summary.is_whole or one is analysis.segments[-1]]
    found = first_missing(gaps, ((one.base_offset, one.end_offset) for one in whole))
    if found is None or len(whole) != len(analysis.segments):
        return None
    return _missing(*found, "the markers and records in it are not known")


def missing_in_range(
    view: LogDir, analysis: PartitionAnalysis, segments: Sequence[SegmentFacts], changes: Sequence[Change]
) -> LeftAlone | None:
    """Return why segments are not recovered between which one is missing, or None.

    A recovery reads over the gap, and forgets the producers and transactions of the missing segment. The segment may
    still come back, so the broker's own start may do that, but no plan.

    Args:
        segments: segments that a start recovers, as they will be after the changes, ascending.
    """
    gaps, end = _gaps_by_line(view, analysis, changes), segments[-1].end_offset
    gaps = gaps._replace(orphans=tuple(base for base in gaps.orphans if base < end))
    found = first_missing(gaps, ((facts.base_offset, facts.end_offset) for facts in segments))
    if found is None:
        return None
    return _missing(*found, "the next start recovers the others and forgets the producers of this one")


def _gaps_by_line(view: LogDir, analysis: PartitionAnalysis, changes: Iterable[Change]) -> Gaps:
    """Return what explains missing offsets; in a compacted topic without a line of the cleaner, all may be its work."""
    gaps = gaps_of(view, analysis.partition, changes, analysis.settings)
    return gaps if analysis.partition.key in view.cleaner.offsets else gaps._replace(cleaned=INT64_MAX)


def _missing(first: int, end: int, what: str) -> LeftAlone:
    text = f"a segment with offsets {first} to {end - 1} is missing, and {what}"
    return LeftAlone(
        "missing-segment", f"{text}; krepair compare tells what other replicas have", damaged=True
    )


def why_not_to_end(analysis: PartitionAnalysis, log_end: int, options: Options) -> LeftAlone | None:
    """Return why a log must not be rewritten that was judged up to an end, or None.

    The start may take another log end: behind it markers and records are forgotten that were counted.

    Args:
        analysis: with the next start, as files will be after all changes of the plan.
        log_end: log end offset for which was decided.
        options: as typed.
    """
    start = next_start_of(analysis)
    ends = {version: one.log_end for version, one in start.by_version.items() if not one.failure}
    if not ends or set(ends.values()) == {log_end}:
        return None
    active = analysis.segments[-1].summary if analysis.segments else None
    differs = start.differs(lambda one: one.log_end)
    if differs:
        again = Next.of(
            "plan", LOG_DIR, "--fix", ",".join(options.fixes), "--broker-version", "VERSION", out=PLAN
        )
        return LeftAlone("log-end", f"its log end is not certain: {differs}", again, damaged=True)
    first = "index=regenerate" if active is not None and active.is_whole else "tail"
    first = "checkpoints" if analysis.log_start > log_end else first
    text = (
        f"the next start takes {next(iter(ends.values()))} for the log end, and the valid batches end at {log_end}: "
        f"first --fix {first}"
    )
    others = (word for word in options.fixes if word.partition("=")[0] != first.partition("=")[0])
    fixes = ",".join(sorted({first, *others}))
    return LeftAlone("log-end", text, Next.of("plan", LOG_DIR, "--fix", fixes, out=PLAN), damaged=True)
