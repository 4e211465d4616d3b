"""One reading for scan and indexes gives the same results as separate readings."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from krepair.engine.items import Place, ScanItem
from krepair.rewrite.indexes.segment import (
    Depth,
    InspectItem,
    inspect,
    inspect_with_swaps,
)
from krepair.scan.scan import scan
from krepair.scan.segment_files import rebuild_offset_and_time
from tests.builders import NOW_MS
from tests.engine.travelled import failure_of
from tests.places import place_of
from tests.rewrite.scanned import LOGS, log_of

INTERVAL = 300
INDEXES = ("none", "empty", "true", "half", "padded", "wrong entry", "torn")


def index_of(kind: str, data: bytes, entry: int) -> bytes | None:
    """An index file of one kind, by its true bytes."""
    half = data[: len(data) // entry // 2 * entry]
    wrong = bytearray(data)
    if wrong:
        wrong[len(half) + entry - 1] ^= 1
    kinds = {
        "none": None, "empty": b"", "true": data, "half": half, "padded": half + bytes(10 * entry),
        "wrong entry": bytes(wrong), "torn": data[:-1],
    }  # fmt: skip
    return kinds[kind]


@pytest.mark.parametrize("log_kind", LOGS)
@pytest.mark.parametrize("depth", ["check", "regenerate"])
def test_one_reading_tells_what_two_tell_whatever_the_log_and_its_indexes(
    tmp_path: Path, log_kind: str, depth: Depth
) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    log = log_of(log_kind, random.Random(log_kind))
    stem = folder / f"{0:020d}"
    path = stem.with_suffix(".log")
    path.write_bytes(log)
    true = rebuild_offset_and_time(str(path), len(log), 0, INTERVAL)
    place = place_of(folder)
    for index, time_index, active, clean in itertools.product(INDEXES, INDEXES, (False, True), (False, True)):
        for suffix, kind, data, entry in (
            (".index", index, true.index, 8),
            (".timeindex", time_index, true.time_index, 12),
        ):
            stem.with_suffix(suffix).unlink(missing_ok=True)
            made = index_of(kind, data, entry)
            if made is not None:
                stem.with_suffix(suffix).write_bytes(made)
        to_scan = ScanItem(place=place, base_offset=0, size=len(log), now_ms=NOW_MS, high_watermark=2**63 - 1)
        to_inspect = InspectItem(
            place=place,
            base_offset=0,
            log_bytes=len(log),
            interval_bytes=INTERVAL,
            active=active,
            clean=clean,
            depth=depth,
        )
        apart = scan(to_scan), inspect(to_inspect)
        assert inspect_with_swaps(to_scan, to_inspect) == apart, (index, time_index, active, clean)


def test_what_cannot_be_read_is_told_of_scan_and_indexes(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    place = place_of(tmp_path / "t-0")
    item = (
        ScanItem(place=place, base_offset=0, size=100, now_ms=NOW_MS, high_watermark=0),
        InspectItem(
            place=place, base_offset=0, log_bytes=100, interval_bytes=INTERVAL, active=False, depth="check"
        ),
    )
    assert [failure_of(result) for result in inspect_with_swaps(*item)] == ["unreadable", "unreadable"]
    (folder / f"{0:020d}.log").mkdir()
    assert failure_of(inspect_with_swaps(*item)[1]) == "unreadable"


def test_a_partition_of_another_host_is_read_by_neither(tmp_path: Path) -> None:
    place = Place(host="elsewhere", log_dir=str(tmp_path), log_dir_inode=1, folder="t-0")
    results = inspect_with_swaps(
        ScanItem(place=place, base_offset=0, size=0, now_ms=NOW_MS, high_watermark=0),
        InspectItem(
            place=place, base_offset=0, log_bytes=0, interval_bytes=INTERVAL, active=False, depth="check"
        ),
    )
    assert [failure_of(result) for result in results] == ["elsewhere", "elsewhere"]
