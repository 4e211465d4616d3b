"""The plan layer's code for ``RewriteSegments``: a group of segments is rewritten as one segment."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from krepair.formats.cleanup_policy import compacts
from krepair.formats.filenames import SEGMENT_SUFFIXES, offset_name, segment_name
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
from krepair.plan.actions.log_contents import CONTENT_OF, Content, ContentRange, Fate, before_keys_go, summed
from krepair.plan.facts import OnDisk, PartitionFacts, own_setting, setting
from krepair.plan.model import RewriteSegments, SourceSegment
from krepair.plan.objection import Objection
from krepair.rules.own_policy import not_asked_for
from krepair.rules.reasons import Reason

EMPTIED_BATCH_BYTES: Final = 61
"""A v2 batch header without records (``DefaultRecordBatch.RECORD_BATCH_OVERHEAD``)."""

SMALLEST_MESSAGE_BYTES: Final = 26
"""A message of v0 without key and value."""

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

    def fix(self, change: RewriteSegments) -> str:
        return "compact" if change.loses_records else "markers"

    def by_itself(self, change: RewriteSegments) -> bool:
        """Not with key compaction: it depends on all segments, so all groups are staged and proven together."""
        return not change.loses_records

    def touches(self, change: RewriteSegments) -> Touched:
        """The new segment's files, those of the segments merged away, and their producer snapshots."""
        bases = tuple(source.base_offset for source in change.sources)
        makes = tuple(segment_name(change.base_offset, suffix) for suffix in SEGMENT_SUFFIXES)
        merged = tuple(segment_name(base, suffix) for base in bases[1:] for suffix in SEGMENT_SUFFIXES)
        return Touched(bases, makes, (*merged, *change.removes_snapshots))

    def space(self, change: RewriteSegments, on_disk: OnDisk) -> Space:
        """The new segment with the upper bound of its indexes; and the old segments, which are freed by purge."""
        made = on_disk.takes(change.log_bytes, change.index_bytes_at_most)
        sources = (
            segment_name(source.base_offset, suffix)
            for source in change.sources
            for suffix in SEGMENT_SUFFIXES
        )
        return Space(
            made=made,
            back=on_disk.back((*sources, *change.removes_snapshots)),
            peak=made + len(SEGMENT_SUFFIXES) * ROUNDING_BYTES,
            log_shrinks=_source_bytes(change) - change.log_bytes,
        )

    def work(self, change: RewriteSegments) -> BytesRead:
        """Sources are read twice (rewrite, verify), the new log once more."""
        read = _source_bytes(change)
        return BytesRead(stage=read, verify=change.log_bytes, apply=2 * read + change.log_bytes)

    def sources(self, change: RewriteSegments) -> tuple[SourceSegment, ...]:
        return change.sources

    def risks(self, change: RewriteSegments) -> tuple[str, ...]:
        """Other replicas still have the removed batches, and late readers may not have seen the removed records."""
        late = (LATE_READERS,) if change.loses_records else ()
        return (EVERY_REPLICA, LAGGING_REPLICA, *late)

    def review(self, facts: PartitionFacts, change: RewriteSegments) -> Iterator[Objection]:
        """The active segment stays, a batch is left, and the new log ends where its sources do."""
        where = change.change_id
        if where != f"{facts.partition.folder}/{offset_name(change.base_offset)}":
            yield Objection("RV09", where, "change_id is not folder and base offset")
        bases = [source.base_offset for source in change.sources]
        if facts.bases and facts.bases[-1] in bases:
            yield Objection(
                "RV18", where, f"segment {facts.bases[-1]} is the last one: a broker writes to it"
            )
        if change.batches < 1 or change.log_bytes < SMALLEST_MESSAGE_BYTES or not bases:
            yield Objection("RV21", where, "no batch would be left; a group keeps at least one")
            return
        kept_bytes = sum(source.kept_bytes for source in change.sources)
        if change.log_bytes != kept_bytes:
            yield Objection("RV21", where, f"log_bytes is {change.log_bytes}, its sources give {kept_bytes}")
        first = bisect_left(facts.bases, bases[0])
        if change.base_offset != bases[0] or facts.bases[first : first + len(bases)] != bases:
            yield Objection(
                "RV17", where, f"it is not made of segments that follow each other from {bases[0]} on"
            )
        place = bisect_right(facts.bases, bases[-1])
        following = facts.bases[place] if place < len(facts.bases) else None
        kept = [source.base_offset for source in change.sources if source.kept_batches > 0]
        if change.last_offset < max(kept, default=bases[-1]) or (
            following is not None and change.last_offset >= following
        ):
            yield Objection(
                "RV21", where, f"last offset {change.last_offset} is not in its last kept segment"
            )
        last_log = facts.files.get(segment_name(bases[-1], ".log"))
        if last_log is not None and last_log.mtime_ns != change.mtime_ns:
            yield Objection("RV24", where, "modification time is not that of its last source")
        merged = [name for base in bases[1:] if (name := segment_name(base, ".snapshot")) in facts.files]
        expected = tuple(name for name in sorted(merged) if name != facts.newest_snapshot)
        if change.removes_snapshots != expected:
            text = f"the producer snapshots that go with its segments are {list(expected)}"
            yield Objection("RV23", where, text)

    def review_all(self, facts: PartitionFacts, changes: Sequence[RewriteSegments]) -> Iterator[Objection]:
        """The topic is compacted, the groups are in the span, and nothing goes that other replicas may need."""
        policy, topic = facts.policy, facts.partition.topic
        if not compacts(setting(policy, topic, "cleanup.policy")):
            yield Objection("RV14", facts.partition.folder, f"{topic} is not compacted (cleanup.policy)")
        own = own_setting(policy, topic, "cleanup.policy")
        why = not_asked_for(topic, own.value, own.source)
        if why and any(change.loses_records for change in changes):
            yield Objection("RV14", facts.partition.folder, f"records go by key, but {why}")
        yield from evidence_of_partition(facts, changes)
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


def _holds(source: SourceSegment) -> tuple[ContentRange, ...]:
    tallied = [(CONTENT_OF.get(tally.reason, Content.OTHER), tally.bytes) for tally in source.reasons]
    keys = source.by_key
    if keys is None:
        return summed(tallied)
    return before_keys_go(tallied, keys.file_bytes, EMPTIED_BATCH_BYTES * keys.emptied)


def _become(changes: Sequence[RewriteSegments]) -> str:
    return f"{count_text(_sources(changes), 'segment becomes', 'segments become')} {len(changes)}"


def _sources(changes: Sequence[RewriteSegments]) -> int:
    return sum(len(change.sources) for change in changes)


def _source_bytes(change: RewriteSegments) -> int:
    return sum(source.file_bytes for source in change.sources)


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
