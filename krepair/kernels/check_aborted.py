"""The proof of key compaction: finds the aborted transactions of a log from its markers.

Source: KIP-98, ControlRecordType (2.2.1, 3.9).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from krepair.formats import batch_v2, message_set
from krepair.kernels.check_compacted import CONTROL, HEADER, OVERHEAD, TRANSACTIONAL
from krepair.kernels.check_numbers import number_at
from krepair.kernels.jit import inlined, kernel
from krepair.kernels.words import be16, be32, be64, byte_at

_LENGTH: Final = batch_v2.HEADER.place("batch_length")
_MAGIC: Final = batch_v2.HEADER.place("magic")
_ATTRIBUTES: Final = batch_v2.HEADER.place("attributes")
_PRODUCER: Final = batch_v2.HEADER.place("producer_id")
_COUNT: Final = batch_v2.HEADER.place("record_count")
_V0_SIZE: Final = message_set.HEADER_V0.size


@inlined
def _producer_slot(producers: Any, producer_id: Any) -> Any:
    mask = producers.shape[0] - 1
    slot = np.int64((np.uint64(producer_id) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & mask
    while producers[slot, 0] >= 0 and producers[slot, 0] != producer_id:
        slot = (slot + 1) & mask
    return slot


@kernel("rows, rows")
def enter_producers(old: Any, producers: Any) -> None:
    """Enter the producers of a table into a larger one.

    Args:
        old: int64[2**k, 3], see ``abort_ranges``.
        producers: int64[2**m, 3], larger; its producer ids are -1.
    """
    for row in range(old.shape[0]):
        if old[row, 0] >= 0:
            slot = _producer_slot(producers, old[row, 0])
            for column in range(old.shape[1]):  # as slices they would need numba's own memory
                producers[slot, column] = old[row, column]


@kernel("bytes, long, long, long, rows, rows, longs")
def abort_ranges(
    buf: Any, filled: Any, position: Any, file_size: Any, producers: Any, out: Any, state: Any
) -> Any:
    """Note the aborted transactions whose abort markers begin in a window.

    Args:
        buf: uint8[W]; place 0 is file position ``position``.
        filled: bytes of it that are valid.
        position: file position of place 0.
        file_size: bytes of the file.
        producers: int64[2**k, 3] (producer id or -1, offset of its last marker or -1, whether it has data since then).
        out: int64[N, 3], out: (producer id, offset of its marker before or -1, offset of the abort marker).
        state: int64[3]: place of the next batch, number of ranges, number of producers.

    Returns:
        0 at the end of the window, 1 when ``producers`` or ``out`` is full, 2 where there is no batch.
    """
    while position + state[0] < file_size:
        place = np.int64(state[0])
        if place + 17 > filled:
            return 0
        size = be32(buf, place + _LENGTH) + OVERHEAD
        magic = byte_at(buf, place + _MAGIC)
        if magic > 2 or size < _V0_SIZE or position + place + size > file_size:
            return 2
        if magic < 2:
            state[0] += size
            continue
        if place + min(size, HEADER + 32) > filled:
            return 0
        producer_id = be64(buf, place + _PRODUCER)
        attributes = be16(buf, place + _ATTRIBUTES)
        if producer_id >= 0 and attributes & TRANSACTIONAL != 0:
            if state[1] >= out.shape[0] or 2 * state[2] >= producers.shape[0]:
                return 1
            slot = _producer_slot(producers, producer_id)
            if producers[slot, 0] < 0:
                producers[slot, 0], producers[slot, 1], producers[slot, 2] = producer_id, -1, 0
                state[2] += 1
            if attributes & CONTROL == 0:
                producers[slot, 2] = 1
            elif be32(buf, place + _COUNT) > 0:
                at = np.int64(place + HEADER)
                end = min(place + size, filled)
                _, at = number_at(buf, at, end)
                _, at = number_at(buf, at + 1, end)
                _, at = number_at(buf, at, end)
                _, at = number_at(buf, at, end)
                kind = be16(buf, at + 2) if at + 4 <= end else -1
                if kind == 0 or kind == 1:  # noqa: PLR1714
                    offset = be64(buf, place)
                    if kind == 0 and producers[slot, 2] != 0:
                        row = state[1]
                        out[row, 0], out[row, 1], out[row, 2] = producer_id, producers[slot, 1], offset
                        state[1] += 1
                    producers[slot, 1], producers[slot, 2] = offset, 0
        state[0] += size
    return 0
