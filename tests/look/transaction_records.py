"""Records of __transaction_state."""

from __future__ import annotations

import struct
from typing import Any

from krepair.formats import transaction_state
from tests.encoders import encode_versioned

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
          "PrepareEpochFence")  # fmt: skip


def key_of(name: str) -> bytes:
    data = name.encode()
    return struct.pack(">hh", 0, len(data)) + data


def value_of(
    producer_id: int,
    status: str,
    *partitions: tuple[str, int],
    epoch: int = 0,
    version: int = 0,
    time_ms: int = 1000,
    previous: int = -1,
) -> bytes:
    fields: dict[str, Any] = {
        "producer_id": producer_id, "producer_epoch": epoch, "transaction_timeout_ms": 60_000,
        "transaction_status": STATES.index(status),
        "transaction_partitions": [{"topic": topic, "partition_ids": [number]} for topic, number in partitions] or None,
        "transaction_last_update_timestamp_ms": time_ms, "transaction_start_timestamp_ms": time_ms,
    }  # fmt: skip
    if version:
        fields["previous_producer_id"] = previous
    return encode_versioned(transaction_state.VALUE, version, fields)
