"""Signs that the cleaner of a partition has stalled, so that its keys wait to be compacted."""

from __future__ import annotations

from typing import Final

from krepair.fixes.survey import Survey
from krepair.formats.java_numbers import INT64_MAX
from krepair.logdir.values import LogDir, Segment
from krepair.rules.producers import all_ids, states_by_scan

STANDS_STILL_SEGMENTS: Final = 10
NEVER_CLEANED_SEGMENTS: Final = 4
"""A log without a line in the cleaner's checkpoint is dirty from its begin to its end, so the next pass takes it, with
any ``min.cleanable.dirty.ratio`` (``LogCleanerManager.grabFilthiestCompactedLog``, 2.2.1 to 4.3). If so many closed
segments are there and no line is, no pass came."""


def cleaner_stands_still(view: LogDir, survey: Survey) -> bool:
    """Return whether many closed segments lie behind the cleaner's checkpoint, or all because it has no entry."""
    if not survey.settings.compacts or len(survey.partition.segments) <= STANDS_STILL_SEGMENTS:
        return False
    return len(segments_behind_the_cleaner(view, survey)) > STANDS_STILL_SEGMENTS


def keys_wait(view: LogDir, survey: Survey, now_ms: int) -> list[Segment]:
    """Return the segments that a working cleaner would have compacted; none if it may be working.

    Segments that are too young for it (``min.compaction.lag.ms``) do not count, nor those that an open transaction, or
    the high watermark, keeps from any compaction.
    """
    if not survey.settings.compacts:
        return []
    youngest_ns = (now_ms - survey.settings.min_compaction_lag_ms) * 1_000_000
    behind = segments_behind_the_cleaner(view, survey)
    waiting = [segment for segment in behind if segment.log.mtime_ns <= youngest_ns]
    most = STANDS_STILL_SEGMENTS if has_a_line(view, survey) else NEVER_CLEANED_SEGMENTS - 1
    if len(waiting) > most:
        limit, _ = states_by_scan(survey.segments, all_ids(survey.segments, ()), INT64_MAX).first_open()
        limit = min(limit, survey.high_watermark) if survey.high_watermark >= 0 else limit
        able = {segment.base_offset for segment, end in survey.partition.segments_with_ends() if end <= limit}
        waiting = [segment for segment in waiting if segment.base_offset in able]
    return waiting if len(waiting) > most else []


def has_a_line(view: LogDir, survey: Survey) -> bool:
    """Return whether ``cleaner-offset-checkpoint`` has an entry for the partition."""
    return survey.partition.key in view.cleaner.offsets


def segments_behind_the_cleaner(view: LogDir, survey: Survey) -> list[Segment]:
    """Return the segments between the cleaner's checkpoint and the active segment."""
    first_dirty = view.cleaner.offsets.get(survey.partition.key, -1)
    return [
        segment
        for segment in survey.partition.segments[:-1]
        if segment.base_offset >= max(first_dirty, 0) and first_dirty < INT64_MAX
    ]
