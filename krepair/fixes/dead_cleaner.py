"""Decision whether the log cleaner makes no progress on a partition, by cleaner checkpoint and segments."""

from __future__ import annotations

from typing import Final

from krepair.fixes.analysis import PartitionAnalysis
from krepair.formats.java_numbers import INT64_MAX
from krepair.logdir.values import LogDir, Segment
from krepair.rules.producers import all_ids, states_by_scan

STALLED_SEGMENTS: Final = 10
NEVER_CLEANED_SEGMENTS: Final = 4
"""Number of closed segments without a cleaner checkpoint entry that proves a stalled cleaner.

A log without an entry is dirty from start to end, so the cleaner's next pass takes the log with any
``min.cleanable.dirty.ratio`` (``LogCleanerManager.grabFilthiestCompactedLog``, 2.2.1 to 4.3). With this many closed
segments a working cleaner would have made a pass.
"""


def cleaner_is_stalled(view: LogDir, analysis: PartitionAnalysis) -> bool:
    """Return whether many closed segments lie after the cleaner's checkpoint, where no entry counts as offset 0."""
    if not analysis.settings.compacts or len(analysis.partition.segments) <= STALLED_SEGMENTS:
        return False
    return len(segments_behind_the_cleaner(view, analysis)) > STALLED_SEGMENTS


def waiting_segments(view: LogDir, analysis: PartitionAnalysis, now_ms: int) -> list[Segment]:
    """Return the segments that a working cleaner would have compacted; none if the cleaner may be working.

    Segments too young for ``min.compaction.lag.ms`` are left out, and so are segments that an open transaction or the
    high watermark protects from any compaction.
    """
    if not analysis.settings.compacts:
        return []
    youngest_ns = (now_ms - analysis.settings.min_compaction_lag_ms) * 1_000_000
    behind = segments_behind_the_cleaner(view, analysis)
    waiting = [segment for segment in behind if segment.log.mtime_ns <= youngest_ns]
    most = STALLED_SEGMENTS if has_cleaner_entry(view, analysis) else NEVER_CLEANED_SEGMENTS - 1
    if len(waiting) > most:
        limit, _ = states_by_scan(analysis.segments, all_ids(analysis.segments, ()), INT64_MAX).first_open()
        limit = min(limit, analysis.high_watermark) if analysis.high_watermark >= 0 else limit
        able = {
            segment.base_offset for segment, end in analysis.partition.segments_with_ends() if end <= limit
        }
        waiting = [segment for segment in waiting if segment.base_offset in able]
    return waiting if len(waiting) > most else []


def has_cleaner_entry(view: LogDir, analysis: PartitionAnalysis) -> bool:
    """Return whether ``cleaner-offset-checkpoint`` has an entry for the partition."""
    return analysis.partition.key in view.cleaner.offsets


def segments_behind_the_cleaner(view: LogDir, analysis: PartitionAnalysis) -> list[Segment]:
    """Return the segments between the cleaner's checkpoint and the active segment."""
    first_dirty = view.cleaner.offsets.get(analysis.partition.key, -1)
    return [
        segment
        for segment in analysis.partition.segments[:-1]
        if segment.base_offset >= max(first_dirty, 0) and first_dirty < INT64_MAX
    ]
