"""The transactions of a log that is read in parts are those of the log that is read at once."""

from __future__ import annotations

import numpy as np
import pytest

from krepair.derive.transactions import (
    ABORT,
    COMMIT,
    DATA,
    EVENT_COLUMNS,
    TRANSACTION_COLUMNS,
    in_order,
    no_rows,
    settled,
    transactions_of,
)


@pytest.mark.parametrize("seed", range(60))
def test_parts_that_are_settled_one_by_one_give_the_same_transactions(seed: int) -> None:
    chance = np.random.default_rng(seed)
    count = int(chance.integers(0, 120))
    events = np.column_stack(
        [
            chance.integers(0, 1 + seed % 7, count),
            np.sort(chance.choice(1000, count, replace=False)),
            chance.choice([DATA, DATA, DATA, COMMIT, ABORT], count),
            chance.integers(0, 2, count),
        ]
    ).astype(np.int64)
    rows, left, waiting = [no_rows(TRANSACTION_COLUMNS)], [no_rows(EVENT_COLUMNS)], no_rows(EVENT_COLUMNS)
    for piece in np.array_split(events, int(chance.integers(1, 9))):
        found, waiting = settled(np.concatenate([waiting, piece]))
        rows.append(found)
        if chance.random() < 0.3:  # the next piece is of another task
            left.append(waiting)
            waiting = no_rows(EVENT_COLUMNS)
    joined = np.concatenate([transactions_of(np.concatenate([*left, waiting])), *rows])
    np.testing.assert_array_equal(in_order(joined), transactions_of(events))
