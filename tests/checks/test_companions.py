"""Indexes held against their log: what a broker writes is true, any entry that lies is named with its byte."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krepair.checks.companions import CompanionAudit
from krepair.checks.walk import walk
from tests import builders
from tests.builders import reading
from tests.strategies import History, histories

BASE = 1_000_000
SHAPE = {"segments": 1, "steps": 60}
Entries = list[tuple[int, int]]


def entries_of(
    base_offset: int, batches: list[builders.Batch], interval: int
) -> tuple[Entries, Entries, Entries]:
    """(offset, position), (timestamp, offset), (producer id, marker's offset), as a broker would have them."""
    index, times = builders.indexes(base_offset, batches, interval)
    replay = builders.Replay()
    aborted = [entry for batch in batches if (entry := replay.take(batch)) is not None]
    return (
        [(base_offset + offset, position) for offset, position in struct.iter_unpack(">ii", index)],
        [(time, base_offset + offset) for time, offset in struct.iter_unpack(">qi", times)],
        [(pid, last) for pid, _, last, _ in aborted],
    )


def problems(
    base_offset: int,
    log: bytes,
    offsets: Entries,
    times: Entries,
    aborted: Entries,
    window_bytes: int = 1 << 20,
) -> list[tuple[str, int, str]]:
    def columns(entries: Entries) -> Any:
        return np.array(entries, np.int64).reshape(-1, 2)

    audit = CompanionAudit(base_offset, columns(offsets), columns(times), columns(aborted))
    for walked in walk(reading(log), len(log), window_bytes=window_bytes):
        audit.feed(walked)
    return audit.finish()


@settings(max_examples=80, deadline=None)
@given(histories(**SHAPE), st.sampled_from([0, 100, 1000, 4096]), st.sampled_from([600, 1 << 20]))
def test_what_a_broker_writes_is_true(history: History, interval: int, window_bytes: int) -> None:
    base_offset, batches, _ = history.segments[0]
    log = b"".join(batch.raw for batch in batches)
    assert problems(base_offset, log, *entries_of(base_offset, batches, interval), window_bytes) == []


BATCHES = [
    builders.data(BASE, 3, pid=7, txn=True, timestamp=100),
    builders.abort(BASE + 3, pid=7, timestamp=200),
    *[builders.data(BASE + 4 + 2 * n, 2, timestamp=300 + n) for n in range(20)],
    builders.data(BASE + 44, 1, pid=7, txn=True, timestamp=400),
    builders.abort(BASE + 45, pid=7, timestamp=500),
]
LOG = b"".join(batch.raw for batch in BATCHES)
OFFSETS, TIMES, ABORTED = entries_of(BASE, BATCHES, 200)


@pytest.mark.parametrize("window_bytes", [300, 1 << 20])
def test_a_position_between_batches_is_named_with_its_byte(window_bytes: int) -> None:
    for number in range(len(OFFSETS)):
        bad = [(offset, place + (n == number)) for n, (offset, place) in enumerate(OFFSETS)]
        found = problems(BASE, LOG, bad, TIMES, ABORTED, window_bytes)
        assert [(suffix, byte) for suffix, byte, _ in found] == [(".index", 8 * number)]


@pytest.mark.parametrize("window_bytes", [300, 1 << 20])
def test_a_time_that_no_batch_has_is_named_with_its_byte(window_bytes: int) -> None:
    for number in range(len(TIMES) - 1):
        late = [(time, offset) for n, (time, offset) in enumerate(TIMES)]
        late[number] = (TIMES[number + 1][0], TIMES[number][1])
        found = problems(BASE, LOG, OFFSETS, late, ABORTED, window_bytes)
        assert (".timeindex", 12 * number) in [(suffix, byte) for suffix, byte, _ in found]


def test_an_aborted_transaction_of_another_producer_or_place_is_named() -> None:
    for number, lie in ((0, (8, ABORTED[0][1])), (1, (7, BASE + 44)), (1, (7, BASE + 43))):
        bad = [*ABORTED]
        bad[number] = lie
        found = problems(BASE, LOG, OFFSETS, TIMES, bad)
        assert [(suffix, byte) for suffix, byte, _ in found] == [(".txnindex", 34 * number)]


def test_entries_past_the_end_of_the_log_are_named() -> None:
    found = problems(
        BASE, LOG, [*OFFSETS, (BASE + 90, len(LOG))], [*TIMES, (999, BASE + 90)], [*ABORTED, (7, BASE + 90)]
    )
    assert [(suffix, byte) for suffix, byte, _ in found] == [
        (".index", 8 * len(OFFSETS)),
        (".timeindex", 12 * len(TIMES)),
        (".txnindex", 34 * len(ABORTED)),
    ]


def test_entries_that_go_back_are_named() -> None:
    found = problems(BASE, LOG, [OFFSETS[1], OFFSETS[0], *OFFSETS[2:]], TIMES, ABORTED)
    assert (".index", 8, "the entry is below the one before it") in found


def test_a_time_index_that_does_not_reach_the_largest_timestamp_is_named() -> None:
    found = problems(BASE, LOG, OFFSETS, TIMES[:-1], ABORTED)
    assert [(suffix, byte) for suffix, byte, _ in found] == [(".timeindex", 12 * (len(TIMES) - 2))]
