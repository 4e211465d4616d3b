"""Damage in logs: damaged ones are mapped, and findings say what each way out costs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from krepair.checks.catalogue import Finding
from krepair.fixes.context import Context, place_of
from krepair.fixes.survey import Sight, Survey
from krepair.formats.filenames import log_name
from krepair.formats.java_numbers import INT32_MAX, INT64_MAX
from krepair.logdir.values import LogDir
from krepair.rules.damage import Damaged, DamagedLogs, damages_of, rule_of, unmapped, valid_range
from krepair.rules.model import SegmentFacts

if TYPE_CHECKING:
    from krepair.pipeline.damage import MapItem, MapResult

DAMAGE_SEEN: Sight[dict[int, MapResult]] = Sight("damage")


def maps_of(survey: Survey) -> Mapping[int, MapResult]:
    """Maps of the damaged logs of a partition, by base offset."""
    return survey.seen(DAMAGE_SEEN) or {}


def look_at_damage(context: Context, surveys: Sequence[Survey]) -> None:
    """Map every damaged log of partitions that were read."""
    work = [
        (survey, number)
        for survey in surveys
        for number, facts in enumerate(survey.segments)
        if facts.summary.damage
    ]
    if not work:
        return
    maps: dict[str, dict[int, MapResult]] = {}
    from krepair.pipeline.damage import map_damage

    asked = (((survey, number), _item(context.view, survey, number)) for survey, number in work)
    for (survey, number), result in context.engine.each(map_damage, asked):
        base_offset = survey.segments[number].base_offset
        maps.setdefault(survey.partition.folder, {})[base_offset] = result
    for survey in surveys:
        if survey.partition.folder in maps:
            survey.put(DAMAGE_SEEN, maps[survey.partition.folder])


def _item(log_dir: LogDir, survey: Survey, number: int) -> MapItem:
    from krepair.pipeline.damage import MapItem

    facts = survey.segments[number]
    bases = [segment.base_offset for segment in survey.partition.segments]
    later = [base for base in bases if base > facts.base_offset]
    return MapItem(
        place=place_of(log_dir, survey.partition),
        base_offset=facts.base_offset,
        size=facts.summary.file_size,
        first=valid_range(facts.summary),
        damage=facts.summary.damage,
        text=facts.summary.damage_text,
        highest=min(facts.base_offset + INT32_MAX, later[0] - 1 if later else INT64_MAX),
        interval_bytes=survey.settings.index_interval_bytes,
        next_base=later[0] if later else -1,
    )


def damaged_logs(survey: Survey) -> DamagedLogs:
    """What the rules of damage ask of a partition."""
    return DamagedLogs(
        folder=survey.partition.folder,
        segments=survey.segments,
        maps=maps_of(survey),
        listed=len(survey.partition.segments),
        log_start=survey.log_start,
    )


def damages_in(log_dir: LogDir, survey: Survey) -> tuple[Damaged, ...]:
    """Every damaged range of a partition that could be mapped, ascending."""
    point = log_dir.recovery_point.offsets.get(survey.partition.key, 0)
    return damages_of(damaged_logs(survey), INT64_MAX if log_dir.clean_shutdown else point)


def recovered_bases(survey: Survey, point: int) -> list[int]:
    """Base offsets of the segments that hold offsets at or above the recovery point, ascending."""
    return [segment.base_offset for segment, end in survey.partition.segments_with_ends() if end > point]


def damage_findings(log_dir: LogDir, survey: Survey) -> Iterator[Finding]:
    """Every damaged range with the price of each way out."""
    folder = survey.partition.folder
    why = unmapped(damaged_logs(survey)) if maps_of(survey) else ""
    for base_offset, found in sorted(maps_of(survey).items()):
        if found.failure == "unreadable":
            yield Finding(rule="KR308", partition=folder, file=log_name(base_offset), evidence=found.why)
    if why:
        for facts in survey.segments:
            if facts.summary.damage:
                yield _unmapped_finding(survey, facts, why)
        return
    for one in damages_in(log_dir, survey):
        yield Finding(
            rule=one.rule,
            partition=folder,
            file=log_name(one.base_offset),
            position=one.range.start,
            evidence=f"{one.range.text}; {_where(one)}; {one.price}",
            bytes=0 if one.range.zeros else one.range.bytes,
            command=_command(log_dir, one),
            first_offset=one.excised.first,
            last_offset=one.excised.last,
            records_lost=0 if one.torn else one.excised.records,
            bytes_lost=0 if one.torn else one.excised.bytes,
        )


def _command(log_dir: LogDir, one: Damaged) -> str:
    """What mends it with the least loss; empty where no way out is offered."""
    if not one.torn and not one.consent:
        return ""
    words = ["krepair", "plan", log_dir.path, "--fix", "tail"]
    words += [] if one.torn else ["--accept-data-loss", one.consent]
    return shlex.join([*words, "--out", "PLAN"])


def _unmapped_finding(survey: Survey, facts: SegmentFacts, why: str) -> Finding:
    rest = facts.summary.file_size - facts.summary.valid_bytes
    return Finding(
        rule=rule_of(facts.summary.damage),
        partition=survey.partition.folder,
        file=log_name(facts.base_offset),
        position=facts.summary.valid_bytes,
        evidence=f"{facts.summary.damage_text}; {rest} bytes from here to the end of the file; {why}",
        bytes=rest,
    )


def _where(one: Damaged) -> str:
    if one.range.next_offset >= 0:
        following = f"the next valid batch, at position {one.range.end} (offset {one.range.next_offset})"
        return f"{one.range.bytes} bytes to {following}"
    nothing = "" if one.range.checksummed else ", no valid batch among them"
    return f"{one.range.bytes} bytes to the end of the file{nothing}"
