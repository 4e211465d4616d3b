"""A single reading of a log finds and builds the same as two readings."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from krepair.checks.walk import walk
from krepair.derive.index_entries import IndexEntries
from krepair.durable.attributes import read_attributes
from krepair.durable.disk import Attributes
from krepair.durable.tree import without_links
from krepair.engine.items import ScanItem
from krepair.logdir.fingerprint import digest_bytes
from krepair.rewrite import recovered
from krepair.rewrite.indexes.segment import RepairItem
from krepair.rewrite.recovered import RecoveredItem, RecoveredResult, verify_recovered
from krepair.scan.scan import scan
from krepair.scan.segment_files import rebuild_offset_and_time
from tests import builders
from tests.builders import joined
from tests.engine.travelled import failure_of
from tests.old_messages import mixed_logs, plain
from tests.places import place_of
from tests.plan.plans import replaced_file
from tests.rewrite.scanned import LOGS, log_of

INTERVALS = (0, 77, 300, 4096)
WINDOWS = (200, 1 << 20)
FAR = 2**62


class Segment:
    """A log in a folder of its own, and what is asked of it."""

    def __init__(self, root: Path, log: bytes, interval: int) -> None:
        self.log, self.interval = log, interval
        folder = root / "t-0"
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{0:020d}.log"
        self.path.write_bytes(log)
        self.place = place_of(root / "t-0")
        self.like: Attributes = read_attributes(str(self.path), without_links())
        self.reading = RecoveredItem(
            place=self.place,
            base_offset=0,
            log_bytes=len(log),
            log_end=FAR,
            exact=False,
            interval_bytes=interval,
            audit=False,
        )
        self.scan = ScanItem(
            place=self.place, base_offset=0, size=len(log), now_ms=builders.NOW_MS, high_watermark=FAR,
            check_crc=False,
        )  # fmt: skip

    def true(self) -> dict[str, bytes]:
        """Both files as recovery writes them, by the code that the index fix uses."""
        made = rebuild_offset_and_time(str(self.path), len(self.log), 0, self.interval)
        return {".index": made.index, ".timeindex": made.time_index}

    def file(self, suffix: str, data: bytes) -> RepairItem:
        """What makes one of the files anew, planned with these bytes."""
        name = f"{0:020d}{suffix}"
        change = replaced_file(
            name,
            folder="t-0",
            rule="recovered",
            size_before=-1,
            size_after=len(data),
            digest_after=digest_bytes(data),
        )
        return RepairItem(
            place=self.place,
            change=change,
            base_offset=0,
            log_bytes=len(self.log),
            interval_bytes=self.interval,
            target=f"{self.path.parent}/new{suffix}",
            attributes=self.like,
        )

    def read(self) -> RecoveredResult:
        """The reading alone."""
        found = verify_recovered(self.reading)
        assert isinstance(found, RecoveredResult), found
        return found

    def made(self, planned: dict[str, bytes]) -> RecoveredResult:
        """The reading, with new files planned with these bytes."""
        files = tuple(self.file(suffix, data) for suffix, data in planned.items())
        found = verify_recovered(replace(self.reading, scan=self.scan, makes=files))
        assert isinstance(found, RecoveredResult), found
        return found

    def staged(self) -> dict[str, bytes]:
        """The files that are there."""
        return {path.suffix: path.read_bytes() for path in self.path.parent.glob("new*")}


@pytest.fixture(params=WINDOWS)
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The size of the window of both."""
    monkeypatch.setattr(recovered, "walk", partial(walk, window_bytes=request.param))
    return int(request.param)


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize("kind", LOGS)
def test_it_finds_what_the_second_reading_finds_and_makes_what_the_index_fix_makes(
    tmp_path: Path, window: int, kind: str, interval: int
) -> None:
    segment = Segment(tmp_path, log_of(kind, random.Random(kind)), interval)
    true = segment.true()
    found = segment.made(true)
    apart = segment.read()
    assert bool(found.problems) == bool(apart.problems) == (kind in {"torn", "wrong CRC", "zeros behind"})
    if apart.problems:
        assert found.problems == apart.problems
        assert segment.staged() == {}
        return
    assert [failure_of(one) for one in found.files] == ["", ""], found.files
    assert segment.staged() == true
    assert found.scan == scan(segment.scan)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(log=mixed_logs(), interval=st.sampled_from(INTERVALS))
