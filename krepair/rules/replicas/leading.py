"""Who leads while a replica catches up decides what becomes of it, by the rows of transactions. Pure.

A follower fetches from its own end on, and keeps what it has below. A marker above that end which its leader has
removed never comes. So its open transaction ends with the next marker of its producer, whatever that says, or never.
The same with tombstones is judged by key (``keys``).

Source: Cleaner.shouldDiscardBatch, ProducerStateManager (3.9.2); run on clusters of 3.9.2 and 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from krepair.derive.transactions import (
    ABORT,
    COMMIT,
    NONE,
    T_FIRST,
    T_KIND,
    T_LAST,
    T_MARKER,
    open_transactions,
    touching,
)
from krepair.rules.replicas.model import ABORTED_TO_COMMITTED, COMMITTED_TO_ABORTED, STUCK
from krepair.rules.replicas.pairs import Ledger, next_markers

_NOWHERE = np.iinfo(np.int64).max


class Harm(NamedTuple):
    """What becomes of open transactions of a replica that is behind, if one broker leads it.

    Attributes:
        leader: that broker.
        kind: ``STUCK``, ``ABORTED_TO_COMMITTED`` or ``COMMITTED_TO_ABORTED``.
        first: first offset of the first of these transactions.
        how_many: of them there are.
    """

    leader: int
    kind: str
    first: int
    how_many: int


def harm_by_leaders(mine: Ledger, leaders: Sequence[Ledger]) -> Iterator[Harm]:
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
    markers = np.where(found[:, :, T_MARKER] == NONE, _NOWHERE, found[:, :, T_MARKER])
    place = markers.argmin(axis=0)
    marker = markers[place, np.arange(len(rows))]
    kind = found[place, np.arange(len(rows)), T_KIND]
    # a marker below my end never came here: I am wrong already
    comes = (marker != _NOWHERE) & (marker >= mine.end)
    for number, one in enumerate(leaders):
        if one.hidden:
            continue
        lacks = comes & (marker < one.end) & (rows[:, T_LAST] >= one.start) & (markers[number] > marker)
        ends = found[number, :, T_KIND]
        for what, chosen in (
            (STUCK, lacks & (markers[number] == _NOWHERE)),
            (ABORTED_TO_COMMITTED, lacks & (kind == ABORT) & (ends == COMMIT)),
            (COMMITTED_TO_ABORTED, lacks & (kind == COMMIT) & (ends == ABORT)),
        ):
            if chosen.any():
                yield Harm(one.broker, what, int(rows[chosen, T_FIRST].min()), int(chosen.sum()))


def certainly_committed(mine: Ledger, leader: Ledger) -> tuple[int, int]:
    """(first offset, offset after the last) of my open records that this leader commits; equal if there are none.

    A record is known by its offset alone. So it is certain only where no other transaction is open.
    """
    rows = open_transactions(mine.transactions)
    commits = next_markers(leader, rows)[:, T_KIND] == COMMIT
    first = int(rows[commits, T_FIRST].min(initial=_NOWHERE))
    return first, max(first, int(rows[~commits, T_FIRST].min(initial=mine.end)))
