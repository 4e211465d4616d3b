"""Rows of three numbers that may be more than memory should hold: few stay in memory, many lie in a scratch file."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final

import numpy as np
from msgspec import Struct

from krepair.durable.scratch import write_scratch
from krepair.formats.arrays import Int64s

_INLINE: Final = 1 << 12
"""So many rows travel in a result; more go to the scratch folder, where there is one."""
_COLUMNS: Final = 3


class SpilledRows(Struct, frozen=True, kw_only=True):
    """int64[N, 3].

    Attributes:
        path: in the scratch folder; empty: ``data`` holds them.
        data: their bytes.
    """

    path: str = ""
    data: bytes = b""

    @property
    def rows(self) -> Int64s:
        """All of them; those of a file are read as they are used.

        Raises:
            OSError: the file cannot be read.
        """
        if not self.path:
            return np.frombuffer(self.data, np.int64).reshape(-1, _COLUMNS)
        found: Int64s = np.memmap(self.path, np.int64, "r").reshape(-1, _COLUMNS)
        return found


def spilled(pieces: Iterable[Int64s], scratch: str, name: str) -> SpilledRows:
    """Rows in memory if they are few, else in a file of the scratch folder.

    Args:
        pieces: int64[N, 3] each.
        scratch: path of the folder; without one they stay in memory.
        name: first part of the file name.

    Raises:
        OSError: the file cannot be written.
    """
    waiting = iter(pieces)
    first: list[Int64s] = []
    count = 0
    for piece in waiting:
        first.append(piece)
        count += len(piece)
        if scratch and count > _INLINE:
            pieces = map(np.ascontiguousarray, itertools.chain(first, waiting))
            return SpilledRows(path=write_scratch(scratch, name, pieces))
    return SpilledRows(data=np.concatenate([np.empty((0, _COLUMNS), np.int64), *first]).tobytes())
