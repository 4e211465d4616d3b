"""Transactions of a log, derived from batch headers alone, and whether their records are committed, aborted or open.

A transaction spans from the producer's first data batch after a marker to the producer's next marker. A data batch
without records belongs to a transaction, because a broker opens a transaction at it; a control batch without its record
ends none, because a broker ignores it. Tables are arrays with one row for each transaction.

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

# Columns of an event.
E_PRODUCER, E_OFFSET, E_KIND, E_EPOCH = range(4)
EVENT_COLUMNS: Final = 4
DATA: Final = columns.NO_CONTROL
ABORT: Final = 0
COMMIT: Final = 1

# Columns of a transaction.
T_PRODUCER, T_FIRST, T_LAST, T_MARKER, T_KIND, T_EPOCHS = range(6)
TRANSACTION_COLUMNS: Final = 6
# Columns of an aborted transaction: producer id, first offset, offset of its marker.
A_PRODUCER, A_FIRST, A_MARKER = range(3)
NONE: Final = -1
"""Value of T_FIRST and T_LAST without a data batch, and of T_MARKER without a marker."""

# The fate of a record, as bits of its row.
COMMITTED: Final = bits.COMMITTED
COMMITTED_TWO_EPOCHS: Final = bits.COMMITTED | bits.TWO_EPOCHS
ABORTED: Final = bits.ABORTED
OPEN: Final = bits.OPEN
_FEW: Final = 3


def no_rows(columns: int) -> Int64s:
    """Return int64[0, columns]."""
    return np.empty((0, columns), np.int64)


def events_of(rows: columns.Batches) -> Int64s:
    """Extract the events of transactions, data batches and markers, from batches in offset order.

    Returns:
        int64[N, EVENT_COLUMNS], see ``transactions_of``.
    """
    attributes, kinds = rows["attributes"], rows["control_type"]
    data = attributes & (TRANSACTIONAL | CONTROL) == TRANSACTIONAL
    batches = rows.take(np.flatnonzero(data | (kinds == ABORT) | (kinds == COMMIT)))
    names = ("producer_id", "base_offset", "control_type", "producer_epoch")
    return np.column_stack([batches[name].astype(np.int64) for name in names])


def transactions_of(events: Int64s) -> Int64s:
    """Join the events of each producer to transactions.

    Args:
        events: int64[N, EVENT_COLUMNS] (producer id, offset, ``DATA`` or kind of marker, producer epoch); events of one
            producer are in offset order.

    Returns:
        int64[M, TRANSACTION_COLUMNS]: producer id, base offsets of the first and the last data batch, offset and kind
        of the marker, 1 if the data has more than one producer epoch; ascending by producer and offset.
    """
    return _join_sorted(_sorted_events(events))


def _join_sorted(events: Int64s) -> Int64s:
    """Join sorted events to transactions."""
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


def _sorted_events(events: Int64s) -> Int64s:
    return events[np.argsort(events[:, E_PRODUCER], kind="stable")]


def _starts(events: Int64s) -> Int64s:
    """Return the indexes of the first event of each transaction in sorted events."""
    begins = np.ones(len(events), bool)
    begins[1:] = (events[1:, E_PRODUCER] != events[:-1, E_PRODUCER]) | (events[:-1, E_KIND] != DATA)
    return np.flatnonzero(begins)


def settled(events: Int64s) -> tuple[Int64s, Int64s]:
    """Split the events of one part of a log into complete transactions and the remaining events.

    The first and the last transaction of each producer may continue in another part, so they are not complete.

    Args:
        events: events of the part, as for ``transactions_of``.
    """
    events = _without_inner_data(_sorted_events(events))
    rows = _join_sorted(events)
    producers = rows[:, T_PRODUCER]
    inner = np.zeros(len(rows), bool)
    inner[1:-1] = (producers[1:-1] == producers[:-2]) & (producers[1:-1] == producers[2:])
    sizes = np.diff(np.append(_starts(events), len(events)))
    return rows[inner], events[np.repeat(~inner, sizes)]


def in_order(transactions: Int64s) -> Int64s:
    """Sort by producer and offset, the order of ``transactions_of``."""
    return transactions[np.lexsort((_first_offsets(transactions), transactions[:, T_PRODUCER]))]


def _first_offsets(transactions: Int64s) -> Int64s:
    """Return the offset of each transaction's first remaining batch, which may be its marker."""
    return np.where(transactions[:, T_FIRST] == NONE, transactions[:, T_MARKER], transactions[:, T_FIRST])


def _without_inner_data(events: Int64s) -> Int64s:
    """Drop data batches between two others of the same producer and epoch: only the first and last matter.

    Args:
        events: sorted events.
    """
    if len(events) < _FEW:
        return events
    same = (events[1:, E_PRODUCER] == events[:-1, E_PRODUCER]) & (events[1:, E_EPOCH] == events[:-1, E_EPOCH])
    same &= (events[1:, E_KIND] == DATA) & (events[:-1, E_KIND] == DATA)
    kept = np.ones(len(events), bool)
    kept[1:-1] = ~(same[1:] & same[:-1])
    return events[kept]


def runs_of(events: Int64s) -> Int64s:
    """Return the ranges in which producers have data without a marker in between, ascending by first offset.

    Returns:
        int64[M, 3] (producer id, offsets of the first and the last data batch).
    """
    rows = transactions_of(events)
    rows = rows[rows[:, T_FIRST] != NONE]
    runs: Int64s = rows[np.argsort(rows[:, T_FIRST], kind="stable")][:, [T_PRODUCER, T_FIRST, T_LAST]]
    return runs


