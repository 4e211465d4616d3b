"""krepair's scan kernel and rules over bytes in memory, beside the slow twin's view of the same partition."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from krepair.formats import producer_snapshot, txn_index
from krepair.formats.damage import Damage
from krepair.kernels.scan import ScanInputs, scan_segment
from krepair.rules.markers import decide
from krepair.rules.model import (
    MarkerPolicy,
    NeedsRescan,
    PartitionDecision,
    ProducerSnapshotState,
    SegmentFacts,
    Skipped,
)
from krepair.scan.segment_files import entry_pairs, pairs
from tests import naive
from tests.builders import LogDir, Partition, reading
from tests.strategies import History


@dataclass(frozen=True)
class Held:
    """A partition held in memory.

    Attributes:
        segments: ascending, the last one is active.
        snapshots: offset -> bytes.
    """

    segments: tuple[naive.Segment, ...]
    snapshots: dict[int, bytes] = field(default_factory=dict)

    @property
    def log_end(self) -> int:
        """The offset after the last batch."""
        return max((b.last_offset + 1 for s in self.segments for b in naive.parse(s.log)), default=0)


def held(history: History, *, snapshots: bool = True) -> Held:
    """A history as the files that a broker would have."""
    return holding(history.fill(LogDir(Path("nowhere")).partition("t")), snapshots=snapshots)


def holding(made: Partition, *, snapshots: bool = True) -> Held:
    """The files of a partition in the making."""
    files = made.files(snapshots=snapshots)
    segments = tuple(
        naive.Segment(
            segment.base_offset,
            files[f"{segment.base_offset:020d}.log"],
            segment.mtime_ms,
            files.get(f"{segment.base_offset:020d}.txnindex", b""),
        )
        for segment in made.segments
    )
    return Held(segments, {int(n[:20]): data for n, data in files.items() if n.endswith(".snapshot")})


def policy_of(rules: naive.Rules, partition: Held) -> MarkerPolicy:
    """The twin's rules as krepair's policy; the horizon is a TIME."""
    offset, states = newest(partition.snapshots)
    return MarkerPolicy(
        now_ms=rules.now_ms,
        horizon=str(rules.horizon_ms),
        delete_retention_ms=0,
        min_compaction_lag_ms=rules.min_compaction_lag_ms,
        segment_bytes=rules.segment_bytes,
        segment_index_bytes=rules.segment_index_bytes,
        index_interval_bytes=rules.index_interval_bytes,
        producer_expiry_ms=rules.expiration_ms,
        high_watermark=partition.log_end if rules.high_watermark is None else rules.high_watermark,
        first_dirty_offset=-1,
        writes_horizons=False,
        merge=rules.merge,
        snapshot_offset=offset,
        snapshot=states,
        ends_in_records=rules.ends_in_records,
    )


def newest(snapshots: dict[int, bytes]) -> tuple[int, tuple[ProducerSnapshotState, ...]]:
    """The newest valid snapshot; (-1, ()) without one."""
    for offset in sorted(snapshots, reverse=True):
        decoded = producer_snapshot.decode(snapshots[offset])
        if isinstance(decoded, Damage):
            continue
        return offset, tuple(
            ProducerSnapshotState(
                producer_id=entry.producer_id,
                epoch=entry.producer_epoch,
                last_data_offset=entry.last_offset,
                timestamp=entry.timestamp,
                open_first_offset=entry.current_txn_first_offset,
            )
            for entry in decoded.entries
        )
    return -1, ()


def scan(segment: naive.Segment, policy: MarkerPolicy, protected: np.ndarray | None = None) -> SegmentFacts:
    """One segment through the kernel, and over the wire as from a worker."""
    entries = txn_index.view(segment.txnindex)
    summary = scan_segment(
        ScanInputs(
            base_offset=segment.base_offset,
            file_size=len(segment.log),
            now_ms=policy.now_ms,
            high_watermark=policy.high_watermark,
            entries=entry_pairs(segment.txnindex),
            protected=pairs(()) if protected is None else protected,
        ),
        reading(segment.log),
    )
    columns = [entries[name] for name in ("producer_id", "first_offset", "last_offset", "last_stable_offset")]
    return SegmentFacts(
        base_offset=segment.base_offset,
        mtime_ms=segment.mtime_ms,
        summary=pickle.loads(pickle.dumps(summary)),
        entries=np.column_stack(columns).astype(np.int64),
    )


def decided(
    partition: Held, policy: MarkerPolicy, order: Sequence[int] | None = None
) -> PartitionDecision | Skipped:
    """Scan, decide, scan again where asked for; ``order``: in which order segments are scanned."""
    facts: dict[int, SegmentFacts] = {}
    for place in order or range(len(partition.segments)):
        facts[place] = scan(partition.segments[place], policy)
    segments = [facts[place] for place in range(len(partition.segments))]
    outcome = decide(segments, policy)
    if not isinstance(outcome, NeedsRescan):
        return outcome
    again = {
        each.base_offset: scan(each, policy, outcome.protected)
        for each in partition.segments
        if each.base_offset in outcome.base_offsets
    }
    final = decide([again.get(each.base_offset, each) for each in segments], policy, outcome.protected)
    assert not isinstance(final, NeedsRescan), "a rescan is asked for once"
    return final
