"""The plan layer's code for ``RewriteSegments``: a group of segments is rewritten as one segment."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from msgspec.structs import replace

from krepair.formats.cleanup_policy import compacts
from krepair.formats.filenames import SEGMENT_SUFFIXES, offset_name, segment_name
from krepair.formats.java_numbers import INT32_MAX
from krepair.formats.words import count_text
from krepair.plan.actions.action import (
    EVERY_REPLICA,
    LAGGING_REPLICA,
    LATE_READERS,
    ROUNDING_BYTES,
    BytesRead,
    PlannedAction,
    Space,
    Touched,
)
from krepair.plan.actions.evidence_review import evidence_of_partition
from krepair.plan.actions.key_review import key_sums, keys_of_source
from krepair.plan.actions.log_contents import CONTENT_OF, Content, Fate, Run, before_keys_go, summed
from krepair.plan.facts import SNAPSHOT_NAME, PartitionFacts, own_setting, setting
from krepair.plan.model import ReasonTally, RewriteSegments, SourceSegment
from krepair.plan.objection import Objection
from krepair.rules.own_policy import not_asked_for
from krepair.rules.reasons import Reason, Verdict, told_of

EMPTIED_BATCH_BYTES: Final = 61
"""A v2 batch header without records (``DefaultRecordBatch.RECORD_BATCH_OVERHEAD``)."""

SMALLEST_MESSAGE_BYTES: Final = 26
"""A message of v0 without key and value."""

_HEX_16: Final = re.compile(r"[0-9a-f]{16}")
_TXN_INDEX_ENTRY_BYTES: Final = 34
_MARKERS_KEPT: Final = (
    Reason.MARKER_DATA_REMAINS,
    Reason.MARKER_HORIZON,
    Reason.MARKER_STAMP,
    Reason.MARKER_EPOCH,
    Reason.MARKER_HELD,
)

_STAYS: Final = frozenset(reason.value for reason in (Reason.RECORDS, *_MARKERS_KEPT, Reason.CONTROL_OTHER))
"""Reasons whose batches keep their size."""


class Rewrite(PlannedAction[RewriteSegments]):
    """Of ``RewriteSegments``. The active segment is not rewritten, so the log end stays."""

    kind = RewriteSegments
    in_order = True

    def by_itself(self, change: RewriteSegments) -> bool:
        """Not with key compaction: it depends on all segments, so all groups are staged and proven together."""
        return not change.loses_records

    def touches(self, change: RewriteSegments) -> Touched:
        """The new segment's files, those of the segments merged away, and their producer snapshots."""
        bases = tuple(source.base_offset for source in change.sources)
        makes = tuple(segment_name(change.base_offset, suffix) for suffix in SEGMENT_SUFFIXES)
        merged = tuple(segment_name(base, suffix) for base in bases[1:] for suffix in SEGMENT_SUFFIXES)
        return Touched(bases, makes, (*merged, *change.removes_snapshots))

    def space(self, change: RewriteSegments, sizes: Mapping[str, int]) -> Space:
        """The new segment with the upper bound of its indexes; and the old segments, which are freed by purge."""
        made = change.log_bytes + change.index_bytes_at_most
        segments = sum(
            sizes.get(segment_name(source.base_offset, suffix), 0)
            for source in change.sources
            for suffix in SEGMENT_SUFFIXES
        )
        return Space(
            made=made,
            taken_out=segments + sum(sizes.get(name, 0) for name in change.removes_snapshots),
            peak=made + len(SEGMENT_SUFFIXES) * ROUNDING_BYTES,
            log_shrinks=_source_bytes(change) - change.log_bytes,
            logs_out=_source_bytes(change),
        )

    def work(self, change: RewriteSegments) -> BytesRead:
        """Sources are read twice (rewrite, verify), the new log once more."""
        read = _source_bytes(change)
        return BytesRead(stage=read, verify=change.log_bytes, apply=2 * read + change.log_bytes)

    def with_figures(self, change: RewriteSegments, space: Space) -> RewriteSegments:
        """The change with the bytes that it frees and with its peak."""
        return replace(change, freed_at_purge=space.taken_out - space.made, peak_extra_bytes=space.peak)

    def sources(self, change: RewriteSegments) -> tuple[SourceSegment, ...]:
        return change.sources

    def risks(self, change: RewriteSegments) -> tuple[str, ...]:
        """Other replicas still have the removed batches, and late readers may not have seen the removed records."""
        late = (LATE_READERS,) if change.loses_records else ()
        return (EVERY_REPLICA, LAGGING_REPLICA, *late)

    def review(self, facts: PartitionFacts, change: RewriteSegments) -> Iterator[Objection]:
        where = change.change_id
        if not change.sources:
            yield Objection("RV17", where, "a group has no sources")
            return
        yield from _group(facts, change)
        yield from _new_segment(facts, change)
        yield from _snapshots(facts, change)
        for source in change.sources:
            place = f"{where} source {source.base_offset}"
            yield from _fingerprint(facts, source, place)
            yield from _tallies(source, place)
            yield from _kept(source, place)
            yield from _decisions(source, place)
            yield from keys_of_source(facts, source, place)
        yield from _last_batch(change)

    def review_all(self, facts: PartitionFacts, changes: Sequence[RewriteSegments]) -> Iterator[Objection]:
        """The topic must be compacted, and the groups must ascend and be in the span that may be compacted."""
        where, topic = facts.partition.folder, facts.partition.topic
        if not compacts(setting(facts.policy, topic, "cleanup.policy")):
            yield Objection("RV14", where, f"{topic} is not compacted (cleanup.policy)")
        yield from _asked_for(facts, changes)
        yield from evidence_of_partition(facts, changes)
        yield from _order(facts, changes)
        yield from _span(facts, changes)

    def summary(self, changes: Sequence[RewriteSegments]) -> Iterator[str]:
        """How many segments become how many, and how many snapshots are removed with them."""
        plain = [change for change in changes if not change.loses_records]
        by_key = [change for change in changes if change.loses_records]
        if plain:
            yield (
                f"{_become(plain)}. Batches with records are carried over "
                "byte for byte; log start, log end and leader epochs stay."
            )
        if by_key:
            gone = sum(source.by_key.gone for change in by_key for source in change.sources if source.by_key)
            records = (
                f"{count_text(gone, 'record')} of keys that have a newer record, or were deleted: removed"
                if gone
                else "No record is removed"
            )
            yield (
                f"{_become(by_key)}. {records}. Every record that stays is carried over byte for byte; log start, log "
                "end and leader epochs stay."
            )
        removed = sum(len(change.removes_snapshots) for change in changes)
        if removed:
            yield (
                f"{count_text(removed, 'producer snapshot')} of segments that are merged away: removed; never the "
                "newest."
            )

    def fate(self, change: RewriteSegments, sizes: Mapping[str, int]) -> Fate:
        """The contents by reason. Bytes of the new log beyond the batches that stay are headers of emptied batches."""
        before = {source.base_offset: _holds(source) for source in change.sources}
        stays = [
            (CONTENT_OF.get(tally.reason, Content.OTHER), tally.bytes)
            for source in change.sources
            for tally in source.reasons
            if tally.reason in _STAYS
        ]
        emptied = change.log_bytes - sum(size for _, size in stays)
        new = summed([*stays, (Content.EMPTIED, emptied)])
        return Fate(before, {change.base_offset: new})


