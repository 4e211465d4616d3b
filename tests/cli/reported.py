"""Parts of reports with typical figures, for tests of what a page shows of them."""

from __future__ import annotations

from typing import Any

from krepair.findings.reports import PartitionSummary
from krepair.rules.replicas.model import ReplicaColumn


def summary(partition: str, **fields: Any) -> PartitionSummary:
    """What check says of a partition of two segments."""
    values = {
        "segments": 2, "log_bytes": 1000, "batches": 10, "markers": 5, "marker_bytes": 390, "emptied": 1,
        "emptied_bytes": 61, "log_start_offset": 0, "log_end_offset": 10,
    }  # fmt: skip
    return PartitionSummary(partition=partition, **(values | fields))


def column(broker: int, log_end: int = 9, **fields: Any) -> ReplicaColumn:
    """What compare says of a replica with all that it should have."""
    values = {
        "log_start": 0, "last_stable_offset": log_end, "high_watermark": log_end, "cleaner_position": -1,
        "clean_stop": True, "log_bytes": 99, "segments": 1,
    }  # fmt: skip
    return ReplicaColumn(broker=broker, log_end=log_end, **(values | fields))
