"""Producer state at the log end, and the empty batches and markers to keep because active producers need them.

There are two states: the one that a broker would load (newest valid snapshot, then the batches after it), and the one
that a full scan of the log gives. A batch is kept if one of the two states needs the batch.

Source: ProducerStateManager (2.2.1), ProducerStateEntry.lastTimestamp and KAFKA-9144 (2.4) for producers known only by
a marker, Cleaner.cleanInto (2.2.1) for what an active producer needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from krepair.derive.producers import Producers, is_active
from krepair.formats.arrays import Int64s
from krepair.formats.java_numbers import INT64_MAX
from krepair.formats.producer_snapshot import (
    COLUMN_COUNT,
    LAST_OFFSET,
    OPEN_FIRST,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TIMESTAMP,
)
from krepair.kernels import classes as c
from krepair.next_command import COMPARE_REPLICAS, LOG_DIR, Next
from krepair.rules.model import MarkerPolicy, ProducerSnapshotState, SegmentFacts, Skipped


class ProducerStates(Producers):
    """Producers of a log, with signs that a replica is behind or that a marker is missing.

    Attributes:
        min_unreplicated: lowest first offset of a transaction whose marker is not below the high watermark.
        mixed_epochs: lowest offset of a batch that continues a transaction under another producer epoch.
    """

    min_unreplicated: int = INT64_MAX
    mixed_epochs: int = INT64_MAX

    def replay(self, segment: SegmentFacts, high_watermark: int) -> None:
        """Add the producers of the next segment; segments must come in ascending order."""
        rows = segment.summary.rows
        if len(rows) == 0:
            return
        at = np.searchsorted(self.ids, rows[:, c.P_ID])
        leads = rows[:, c.P_MARKERS] > 0
        self._note_unreplicated(rows, at, leads, high_watermark)
        self.min_unreplicated = min(self.min_unreplicated, segment.summary.min_unreplicated)
        self._note_mixed_epochs(rows, at, leads)
        self.replay_rows(rows)

    def _note_unreplicated(self, rows: Int64s, at: Int64s, leads: Any, high_watermark: int) -> None:
        """Record the first transaction whose marker is not below the high watermark."""
        late = leads & (rows[:, c.P_LEAD_OFFSET] >= high_watermark)
        if not late.any():
            return
        carried = self.open_first[at][late]
        inside = np.where(
            rows[late, c.P_LEAD_FIRST] >= 0, rows[late, c.P_LEAD_FIRST], rows[late, c.P_LEAD_OFFSET]
        )
        first = np.where(carried >= 0, carried, inside)
        self.min_unreplicated = min(self.min_unreplicated, int(first.min()))

    def _note_mixed_epochs(self, rows: Int64s, at: Int64s, leads: Any) -> None:
        """Record the first transaction whose batches have two epochs: this log lacks the marker between them."""
        inside = rows[:, c.P_SPANS_EPOCHS]
        first = np.where(leads, rows[:, c.P_LEAD_FIRST], rows[:, c.P_OPEN_FIRST])
        is_continued = (
            (self.open_first[at] >= 0) & (first >= 0) & (self.epoch[at] != rows[:, c.P_FIRST_EPOCH])
        )
        for offsets in (inside[inside >= 0], first[is_continued]):
            if len(offsets):
                self.mixed_epochs = min(self.mixed_epochs, int(offsets.min()))

    def active(self, now_ms: int, expiry_ms: int) -> Any:
        """Mark known producers that have not expired: bool[N]."""
        return self.known & is_active(self.open_first, self.timestamp, now_ms, expiry_ms)

    def first_open(self) -> tuple[int, int]:
        """Return (first offset, producer id) of the earliest open transaction; (INT64_MAX, -1) if none."""
        open_places = np.flatnonzero(self.known & (self.open_first >= 0))
        if len(open_places) == 0:
            return INT64_MAX, -1
        place = open_places[np.argmin(self.open_first[open_places])]
        return int(self.open_first[place]), int(self.ids[place])


@dataclass(frozen=True)
class ProducerNeeds:
    """Batches that must be kept because active producers need them.

    Attributes:
        data: int64[N, 2], sorted pairs (producer id, last data offset). The batch at that offset is kept, even if the
            batch has no records.
        markers: int64[N, 2], sorted pairs (producer id, epoch). Control batches of that epoch are kept.
        active: number of active producers.
    """

    data: Int64s
    markers: Int64s
    active: int


def all_ids(segments: Iterable[SegmentFacts], snapshot: Sequence[ProducerSnapshotState]) -> Int64s:
    """Collect all producer ids of the log and the snapshot, ascending: int64[N]."""
    parts = [segment.summary.rows[:, c.P_ID] for segment in segments]
    parts.append(np.array([producer.producer_id for producer in snapshot], np.int64))
    return np.unique(np.concatenate(parts))


def states_by_scan(segments: Sequence[SegmentFacts], ids: Int64s, high_watermark: int) -> ProducerStates:
    """Compute the state that the whole log gives, without a snapshot."""
    states = ProducerStates(ids)
    for segment in segments:
        states.replay(segment, high_watermark)
    return states


def states_by_broker(
    segments: Sequence[SegmentFacts],
    ids: Int64s,
    snapshot_offset: int,
    snapshot: Sequence[ProducerSnapshotState],
) -> ProducerStates:
    """Compute the state that a broker would load: the snapshot, then the batches at or after its offset.

    If the snapshot is inside a segment, the whole segment is replayed. Its earlier batches only repeat the snapshot.
    """
    states = ProducerStates(ids)
    states.load(table_of(snapshot))
    for segment in segments:
        if segment.summary.last_offset >= snapshot_offset and segment.summary.batches:
            states.replay(segment, INT64_MAX)
    return states


def table_of(snapshot: Sequence[ProducerSnapshotState]) -> Int64s:
    """Convert the producers of a snapshot to the form of ``Producers.load``; unneeded columns are -1."""
    table: Int64s = np.full((len(snapshot), COLUMN_COUNT), -1, np.int64)
    for row, producer in zip(table, snapshot, strict=True):
        row[PRODUCER_ID], row[PRODUCER_EPOCH] = producer.producer_id, producer.epoch
        row[LAST_OFFSET], row[TIMESTAMP] = producer.last_data_offset, producer.timestamp
        row[OPEN_FIRST] = producer.open_first_offset
    return table


def states_of(
    segments: Sequence[SegmentFacts], policy: MarkerPolicy
) -> tuple[Int64s, ProducerStates, ProducerStates]:
    """Return all producer ids, the scan's state and the broker's state. Without a snapshot both are the scan's."""
    ids = all_ids(segments, policy.snapshot)
    scan = states_by_scan(segments, ids, policy.high_watermark)
    if policy.snapshot_offset < 0:
        return ids, scan, scan
    return ids, scan, states_by_broker(segments, ids, policy.snapshot_offset, policy.snapshot)


