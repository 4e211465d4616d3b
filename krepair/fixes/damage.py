"""Maps of damaged logs: which ranges of a partition are damaged, and which of them a torn write explains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from krepair.fixes.analysis import PartitionAnalysis, ResultKey
from krepair.fixes.context import Context, place_of
from krepair.fixes.logs import next_base_of
from krepair.formats.java_numbers import INT32_MAX, INT64_MAX
from krepair.kernels.classes import D_OFFSET_ORDER
from krepair.logdir.values import LogDir
from krepair.rules.damage import DamageAssessment, DamagedLogs, WriteProgress, damages_of, valid_range

if TYPE_CHECKING:
    from krepair.rewrite.damage import MapItem, MapResult

DAMAGE_RESULT: ResultKey[dict[int, MapResult]] = ResultKey("damage")


def maps_of(analysis: PartitionAnalysis) -> Mapping[int, MapResult]:
    """Return the maps of a partition's damaged logs, by base offset."""
    return analysis.result(DAMAGE_RESULT) or {}


def map_damaged_logs(context: Context, analyses: Sequence[PartitionAnalysis]) -> None:
    """Map every damaged log of partitions that were read."""
    work = [
        (analysis, number)
        for analysis in analyses
        for number, facts in enumerate(analysis.segments)
        if facts.summary.damage
    ]
    if not work:
        return
    maps: dict[str, dict[int, MapResult]] = {}
    from krepair.rewrite.damage import map_damage

    items = (((analysis, number), _item(context.view, analysis, number)) for analysis, number in work)
    for (analysis, number), result in context.engine.each(map_damage, items):
        base_offset = analysis.segments[number].base_offset
        maps.setdefault(analysis.partition.folder, {})[base_offset] = result
    for analysis in analyses:
        if analysis.partition.folder in maps:
            analysis.put(DAMAGE_RESULT, maps[analysis.partition.folder])


def _item(log_dir: LogDir, analysis: PartitionAnalysis, number: int) -> MapItem:
    from krepair.rewrite.damage import MapItem

    facts = analysis.segments[number]
    bases = [segment.base_offset for segment in analysis.partition.segments]
    later = [base for base in bases if base > facts.base_offset]
    following_offset = later[0] if later else INT64_MAX
    if facts.summary.damage == D_OFFSET_ORDER:
        following_offset = next_base_of(log_dir, analysis.partition, facts.base_offset)
    return MapItem(
        place=place_of(log_dir, analysis.partition),
        base_offset=facts.base_offset,
        size=facts.summary.file_size,
        first=valid_range(facts.summary),
        damage=facts.summary.damage,
        text=facts.summary.damage_text,
        highest=min(facts.base_offset + INT32_MAX, following_offset - 1),
        interval_bytes=analysis.settings.index_interval_bytes,
        next_base=later[0] if later else -1,
    )


def damaged_logs(analysis: PartitionAnalysis) -> DamagedLogs:
    """Return the facts of a partition in the form that the rules of damage take."""
    read = {} if analysis.log is None else analysis.log.txn_entries
    return DamagedLogs(
        folder=analysis.partition.folder,
        segments=analysis.segments,
        unread_aborts=tuple(
            segment.base_offset
            for segment in analysis.partition.segments
            if segment.txn_index is not None and segment.txn_index.size and segment.base_offset not in read
        ),
        maps=maps_of(analysis),
        listed=len(analysis.partition.segments),
        log_start=analysis.log_start,
    )


def damages_in(log_dir: LogDir, analysis: PartitionAnalysis) -> tuple[DamageAssessment, ...]:
    """Return every damaged range of a partition that could be mapped, ascending."""
    return damages_of(damaged_logs(analysis), _written(log_dir, analysis))


def _written(log_dir: LogDir, analysis: PartitionAnalysis) -> WriteProgress:
    key, clean = analysis.partition.key, log_dir.clean_shutdown
    point = log_dir.recovery_point.offsets.get(key, 0)
    return WriteProgress(
        flushed=INT64_MAX if clean else point,
        recorded=INT64_MAX if clean else max(point, log_dir.high_watermark.offsets.get(key, 0)),
        preallocated=analysis.settings.preallocate,
    )
