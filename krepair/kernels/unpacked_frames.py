"""Unpacks the records of many batches into one buffer in one call, for batches that are lz4 or not compressed.

Source: ``lz4_frames``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from krepair.formats import batch_v2
from krepair.formats.codec import Codec
from krepair.kernels.compact_keys import P_CODEC, P_END, P_PLACE, P_SIZE, P_START
from krepair.kernels.copying import copied
from krepair.kernels.jit import kernel
from krepair.kernels.lz4_frames import lz4_frame

_HEADER: Final = batch_v2.HEADER_SIZE
_NONE: Final = int(Codec.NONE)
_LZ4: Final = int(Codec.LZ4)


@kernel("bytes, rows, long, long, bytes")
def unpack_frames(window: Any, packed: Any, first: Any, after: Any, out: Any) -> Any:
    """Unpack batches back to back into a buffer.

    Args:
        window: uint8[W + SLACK] with the batches.
        packed: int64[P, PACKED_COLUMNS or more]; ``P_START`` and ``P_END`` are set.
        first: row to begin with.
        after: row after the last.
        out: the unpacked frames, uint8[V + SLACK], out.

    Returns:
        The first row that was not unpacked: there is no room for it, it has another codec, or the library must read it.
    """
    to = np.int64(0)
    row = np.int64(first)
    while row < after:
        place, codec = packed[row, P_PLACE], packed[row, P_CODEC]
        start, stop = place + _HEADER, place + packed[row, P_SIZE]
        end = np.int64(-1)
        if codec == _NONE and stop - start <= out.shape[0] - to:
            copied(window, start, stop - start, out, to)
            end = to + stop - start
        elif codec == _LZ4:
            end = lz4_frame(window, start, stop, out, to, out.shape[0])
        if end < 0:
            break
        packed[row, P_START] = to
        packed[row, P_END] = end
        to = end
        row += 1
    return row
