"""Small kernels that copy the kept batches of a window one after another, and checksum the front of each batch.

The front of a batch is its first 21 bytes, which the batch's own CRC does not cover.

``krepair.checks`` verifies the output of these kernels from the bytes, without using this code.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from krepair.formats import batch_v2
from krepair.formats.arrays import Int32s, Uint8s
from krepair.kernels.jit import kernel
from krepair.kernels.words import crc32c_update

FRONT_BYTES = batch_v2.CRC_START


@kernel("bytes, ints, long, flags, bytes")
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
    """Copy the kept batches of a window one after another into ``out``.

    Args:
        window: window of the log, uint8[W].
        starts: int32[N], positions of the batches in the window.
        end: position after the last batch.
        kept: bool[N], true for each batch that is kept.
        out: uint8[M], receives the kept batches.

    Returns:
        Bytes written, -1 if ``out`` is too small.
    """
    return int(_gather(window, starts, end, kept, out))


@kernel("bytes, ints, flags, long")
def crc_of_fronts(window: Any, starts: Any, kept: Any, crc: Any) -> Any:
    """Continue a CRC-32C over the fronts of the kept batches, see ``krepair.checks.parts``.

    Args:
        window: window of the log, uint8[W].
        starts: positions of the batches in the window, int32[N].
        kept: bool[N], true for each batch that is kept.
        crc: CRC-32C over the fronts of the batches before this window.
    """
    for number in range(np.uint64(starts.shape[0])):
        if kept[number]:
            first = np.int64(starts[number])
            crc = np.int64(crc32c_update(crc, window, first, first + FRONT_BYTES))
    return crc
