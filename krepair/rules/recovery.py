"""What a broker's recovery of an unclean log directory would leave, as far as it concerns several files. Pure.

Source: ``Log.recoverLog``, ``LogSegment.recover`` (2.2.1), ``LogLoader.recoverLog`` (3.9.2, 4.3.1),
``LeaderEpochFileCache.assign`` and ``truncateFromEnd``; KAFKA-9065 (fixed in 2.4) for the offsets topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from krepair.formats.checkpoint import EpochEntry
from krepair.rules.epochs import Rise

OFFSETS_TOPIC: Final = "__consumer_offsets"
LOADS_PAST_CLEANED_TAIL: Final = (2, 4, 0)

Version = tuple[int, int, int] | None


def floor_of(bases: Sequence[int], point: int) -> int | None:
    """Base offset of the first segment that an unclean start recovers; None for a log without segments.

    Args:
        bases: base offsets of all segments, ascending.
        point: the recovery point. If it is past the log end, the last segment is still recovered.
    """
    if not bases:
        return None
    return max((base for base in bases if base <= point), default=bases[0])


def epochs_after_recovery(
    recorded: Sequence[EpochEntry], rises: Iterable[Rise], log_end: int, *, with_zero: bool
) -> tuple[EpochEntry, ...]:
    """The leader epochs after a recovery, which appends every epoch that is higher than the last one.

    Args:
        recorded: entries of the file, in its order.
        rises: rises of the epoch in the segments that are recovered, ascending.
        log_end: offset after the last batch. Every start drops entries past it.
        with_zero: whether the broker version takes epoch 0 from the log.

    Returns:
        The entries after the recovery; ``recorded`` if the segments have no higher epoch.
    """
    kept = list(recorded)
    for rise in rises:
        if (rise.epoch == 0 and not with_zero) or (kept and rise.epoch <= kept[-1].epoch):
            continue
        while kept and kept[-1].start_offset >= rise.first_offset:
            kept.pop()
        kept.append(EpochEntry(rise.epoch, rise.first_offset))
    if kept == list(recorded):
        return tuple(recorded)
    return tuple(entry for entry in kept if entry.start_offset <= log_end)


def why_not_rolled(topic: str, version: Version) -> str:
    """Why the log of a topic does not get a new active segment, or empty.

    Up to 2.3 a broker that loads the offsets topic reads up to the log end. It loops forever if the cleaner has removed
    the last batches before an empty active segment (KAFKA-9065). The cleaner does not touch the active segment.
    """
    if topic != OFFSETS_TOPIC or (version is not None and version >= LOADS_PAST_CLEANED_TAIL):
        return ""
    who = "the version of the broker is not known" if version is None else "the broker is older than 2.4"
    return f"it gets no new segment: {who}, and before 2.4 loading {OFFSETS_TOPIC} could loop forever (KAFKA-9065)"
