"""Transactions of a log as rows, made of its headers alone, and what they say of records. Pure.

A transaction reaches from the first batch of data behind a marker of its producer to the next marker. An emptied batch
of data counts, because it opens a transaction; an emptied marker does not, because no broker looks at it.

Source: ProducerAppendInfo.append, appendDataBatch, appendEndTxnMarker (2.2.1, 3.9.2, 4.3.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from krepair.formats.arrays import Bools, Int64s
from krepair.formats.batch_v2 import CONTROL, TRANSACTIONAL
from krepair.kernels import columns
from krepair.kernels import replica_rows as bits

# columns of an event
E_PRODUCER, E_OFFSET, E_KIND, E_EPOCH = range(4)
EVENT_COLUMNS: Final = 4
DATA: Final = columns.NO_CONTROL
ABORT: Final = 0
COMMIT: Final = 1

# columns of a transaction
T_PRODUCER, T_FIRST, T_LAST, T_MARKER, T_KIND, T_EPOCHS = range(6)
TRANSACTION_COLUMNS: Final = 6
NONE: Final = -1
"""In T_FIRST and T_LAST: no batch of data is left. In T_MARKER: there is no marker."""

# what becomes of a record, as bits of its row
COMMITTED: Final = bits.COMMITTED
COMMITTED_TWO_EPOCHS: Final = bits.COMMITTED | bits.TWO_EPOCHS
ABORTED: Final = bits.ABORTED
OPEN: Final = bits.OPEN
_FEW: Final = 3


def no_rows(columns: int) -> Int64s:
    """int64[0, columns]."""
    return np.empty((0, columns), np.int64)


def events_of(rows: columns.Batches) -> Int64s:
    """Data in transactions and their markers, int64[N, EVENT_COLUMNS], of batches in offset order."""
    attributes, kinds = rows["attributes"], rows["control_type"]
    data = attributes & (TRANSACTIONAL | CONTROL) == TRANSACTIONAL
    found = rows.take(np.flatnonzero(data | (kinds == ABORT) | (kinds == COMMIT)))
    names = ("producer_id", "base_offset", "control_type", "producer_epoch")
    return np.column_stack([found[name].astype(np.int64) for name in names])


def transactions_of(events: Int64s) -> Int64s:
    """Join events to transactions.

    Args:
        events: int64[N, EVENT_COLUMNS] (producer id, offset, ``DATA`` or kind of marker, producer epoch), those of a
            producer in offset order.

    Returns:
        int64[M, TRANSACTION_COLUMNS]: producer id, base offset of the first batch of data, of the last, offset of the
        marker, its kind, whether the data has more than one producer epoch; ascending by producer and offset.
    """
    return _joined(_in_order(events))


def _joined(events: Int64s) -> Int64s:
    """The transactions of events that are in order."""
    if not len(events):
        return no_rows(TRANSACTION_COLUMNS)
    marker, starts = events[:, E_KIND] != DATA, _starts(events)
    ends = np.append(starts[1:], len(events)) - 1
    rows = np.full((len(starts), TRANSACTION_COLUMNS), NONE, np.int64)
    rows[:, T_PRODUCER] = events[starts, E_PRODUCER]
    has_data = ~marker[starts]
    closed = marker[ends]
    last_data = np.where(closed, ends - 1, ends)
    rows[has_data, T_FIRST] = events[starts[has_data], E_OFFSET]
    rows[has_data, T_LAST] = events[last_data[has_data], E_OFFSET]
    rows[closed, T_MARKER] = events[ends[closed], E_OFFSET]
    rows[closed, T_KIND] = events[ends[closed], E_KIND]
    low = np.where(marker, np.iinfo(np.int64).max, events[:, E_EPOCH])
    high = np.where(marker, np.iinfo(np.int64).min, events[:, E_EPOCH])
    differs = np.minimum.reduceat(low, starts) != np.maximum.reduceat(high, starts)
    rows[:, T_EPOCHS] = differs & has_data
    return rows


def _in_order(events: Int64s) -> Int64s:
    return events[np.argsort(events[:, E_PRODUCER], kind="stable")]


def _starts(events: Int64s) -> Int64s:
    """Places of the first events of transactions, of events in order."""
    begins = np.ones(len(events), bool)
    begins[1:] = (events[1:, E_PRODUCER] != events[:-1, E_PRODUCER]) | (events[:-1, E_KIND] != DATA)
    return np.flatnonzero(begins)


def settled(events: Int64s) -> tuple[Int64s, Int64s]:
    """(transactions that no event before or behind these can change, the events of the others).

    The first and the last transaction of each producer may go on outside.

    Args:
        events: as for ``transactions_of``, of a part of the log.
    """
    events = _folded(_in_order(events))
    rows = _joined(events)
    producers = rows[:, T_PRODUCER]
    inner = np.zeros(len(rows), bool)
    inner[1:-1] = (producers[1:-1] == producers[:-2]) & (producers[1:-1] == producers[2:])
    sizes = np.diff(np.append(_starts(events), len(events)))
    return rows[inner], events[np.repeat(~inner, sizes)]


def in_order(transactions: Int64s) -> Int64s:
    """Ascending by producer and offset, as ``transactions_of`` gives them."""
    return transactions[np.lexsort((_begins(transactions), transactions[:, T_PRODUCER]))]


def _begins(transactions: Int64s) -> Int64s:
    """Offset of the first batch that is left of each, perhaps its marker."""
    return np.where(transactions[:, T_FIRST] == NONE, transactions[:, T_MARKER], transactions[:, T_FIRST])


def _folded(events: Int64s) -> Int64s:
    """The events without the batches of data inside of a run of one producer and epoch: they say nothing more.

    Args:
        events: in order.
    """
    if len(events) < _FEW:
        return events
    same = (events[1:, E_PRODUCER] == events[:-1, E_PRODUCER]) & (events[1:, E_EPOCH] == events[:-1, E_EPOCH])
    same &= (events[1:, E_KIND] == DATA) & (events[:-1, E_KIND] == DATA)
    kept = np.ones(len(events), bool)
    kept[1:-1] = ~(same[1:] & same[:-1])
    return events[kept]


def runs_of(events: Int64s) -> Int64s:
    """From where to where producers have data without a marker in between, ascending by the first offset.

    Args:
        events: as for ``transactions_of``.

    Returns:
        int64[M, 3] (producer id, offset of the first and of the last batch of data).
    """
    rows = transactions_of(events)
    rows = rows[rows[:, T_FIRST] != NONE]
    found: Int64s = rows[np.argsort(rows[:, T_FIRST], kind="stable")][:, [T_PRODUCER, T_FIRST, T_LAST]]
    return found


def begins_as_indexed(aborted: Int64s, latest: Int64s, said: Int64s) -> Int64s:
    """Where aborted transactions begin: where the ``.txnindex`` says, if that may be.

    Up to 2.2.1 a cleaner removes a commit marker whose records stay (KAFKA-8351). Records that an abort then seems to
    end are not aborted if its entry begins behind them: so brokers and consumers see it.

    Args:
        aborted: int64[N, 3] (producer id, first offset by the log, offset of the abort marker).
        latest: int64[N], where each may have begun at the latest.
        said: int64[M, 3], the same three of the entries.
    """
    first = aborted[:, 1]
    if not len(said):
        return first
    said = said[np.argsort(said[:, 2], kind="stable")]
    at = np.minimum(np.searchsorted(said[:, 2], aborted[:, 2]), len(said) - 1)
    same, begins = (said[at][:, [0, 2]] == aborted[:, [0, 2]]).all(axis=1), said[at, 1]
    return np.where(same & (first < begins) & (begins <= latest), begins, first)


def parted(transactions: Int64s, highest_hole: int, said: Int64s) -> Int64s:
    """Transactions in which each abort ends only what the ``.txnindex`` says, see ``begins_as_indexed``.

    What lies before is a committed transaction. Its marker is gone, and stands in the row at its first batch, where no
    marker can be.

    Args:
        transactions: int64[N, TRANSACTION_COLUMNS].
        highest_hole: highest offset that has no record: no marker behind it is gone.
        said: int64[M, 3] (producer id, first offset, offset of the abort marker) of the entries.
    """
    ends = aborts_with_data(transactions)
    rows = transactions[ends]
    latest = np.where(rows[:, T_FIRST] < highest_hole, rows[:, T_MARKER], NONE)
    begins = begins_as_indexed(rows[:, [T_PRODUCER, T_FIRST, T_MARKER]], latest, said)
    moved = begins != rows[:, T_FIRST]
    if not moved.any():
        return in_order(transactions)
    rows, begins = rows[moved], begins[moved]
    before, behind = rows.copy(), rows
    before[:, T_LAST] = np.minimum(begins - 1, rows[:, T_LAST])
    before[:, T_MARKER], before[:, T_KIND] = rows[:, T_FIRST], COMMIT
    left = begins <= rows[:, T_LAST]
    behind[:, T_FIRST] = np.where(left, begins, NONE)
    behind[:, T_LAST] = np.where(left, rows[:, T_LAST], NONE)
    before[:, T_EPOCHS] = behind[:, T_EPOCHS] = 0
    others = np.delete(transactions, np.flatnonzero(ends)[moved], axis=0)
    return in_order(np.concatenate([others, before, behind]))


def aborts_with_data(transactions: Int64s) -> Bools:
    """Which transactions are aborted and have data."""
    found: Bools = (transactions[:, T_FIRST] != NONE) & (transactions[:, T_KIND] == ABORT)
    return found


def aborted_of(transactions: Int64s) -> Int64s:
    """int64[M, 3] (producer id, first offset, offset of the marker) of those that have data and are aborted."""
    found: Int64s = transactions[aborts_with_data(transactions)][:, [T_PRODUCER, T_FIRST, T_MARKER]]
    return found


def open_transactions(transactions: Int64s) -> Int64s:
    """Those with data and without a marker."""
    found: Int64s = transactions[(transactions[:, T_FIRST] != NONE) & (transactions[:, T_MARKER] == NONE)]
    return found


def last_stable_offset(transactions: Int64s, log_end: int) -> int:
    """First offset of the first open transaction, else the log end."""
    found = open_transactions(transactions)
    return int(found[:, T_FIRST].min()) if len(found) else log_end


def touching(transactions: Int64s, hidden: Sequence[tuple[int, int]]) -> Bools:
    """Which transactions reach into a damaged part: there may be a marker in it, or more of their data.

    Args:
        transactions: int64[N, TRANSACTION_COLUMNS].
        hidden: (first, last) offset of each damaged part.
    """
    first = _begins(transactions)
    after = np.where(transactions[:, T_MARKER] == NONE, np.iinfo(np.int64).max, transactions[:, T_MARKER])
    found = np.zeros(len(transactions), bool)
    for low, high in hidden:
        found |= (first <= high) & (after >= low)
    return found


def without_end(transactions: Int64s, hidden: Sequence[tuple[int, int]]) -> Int64s:
    """A copy in which transactions that reach into a damaged part have no marker: how they end is not known."""
    rows = transactions.copy()
    rows[touching(rows, hidden), T_MARKER] = NONE
    return rows


def fates_of(transactions: Int64s) -> Int64s:
    """What becomes of the records of each transaction with data.

    Args:
        transactions: int64[N, TRANSACTION_COLUMNS].

    Returns:
        int64[M, 3] (producer id, first offset, fate), ascending by the first two.
    """
    rows = transactions[transactions[:, T_FIRST] != NONE]
    fate = np.where(
        rows[:, T_MARKER] == NONE,
        OPEN,
        np.where(
            rows[:, T_KIND] == ABORT,
            ABORTED,
            np.where(rows[:, T_EPOCHS] != 0, COMMITTED_TWO_EPOCHS, COMMITTED),
        ),
    )
    found = np.column_stack([rows[:, T_PRODUCER], rows[:, T_FIRST], fate])
    return np.ascontiguousarray(found[np.lexsort((found[:, 1], found[:, 0]))])
