"""Notes on batches, taken while a log is read for its keys, so that a plan need not read these batches again.

A plan has to know the exact size of each new log. If no record of a batch is kept, its header is enough to compute
that; for an uncompressed batch, its header and the sizes of its records are enough. So both are noted. If batches are
small, their headers are a large part of the log: then nothing is noted, and the log is read a second time.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from msgspec import Struct

from krepair.formats import batch_v2
from krepair.formats.arrays import Uint8s
from krepair.kernels.compact_headers import note_headers

LEAST_MEAN_BYTES: Final = 1 << 12
"""Smallest mean size of the batches, in bytes, for which notes are taken."""
GAP_BYTES: Final = 1 << 16
"""Largest gap in bytes between two needed batches that is read along with them."""
_ALL_BYTES: Final = 32 << 20
"""Limit in bytes of the headers noted of all segments together; the same limit holds for the noted words."""
_AT_LEAST_BYTES: Final = 1 << 14
"""Bytes of headers that may always be noted of a segment, however many segments there are."""
_WORD_BYTES: Final = 8


class BatchNotes(Struct, frozen=True):
    """Notes on the batches of one log.

    Attributes:
        headers: headers of all batches, one after another; empty if they were not noted.
        sizes: uint64[R], see ``compact_headers.filter_headers``; empty if they were not noted.
    """

    headers: bytes = b""
    sizes: bytes = b""


NO_NOTES: Final = BatchNotes()


def note_bytes_of(segments: int) -> int:
    """Return how many bytes of headers, and how many of words, may be noted for each of ``segments`` segments."""
    return max(_ALL_BYTES // max(segments, 1), _AT_LEAST_BYTES)


class NoteTaker:
    """Collector of notes on a log that is read window by window. A word is the packed facts of one record.

    Args:
        most_bytes: limit in bytes of the headers, and of the words; if there are more, none are noted.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes // batch_v2.HEADER_SIZE
        self._headers: list[bytes] = []
        self._out: Uint8s = np.empty(0, np.uint8)
        self._count = 0
        self._read = 0
        self._whole = self._most > 0
        self._sizes: list[bytes] = []
        self._room = most_bytes

    @property
    def wants_sizes(self) -> bool:
        """True if the words of the log's records should be noted."""
        return self._whole and self._room > 0

    def take_sizes(self, words: Any) -> None:
        """Note the words of the next records, uint64[N]."""
        self._room -= len(words) * _WORD_BYTES
        self._sizes.append(words.tobytes())
        if self._room <= 0:
            self._sizes = []

    def take(self, window: Uint8s, end: int) -> None:
        """Note the headers of one window.

        Args:
            window: uint8[W] that begins with a batch.
            end: position after its last batch, more than W if that batch exceeds the window.
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
            self._whole, self._headers, self._sizes = False, [], []
            return
        self._count += count
        self._headers.append(self._out[: count * batch_v2.HEADER_SIZE].tobytes())

    def found(self, *, sizes: bool = True) -> BatchNotes:
        """Return all notes; ``sizes`` is True if the words of all records were noted."""
        whole = sizes and self.wants_sizes
        return BatchNotes(b"".join(self._headers), b"".join(self._sizes) if whole else b"")
