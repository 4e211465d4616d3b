"""Summaries as bytes: what travels between a worker and the driver. Work items travel, batches never do."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from krepair.kernels.scan import SegmentSummary

_NAMES = SegmentSummary.__struct_fields__
_ARRAYS = {"rows": np.int64, "tallies": np.int64, "entry_flags": np.uint8, "epochs": np.int64}


def encode_summary(summary: SegmentSummary) -> bytes:
    """A summary as MessagePack; arrays as shape and bytes."""
    values: dict[str, Any] = {}
    for name in _NAMES:
        value = getattr(summary, name)
        if name in _ARRAYS:
            value = (value.shape, value.tobytes())
        values[name] = value
    return msgspec.msgpack.encode(values)


def decode_summary(data: bytes) -> SegmentSummary:
    """The inverse of ``encode_summary``."""
    values = msgspec.msgpack.decode(data)
    for name, kind in _ARRAYS.items():
        shape, raw = values[name]
        values[name] = np.ndarray(shape, kind, bytearray(raw))  # bytes that may be changed
    return SegmentSummary(**values)
