"""Wrong index entries are found; valid entries that a rebuild would not write are accepted."""

from __future__ import annotations

import numpy as np
import pytest

from krepair.checks.index_judge import (
    CLEANER_CHUNK_BYTES,
    ENTRY_SIZES,
    MISSING,
    IndexAudit,
    IndexFile,
    IndexProblem,
    SegmentIndexes,
    byte_problems,
    entries_of,
    last_timestamp_read,
    offset_entries,
    real_bytes,
    time_entries,
)
from krepair.checks.retention import SegmentClock, deletions
from krepair.formats.arrays import Int64s
from krepair.formats.filenames import INDEX, TIME_INDEX
from tests import encoders
from tests.encoders import OffsetEntry, TimeEntry

# position, last offset, largest timestamp: batches of 1000 bytes that end at offsets 9, 19, 29, ...
BATCHES = np.array([(number * 1000, number * 10 + 9, 100 + number) for number in range(20)], np.int64)
END = 20_000
Entries = list[tuple[int, int]]
GOOD_OFFSETS = [(59, 5000), (109, 10_000), (159, 15_000)]
GOOD_TIMES = [(105, 59), (110, 109), (115, 159), (119, 199)]


def files(offsets: Entries, times: Entries) -> dict[str, IndexFile]:
    index = encoders.encode_offset_index(OffsetEntry(*entry) for entry in offsets)
    of_times = encoders.encode_time_index(TimeEntry(*entry) for entry in times)
    return {INDEX: IndexFile(len(index), index), TIME_INDEX: IndexFile(len(of_times), of_times)}


def audited(
    offsets: Entries,
    times: Entries,
    batches: Int64s = BATCHES,
    *,
    base: int = 0,
    pieces: int = 1,
    end: int = END,
    interval: int = 4096,
    found: dict[str, IndexFile] | None = None,
    **given: bool,
) -> list[IndexProblem]:
    audit = IndexAudit(base, *(np.array(entries, np.int64).reshape(-1, 2) for entries in (offsets, times)))
    for piece in np.array_split(batches, pieces):
        audit.feed(*piece.T)
    return audit.finish(end, interval, found or files(offsets, times), **{"active": False, **given})


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
        pytest.param([(119, 5000), (159, 10_000)], GOOD_TIMES, id="offset past the next entry's batch"),
        pytest.param(GOOD_OFFSETS, [(106, 59), (119, 199)], id="timestamp that only a later batch reaches"),
    ],
)
def test_entries_that_differ_from_a_rebuild_but_are_true_are_no_problem(
    offsets: Entries, times: Entries
) -> None:
    assert audited(offsets, times) == []


@pytest.mark.parametrize(
    ("offsets", "times", "rule", "position"),
    [
        pytest.param([(59, 5000), (99, 10_000)], GOOD_TIMES, "KR203", 8, id="offset behind the batch before"),
        pytest.param([(59, 5000), (250, 15_000)], GOOD_TIMES, "KR203", 8, id="offset past the log"),
        pytest.param(GOOD_OFFSETS, [(104, 59), (119, 199)], "KR202", 0, id="timestamp of the batch before"),
        pytest.param(GOOD_OFFSETS, [(110, 59), (120, 199)], "KR202", 12, id="largest timestamp too high"),
        pytest.param(GOOD_OFFSETS, [(103, 59), (119, 199)], "KR202", 0, id="timestamp passed before"),
        pytest.param(GOOD_OFFSETS, GOOD_TIMES[:-1], "KR202", 24, id="no closing entry"),
        pytest.param(GOOD_OFFSETS, [], "KR201", -1, id="never written"),
    ],
)
def test_entries_that_lie_are_found_at_their_place(
    offsets: Entries, times: Entries, rule: str, position: int
) -> None:
    assert [(each.rule, each.position) for each in audited(offsets, times)] == [(rule, position)]