def test_logs_of_all_formats_give_the_files_of_the_index_fix(
    tmp_path_factory: pytest.TempPathFactory, window: int, log: Any, interval: int
) -> None:
    raw = joined(log) if not isinstance(log, bytes) else log
    segment = Segment(tmp_path_factory.mktemp("logs"), raw, interval)
    true = segment.true()
    found = segment.made(true)
    assert bool(found.problems) == bool(segment.read().problems)
    if not found.problems:
        assert [failure_of(one) for one in found.files] == ["", ""], found.files
        assert segment.staged() == true


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    stamps=st.lists(st.integers(0, 6), min_size=1, max_size=40),
    interval=st.sampled_from(INTERVALS),
)
def test_timestamps_in_any_order_make_entries_of_batches_that_were_read_before(
    tmp_path_factory: pytest.TempPathFactory, window: int, stamps: list[int], interval: int
) -> None:
    log = joined(
        [builders.data(3 * n, 3, timestamp=builders.NOW_MS + stamp) for n, stamp in enumerate(stamps)]
    )
    segment = Segment(tmp_path_factory.mktemp("logs"), log, interval)
    true = segment.true()
    found = segment.made(true)
    assert found.problems == ()
    assert [failure_of(one) for one in found.files] == ["", ""], found.files
    assert segment.staged() == true


def test_every_damaged_byte_stops_both_files(tmp_path: Path, window: int) -> None:
    batches = [builders.data(3 * n, 3, timestamp=builders.NOW_MS + n) for n in range(12)]
    log = joined(batches)
    starts = [sum(len(one.raw) for one in batches[:n]) for n in range(12)]
    free = {start + place for start in starts for place in (*range(8), *range(12, 16))}  # no CRC covers them
    true = Segment(tmp_path, log, 77).true()
    for place in sorted(set(range(0, len(log), 7)) - free):
        broken = bytearray(log)
        broken[place] ^= 0x10
        segment = Segment(tmp_path, bytes(broken), 77)
        assert segment.made(true).problems, place
        assert segment.staged() == {}


Entries = tuple[Any, Any]


def _one_off(array: Any, row: int, column: int, by: int) -> Any:
    changed = array.copy()
    if len(changed):
        changed[row % len(changed), column] += by
    return changed


DEFECTS: dict[str, Callable[[Entries, int], Entries]] = {
    "a position": lambda made, row: (_one_off(made[0], row, 1, 1), made[1]),
    "an offset too low": lambda made, row: (_one_off(made[0], row, 0, -3), made[1]),
    "a time too late for its batch": lambda made, row: (made[0], _one_off(made[1], row, 1, 3)),
    "the largest time": lambda made, row: (made[0], _one_off(made[1], -1, 0, 1)),
    "the closing entry is missing": lambda made, row: (made[0], made[1][:-1]),
    "the entries of the first half alone": lambda made, row: (made[0][: len(made[0]) // 2], made[1]),
}


@pytest.mark.parametrize("row", [0, 3, -1])
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_of_what_makes_the_entries_is_found_before_anything_is_staged(
    tmp_path: Path, window: int, monkeypatch: pytest.MonkeyPatch, defect: str, row: int
) -> None:
    interval = 100
    far = 9000 if defect.startswith("the entries of") else 40
    batches = [
        builders.data(3 * n, [builders.Record(b"k", b"v" * far)] * 3, timestamp=builders.NOW_MS + n)
        for n in range(200)
    ]
    segment = Segment(tmp_path, joined(batches), interval)
    break_it = DEFECTS[defect]
    real = IndexEntries.entries
    so_far = IndexEntries.so_far

    def broken(entries: IndexEntries) -> Entries:
        return break_it(real(entries), row)

    monkeypatch.setattr(IndexEntries, "entries", broken)
    if row == 3 and defect != "the closing entry is missing":  # while they are made, too
        monkeypatch.setattr(IndexEntries, "so_far", lambda entries: break_it(so_far(entries), row))
    planned = made_by(segment, monkeypatch)
    found = segment.made(planned)
    assert found.problems == ()
    assert "verify" in [failure_of(one) for one in found.files], found.files
    assert segment.staged() != planned


def made_by(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """What a plan that is made with the same defect says of both files."""
    planned: dict[str, bytes] = {}
    real = recovered.index_bytes

    def noting(*given: Any) -> tuple[bytes, bytes]:
        index, times = real(*given)
        planned.update({".index": index, ".timeindex": times})
        return index, times

    with monkeypatch.context() as patched:
        patched.setattr(recovered, "index_bytes", noting)
        segment.made({})
    return planned


def test_a_file_that_is_not_the_plans_is_not_staged(tmp_path: Path) -> None:
    segment = Segment(tmp_path, joined([builders.data(0, 3), builders.data(3, 3)]), 0)
    true = segment.true()
    found = segment.made({".index": true[".index"] + b"x", ".timeindex": true[".timeindex"]})
    assert [failure_of(one) for one in found.files] == ["changed", ""]
    assert set(segment.staged()) == {".timeindex"}


def test_old_messages_that_are_wrong_are_found_though_the_scan_checks_no_checksum(tmp_path: Path) -> None:
    log = bytearray(joined([plain(0), plain(1), plain(2)]))
    log[-1] ^= 1
    segment = Segment(tmp_path, bytes(log), 0)
    found = segment.made(segment.true())
    assert "CRC-32" in found.problems[0]
