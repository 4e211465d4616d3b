"""Times that come from a broker's own clock, and not from the clients that made the records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from krepair.formats.arrays import Int64s
from krepair.formats.filenames import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from krepair.kernels import classes as c
from krepair.rules.model import SegmentFacts

BROKERS_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})


class MarkerTimes(NamedTuple):
    """Times of markers in one segment, one of each producer whose last batch in it is one.

    Attributes:
        first_offset: int64[N] offset of the producer's first marker in the segment.
        time_ms: int64[N] time of its last one.
    """

    first_offset: Int64s
    time_ms: Int64s


_NO_MARKERS: Final = MarkerTimes(np.empty(0, np.int64), np.empty(0, np.int64))


def markers_in(facts: SegmentFacts) -> MarkerTimes:
    """What the scan knows of the times of markers."""
    rows = facts.summary.rows
    if len(rows) == 0:
        return _NO_MARKERS
    after_data = (rows[:, c.P_NEXT_POSITION] >= 0) | (rows[:, c.P_LAST_DATA_OFFSET] < 0)
    ended = (rows[:, c.P_MARKERS] > 0) & (rows[:, c.P_OPEN_FIRST] < 0) & after_data
    return MarkerTimes(rows[ended, c.P_LEAD_OFFSET], rows[ended, c.P_TIMESTAMP])


def newest_broker_time(facts: SegmentFacts, topic: str) -> int:
    """The newest time in a segment that a broker's clock gave, -1 if none did."""
    if topic in BROKERS_TOPICS:
        return facts.summary.max_timestamp
    return int(markers_in(facts).time_ms.max(initial=-1))


class LastWrite(NamedTuple):
    """When the broker of a log directory last wrote, by two clocks that must not be mixed.

    Attributes:
        by_file_ms: newest modification time of a log, -1 if none is known.
        by_batch_ms: newest time that a broker gave a batch, -1 if none is known.
    """

    by_file_ms: int
    by_batch_ms: int


def last_write(segments: Iterable[tuple[str, SegmentFacts]], now_ms: int) -> LastWrite:
    """Look at all segments of a log directory; what lies in the future says nothing.

    Args:
        segments: topic and facts of each.
        now_ms: the clock.
    """
    by_file = by_batch = -1
    for topic, facts in segments:
        times = np.append(markers_in(facts).time_ms, newest_broker_time(facts, topic))
        by_batch = max(by_batch, int(times[times <= now_ms].max(initial=-1)))
        if facts.mtime_ms <= now_ms:
            by_file = max(by_file, facts.mtime_ms)
    return LastWrite(by_file, by_batch)


# -- signs of trouble other than damage: modification times that look copied

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
