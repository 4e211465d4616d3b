"""Two small kernels for code that proves their answers: one finds where batches begin, one moves kept batches together.

Their answers are only claims. ``krepair.checks`` proves each claim from the bytes, without this code.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from krepair.formats.arrays import Int32s, Uint8s
from krepair.kernels.jit import kernel
from krepair.kernels.scan_window import HEADER, LENGTH, LENGTH_END, MAGIC, MIN_LENGTH
from krepair.kernels.words import be32, byte_at


@kernel
def _claim(buf: Any, filled: int, places: Any) -> Any:
    place = np.int64(0)
    count = np.int64(0)
    while place + HEADER <= filled and count < places.shape[0]:
        length = be32(buf, place + LENGTH)
        if length < MIN_LENGTH or byte_at(buf, place + MAGIC) != 2 or place + length + LENGTH_END > filled:
            break
        places[np.uint64(count)] = place
        count += 1
        place += length + LENGTH_END
    return count


def claimed_places(window: Uint8s) -> Int32s:
    """Places of the v2 batches that lie whole in a window, found by their length fields from place 0 on.

    Args:
        window: uint8[W], of less than 2 GiB.

    Returns:
        int32[N]; it ends before the first bytes that are not a whole v2 batch.
    """
    places = np.empty(len(window) // HEADER + 1, np.int32)
    return places[: _claim(window, len(window), places)]


@kernel
def _gather(buf: Any, starts: Any, end: int, kept: Any, out: Any) -> Any:
    written = np.int64(0)
    number = np.int64(0)
    count = starts.shape[0]
    while number < count:
        if not kept[np.uint64(number)]:
            number += 1
            continue
        first = np.int64(starts[np.uint64(number)])
        while number < count and kept[np.uint64(number)]:
            number += 1
        size = (np.int64(starts[np.uint64(number)]) if number < count else end) - first
        if written + size > out.shape[0]:
            return -1
        for place in range(np.uint64(size)):
            out[np.uint64(written) + place] = buf[np.uint64(first) + place]
        written += size
    return written


def gather_kept(
    window: Uint8s, starts: Int32s, end: int, kept: np.ndarray[Any, np.dtype[np.bool_]], out: Uint8s
) -> int:
    """Move the kept batches of a window side by side into ``out``.

    Args:
        window: uint8[W].
        starts: int32[N], places of its batches.
        end: place after the last batch.
        kept: bool[N], whether each batch is kept.
        out: uint8[M], out.

    Returns:
        Bytes written, -1 if ``out`` is too small.
    """
    return int(_gather(window, starts, end, kept, out))
