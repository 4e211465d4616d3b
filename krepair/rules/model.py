"""Inputs and results of the rules of compaction: facts of a segment, the policy, decisions, reasons for skipping.

The rules use no paths, no clock and no files: everything that they know of a partition is in these values.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from krepair.formats.arrays import Int64s
from krepair.kernels.scan import SegmentSummary
from krepair.next_command import NOTHING, Next
from krepair.rules.outcome import HorizonChoice, SourceSegment


@dataclass(frozen=True)
class SegmentFacts:
    """Facts of one segment.

    Attributes:
        mtime_ms: modification time of the ``.log`` in epoch milliseconds, as Kafka reads it.
        summary: result of the segment's scan.
        entries: int64[E, 4] (producer id, first offset, last offset, last stable offset), entries of the ``.txnindex``.
    """

    base_offset: int
    mtime_ms: int
    summary: SegmentSummary
    entries: Int64s

    @property
    def end_offset(self) -> int:
        """Offset after the last batch; the base offset of a segment without batches."""
        return max(self.base_offset, self.summary.last_offset + 1)


@dataclass(frozen=True)
class ProducerSnapshotState:
    """One producer in a ``.snapshot`` file.

    Attributes:
        last_data_offset: last offset of the producer's last data batch, -1 if none.
        timestamp: timestamp of the producer's last batch in epoch milliseconds, -1 if none.
        open_first_offset: first offset of the producer's open transaction, -1 if none.
    """

    producer_id: int
    epoch: int
    last_data_offset: int
    timestamp: int
    open_first_offset: int


@dataclass(frozen=True)
class MarkerPolicy:
    """Inputs of marker-only compaction for one partition that do not come from its log.

    Attributes:
        now_ms: current time in epoch milliseconds.
        horizon: ``next-pass``, ``newest`` or epoch milliseconds as text.
        delete_retention_ms: ``delete.retention.ms`` of the topic.
        min_compaction_lag_ms: ``min.compaction.lag.ms`` of the topic.
        segment_bytes: ``segment.bytes`` of the topic.
        segment_index_bytes: ``segment.index.bytes`` of the topic.
        index_interval_bytes: ``index.interval.bytes`` of the topic.
        producer_expiry_ms: the longer of ``transactional.id.expiration.ms`` and ``producer.id.expiration.ms``.
        high_watermark: offset from the checkpoint; or the log end offset, if the operator chose to assume that.
        first_dirty_offset: first dirty offset in ``cleaner-offset-checkpoint``, -1 if none.
        writes_horizons: True if the broker writes delete horizons into batches (3.1 and later).
        merge: True to merge neighbouring segments.
        snapshot_offset: offset of the newest valid producer snapshot, -1 if none.
        loaded_base: base offset of the segment whose producer snapshot the next start loads; -1 if the start loads a
            snapshot at another offset, or none.
        snapshot: producers of that snapshot.
        keeps_all: True if transaction markers and tombstones are kept whatever their age, because nothing is known of
            other replicas.
        latest_horizon_ms: upper bound of the delete horizon in epoch milliseconds.
        mixed_epochs: True if a partition may change although a transaction has batches of two producer epochs.
        held_markers: int64[H], ascending offsets of transaction markers that are kept because another replica has a
            batch of their transaction.
        ends_in_records: True if each new segment has to end with a batch that has records, see
            ``rules.coordinator_load``.
    """

    now_ms: int
    horizon: str
    delete_retention_ms: int
    min_compaction_lag_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    producer_expiry_ms: int
    high_watermark: int
    first_dirty_offset: int
    writes_horizons: bool
    merge: bool = True
    snapshot_offset: int = -1
    loaded_base: int = -1
    snapshot: tuple[ProducerSnapshotState, ...] = ()
    keeps_all: bool = False
    latest_horizon_ms: int = 2**63 - 1
    mixed_epochs: bool = True
    held_markers: Int64s = field(default_factory=lambda: np.empty(0, np.int64), compare=False)
    ends_in_records: bool = False


@dataclass(frozen=True)
class Skipped:
    """Reason for skipping a partition.

    Attributes:
        code: stable word for programs.
        why: text for people: file, position, and what was expected.
        next_command: command that helps, may be empty.
        damaged: True if the partition counts as uncleanable (KIP-346).
    """

    code: str
    why: str
    next_command: Next = NOTHING
    damaged: bool = False


@dataclass(frozen=True)
class GroupDecision:
    """Group of neighbouring segments that become one segment.

    Attributes:
        sources: segments of the group, ascending.
        last_offset: last offset of the group's last batch, -1 if there is none.
    """

    sources: tuple[SourceSegment, ...]
    last_offset: int

    @property
    def kept_bytes(self) -> int:
        """Size of the new ``.log`` in bytes."""
        return sum(source.kept_bytes for source in self.sources)

    @property
    def changes(self) -> bool:
        """True if the group is rewritten. Logs without a batch are not: a new log needs at least one batch."""
        if self.last_offset < 0:
            return False
        return len(self.sources) > 1 or any(source.changes for source in self.sources)


@dataclass(frozen=True)
class CleanableRange:
    """Cleanable range; see ``plan.model.Span``."""

    start_offset: int
    end_offset: int
    segments: int
    limit: str
    limit_text: str


@dataclass(frozen=True)
class PartitionDecision:
    """All decisions for one partition.

    Attributes:
        log_end_offset: offset after the last valid batch.
        cleanable: cleanable range.
        horizon_ms: delete horizon in epoch milliseconds; 0 keeps all markers without a delete horizon in their batch.
        horizons: result of each choice of the horizon.
        outcomes: outcome of each segment in the cleanable range, ascending.
        groups: new segments, ascending, changed or not.
        active_producers: number of active producers at the log end.
        kept_last: (base offset, position) of empty data batches that are kept as the last of their group.
        notes: lines for the reviewer.
    """

    log_end_offset: int
    cleanable: CleanableRange
    horizon_ms: int
    horizons: tuple[HorizonChoice, ...]
    outcomes: tuple[SourceSegment, ...]
    groups: tuple[GroupDecision, ...]
    active_producers: int
    kept_last: tuple[tuple[int, int], ...] = ()
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class NeedsRescan:
    """Request to scan segments again, because their scans did not know of markers that must be kept.

    Attributes:
        protected: int64[N, 2], sorted pairs (producer id, epoch) whose markers are kept.
        base_offsets: base offsets of the segments to scan again.
    """

    protected: Int64s
    base_offsets: tuple[int, ...]