def _holds(source: SourceSegment) -> tuple[Run, ...]:
    tallied = [(CONTENT_OF.get(tally.reason, Content.OTHER), tally.bytes) for tally in source.reasons]
    keys = source.by_key
    if keys is None:
        return summed(tallied)
    return before_keys_go(tallied, keys.file_bytes, EMPTIED_BATCH_BYTES * keys.emptied)


def _asked_for(facts: PartitionFacts, changes: Sequence[RewriteSegments]) -> Iterator[Objection]:
    """The fix of such changes must be chosen. Key compaction is allowed only if the topic's own settings say so."""
    where, topic = facts.partition.folder, facts.partition.topic
    by_key = [change for change in changes if change.loses_records]
    if len(by_key) < len(changes) and "markers" not in facts.fixes:
        yield Objection("RV14", where, "segments are rewritten, but markers is not among the fixes")
    if not by_key:
        return
    if "compact" not in facts.fixes:
        yield Objection("RV14", where, "records go by key, but compact is not among the fixes")
    if len(by_key) < len(changes):
        yield Objection("RV32", where, "records go by key in some groups, and in others they do not")
    row = own_setting(facts.policy, topic, "cleanup.policy")
    why = not_asked_for(topic, row.value, row.source)
    if why:
        yield Objection("RV14", where, f"records go by key, but {why}")
    yield from key_sums(facts, by_key)


