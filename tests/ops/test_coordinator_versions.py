"""Groups and transactional ids that a version cannot load (KR807), by the versions of their records."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.formats.record import Record
from krepair.ops.check import check
from krepair.options import EngineName, Options
from tests.builders import NOW_MS
from tests.ops.coordinator_records import OFFSETS, TRANSACTIONS, keyed, log_dir


@pytest.mark.parametrize(
    ("folder", "records", "version", "first"),
    [
        (OFFSETS, [keyed(1, 3), keyed(2, 2)], "2.2.1", -1),
        (OFFSETS, [keyed(1, 3), keyed(2, 3)], "2.2.1", 1),
        (OFFSETS, [keyed(1, 3), keyed(2, 3)], "2.3.0", -1),
        (OFFSETS, [keyed(1, 3), keyed(3, 0)], "2.2.1", 1),
        (OFFSETS, [keyed(1, 3), keyed(3, None)], "3.3.2", 1),
        (OFFSETS, [keyed(1, 3), keyed(3, 0)], "3.9.2", -1),
        (OFFSETS, [keyed(1, 4)], "3.4.1", 0),
        (OFFSETS, [keyed(1, 4)], "3.5.0", -1),
        (OFFSETS, [keyed(1, None), keyed(1, 9)], "4.4.0", 1),
        (OFFSETS, [keyed(1, None), keyed(1, 9)], "", -1),
        (TRANSACTIONS, [keyed(0, 0), keyed(0, 1)], "3.3.2", 1),
        (TRANSACTIONS, [keyed(0, 0), keyed(0, 1)], "3.9.2", -1),
        (TRANSACTIONS, [keyed(0, 0), keyed(1, 0)], "2.8.2", 1),
        (TRANSACTIONS, [keyed(0, 2)], "4.4.0", 0),
    ],
)
def test_the_first_record_that_the_version_does_not_read_ends_the_load(
    tmp_path: Path, folder: str, records: list[Record], version: str, first: int
) -> None:
    root = log_dir(tmp_path / "logs", folder, records)
    report = check([str(root)], Options(engine=EngineName.INLINE, now_ms=NOW_MS, broker_version=version))
    found = [one for one in report.log_dirs[0].findings if one.rule == "KR807"]
    assert [(one.partition, one.first_offset) for one in found] == ([(folder, first)] if first >= 0 else [])


@pytest.mark.parametrize(
    ("records", "oldest"),
    [
        ([keyed(1, 1)], "2.2"),
        ([keyed(1, 3), keyed(2, 3)], "2.3"),
        ([keyed(1, 4)], "3.5"),
        ([keyed(1, 9)], ""),
    ],
)
def test_the_oldest_version_of_the_verdict_loads_all_groups(
    tmp_path: Path, records: list[Record], oldest: str
) -> None:
    root = log_dir(tmp_path / "logs", OFFSETS, records)
    report = check([str(root)], Options(engine=EngineName.INLINE, now_ms=NOW_MS))
    assert report.oldest_version == oldest
