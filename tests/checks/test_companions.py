"""Indexes compared with their log: what a broker writes is accepted, a misleading entry is named with its byte."""

from __future__ import annotations

import struct

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from krepair.checks.index_judge import CompanionAudit, IndexFile
from krepair.checks.walk import walk
from krepair.formats.filenames import INDEX, TIME_INDEX
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
    index = b"".join(struct.pack(">ii", offset - base_offset, position) for offset, position in offsets)
    stamps = b"".join(struct.pack(">qi", time, offset - base_offset) for time, offset in times)
    files = {INDEX: IndexFile(len(index), index), TIME_INDEX: IndexFile(len(stamps), stamps)}
    audit = CompanionAudit(base_offset, files, np.array(aborted, np.int64).reshape(-1, 2))
    for walked in walk(reading(log), len(log), window_bytes=window_bytes):
        audit.feed(walked)
    return audit.finish(len(log), 4096)


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


def told(
    offsets: Entries, times: Entries, aborted: Entries, batches: list[builders.Batch]
) -> list[tuple[str, int]]:
    log = b"".join(batch.raw for batch in batches)
    return [(suffix, byte) for suffix, byte, _ in problems(0, log, offsets, times, aborted)]


def test_aborted_transaction_names_the_control_batch_of_its_producer() -> None:
    batches = [builders.data(0, 1, pid=7, txn=True), builders.abort(1, pid=7), builders.data(2, 1, pid=7)]
    times = [(builders.NOW_MS, 0)]
    assert told([], times, [(7, 1)], batches) == []
    for lie in ((8, 1), (7, 0), (7, 2)):
        assert told([], times, [lie], batches) == [(".txnindex", 0)]
    assert told([], times, [(7, 1), (7, 2)], batches) == [(".txnindex", 34)]
    assert told([], times, [(7, 20), (7, 21)], batches) == [(".txnindex", 0)]


def test_log_without_a_batch_says_that_every_entry_is_past_its_end() -> None:
    found = told([(1, 1)], [(5, 0)], [(7, 0)], [])
    assert set(found) == {(".index", 0), (".timeindex", 0), (".txnindex", 0)}
    assert told([], [], [], []) == []


def test_behind_damage_nothing_is_said() -> None:
    files = {INDEX: IndexFile(8, struct.pack(">ii", 9, 9000)), TIME_INDEX: IndexFile(0)}
    aborted = np.array([(7, 20)], np.int64)
    for whole, suffixes in ((True, [".index", ".timeindex", ".txnindex"]), (False, [])):
        audit = CompanionAudit(0, files, aborted)
        for walked in walk(reading(LOG), len(LOG)):
            audit.feed(walked)
        aborted = np.array([(7, BASE + 90)], np.int64)
        assert [suffix for suffix, _, _ in audit.finish(len(LOG), 4096, whole=whole)] == suffixes


def test_old_wrapper_may_begin_right_behind_what_is_before_it() -> None:
    batches = [
        old_messages.plain(0, timestamp=50),
        old_messages.wrapper(1, [60, 60, 60]),
        old_messages.plain(4, timestamp=70),
    ]
    places = [0, len(batches[0].raw), len(batches[0].raw) + len(batches[1].raw)]
    assert told([(1, places[1]), (4, places[2])], [(70, 4)], [], batches) == []
    assert told([(0, places[1])], [(70, 4)], [], batches) == [(".index", 0)]
    assert told([(3, places[2])], [(70, 4)], [], batches) == [(".index", 0)]
    assert told([], [(60, 1), (70, 4)], [], batches) == []
    assert told([], [(60, 4), (70, 4)], [], batches) == [(".timeindex", 0)]


def test_aborted_transactions_out_of_order_are_told_and_no_error() -> None:
    batches = [builders.data(BASE, 2, pid=1, txn=True), builders.abort(BASE + 2, pid=1)]
    log = b"".join(batch.raw for batch in batches)
    found = problems(BASE, log, [], [(builders.NOW_MS, BASE)], [(1, BASE + 99), (1, BASE + 1), (1, BASE + 2)])
    assert found[0][:2] == (".txnindex", 0)
