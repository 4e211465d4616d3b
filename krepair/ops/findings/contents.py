"""Compressed content that cannot be read (KR307): looked for only with ``check --deep``, since it costs CPU time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from krepair.checks.catalogue import Finding
from krepair.fixes.context import Context, place_of
from krepair.fixes.survey import Survey
from krepair.formats.codec import Codec
from krepair.formats.filenames import log_name
from krepair.pipeline.items import Failed

if TYPE_CHECKING:
    from krepair.formats.damage import Damage
    from krepair.pipeline.items import LogItem


def content_findings(context: Context, surveys: Sequence[Survey]) -> Iterator[Finding]:
    """Findings of all partitions; nothing without ``--deep``. A log that cannot be read has a finding of its own."""
    if not context.options.deep:
        return
    from krepair.pipeline.items import LogItem

    items = [
        LogItem(
            place=place_of(context.view, survey.partition),
            base_offset=segment.base_offset,
            size=segment.log.size,
        )
        for survey in surveys
        for segment in survey.partition.segments
    ]
    found: dict[int, list[Finding]] = {}
    from krepair.pipeline.contents import read_contents

    for index, result in context.engine.map(read_contents, items):
        item = items[index]
        if not isinstance(result, Failed):
            found[index] = [_finding(item, *problem) for problem in result]
    for index in sorted(found):
        yield from found[index]


def _finding(item: LogItem, codec: int, problem: Damage) -> Finding:
    known = {codec.value: codec.name.lower() for codec in Codec}
    name = known.get(codec, f"codec {codec}")
    return Finding(
        rule="KR307",
        partition=item.place.folder,
        file=log_name(item.base_offset),
        position=problem.position,
        evidence=f"{problem.length} bytes of {name}: expected {problem.expected}, found {problem.found}",
        bytes=problem.length,
    )