def test_active_segment_is_taken_as_open_unless_it_is_said_to_be_closed() -> None:
    """A running broker lays out its indexes ahead; a clean stop cuts them."""
    assert audited(GOOD_OFFSETS, GOOD_TIMES[:-1], active=True) == []
    ahead = [*GOOD_OFFSETS, (250, 90_000)]
    assert audited(ahead, GOOD_TIMES, active=True) == []
    closed = audited(ahead, GOOD_TIMES, active=True, closed=True)
    assert [(each.rule, each.position) for each in closed] == [("KR203", 24)]


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize(
    ("offsets", "times", "stamps", "misleads"),
    [
        pytest.param([(18, 1000)], [], (-1, -1), True, id="offset of a batch"),
        pytest.param([(19, 1000)], [], (-1, -1), True, id="last offset"),
        pytest.param([(20, 1000)], [], (-1, -1), False, id="offset past the log"),
        pytest.param([], [(7, 40)], (5, 8, 3), True, id="time of an earlier batch"),
        pytest.param([], [(8, 40)], (5, 8, 3), True, id="largest time, of an earlier batch"),
        pytest.param([], [(9, 40)], (5, 8, 3), False, id="time past the log"),
        pytest.param([], [(5, 25)], (5, 8), True, id="time of the batch before the last"),
        pytest.param([], [(8, 25)], (5, 8), False, id="time of the last batch alone"),
    ],
)
def test_entry_past_the_log_misleads_only_if_it_hides_a_batch_before_the_last(
    offsets: Entries, times: Entries, stamps: tuple[int, ...], misleads: bool, pieces: int
) -> None:
    batches = np.array([(100 * n, 10 * n + 9, stamp) for n, stamp in enumerate(stamps)], np.int64)
    found = audited(offsets, times, batches, pieces=pieces, end=1000)
    assert [one.misleads for one in found if "the log ends" in one.text] == [misleads]


def test_missing_index_is_told_unless_the_segment_is_the_active_one() -> None:
    none, one = {INDEX: MISSING, TIME_INDEX: MISSING}, np.array([(0, 9, 5)], np.int64)
    told = audited([], [], one, end=77, found=none)
    assert [(each.suffix, each.rule, each.position, each.text) for each in told] == [
        (INDEX, "KR203", -1, "is missing beside a log of 77 bytes"),
        (TIME_INDEX, "KR201", -1, "is missing; the log's largest timestamp is 5"),
    ]
    assert audited([], [], one, end=77, found=none, active=True) == []


@pytest.mark.parametrize(
    ("file", "rules"),
    [
        pytest.param(IndexFile(2**31), [], id="longer than a broker maps"),
        pytest.param(IndexFile(99, unread=True), [], id="not read"),
        pytest.param(IndexFile(2**31 - 1), ["KR206", "KR201"], id="as long as a broker maps"),
    ],
)
def test_only_an_index_that_was_read_is_judged_by_its_entries(file: IndexFile, rules: list[str]) -> None:
    batches = np.array([(0, 9, 5), (10**7, 19, 5)], np.int64)
    found = audited([], [], batches, end=3 * 10**7, found={INDEX: file, TIME_INDEX: file})
    assert [each.rule for each in found] == rules


def test_index_that_contradicts_itself_is_told_once_and_not_held_against_the_log() -> None:
    end = 2 * CLEANER_CHUNK_BYTES
    wrong = files([(19, 100), (9, 50)], [(5, 9), (4, 8)])
    indexes = SegmentIndexes(0, wrong, active=False)
    own = list(indexes.problems)
    assert {problem.suffix for problem in own} == indexes.broken == {INDEX, TIME_INDEX}
    indexes.audit.feed(*np.array([(0, 9, 5), (100, 19, 6)], np.int64).T)
    indexes.finish(end, 4096, whole=True, clean=True)
    assert indexes.problems == own
    half = SegmentIndexes(0, files([(19, 100), (9, 50)], [(7, 19)]), active=False)
    half.audit.feed(*np.array([(0, 9, 5), (100, 19, 6)], np.int64).T)
    half.finish(end, 4096, whole=True, clean=True)
    assert [problem.suffix for problem in half.problems if problem not in own] == [TIME_INDEX]


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


