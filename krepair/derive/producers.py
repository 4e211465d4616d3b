"""State of each producer at the end of a log, computed from a producer snapshot and the scans of later segments.

Source: ProducerStateManager, ProducerAppendInfo.append (2.2.1, 2.8.2, 3.9.0).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from krepair.formats.arrays import Int64s
from krepair.formats.producer_snapshot import (
    COORDINATOR_EPOCH,
    LAST_OFFSET,
    LAST_SEQUENCE,
    OFFSET_DELTA,
    OPEN_FIRST,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TIMESTAMP,
)
from krepair.kernels import classes as c

_NONE = -1


def is_active(open_first: Int64s, time_ms: Int64s, now_ms: int, expiry_ms: int) -> Any:
    """Mark producers that a broker still knows, since they have an open transaction or have not expired: bool[N].

    Source: ProducerStateManager.isProducerExpired (2.2.1, 3.9.0).

    Args:
        open_first: int64[N], first offsets of open transactions, negative for none.
        time_ms: int64[N], times of the last batches in epoch milliseconds.
        now_ms: current time in epoch milliseconds.
        expiry_ms: time in ms after which a producer without an open transaction expires.
    """
    return (open_first >= 0) | (now_ms - time_ms < expiry_ms)


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
        self._by_column = {
            PRODUCER_EPOCH: self.epoch,
            LAST_SEQUENCE: self.sequence,
            LAST_OFFSET: self.last_data,
            OFFSET_DELTA: self.delta,
            TIMESTAMP: self.timestamp,
            COORDINATOR_EPOCH: self.coordinator,
            OPEN_FIRST: self.open_first,
        }

    def table(self, stays: Any, time_ms: Int64s) -> Int64s:
        """Return producers as rows of a snapshot, int64[M, COLUMN_COUNT], for ``producer_snapshot.encode_table``.

        Args:
            stays: bool[N], the producers to return.
            time_ms: int64[N], values of the column ``TIMESTAMP``.
        """
        columns = {PRODUCER_ID: self.ids, **self._by_column, TIMESTAMP: time_ms}
        rows: Int64s = np.column_stack([columns[column][stays] for column in sorted(columns)])
        return rows

    def load(self, table: Int64s) -> None:
        """Add the producers of a snapshot, int64[M, COLUMN_COUNT] as returned by ``producer_snapshot.table``."""
        at = np.searchsorted(self.ids, table[:, PRODUCER_ID])
        for column, mine in self._by_column.items():
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
