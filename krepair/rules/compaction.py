"""Key compaction: the decisions that follow from facts alone.

Records are judged while a segment is read (``krepair.kernels.compact_filter``). The rest of the segment is then scanned
like a log, and the rules of markers decide on its emptied batches and markers. So a second compaction changes nothing
if ``markers`` changes nothing in the compacted segments.

Source: LogCleanerManager.cleanableOffsets, Cleaner.shouldRetainRecord (2.2.1, 2.8, 3.9, 4.3).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec import structs

from krepair.formats.arrays import Int64s
from krepair.formats.filenames import log_name
from krepair.kernels import classes as c
from krepair.kernels import compact_filter as f
from krepair.kernels.scan import SegmentSummary
from krepair.rules import span as spans
from krepair.rules.model import LeftAlone, MarkerPolicy, PartitionDecision, SegmentFacts, SpanDecision
from krepair.rules.outcome import TombstoneHorizon
from krepair.rules.producers import needs_of, states_of, undecidable

LARGEST_LOG_BYTES = 2**31 - 1


def secret_of(fingerprints: Iterable[str]) -> bytes:
    """The secret of the key hash: 16 bytes that follow from the files. A producer of records cannot know them.

    Args:
        fingerprints: fingerprints of the planned files, in order. They contain times.
    """
    digest = hashlib.blake2b(digest_size=16, person=b"krepair compact")
    for fingerprint in fingerprints:
        digest.update(fingerprint.encode() + b"\0")
    return digest.digest()


@dataclass(frozen=True)
class Bound:
    """The part of a partition that is compacted, found before any key is read.

    Attributes:
        span: the offsets that may be compacted.
        protected: sorted pairs (producer id, epoch) whose markers stay.
        drop_unstamped: per segment of the span, whether tombstones and markers without a stamp are past the horizon.
        transactions: whether the log has any markers; if so, data may be aborted.
    """

    span: SpanDecision
    protected: tuple[tuple[int, int], ...]
    drop_unstamped: tuple[bool, ...]
    transactions: bool


def bound_of(segments: Sequence[SegmentFacts], policy: MarkerPolicy) -> Bound | LeftAlone:
    """Find the part of a partition that is compacted.

    Args:
        segments: all segments of the partition, ascending; the last one is active.
        policy: inputs that do not come from the log.

    Returns:
        The bound; or why the partition is left alone.
    """
    problem = spans.first_problem(segments)
    if problem is not None:
        return problem
    _, scan, broker = states_of(segments, policy)
    problem = undecidable(scan, broker, policy)
    if problem is not None:
        return problem
    span = spans.decide_span(segments, scan, broker, policy)
    old = next((segment for segment in segments[: span.segments] if segment.summary.old_format), None)
    if old is not None:
        return LeftAlone(
            "compacted-old-format",
            f"{log_name(old.base_offset)}, position {old.summary.old_position}: a message of v0 or v1; only batches of "
            "v2 are compacted by key, the broker's cleaner compacts others",
        )
    needs = needs_of(scan, broker, policy.now_ms, policy.producer_expiry_ms)
    horizon_ms = spans.chosen_horizon(segments, span, policy)
    return Bound(
        span=span,
        protected=tuple((int(pid), int(epoch)) for pid, epoch in needs.markers),
        drop_unstamped=tuple(
            not policy.keeps_all and segment.mtime_ms <= horizon_ms for segment in segments[: span.segments]
        ),
        transactions=any((segment.summary.rows[:, c.P_MARKERS] > 0).any() for segment in segments),
    )


def compacted_facts(original: SegmentFacts, compacted: SegmentSummary, entries: Int64s) -> SegmentFacts:
    """A compacted segment as input for the rules of markers.

    Its times are those of the source. A batch that loses its newest record must not make the segment look older for
    ``min.compaction.lag.ms``, or the producer look expired.

    Args:
        original: facts of the source.
        compacted: scan of the compacted segment.
        entries: int64[E, 4], entries of its ``.txnindex``.
    """
    rows = compacted.rows.copy()
    for column in (c.P_TIMESTAMP, c.P_LAST_DATA_TIMESTAMP):
        rows[:, column] = original.summary.rows[:, column]
    summary = structs.replace(compacted, rows=rows, max_timestamp=original.summary.max_timestamp)
    return SegmentFacts(original.base_offset, original.mtime_ms, summary, entries)


def too_large(decision: PartitionDecision) -> LeftAlone | None:
    """Why the partition is left alone, or None: compressed again, a new log would have more than 2 GiB."""
    for group in decision.groups:
        if group.kept_bytes > LARGEST_LOG_BYTES:
            name = log_name(group.sources[0].base_offset)
            return LeftAlone(
                "compacted-too-large",
                f"{name}: compressed again at the default level it would have {group.kept_bytes} bytes, but a log can "
                f"have at most {LARGEST_LOG_BYTES}",
            )
    return None


@dataclass(frozen=True)
class RecordTally:
    """Counts of the records of one segment, or of a whole partition.

    Attributes:
        records: data records.
        kept: records that stay.
        superseded: records that go, because a later one of their key is there.
        aborted: records of aborted transactions, which go.
        keyless: records without a key, which stay.
        tombstones_dropped: tombstones that are the last of their key and go, because their horizon is past.
        tombstones_kept: tombstones that are the last of their key and stay.
        unstamped: tombstones that are the last of their key and have no stamp; the horizon decides on them.
        unstamped_bytes: bytes of these, uncompressed.
        stamp_past: tombstones that are the last of their key and whose stamp is past.
        stamp_to_come: tombstones that are the last of their key and whose stamp is still to come.
        stamp_past_bytes: bytes of those whose stamp is past, uncompressed.
        held: tombstones that would go by their time, and stay because an older record of their key stays somewhere, or
            because the log has to end with records.
        rewritten: batches that lose some of their records.
        emptied: batches that lose all of their records.
    """

    records: int = 0
    kept: int = 0
    superseded: int = 0
    aborted: int = 0
    keyless: int = 0
    tombstones_dropped: int = 0
    tombstones_kept: int = 0
    unstamped: int = 0
    unstamped_bytes: int = 0
    stamp_past: int = 0
    stamp_to_come: int = 0
    stamp_past_bytes: int = 0
    held: int = 0
    rewritten: int = 0
    emptied: int = 0

    @property
    def changes(self) -> bool:
        """Whether a record goes."""
        return self.kept != self.records

    def __add__(self, other: RecordTally) -> RecordTally:
        """The sum of two tallies."""
        names = RecordTally.__dataclass_fields__
        return RecordTally(**{name: getattr(self, name) + getattr(other, name) for name in names})


def tally_of(tallies: Int64s) -> RecordTally:
    """The tally of one segment, from the kernel's int64[TALLY_COUNT], whose rows have the names of its fields."""
    names = RecordTally.__dataclass_fields__
    return RecordTally(**{name: int(tallies[getattr(f, f"T_{name.upper()}")]) for name in names})


