"""Whether the cleaner of a partition stands still: a sign that its keys wait to be compacted."""

from __future__ import annotations

from krepair.fixes.survey import Survey
from krepair.kernels.scan import INT64_MAX
from krepair.logdir.values import LogDir, Segment

STANDS_STILL_SEGMENTS = 10


def cleaner_stands_still(view: LogDir, survey: Survey) -> bool:
    """Whether many segments lie between the cleaner's checkpoint and the active segment, or it has none."""
    if not survey.settings.compacts or len(survey.partition.segments) <= STANDS_STILL_SEGMENTS:
        return False
    return len(segments_behind_the_cleaner(view, survey)) > STANDS_STILL_SEGMENTS


def segments_behind_the_cleaner(view: LogDir, survey: Survey) -> list[Segment]:
    """Segments between the cleaner's checkpoint and the active one."""
    first_dirty = view.cleaner.offsets.get((survey.partition.topic, survey.partition.number), -1)
    return [
        segment
        for segment in survey.partition.segments[:-1]
        if segment.base_offset >= max(first_dirty, 0) and first_dirty < INT64_MAX
    ]
