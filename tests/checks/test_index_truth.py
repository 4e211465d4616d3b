"""An index entry is wrong exactly if a fetch or a search through it gives another answer than the log alone.

Judges of the judge: a slow twin that answers both questions entry by entry, and Kafka's own classes.
"""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krepair.checks.index_judge import IndexAudit, IndexFile, IndexProblem
from krepair.engine.items import VerifyItem
from krepair.formats.filenames import INDEX, TIME_INDEX
from krepair.ops.check import check
from krepair.ops.verify import verify_log_dir
from krepair.options import EngineName, Options
from krepair.rewrite.indexes.segment import InspectItem, inspect
from krepair.rewrite.segments.verify import verify_segment
from tests import builders, encoders
from tests.encoders import OffsetEntry, TimeEntry
from tests.lab.jars import VERSIONS
from tests.lab.judge import Judge, Served
from tests.places import place_of

Entries = list[tuple[int, int]]


class Row(NamedTuple):
    """A batch as a reader of headers sees it."""

    position: int
    last: int
    stamp: int


# -- the slow twin


def fetched(rows: Sequence[Row], start: int, offset: int) -> int:
    """Position of the first batch from a position on that ends at an offset or later, -1 if there is none."""
    return next((row.position for row in rows if row.position >= start and row.last >= offset), -1)


def found(rows: Sequence[Row], start: int, timestamp: int) -> int:
    """Position of the first batch from a position on that reaches a timestamp, -1 if there is none."""
    return next((row.position for row in rows if row.position >= start and row.stamp >= timestamp), -1)


def fetches_differ(rows: Sequence[Row], end: int, offsets: Entries) -> bool:
    """Whether some fetch through the entries gets another answer; a start amid a batch never gets the right one."""
    asked = {0, *(row.last + more for row in rows for more in (0, 1, 2)), *(offset for offset, _ in offsets)}
    starts = {row.position for row in rows}
    for offset in asked:
        position = max((entry for entry in offsets if entry[0] <= offset), default=(0, 0))[1]
        if position < end and position not in starts and position:
            return True
        if fetched(rows, position, offset) != fetched(rows, 0, offset):
            return True
    return False


def searches_differ(rows: Sequence[Row], times: Entries) -> bool:
    """Whether some search through the entries, led to a batch by a dense offset index, gets another answer."""
    asked = {row.stamp + more for row in rows for more in (-1, 0, 1)} | {time for time, _ in times}
    largest = max((row.stamp for row in rows), default=-1)
    for timestamp in asked:
        if (timestamp <= times[-1][0]) != (timestamp <= largest):
            return True  # the segment is not searched, or in vain
        offset = max((entry for entry in times if entry[0] <= timestamp), default=(0, 0))[1]
        behind = [row.position for row in rows if row.last >= offset]
        start = behind[0] if behind else rows[-1].position
        if found(rows, start, timestamp) != found(rows, 0, timestamp):
            return True
    return False


# -- random logs and entries


@st.composite
def logs(draw: st.DrawFn) -> list[Row]:
    rows, position, offset = [], 0, 0
    for _ in range(draw(st.integers(1, 7))):
        offset += draw(st.integers(0, 4))  # compaction leaves gaps
        last = offset + draw(st.integers(0, 4))
        rows.append(Row(position, last, draw(st.integers(-1, 9))))
        position += draw(st.integers(61, 64))
        offset = last + 1
    return rows


def ascending(entries: Sequence[tuple[int, int]], *, strict: bool) -> Entries:
    """Those of the entries that keep the file ascending, as its own bytes must be."""
    kept: Entries = []
    for entry in sorted(entries):
        if not kept or (entry[0] > kept[-1][0] and (entry[1] > kept[-1][1] or not strict)):
            if kept and entry[1] < kept[-1][1]:
                continue
            kept.append(entry)
    return kept


def true_times(rows: Sequence[Row]) -> Entries:
    """What a broker with an entry per batch writes."""
    entries: Entries = []
    for row in rows:
        if row.stamp > (entries[-1][0] if entries else -1):
            entries.append((row.stamp, row.last))
    return entries


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Row], int, Entries, Entries]:
    rows = draw(logs())
    end = rows[-1].position + 61
    near = st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1])
    places = st.sampled_from([*(row.position for row in rows), end])
    offsets = st.tuples(
        st.integers(0, rows[-1].last + 3), st.builds(lambda p, n: max(p + n, 0), places, near)
    )
    some = st.tuples(st.integers(0, 10), st.integers(0, rows[-1].last + 3))
    true = true_times(rows)
    times = st.one_of(some, st.sampled_from(true)) if true else some
    closing = true[-1:] if draw(st.integers(0, 3)) else []
    return (
        rows,
        end,
        ascending([one for one in draw(st.lists(offsets, max_size=4)) if one != (0, 0)], strict=True),
        ascending([*draw(st.lists(times, min_size=1, max_size=3)), *closing], strict=False),
    )


