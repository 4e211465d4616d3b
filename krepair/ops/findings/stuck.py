"""Bytes that the cleaner of a compacted partition never gets past (KR105)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from krepair.checks.catalogue import Finding
from krepair.fixes.context import Context, place_of
from krepair.fixes.survey import Survey
from krepair.formats.broker_version import Version
from krepair.formats.filenames import log_name
from krepair.kernels import classes as c
from krepair.logdir.config import LARGEST_RECORD_BYTES
from krepair.logdir.values import LogDir
from krepair.pipeline.items import Failed
from krepair.rules.model import SegmentFacts

READS_LARGE_BATCHES_SINCE: Final = (2, 0, 0)
"""KAFKA-6834; before, a batch above ``max.message.bytes`` killed the cleaner."""

SPLITS_OVERFLOWED_SEGMENTS_SINCE: Final = (2, 0, 0)
"""KAFKA-6264."""

LIMITS_RECORDS_SINCE: Final = (4, 4, 0)
"""``max.decompressed.message.bytes``."""

_UNSTEPPABLE: Final = frozenset({c.D_LENGTH, c.D_PAST_END, c.D_ZEROS, c.D_TORN, c.D_OLD_LENGTH})
"""Damage at which the cleaner finds no next batch; of a wrong CRC alone it takes no notice."""


def cleaner_findings(view: LogDir, survey: Survey, version: Version) -> Iterator[Finding]:
    """KR105: the bytes of a compacted partition at which each pass of the cleaner ends."""
    if not survey.settings.compacts:
        return
    first_dirty = view.cleaner.offsets.get(survey.partition.key, -1)
    for facts in survey.segments[:-1]:
        position, text = _stops_cleaner(survey, facts, version)
        if text:
            where = (
                "in what it cleans next" if facts.summary.last_offset >= first_dirty else "in its clean part"
            )
            yield Finding(
                rule="KR105",
                partition=survey.partition.folder,
                file=log_name(facts.base_offset),
                position=position,
                evidence=f"{text}; {where}",
            )


def _stops_cleaner(survey: Survey, facts: SegmentFacts, version: Version) -> tuple[int, str]:
    """Position and words, empty if nothing does."""
    summary = facts.summary
    if summary.damage in _UNSTEPPABLE:
        return summary.valid_bytes, f"the cleaner finds no next batch: {summary.damage_text}"
    overflows = summary.damage == c.D_OFFSET_RANGE
    if overflows and version is not None and version < SPLITS_OVERFLOWED_SEGMENTS_SINCE:
        return summary.valid_bytes, f"offsets too far from the base offset: {summary.damage_text}"
    most = survey.settings.max_message_bytes
    large = version is not None and version < READS_LARGE_BATCHES_SINCE
    if large and summary.largest_batch > most:
        return -1, f"a batch of {summary.largest_batch} bytes, above max.message.bytes={most}"
    return -1, ""


def large_record_findings(context: Context, surveys: Sequence[Survey]) -> Iterator[Finding]:
    """KR105: a record of a compressed batch that a cleaner of 4.4 refuses to read.

    Logs are decompressed only where the topic has a limit below the default.
    """
    if context.version is not None and context.version < LIMITS_RECORDS_SINCE:
        return
    limited = [
        survey
        for survey in surveys
        if survey.settings.compacts and survey.settings.max_decompressed_message_bytes < LARGEST_RECORD_BYTES
    ]
    if not limited:
        return
    from krepair.pipeline.large_records import LargeRecordItem, find_large_record

    items = [
        LargeRecordItem(
            place=place_of(context.view, survey.partition),
            base_offset=segment.base_offset,
            size=segment.log.size,
            most=survey.settings.max_decompressed_message_bytes,
        )
        for survey in limited
        for segment in survey.partition.segments[:-1]
    ]
    found = dict(context.engine.map(find_large_record, items))
    for index, item in enumerate(items):
        one = found[index]
        if one is not None and not isinstance(one, Failed):
            yield Finding(
                rule="KR105",
                partition=item.place.folder,
                file=log_name(item.base_offset),
                position=one.position,
                evidence=f"the batch of offsets {one.first_offset} to {one.last_offset} has a record of {one.bytes} "
                f"bytes when decompressed, above max.decompressed.message.bytes={item.most}: a cleaner of 4.4.0 or "
                "later stops there",
                first_offset=one.first_offset,
                last_offset=one.last_offset,
            )
