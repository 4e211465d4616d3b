"""Storage for rows of key tables, in memory or in the scratch folder.

Rows are sorted by bucket, the highest bits of their first word, so that a task can join some buckets alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from msgspec import Struct

from krepair.durable.scratch import write_scratch
from krepair.formats.arrays import Int64s
from krepair.formats.words import count_text
from krepair.kernels.compact_keys import ROW_WORDS

BUCKETS: Final = 1 << 10
ROW_BYTES: Final = 8 * ROW_WORDS
SCRATCH_NEEDED: Final = "more keys than fit into memory: a scratch folder is needed"
Rows = np.ndarray[Any, np.dtype[np.uint64]]


class NoScratchError(Exception):
    """Error: rows must be spilled, and there is no scratch folder."""


class RowFile(Struct, frozen=True, kw_only=True):
    """Rows of one table: int64[buckets + 1] rows before each bucket, then uint64[N, words].

    Attributes:
        path: path of the file in the scratch folder; empty if ``data`` holds the rows.
        data: bytes of the rows.
        buckets: number of buckets.
        words: number of words in a row.
    """

    path: str = ""
    data: bytes = b""
    buckets: int = BUCKETS
    words: int = ROW_WORDS

    def starts(self) -> Int64s:
        """Return the number of rows before each bucket.

        Raises:
            OSError: the file cannot be read.
        """
        if not self.path:
            return np.frombuffer(self.data, np.int64, self.buckets + 1)
        with open(self.path, "rb") as opened:
            return np.fromfile(opened, np.int64, self.buckets + 1)

    def rows(self, first: int, after: int) -> Rows:
        """Return the rows of some buckets.

        Raises:
            OSError: the file cannot be read.
        """
        front, starts = 8 * (self.buckets + 1), self.starts()
        if not self.path:
            every: Rows = np.frombuffer(self.data, np.uint64, offset=front).reshape(-1, self.words)
            return every[starts[first] : starts[after]]
        count = int(starts[after] - starts[first])
        with open(self.path, "rb") as opened:
            opened.seek(front + int(starts[first]) * 8 * self.words)
            rows = np.fromfile(opened, np.uint64, count * self.words)
        if len(rows) != count * self.words:
            raise OSError(
                f"{self.path}: found {len(rows) // self.words} of {count_text(count, 'expected row')}"
            )
        return rows.reshape(-1, self.words)

    def part(self, first: int, after: int) -> RowFile:
        """Return a copy with the rows of some buckets only, if this value holds the rows; else this value itself."""
        if self.path or (first == 0 and after == self.buckets):
            return self
        starts = self.starts()
        clipped = np.clip(starts, starts[first], starts[after]) - starts[first]
        data = clipped.tobytes() + self.rows(first, after).tobytes()
        return RowFile(data=data, buckets=self.buckets, words=self.words)


def put_rows(rows: Rows, starts: Int64s, name: str, scratch: str, *, inline: bool) -> RowFile:
    """Store the rows of one table in memory or in a new file.

    Args:
        rows: uint64[N, words], by bucket.
        starts: int64[buckets + 1], rows before each bucket.
        name: first part of the file name.
        scratch: path of the scratch folder, empty if there is none.
        inline: True to keep the rows in memory.

    Raises:
        NoScratchError: the rows need a file, and there is no scratch folder.
        OSError: the file cannot be written.
    """
    buckets, words = len(starts) - 1, rows.shape[1]
    if inline:
        return RowFile(data=b"".join((starts.data, rows.data)), buckets=buckets, words=words)
    if not scratch:
        raise NoScratchError
    return RowFile(path=write_scratch(scratch, name, (starts, rows)), buckets=buckets, words=words)


def cut(counts: Int64s, at_once: int) -> Iterator[tuple[int, int]]:
    """Divide the buckets into ranges (first, after) of about ``at_once`` rows each, but at least one bucket."""
    before = np.append(0, np.cumsum(counts))
    first = 0
    while first < len(counts):
        after = int(np.searchsorted(before, before[first] + at_once, side="right")) - 1
        after = min(max(after, first + 1), len(counts))
        yield first, after
        first = after
