"""Independent verification of the batches that a rewrite keeps. It shares no code with the kernels that decide.

``krepair.checks.audit`` calls these kernels, and turns their result codes into messages.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from krepair.formats import batch_v2, message_set
from krepair.kernels.jit import inlined, kernel
from krepair.kernels.words import be32, byte_at, le64

# Result codes: the first problem found in a window.
NOTHING: Final = 0
FIRST_NOT_AT_0: Final = 1
OUTSIDE: Final = 2
NO_BATCH: Final = 3
OLD_MESSAGE_GOES: Final = 4
RECORDS_GO: Final = 5
OTHER_BYTES: Final = 6
OTHER_COUNT: Final = 7

_LENGTH: Final = batch_v2.HEADER.place("batch_length")
_MAGIC: Final = batch_v2.HEADER.place("magic")
_LOW_ATTRIBUTES: Final = batch_v2.HEADER.place("attributes") + 1
_COUNT: Final = batch_v2.HEADER.place("record_count")
_OVERHEAD: Final = batch_v2.LOG_OVERHEAD
_HEADER: Final = batch_v2.HEADER.size
_CONTROL: Final = batch_v2.CONTROL
_SMALLEST_BYTES: Final = message_set.HEADER_V0.size + 2 * message_set.LENGTH.size
HEAD_BYTES: Final = 24
"""Number of leading bytes that check_gathered compares: the stored CRC and the bytes before it, which no CRC covers."""
assert batch_v2.CRC_START <= HEAD_BYTES <= _SMALLEST_BYTES


@inlined
def _edge(starts: Any, number: Any, end: Any) -> Any:
    return np.int64(starts[np.uint64(number)]) if number < starts.shape[0] else np.int64(end)


@kernel("bytes, ints, long, flags, longs")
def check_batches(buf: Any, starts: Any, end: Any, kept: Any, place_of: Any) -> Any:
    """Check that the batches fill the window without gaps, and that no batch with records is removed.

    Args:
        buf: window of the log, uint8[W].
        starts: int32[N], N > 0: claimed positions of the batches in the window; each is checked against its batch's
            length.
        end: claimed position after the last batch, at most W.
        kept: bool[N], true for each batch that is kept.
        place_of: int64[1], out: position of the first batch that is wrong.

    Returns:
        Result code, see above.
    """
    place = np.int64(starts[0])
    place_of[0] = place
    wrong = NOTHING if place == 0 else FIRST_NOT_AT_0
    number = np.int64(0)
    while wrong == NOTHING and number < starts.shape[0]:
        place_of[0] = place
        after = _edge(starts, number + 1, end)
        if place < 0 or place + _SMALLEST_BYTES > end:
            wrong = OUTSIDE
            break
        # The check above keeps the batch's first 26 bytes inside the window. The whole batch lies inside once its size
        # leads to the next batch.
        size = after - place
        magic = byte_at(buf, place + _MAGIC)
        least = _HEADER if magic == batch_v2.MAGIC else _SMALLEST_BYTES
        if (
            size != be32(buf, place + _LENGTH) + _OVERHEAD
            or magic > batch_v2.MAGIC
            or size < least
            or after > end
        ):
            wrong = NO_BATCH
        elif not kept[np.uint64(number)]:
            if magic != batch_v2.MAGIC:
                wrong = OLD_MESSAGE_GOES
            elif byte_at(buf, place + _LOW_ATTRIBUTES) & _CONTROL == 0 and be32(buf, place + _COUNT) != 0:
                wrong = RECORDS_GO
        place = after
        number += 1
    return wrong


@kernel("bytes, ints, long, flags, bytes, longs")
def check_gathered(buf: Any, starts: Any, end: Any, kept: Any, copied: Any, place_of: Any) -> Any:
    """Compare the gathered copies of kept batches with a window that passed check_batches.

    Args:
        buf: window of the log, uint8[W].
        starts: int32[N], positions of the batches.
        end: position after the last batch.
        kept: bool[N], true for each batch that is kept.
        copied: uint8[M], the kept batches, without gaps.
        place_of: int64[1], out: position of the first kept batch that differs; for OTHER_COUNT the number of kept
            bytes.

    Returns:
        Result code: NOTHING, OTHER_BYTES or OTHER_COUNT.
    """
    at = np.int64(0)
    wrong = np.int64(-1)
    for number in range(starts.shape[0]):
        if kept[np.uint64(number)]:
            place = np.int64(starts[np.uint64(number)])
            size = _edge(starts, number + 1, end) - place
            if wrong < 0 and at + size <= copied.shape[0]:
                for word in range(0, HEAD_BYTES, 8):
                    if le64(buf, place + word) != le64(copied, at + word):
                        wrong = place
            at += size
    place_of[0] = wrong
    if at != copied.shape[0]:
        place_of[0] = at
        return OTHER_COUNT
    return OTHER_BYTES if wrong >= 0 else NOTHING
