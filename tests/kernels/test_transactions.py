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


def twin(batches: Sequence[Batch], open_from: dict[int, int], *, empty_markers: bool) -> list[Entry]:
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
        if batch.marker == builders.ABORT and (first is not None or empty_markers):
            stable = min(open_from.values(), default=batch.base_offset + 1)
            entries.append((pid, batch.base_offset if first is None else first, batch.base_offset, stable))
    return entries


def replayed(replay: TransactionReplay, batches: Sequence[Batch]) -> list[Entry]:
    log = joined(batches)
    found = replay.segment(len(log), builders.reading(log))
    assert found.valid_bytes == len(log)
    return [(row[0], row[1], row[2], row[3]) for row in found.entries.tolist()]


def start(*, empty_markers: bool, window_bytes: int = 1 << 16) -> TransactionReplay:
    return TransactionReplay(0, empty_markers=empty_markers, window_bytes=window_bytes)


@settings(max_examples=60, deadline=None)
@given(histories(emptied=True), st.booleans(), st.sampled_from([1, 300, 1 << 16]))
def test_entries_of_every_segment_are_those_of_the_twin(
    history: History, empty_markers: bool, window_bytes: int
) -> None:
    replay = start(empty_markers=empty_markers, window_bytes=window_bytes)
    open_from: dict[int, int] = {}
    for _, batches, _ in history.segments:
        assert replayed(replay, batches) == twin(batches, open_from, empty_markers=empty_markers)


@settings(max_examples=60, deadline=None)
@given(mixed_logs(), st.booleans())
def test_old_messages_change_nothing_about_transactions(batches: list[Batch], empty_markers: bool) -> None:
    found = replayed(start(empty_markers=empty_markers), batches)
    assert found == twin(batches, {}, empty_markers=empty_markers)


def test_thousands_of_open_transactions_and_aborts_make_the_tables_grow() -> None:
    count = 3000
    order = list(range(count))
    random.Random(4).shuffle(order)
    batches = [builders.data(n, 1, pid=n, txn=True) for n in range(count)]
    batches += [builders.abort(count + n, pid=pid) for n, pid in enumerate(order)]
    assert replayed(start(empty_markers=False), batches) == twin(batches, {}, empty_markers=False)


@pytest.mark.parametrize("noise", [b"", b"\0" * 100, b"\xff" * 100, bytes(range(100))])
def test_the_replay_ends_where_no_batch_is(noise: bytes) -> None:
    log = builders.data(0, 2, pid=1, txn=True).raw + builders.abort(2, pid=1).raw
    found = start(empty_markers=False).segment(len(log + noise), builders.reading(log + noise))
    assert (found.valid_bytes, found.entries[:, :4].tolist()) == (len(log), [[1, 0, 2, 3]])