def _become(changes: Sequence[RewriteSegments]) -> str:
    return f"{count_text(_sources(changes), 'segment becomes', 'segments become')} {len(changes)}"


def _sources(changes: Sequence[RewriteSegments]) -> int:
    return sum(len(change.sources) for change in changes)


def _source_bytes(change: RewriteSegments) -> int:
    return sum(source.file_bytes for source in change.sources)


def _order(facts: PartitionFacts, changes: Sequence[RewriteSegments]) -> Iterator[Objection]:
    previous = -1
    for change in changes:
        bases = [source.base_offset for source in change.sources]
        if bases and bases[0] <= previous:
            yield Objection("RV15", change.change_id, "groups are not ascending and disjoint")
        previous = max([previous, *bases])
        if change.change_id != f"{facts.partition.folder}/{offset_name(change.base_offset)}":
            yield Objection("RV09", change.change_id, "change_id is not folder and base offset")


def _span(facts: PartitionFacts, changes: Sequence[RewriteSegments]) -> Iterator[Objection]:
    partition = facts.partition
    where, span = partition.folder, partition.span
    if span is None:
        yield Objection("RV16", where, "segments are rewritten, but the plan has no span for them")
        return
    if not 0 <= span.start_offset < span.end_offset <= partition.log_end_offset:
        yield Objection(
            "RV16", where, f"span {span.start_offset} to {span.end_offset} is empty, or not inside of the log"
        )
    if not facts.policy.assume_high_watermark and span.end_offset > partition.high_watermark:
        yield Objection(
            "RV16",
            where,
            f"span ends at {span.end_offset}, past the high watermark {partition.high_watermark}",
        )
    for change in changes:
        if not span.start_offset <= change.base_offset <= change.last_offset < span.end_offset:
            yield Objection(
                "RV16",
                change.change_id,
                f"offsets {change.base_offset} to {change.last_offset} are not inside of the span "
                f"{span.start_offset} to {span.end_offset}",
            )


def _group(facts: PartitionFacts, change: RewriteSegments) -> Iterator[Objection]:
    where = change.change_id
    bases = [source.base_offset for source in change.sources]
    if change.base_offset != bases[0]:
        yield Objection("RV17", where, f"base offset {change.base_offset}, its first source has {bases[0]}")
    first = bisect_left(facts.bases, bases[0])
    if facts.bases[first : first + len(bases)] != bases:
        yield Objection(
            "RV17", where, "its sources are not segments of this partition that follow each other"
        )
    if facts.bases and facts.bases[-1] in bases:
        yield Objection("RV18", where, f"segment {facts.bases[-1]} is the last one: a broker writes to it")


