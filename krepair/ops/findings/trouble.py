"""Signs of trouble other than damage: modification times that look copied."""

from __future__ import annotations

from collections.abc import Sequence

from krepair.ops.findings.broker_clock import newest_broker_time
from krepair.rules.model import SegmentFacts

COPIED_WITHIN_MS = 10 * 60 * 1000
RECORDS_SPREAD_MS = 24 * 60 * 60 * 1000
FAR_FROM_RECORDS_MS = 30 * 24 * 60 * 60 * 1000
AT_LEAST_SEGMENTS = 3


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
