"""Key compaction: what of the decisions follows from facts alone.

The records are judged where they lie (``krepair.kernels.compact_filter``); what is left of a segment then is scanned as
if it were a log, and the rules of markers say what becomes of its emptied batches and its markers. So the fixpoint of
compaction is the fixpoint of ``markers`` over the compacted segments.

Source: LogCleanerManager.cleanableOffsets, Cleaner.shouldRetainRecord (2.2.1, 2.8, 3.9, 4.3).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from krepair.kernels import classes as c
from krepair.kernels import compact_filter as f
from krepair.kernels.scan import SegmentSummary
from krepair.rules import span as spans
from krepair.rules.model import (
    Int64s,
    LeftAlone,
    MarkerPolicy,
    PartitionDecision,
    SegmentFacts,
    SpanDecision,
)
from krepair.rules.outcome import TombstoneHorizon
from krepair.rules.producers import all_ids, disagreement, needs_of, states_by_broker, states_by_scan

LARGEST_LOG_BYTES = 2**31 - 1
TOO_LARGE = "compacted-too-large"


def secret_of(fingerprints: Iterable[str]) -> bytes:
    """The key of the key hash: 16 bytes that follow from the files, and that nobody who writes records can know.

    Args:
        fingerprints: of the planned files, in order; inode and times are parts of them.
    """
    digest = hashlib.blake2b(digest_size=16, person=b"krepair compact")
    for fingerprint in fingerprints:
        digest.update(fingerprint.encode() + b"\0")
    return digest.digest()


@dataclass(frozen=True)
class Bound:
    """What is compacted of one partition, before any key is known.

    Attributes:
        span: up to where.
        protected: sorted (producer id, epoch) whose markers stay.
        drop_unstamped: of each segment of the span, whether the horizon has passed for what has no stamp.
        transactions: whether there are markers at all, so that data may be aborted.
    """

    span: SpanDecision
    protected: tuple[tuple[int, int], ...]
    drop_unstamped: tuple[bool, ...]
    transactions: bool


def bound_of(segments: Sequence[SegmentFacts], policy: MarkerPolicy) -> Bound | LeftAlone:
    """Up to where a partition is compacted, and what its segments must be told.

    Args:
        segments: all of the partition, ascending; the last one is active.
        policy: inputs that do not come from the log.
    """
    problem = spans.first_problem(segments)
    if problem is not None:
        return problem
    ids = all_ids(segments, policy.snapshot)
    scan = states_by_scan(segments, ids, policy.high_watermark)
    broker = (
        states_by_broker(segments, ids, policy.snapshot_offset, policy.snapshot)
        if policy.snapshot_offset >= 0
        else scan
    )
    problem = disagreement(scan, broker, policy.now_ms, policy.producer_expiry_ms)
    if problem is not None:
        return problem
    span = spans.decide_span(segments, scan, broker, policy)
    needs = needs_of(scan, broker, policy.now_ms, policy.producer_expiry_ms)
    horizon_ms = next(
        horizon for _, horizon, chosen in spans.horizon_choices(segments, span, policy) if chosen
    )
    return Bound(
        span=span,
        protected=tuple((int(pid), int(epoch)) for pid, epoch in needs.markers),
        drop_unstamped=tuple(segment.mtime_ms <= horizon_ms for segment in segments[: span.segments]),
        transactions=any((segment.summary.rows[:, c.P_MARKERS] > 0).any() for segment in segments),
    )


def compacted_facts(original: SegmentFacts, compacted: SegmentSummary, entries: Int64s) -> SegmentFacts:
    """A segment as the rules of markers see it after its records went.

    Times stay those of the source: a batch that lost its newest record makes neither its segment older for
    ``min.compaction.lag.ms`` nor its producer for its expiry.

    Args:
        original: of the scan of the source.
        compacted: of the scan of what is left.
        entries: int64[E, 4] of its ``.txnindex``.
    """
    rows = compacted.rows.copy()
    for column in (c.P_TIMESTAMP, c.P_LAST_DATA_TIMESTAMP):
        rows[:, column] = original.summary.rows[:, column]
    summary = replace(compacted, rows=rows, max_timestamp=original.summary.max_timestamp)
    return SegmentFacts(original.base_offset, original.mtime_ms, summary, entries)


def without_batches(decision: PartitionDecision, batches_before: dict[int, int]) -> tuple[int, ...]:
    """Base offsets of segments whose last record must stay, since their group would have no batch at all.

    Only messages of v0 and v1 leave nothing behind; a group of them keeps the last one whole. A broker takes a new
    segment of 0 bytes for an old one that was lost, and a span without a batch makes group loading spin (KAFKA-9065).

    Args:
        decision: over the compacted segments.
        batches_before: base offset -> batches in the source.
    """
    found = []
    for group in decision.groups:
        filled = [source.base_offset for source in group.sources if batches_before[source.base_offset]]
        if filled and not any(source.kept_batches for source in group.sources):
            found.append(filled[-1])
    return tuple(found)


def too_large(decision: PartitionDecision) -> LeftAlone | None:
    """A log that grows past 2 GiB when it is compressed anew cannot be written."""
    for group in decision.groups:
        if group.kept_bytes > LARGEST_LOG_BYTES:
            name = f"{group.sources[0].base_offset:020d}.log"
            return LeftAlone(
                "compacted-too-large",
                f"{name}: compressed anew at the default level it would have {group.kept_bytes} bytes, and a log has "
                f"at most {LARGEST_LOG_BYTES}",
            )
    return None


@dataclass(frozen=True)
class RecordTally:
    """What becomes of the records of one segment, or of a whole partition.

    Attributes:
        records: data records in it.
        kept: that stay.
        superseded: of whose key a later one stays.
        aborted: of aborted transactions.
        keyless: without a key; they stay.
        tombstones_dropped: last of their key, past their horizon.
        tombstones_kept: last of their key.
        unstamped: tombstones that are the last of their key and have no stamp: the horizon decides.
        unstamped_bytes: bytes of these, uncompressed.
        stamp_past: tombstones that are the last of their key and whose stamp has passed.
        stamp_to_come: those whose stamp is still to come.
        rewritten: batches that lose some of their records.
        emptied: batches that lose all of them.
        old_gone: messages of v0 and v1, plain or wrapping others, of which nothing stays.
        forced: records that stay only so that their group keeps a batch.
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
    rewritten: int = 0
    emptied: int = 0
    old_gone: int = 0
    forced: int = 0

    @property
    def changes(self) -> bool:
        """Whether a record goes."""
        return self.kept != self.records

    def __add__(self, other: RecordTally) -> RecordTally:
        """Both together."""
        names = RecordTally.__dataclass_fields__
        return RecordTally(**{name: getattr(self, name) + getattr(other, name) for name in names})


