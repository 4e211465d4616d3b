"""Segments that time-based retention deletes at the next start, by the times that a broker reads and by the real ones.

Up to 2.2 a broker checks the time index of every segment when it starts, and rebuilds one that contradicts itself. From
2.3 on (KAFKA-7283) it trusts the index.

Source: deletableSegments and LogSegment.largestTimestamp (2.2.1, 2.3.1, 3.9), LogSegment.sanityCheck.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from krepair.formats.broker_version import Version

FIRST_WITHOUT_SANITY_CHECK: Final = (2, 3, 0)


class SegmentClock(NamedTuple):
    """Facts that determine the age of one segment.

    Attributes:
        base_offset: base offset of the segment.
        log_bytes: bytes of the ``.log``.
        mtime_ms: modification time of the ``.log`` in epoch milliseconds.
        has_index: True if there is an ``.index``; from 2.3 on a segment without one is recovered.
        first_timestamp: timestamp of the first entry of the ``.timeindex`` on disk, -1 if there is none.
        last_timestamp: timestamp of the last entry, which may be zero padding; -1 if there is none.
        torn: True if the size of either index is not a multiple of its entry size.
        recovered: True if the next start recovers the segment in any case.
        largest: largest timestamp in the log in epoch milliseconds, -1 if none.
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
        """Real time of the segment in epoch milliseconds: its largest timestamp, or else its mtime."""
        return self.largest if self.largest >= 0 else self.mtime_ms

    def read_ms(self, version: Version) -> int:
        """Return the time that a broker takes for the segment's, in epoch milliseconds.

        Args:
            version: version of the broker; None counts as 2.3 or later.
        """
        checks = version is not None and version < FIRST_WITHOUT_SANITY_CHECK
        rebuilt = self.torn or self.last_timestamp < self.first_timestamp if checks else not self.has_index
        if self.recovered or rebuilt:
            return self.true_ms
        return self.last_timestamp if self.last_timestamp >= 0 else self.mtime_ms


WHAT_TELLS: Final = (
    "These would tell: --topic-config FILE with the output of kafka-configs.sh --describe, --set cleanup.policy, "
    "or __cluster_metadata-0 in the log directory"
)
"""Advice where ``cleanup.policy`` is not known."""


class Deletions(NamedTuple):
    """Base offsets of the segments that the next start deletes, ascending.

    Attributes:
        expected: segments that are deleted by the times that a broker reads.
        due: segments that should be deleted by their real times.
        if_delete: condition to print before both where ``cleanup.policy`` is not known; empty if it is ``delete``.
    """

    expected: tuple[int, ...]
    due: tuple[int, ...]
    if_delete: str = ""

    @property
    def too_early(self) -> tuple[int, ...]:
        """Segments that are deleted although their retention time is not over."""
        due = set(self.due)
        return tuple(base for base in self.expected if base not in due)


def deletions(
    clocks: Sequence[SegmentClock], *, retention_ms: int, now_ms: int, version: Version
) -> Deletions:
    """Return the segments that ``retention.ms`` deletes: from the oldest up to the first that is young enough.

    Args:
        clocks: facts about the age of each segment, ascending.
        retention_ms: ``retention.ms``, negative for no limit.
        now_ms: the broker's clock when it starts, in epoch milliseconds.
        version: version of the broker; None counts as 2.3 or later.
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