@pytest.mark.parametrize(
    ("suffix", "rule", "more"),
    [
        (INDEX, "KR203", ""),
        (TIME_INDEX, "KR201", "; a broker reads 0 (1970) as the segment's largest timestamp"),
    ],
)
def test_zeros_behind_the_entries_are_told_of_each_index_by_its_own_rule(
    suffix: str, rule: str, more: str
) -> None:
    size = 8 if suffix == INDEX else 12
    data = (
        encoders.encode_offset_index([OffsetEntry(1, 1)])
        if suffix == INDEX
        else encoders.encode_time_index([TimeEntry(5, 1)])
    )
    padded = IndexFile(size * 10, data, padded=9)
    assert byte_problems(suffix, padded, active=False) == [
        IndexProblem(suffix, rule, size, f"1 entry, then 9 of zeros{more}", tail=True)
    ]
    assert byte_problems(suffix, padded, active=True) == []
    empty = IndexFile(size * 9, b"", padded=9)
    assert [each.position for each in byte_problems(suffix, empty, active=False)] == [0]


@pytest.mark.parametrize(("suffix", "rule", "size"), [(INDEX, "KR203", 8), (TIME_INDEX, "KR202", 12)])
def test_what_the_bytes_say_is_told_at_its_place(suffix: str, rule: str, size: int) -> None:
    for nothing in (MISSING, IndexFile(0)):
        assert (
            byte_problems(suffix, nothing, active=True) == byte_problems(suffix, nothing, active=False) == []
        )
    long = byte_problems(suffix, IndexFile(2**31, unread=True), active=False)
    assert long == [IndexProblem(suffix, "KR207", -1, f"{2**31} bytes; a broker maps at most {2**31 - 1}")]
    unread = byte_problems(suffix, IndexFile(2**31 - 1, unread=True), active=False)
    assert unread == [IndexProblem(suffix, rule, -1, f"{2**31 - 1} bytes, more than its log could need")]
    for active in (False, True):
        torn = byte_problems(suffix, IndexFile(3, torn=3), active=active)
        told = f"3 bytes, which is no multiple of {size}"
        assert torn == [IndexProblem(suffix, "KR205", 0, told, tail=True)]
    back = (
        encoders.encode_offset_index([OffsetEntry(9, 9), OffsetEntry(8, 10)])
        if suffix == INDEX
        else encoders.encode_time_index([TimeEntry(9, 9), TimeEntry(8, 10)])
    )
    name = "relative_offset" if suffix == INDEX else "timestamp"
    assert byte_problems(suffix, IndexFile(len(back), back), active=False) == [
        IndexProblem(suffix, rule, size, f"{name} above 9 of the entry before was expected, found 8")
    ]


def test_largest_timestamp_that_a_broker_reads_is_that_of_the_last_entry() -> None:
    two = encoders.encode_time_index([TimeEntry(5, 1), TimeEntry(8, 2)])
    assert last_timestamp_read(IndexFile(24, two)) == 8
    assert last_timestamp_read(IndexFile(0)) == -1
    assert last_timestamp_read(IndexFile(36, two, padded=1)) == 0


@pytest.mark.parametrize("suffix", [INDEX, TIME_INDEX])
def test_real_bytes_end_with_the_last_entry_that_is_not_of_zeros(suffix: str) -> None:
    size = ENTRY_SIZES[suffix]
    one = b"\1".rjust(size, b"\0")
    for raw, real in (
        (b"", 0),
        (bytes(3 * size), 0),
        (one, size),
        (one + bytes(2 * size), size),
        (bytes(size) + one + bytes(size), 2 * size),
        (one + bytes(size - 1), size),
        (one + b"\1", size),
    ):
        assert real_bytes(raw, suffix) == real


