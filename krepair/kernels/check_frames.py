"""Finds the blocks of lz4 frames for the verification of a key compaction. It shares no code with ``lz4_frames``.

Source: the lz4 frame format; KafkaLZ4BlockOutputStream (2.2.1).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from krepair.formats import batch_v2, compression
from krepair.kernels.check_compacted import P_CODEC
from krepair.kernels.jit import kernel
from krepair.kernels.words import byte_at

_HEADER: Final = batch_v2.HEADER_SIZE
_FRONT = np.frombuffer(compression.LZ4_USUAL_FRONT, np.uint8)
_FRONT_BYTES: Final = len(compression.LZ4_USUAL_FRONT)
_SIZE_BYTES: Final = 4
_LZ4: Final = 3


@kernel("bytes, rows, long, long, rows")
def single_blocks(window: Any, packed: Any, count: Any, column: Any, blocks: Any) -> None:
    """Find the block of each lz4 frame that was written by a Kafka client and has a single, compressed block.

    Args:
        window: uint8[W], holds the batches.
        packed: int64[P, PACKED_COLUMNS] of ``check_compacted``.
        count: number of valid rows.
        column: column with the places of the batches; the next one has their sizes, 0 if there is none.
        blocks: int64[P, 2], out: place of the block, and the place after it. 0 and 0 where there is no batch, -1 and -1
            for a frame of another kind.
    """
    for row in range(count):
        size = packed[row, column + 1]
        start = packed[row, column] + _HEADER
        end = packed[row, column] + size - _SIZE_BYTES
        first = start + _FRONT_BYTES + _SIZE_BYTES
        usual = packed[row, P_CODEC] == _LZ4 and size > 0 and first <= end
        stored = np.int64(0)
        if usual:
            for step in range(_FRONT_BYTES):
                usual &= byte_at(window, start + step) == _FRONT[step]
            for step in range(_SIZE_BYTES):
                usual &= byte_at(window, end + step) == 0
                stored |= np.int64(byte_at(window, start + _FRONT_BYTES + step)) << (8 * step)
        # an uncompressed block has the highest bit of its size set, so its size never equals that of a compressed block
        if usual and stored == end - first and stored > 0:
            blocks[row, 0], blocks[row, 1] = first, end
        elif size == 0:
            blocks[row, 0] = blocks[row, 1] = 0
        else:
            blocks[row, 0] = blocks[row, 1] = -1
