"""Typed values between the scan, the rules and the plan. No paths, no clock, no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from krepair.kernels.scan import SegmentSummary
from krepair.rules.outcome import HorizonChoice, SourceSegment

Int64s = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class SegmentFacts:
    """One segment as the rules see it.

    Attributes:
        base_offset: its base offset.
        mtime_ms: modification time of its ``.log`` as Kafka reads it, epoch milliseconds.
        summary: what the scan found.
        entries: int64[E, 4] of its ``.txnindex``: producer id, first offset, last offset, last stable offset.
    """

    base_offset: int
    mtime_ms: int
    summary: SegmentSummary
    entries: Int64s


@dataclass(frozen=True)
class ProducerSnapshotState:
    """One producer as a ``.snapshot`` file has it.

    Attributes:
        producer_id: its id.
        epoch: its epoch.
        last_data_offset: -1 if none.
        timestamp: of its last batch, -1 if none.
        open_first_offset: first offset of its open transaction, -1 if none.
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
        now_ms: the clock.
        horizon: ``next-pass``, ``newest`` or epoch milliseconds as text.
        delete_retention_ms: topic setting.
        min_compaction_lag_ms: topic setting.
        segment_bytes: topic setting.
        segment_index_bytes: topic setting.
        index_interval_bytes: topic setting.
        producer_expiry_ms: the longer of the two expiry settings.
        high_watermark: from the checkpoint, or the log end if that was assumed.
        first_dirty_offset: from ``cleaner-offset-checkpoint``, -1 if none.
        stamps: whether the log's broker stamps delete horizons (3.1+).
        merge: whether neighbours are merged.
        snapshot_offset: offset of the newest valid producer snapshot, -1 if none.
        snapshot: its producers.
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
    stamps: bool
    merge: bool = True
    snapshot_offset: int = -1
    snapshot: tuple[ProducerSnapshotState, ...] = ()


@dataclass(frozen=True)
class LeftAlone:
    """Why a partition is not touched.

    Attributes:
        code: stable word for programs.
        why: file, position, what was expected.
        next_command: what to do about it, may be empty.
        damaged: whether it counts as uncleanable (KIP-346).
    """

    code: str
    why: str
    next_command: str = ""
    damaged: bool = False


@dataclass(frozen=True)
class GroupDecision:
    """Neighbouring segments that become one.

    Attributes:
        sources: the segments, ascending.
        last_offset: of the last batch in them, -1 if there is none.
    """

    sources: tuple[SourceSegment, ...]
    last_offset: int

    @property
    def kept_bytes(self) -> int:
        """Bytes of the new ``.log``."""
        return sum(source.kept_bytes for source in self.sources)

    @property
    def changes(self) -> bool:
        """Whether there is anything to do for it; logs without a batch stay, since a new log keeps at least one."""
        if self.last_offset < 0:
            return False
        return len(self.sources) > 1 or any(source.changes for source in self.sources)


@dataclass(frozen=True)
class SpanDecision:
    """The offsets that may be compacted; see ``plan.model.Span``."""

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
        span: what may be compacted.
        horizon_ms: the horizon used; 0 keeps every unstamped marker.
        horizons: what each choice would have given.
        outcomes: per segment of the span, ascending.
        groups: the new segments, ascending; all of them, changed or not.
        active_producers: producers that are active at the log end.
        kept_last: (base offset, position) of emptied data batches that stay as the last of their group.
        notes: lines for the reviewer.
    """

    log_end_offset: int
    span: SpanDecision
    horizon_ms: int
    horizons: tuple[HorizonChoice, ...]
    outcomes: tuple[SourceSegment, ...]
    groups: tuple[GroupDecision, ...]
    active_producers: int
    kept_last: tuple[tuple[int, int], ...] = ()
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class NeedsRescan:
    """The scan has to be told of producers whose markers stay, for these segments.

    Attributes:
        protected: int64[N, 2] sorted (producer id, epoch).
        base_offsets: segments to scan again.
    """

    protected: Int64s
    base_offsets: tuple[int, ...]
