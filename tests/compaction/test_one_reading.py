"""Keys found during the scan of a segment equal those found by a reading of their own."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from krepair.engine.items import ScanItem, ScanResult
from krepair.rewrite.compaction.items import KeysItem
from krepair.rewrite.compaction.tasks import find_keys
from krepair.scan.scan import scan
from tests.builders import NOW_MS
from tests.compaction.offsets_log import log_of
from tests.places import place_of


def item_of(root: Path, log: bytes, end: int, rows_inline: int = 1 << 16) -> KeysItem:
    """A segment with this log, whose keys are found while it is scanned."""
    folder = root / "t-0"
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(log)
    place = place_of(root / "t-0")
    return KeysItem(
        place=place, base_offset=0, size=len(log), aborted=b"", secret=bytes(range(16)), rows_inline=rows_inline,
        scratch="",
        scan=ScanItem(
            place=place, base_offset=0, size=len(log), now_ms=NOW_MS, high_watermark=end, check_crc=False
        ),
    )  # fmt: skip


@pytest.mark.parametrize("other", ["", "old", "large", "packed"])
def test_keys_and_scan_of_one_reading_are_those_of_two(tmp_path: Path, other: str) -> None:
    item = item_of(tmp_path, *log_of(random.Random(other), other, transactions=False))
    together = find_keys(item)
    assert item.scan is not None
    assert together.scan == scan(item.scan)
    assert isinstance(together.scan, ScanResult)
    assert replace(together, scan=None) == find_keys(replace(item, scan=None))
    assert together.searched


def test_where_there_are_transactions_the_keys_are_left_to_a_reading_that_knows_what_is_aborted(
    tmp_path: Path,
) -> None:
    item = item_of(tmp_path, *log_of(random.Random(1), ""))
    together = find_keys(item)
    assert item.scan is not None
    assert together.scan == scan(item.scan)
    assert not together.searched


def test_a_record_that_does_not_fit_is_told_of_the_keys_and_the_scan_goes_on(tmp_path: Path) -> None:
    log, end = log_of(random.Random(2), "", transactions=False)
    broken = bytearray(log)
    broken[61] = 0x7E  # length of the first record
    item = item_of(tmp_path, bytes(broken), end)
    together = find_keys(item)
    assert item.scan is not None
    assert together.scan == scan(item.scan)
    apart = find_keys(replace(item, scan=None))
    assert (together.position, together.problem) == (apart.position, apart.problem)
    assert together.problem
    assert together.searched


def test_keys_without_room_are_told_and_the_scan_goes_on(tmp_path: Path) -> None:
    item = item_of(tmp_path, *log_of(random.Random(3), "", transactions=False), rows_inline=1)
    together = find_keys(item)
    assert item.scan is not None
    assert together.failure == "disk"
    assert together.scan == scan(item.scan)
