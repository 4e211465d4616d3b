"""How long a broker reads at an unclean start, by what it was seen to take.

A batch costs a broker time by itself, whatever its size: on 78-byte markers 2.2.1 and 3.9.2 recovered 33 to 42 MB/s, on
batches of 1 kB 340 to 1500 MB/s, one thread and a warm cache. Two constants give both lower figures.
"""

from __future__ import annotations

from typing import Final

SECONDS_PER_BATCH: Final = 2.3e-6
SECONDS_PER_BYTE: Final = 1 / 1.5e9
_UNITS: Final = (("s", 1, 120), ("minutes", 60, 7200), ("hours", 3600, 172_800))
"""Unit, its length in seconds, and below how many seconds it is used."""


def recovery_seconds(log_bytes: int, batches: int) -> float:
    """Seconds that one recovery thread takes, at the slower of the speeds seen.

    Args:
        log_bytes: of the segments that are read.
        batches: in them.
    """
    return batches * SECONDS_PER_BATCH + log_bytes * SECONDS_PER_BYTE


def duration_text(seconds: float) -> str:
    """Seconds below two minutes, minutes below two hours, hours below two days, else days."""
    if seconds < 1:
        return "less than a second"
    for unit, length, below in _UNITS:
        if seconds < below:
            return f"about {seconds / length:.0f} {unit}"
    return f"about {seconds / 86_400:.0f} days"
