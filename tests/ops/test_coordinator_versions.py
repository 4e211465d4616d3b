"""Groups and transactional ids that a version cannot load (KR807), by the versions of their records."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from krepair.formats.batch_v2 import BatchHeader, encode_batch
from krepair.formats.record import Record
from krepair.ops.check import check
from krepair.options import EngineName, Options
from tests.builders import NOW_MS
from tests.encoders import encode_record

OFFSETS, TRANSACTIONS = "__consumer_offsets-3", "__transaction_state-3"


def keyed(key: int, value: int | None) -> Record:
    """A record of which only the versions matter."""
    name = b"\0\1g"
    data = None if value is None else struct.pack(">h", value) + bytes(40)
    return Record(key=struct.pack(">h", key) + name + bytes(8), value=data)


def log_dir(root: Path, folder: str, records: list[Record]) -> Path:
    path = root / folder
    path.mkdir(parents=True)
    body = b"".join(encode_record(one._replace(offset_delta=n)) for n, one in enumerate(records))
    count = len(records)
    header = BatchHeader(0, 0, 1, 2, 0, 0, count - 1, NOW_MS, NOW_MS, -1, -1, -1, count)
    (path / f"{0:020d}.log").write_bytes(encode_batch(header, body))
    (root / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    return root


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