def tally_of(tallies: Int64s) -> RecordTally:
    """The tally of one segment, from int64[TALLY_COUNT] of the kernel."""
    return RecordTally(
        records=int(tallies[f.T_RECORDS]),
        kept=int(tallies[f.T_KEPT]),
        superseded=int(tallies[f.T_SUPERSEDED]),
        aborted=int(tallies[f.T_ABORTED]),
        keyless=int(tallies[f.T_KEYLESS]),
        tombstones_dropped=int(tallies[f.T_TOMBSTONES_DROPPED]),
        tombstones_kept=int(tallies[f.T_TOMBSTONES_KEPT]),
        unstamped=int(tallies[f.T_UNSTAMPED]),
        unstamped_bytes=int(tallies[f.T_UNSTAMPED_BYTES]),
        stamp_past=int(tallies[f.T_STAMP_PAST]),
        stamp_to_come=int(tallies[f.T_STAMP_TO_COME]),
        rewritten=int(tallies[f.T_REWRITTEN]),
        emptied=int(tallies[f.T_EMPTIED]),
        old_gone=int(tallies[f.T_OLD_GONE]),
        forced=int(tallies[f.T_FORCED]),
    )


def tombstone_horizons(
    segments: Sequence[SegmentFacts],
    tallies: Sequence[RecordTally],
    span: SpanDecision,
    policy: MarkerPolicy,
) -> tuple[TombstoneHorizon, ...]:
    """What each horizon would give, from the tombstones that are the last of their key.

    Args:
        segments: the original facts, all of the partition.
        tallies: of the segments of the span.
        span: up to where.
        policy: inputs that do not come from the log.
    """
    found = []
    for name, horizon_ms, chosen in spans.horizon_choices(segments, span, policy):
        dropped = dropped_bytes = kept = 0
        for segment, tally in zip(segments, tallies, strict=False):
            passed = segment.mtime_ms <= horizon_ms
            dropped += tally.stamp_past + (tally.unstamped if passed else 0)
            dropped_bytes += tally.unstamped_bytes if passed else 0
            kept += tally.stamp_to_come + (0 if passed else tally.unstamped)
        found.append(TombstoneHorizon(name, min(horizon_ms, 2**63 - 1), dropped, dropped_bytes, kept, chosen))
    return tuple(found)
