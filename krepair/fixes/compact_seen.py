"""What key compaction decided on a partition: ``compact`` puts it, and ``markers`` leaves such a partition alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from krepair.fixes.survey import Sight, Survey
from krepair.rules.model import LeftAlone

if TYPE_CHECKING:
    from krepair.pipeline.compaction.partitions import Compaction


class SeenKeys(NamedTuple):
    """What was decided on one partition.

    Attributes:
        compaction: the decisions; None if it is left alone.
        left: why, else None.
        scratch_bytes: what its keys may take outside of memory, at most.
    """

    compaction: Compaction | None
    left: LeftAlone | None
    scratch_bytes: int = 0


COMPACT_SEEN: Sight[SeenKeys] = Sight("keys")


def decided_by_key(survey: Survey) -> Compaction | None:
    """The decisions of key compaction, which include the rules of markers; None if it made none."""
    seen = survey.seen(COMPACT_SEEN)
    return None if seen is None else seen.compaction
