"""Entries that lie are found; what is true though not what a rebuild gives is not."""

from __future__ import annotations

import numpy as np
import pytest

from krepair.checks.index_findings import (
    CLEANER_CHUNK_BYTES,
    INDEX,
    TIME_INDEX,
    IndexAudit,
    IndexFile,
    IndexProblem,
    byte_problems,
    last_timestamp_read,
)
from krepair.checks.retention import SegmentClock, deletions
from krepair.formats import offset_index, time_index
from krepair.formats.offset_index import OffsetEntry
from krepair.formats.time_index import TimeEntry

# position, last offset, largest timestamp: batches of 1000 bytes that end at offsets 9, 19, 29, ...
BATCHES = np.array([(number * 1000, number * 10 + 9, 100 + number) for number in range(20)], np.int64)
END = 20_000
GOOD_OFFSETS = [(59, 5000), (109, 10_000), (159, 15_000)]
GOOD_TIMES = [(105, 59), (110, 109), (115, 159), (119, 199)]


def files(offsets: list[tuple[int, int]], times: list[tuple[int, int]]) -> dict[str, IndexFile]:
    index = offset_index.encode(OffsetEntry(*entry) for entry in offsets)
    of_times = time_index.encode(TimeEntry(*entry) for entry in times)
    return {INDEX: IndexFile(len(index), index), TIME_INDEX: IndexFile(len(of_times), of_times)}


def audited(
    offsets: list[tuple[int, int]],
    times: list[tuple[int, int]],
    *,
    active: bool = False,
    pieces: int = 1,
    end: int = END,
) -> list[IndexProblem]:
    audit = IndexAudit(
        0, np.array(offsets, np.int64).reshape(-1, 2), np.array(times, np.int64).reshape(-1, 2)
    )
    for piece in np.array_split(BATCHES, pieces):
        audit.feed(piece)
    return audit.finish(end, 4096, files(offsets, times), active=active)


@pytest.mark.parametrize("pieces", [1, 3, 20])
def test_true_entries_have_no_problem_however_the_log_is_read(pieces: int) -> None:
    assert audited(GOOD_OFFSETS, GOOD_TIMES, pieces=pieces) == []


@pytest.mark.parametrize(
    ("offsets", "times"),
    [
        pytest.param(GOOD_OFFSETS, [(105, 52), (110, 100), (119, 191)], id="the record's own offset"),
        pytest.param(
            [(79, 5000), (119, 10_000), (189, 15_000)], GOOD_TIMES, id="one entry for a whole append"
        ),
        pytest.param([], GOOD_TIMES, id="no entry beside a log below the cleaner's chunk"),
        pytest.param(GOOD_OFFSETS[:1], GOOD_TIMES[-1:], id="fewer entries than recovery makes"),
    ],
)
def test_entries_that_differ_from_a_rebuild_but_are_true_are_no_problem(
    offsets: list[tuple[int, int]], times: list[tuple[int, int]]
) -> None:
    assert audited(offsets, times) == []


@pytest.mark.parametrize(
    ("offsets", "times", "rule", "position"),
    [
        pytest.param([(59, 5001)], GOOD_TIMES, "KR203", 0, id="between batches"),
        pytest.param([(59, 5000), (99, 10_000)], GOOD_TIMES, "KR203", 8, id="offset behind the batch before"),
        pytest.param([(119, 5000), (119, 10_000)], GOOD_TIMES, "KR203", 0, id="offset past the next entry"),
        pytest.param([(59, 5000), (250, 15_000)], GOOD_TIMES, "KR203", 8, id="offset past the log"),
        pytest.param([(59, 5000), (159, 90_000)], GOOD_TIMES, "KR203", 8, id="position past the log"),
        pytest.param(GOOD_OFFSETS, [(106, 59), (119, 199)], "KR202", 0, id="timestamp its batch has not"),
        pytest.param(GOOD_OFFSETS, [(103, 59), (119, 199)], "KR202", 0, id="timestamp passed before"),
        pytest.param(GOOD_OFFSETS, [(119, 300)], "KR202", 0, id="time entry past the log"),
        pytest.param(GOOD_OFFSETS, GOOD_TIMES[:-1], "KR202", 24, id="no closing entry"),
        pytest.param(GOOD_OFFSETS, [], "KR201", -1, id="never written"),
    ],
)
def test_entries_that_lie_are_found_at_their_place(
    offsets: list[tuple[int, int]], times: list[tuple[int, int]], rule: str, position: int
) -> None:
    assert [(each.rule, each.position) for each in audited(offsets, times)] == [(rule, position)]


