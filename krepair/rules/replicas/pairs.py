"""Judges the transactions of two replicas, from the rows of their headers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from krepair.rules.replicas.model import ABORTED_TO_COMMITTED, COMMITTED_TO_ABORTED, MARKER_MISSED, STUCK
from krepair.rules.replicas.transactions import (
    ABORT,
    NONE,
    T_EPOCHS,
    T_FIRST,
    T_KIND,
    T_LAST,
    T_MARKER,
    T_PRODUCER,
    Int64s,
    open_transactions,
    touching,
)

KIND_NAMES: Final = {0: "ABORT", 1: "COMMIT"}
_WITNESSES: Final = 2


class TransactionFinding(NamedTuple):
    """One transaction that two replicas take differently.

    Attributes:
        kind: of disagreement.
        offset: first offset of its data on the replica that is wrong.
        text: what each has.
    """

    kind: str
    offset: int
    text: str


@dataclass(frozen=True)
class Ledger:
    """The transactions of one replica, and as far as they count.

    Attributes:
        broker: broker id.
        start: log start offset.
        end: log end offset.
        cleaner: first offset that is not clean, -1 none.
        transactions: int64[N, TRANSACTION_COLUMNS].
        index_aborts: int64[M, 3] (producer id, first offset, offset of the marker), of its ``.txnindex``.
        hidden: (first, last) offset of each damaged part.
    """

    broker: int
    start: int
    end: int
    cleaner: int
    transactions: Int64s
    index_aborts: Int64s
    hidden: tuple[tuple[int, int], ...] = ()


def judge_transactions(mine: Ledger, other: Ledger, fork: int) -> Iterator[TransactionFinding]:
    """What is wrong with the transactions of one replica, by those of another.

    Args:
        mine: of the replica that is judged.
        other: of the other one.
        fork: first offset of two histories; nothing from there on is judged.
    """
    high = min(mine.end, other.end, fork)
    yield from _missed_markers(mine, other, high)
    yield from _cleaned_past(mine, other, min(mine.end, fork))


def _missed_markers(mine: Ledger, other: Ledger, high: int) -> Iterator[TransactionFinding]:
    """A marker of the other lies inside of one of my transactions: it never came here."""
    rows = mine.transactions[
        (mine.transactions[:, T_FIRST] != NONE) & ~touching(mine.transactions, mine.hidden)
    ]
    markers = other.transactions[other.transactions[:, T_MARKER] != NONE]
    if not len(rows) or not len(markers):
        return
    markers = markers[np.lexsort((markers[:, T_MARKER], markers[:, T_PRODUCER]))]
    begins = np.searchsorted(markers[:, T_PRODUCER], rows[:, T_PRODUCER], "left")
    ends = np.searchsorted(markers[:, T_PRODUCER], rows[:, T_PRODUCER], "right")
    limits = np.where(rows[:, T_MARKER] == NONE, high, np.minimum(rows[:, T_MARKER], high))
    for number in np.flatnonzero(begins < ends).tolist():
        of_it = markers[begins[number] : ends[number], T_MARKER]
        first = int(rows[number, T_FIRST])
        place = int(np.searchsorted(of_it, first, "right"))
        if place < len(of_it) and of_it[place] < limits[number]:
            yield _of_marker(mine, other, rows[number], markers[begins[number] + place])


def _of_marker(mine: Ledger, other: Ledger, row: Int64s, marker: Int64s) -> TransactionFinding:
    producer, first, at = int(row[T_PRODUCER]), int(row[T_FIRST]), int(marker[T_MARKER])
    theirs = f"broker {other.broker} has its {KIND_NAMES.get(int(marker[T_KIND]), 'marker')} at {at}"
    if row[T_MARKER] == NONE:
        text = f"producer {producer}'s transaction from {first} is open on broker {mine.broker}; {theirs}"
        return TransactionFinding(STUCK, first, text)
    own = f"the {KIND_NAMES.get(int(row[T_KIND]), 'marker')} at {int(row[T_MARKER])}"
    text = f"producer {producer}'s records from {first} end with {own} on broker {mine.broker}; {theirs}"
    if row[T_KIND] == marker[T_KIND]:
        return TransactionFinding(MARKER_MISSED, first, text)
    kind = COMMITTED_TO_ABORTED if row[T_KIND] == ABORT else ABORTED_TO_COMMITTED
    return TransactionFinding(kind, first, text)


def _cleaned_past(mine: Ledger, other: Ledger, high: int) -> Iterator[TransactionFinding]:
    """A cleaner never passes an open transaction: what it passed on the other was over there."""
    if other.end < mine.end or other.hidden or mine.hidden:
        return
    rows = open_transactions(mine.transactions)
    for row in rows[(rows[:, T_FIRST] < min(other.cleaner, high)) & (rows[:, T_FIRST] >= other.start)]:
        producer, first = int(row[T_PRODUCER]), int(row[T_FIRST])
        theirs = other.transactions[other.transactions[:, T_PRODUCER] == producer]
        holds = (theirs[:, T_FIRST] != NONE) & (theirs[:, T_FIRST] <= first) & (first <= theirs[:, T_LAST])
        if not (holds | (theirs[:, T_MARKER] > first)).any():
            yield TransactionFinding(
                STUCK,
                first,
                f"producer {producer}'s transaction from {first} is open on broker {mine.broker}; broker "
                f"{other.broker} has cleaned past it (to {other.cleaner}), so it was over there",
            )


def longer_aborts(mine: Ledger, others: Sequence[tuple[Ledger, int]]) -> Iterator[TransactionFinding]:
    """The same ABORT covers more here than elsewhere: a marker between the two starts never came here.

    An index that was made anew from a cleaned log begins later, too, and that is harmless: a replica that fetched such
    a log makes it of the batches that it got. So it counts only where two others that have cleaned past my start,
    though not past theirs, have data at the later start and nobody shares mine, or where my transaction has two
    producer epochs.

    Args:
        mine: of the replica that is judged.
        others: of the other replicas, each with the first offset of two histories with mine.
    """
    if mine.hidden:
        return
    theirs = [
        (other, fork, {(producer, marker): first for producer, first, marker in other.index_aborts.tolist()})
        for other, fork in others
    ]
    for producer, first, marker in mine.index_aborts.tolist():
        known = [
            (other, begins[producer, marker])
            for other, fork, begins in theirs
            if (producer, marker) in begins
            and max(mine.start, other.start) <= first < min(mine.end, other.end, fork)
        ]
        # One that never cleaned so far has fetched a log that was clean already: its index was made of that.
        later = [(other, begins) for other, begins in known if begins > first and other.cleaner > first]
        certain = _two_epochs(mine.transactions, producer, marker)
        if not certain:
            later = [
                (other, begins) for other, begins in later if _begins_whole(other, producer, marker, begins)
            ]
        if later and (certain or len(later) == len(known) >= _WITNESSES):
            other, begins = later[0]
            yield TransactionFinding(
                COMMITTED_TO_ABORTED,
                first,
                f"the ABORT of producer {producer} at {marker} covers {first} and on on broker {mine.broker}, {begins} "
                f"and on on broker {other.broker}: an earlier marker never came to broker {mine.broker}",
            )


def _begins_whole(ledger: Ledger, producer: int, marker: int, begins: int) -> bool:
    """Whether a replica has the data with which an ABORT begins in its index, where no cleaner has been."""
    row = _row_of(ledger.transactions, producer, marker)
    return begins >= ledger.cleaner and bool((row[:, T_FIRST] == begins).any())


def _row_of(transactions: Int64s, producer: int, marker: int) -> Int64s:
    found: Int64s = transactions[
        (transactions[:, T_PRODUCER] == producer) & (transactions[:, T_MARKER] == marker)
    ]
    return found


def _two_epochs(transactions: Int64s, producer: int, marker: int) -> bool:
    return bool(_row_of(transactions, producer, marker)[:, T_EPOCHS].any())
