"""What retention by time deletes at the next start: by the time that a broker will read, and by the true one.

Source: deletableSegments and LogSegment.largestTimestamp (2.2.1, 2.3.1, 3.9), LogSegment.sanityCheck: up to 2.2 it
looks into the time index of every segment and rebuilds what contradicts itself; from 2.3 on (KAFKA-7283) not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

FIRST_WITHOUT_SANITY_CHECK: Final = (2, 3, 0)


class SegmentClock(NamedTuple):
    """What the age of one segment is told from.

    Attributes:
        base_offset: of the segment.
        log_bytes: size of its ``.log``.
        mtime_ms: its modification time.
        has_index: whether there is an ``.index``; from 2.3 on a segment without one is recovered.
        first_timestamp: of the first entry of the ``.timeindex`` as it is on disk, -1 if it has none.
        last_timestamp: of its last entry, zeros behind the real ones included; -1 if it has none.
        torn: whether the size of one of the two files is no multiple of its entry.
        recovered: whether the next start recovers it in any case.
        largest: largest timestamp of the log, -1 if none.
    """

    base_offset: int
    log_bytes: int
    mtime_ms: int
    has_index: bool
    first_timestamp: int
    last_timestamp: int
    torn: bool
    recovered: bool
    largest: int

    @property
    def true_ms(self) -> int:
        """The time that is true."""
        return self.largest if self.largest >= 0 else self.mtime_ms

    def read_ms(self, version: tuple[int, int, int] | None) -> int:
        """The time that a broker will read.

        Args:
            version: of the broker; None counts as 2.3 or later.
        """
        checks = version is not None and version < FIRST_WITHOUT_SANITY_CHECK
        rebuilt = self.torn or self.last_timestamp < self.first_timestamp if checks else not self.has_index
        if self.recovered or rebuilt:
            return self.true_ms
        return self.last_timestamp if self.last_timestamp >= 0 else self.mtime_ms


class Deletions(NamedTuple):
    """Segments that go at the next start, by base offset, ascending.

    Attributes:
        expected: by the times that a broker will read.
        due: by the times that are true.
    """

    expected: tuple[int, ...]
    due: tuple[int, ...]

    @property
    def too_early(self) -> tuple[int, ...]:
        """Those that go although their time has not come."""
        due = set(self.due)
        return tuple(base for base in self.expected if base not in due)


def deletions(
    clocks: Sequence[SegmentClock], *, retention_ms: int, now_ms: int, version: tuple[int, int, int] | None
) -> Deletions:
    """What ``retention.ms`` deletes: from the oldest segment on, up to the first that is young enough.

    Args:
        clocks: of all segments, ascending.
        retention_ms: negative for none.
        now_ms: the broker's clock when it starts.
        version: of the broker; None counts as 2.3 or later.
    """
    if retention_ms < 0:
        return Deletions((), ())
    limit = now_ms - retention_ms
    return Deletions(
        _leading(clocks, [clock.read_ms(version) < limit for clock in clocks]),
        _leading(clocks, [clock.true_ms < limit for clock in clocks]),
    )


def _leading(clocks: Sequence[SegmentClock], old: Sequence[bool]) -> tuple[int, ...]:
    bases = []
    for number, clock in enumerate(clocks):
        is_last_and_empty = number == len(clocks) - 1 and clock.log_bytes == 0
        if not old[number] or is_last_and_empty:
            break
        bases.append(clock.base_offset)
    return tuple(bases)
