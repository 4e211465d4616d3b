"""Judges the transactions of two replicas, from the rows of their headers. Pure.

Who leads while a replica catches up decides what becomes of it. A follower fetches from its own end on, and keeps what
it has below. A marker above that end which its leader has removed never comes. So its open transaction ends with the
next marker of its producer, whatever that says, or never. The same with tombstones is judged by key (``keys``).

Source: Cleaner.shouldDiscardBatch, ProducerStateManager (3.9.2); run on clusters of 3.9.2 and 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from krepair.derive.transactions import (
    ABORT,
    COMMIT,
    NONE,
    T_EPOCHS,
    T_FIRST,
    T_KIND,
    T_LAST,
    T_MARKER,
    T_PRODUCER,
    open_transactions,
    touching,
)
from krepair.formats.arrays import Int64s
from krepair.rules.replicas.model import (
    ABORTED_TO_COMMITTED,
    COMMITTED_TO_ABORTED,
    MARKER_MISSED,
    STUCK,
    Disagreement,
    said,
)
from krepair.rules.replicas.replica import NOWHERE, Replica

KIND_NAMES: Final = {0: "ABORT", 1: "COMMIT"}
_WITNESSES: Final = 2
A_PRODUCER, A_FIRST, A_MARKER = range(3)
"""Columns of ``Replica.index_aborts``."""


def judge_transactions(mine: Replica, others: Sequence[tuple[Replica, int]]) -> Iterator[Disagreement]:
    """What is wrong with the transactions of one replica, by those of others.

    Args:
        mine: of the replica that is judged.
        others: of the other replicas, each with the first offset of two histories with mine; nothing from there on is
            judged.
    """
    for other, fork in others:
        yield from _missed_markers(mine, other, min(mine.end, other.end, fork))
    yield from _cleaned_past(mine, others)
    yield from _longer_aborts(mine, others)


def _missed_markers(mine: Replica, other: Replica, high: int) -> Iterator[Disagreement]:
    """Find markers of the other replica that lie inside one of my transactions: these markers never came here."""
    rows = mine.transactions[
        (mine.transactions[:, T_FIRST] != NONE) & ~touching(mine.transactions, mine.hidden)
    ]
    found = next_markers(other, rows)
    limits = np.where(rows[:, T_MARKER] == NONE, high, np.minimum(rows[:, T_MARKER], high))
    inside = (found[:, T_MARKER] != NONE) & (found[:, T_MARKER] < limits)
    rows, found = rows[inside], found[inside]
    is_open, same = rows[:, T_MARKER] == NONE, rows[:, T_KIND] == found[:, T_KIND]
    aborted = rows[:, T_KIND] == ABORT
    for kind, chosen in (
        (STUCK, is_open),
        (MARKER_MISSED, ~is_open & same),
        (COMMITTED_TO_ABORTED, ~is_open & ~same & aborted),
        (ABORTED_TO_COMMITTED, ~is_open & ~same & ~aborted),
    ):
        if chosen.any():
            place = int(np.where(chosen, rows[:, T_FIRST], np.iinfo(np.int64).max).argmin())
            text = _of_marker(mine, other, rows[place], found[place])
            first = int(rows[place, T_FIRST])
            yield said(kind, (mine.broker,), first, text, count=int(chosen.sum()))


def next_markers(other: Replica, rows: Int64s) -> Int64s:
    """Of each transaction the row of another replica with the next marker of its producer, ``NONE`` without one.

    Args:
        other: the other replica.
        rows: int64[N, TRANSACTION_COLUMNS], with data.
    """
    found = np.full(rows.shape, NONE, np.int64)
    markers = other.transactions[other.transactions[:, T_MARKER] != NONE]
    if len(markers):
        places = _places(markers, T_MARKER, rows[:, T_PRODUCER], rows[:, T_FIRST] + 1)
        there = places < len(markers)
        there[there] = markers[places[there], T_PRODUCER] == rows[there, T_PRODUCER]
        found[there] = markers[places[there]]
    return found


def _places(table: Int64s, column: int, producers: Int64s, offsets: Int64s) -> Int64s:
    """Of each (producer, offset) the place of the first row of a table that is not below it.

    Args:
        table: int64[N, ...], ascending by producer (column 0), then by the other column.
        column: the other column.
        producers: int64[M].
        offsets: int64[M].
    """
    low = np.zeros(len(producers), np.int64)
    high = np.full(len(producers), len(table), np.int64)
    for _ in range(len(table).bit_length()):
        middle = np.minimum((low + high) // 2, len(table) - 1)
        known = table[middle, T_PRODUCER]
        below = (known < producers) | ((known == producers) & (table[middle, column] < offsets))
        below &= low < high
        low, high = np.where(below, middle + 1, low), np.where(below, high, np.minimum(middle, high))
    return low


def _of_marker(mine: Replica, other: Replica, row: Int64s, marker: Int64s) -> str:
    producer, first, at = int(row[T_PRODUCER]), int(row[T_FIRST]), int(marker[T_MARKER])
    theirs = f"broker {other.broker} has its {KIND_NAMES.get(int(marker[T_KIND]), 'marker')} at {at}"
    if row[T_MARKER] == NONE:
        return f"producer {producer}'s transaction from {first} is open on broker {mine.broker}; {theirs}"
    own = f"the {KIND_NAMES.get(int(row[T_KIND]), 'marker')} at {int(row[T_MARKER])}"
    return f"producer {producer}'s records from {first} end with {own} on broker {mine.broker}; {theirs}"


def _cleaned_past(mine: Replica, others: Sequence[tuple[Replica, int]]) -> Iterator[Disagreement]:
    """Find my open transactions past which others have cleaned, and of which nobody has a marker any more.

    A cleaner never cleans past an open transaction, so it was over there. If anybody still has a marker above my end,
    I am only behind: then it decides who leads me.
    """
    if mine.hidden:
        return
    rows = open_transactions(mine.transactions)
    for other, fork in others:
        ends = next_markers(other, rows)[:, T_MARKER]
        rows = rows[(ends == NONE) | (ends >= fork)]
    witnesses = [
        (other, past)
        for other, fork in others
        if other.end >= mine.end
        and not other.hidden
        and len(past := _over_on(other, rows, min(mine.end, fork)))
    ]
    for other, past in witnesses:
        first = past[past[:, T_FIRST].argmin()]
        offset = int(first[T_FIRST])
        text = (
            f"producer {first[T_PRODUCER]}'s transaction from {offset} is open on broker {mine.broker}; broker "
            f"{other.broker} has cleaned past it (to {other.cleaner}), so it was over there"
        )
        brokers = [mine.broker]
        if other.last_gap_end > offset and len(witnesses) == 1:  # several others did not all lose a file
            text += f", or broker {other.broker} has lost a file with its marker"
            brokers.append(other.broker)
        yield said(STUCK, brokers, offset, text, count=len(past))


def _over_on(other: Replica, rows: Int64s, high: int) -> Int64s:
    """The transactions whose batches another replica has cleaned away."""
    rows = rows[(rows[:, T_FIRST] < min(other.cleaner, high)) & (rows[:, T_LAST] >= other.start)]
    held = [_holds(other, row) for row in rows]
    over: Int64s = rows[~np.array(held, bool)]
    return over


def _holds(other: Replica, row: Int64s) -> bool:
    """Whether a replica has batches of the same producer in the offsets of a transaction."""
    table = other.transactions
    begin, end = np.searchsorted(table[:, T_PRODUCER], [row[T_PRODUCER], row[T_PRODUCER] + 1])
    theirs = table[begin:end]
    found = (
        (theirs[:, T_FIRST] != NONE)
        & (theirs[:, T_FIRST] <= row[T_LAST])
        & (row[T_FIRST] <= theirs[:, T_LAST])
    )
    return bool(found.any())


def _longer_aborts(mine: Replica, others: Sequence[tuple[Replica, int]]) -> Iterator[Disagreement]:
    """Find ABORTs that begin earlier here than on others: a marker between the two starts never came here.

    An index that was made anew from a cleaned log also begins later, and that is harmless: a replica that fetched such
    a log makes its index from the batches that it got. So a later start alone proves nothing. A witness is a replica
    with a later start that has itself cleaned past my start. If my transaction has two producer epochs, one witness is
    enough. Otherwise at least two other replicas must have the ABORT in their index, and all of them must be witnesses
    that still have data at their start, which their cleaner has not passed.

    Args:
        mine: of the replica that is judged.
        others: of the other replicas, each with the first offset of two histories with mine.
    """
    aborts = mine.index_aborts
    if mine.hidden or not len(aborts) or not others:
        return
    first = aborts[:, A_FIRST]
    own = _markers_of(mine.transactions, aborts)
    certain = (own[:, T_EPOCHS] != NONE) & (own[:, T_EPOCHS] != 0)
    known, later = [], []
    for other, fork in others:
        begins = _begins(other, aborts)
        low, high = max(mine.start, other.start), min(mine.end, other.end, fork)
        known.append((begins != NONE) & (first >= low) & (first < high))
        # whole: it still has data at the start that its index names, and its cleaner has not passed that start.
        whole = (begins >= other.cleaner) & (_markers_of(other.transactions, aborts)[:, T_FIRST] == begins)
        # A replica that has not cleaned past my start may have fetched a clean log, and made its index from that.
        later.append(known[-1] & (begins > first) & (other.cleaner > first) & (certain | whole))
    told, witnesses = np.sum(known, axis=0), np.sum(later, axis=0)
    wrong = np.flatnonzero((witnesses > 0) & (certain | ((witnesses == told) & (told >= _WITNESSES))))
    if not len(wrong):
        return
    place = int(wrong[first[wrong].argmin()])
    producer, begin, marker = aborts[place].tolist()
    other = next(other for (other, _), of_it in zip(others, later, strict=True) if of_it[place])
    text = (
        f"the ABORT of producer {producer} at {marker} begins at offset {begin} on broker {mine.broker}, "
        f"and at {int(_begins(other, aborts[place : place + 1])[0])} on broker {other.broker}: an earlier marker "
        f"never came to broker {mine.broker}"
    )
    yield said(COMMITTED_TO_ABORTED, (mine.broker,), begin, text, count=len(wrong))


def _begins(other: Replica, aborts: Int64s) -> Int64s:
    """The first offset that the index of another replica tells of the same ABORTs, ``NONE`` where it has none."""
    theirs = other.index_aborts
    theirs = theirs[np.lexsort((theirs[:, A_MARKER], theirs[:, A_PRODUCER]))]
    return _same(theirs, A_MARKER, aborts)[:, A_FIRST]


def _markers_of(transactions: Int64s, aborts: Int64s) -> Int64s:
    """The transactions that end with ABORTs, ``NONE`` in all columns where there is none."""
    return _same(transactions[transactions[:, T_MARKER] != NONE], T_MARKER, aborts)


def _same(table: Int64s, column: int, aborts: Int64s) -> Int64s:
    """The rows of a table with the producer and the marker of ABORTs, ``NONE`` in all columns where there is none."""
    found = np.full((len(aborts), table.shape[1]), NONE, np.int64)
    if not len(table):
        return found
    producers, markers = aborts[:, A_PRODUCER], aborts[:, A_MARKER]
    places = np.minimum(_places(table, column, producers, markers), len(table) - 1)
    same = (table[places, T_PRODUCER] == producers) & (table[places, column] == markers)
    found[same] = table[places[same]]
    return found


# -- who leads while a replica catches up decides what becomes of it


class Harm(NamedTuple):
    """What becomes of open transactions of a replica that is behind, if one broker leads it.

    Attributes:
        leader: that broker.
        kind: ``STUCK``, ``ABORTED_TO_COMMITTED`` or ``COMMITTED_TO_ABORTED``.
        first: first offset of the first of these transactions.
    """

    leader: int
    kind: str
    first: int


def harm_by_leaders(mine: Replica, leaders: Sequence[Replica]) -> Iterator[Harm]:
    """Yield what leaders do to a replica that is behind: one of them still has a marker that another one has not.

    Args:
        mine: of the replica that is behind.
        leaders: of those that may lead it.
    """
    rows = open_transactions(mine.transactions)
    rows = rows[~touching(rows, mine.hidden)]
    if not len(rows) or not leaders:
        return
    found = np.stack([next_markers(one, rows) for one in leaders])
    markers = np.where(found[:, :, T_MARKER] == NONE, NOWHERE, found[:, :, T_MARKER])
    place = markers.argmin(axis=0)
    marker = markers[place, np.arange(len(rows))]
    kind = found[place, np.arange(len(rows)), T_KIND]
    # a marker below my end never came here: I am wrong already
    comes = (marker != NOWHERE) & (marker >= mine.end)
    for number, one in enumerate(leaders):
        if one.hidden:
            continue
        lacks = comes & (marker < one.end) & (rows[:, T_LAST] >= one.start) & (markers[number] > marker)
        ends = found[number, :, T_KIND]
        for what, chosen in (
            (STUCK, lacks & (markers[number] == NOWHERE)),
            (ABORTED_TO_COMMITTED, lacks & (kind == ABORT) & (ends == COMMIT)),
            (COMMITTED_TO_ABORTED, lacks & (kind == COMMIT) & (ends == ABORT)),
        ):
            if chosen.any():
                yield Harm(one.broker, what, int(rows[chosen, T_FIRST].min()))


def certainly_committed(mine: Replica, leader: Replica) -> tuple[int, int]:
    """(first offset, offset after the last) of my open records that this leader commits; equal if there are none.

    A record is known by its offset alone. So it is certain only where no other transaction is open.
    """
    rows = open_transactions(mine.transactions)
    commits = next_markers(leader, rows)[:, T_KIND] == COMMIT
    first = int(rows[commits, T_FIRST].min(initial=NOWHERE))
    return first, max(first, int(rows[~commits, T_FIRST].min(initial=mine.end)))
