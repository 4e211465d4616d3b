"""Signs of trouble that are no damage: a cleaner that stands still, modification times that look copied."""

from __future__ import annotations

from collections.abc import Sequence

from krepair.fixes.survey import Survey
from krepair.kernels.scan import INT64_MAX
from krepair.logdir.values import LogDir
from krepair.ops.findings.broker_clock import newest_broker_time
from krepair.rules.model import SegmentFacts

COPIED_WITHIN_MS = 10 * 60 * 1000
RECORDS_SPREAD_MS = 24 * 60 * 60 * 1000
FAR_FROM_RECORDS_MS = 30 * 24 * 60 * 60 * 1000
AT_LEAST_SEGMENTS = 3
STANDS_STILL_SEGMENTS = 10


def mtimes_look_copied(segments: Sequence[SegmentFacts], topic: str) -> bool:
    """Whether the broker's clock for markers and tombstones was reset by a copy.

    All modification times lie within minutes although brokers wrote into the segments over a day or more, or all lie
    a month or more away from that. When brokers wrote is told by markers and by the brokers' own topics; the times of
    other records are the clients', who may write today what happened a year ago.
    """
    closed = [
        (segment.mtime_ms, newest_broker_time(segment, topic))
        for segment in segments[:-1]
        if segment.summary.batches
    ]
    filled = [(time, stamp) for time, stamp in closed if stamp >= 0]
    if len(filled) < AT_LEAST_SEGMENTS:
        return False
    times = [time for time, _ in filled]
    stamps = [stamp for _, stamp in filled]
    together = max(times) - min(times) <= COPIED_WITHIN_MS
    spread = max(stamps) - min(stamps) >= RECORDS_SPREAD_MS
    far = all(abs(time - stamp) >= FAR_FROM_RECORDS_MS for time, stamp in filled)
    return (together and spread) or far


def cleaner_stands_still(view: LogDir, survey: Survey) -> bool:
    """Whether many segments lie between the cleaner's checkpoint and the active segment, or it has none."""
    if not survey.settings.compacts or len(survey.partition.segments) <= STANDS_STILL_SEGMENTS:
        return False
    first_dirty = view.cleaner.offsets.get((survey.partition.topic, survey.partition.number), -1)
    dirty = [
        segment
        for segment in survey.partition.segments[:-1]
        if segment.base_offset >= max(first_dirty, 0) and first_dirty < INT64_MAX
    ]
    return len(dirty) > STANDS_STILL_SEGMENTS
