"""The replay of transactions against a plain one of dictionaries."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krepair.kernels.transactions import TransactionReplay
from tests import builders
from tests.builders import Batch
from tests.kernels.scanning import joined
from tests.old_messages import mixed_logs
from tests.strategies import History, histories

Entry = tuple[int, int, int, int]


def twin(batches: Sequence[Batch], open_from: dict[int, int]) -> list[Entry]:
    """Entries of one segment; ``open_from`` is carried on (ProducerStateManager, 2.2.1 and 2.8)."""
    entries = []
    for batch in batches:
        pid = batch.producer_id
        if pid < 0 or (batch.records == 0 and batch.control):
            continue
        if not batch.control:
            if batch.transactional:
                open_from.setdefault(pid, batch.base_offset)
            continue
        first = open_from.pop(pid, None)
        if batch.marker == builders.ABORT:
            stable = min(open_from.values(), default=batch.base_offset + 1)
            entries.append((pid, batch.base_offset if first is None else first, batch.base_offset, stable))
    return entries


def replayed(replay: TransactionReplay, batches: Sequence[Batch]) -> list[Entry]:
    log = joined(batches)
    found = replay.segment(len(log), builders.reading(log))
    assert found.valid_bytes == len(log)
    return [(row[0], row[1], row[2], row[3]) for row in found.entries.tolist()]


@settings(max_examples=60, deadline=None)
@given(histories(emptied=True), st.sampled_from([1, 300, 1 << 16]))
def test_entries_of_every_segment_are_those_of_the_twin(history: History, window_bytes: int) -> None:
    replay = TransactionReplay(0, window_bytes=window_bytes)
    open_from: dict[int, int] = {}
    for _, batches, _ in history.segments:
        assert replayed(replay, batches) == twin(batches, open_from)


@settings(max_examples=60, deadline=None)
@given(mixed_logs())
def test_old_messages_change_nothing_about_transactions(batches: list[Batch]) -> None:
    assert replayed(TransactionReplay(0), batches) == twin(batches, {})


def test_thousands_of_open_transactions_and_aborts_make_the_tables_grow() -> None:
    count = 3000
    order = list(range(count))
    random.Random(4).shuffle(order)
    batches = [builders.data(n, 1, pid=n, txn=True) for n in range(count)]
    batches += [builders.abort(count + n, pid=pid) for n, pid in enumerate(order)]
    assert replayed(TransactionReplay(0), batches) == twin(batches, {})


@pytest.mark.parametrize("noise", [b"", b"\0" * 100, b"\xff" * 100, bytes(range(100))])
def test_the_replay_ends_where_no_batch_is(noise: bytes) -> None:
    log = builders.data(0, 2, pid=1, txn=True).raw + builders.abort(2, pid=1).raw
    found = TransactionReplay(0).segment(len(log + noise), builders.reading(log + noise))
    assert (found.valid_bytes, found.entries[:, :4].tolist()) == (len(log), [[1, 0, 2, 3]])