def judged(
    rows: Sequence[Row], end: int, offsets: Entries, times: Entries, windows: int = 1
) -> list[IndexProblem]:
    audit = IndexAudit(0, *(np.array(entries, np.int64).reshape(-1, 2) for entries in (offsets, times)))
    for window in np.array_split(np.array(rows, np.int64), windows):
        audit.feed(*window.T)
    files = {INDEX: IndexFile(8 * len(offsets)), TIME_INDEX: IndexFile(12 * len(times))}
    return audit.finish(end, 4096, files, active=False)


@settings(max_examples=600)
@given(cases(), st.integers(1, 4))
def test_judge_says_wrong_exactly_if_an_answer_differs(
    case: tuple[list[Row], int, Entries, Entries], windows: int
) -> None:
    rows, end, offsets, times = case
    problems = judged(rows, end, offsets, times, windows)
    misleading = {problem.suffix for problem in problems if problem.misleads}
    assert (INDEX in misleading) == fetches_differ(rows, end, offsets)
    assert (TIME_INDEX in misleading) == searches_differ(rows, times)


def test_both_answers_are_met_often_by_the_random_cases() -> None:
    seen = {(suffix, wrong): 0 for suffix in (INDEX, TIME_INDEX) for wrong in (False, True)}

    @settings(max_examples=300, database=None, derandomize=True)
    @given(cases())
    def count(case: tuple[list[Row], int, Entries, Entries]) -> None:
        rows, end, offsets, times = case
        seen[INDEX, fetches_differ(rows, end, offsets)] += bool(offsets)
        seen[TIME_INDEX, searches_differ(rows, times)] += 1

    count()
    assert min(seen.values()) >= 20, seen


# -- real segments: check and verify, and Kafka's classes


def write_segment(
    root: Path, batches: Sequence[builders.Batch], offsets: Entries, times: Entries, *, clean: bool = False
) -> Path:
    """One partition: the segment with these indexes, and an active one at offset 1000 behind it."""
    folder = root / "t-0"
    folder.mkdir(parents=True)
    (root / "meta.properties").write_text("version=0\nbroker.id=0\n")
    stem = folder / f"{0:020d}"
    stem.with_suffix(".log").write_bytes(b"".join(batch.raw for batch in batches))
    stem.with_suffix(".index").write_bytes(
        encoders.encode_offset_index(OffsetEntry(*entry) for entry in offsets)
    )
    stem.with_suffix(".timeindex").write_bytes(
        encoders.encode_time_index(TimeEntry(*entry) for entry in times)
    )
    active = folder / f"{1000:020d}"
    active.with_suffix(".log").write_bytes(builders.data(1000, timestamp=10**6).raw)
    active.with_suffix(".index").write_bytes(b"")
    active.with_suffix(".timeindex").write_bytes(b"")
    if clean:
        (root / ".kafka_cleanshutdown").touch()
    return root


def rows_of(batches: Sequence[builders.Batch], stamps: Sequence[int]) -> list[Row]:
    rows, position = [], 0
    for batch, stamp in zip(batches, stamps, strict=True):
        rows.append(Row(position, batch.last_offset, stamp))
        position += len(batch.raw)
    return rows


def said(root: Path) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """(file, position) of what check and what verify have against the indexes."""
    options = Options(engine=EngineName.INLINE, now_ms=builders.NOW_MS)
    findings = check([str(root)], options).log_dirs[0].findings
    problems = verify_log_dir(str(root), options).problems
    return (
        [(one.file, one.position) for one in findings if one.rule in {"KR201", "KR202", "KR203"}],
        [(one.file, one.position) for one in problems],
    )


def test_entry_for_offsets_that_compaction_took_is_true_to_check_and_to_verify(tmp_path: Path) -> None:
    batches = [builders.data(0, 11, timestamp=100), builders.data(20, 6, timestamp=120)]
    root = write_segment(tmp_path / "logs", batches, [(15, len(batches[0].raw))], [(100, 10), (120, 25)])
    assert said(root) == ([], [])


def test_time_entry_behind_a_later_time_is_wrong_to_check_and_to_verify(tmp_path: Path) -> None:
    stamps = [100, 40, 60, 90]
    batches = [builders.data(10 * n, 10, timestamp=stamp) for n, stamp in enumerate(stamps)]
    root = write_segment(tmp_path / "logs", batches, [], [(50, 20), (200, 30)])
    name = f"{0:020d}.timeindex"
    assert said(root) == ([(name, 0), (name, 12)], [(name, 0), (name, 12)])


