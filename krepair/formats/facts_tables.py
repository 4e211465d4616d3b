"""Tables of numbers in the sections of facts files, questions and answers.

Each block of a section is decoded by itself: columns one after the other, each as the differences from the row before,
so that offsets, which ascend, pack well. Neither side ever holds a whole table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np

from krepair.formats.facts_file import BLOCK_BYTES, FactsDamagedError

Table = np.ndarray[Any, np.dtype[np.int64]]
"""int64[N, columns]."""

_WORD: Final = 8


def packed(rows: Iterable[Table]) -> Iterator[bytes]:
    """The blocks of a section.

    Args:
        rows: int64[N, columns] each; a block never spans two of them.
    """
    for table in rows:
        at_once = BLOCK_BYTES // (_WORD * table.shape[1])
        for first in range(0, len(table), at_once):
            piece = np.array(table[first : first + at_once])
            piece[1:] = np.diff(piece, axis=0)
            yield np.ascontiguousarray(piece.T).tobytes()


def unpacked(blocks: Iterable[bytes], columns: int) -> Iterator[Table]:
    """The rows of a section, block by block.

    Raises:
        FactsDamagedError: a block is not made of whole rows.
    """
    for block in blocks:
        if len(block) % (_WORD * columns):
            raise FactsDamagedError(
                f"blocks of rows of {columns} numbers were expected, found {len(block)} bytes"
            )
        piece = np.frombuffer(block, np.int64).reshape(columns, -1).T
        yield np.ascontiguousarray(np.cumsum(piece, axis=0, dtype=np.int64))
