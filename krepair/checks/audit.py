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
    length = np.ascontiguousarray(heads[:, _LENGTH : _LENGTH + 4]).view(">i4")[:, 0]
    following = np.append(starts[1:], end)
    sizes = following - starts
    old = heads[:, _MAGIC] < batch_v2.MAGIC
    wrong = (sizes != length.astype(np.int64) + LOG_OVERHEAD) | (heads[:, _MAGIC] > batch_v2.MAGIC)
    wrong |= sizes < np.where(old, _SMALLEST_BYTES, HEADER.size)
    if wrong.any():
        return f"no batch of the claimed size starts at place {starts[np.argmax(wrong)]}"
    if (old & ~kept).any():
        return f"the message of an old format at place {starts[np.argmax(old & ~kept)]} would go"
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
    return bool(
        (length == expected).all()
        and (window[_MAGIC:end:size] == batch_v2.MAGIC).all()
        and (window[_ATTRIBUTES + 1 : end : size] & batch_v2.CONTROL != 0).all()
    )


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


def edges_of(kept: Bools) -> Int64s:
    """int64[2 R]: numbers of the batches at which kept stretches begin and end, in turn."""
    edges = np.flatnonzero(kept[1:] != kept[:-1]) + 1
    first = [0] if kept[0] else []
    last = [len(kept)] if kept[-1] else []
    return np.concatenate([np.array(first, np.int64), edges, np.array(last, np.int64)])


def runs_of(starts: Int32s, kept: Bools, end: int) -> list[tuple[int, int]]:
    """Stretches of kept bytes, as (start, end) places."""
    bounds = np.append(starts, end)[edges_of(kept)].tolist()
    return list(zip(bounds[::2], bounds[1::2], strict=True))
