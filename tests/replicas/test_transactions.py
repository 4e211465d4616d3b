"""The transactions of a log read in parts equal those of the log read at once."""

from __future__ import annotations

import numpy as np
import pytest

from krepair.derive.transactions import (
    ABORT,
    COMMIT,
    DATA,
    EVENT_COLUMNS,
    NONE,
    T_FIRST,
    T_KIND,
    T_MARKER,
    T_PRODUCER,
    TRANSACTION_COLUMNS,
    fates_of,
    in_order,
    no_rows,
    parted,
    settled,
    transactions_of,
)
from krepair.formats.arrays import Int64s
from krepair.kernels.replica_rows import TWO_EPOCHS


def events_by(chance: np.random.Generator, producers: int) -> Int64s:
    count = int(chance.integers(0, 120))
    return np.column_stack(
        [
            chance.integers(0, producers, count),
            np.sort(chance.choice(1000, count, replace=False)),
            chance.choice([DATA, DATA, DATA, COMMIT, ABORT], count),
            chance.integers(0, 2, count),
        ]
    ).astype(np.int64)


@pytest.mark.parametrize("seed", range(60))
def test_where_commit_markers_are_gone_the_index_tells_what_was_aborted(seed: int) -> None:
    chance = np.random.default_rng(seed)
    events = events_by(chance, 1 + seed % 3)
    ends = transactions_of(events)
    ends = ends[ends[:, T_KIND] == ABORT]
    begins = np.where(ends[:, T_FIRST] == NONE, ends[:, T_MARKER], ends[:, T_FIRST])  # as brokers up to 2.7
    said = np.column_stack([ends[:, T_PRODUCER], begins, ends[:, T_MARKER]])
    goes = (events[:, 2] == COMMIT) & (chance.random(len(events)) < 0.7)
    # without a later marker of its producer a transaction is open: of that an index says nothing
    ended = {producer: offset for producer, offset, kind, _ in events[~goes].tolist() if kind != DATA}
    goes &= np.array([offset < ended.get(producer, -1) for producer, offset, _, _ in events.tolist()], bool)
    left = parted(transactions_of(events[~goes]), int(events[goes, 1].max(initial=-1)), said)

    def fates(rows: Int64s) -> list[int]:
        table = fates_of(rows)
        return [
            int(table[(table[:, 0] == producer) & (table[:, 1] <= offset)][-1, 2]) & ~TWO_EPOCHS
            for producer, offset, kind, _ in events.tolist()
            if kind == DATA
        ]

    assert fates(left) == fates(transactions_of(events))


@pytest.mark.parametrize("seed", range(60))
def test_parts_that_are_settled_one_by_one_give_the_same_transactions(seed: int) -> None:
    chance = np.random.default_rng(seed)
    events = events_by(chance, 1 + seed % 7)
    rows, left, waiting = [no_rows(TRANSACTION_COLUMNS)], [no_rows(EVENT_COLUMNS)], no_rows(EVENT_COLUMNS)
    for piece in np.array_split(events, int(chance.integers(1, 9))):
        found, waiting = settled(np.concatenate([waiting, piece]))
        rows.append(found)
        if chance.random() < 0.3:  # the next piece is of another task
            left.append(waiting)
            waiting = no_rows(EVENT_COLUMNS)
    joined = np.concatenate([transactions_of(np.concatenate([*left, waiting])), *rows])
    np.testing.assert_array_equal(in_order(joined), transactions_of(events))