def _new_segment(facts: PartitionFacts, change: RewriteSegments) -> Iterator[Objection]:
    where = change.change_id
    if change.batches < 1 or change.log_bytes < SMALLEST_MESSAGE_BYTES:
        yield Objection("RV21", where, "no batch would be left; a group keeps at least one")
    if change.index_bytes_at_most < 0:
        yield Objection("RV21", where, "the size of its indexes is negative")
    last_base = change.sources[-1].base_offset
    place = bisect_right(facts.bases, last_base)
    following = facts.bases[place] if place < len(facts.bases) else None
    from_base = max(
        (source.base_offset for source in change.sources if source.kept_batches > 0), default=last_base
    )
    if change.last_offset < from_base or (following is not None and change.last_offset >= following):
        yield Objection("RV21", where, f"last offset {change.last_offset} is not in its last kept segment")
    for name, has, parts in (
        ("log_bytes", change.log_bytes, sum(source.kept_bytes for source in change.sources)),
        ("batches", change.batches, sum(source.kept_batches for source in change.sources)),
    ):
        if has != parts:
            yield Objection("RV20", where, f"{name} is {has}, its sources give {parts}")
    if change.last_offset - change.base_offset > INT32_MAX or change.log_bytes > INT32_MAX:
        yield Objection("RV22", where, "offsets or positions do not fit 32 bits")
    if len(change.sources) > 1 and change.log_bytes > facts.segment_bytes:
        yield Objection(
            "RV22", where, f"merged to {change.log_bytes} bytes, segment.bytes is {facts.segment_bytes}"
        )
    last_log = facts.files.get(segment_name(last_base, ".log"))
    if last_log is not None and last_log.mtime_ns != change.mtime_ns:
        yield Objection("RV24", where, "modification time is not that of its last source")
    if len(change.sources) == 1 and not change.sources[0].changes:
        yield Objection("RV27", where, "it has one source and does not change it")


def _snapshots(facts: PartitionFacts, change: RewriteSegments) -> Iterator[Objection]:
    where = change.change_id
    merged_away = {source.base_offset for source in change.sources[1:]}
    if list(change.removes_snapshots) != sorted(set(change.removes_snapshots)):
        yield Objection("RV23", where, "snapshots are not ascending, each once")
    for name in change.removes_snapshots:
        match = SNAPSHOT_NAME.fullmatch(name)
        if match is None or name not in facts.files:
            yield Objection("RV23", where, f"{name!r} is not a producer snapshot of this partition")
        elif name == facts.newest_snapshot:
            yield Objection(
                "RV23", where, f"{name} is the newest producer snapshot: without it state is lost"
            )
        elif int(match[1]) not in merged_away:
            yield Objection("RV23", where, f"{name} does not belong to a segment that is merged away")


def _fingerprint(facts: PartitionFacts, source: SourceSegment, where: str) -> Iterator[Objection]:
    log = facts.files.get(segment_name(source.base_offset, ".log"))
    if log is None:
        yield Objection("RV24", where, "its .log has no fingerprint")
        return
    if log.size != source.file_bytes:
        yield Objection("RV24", where, f"{source.file_bytes} bytes, its fingerprint says {log.size}")
    if not log.digest:
        yield Objection("RV24", where, "the digest of its .log is missing")
    entries = facts.files.get(segment_name(source.base_offset, ".txnindex"))
    room = entries.size // _TXN_INDEX_ENTRY_BYTES if entries is not None else 0
    if source.aborted_kept and not (_ascends(source.aborted_kept) and 0 <= source.aborted_kept[-1] < room):
        yield Objection(
            "RV24", where, f"aborted_kept names entries that a .txnindex of {room} entries has not"
        )


def _tallies(source: SourceSegment, where: str) -> Iterator[Objection]:
    order = [reason.value for reason in Reason]
    codes = [tally.reason for tally in source.reasons]
    unknown = [code for code in codes if code not in order]
    if unknown:
        yield Objection("RV19", where, f"unknown reasons: {', '.join(map(repr, unknown[:3]))}")
        return
    if codes != sorted(set(codes), key=order.index):
        yield Objection("RV19", where, "reasons are not in order, each once")
    if any(
        tally.batches < 1 or tally.bytes < tally.batches * _least_bytes(tally.reason)
        for tally in source.reasons
    ):
        yield Objection("RV19", where, "a tally with no batch, or with fewer bytes than its headers take")
    for name, has, parts in (
        ("batches", source.batches, sum(tally.batches for tally in source.reasons)),
        ("bytes", source.log_bytes, sum(tally.bytes for tally in source.reasons)),
    ):
        if has != parts:
            yield Objection("RV19", where, f"{has} {name}, its tallies give {parts}")


