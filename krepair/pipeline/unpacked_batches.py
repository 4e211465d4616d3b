"""The records of many compressed batches of a window, unpacked one behind the other.

Not for the proof of a compaction: that unpacks by other code, see ``compaction.check``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from krepair.formats import batch_v2, compression
from krepair.formats.codec import Codec
from krepair.kernels.compact_keys import P_CODEC, P_END, P_START
from krepair.kernels.compact_records import SLACK
from krepair.kernels.lz4_frames import unpack_lz4
from krepair.kernels.scan import Bytes, Int64s
from krepair.kernels.zstd_frames import most_of_zstd

_BYTES: Final = 1 << 20
_ROWS_AT_ONCE: Final = 1 << 8


class UnpackedBatches:
    """A buffer for the records of small batches.

    Args:
        rows: most batches of one window.

    Attributes:
        bytes: uint8[V + SLACK]; valid until more is unpacked. A larger content is held alone, in a larger buffer.
    """

    def __init__(self, rows: int) -> None:
        self._make(_BYTES)
        self._most: Int64s = np.zeros(rows, np.int64)

    def _make(self, size: int) -> None:
        self.bytes: Bytes = np.empty(size + SLACK, np.uint8)[:size]
        self._view = self.bytes.data

    def unpack(self, window: Bytes, packed: Int64s, first: int, count: int) -> int:
        """Unpack batches from one row on, as many as there is room for.

        Args:
            window: uint8[W + SLACK] with the batches.
            packed: int64[P, PACKED_COLUMNS]; ``P_START`` and ``P_END`` are set.
            first: row to begin with.
            count: row after the last.

        Returns:
            The row after the last that was unpacked. If that is ``first``, its batch has to be read in pieces: it is
            large, or broken.
        """
        codec = int(packed[first, P_CODEC])
        stop = min(count, first + _ROWS_AT_ONCE)
        others = np.flatnonzero(packed[first:stop, P_CODEC] != codec)
        stop = first + int(others[0]) if len(others) else stop
        if codec == Codec.LZ4:
            after = int(unpack_lz4(window, packed, first, stop, self.bytes))
            if after > first:
                return after
            # It is of another kind, as all of one client are: the library takes it and those behind it.
        if codec == Codec.ZSTD:
            most_of_zstd(window, packed, first, stop, self._most)
        else:
            self._most[first:stop] = 0
        return self._by_library(window, packed, first, stop)

    def _by_library(self, window: Bytes, packed: Int64s, first: int, stop: int) -> int:
        stored, ends, end = window.data, [0], 0
        for (place, size, codec), most in zip(
            packed[first:stop, :P_START].tolist(), self._most[first:stop].tolist(), strict=True
        ):
            frame = stored[place + batch_v2.HEADER_SIZE : place + size]
            content = compression.zstd_frame(frame, most) if most else compression.at_once(codec, frame)
            if content is None:
                break
            start, end = end, end + len(content)
            if end > len(self._view):
                if start:
                    break
                self._make(end)
            self._view[start:end] = content
            ends.append(end)
        after = first + len(ends) - 1
        packed[first:after, P_START], packed[first:after, P_END] = ends[:-1], ends[1:]
        return after