def test_active_segment_may_miss_its_closing_entry() -> None:
    assert audited(GOOD_OFFSETS, GOOD_TIMES[:-1], active=True) == []


@pytest.mark.parametrize(
    ("log_end", "found"), [(CLEANER_CHUNK_BYTES, []), (CLEANER_CHUNK_BYTES * 2, ["KR206"])]
)
def test_empty_index_is_right_up_to_the_cleaners_chunk(log_end: int, found: list[str]) -> None:
    audit = IndexAudit(0, np.empty((0, 2), np.int64), np.array([(199, 1)], np.int64))
    for number in range(log_end // 1000 + 1):
        audit.feed(np.array([(number * 1000, number, min(number, 199))], np.int64))
    problems = audit.finish(log_end, 4096, files([], [(199, 1)]), active=False)
    assert [each.rule for each in problems if each.suffix == INDEX] == found


def test_bytes_tell_padding_torn_ends_and_lengths() -> None:
    padded = IndexFile(1200, time_index.encode([TimeEntry(5, 1)]), padded=99)
    assert [(each.rule, each.tail) for each in byte_problems(TIME_INDEX, padded, active=False)] == [
        ("KR201", True)
    ]
    assert byte_problems(TIME_INDEX, padded, active=True) == []
    assert last_timestamp_read(padded) == 0
    torn = IndexFile(9, bytes(7) + b"\1", torn=1)
    assert "KR205" in [each.rule for each in byte_problems(INDEX, torn, active=False)]
    long = IndexFile(2**31, unread=True)
    assert [each.rule for each in byte_problems(INDEX, long, active=False)] == ["KR207"]


def clock(base_offset: int, last: int, largest: int, **more: object) -> SegmentClock:
    values: dict[str, object] = {
        "base_offset": base_offset, "log_bytes": 10, "mtime_ms": 1000, "has_index": True, "first_timestamp": 5,
        "last_timestamp": last, "torn": False, "recovered": False, "largest": largest,
    }  # fmt: skip
    return SegmentClock(**values | more)  # type: ignore[arg-type]


def test_retention_deletes_from_the_oldest_up_to_the_first_young_segment() -> None:
    clocks = [clock(0, 0, 900), clock(10, 950, 950), clock(20, 0, 960)]
    going = deletions(clocks, retention_ms=200, now_ms=1000, version=(2, 3, 1))
    assert (going.expected, going.due, going.too_early) == ((0,), (), (0,))
    assert deletions(clocks, retention_ms=-1, now_ms=1000, version=None).expected == ()


def test_versions_up_to_2_2_rebuild_a_padded_time_index_and_recovery_rebuilds_all() -> None:
    padded = clock(0, 0, 900)
    assert deletions([padded], retention_ms=200, now_ms=1000, version=(2, 2, 1)).expected == ()
    recovered = padded._replace(recovered=True)
    assert deletions([recovered], retention_ms=200, now_ms=1000, version=(3, 9, 2)).expected == ()
    never_written = padded._replace(first_timestamp=0)
    assert deletions([never_written], retention_ms=200, now_ms=1000, version=(2, 2, 1)).expected == (0,)


def test_without_time_entries_the_modification_time_counts() -> None:
    empty = clock(0, -1, 100, first_timestamp=-1)
    going = deletions([empty], retention_ms=200, now_ms=1000, version=None)
    assert (going.expected, going.due) == ((), (0,))
