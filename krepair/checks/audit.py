"""The second opinion on a rewrite: by numpy and the plain layouts, sharing no code with the kernels.

``audit_window`` proves, while a source is in the cache, that every byte of it belongs to a batch that was either kept
or is one that marker-only compaction may drop. The rest is proven on the new files: see ``krepair.pipeline.verify``.
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
# magic and the low byte of the attributes lie within one 64-bit word
_CONTROL_PLACE = 8 * (_ATTRIBUTES + 1 - _MAGIC)
_KIND_MASK = np.uint64(0xFF | batch_v2.CONTROL << _CONTROL_PLACE)
_CONTROL_KIND = np.uint64(batch_v2.MAGIC | batch_v2.CONTROL << _CONTROL_PLACE)
assert np.uint64().itemsize >= _ATTRIBUTES + 2 - _MAGIC


def audit_window(window: Bytes, end: int, starts: Int32s, kept: Bools) -> str:
    """Check the claim that batches begin at ``starts``, fill ``window[:end]``, and that only those without records go.

    The places are proven, not believed: the first is 0, each declared size leads to the next, the last to ``end``.

    Args:
        window: uint8[W].
        end: place after the last batch.
        starts: int32[N] places.
        kept: bool[N] whether the batch stays.

    Returns:
        What is wrong, or empty.
    """
    if starts[0] != 0:
        return f"the first batch starts at place {starts[0]}, not 0"
    if len(starts) == 1 and end > len(window):
        return "" if kept[0] else "a batch larger than the window goes"
    return "" if _are_markers_of_one_size(window, end, starts) else _audit_batches(window, end, starts, kept)


def _audit_batches(window: Bytes, end: int, starts: Int32s, kept: Bools) -> str:
    """The same for batches of any size and format; the first place is 0."""
    if starts.min() < 0 or starts.max() + _SMALLEST_BYTES > len(window):
        return "a batch is claimed outside of the window"
    heads = gathered(window, starts, _HEAD_BYTES)
    length = np.ndarray(len(starts), ">i4", heads, _LENGTH, heads.strides[:1])
    magic = heads[:, _MAGIC]
    sizes = np.diff(starts, append=np.int32(end))
    wrong = (sizes - LOG_OVERHEAD != length) | (sizes < HEADER.size)
    if (magic != batch_v2.MAGIC).any():
        old = magic < batch_v2.MAGIC
        wrong = (sizes - LOG_OVERHEAD != length) | (magic > batch_v2.MAGIC)
        wrong |= sizes < np.where(old, _SMALLEST_BYTES, HEADER.size)
        if not wrong.any() and (old & ~kept).any():
            return f"the message of an old format at place {starts[np.argmax(old & ~kept)]} would go"
    if wrong.any():
        return f"no batch of the claimed size starts at place {starts[np.argmax(wrong)]}"
    rest = starts[~kept & (heads[:, _ATTRIBUTES + 1] & batch_v2.CONTROL == 0)].astype(np.int64)
    filled = (
        window[rest + _COUNT]
        | window[rest + _COUNT + 1]
        | window[rest + _COUNT + 2]
        | window[rest + _COUNT + 3]
    )
    if filled.any():
        return f"the batch at place {rest[np.argmax(filled != 0)]} has records and would go"
    return ""


def _are_markers_of_one_size(window: Bytes, end: int, starts: Int32s) -> bool:
    """Whether all batches are control batches of one size, side by side: then any of them may go."""
    size, left = divmod(end, len(starts))
    if left or size < HEADER.size or end > len(window):
        return False
    if (np.diff(starts) != size).any():
        return False
    length = np.ndarray(len(starts), "<u4", window, _LENGTH, size)
    expected = int.from_bytes((size - LOG_OVERHEAD).to_bytes(4, "big"), "little")
    kind = np.ndarray(len(starts), "<u8", window, _MAGIC, size)
    return bool((length == expected).all() and (kind & _KIND_MASK == _CONTROL_KIND).all())


def audit_gathered(window: Bytes, end: int, starts: Int32s, kept: Bools, copied: Bytes) -> str:
    """Check that ``copied`` holds the kept batches of an audited window, side by side.

    Of each batch the bytes that its CRC does not cover are compared, and the CRC itself; that the rest is right is what
    the CRC says when the new log is read.

    Args:
        window: uint8[W].
        end: place after the last batch.
        starts: int32[N] places.
        kept: bool[N] whether the batch stays.
        copied: uint8[M] the kept batches.

    Returns:
        What is wrong, or empty.
    """
    sizes = np.diff(np.append(starts, end))[kept]
    ends = np.cumsum(sizes, dtype=np.int64)
    if not len(ends) or ends[-1] != len(copied):
        return f"{len(copied)} bytes were gathered, {int(sizes.sum())} stay"
    differs = gathered(window, starts[kept], _HEAD_BYTES) != gathered(copied, ends - sizes, _HEAD_BYTES)
    if differs.any():
        return f"the kept batch at place {starts[kept][np.argmax(differs.any(axis=1))]} was gathered wrongly"
    return ""