def needs_of(scan: ProducerStates, broker: ProducerStates, now_ms: int, expiry_ms: int) -> ProducerNeeds:
    """Find the batches that one of the two producer states needs.

    Args:
        scan: states from a full scan.
        broker: states that a broker would load.
        now_ms: current time in epoch milliseconds.
        expiry_ms: time in ms for which a producer without an open transaction stays active.
    """
    data: set[tuple[int, int]] = set()
    markers: set[tuple[int, int]] = set()
    active = np.zeros(len(scan.ids), bool)
    for states in (scan, broker):
        is_active = states.active(now_ms, expiry_ms)
        active |= is_active
        with_data = is_active & (states.last_data >= 0)
        without = is_active & (states.last_data < 0)
        data.update(zip(states.ids[with_data].tolist(), states.last_data[with_data].tolist(), strict=True))
        markers.update(zip(states.ids[without].tolist(), states.epoch[without].tolist(), strict=True))
    return ProducerNeeds(_pairs(data), _one_epoch_each(markers), int(active.sum()))


def _pairs(values: Iterable[tuple[int, int]]) -> Int64s:
    return np.array(sorted(values), np.int64).reshape(-1, 2)


def _one_epoch_each(markers: set[tuple[int, int]]) -> Int64s:
    """Choose one epoch per producer: the newer one if the two states differ, because it fences the older one."""
    newest: dict[int, int] = {}
    for producer_id, epoch in markers:
        newest[producer_id] = max(epoch, newest.get(producer_id, epoch))
    return _pairs(newest.items())


def disagreement(scan: ProducerStates, broker: ProducerStates, now_ms: int, expiry_ms: int) -> Skipped | None:
    """Return the reason for skipping a partition whose newest snapshot is wrong; else None.

    The snapshot is wrong if the log has later data of an active producer than the state that a broker would load.
    """
    wrong = (
        broker.active(now_ms, expiry_ms)
        & (broker.last_data >= 0)
        & (scan.last_data >= 0)
        & (broker.last_data < scan.last_data)
    )
    places = np.flatnonzero(wrong)
    if len(places) == 0:
        return None
    place = int(places[0])
    return Skipped(
        "snapshot-disagrees",
        f"the newest producer snapshot says that the last data of producer {scan.ids[place]} is at offset "
        f"{broker.last_data[place]}, but the log has data of it at offset {scan.last_data[place]}",
        Next.of("check", LOG_DIR),
    )


def undecidable(scan: ProducerStates, broker: ProducerStates, policy: MarkerPolicy) -> Skipped | None:
    """Return the reason for skipping a partition whose log cannot be trusted to decide; else None.

    Either the newest snapshot is wrong, or a transaction has batches of two producer epochs. A producer gets a new
    epoch only after its transaction has ended. So this log lacks the marker that ended the first part, and another
    replica may have committed or aborted these records differently.
    """
    problem = disagreement(scan, broker, policy.now_ms, policy.producer_expiry_ms)
    if problem is None and scan.mixed_epochs != INT64_MAX and not policy.mixed_epochs:
        return Skipped(
            "mixed-epochs",
            f"the batch at offset {scan.mixed_epochs} continues a transaction under another producer epoch: the "
            "marker between them is missing here, and another replica may treat these records differently",
            COMPARE_REPLICAS,
        )
    return problem