def tombstone_horizons(
    segments: Sequence[SegmentFacts],
    tallies: Sequence[RecordTally],
    span: SpanDecision,
    policy: MarkerPolicy,
) -> tuple[TombstoneHorizon, ...]:
    """For each choice of the horizon, how many tombstones go and stay. Only the last record of each key counts.

    Args:
        segments: facts of all segments of the partition, before compaction.
        tallies: tallies of the segments of the span.
        span: the offsets that may be compacted.
        policy: inputs that do not come from the log.
    """
    found = []
    for name, horizon_ms, chosen in spans.horizon_choices(segments, span, policy):
        dropped = dropped_bytes = kept = 0
        for segment, tally in zip(segments, tallies, strict=False):
            passed, stamped = segment.mtime_ms <= horizon_ms, name != spans.NONE
            passed = passed and stamped
            dropped += (tally.stamp_past if stamped else 0) + (tally.unstamped if passed else 0)
            dropped_bytes += (tally.stamp_past_bytes if stamped else 0) + (
                tally.unstamped_bytes if passed else 0
            )
            kept += (
                tally.stamp_to_come
                + (0 if stamped else tally.stamp_past)
                + (0 if passed else tally.unstamped)
            )
        found.append(TombstoneHorizon(name, min(horizon_ms, 2**63 - 1), dropped, dropped_bytes, kept, chosen))
    return tuple(found)
