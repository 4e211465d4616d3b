"""The result of the forecast for one partition, as ``check`` prints it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Expected = Literal["start", "recover", "truncate", "delete", "stray", "refuse", "unknown"]


class ForecastLine(Struct, frozen=True, kw_only=True):
    """Effect of the next broker start on one partition.

    Attributes:
        partition: folder name of the partition.
        expected: effect of the start in one keyword.
        text: one line that explains the effect and its reason.
        bytes_read: bytes that recovery reads, 0 without recovery.
        segments: base offsets of the segments that recovery reads, ascending.
        seconds: estimated recovery time in seconds, see ``krepair.checks.recovery_time``.
        log_bytes: (base offset, log bytes) of every segment after the start, ascending; empty if the start was not
            simulated because nothing is wrong with the partition.
        log_end: log end offset after the start; -1 if the start was not simulated, or fails.
    """

    partition: str
    expected: Expected
    text: str
    bytes_read: int = 0
    segments: tuple[int, ...] = ()
    seconds: float = 0.0
    log_bytes: tuple[tuple[int, int], ...] = ()
    log_end: int = -1
