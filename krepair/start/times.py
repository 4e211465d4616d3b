"""Implausible record timestamps, and their effect on time-based retention and the cleaner (KR704).

Kafka accepts any CreateTime, even one in seconds or microseconds (KAFKA-6482, KAFKA-20609).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from krepair.checks.catalogue import Finding, Severity
from krepair.checks.retention import Deletions, SegmentClock
from krepair.fixes.analysis import PartitionAnalysis
from krepair.fixes.index.decide import clocks_of
from krepair.formats.filenames import log_name
from krepair.formats.words import count_text, time_text
from krepair.logdir.values import LogDir

_DAY_MS: Final = 24 * 60 * 60 * 1000
_SECONDS: Final = range(10**9, 10**10)
"""Times from 2001 on, in seconds."""
_BEFORE_KAFKA: Final = range(10**12)
"""Milliseconds up to September 2001."""
_MICROSECONDS: Final = range(10**15, 10**17)
"""Times from 2001 on, in microseconds."""


def time_findings(
    view: LogDir, analysis: PartitionAnalysis, deletions: Deletions, now_ms: int
) -> Iterator[Finding]:
    """Yield future timestamps that stall retention or the cleaner, and old ones that delete young records (KR704).

    Args:
        analysis: analysis of the partition.
        deletions: segments that the next start deletes.
        now_ms: current time, epoch milliseconds.
    """
    clocks = clocks_of(analysis, None)  # only the times in the logs matter here
    first_ahead = next(
        (position for position, clock in enumerate(clocks) if clock.largest > now_ms + _DAY_MS), len(clocks)
    )
    stopped = clocks[first_ahead:]
    stalls = [
        *_retention_waits(analysis, stopped, deletions.if_delete, now_ms),
        *_cleaner_waits(view, analysis, stopped),
    ]
    if stalls:
        clock = stopped[0]
        in_micros = clock.largest in _MICROSECONDS
        yield Finding(
            rule="KR704",
            partition=analysis.partition.folder,
            file=log_name(clock.base_offset),
            evidence=f"timestamps {'look like microseconds' if in_micros else 'lie in the future'}: the batch that "
            f"ends at offset {_offset_of(analysis, clock)} has a record of {time_text(clock.largest)}; "
            + "; ".join(text for text, _ in stalls),
            bytes=max(size for _, size in stalls),
        )
    young = [
        clock
        for clock in clocks
        if clock.largest in _BEFORE_KAFKA
        and clock.base_offset in deletions.expected
        and max(clock.mtime_ms, clock.largest * 1000) >= now_ms - analysis.settings.retention_ms
    ]
    if young:
        yield _too_early(analysis, young, deletions.if_delete)


def _retention_waits(
    analysis: PartitionAnalysis, stopped: Sequence[SegmentClock], if_delete: str, now_ms: int
) -> Iterator[tuple[str, int]]:
    """Yield the text that retention is stalled at the first of these segments, and the bytes that wait behind it."""
    settings = analysis.settings
    if not stopped or "delete" not in settings.cleanup_policy or settings.retention_ms < 0:
        return
    overdue = [clock for clock in stopped[1:] if clock.true_ms < now_ms - settings.retention_ms]
    size = sum(clock.log_bytes for clock in overdue)
    text = (
        f"{if_delete}retention by time is stalled at this segment {_how_long(stopped[0])}; behind it "
        f"{count_text(len(overdue), 'segment')} of {size} bytes {'is' if len(overdue) == 1 else 'are'} past "
        f"retention.ms={settings.retention_ms}"
    )
    yield text, size


def _cleaner_waits(
    view: LogDir, analysis: PartitionAnalysis, stopped: Sequence[SegmentClock]
) -> Iterator[tuple[str, int]]:
    """Yield the text that the cleaner waits, and the bytes of the closed segments that it does not clean.

    ``min.compaction.lag.ms`` counts from the largest timestamp of each closed segment.
    """
    lag = analysis.settings.min_compaction_lag_ms
    cleaned_to = view.cleaner.offsets.get(analysis.partition.key, -1)
    closed = stopped[:-1]
    if not analysis.settings.compacts or lag <= 0 or not closed or closed[0].base_offset < cleaned_to:
        return
    size = sum(clock.log_bytes for clock in closed)
    text = (
        f"min.compaction.lag.ms={lag} holds the cleaner back at this segment {_how_long(stopped[0])}; "
        f"{count_text(len(closed), 'closed segment')} of {size} bytes {'waits' if len(closed) == 1 else 'wait'}"
    )
    yield text, size


def _how_long(clock: SegmentClock) -> str:
    return "forever" if clock.largest in _MICROSECONDS else "until then"


def _too_early(analysis: PartitionAnalysis, young: Sequence[SegmentClock], if_delete: str) -> Finding:
    size = sum(clock.log_bytes for clock in young)
    first = young[0].largest
    description = f"look like seconds, such as {first}" if first in _SECONDS else "lie before Kafka"
    return Finding(
        rule="KR704",
        partition=analysis.partition.folder,
        file=log_name(young[0].base_offset),
        evidence=f"timestamps {description}; a broker reads {time_text(first)}: {if_delete}the next start deletes "
        f"{count_text(len(young), 'segment')}, {size} bytes. Set retention.ms=-1 on the topic through another broker "
        "before this start, or log.retention.ms=-1 in server.properties where the topic has none of its own; "
        "message.timestamp.type=LogAppendTime helps for what is written later",
        bytes=size,
        severity=Severity.CONFUSING if if_delete else Severity.DATA_LOSS,
    )


def _offset_of(analysis: PartitionAnalysis, clock: SegmentClock) -> int:
    """Return the last offset of the batch that holds the largest timestamp of a segment."""
    return next(
        segment.summary.offset_of_max
        for segment in analysis.segments
        if segment.base_offset == clock.base_offset
    )
