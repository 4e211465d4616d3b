"""Timestamps of records that cannot be right, and what retention by time makes of them (KR704).

Kafka takes CreateTime as it comes, also in seconds or microseconds (KAFKA-6482, KAFKA-20609).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from krepair.checks.catalogue import Finding, Severity
from krepair.checks.retention import Deletions, SegmentClock
from krepair.fixes.index import clocks_of
from krepair.fixes.survey import Survey
from krepair.formats.filenames import log_name
from krepair.formats.words import count_text
from krepair.logdir.values import LogDir
from krepair.plan.view import time_text

_DAY_MS: Final = 24 * 60 * 60 * 1000
_SECONDS: Final = range(10**9, 10**10)
"""Times from 2001 on, in seconds."""
_MICROSECONDS: Final = range(10**15, 10**17)
"""Times from 2001 on, in microseconds."""


def time_findings(view: LogDir, survey: Survey, going: Deletions, now_ms: int) -> Iterator[Finding]:
    """KR704: retention that stands still at a time in the future, or that is about to delete what is young.

    Args:
        view: the log directory.
        survey: one partition.
        going: what the next start deletes of it.
        now_ms: the clock, epoch milliseconds.
    """
    settings = survey.settings
    clocks = clocks_of(view, survey)
    if "delete" in settings.cleanup_policy and settings.retention_ms >= 0:
        yield from _stands_still(survey, clocks, now_ms)
    seconds = [one for one in clocks if one.largest in _SECONDS and one.base_offset in going.expected]
    if seconds:
        size = sum(one.log_bytes for one in seconds)
        first = seconds[0].largest
        yield Finding(
            rule="KR704",
            partition=survey.partition.folder,
            file=log_name(seconds[0].base_offset),
            evidence=f"timestamps look like seconds, such as {first}; a broker takes it for {time_text(first)}: "
            f"the next start deletes {count_text(len(seconds), 'segment')}, {size} bytes; set retention.ms=-1 on the "
            "topic before the start, or message.timestamp.type=LogAppendTime for what is written later",
            bytes=size,
            severity=Severity.DATA_LOSS,
        )


def _stands_still(survey: Survey, clocks: list[SegmentClock], now_ms: int) -> Iterator[Finding]:
    """The first segment of a time in the future: everything from it on waits, however old it is."""
    for number, clock in enumerate(clocks):
        if clock.largest <= now_ms + _DAY_MS:
            continue
        limit = now_ms - survey.settings.retention_ms
        behind = [one for one in clocks[number + 1 :] if one.true_ms < limit]
        if clock.largest in _MICROSECONDS:
            what = f"look like microseconds, such as {clock.largest}, meant as {time_text(clock.largest // 1000)}"
            ends = "for ever"
        else:
            what, ends = "lie in the future", f"until {time_text(clock.largest)}"
        size = sum(one.log_bytes for one in behind)
        yield Finding(
            rule="KR704",
            partition=survey.partition.folder,
            file=log_name(clock.base_offset),
            evidence=f"timestamps {what}: retention by time stands still at this segment {ends}; behind it "
            f"{count_text(len(behind), 'segment')} of {size} bytes {'is' if len(behind) == 1 else 'are'} past "
            f"retention.ms={survey.settings.retention_ms}",
            bytes=size,
        )
        return
