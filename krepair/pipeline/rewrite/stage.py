"""Copies what stays of one segment into the new log. A failure is a value.

It writes only into the private sub-folder, and writes the same bytes at the same place however often it is run.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.durable.writing_error import WritingError
from krepair.formats.filenames import log_name
from krepair.kernels.scan import ScanInputs, SegmentSummary, scan_segment
from krepair.logdir.reading import opened_for_reading, read_into_from, why
from krepair.pipeline.items import (
    Failed,
    FailureKind,
    ScanResult,
    StageItem,
)
from krepair.pipeline.place import in_its_place
from krepair.pipeline.progress import shown
from krepair.pipeline.rewrite.kept_bytes import KeptBytes
from krepair.pipeline.segment_files import entry_pairs, pairs, read_entries
from krepair.plan.model import SourceSegment


@shown("stage")
@in_its_place
def stage(item: StageItem, tree: Tree) -> ScanResult | Failed:
    """Copy what stays of one segment; the decisions are made anew and must be the plan's."""
    source = item.change.sources[item.source]
    name = f"{item.place.folder}/{log_name(source.base_offset)}"
    try:
        entries = read_entries(item.place, source.base_offset, tree)
        inputs = ScanInputs(
            base_offset=source.base_offset,
            file_size=source.log_bytes,
            now_ms=item.now_ms,
            high_watermark=item.high_watermark,
            check_crc=True,  # also of what goes: the plan's digest is of headers alone
            entries=entry_pairs(entries),
            carried=np.array(source.carried_open, np.int64),
            keep_positions=np.array(source.keep_positions, np.int64),
            protected=pairs(source.protected),
            held=np.array(source.held, np.int64),
            last_position=source.last_position,
        )
        path = f"{item.place.path}/{log_name(source.base_offset)}"
        with opened_for_reading(path, tree) as descriptor:
            copy = KeptBytes(item, descriptor, source, RealDisk(tree))
            summary = scan_segment(inputs, read_into_from(descriptor), on_window=copy.take)
            copy.finish()
    except WritingError as error:
        return Failed("disk", f"{error.filename}: {why(error)}")
    kind, text = _stage_problem(item, source, copy, summary)
    if kind:
        return Failed(kind, f"{name}{text}")
    return ScanResult(summary=summary, entries=entries, written_crc=copy.crc)


def _stage_problem(
    item: StageItem, source: SourceSegment, copy: KeptBytes, summary: SegmentSummary
) -> tuple[FailureKind, str]:
    if copy.problem:
        return "verify", f": {copy.problem}"
    if summary.headers != item.headers or summary.damage:
        return "changed", not_as_planned(summary)
    kind, text = not_as_decided(summary, source)
    return kind, f": {text}" if kind else ""


def not_as_planned(summary: SegmentSummary) -> str:
    """What to say behind the name of a log that is not as it was when the plan was made.

    Args:
        summary: of its scan.
    """
    if summary.damage:
        return (
            f", position {summary.valid_bytes}: {summary.damage_text}; when the plan was made, it was right"
        )
    return ": its batches are not those that the plan was made of"


class Decided(Protocol):
    """What a plan says of the part of a new log that comes from one source."""

    @property
    def decisions(self) -> str:
        """Digest of the decisions, 16 hex digits."""

    @property
    def aborted_kept(self) -> tuple[int, ...]:
        """Numbers of the entries of the transaction index that stay."""


def not_as_decided(summary: SegmentSummary, planned: Decided) -> tuple[FailureKind, str]:
    """How what was staged of one source is not what the plan says; empty if it is.

    Args:
        summary: of the scan in which it was decided anew what stays.
        planned: what the plan says.
    """
    decisions = f"{summary.decisions & (2**64 - 1):016x}"
    kept = tuple(np.flatnonzero(summary.entry_flags == 2).tolist())
    if decisions != planned.decisions or kept != planned.aborted_kept:
        text = "what stays was decided again, and is not what the plan has"
        return "changed", f"{text}: {decisions}, the plan has {planned.decisions}"
    return "", ""
