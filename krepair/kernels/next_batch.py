"""Find the next batch: every walk over a window uses this one function.

Each walk decides for itself which fields of a batch it keeps, and what it reports if no batch begins.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from krepair.formats import batch_v2
from krepair.formats.batch_front import LEAST_BYTES
from krepair.kernels.jit import inlined_by_numba
from krepair.kernels.words import be32, byte_at

_LENGTH, _MAGIC = batch_v2.HEADER.place("batch_length"), batch_v2.HEADER.place("magic")
_LENGTH_END = batch_v2.LOG_OVERHEAD
_LEAST_V0, _LEAST_V1, _LEAST_V2 = LEAST_BYTES


@inlined_by_numba
def next_batch(buf: Any, place: Any, left: Any) -> Any:
    """Return the bytes of the batch or message of any format at a place; 0 if none begins there.

    Args:
        buf: uint8[W], holds at least 17 bytes from ``place`` on.
        place: index of the batch's first byte.
        left: bytes of the log from ``place`` to the end of the log, which may lie past the window.
    """
    magic = np.int64(byte_at(buf, place + _MAGIC))
    size = be32(buf, place + _LENGTH) + _LENGTH_END
    least = _LEAST_V2 if magic == 2 else _LEAST_V1 if magic == 1 else _LEAST_V0
    return size if magic <= 2 and size >= least and size <= left else np.int64(0)
