"""Decompression of many batches of a window into one buffer, for compaction and for the reader of records.

The verification of a compaction does not use this module, but decompresses with independent code, see
``compaction.check``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from krepair.formats import batch_v2, compression
from krepair.formats.arrays import Bools, Int64s, Uint8s
from krepair.formats.codec import Codec
from krepair.formats.damage import Bytes
from krepair.kernels.compact_keys import P_CODEC, P_END, P_PLACE, P_SIZE, P_START
from krepair.kernels.compact_records import SLACK
from krepair.kernels.unpacked_frames import unpack_frames
from krepair.kernels.zstd_frames import most_of_zstd

_BYTES: Final = 1 << 20
_ROWS_AT_ONCE: Final = 1 << 8
_IN_KERNEL: Final = (Codec.NONE, Codec.LZ4)


class UnpackedBatches:
    """Buffer for the decompressed records of small batches.

    Args:
        rows: largest number of batches in a window.
        at_once: largest number of batches decompressed together.

    Attributes:
        bytes: uint8[V + SLACK], the decompressed records; valid until the next call of ``unpack``.
    """

    def __init__(self, rows: int, at_once: int = _ROWS_AT_ONCE) -> None:
        self._make(_BYTES)
        self._at_once = at_once
        self._most: Int64s = np.zeros(rows, np.int64)

    def _make(self, size: int) -> None:
        self.bytes: Uint8s = np.empty(size + SLACK, np.uint8)[:size]
        self._view = self.bytes.data

    def unpack(self, window: Uint8s, packed: Int64s, first: int, count: int) -> int:
        """Decompress batches from one row on, as many as fit into the buffer.

        Args:
            window: uint8[W + SLACK] that holds the batches.
            packed: int64[P, PACKED_COLUMNS]; ``P_START`` and ``P_END`` are set.
            first: first row to decompress.
            count: row after the last one.

        Returns:
            The row after the last one decompressed. If that is ``first``, its batch has to be read in pieces: it is
            large or broken.
        """
        codec = int(packed[first, P_CODEC])
        stop = min(count, first + self._at_once)
        if codec in _IN_KERNEL:
            after = int(unpack_frames(window, packed, first, stop, self.bytes))
            if after > first:
                return after
            # The kernel cannot read this batch. Batches of one client are alike, so the library also reads the next
            # batches.
        codecs = packed[first:stop, P_CODEC]
        others = np.flatnonzero((codecs != codec) & (codecs != Codec.NONE))
        stop = first + int(others[0]) if len(others) else stop
        rows = packed[first:stop]
        plain = rows[:, P_CODEC] == int(Codec.NONE)
        contents: Iterator[Bytes | None]
        if codec == Codec.ZSTD:
            most_of_zstd(window, packed, first, stop, self._most)
            most = self._most[first:stop]
            most[plain] = 0  # an uncompressed batch is no frame
            contents = compression.zstd_frames(window.data, _frames(rows, most.tolist()))
        else:
            contents = (
                compression.at_once(codec, window.data[start:end])
                for start, end, _ in _frames(rows, itertools.repeat(0))
            )
        if plain.any():
            contents = _with_plain(window.data, rows, plain, contents)
        return first + self._take(contents, rows)

    def _take(self, contents: Iterator[Bytes | None], rows: Int64s) -> int:
        """Append contents to the buffer while there is room; return the number of appended contents."""
        ends, end, view = [0], 0, self._view
        for content in contents:
            if content is None:
                break
            start, end = end, end + len(content)
            if end > len(view):
                if start:
                    break
                self._make(end)
                view = self._view
            view[start:end] = content
            ends.append(end)
        count = len(ends) - 1
        rows[:count, P_START], rows[:count, P_END] = ends[:-1], ends[1:]
        return count


def _with_plain(
    view: memoryview, rows: Int64s, plain: Bools, contents: Iterator[Bytes | None]
) -> Iterator[Bytes | None]:
    """Yield the contents, and for uncompressed batches their bytes in the window."""
    for (start, end, _), content, is_plain in zip(
        _frames(rows, itertools.repeat(0)), contents, plain.tolist(), strict=False
    ):
        yield view[start:end] if is_plain else content


def _frames(rows: Int64s, most: Iterable[int]) -> Iterator[tuple[int, int, int]]:
    """Yield for each batch the start and end of its records in the window, and their largest decompressed size."""
    places = rows[:, P_PLACE]
    return zip(
        (places + batch_v2.HEADER_SIZE).tolist(), (places + rows[:, P_SIZE]).tolist(), most, strict=False
    )
