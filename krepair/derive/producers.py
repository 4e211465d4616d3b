"""State of each producer at the end of a log, computed from a producer snapshot and the scans of later segments.

Source: ProducerStateManager, ProducerAppendInfo.append (2.2.1, 2.8.2, 3.9.0).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from krepair.formats.arrays import Int64s
from krepair.kernels import classes as c

_NONE = -1


class Producers:
    """State of all producers, as arrays with one element for each id; -1 means unknown.

    Args:
        ids: int64[N], producer ids, ascending.

    Attributes:
        ids: see the arguments.
        epoch: int64[N], producer epochs.
        sequence: int64[N], last sequence of the current epoch.
        last_data: int64[N], last data offset of the current epoch.
        delta: int64[N], last offset delta of that batch, 0 if there is none.
        data_time: int64[N], timestamp in ms of the last data batch of the current epoch.
        timestamp: int64[N], timestamp in ms of the last batch, data or marker.
        coordinator: int64[N], coordinator epoch of the last marker.
        open_first: int64[N], first offset of the open transaction.
        known: bool[N], True if anything is known of the producer.
    """

    def __init__(self, ids: Int64s) -> None:
        self.ids = ids
        self.epoch, self.sequence, self.last_data, self.data_time, self.timestamp, self.coordinator, self.open_first = (
            np.full(len(ids), _NONE, np.int64) for _ in range(7)
        )  # fmt: skip
        self.delta: Int64s = np.zeros(len(ids), np.int64)
        self.known: Any = np.zeros(len(ids), bool)

    def load(self, table: Int64s) -> None:
        """Add the producers of a snapshot, int64[M, 8] as returned by ``producer_snapshot.table``."""
        at = np.searchsorted(self.ids, table[:, 0])
        fields = (
            self.epoch, self.sequence, self.last_data, self.delta, self.timestamp, self.coordinator, self.open_first,
        )  # fmt: skip
        for column, mine in enumerate(fields, start=1):
            mine[at] = table[:, column]
        self.data_time[at] = self.timestamp[at]
        self.open_first[at] = np.maximum(self.open_first[at], _NONE)
        self.known[at] = True

    def replay_rows(self, rows: Int64s) -> None:
        """Add the producers of the next segment, the ``rows`` of its summary."""
        rows = rows[
            rows[:, c.P_EPOCH] != _NONE
        ]  # a row of only retained empty control batches carries no state
        at = np.searchsorted(self.ids, rows[:, c.P_ID])
        same = (rows[:, c.P_EPOCHS_MIXED] == 0) & (self.epoch[at] == rows[:, c.P_EPOCH])
        data = rows[:, c.P_LAST_DATA_OFFSET] >= 0
        for mine, column, none in (
            (self.last_data, c.P_LAST_DATA_OFFSET, _NONE),
            (self.sequence, c.P_LAST_SEQUENCE, _NONE),
            (self.delta, c.P_LAST_DATA_DELTA, 0),
            (self.data_time, c.P_LAST_DATA_TIMESTAMP, _NONE),
        ):
            mine[at] = np.where(data, rows[:, column], np.where(same, mine[at], none))
        ended = rows[:, c.P_MARKERS] > 0
        self.epoch[at] = rows[:, c.P_EPOCH]
        self.timestamp[at] = rows[:, c.P_TIMESTAMP]
        self.coordinator[at] = np.where(ended, rows[:, c.P_COORDINATOR_EPOCH], self.coordinator[at])
        carried = np.where(self.open_first[at] >= 0, self.open_first[at], rows[:, c.P_OPEN_FIRST])
        self.open_first[at] = np.where(ended, rows[:, c.P_OPEN_FIRST], carried)
        self.known[at] = True