class Case(NamedTuple):
    """One random segment."""

    batches: list[builders.Batch]
    stamps: list[int]
    offsets: Entries
    times: Entries


def random_case(rng: random.Random) -> Case:
    batches, stamps, offset = [], [], 0
    for _ in range(rng.randint(2, 6)):
        offset += rng.choice([0, 0, rng.randint(1, 6)])
        stamps.append(rng.randint(1, 9) * 10)
        batches.append(builders.data(offset, rng.randint(1, 5), timestamp=stamps[-1]))
        offset = batches[-1].last_offset + 1
    rows = rows_of(batches, stamps)
    end = rows[-1].position + len(batches[-1].raw)
    places = [row.position for row in rows] + [end]
    offsets = [(rng.randint(1, offset + 2), rng.choice(places)) for _ in range(rng.randint(0, 3))]
    times = [(rng.randint(1, 10) * 10, rng.randint(1, offset + 2)) for _ in range(rng.randint(0, 3))]
    times.append((max(stamps), rng.randint(1, offset - 1)))
    return Case(batches, stamps, ascending(offsets, strict=True), ascending(times, strict=False))


@pytest.mark.parametrize("seed", range(4))
def test_check_and_verify_say_the_same_of_any_segment(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    told = 0
    for number in range(40):
        case = random_case(rng)
        root = write_segment(tmp_path / str(number), case.batches, case.offsets, case.times)
        size = (root / "t-0" / f"{0:020d}.log").stat().st_size
        for active in (False, True):
            look = InspectItem(
                place=place_of(root / "t-0"),
                base_offset=0,
                log_bytes=size,
                interval_bytes=4096,
                active=active,
                depth="check",
                clean=bool(number % 2),
            )
            item = VerifyItem(
                place=place_of(root / "t-0"), base_offset=0, size=size, active=active, clean=bool(number % 2)
            )
            checked = [
                (f"{0:020d}{suffix}", position, text) for suffix, _, position, text in inspect(look).problems
            ]
            assert checked == list(verify_segment(item).problems)
            told += bool(checked)
    assert told > 20


def served(judge: Judge, root: Path, case: Case, offsets: Entries, times: Entries) -> Served:
    shutil.rmtree(root, ignore_errors=True)
    write_segment(root, case.batches, offsets, times)
    last = case.batches[-1].last_offset
    return judge.serve(root / "t-0", range(last + 4), [10 * n + more for n in range(12) for more in (0, 1)])


@pytest.mark.broker
@pytest.mark.parametrize("version", VERSIONS)
def test_kafka_serves_a_wrong_answer_exactly_if_the_judge_says_so(
    tmp_path: Path, judge: Callable[[str], Judge], version: str
) -> None:
    """Against the same segment without an offset entry and with one true time entry, which is the log alone."""
    rng = random.Random(7)
    broker, wrong = judge(version), {INDEX: 0, TIME_INDEX: 0}
    for _ in range(16):
        case = random_case(rng)
        rows = rows_of(case.batches, case.stamps)
        end = rows[-1].position + len(case.batches[-1].raw)
        first = next(row for row in rows if row.stamp == max(case.stamps))
        dense = [(before.last + 1, row.position) for before, row in itertools.pairwise(rows)]
        alone = served(broker, tmp_path / "logs", case, [], [(first.stamp, max(first.last, 1))])
        misleading = {one.suffix for one in judged(rows, end, case.offsets, case.times) if one.misleads}
        by_offset = served(broker, tmp_path / "logs", case, case.offsets, [(first.stamp, max(first.last, 1))])
        assert (by_offset.fetched != alone.fetched) == (INDEX in misleading), case
        by_time = served(broker, tmp_path / "logs", case, dense, case.times)
        assert (by_time.found != alone.found) == (TIME_INDEX in misleading), case
        for suffix in misleading:
            wrong[suffix] += 1
    assert min(wrong.values()) >= 3, wrong
    assert max(wrong.values()) <= 13, wrong


@pytest.mark.broker
@pytest.mark.parametrize("version", VERSIONS)
def test_kafka_passes_over_records_where_an_entry_points_amid_a_batch(
    tmp_path: Path, judge: Callable[[str], Judge], version: str
) -> None:
    batches = [builders.data(10 * n, 10, timestamp=50) for n in range(3)]
    case = Case(batches, [50] * 3, [], [])
    alone = served(judge(version), tmp_path / "logs", case, [], [(50, 9)])
    amid = served(judge(version), tmp_path / "logs", case, [(15, len(batches[0].raw) + 3)], [(50, 9)])
    assert alone.fetched[15] == 19
    assert amid.fetched[15] != 19