def begins_as_indexed(aborted: Int64s, latest: Int64s, indexed: Int64s) -> Int64s:
    """Return the first offset of each aborted transaction, from the ``.txnindex`` if its entry is plausible.

    Up to 2.2.1 a cleaner removes a COMMIT marker whose records remain (KAFKA-8351), and a later ABORT of the producer
    then seems to cover these records too. If the .txnindex entry of that ABORT begins after the records, brokers and
    consumers treat them as committed. krepair does the same.

    Args:
        aborted: int64[N, 3], aborted transactions by the log, see ``A_PRODUCER``.
        latest: int64[N], highest offset at which each transaction may have begun.
        indexed: int64[M, 3], the same columns from the entries of the ``.txnindex``.
    """
    first = aborted[:, A_FIRST]
    if not len(indexed):
        return first
    indexed = indexed[np.argsort(indexed[:, A_MARKER], kind="stable")]
    at = np.minimum(np.searchsorted(indexed[:, A_MARKER], aborted[:, A_MARKER]), len(indexed) - 1)
    ends = [A_PRODUCER, A_MARKER]
    same, begins = (indexed[at][:, ends] == aborted[:, ends]).all(axis=1), indexed[at, A_FIRST]
    return np.where(same & (first < begins) & (begins <= latest), begins, first)


def parted(transactions: Int64s, highest_hole: int, indexed: Int64s) -> Int64s:
    """Split aborted transactions at the first offset that the ``.txnindex`` gives, see ``begins_as_indexed``.

    The earlier part becomes a committed transaction with a removed marker. In its row T_MARKER is the offset of the
    first data batch, because no real marker can have that offset.

    Args:
        transactions: int64[N, TRANSACTION_COLUMNS].
        highest_hole: highest offset without a record; above it no marker can be missing.
        indexed: int64[M, 3] (producer id, first offset, offset of the ABORT marker) of the ``.txnindex`` entries.
    """
    ends = aborts_with_data(transactions)
    rows = transactions[ends]
    latest = np.where(rows[:, T_FIRST] < highest_hole, rows[:, T_MARKER], NONE)
    begins = begins_as_indexed(rows[:, [T_PRODUCER, T_FIRST, T_MARKER]], latest, indexed)
    moved = begins != rows[:, T_FIRST]
    if not moved.any():
        return in_order(transactions)
    rows, begins = rows[moved], begins[moved]
    before, behind = rows.copy(), rows
    before[:, T_LAST] = np.minimum(begins - 1, rows[:, T_LAST])
    before[:, T_MARKER], before[:, T_KIND] = rows[:, T_FIRST], COMMIT
    has_data = begins <= rows[:, T_LAST]
    behind[:, T_FIRST] = np.where(has_data, begins, NONE)
    behind[:, T_LAST] = np.where(has_data, rows[:, T_LAST], NONE)
    before[:, T_EPOCHS] = behind[:, T_EPOCHS] = 0
    others = np.delete(transactions, np.flatnonzero(ends)[moved], axis=0)
    return in_order(np.concatenate([others, before, behind]))


def aborts_with_data(transactions: Int64s) -> Bools:
    """Mark the transactions that are aborted and have data."""
    mask: Bools = (transactions[:, T_FIRST] != NONE) & (transactions[:, T_KIND] == ABORT)
    return mask


def aborted_of(transactions: Int64s) -> Int64s:
    """Return int64[M, 3] (producer id, first offset, marker offset) of aborted transactions with data."""
    aborted: Int64s = transactions[aborts_with_data(transactions)][:, [T_PRODUCER, T_FIRST, T_MARKER]]
    return aborted


def open_transactions(transactions: Int64s) -> Int64s:
    """Return the transactions that have data but no marker."""
    rows: Int64s = transactions[(transactions[:, T_FIRST] != NONE) & (transactions[:, T_MARKER] == NONE)]
    return rows


def last_stable_offset(transactions: Int64s, log_end: int) -> int:
    """Return the first offset of the earliest open transaction, or the log end offset."""
    open_rows = open_transactions(transactions)
    return int(open_rows[:, T_FIRST].min()) if len(open_rows) else log_end


def touching(transactions: Int64s, hidden: Sequence[tuple[int, int]]) -> Bools:
    """Mark the transactions that reach into a damaged part of the log, where their marker or more data may lie.

    Args:
        transactions: int64[N, TRANSACTION_COLUMNS].
        hidden: (first, last) offset of each damaged part.
    """
    first = _first_offsets(transactions)
    after = np.where(transactions[:, T_MARKER] == NONE, np.iinfo(np.int64).max, transactions[:, T_MARKER])
    mask = np.zeros(len(transactions), bool)
    for low, high in hidden:
        mask |= (first <= high) & (after >= low)
    return mask


def without_end(transactions: Int64s, hidden: Sequence[tuple[int, int]]) -> Int64s:
    """Return a copy without the markers of transactions that reach into damage: it may hide their real marker."""
    rows = transactions.copy()
    rows[touching(rows, hidden), T_MARKER] = NONE
    return rows


def fates_of(transactions: Int64s) -> Int64s:
    """Return for each transaction with data whether its records are committed, aborted or open.

    Args:
        transactions: int64[N, TRANSACTION_COLUMNS].

    Returns:
        int64[M, 3] (producer id, first offset, fate), ascending by the first two columns.
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
    fates = np.column_stack([rows[:, T_PRODUCER], rows[:, T_FIRST], fate])
    return np.ascontiguousarray(fates[np.lexsort((fates[:, 1], fates[:, 0]))])
