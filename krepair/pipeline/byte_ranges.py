"""A file read as if some ranges of its bytes were not in it."""

from __future__ import annotations

import numpy as np

from krepair.kernels.scan import ReadInto


def kept_ranges(size: int, without: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """(start, end) of what stays of a file."""
    kept, position = [], 0
    for start, end in without:
        kept.append((position, start))
        position = end
    return tuple((start, end) for start, end in [*kept, (position, size)] if start < end)


def reader_without(read_into: ReadInto, kept: tuple[tuple[int, int], ...]) -> ReadInto:
    """Reads a file as if only the kept ranges were in it."""
    starts = np.cumsum([0, *(end - start for start, end in kept)])

    def read(buffer: memoryview, position: int) -> int:
        number = int(np.searchsorted(starts, position, side="right")) - 1
        if number >= len(kept):
            return 0
        start, end = kept[number]
        at = start + position - int(starts[number])
        return read_into(buffer[: min(len(buffer), end - at)], at)

    return read
