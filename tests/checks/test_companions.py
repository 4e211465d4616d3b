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
from tests import builders, old_messages
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


def of_two() -> list[builders.Batch]:
    """Offsets 0 to 9 at time 50, and 10 to 19 at time 70; each of 100 and some bytes."""
    return [builders.data(0, 10, timestamp=50), builders.data(10, 10, timestamp=70)]


TWO = of_two()
SECOND = len(TWO[0].raw)
LAST_TIME: Entries = [(70, 19)]
NONE: Entries = []


def told(
    offsets: Entries,
    times: Entries = LAST_TIME,
    aborted: Entries = NONE,
    batches: list[builders.Batch] = TWO,
) -> list[tuple[str, int]]:
    log = b"".join(batch.raw for batch in batches)
    return [(suffix, byte) for suffix, byte, _ in problems(0, log, offsets, times, aborted)]


@pytest.mark.parametrize("entry", [(0, 0), (9, 0), (10, SECOND), (19, SECOND), (99, SECOND)])
def test_offset_entry_is_true_when_its_offset_can_be_found_from_there(entry: tuple[int, int]) -> None:
    assert told([entry]) == []


@pytest.mark.parametrize("entry", [(9, SECOND), (19, SECOND - 1), (19, SECOND + 1), (0, 1)])
def test_offset_entry_lies_when_its_offset_is_before_or_no_batch_is_there(entry: tuple[int, int]) -> None:
    assert told([entry]) == [(".index", 0)]


@pytest.mark.parametrize("entry", [(50, 0), (49, 9), (70, 10), (70, 19), (0, 5)])
def test_time_entry_is_true_when_its_batch_reaches_the_time(entry: tuple[int, int]) -> None:
    assert told([], sorted({entry, (70, 19)})) == []


@pytest.mark.parametrize(("entry", "byte"), [((51, 9), 0), ((51, 0), 0)])
def test_time_entry_lies_when_its_batch_does_not_reach_the_time(entry: tuple[int, int], byte: int) -> None:
    assert told([], [entry, (70, 19)]) == [(".timeindex", byte)]


def test_time_entry_of_an_offset_between_batches_lies() -> None:
    gap = [builders.data(0, 5, timestamp=50), builders.data(10, 10, timestamp=70)]
    assert told([], [(50, 4), (70, 10)], batches=gap) == []
    assert told([], [(50, 5), (70, 10)], batches=gap) == [(".timeindex", 0)]
    assert told([], [(50, 9), (70, 10)], batches=gap) == [(".timeindex", 0)]


def test_closing_time_may_be_the_largest_or_later_but_not_earlier() -> None:
    assert told([], [(70, 19)]) == []
    assert told([], [(69, 19)]) == [(".timeindex", 0)]
    assert told([], []) == []
    one = [builders.data(0, 1, timestamp=0)]
    assert told([], [(-1, 0)], batches=one) == [(".timeindex", 0)]


def test_equal_entries_do_not_go_back_and_lower_ones_do() -> None:
    assert told([(9, 0), (9, 0)]) == []
    assert told([(9, 0), (8, 0)]) == [(".index", 8)]
    assert told([], [(50, 9), (50, 9), (70, 19)]) == []
    assert told([], [(70, 19), (60, 19)]) == [(".timeindex", 12), (".timeindex", 12)]


def test_aborted_transaction_names_the_control_batch_of_its_producer() -> None:
    batches = [builders.data(0, 1, pid=7, txn=True), builders.abort(1, pid=7), builders.data(2, 1, pid=7)]
    times = [(builders.NOW_MS, 0)]
    assert told([], times, [(7, 1)], batches) == []
    for lie in ((8, 1), (7, 0), (7, 2)):
        assert told([], times, [lie], batches) == [(".txnindex", 0)]
    assert told([], times, [(7, 1), (7, 2)], batches) == [(".txnindex", 34)]


def test_entries_behind_the_last_batch_are_told_from_the_first_of_them_on() -> None:
    end = len(b"".join(batch.raw for batch in TWO))
    assert told([(9, 0), (25, end), (30, end + 1)]) == [(".index", 8)]
    assert told([], [(70, 19), (80, 20), (90, 21)]) == [(".timeindex", 12)]
    assert told([], [(70, 19)], [(7, 20), (7, 21)]) == [(".txnindex", 0)]


def test_log_without_a_batch_says_that_every_entry_is_past_its_end() -> None:
    assert told([(0, 0)], [(5, 0)], [(7, 0)], []) == [(".index", 0), (".timeindex", 0), (".txnindex", 0)]
    assert told([], [], [], []) == []


@pytest.mark.parametrize("window_bytes", [1, 150, 1 << 20])
def test_windows_make_no_difference(window_bytes: int) -> None:
    log = b"".join(batch.raw for batch in TWO)
    assert problems(0, log, [(9, 0), (19, SECOND)], [(50, 9), (70, 19)], [], max(window_bytes, SECOND)) == []
    lies = problems(0, log, [(9, 0), (9, SECOND)], [(50, 9), (71, 19)], [], max(window_bytes, SECOND))
    assert [(suffix, byte) for suffix, byte, _ in lies] == [(".index", 8), (".timeindex", 12)]


def test_old_wrapper_may_begin_right_behind_what_is_before_it() -> None:
    batches = [
        old_messages.plain(0, timestamp=50),
        old_messages.wrapper(1, [60, 60, 60]),
        old_messages.plain(4, timestamp=70),
    ]
    places = [0, len(batches[0].raw), len(batches[0].raw) + len(batches[1].raw)]
    assert told([(0, 0), (1, places[1]), (4, places[2])], [(70, 4)], [], batches) == []
    assert told([(0, places[1])], [(70, 4)], [], batches) == [(".index", 0)]
    assert told([(3, places[2])], [(70, 4)], [], batches) == [(".index", 0)]
    assert told([], [(60, 1), (70, 4)], [], batches) == []
    assert told([], [(61, 1), (70, 4)], [], batches) == [(".timeindex", 0)]


def test_aborted_transactions_out_of_order_are_told_and_no_error() -> None:
    batches = [builders.data(BASE, 2, pid=1, txn=True), builders.abort(BASE + 2, pid=1)]
    log = b"".join(batch.raw for batch in batches)
    found = problems(BASE, log, [], [], [(1, BASE + 99), (1, BASE + 1), (1, BASE + 2)])
    assert found[0][:2] == (".txnindex", 0)
