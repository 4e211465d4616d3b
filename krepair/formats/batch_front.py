"""First bytes of a batch or message of any format: they give its size and its format.

Where a batch ends, the next batch begins. Python code that looks for batches uses this module; kernels use
``kernels.next_batch``, which reads the same bytes by the same rules. The independent walks that must not share this
code are listed in ``docs/architecture.md``.

Source: FileLogInputStream, LegacyRecord, DefaultRecordBatch (2.2.1, 3.9).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from krepair.formats import batch_v2, message_set
from krepair.formats.damage import Bytes

LEAST_BYTES: Final = (
    message_set.HEADER_V0.size + 2 * message_set.LENGTH.size,
    message_set.HEADER_V1.size + 2 * message_set.LENGTH.size,
    batch_v2.HEADER_SIZE,
)
"""Size in bytes of the smallest v0 message, v1 message and v2 batch."""

_FRONT: Final = struct.Struct(">qi4xB")
FRONT_BYTES: Final = _FRONT.size
assert FRONT_BYTES == message_set.CRC_START + 1


class BatchFront(NamedTuple):
    """First fields of a batch, unchecked.

    Attributes:
        offset: base offset of a batch, or offset of a message.
        size: size of the whole batch in bytes, by its length field.
        magic: message format, 0 to 2 if valid.
    """

    offset: int
    size: int
    magic: int

    @property
    def is_known(self) -> bool:
        """True if the format is one of Kafka's three."""
        return self.magic < len(LEAST_BYTES)

    def fits(self, available: int) -> bool:
        """Check that a batch with this front can lie in the next ``available`` bytes of the log."""
        return self.is_known and LEAST_BYTES[self.magic] <= self.size <= available


def batch_front(buf: Bytes, position: int = 0) -> BatchFront | None:
    """Read the front of the batch at ``position``; None if fewer than 17 bytes follow."""
    if len(buf) - position < FRONT_BYTES:
        return None
    offset, length, magic = _FRONT.unpack_from(buf, position)
    return BatchFront(offset, length + batch_v2.LOG_OVERHEAD, magic)
