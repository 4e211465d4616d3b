"""Times from a broker's own clock, as opposed to times from the clocks of the clients that made the records."""

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
    """Times of transaction markers in one segment, for each producer whose last batch there is a marker.

    Attributes:
        first_offset: int64[N] offset of the producer's first marker in the segment.
        time_ms: int64[N] time of the producer's last marker, epoch milliseconds.
    """

    first_offset: Int64s
    time_ms: Int64s


_NO_MARKERS: Final = MarkerTimes(np.empty(0, np.int64), np.empty(0, np.int64))


def markers_in(facts: SegmentFacts) -> MarkerTimes:
    """Return the marker times that the scan of a segment has recorded."""
    rows = facts.summary.rows
    if len(rows) == 0:
        return _NO_MARKERS
    after_data = (rows[:, c.P_NEXT_POSITION] >= 0) | (rows[:, c.P_LAST_DATA_OFFSET] < 0)
    ended = (rows[:, c.P_MARKERS] > 0) & (rows[:, c.P_OPEN_FIRST] < 0) & after_data
    return MarkerTimes(rows[ended, c.P_LEAD_OFFSET], rows[ended, c.P_TIMESTAMP])


def newest_broker_time(facts: SegmentFacts, topic: str) -> int:
    """Return the newest time in a segment that a broker's clock gave, -1 if there is none."""
    if topic in BROKERS_TOPICS:
        return facts.summary.max_timestamp
    return int(markers_in(facts).time_ms.max(initial=-1))


def last_write(segments: Iterable[tuple[str, SegmentFacts]], now_ms: int) -> int:
    """Return the newest time that a broker's clock gave to a batch, -1 if none; times in the future are ignored.

    Args:
        segments: topic and facts of each segment of a log directory.
        now_ms: current time, epoch milliseconds.
    """
    newest = -1
    for topic, facts in segments:
        times = np.append(markers_in(facts).time_ms, newest_broker_time(facts, topic))
        newest = max(newest, int(times[times <= now_ms].max(initial=-1)))
    return newest


# -- signs of trouble other than damage: modification times that look copied

COPIED_WITHIN_MS = 10 * 60 * 1000
"""Largest difference of modification times that a copy of the files explains."""
RECORDS_SPREAD_MS = 24 * 60 * 60 * 1000
"""Smallest difference of the broker's write times that contradicts equal modification times."""
FAR_FROM_RECORDS_MS = 30 * 24 * 60 * 60 * 1000
"""Smallest distance of a modification time from the broker's write time that contradicts it."""
AT_LEAST_SEGMENTS = 3
"""Least number of segments with write times from which a conclusion is drawn."""


def mtimes_look_copied(segments: Sequence[SegmentFacts], topic: str) -> bool:
    """Return whether copying seems to have reset the modification times, the clock of the delete horizon.

    Times look copied if all lie within minutes although brokers wrote into the segments for a day or more, or if all
    lie a month or more from those writes. Only markers and the brokers' own topics show when a broker wrote: clients
    may send any time in other records, even one of a year ago.
    """
    closed = [
        (segment.mtime_ms, newest_broker_time(segment, topic))
        for segment in segments[:-1]
        if segment.summary.batches
    ]
    written = [(mtime, write_time) for mtime, write_time in closed if write_time >= 0]
    if len(written) < AT_LEAST_SEGMENTS:
        return False
    mtimes = [mtime for mtime, _ in written]
    write_times = [write_time for _, write_time in written]
    together = max(mtimes) - min(mtimes) <= COPIED_WITHIN_MS
    spread = max(write_times) - min(write_times) >= RECORDS_SPREAD_MS
    far = all(abs(mtime - write_time) >= FAR_FROM_RECORDS_MS for mtime, write_time in written)
    return (together and spread) or far
