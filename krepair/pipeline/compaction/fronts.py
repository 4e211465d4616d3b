"""The records of one segment of ``__consumer_offsets``, counted by the fronts of their keys when those are found."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from krepair.kernels import key_census as n
from krepair.kernels.key_fronts import FRONT_COLUMNS, USED_NAMES, USED_ROWS, USED_SIZE
from krepair.pipeline.compaction.items import SegmentCensus

_SLOTS_A_ROW: Final = 2
_NAME_BYTES: Final = 64
"""Room for the name of a front, in the mean."""


class KeyFronts:
    """What is counted of one segment.

    Args:
        most: fronts there may be; where there are more, nothing is told. 0: nothing is counted.

    Attributes:
        tables: what the kernels of ``compact_keys`` count in.
    """

    def __init__(self, most: int) -> None:
        self.counts = most > 0
        slots = 1 << (_SLOTS_A_ROW * most).bit_length() if self.counts else 0
        # what is never written takes no memory, and no time to be cleared
        self._rows: Any = np.empty((most, FRONT_COLUMNS), np.int64)
        self._names: Any = np.empty(most * _NAME_BYTES, np.uint8)
        self._used: Any = np.zeros(USED_SIZE, np.int64)
        self.tables = (self._rows, np.full(slots, -1, np.int32), self._names, self._used)

    def counted(self) -> SegmentCensus:
        """All records and bytes by kind and by group; what stays of them is not known here."""
        fronts = self._rows[: self._used[USED_ROWS]]
        kinds: Any = np.zeros((n.KINDS, n.KIND_COLUMNS), np.int64)
        groups: Any = np.zeros((len(fronts) + 1, n.GROUP_COLUMNS), np.int64)
        slots = np.full(1 << (_SLOTS_A_ROW * len(groups)).bit_length(), -1, np.int32)
        names: Any = np.zeros(self._used[USED_NAMES], np.uint8)
        state: Any = np.zeros(n.STATE_SIZE, np.int64)
        n.add_fronts(self._names, fronts, kinds, groups, slots, names, state)
        return SegmentCensus(
            kinds=kinds.tobytes(),
            groups=groups[: state[n.S_GROUPS]].tobytes(),
            names=names[: state[n.S_ARENA]].tobytes(),
        )
