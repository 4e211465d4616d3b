"""Batch-by-batch comparison of two logs of the same partition, in bounded memory."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from krepair.checks.walk import walk
from krepair.formats.arrays import Int64s
from krepair.kernels.scan import ReadInto

_LAST, _CRC = 0, 1
_NO_ROWS: Int64s = np.empty((0, 2), np.int64)
_NO_END = 2**63 - 1


class SideBySide(NamedTuple):
    """Result of the comparison of two logs.

    Attributes:
        same: number of batches that both logs have with the same CRC.
        differ: number of batches with the same last offset but different CRCs.
        first_difference: last offset of the first of these, -1 if there is none.
        only_first: number of batches of the first log that the second lacks, below the end of the second.
        only_second: number of batches of the second log that the first lacks, below the end of the first.
        first_end: the offset after the last valid batch of the first log, 0 if there is none.
        second_end: the offset after the last valid batch of the second log, 0 if there is none.
        after_second: number of batches of the first log past the end of the second.
        after_first: number of batches of the second log past the end of the first.
        first_damaged: True if the first log is damaged at ``first_end``; bytes after the damage were not compared.
        second_damaged: True if the second log is damaged at ``second_end``; bytes after it were not compared.
    """

    same: int = 0
    differ: int = 0
    first_difference: int = -1
    only_first: int = 0
    only_second: int = 0
    first_end: int = 0
    second_end: int = 0
    after_second: int = 0
    after_first: int = 0
    first_damaged: bool = False
    second_damaged: bool = False

    @property
    def agree(self) -> bool:
        """True if no batch contradicts the other log: apart from cleaned batches, one log is a prefix of the other."""
        return self.differ == 0


def batches_of(logs: Iterable[tuple[ReadInto, int]]) -> Generator[Int64s, None, bool]:
    """Yield the valid batches of segments in order, as int64[N, 2] (last offset, CRC) per window.

    The generator ends at the first damage, and returns True if there is one.

    Args:
        logs: reader and size of each ``.log``, in the order of base offsets.

    Raises:
        OSError: a reader has raised it.
    """
    for read_into, size in logs:
        for walked in walk(read_into, size):
            headers = walked.headers
            lasts = headers["base_offset"].astype(np.int64) + headers["last_offset_delta"].astype(np.int64)
            if len(lasts):
                yield np.column_stack([lasts, headers["crc"].astype(np.int64)])
            if walked.problem:
                return True
    return False


class _OneLog:
    """Position of the reading in one of the two logs, with the rows that are in memory."""

    def __init__(self, rows: Iterator[Int64s]) -> None:
        self._rows = rows
        self.here = _NO_ROWS
        self.end = 0
        self.over = self.damaged = False
        self.fill()

    def fill(self) -> None:
        """Read the next window if no rows are left."""
        while not len(self.here) and not self.over:
            try:
                self.here = next(self._rows)
                self.end = int(self.here[-1, _LAST]) + 1
            except StopIteration as ended:
                self.over, self.damaged = True, bool(ended.value)

    @property
    def reach(self) -> int:
        """Offset up to which all rows are known."""
        return int(self.here[-1, _LAST]) if len(self.here) else _NO_END

    def take(self, up_to: int) -> Int64s:
        """Remove and return the rows up to an offset."""
        count = int(np.searchsorted(self.here[:, _LAST], up_to, side="right"))
        taken, self.here = self.here[:count], self.here[count:]
        self.fill()
        return taken


def side_by_side(first: Iterator[Int64s], second: Iterator[Int64s]) -> SideBySide:
    """Compare two logs, which are given as results of ``batches_of``.

    Raises:
        OSError: a log cannot be read.
    """
    first_log, second_log = _OneLog(first), _OneLog(second)
    result = SideBySide()
    while not (first_log.over and second_log.over):
        up_to = min(first_log.reach, second_log.reach)
        first_ended, second_ended = first_log.over, second_log.over
        first_rows, second_rows = first_log.take(up_to), second_log.take(up_to)
        if second_ended:
            result = result._replace(after_second=result.after_second + len(first_rows))
        elif first_ended:
            result = result._replace(after_first=result.after_first + len(second_rows))
        else:
            result = _with_counts(result, first_rows, second_rows)
    return result._replace(
        first_end=first_log.end,
        second_end=second_log.end,
        first_damaged=first_log.damaged,
        second_damaged=second_log.damaged,
    )


def _with_counts(result: SideBySide, first_rows: Int64s, second_rows: Int64s) -> SideBySide:
    common, at, there = np.intersect1d(
        first_rows[:, _LAST], second_rows[:, _LAST], assume_unique=True, return_indices=True
    )
    differ = first_rows[at, _CRC] != second_rows[there, _CRC]
    first = result.first_difference
    if first < 0 and differ.any():
        first = int(common[int(np.argmax(differ))])
    return result._replace(
        same=result.same + int((~differ).sum()),
        differ=result.differ + int(differ.sum()),
        first_difference=first,
        only_first=result.only_first + len(first_rows) - len(common),
        only_second=result.only_second + len(second_rows) - len(common),
    )
