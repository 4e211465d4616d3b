"""A second check of a rewrite, by numpy and the plain layouts. It shares no code with the kernels.

``audit_window`` works while a source is in the cache. It proves that every byte belongs to a batch that was kept, or
that marker-only compaction may drop. ``krepair.pipeline.rewrite.verify`` proves the rest on the new files.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from krepair.checks.walk import gathered
from krepair.formats import batch_v2, message_set
from krepair.formats.batch_v2 import HEADER, LOG_OVERHEAD

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Int32s = np.ndarray[Any, np.dtype[np.int32]]
Int64s = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

_LENGTH = HEADER.place("batch_length")
_MAGIC = HEADER.place("magic")
_ATTRIBUTES = HEADER.place("attributes")
_COUNT = HEADER.place("record_count")
_HEAD_BYTES = 24
_SMALLEST_BYTES = message_set.HEADER_V0.size + 2 * message_set.LENGTH.size
assert _ATTRIBUTES + 1 < _HEAD_BYTES
# magic and the low byte of the attributes are in one 64-bit word
_CONTROL_PLACE = 8 * (_ATTRIBUTES + 1 - _MAGIC)
_KIND_MASK = np.uint64(0xFF | batch_v2.CONTROL << _CONTROL_PLACE)
_CONTROL_KIND = np.uint64(batch_v2.MAGIC | batch_v2.CONTROL << _CONTROL_PLACE)
assert np.uint64().itemsize >= _ATTRIBUTES + 2 - _MAGIC


def edges_of(starts: Int32s, end: int) -> Int64s:
    """int64[N + 1]: the start of each batch of a window, and the end of the last one."""
    edges = np.empty(len(starts) + 1, np.int64)
    edges[:-1] = starts
    edges[-1] = end
    return edges


def audit_window(window: Bytes, edges: Int64s, kept: Bools) -> str:
    """Check the claim that batches fill a window without gaps, and that only batches without records go.

    The edges are proven: the first is 0, and the length field of each batch leads to the next edge.

    Args:
        window: uint8[W].
        edges: int64[N + 1], N > 0: the start of each batch, and the end of the last one.
        kept: bool[N], whether each batch stays.

    Returns:
        What is wrong, or empty.
    """
    if edges[0] != 0:
        return f"the first batch starts at place {edges[0]}, not 0"
    if len(edges) == 2 and edges[-1] > len(window):
        return "" if kept[0] else "a batch larger than the window goes"
    sizes = edges[1:] - edges[:-1]
    return "" if _are_markers_of_one_size(window, sizes) else _audit_batches(window, edges, sizes, kept)


def _audit_batches(window: Bytes, edges: Int64s, sizes: Int64s, kept: Bools) -> str:
    """As ``audit_window``, for batches of any size and format; the first edge is 0."""
    starts = edges[:-1]
    if starts.min() < 0 or starts.max() + _SMALLEST_BYTES > len(window):
        return "a batch is claimed outside of the window"
    heads = gathered(window, starts, _HEAD_BYTES)
    length = np.ndarray(len(starts), ">i4", heads, _LENGTH, heads.strides[:1])
    magic = heads[:, _MAGIC]
    wrong = (sizes - LOG_OVERHEAD != length) | (sizes < HEADER.size)
    if (magic != batch_v2.MAGIC).any():
        old = magic < batch_v2.MAGIC
        wrong = (sizes - LOG_OVERHEAD != length) | (magic > batch_v2.MAGIC)
        wrong |= sizes < np.where(old, _SMALLEST_BYTES, HEADER.size)
        if not wrong.any() and (old & ~kept).any():
            return f"the message of an old format at place {starts[np.argmax(old & ~kept)]} would go"
    if wrong.any():
        return f"no batch of the claimed size starts at place {starts[np.argmax(wrong)]}"
    rest = starts[~kept & (heads[:, _ATTRIBUTES + 1] & batch_v2.CONTROL == 0)]
    if not len(rest):
        return ""
    filled = gathered(window, rest + _COUNT, np.int32().itemsize).any(axis=1)
    if filled.any():
        return f"the batch at place {rest[np.argmax(filled)]} has records and would go"
    return ""


def _are_markers_of_one_size(window: Bytes, sizes: Int64s) -> bool:
    """Whether all batches are control batches of one size, without gaps. Then each of them may go."""
    count, size = len(sizes), int(sizes[0])
    if size < HEADER.size or count * size > len(window) or (sizes != size).any():
        return False
    length = np.ndarray(count, "<u4", window, _LENGTH, size)
    expected = int.from_bytes((size - LOG_OVERHEAD).to_bytes(4, "big"), "little")
    kind = np.ndarray(count, "<u8", window, _MAGIC, size)
    return bool((length == expected).all() and (kind & _KIND_MASK == _CONTROL_KIND).all())


def audit_gathered(window: Bytes, edges: Int64s, kept: Bools, copied: Bytes) -> str:
    """Check that ``copied`` holds the kept batches of an audited window, without gaps.

    For each batch, the CRC and the bytes that it does not cover are compared. The other bytes are checked by the CRC
    when the new log is read.

    Args:
        window: uint8[W].
        edges: int64[N + 1]: the start of each batch, and the end of the last one.
        kept: bool[N], whether each batch stays.
        copied: uint8[M], the kept batches.

    Returns:
        What is wrong, or empty.
    """
    numbers = np.flatnonzero(kept)
    starts = edges[numbers]
    sizes = edges[numbers + 1] - starts
    ends = np.cumsum(sizes)
    if not len(ends) or ends[-1] != len(copied):
        return f"{len(copied)} bytes were gathered, {int(sizes.sum())} stay"
    source, copy = gathered(window, starts, _HEAD_BYTES), gathered(copied, ends - sizes, _HEAD_BYTES)
    if source.tobytes() != copy.tobytes():
        differs = (source != copy).any(axis=1)
        return f"the kept batch at place {starts[np.argmax(differs)]} was gathered wrongly"
    return ""
