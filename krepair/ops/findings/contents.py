"""Compressed content that cannot be read (KR307): looked for only with ``check --deep``, since it costs CPU time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from krepair.checks.catalogue import Finding
from krepair.fixes.survey import Surveyed, place_of
from krepair.formats.compression import Codec
from krepair.logdir.values import LogDir
from krepair.options import Options
from krepair.pipeline.contents import ContentItem, ContentProblem
from krepair.pipeline.engine import Engine
from krepair.pipeline.jobs import READ_CONTENTS
from krepair.pipeline.progress import Progress


def content_findings(
    view: LogDir, surveyed: Sequence[Surveyed], options: Options, engine: Engine, progress: Progress
) -> Iterator[Finding]:
    """Findings of all partitions; nothing without ``--deep``. A log that cannot be read has a finding of its own."""
    if not options.deep:
        return
    items = [
        ContentItem(
            place=place_of(view, each.partition), base_offset=segment.base_offset, size=segment.log.size
        )
        for each in surveyed
        for segment in each.partition.segments
    ]
    progress.start("content", sum(item.size for item in items))
    found: dict[int, list[Finding]] = {}
    for index, result in engine.run(READ_CONTENTS, items):
        item = items[index]
        found[index] = [_finding(item, problem) for problem in result.problems]
        progress.advance(item.size)
    progress.finish()
    for index in sorted(found):
        yield from found[index]


def _finding(item: ContentItem, problem: ContentProblem) -> Finding:
    known = {codec.value: codec.name.lower() for codec in Codec}
    codec = known.get(problem.codec, f"codec {problem.codec}")
    return Finding(
        rule="KR307",
        partition=item.place.folder,
        file=f"{item.base_offset:020d}.log",
        position=problem.position,
        evidence=f"{problem.length} bytes of {codec}: expected {problem.expected}, found {problem.found}",
        bytes=problem.length,
    )
