"""The replay of transactions against a plain one of dictionaries."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krepair.kernels.transactions import E_HAS_DATA, TransactionReplay
from tests import builders
from tests.builders import Batch, joined
from tests.old_messages import mixed_logs, plain
from tests.strategies import History, histories

Entry = tuple[int, ...]
"""Producer id, first offset, offset of the marker, last stable offset, marker before, latest begin, next begin."""


@dataclass
class Twin:
    """Entries of one segment after the other (ProducerStateManager, 2.2.1 and 2.8)."""

    open_from: dict[int, int] = field(default_factory=dict)
    markers: dict[int, int] = field(default_factory=dict)
    before: list[Batch] = field(default_factory=list)

    def entries(self, batches: Sequence[Batch]) -> list[Entry]:
        found: list[Entry] = []
        begins: list[tuple[int, int]] = []
        for batch in batches:
            pid = batch.producer_id
            if pid >= 0 and batch.transactional and not batch.control:
                if pid not in self.open_from:
                    begins.append((batch.base_offset, pid))
                self.open_from.setdefault(pid, batch.base_offset)
            elif pid >= 0 and batch.marker is not None:
                first = self.open_from.pop(pid, batch.base_offset)
                if batch.marker == builders.ABORT:
                    stable = min(self.open_from.values(), default=batch.base_offset + 1)
                    marker, latest = self.markers.get(pid, -1), self.latest_begin(batch)
                    found.append((pid, first, batch.base_offset, stable, marker, latest))
                self.markers[pid] = batch.base_offset
            self.before.append(batch)
        return [
            (*entry, next((at for at, pid in begins if at > entry[2] and pid != entry[0]), -1))
            for entry in found
        ]

    def latest_begin(self, marker: Batch) -> int:
        """First data of the producer behind the last place at which another marker of it may have been."""
        latest = follows = marker.base_offset
        for batch in reversed(self.before):
            mine = batch.producer_id == marker.producer_id
            if batch.last_offset + 1 != follows or batch.raw[16] < 2 or (mine and batch.control):
                break
            follows = batch.base_offset
            if mine and batch.transactional:
                latest = batch.base_offset
        return latest


def replayed(replay: TransactionReplay, batches: Sequence[Batch]) -> list[Entry]:
    log = joined(batches)
    found = replay.segment(len(log), builders.reading(log))
    assert found.valid_bytes == len(log)
    return [(*row[:E_HAS_DATA], *row[E_HAS_DATA + 1 :]) for row in found.entries.tolist()]


@settings(max_examples=60, deadline=None)
@given(histories(emptied=True), st.sampled_from([1, 300, 1 << 16]))
def test_entries_of_every_segment_are_those_of_the_twin(history: History, window_bytes: int) -> None:
    replay = TransactionReplay(0, window_bytes=window_bytes)
    twin = Twin()
    for _, batches, _ in history.segments:
        assert replayed(replay, batches) == twin.entries(batches)


@settings(max_examples=60, deadline=None)
@given(mixed_logs())
def test_old_messages_change_nothing_about_transactions(batches: list[Batch]) -> None:
    assert replayed(TransactionReplay(0), batches) == Twin().entries(batches)


def test_thousands_of_open_transactions_and_aborts_make_the_tables_grow() -> None:
    count = 3000
    order = list(range(count))
    random.Random(4).shuffle(order)
    batches = [builders.data(n, 1, pid=n, txn=True) for n in range(count)]
    batches += [builders.abort(count + n, pid=pid) for n, pid in enumerate(order)]
    assert replayed(TransactionReplay(0), batches) == Twin().entries(batches)


@pytest.mark.parametrize("noise", [b"", b"\0" * 100, b"\xff" * 100, bytes(range(100))])
def test_the_replay_ends_where_no_batch_is(noise: bytes) -> None:
    log = builders.data(0, 2, pid=1, txn=True).raw + builders.abort(2, pid=1).raw
    found = TransactionReplay(0).segment(len(log + noise), builders.reading(log + noise))
    assert (found.valid_bytes, found.entries[:, :4].tolist()) == (len(log), [[1, 0, 2, 3]])


DATA = builders.data(0, 1, pid=7, txn=True)


@pytest.mark.parametrize(
    ("between", "latest"),
    [
        ([builders.data(1, 1, pid=7, txn=True)], 0),
        ([builders.data(1, 1), builders.data(2, 1, pid=8, txn=True)], 0),
        ([builders.data(2, 1, pid=7, txn=True)], 2),  # offset 1 is missing: a marker may have been there
        ([builders.emptied(1, pid=7, control=True), builders.data(2, 1, pid=7, txn=True)], 2),
        ([builders.emptied(1, pid=8, control=True), builders.data(2, 1, pid=7, txn=True)], 0),
        ([builders.emptied(1, 3, pid=7), builders.data(4, 1, pid=7, txn=True)], 0),
        ([builders.data(1, 1, pid=7, txn=True), builders.data(3, 1)], 4),
        ([plain(1), builders.data(2, 1, pid=7, txn=True)], 2),
    ],
)
def test_a_transaction_begins_before_its_first_data_behind_the_last_place_of_another_marker(
    between: list[Batch], latest: int
) -> None:
    batches = [DATA, *between]
    batches.append(builders.abort(batches[-1].last_offset + 1, pid=7))
    [entry] = replayed(TransactionReplay(0), batches)
    assert [entry] == Twin().entries(batches)
    assert entry[-2] == latest


def test_each_abort_knows_where_the_next_transaction_of_another_producer_begins() -> None:
    """One producer aborts again and again, another one has been open all the time."""
    batches = [builders.data(0, 1, pid=2, txn=True)]
    for offset in range(1, 2001, 2):
        batches += [builders.data(offset, 1, pid=1, txn=True), builders.abort(offset + 1, pid=1)]
    batches += [
        builders.abort(2001, pid=2),
        builders.data(2002, 1, pid=1, txn=True),
        builders.abort(2003, pid=1),
    ]
    batches += [builders.data(2004, 1, pid=2, txn=True), builders.abort(2005, pid=2)]
    found = replayed(TransactionReplay(0), batches)
    assert found == Twin().entries(batches)
    assert [entry[-1] for entry in found] == [*[2004] * 1000, 2002, 2004, -1]
