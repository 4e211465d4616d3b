"""One line of the forecast."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Expected = Literal["start", "recover", "truncate", "delete", "stray", "refuse", "unknown"]


class ForecastLine(Struct, frozen=True, kw_only=True):
    """What the next broker start would do to one partition.

    Attributes:
        partition: folder name.
        expected: what happens.
        text: one line: why, and what it means.
        bytes_read: how much the broker would read for it (recovery), 0 if nothing.
        segments: base offsets of the segments that it would read, ascending.
        seconds: how long that takes, see ``krepair.checks.recovery_time``.
        log_bytes: (base offset, bytes of the log) of every segment that is there afterwards, ascending; empty where
            the start was not played through, since nothing is wrong with the partition.
        log_end: the next offset as that broker sees it; -1 where the start was not played through, or fails.
    """

    partition: str
    expected: Expected
    text: str
    bytes_read: int = 0
    segments: tuple[int, ...] = ()
    seconds: float = 0.0
    log_bytes: tuple[tuple[int, int], ...] = ()
    log_end: int = -1
