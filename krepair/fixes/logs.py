"""Scans of partitions' logs for all fixes: the present logs, and the logs after the proposed changes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from msgspec import structs

from krepair.engine.engine import Engine
from krepair.engine.items import Failed, ScanItem, ScanResult
from krepair.fixes.analysis import LogFacts, PartitionAnalysis
from krepair.fixes.context import Context, place_of
from krepair.formats import txn_index
from krepair.formats.arrays import Int64s
from krepair.formats.java_numbers import INT64_MAX
from krepair.kernels.classes import D_NONE
from krepair.logdir.values import LogDir, Partition, Segment
from krepair.next_command import LOG_DIR, PLAN, Next
from krepair.plan.model import Change
from krepair.rules.model import SegmentFacts, Skipped

Ranges = tuple[tuple[int, int], ...]


class LogPart(NamedTuple):
    """Present or future state of one ``.log``: the file without some byte ranges.

    Attributes:
        without: byte ranges that are left out, ascending.
    """

    segment: Segment
    without: Ranges = ()

    @property
    def base_offset(self) -> int:
        """Base offset of the segment."""
        return self.segment.base_offset

    @property
    def size(self) -> int:
        """Size of the log in bytes, without the ranges that are left out."""
        return self.segment.log.size - sum(end - start for start, end in self.without)


def parts_after(partition: Partition, changes: Iterable[Change]) -> tuple[LogPart, ...]:
    """Return a partition's logs in the state after changes.

    A change that was already carried out has no further effect; the size of its log shows such a change.
    """
    without: dict[int, Ranges] = {}
    removed_bases: set[int] = set()
    sizes = {segment.base_offset: segment.log.size for segment in partition.segments}
    for change in changes:
        effect = change.log_effect
        removed_bases |= set(effect.segments)
        for base_offset, (size_before, ranges) in effect.ranges.items():
            if sizes.get(base_offset) == size_before:
                without[base_offset] = ranges
    return tuple(
        LogPart(segment, without.get(segment.base_offset, ()))
        for segment in partition.segments
        if segment.base_offset not in removed_bases
    )


def read_logs(context: Context, analyses: Sequence[PartitionAnalysis]) -> None:
    """Scan the logs of partitions that were not read yet, in one job; the results go to ``PartitionAnalysis.log``."""
    from krepair.scan.scan import scan

    unread = [analysis for analysis in analyses if analysis.log is None]
    work = [(analysis, segment) for analysis in unread for segment in analysis.partition.segments]
    scanned = Scanned(beside_broker=context.beside_broker)
    for item, result in context.engine.each(scan, ((item, scan_item(context, *item)) for item in work)):
        scanned.take(*item, result)
    scanned.put_into(unread)


def read_active_segments(
    view: LogDir,
    engine: Engine,
    partitions: Iterable[Partition],
    analyses: Mapping[str, PartitionAnalysis] = {},
    *,
    changes: Mapping[str, Sequence[Change]] = {},
    unread: dict[str, str] | None = None,
) -> dict[str, SegmentFacts]:
    """Return the facts of active segments, now or after changes, by folder, without reading other segments.

    Args:
        engine: engine that scans segments without known facts.
        analyses: analyses of partitions whose logs may be known, by folder.
        changes: changes that are assumed to be made, by folder.
        unread: receives the reason why a segment could not be read, by folder.
    """
    from krepair.scan.scan import scan

    last: dict[str, SegmentFacts] = {}
    items = []
    for partition in partitions:
        changed = changes.get(partition.folder, ())
        known = analyses.get(partition.folder)
        facts = () if known is None else known.segments_after if changed else known.segments
        for part in parts_after(partition, changed)[-1:]:
            if facts and facts[-1].base_offset == part.base_offset:
                last[partition.folder] = facts[-1]
                continue
            item = ScanItem(
                place=place_of(view, partition),
                base_offset=part.base_offset,
                size=part.segment.log.size,
                now_ms=0,
                high_watermark=INT64_MAX,
                without=part.without,
                next_base=next_base_of(view, partition, part.base_offset),
                has_txn_index=False,
            )
            items.append(((partition.folder, part.segment), item))
    for (folder, segment), result in engine.each(scan, items):
        if isinstance(result, ScanResult):
            last[folder] = facts_of(segment, result)
        elif unread is not None:
            unread[folder] = result.why
    return last


def read_logs_after(context: Context, analyses: Sequence[PartitionAnalysis]) -> None:
    """Scan the altered state of the logs that the proposed changes alter; store the results in ``log_after``."""
    from krepair.scan.scan import scan

    read = [analysis for analysis in analyses if analysis.log is not None]
    parts = [parts_after(analysis.partition, analysis.changes) for analysis in read]
    work = [
        (analysis, part)
        for analysis, kept_parts in zip(read, parts, strict=True)
        for part in kept_parts
        if part.without
    ]
    items = (
        ((analysis, part.segment), scan_item(context, analysis, part.segment, without=part.without))
        for analysis, part in work
    )
    scanned = Scanned()
    for key, result in context.engine.each(scan, items):
        scanned.take(*key, result)
    for analysis, kept_parts in zip(read, parts, strict=True):
        folder, bases = analysis.partition.folder, {part.base_offset for part in kept_parts}
        analysis.log_after = LogFacts(
            tuple(
                scanned.facts.get((folder, facts.base_offset), facts)
                for facts in analysis.segments
                if facts.base_offset in bases
            )
        )


class Scanned:
    """Scan results of many segments, collected in any order.

    Args:
        beside_broker: True if a broker may be writing to the active segments; then an active segment ends with its last
            complete batch, and its transaction index is not used.
    """

    def __init__(self, *, beside_broker: bool = False) -> None:
        self._beside_broker = beside_broker
        self.facts: dict[tuple[str, int], SegmentFacts] = {}
        self._entries: dict[str, dict[int, bytes]] = {}
        self._problems: dict[str, Skipped] = {}

    def take(self, analysis: PartitionAnalysis, segment: Segment, result: ScanResult | Failed) -> None:
        """Add the result of one scan."""
        folder = analysis.partition.folder
        beside = self._beside_broker and segment is analysis.partition.segments[-1]
        if beside and isinstance(result, ScanResult):
            self.facts[folder, segment.base_offset] = _as_far_as_written(facts_of(segment, result))
            return
        problem = scan_problem(result)
        if problem is not None:
            self._problems.setdefault(folder, problem)
        if isinstance(result, Failed):
            return
        # A damaged transaction index does not matter here: the facts come from the log alone.
        if not result.txn_damage:
            self._entries.setdefault(folder, {})[segment.base_offset] = result.entries
        self.facts[folder, segment.base_offset] = facts_of(segment, result)

    def put_into(self, analyses: Sequence[PartitionAnalysis]) -> None:
        """Store the facts of each partition in its analysis, in ascending order of segments."""
        for analysis in analyses:
            folder = analysis.partition.folder
            in_order = (
                self.facts.get((folder, segment.base_offset)) for segment in analysis.partition.segments
            )
            analysis.log = LogFacts(
                tuple(facts for facts in in_order if facts is not None),
                self._entries.get(folder, {}),
                self._problems.get(folder),
            )


def _as_far_as_written(facts: SegmentFacts) -> SegmentFacts:
    """Return facts of an active segment up to its last complete batch; a broker may be writing the next batch."""
    summary = facts.summary
    whole = structs.replace(summary, file_size=summary.valid_bytes, damage=D_NONE, damage_text="")
    return replace(facts, summary=whole)


def scan_problem(result: ScanResult | Failed) -> Skipped | None:
    """Return why nothing can be decided on a scanned partition, or None."""
    if isinstance(result, Failed):
        return Skipped(result.kind, result.why, damaged=True)
    if result.txn_unknown:
        return Skipped("txnindex-damage", result.txn_damage)
    if result.txn_damage:
        # A .txnindex is rebuilt by a replay of its log, so the log must be repaired first.
        fixes = "tail,index=regenerate" if result.summary.damage else "index=regenerate"
        again = Next.of("plan", LOG_DIR, "--fix", fixes, out=PLAN)
        return Skipped("txnindex-damage", result.txn_damage, again, damaged=True)
    return None


def scan_item(
    context: Context,
    analysis: PartitionAnalysis,
    segment: Segment,
    *,
    check_crc: bool = True,
    without: Ranges = (),
) -> ScanItem:
    """Return the work item that scans one segment."""
    assumed = context.options.assume_high_watermark or analysis.high_watermark < 0
    return ScanItem(
        place=place_of(context.view, analysis.partition),
        base_offset=segment.base_offset,
        size=segment.log.size,
        now_ms=context.options.now_ms,
        high_watermark=INT64_MAX if assumed else analysis.high_watermark,
        check_crc=check_crc,
        without=without,
        next_base=next_base_of(context.view, analysis.partition, segment.base_offset),
        # a special file with that name is no index, and the scan refuses it
        has_txn_index=segment.txn_index is not None or bool(analysis.partition.specials),
    )


def next_base_of(view: LogDir, partition: Partition, base_offset: int) -> int:
    """Return the offset at which the log continues after a segment.

    The result is the base offset of the next segment, or the log end offset that the last clean stop recorded.
    """
    later = bisect_right(partition.segments, base_offset, key=lambda segment: segment.base_offset)
    if later < len(partition.segments):
        return partition.segments[later].base_offset
    end = view.recovery_point.offsets.get(partition.key, -1) if view.clean_shutdown else -1
    return end if end > base_offset else INT64_MAX


def facts_of(segment: Segment, result: ScanResult) -> SegmentFacts:
    """Return the facts of a scanned segment, in the form for the rules."""
    return facts_at(segment.base_offset, segment.log.mtime_ns, result)


def facts_at(base_offset: int, mtime_ns: int, result: ScanResult) -> SegmentFacts:
    """Return the facts of a scanned log with this base offset and time, in the form for the rules."""
    return SegmentFacts(
        base_offset=base_offset,
        mtime_ms=mtime_ns // 1_000_000,
        summary=result.summary,
        entries=entries_of(result.entries),
    )


def entries_of(data: bytes) -> Int64s:
    """Return a ``.txnindex`` as int64[N, 4]: producer id, first offset, last offset, last stable offset."""
    if not data:
        return np.empty((0, 4), np.int64)
    view = txn_index.view(data)
    columns = [view[name] for name in ("producer_id", "first_offset", "last_offset", "last_stable_offset")]
    return np.column_stack(columns).astype(np.int64)
