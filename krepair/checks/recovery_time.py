"""Estimates how long a broker recovers at an unclean start, from speeds that were measured.

Each batch takes a broker some time, whatever its size. With one thread and a warm cache, 2.2.1 and 3.9.2 recovered 33
to 42 MB/s of 78-byte markers, and 340 to 1500 MB/s of batches of 1 kB. Two constants give the lower of these speeds.
"""

from __future__ import annotations

from typing import Final

SECONDS_PER_BATCH: Final = 2.3e-6
SECONDS_PER_BYTE: Final = 1 / 1.5e9
_UNITS: Final = (("s", 1, 120), ("minutes", 60, 7200), ("hours", 3600, 172_800))
"""(unit, its length in seconds, used below this number of seconds)."""


def recovery_seconds(log_bytes: int, batches: int) -> float:
    """Seconds that one recovery thread takes, at the lower of the measured speeds.

    Args:
        log_bytes: bytes of the logs that are read.
        batches: number of batches in them.
    """
    return batches * SECONDS_PER_BATCH + log_bytes * SECONDS_PER_BYTE


def recovery_text(seconds: float) -> str:
    """The time of a recovery as text. Short times are not given exactly, because they were measured on a warm broker.

    A broker that had just started took 1.8 to 3.7 s where the estimate was below 1 s.
    """
    return "a few seconds" if seconds < 1 else f"{duration_text(seconds)} or more"


ASSUMED: Final = (
    "assumed: one recovery thread, the speed of a warm broker (33 to 42 MB/s were seen on markers), a disk that gives "
    "1.5 GB/s; a broker that has just started took 2 to 4 s longer, a slow disk takes its own time"
)
"""The conditions under which ``recovery_seconds`` holds."""


def duration_text(seconds: float) -> str:
    """A time as text: in seconds below two minutes, minutes below two hours, hours below two days, else days."""
    if seconds < 1:
        return "less than a second"
    for unit, length, below in _UNITS:
        if seconds < below:
            return f"about {seconds / length:.0f} {unit}"
    return f"about {seconds / 86_400:.0f} days"
