"""Computes the checksum of a batch or message that exceeds the window piece by piece, so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from krepair.formats import batch_v2, message_set
from krepair.formats.arrays import Uint8s
from krepair.formats.batch_front import batch_front
from krepair.kernels import classes as c
from krepair.kernels.crc32 import crc32_piece
from krepair.kernels.scan_window import crc_piece

ReadInto = Callable[[memoryview, int], int]


@dataclass(frozen=True)
class HugeChecksum:
    """Result of the check of a huge batch.

    Attributes:
        valid: True if the stored checksum is right.
        computed: checksum of the batch's bytes; if the file ends too early, checksum of the bytes that exist.
        damage: kind of damage (``classes.D_*``) to report if the checksum is wrong.
    """

    valid: bool
    computed: int
    damage: int


def huge_size(window: Uint8s) -> int:
    """Return the size of the batch or message at the front of the window, from its length field."""
    front = batch_front(window.data)
    assert front is not None
    return front.size


def checksum_huge(window: Uint8s, filled: int, read_into: ReadInto, position: int) -> HugeChecksum:
    """Check the batch at the front of the window; the rest of it is read from the file.

    Args:
        window: uint8[W]; it is not changed.
        filled: number of valid bytes in the window, all of this batch, at least its header.
        read_into: function that fills a buffer from a file position and returns the number of bytes read, 0 at the end.
            It may raise ``OSError``.
        position: position of the batch in the file.

    Raises:
        OSError: ``read_into`` has raised it.
    """
    size = huge_size(window)
    old = window[message_set.CRC_START] != batch_v2.MAGIC
    piece_crc, start, stored_at, damage = (
        (crc32_piece, message_set.CRC_START, message_set.HEADER_V0.place("crc"), c.D_OLD_CRC)
        if old
        else (crc_piece, batch_v2.CRC_START, batch_v2.HEADER.place("crc"), c.D_CRC)
    )
    stored = int.from_bytes(window[stored_at : stored_at + 4].tobytes(), "big")
    crc = piece_crc(0, window, start, filled)
    piece: Any = np.empty(len(window), np.uint8)
    done = filled
    while done < size:
        got = read_into(memoryview(piece)[: min(len(piece), size - done)], position + done)
        if got == 0:
            return HugeChecksum(False, int(crc), damage)
        crc = piece_crc(crc, piece, 0, got)
        done += got
    return HugeChecksum(int(crc) == stored, int(crc), damage)
