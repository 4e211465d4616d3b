"""What a batch or message of every format begins with: the bytes that say where it ends, and of which format it is.

Where a batch ends, the next one begins. Whoever finds batches in Python uses this; kernels use ``kernels.next_batch``,
which asks the same of the same bytes. The walks that must not share it are listed in ``docs/architecture.md``.

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
"""Bytes of the smallest message of v0 and of v1, and of the smallest batch of v2."""

_FRONT: Final = struct.Struct(">qi4xB")
FRONT_BYTES: Final = _FRONT.size
assert FRONT_BYTES == message_set.CRC_START + 1


class BatchFront(NamedTuple):
    """The first bytes of a batch, as they are: nothing is checked.

    Attributes:
        offset: base offset of a batch, offset of a message.
        size: bytes of the whole, by the length field.
        magic: the format.
    """

    offset: int
    size: int
    magic: int

    @property
    def is_known(self) -> bool:
        """Whether the format is one of Kafka's three."""
        return self.magic < len(LEAST_BYTES)

    def fits(self, left: int) -> bool:
        """Whether a batch can begin so, if the log goes on for ``left`` bytes from its first byte on."""
        return self.is_known and LEAST_BYTES[self.magic] <= self.size <= left


def batch_front(buf: Bytes, position: int = 0) -> BatchFront | None:
    """The front of the batch at a position; None if fewer than 17 bytes follow."""
    if len(buf) - position < FRONT_BYTES:
        return None
    offset, length, magic = _FRONT.unpack_from(buf, position)
    return BatchFront(offset, length + batch_v2.LOG_OVERHEAD, magic)
