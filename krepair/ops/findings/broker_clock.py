"""Times that come from a broker's own clock, and not from the clients that made the records.

The time of a data batch is what its producer says (``message.timestamp.type=CreateTime``): it may be of any day. A
marker's time is that of the broker that wrote it, and so is the time of every batch of the offsets and the transaction
topic; a file's modification time is when its broker last appended, as long as nobody copied it.
"""

from __future__ import annotations

from collections.abc import Iterable
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
