"""The records of compressed batches, unpacked for the proof.

It shares no code with the unpacking where keys are found and where what stays is written: that has kernels for lz4 and
snappy and for the walk over zstd frames, this has another library and a walk in Python. zstd itself and gzip have one
library for all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from krepair.formats import compression
from krepair.formats.arrays import Uint8s
from krepair.formats.codec import Codec

_INTO: Final = {int(Codec.LZ4): compression.lz4_into, int(Codec.SNAPPY): compression.snappy_into}
_SLACK: Final = 16
_BYTES: Final = 1 << 20


class CheckedContents:
    """Contents of batches, one behind the other.

    Attributes:
        buffer: uint8[V], with 16 bytes behind it.
        ends: place after each content, with 0 in front.
    """

    def __init__(self) -> None:
        self._make(_BYTES)
        self.ends = [0]

    def _make(self, size: int) -> None:
        self.buffer: Uint8s = np.zeros(size + _SLACK, np.uint8)[:size]
        self._view = self.buffer.data

    def add(self, codec: int, stored: memoryview) -> bool:
        """Unpack one more behind the others.

        Args:
            codec: of the batch.
            stored: its records as they are stored.

        Returns:
            Whether it is there. If not, there is no room, or it has to be read in pieces: it is large, or broken. Where
            there are no others, there is always room.
        """
        into = _INTO.get(codec)
        if into and (end := into(stored, self._view, self.ends[-1])) >= 0:
            self.ends.append(end)
            return True
        content = compression.at_once(codec, stored)
        return content is not None and self._take(content)

    def _take(self, content: bytes) -> bool:
        start = self.ends[-1]
        end = start + len(content)
        if end > len(self.buffer):
            if start:
                return False
            self._make(end)
        self._view[start:end] = content
        self.ends.append(end)
        return True

    def add_nothing(self) -> bool:
        """A batch without records."""
        self.ends.append(self.ends[-1])
        return True

    def add_blocks(self, window: memoryview, blocks: Iterable[tuple[int, int]]) -> int:
        """Unpack lz4 blocks one behind the other, see ``compression.lz4_blocks_into``; gives how many."""
        ends = compression.lz4_blocks_into(window, blocks, self._view, self.ends[-1])
        self.ends += ends
        return len(ends)

    def forget_last(self, count: int = 1) -> None:
        """Take back the last that were added."""
        del self.ends[len(self.ends) - count :]

    def taken(self) -> list[int]:
        """Where the contents begin, with the end of the last; from now on there are none."""
        ends, self.ends = self.ends, [0]
        return ends