def test_entries_are_read_with_absolute_offsets() -> None:
    index = IndexFile(16, encoders.encode_offset_index([OffsetEntry(3, 100), OffsetEntry(7, 4200)]))
    times = IndexFile(12, encoders.encode_time_index([TimeEntry(9, 3)]))
    assert offset_entries(index, 1000).tolist() == [[1003, 100], [1007, 4200]]
    assert time_entries(times, 1000).tolist() == [[9, 1003]]
    assert (entries_of(index, INDEX), entries_of(times, TIME_INDEX)) == (2, 1)


def problems_of(
    offsets: Entries, times: Entries, *batches: tuple[int, int, int], end: int = 1000, **given: int
) -> list[tuple[str, int, str]]:
    rows = np.array(batches, np.int64).reshape(-1, 3)
    found = audited(offsets, times, rows, end=end, **given)  # type: ignore[arg-type]
    return [(each.rule, each.position, each.text) for each in found]


def test_offset_entry_that_a_fetch_goes_wrong_by_is_told_with_the_batch() -> None:
    batches = [(0, 9, 5), (100, 19, 5), (200, 29, 5)]
    for right in ([(19, 100), (29, 200)], [(10, 100)], [(20, 100), (29, 200)], [(29, 200)]):
        assert problems_of(right, [(5, 9)], *batches) == []
    for wrong, text in (
        ((9, 100), "the batches before that position end at offset 9"),
        ((19, 101), "no batch starts there; the next one starts at 200"),
        ((29, 201), "no batch starts there; the last one starts at 200"),
        ((29, 1000), "the log ends at position 1000"),
        ((30, 200), "the log ends with offset 29"),
    ):
        evidence = f"entry (offset {wrong[0]}, position {wrong[1]}): {text}"
        assert problems_of([wrong], [(5, 9)], *batches) == [("KR203", 0, evidence)]


def test_first_entry_of_a_segment_is_held_against_its_own_base() -> None:
    batches = [(0, 109, 5), (100, 119, 5)]
    assert problems_of([(119, 100)], [(5, 109)], *batches, base=100) == []
    assert problems_of([(100, 0)], [(5, 109)], *batches, base=100) == []
    assert problems_of([(99, 0)], [(5, 109)], *batches, base=100) == [
        ("KR203", 0, "entry (offset 99, position 0): the batches before that position end at offset 99")
    ]


def test_time_entry_that_a_search_goes_wrong_by_is_told_with_what_is_before_it() -> None:
    batches = [(0, 9, 7), (100, 19, 5), (200, 29, 9)]
    for right in ([(7, 9), (9, 29)], [(7, 5), (9, 20)], [(8, 9), (9, 29)], [(8, 29), (9, 29)]):
        assert problems_of([], right, *batches) == []
    for wrong in ((7, 19), (6, 10), (7, 20)):
        evidence = (
            f"entry (timestamp {wrong[0]}, offset {wrong[1]}): a batch before that offset has timestamp 7"
        )
        assert problems_of([], [wrong, (9, 29)], *batches) == [("KR202", 0, evidence)]
    for last in (8, 10):
        text = f"the last entry has timestamp {last}, the log's largest is 9"
        assert problems_of([], [(last, 29)], *batches) == [("KR202", 0, text)]
    evidence = "entry (timestamp 7, offset 19): a batch before that offset has timestamp 7"
    assert problems_of([], [(7, 19)], (0, 9, 7), (100, 19, 7)) == [("KR202", 0, evidence)]
    assert problems_of([], [(9, 30)], *batches) == [
        ("KR202", 0, "entry (timestamp 9, offset 30): the log ends with offset 29")
    ]


def test_log_whose_offsets_do_not_ascend_says_nothing_of_its_indexes() -> None:
    assert problems_of([(99, 1)], [], (0, 9, 5), (100, 9, 5)) == []
    assert problems_of([(99, 1)], [], (0, 9, 5), (100, 8, 5)) == []
    assert problems_of([(99, 1)], [], (0, 9, 5), (100, 9, 5), (200, 19, 5)) == []
    assert problems_of([(99, 1)], [(5, 9)], (0, 9, 5), (100, 10, 5)) != []