def _least_bytes(reason: str) -> int:
    """Bytes of the smallest batch for a reason; a batch with records may be a message of v0."""
    return SMALLEST_MESSAGE_BYTES if reason == Reason.RECORDS.value else EMPTIED_BATCH_BYTES


def _kept(source: SourceSegment, where: str) -> Iterator[Objection]:
    dropped, emptied = (_with_verdict(source, verdict) for verdict in (Verdict.DROP, Verdict.EMPTY))
    gone = sum(tally.bytes for tally in (*dropped, *emptied))
    emptied_now = sum(tally.batches for tally in emptied)
    expected = {
        "kept_batches": source.batches - sum(tally.batches for tally in dropped),
        "kept_bytes": source.log_bytes - gone + EMPTIED_BATCH_BYTES * emptied_now,
        "kept_markers": sum(_batches(source, reason) for reason in _MARKERS_KEPT),
    }
    for name, value in expected.items():
        if getattr(source, name) != value:
            yield Objection("RV20", where, f"{name} is {getattr(source, name)}, its tallies give {value}")
    with_records = _batches(source, Reason.RECORDS)
    if source.kept_records < with_records or (with_records == 0) != (source.kept_records == 0):
        yield Objection(
            "RV20", where, f"records: {source.kept_records}, in batches with records: {with_records}"
        )


def _decisions(source: SourceSegment, where: str) -> Iterator[Objection]:
    if not _HEX_16.fullmatch(source.decisions):
        yield Objection("RV26", where, "decisions is not 16 hex digits")
    if _batches(source, Reason.MARKER) and not source.drop_unstamped:
        yield Objection("RV26", where, "markers are removed although their delete horizon has not passed")
    if _batches(source, Reason.MARKER_HORIZON) and source.drop_unstamped:
        yield Objection("RV26", where, "markers wait for a delete horizon that has passed")
    if _batches(source, Reason.MARKER_EPOCH) and not source.protected:
        yield Objection("RV26", where, "markers stay for an epoch, but no producer is protected")
    if _batches(source, Reason.EMPTIED_PRODUCER) > len(source.keep_positions):
        yield Objection("RV26", where, "more emptied batches stay for a producer than positions are named")
    if not (_ascends(source.carried_open) and _ascends(source.keep_positions) and _ascends(source.protected)):
        yield Objection("RV26", where, "carried_open, keep_positions or protected do not ascend")
    if (
        source.keep_positions
        and not 0 <= source.keep_positions[0] <= source.keep_positions[-1] < source.log_bytes
    ):
        yield Objection("RV26", where, "a kept position is not in the segment")
    last = _batches(source, Reason.LAST_EMPTIED_NOW) + _batches(source, Reason.EMPTIED_LAST)
    if last != (1 if source.last_position != -1 else 0) or not -1 <= source.last_position < max(
        source.log_bytes, 1
    ):
        yield Objection(
            "RV26",
            where,
            f"last_position {source.last_position} and {count_text(last, 'last batch', 'last batches')}",
        )


def _last_batch(change: RewriteSegments) -> Iterator[Objection]:
    with_batches = [source for source in change.sources if source.batches > 0]
    for source in with_batches[:-1]:
        if source.last_position != -1:
            yield Objection(
                "RV26", change.change_id, f"source {source.base_offset} does not hold the last batch"
            )


def _with_verdict(source: SourceSegment, verdict: Verdict) -> list[ReasonTally]:
    return [
        tally for tally in source.reasons if (known := told_of(tally.reason)) and known.verdict is verdict
    ]


def _batches(source: SourceSegment, reason: Reason) -> int:
    return sum(tally.batches for tally in source.reasons if tally.reason == reason.value)


def _ascends(values: Sequence[int] | Sequence[tuple[int, int]]) -> bool:
    return all(first < second for first, second in pairwise(values))  # type: ignore[operator]
