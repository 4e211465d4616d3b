"""Segments as the rules see them: built from bare facts, or scanned from hand-made batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from krepair.kernels import classes as c
from krepair.kernels.scan import SegmentSummary
from krepair.rules.model import MarkerPolicy, SegmentFacts
from tests.builders import NOW_MS, LogDir, Partition

POLICY = MarkerPolicy(
    now_ms=NOW_MS,
    horizon="newest",
    delete_retention_ms=0,
    min_compaction_lag_ms=0,
    segment_bytes=1 << 30,
    segment_index_bytes=10 << 20,
    index_interval_bytes=4096,
    producer_expiry_ms=1000,
    high_watermark=10**9,
    first_dirty_offset=-1,
    writes_horizons=False,
)


def facts(base_offset: int, *, mtime_ms: int = NOW_MS, **fields: Any) -> SegmentFacts:
    """A segment without a producer; fields are those of its summary."""
    summary = SegmentSummary(
        base_offset=base_offset,
        file_size=100,
        valid_bytes=100,
        damage=0,
        damage_text="",
        old_batches=0,
        old_position=-1,
        last_old_position=-1,
        batches=1,
        first_offset=base_offset,
        last_offset=base_offset + 9,
        max_timestamp=NOW_MS - 5,
        offset_of_max=base_offset,
        min_timestamp=NOW_MS - 5,
        headers="",
        decisions=0,
        rows=np.zeros((0, c.ROW_SIZE), np.int64),
        tallies=np.zeros((c.CLASS_COUNT, 3), np.int64),
        entry_flags=np.zeros(0, np.uint8),
        epochs=np.zeros((0, c.EPOCH_SIZE), np.int64),
        stamped=0,
        largest_batch=0,
        aborts_unindexed=0,
        min_unreplicated=2**63 - 1,
        last_position=0,
        last_size=100,
        last_class=c.RECORDS,
    )
    return SegmentFacts(base_offset, mtime_ms, structs.replace(summary, **fields), np.zeros((0, 4), np.int64))


def row(producer_id: int, **fields: int) -> list[int]:
    """What a scan says of one producer: nothing known but the fields, by the names of their columns."""
    values = np.full(c.ROW_SIZE, -1, np.int64)
    for name in ("P_MARKERS", "P_OPEN_KEPT", "P_FREE_MARKERS", "P_EPOCHS_MIXED", "P_LAST_DATA_EMPTIED"):
        values[getattr(c, name)] = 0
    values[c.P_ID] = producer_id
    for name, value in fields.items():
        values[getattr(c, f"P_{name.upper()}")] = value
    found: list[int] = values.tolist()
    return found


def rows(*of: list[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(of, np.int64).reshape(-1, c.ROW_SIZE)


def partition() -> Partition:
    """An empty partition, to which segments are added."""
    return LogDir(Path("nowhere")).partition("t")
