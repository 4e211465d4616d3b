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


def recovery_text(seconds: float) -> str:
    """The seconds of a recovery in words that promise no more than is known: they are those of a warm broker.

    A broker that had just started took 1.8 to 3.7 s where these seconds were less than one.
    """
    return "a few seconds" if seconds < 1 else f"{duration_text(seconds)} or more"


ASSUMED: Final = (
    "assumed: one recovery thread, the speed of a warm broker (33 to 42 MB/s were seen on markers), a disk that gives "
    "1.5 GB/s; a broker that has just started took 2 to 4 s longer, a slow disk takes its own time"
)
"""What ``recovery_seconds`` takes for granted."""


def duration_text(seconds: float) -> str:
    """Seconds below two minutes, minutes below two hours, hours below two days, else days."""
    if seconds < 1:
        return "less than a second"
    for unit, length, below in _UNITS:
        if seconds < below:
            return f"about {seconds / length:.0f} {unit}"
    return f"about {seconds / 86_400:.0f} days"