def test_log_without_timestamps_needs_no_time_index() -> None:
    assert problems_of([], [], (0, 9, -1)) == []
    assert problems_of([], [], (0, 9, 0)) == [("KR201", -1, "has no entry; the log's largest timestamp is 0")]


@pytest.mark.parametrize(
    ("interval", "end", "told"),
    [
        (4096, 262_144 + 600, False),
        (4096, 262_144 + 601, True),
        (10**6, 10**6 + 600, False),
        (10**6, 10**6 + 601, True),
    ],
)
def test_empty_index_is_right_up_to_a_chunk_or_an_interval_and_one_batch(
    interval: int, end: int, told: bool
) -> None:
    """The largest batch is one of 600 bytes, which is not the last."""
    starts = [*range(0, end - 700, 500), end - 650]
    batches = [(start, number, 5) for number, start in enumerate(starts)] + [(end - 50, len(starts), 5)]
    most = max(interval, 262_144) + 600
    expected = (
        [("KR206", -1, f"no entry beside a log of {end} bytes; at most {most} may have none")] if told else []
    )
    assert problems_of([], [(5, 0)], *batches, end=end, interval=interval) == expected


def test_last_batch_may_be_the_largest() -> None:
    end = 262_144 + 1000
    batches = [(start, start // 500, 5) for start in range(0, 262_000, 500)]
    assert problems_of([], [(5, 0)], *batches, end=end) == []


def test_gap_wider_than_an_append_is_told_at_the_entry_before_it() -> None:
    size, count = 1000, 5000
    batches = [(number * size, number, 5) for number in range(count)]
    entries = [(100, 100 * size), (3000, 3000 * size), (4000, 4000 * size)]
    found = problems_of(entries, [(5, 0)], *batches, end=count * size)
    text = f"{2900 * size} bytes of log without an entry; at most {2 << 20} may have none"
    assert found == [("KR203", 8, text)]
    late = problems_of(entries[:1], [(5, 0)], *batches, end=count * size)
    text = f"{4900 * size} bytes of log without an entry; at most {2 << 20} may have none"
    assert late == [("KR203", 0, text)]
    wide = problems_of(entries, [(5, 0)], *batches, end=count * size, interval=2 * 10**6)
    assert wide == []


def test_batches_fed_in_pieces_tell_the_largest_timestamp_and_batch() -> None:
    audit = IndexAudit(10, np.empty((0, 2), np.int64), np.empty((0, 2), np.int64))
    assert (audit.last_offset, audit.largest, audit.largest_batch) == (9, -1, 0)
    audit.feed(*np.empty((0, 3), np.int64).T)
    audit.feed(*np.array([(0, 11, 7), (100, 12, 9)], np.int64).T)
    assert [audit.last_offset, audit.largest, audit.offset_of_largest, audit.largest_batch] == [
        12,
        9,
        12,
        100,
    ]
    audit.feed(*np.array([(250, 13, 9), (260, 14, 3)], np.int64).T)
    assert [audit.last_offset, audit.largest, audit.offset_of_largest, audit.largest_batch] == [
        14,
        9,
        12,
        150,
    ]
    audit.finish(500, 4096, files([], []), active=True)
    assert audit.largest_batch == 240
    empty = IndexAudit(0, np.empty((0, 2), np.int64), np.empty((0, 2), np.int64))
    assert (empty.finish(500, 4096, files([], []), active=False), empty.largest_batch) == ([], 0)


@pytest.mark.parametrize(
    ("largest", "log"), [(-1, "the log has no timestamps"), (0, "the log's largest is 0")]
)
def test_time_entry_that_the_log_has_no_such_time_for_is_told(largest: int, log: str) -> None:
    found = problems_of([], [(7, 9)], (0, 9, largest))
    assert found == [("KR202", 0, f"the last entry has timestamp 7, {log}")]
