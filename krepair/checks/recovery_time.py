"""Estimate of the recovery time after an unclean stop, from measured speeds.

Recovery costs a broker time per batch, whatever the size of the batch. With one thread and a warm cache, 2.2.1 and
3.9.2 recovered 33 to 42 MB/s of 78-byte markers, and 340 to 1500 MB/s of batches of 1 kB. The two constants below
reproduce the lower of these speeds.
"""

from __future__ import annotations

from typing import Final

SECONDS_PER_BATCH: Final = 2.3e-6
"""Seconds that a recovery takes for each batch, by the measurements above."""
SECONDS_PER_BYTE: Final = 1 / 1.5e9
"""Seconds that a recovery takes for each byte, by the measurements above."""
_UNITS: Final = (("s", 1, 120), ("minutes", 60, 7200), ("hours", 3600, 172_800))
"""Units of time: (name, length in seconds, limit in seconds below which the unit is used)."""


def recovery_seconds(log_bytes: int, batches: int) -> float:
    """Return the seconds that one recovery thread takes at the lower of the measured speeds.

    Args:
        log_bytes: bytes of the logs that recovery reads.
        batches: number of batches in these logs.
    """
    return batches * SECONDS_PER_BATCH + log_bytes * SECONDS_PER_BYTE


def recovery_text(seconds: float) -> str:
    """Return a recovery time as text; short times stay vague, since the speeds were measured on a warm broker.

    A broker that had just started took 1.8 to 3.7 s where the estimate was below 1 s.
    """
    return "a few seconds" if seconds < 1 else f"{duration_text(seconds)} or more"


ASSUMED: Final = (
    "assumed: one recovery thread, the speed of a warm broker (33 to 42 MB/s were seen on markers), a disk that gives "
    "1.5 GB/s; a broker that has just started took 2 to 4 s longer, a slow disk takes its own time"
)
"""Conditions under which ``recovery_seconds`` holds."""


def duration_text(seconds: float) -> str:
    """Return a duration as text: seconds below two minutes, minutes below two hours, hours below two days."""
    if seconds < 1:
        return "less than a second"
    for unit, length, below in _UNITS:
        if seconds < below:
            return f"about {seconds / length:.0f} {unit}"
    return f"about {seconds / 86_400:.0f} days"
