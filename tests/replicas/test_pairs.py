"""An ABORT that begins later in another replica's index: a lost marker, or an index built from a cleaned log."""

from __future__ import annotations

import numpy as np
import pytest

from krepair.derive.transactions import ABORT, COMMIT, DATA, NONE, transactions_of
from krepair.formats.arrays import Int64s
from krepair.logdir.view import ReplicaState
from krepair.rules.replicas.judge import judge_transactions
from krepair.rules.replicas.model import COMMITTED_TO_ABORTED
from krepair.rules.replicas.replica import Replica, ReplicaHeaders

PRODUCER, MARKER = 7, 117


def replica(broker: int, end: int, cleaner: int, transactions: Int64s, index_aborts: Int64s) -> Replica:
    """A whole log with these transactions."""
    state = ReplicaState(topic="t", partition=0, folder="t-0", cleaner_position=cleaner)
    headers = ReplicaHeaders(
        log_end=end, transactions=transactions.tobytes(), index_aborts=index_aborts.tobytes()
    )
    return Replica.of(broker, state, headers)


def with_abort(
    broker: int, cleaner: int, begins: int, data: int = NONE, *, two_epochs: bool = False
) -> Replica:
    """A replica with one ABORT: where it begins by the index, and where its first batch of data is."""
    last = NONE if data == NONE else data
    transactions = np.array([[PRODUCER, data, last, MARKER, ABORT, int(two_epochs)]], np.int64)
    index = np.array([[PRODUCER, begins, MARKER]], np.int64)
    return replica(broker, 200, cleaner, transactions, index)


def found(mine: Replica, *others: Replica) -> list[tuple[str, int]]:
    said = judge_transactions(mine, [(other, 1000) for other in others])
    return [(one.kind, one.offset) for one in said]


def test_a_later_start_with_its_data_above_the_cleaner_position_on_two_replicas_is_a_lost_marker() -> None:
    mine = with_abort(2, 100, 83, 83)
    assert found(mine, with_abort(1, 100, 105, 105), with_abort(3, 105, 105, 105)) == [
        (COMMITTED_TO_ABORTED, 83)
    ]


def test_the_text_of_a_lost_marker_names_both_starts_and_their_brokers() -> None:
    others = [(with_abort(one, 100, 105, 105), 1000) for one in (1, 3)]
    [said] = judge_transactions(with_abort(2, 100, 83, 83), others)
    assert said.text == (
        "the ABORT of producer 7 at 117 begins at offset 83 on broker 2, and at 105 on broker 1: "
        "an earlier marker never came to broker 2"
    )


@pytest.mark.parametrize(
    ("begins", "data", "cleaner"),
    [(117, NONE, 100), (117, NONE, 150), (105, 105, 150), (105, 105, 106)],
    ids=["no-data", "no-data-and-cleaned", "cleaned-past-its-data", "cleaned-just-past-its-data"],
)
def test_an_index_made_anew_of_a_cleaned_log_is_no_lost_marker(begins: int, data: int, cleaner: int) -> None:
    """Seen on 2.2.1: aborted data were removed, and two replicas fetched the log that was left."""
    assert (
        found(with_abort(2, 100, 83, 83), *(with_abort(one, cleaner, begins, data) for one in (1, 3))) == []
    )


def test_one_transaction_with_two_producer_epochs_is_a_lost_marker_whatever_the_index_was_made_of() -> None:
    mine = with_abort(2, 100, 83, 83, two_epochs=True)
    assert found(mine, with_abort(1, 150, 117)) == [(COMMITTED_TO_ABORTED, 83)]


# -- markers that never came, against a slow twin -----------------------------------------------------


def by_chance(chance: np.random.Generator, lost: float) -> Replica:
    """Events of three producers, some of them lost."""
    rows = [
        (int(producer), offset, int(chance.choice([DATA, DATA, COMMIT, ABORT])), 0)
        for offset, producer in enumerate(chance.integers(1, 4, 60))
        if chance.random() >= lost
    ]
    transactions = transactions_of(np.array(rows, np.int64).reshape(-1, 4))
    return replica(1, 60, -1, transactions, np.empty((0, 3), np.int64))


def slow_twin(mine: Replica, other: Replica, high: int) -> dict[str, tuple[int, int]]:
    found: dict[str, list[int]] = {}
    for producer, first, _, marker, kind, _ in mine.transactions.tolist():
        limit = high if marker == NONE else min(marker, high)
        theirs = [
            (row[3], row[4])
            for row in other.transactions.tolist()
            if row[0] == producer and row[3] != NONE and first < row[3] < limit
        ]
        if first == NONE or not theirs:
            continue
        _, theirs_kind = min(theirs)
        name = "stuck"
        if marker != NONE:
            parted = "committed-to-aborted" if kind == ABORT else "aborted-to-committed"
            name = "marker-missed" if kind == theirs_kind else parted
        found.setdefault(name, []).append(first)
    return {name: (min(firsts), len(firsts)) for name, firsts in found.items()}


def test_markers_that_never_came_are_found_as_by_a_slow_twin() -> None:
    kinds: set[str] = set()
    for seed in range(200):
        chance = np.random.default_rng(seed)
        mine, other = by_chance(chance, 0.2), by_chance(chance, 0.1)
        fork = int(chance.integers(0, 80))
        said = {one.kind: (one.offset, one.count) for one in judge_transactions(mine, [(other, fork)])}
        assert said == slow_twin(mine, other, min(60, fork))
        kinds |= set(said)
    assert len(kinds) == 4
