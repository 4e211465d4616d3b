"""The headers of large batches, noted while their log is read for its keys.

When it is known which offsets stay, a header tells whether a record of its batch may stay. Of a batch of which nothing
stays the header is all that is needed, so that such a batch is not read again. Where batches are small, their headers
are a large part of the log: then nothing is noted, and the log is read as it is.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from krepair.formats import batch_v2
from krepair.formats.arrays import Uint8s
from krepair.kernels.compact_headers import note_headers

LEAST_MEAN_BYTES: Final = 1 << 12
"""Batches are large where they have so many bytes in the mean."""
GAP_BYTES: Final = 1 << 16
"""What lies between two batches that have to be read is read too, where it is not more than this."""
_ALL_BYTES: Final = 32 << 20
_AT_LEAST_BYTES: Final = 1 << 14


def header_bytes_of(segments: int) -> int:
    """How many bytes of headers each of so many segments may note."""
    return max(_ALL_BYTES // max(segments, 1), _AT_LEAST_BYTES)


class HeaderNotes:
    """Takes the windows of a log, one after the other.

    Args:
        most_bytes: of headers; where there are more, none are noted.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes // batch_v2.HEADER_SIZE
        self._found: list[bytes] = []
        self._out: Uint8s = np.empty(0, np.uint8)
        self._count = 0
        self._read = 0
        self._whole = self._most > 0

    def take(self, window: Uint8s, end: int) -> None:
        """Note the headers of one window.

        Args:
            window: uint8[W] that begins with a batch.
            end: place after its last batch, more than W if that passes the window.
        """
        if not self._whole:
            return
        self._read += end
        room = min(self._most, self._read // LEAST_MEAN_BYTES + 1) - self._count
        wanted = min(max(room, 0), len(window) // batch_v2.HEADER_SIZE + 1) * batch_v2.HEADER_SIZE
        if wanted > len(self._out):
            self._out = np.empty(2 * wanted, np.uint8)
        count = int(note_headers(window, np.int64(end), self._out[:wanted]))
        if count < 0:
            self._whole, self._found = False, []
            return
        self._count += count
        self._found.append(self._out[: count * batch_v2.HEADER_SIZE].tobytes())

    @property
    def found(self) -> bytes:
        """All headers, one after the other; empty if they were not noted."""
        return b"".join(self._found)
