"""Index files rebuilt by krepair equal those that a real broker's recovery builds from the same logs, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders import LogDir
from tests.fixture_dirs import unpack
from tests.lab.jars import VERSIONS
from tests.lab.judge import Judge
from tests.old_messages import mixed_log
from tests.rewrite.recovered import by_broker, by_krepair, settings_of
from tests.strategies import Shape, history

pytestmark = pytest.mark.broker

V2_FIXTURES = (
    "compact-2.2.1-before",
    "compact-2.2.1-after-2.2.1",
    "leader-epochs-2.2.1",
    "offsets-cleaned-2.2.1",
    "offsets-tv2-4.3.1",
    "timeindex-ok-2.2.1",
)
# no transactions in these; the epochs' segments are smaller than one index interval or hold few batches
SUFFIXES_IN = {
    "oldformat-2.2.1-before": {"index", "timeindex"},
    "leader-epochs-2.2.1": {"timeindex"},
    "timeindex-ok-2.2.1": {"index", "timeindex"},
}
EMPTY_MARKERS_UP_TO = (2, 7)


def has_empty_markers(version: str) -> bool:
    return tuple(int(part) for part in version.split(".")[:2]) <= EMPTY_MARKERS_UP_TO


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("fixture", [*V2_FIXTURES, "oldformat-2.2.1-before", "offsets-bloat-2.2.0-clean"])
def test_regenerated_companions_are_those_that_the_broker_rebuilds(
    fixture: str, version: str, judge: Callable[[str], Judge], tmp_path: Path
) -> None:
    logs = unpack(fixture, tmp_path)
    empty_markers = has_empty_markers(version)
    compared: set[str] = set()
    for folder in sorted(path for path in logs.iterdir() if path.is_dir() and list(path.glob("*.log"))):
        settings = settings_of(logs, folder.name.rpartition("-")[0])
        expected = by_broker(judge(version), folder, tmp_path / "by-broker", settings)
        assert expected == by_krepair(folder, settings, empty_markers=empty_markers), folder.name
        compared |= {name.rpartition(".")[2] for name in expected}
    assert compared == SUFFIXES_IN.get(fixture, {"index", "timeindex", "txnindex"}) | {"log"}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("interval", [0, 200])
@pytest.mark.parametrize("seed", range(3))
def test_fresh_logs_of_all_formats_are_indexed_as_by_the_broker(
    seed: int, interval: int, version: str, judge: Callable[[str], Judge], tmp_path: Path
) -> None:
    directory = LogDir(tmp_path / "logs")
    history(seed, Shape(emptied=True)).fill(directory.partition("transactions"))
    mixed = mixed_log(seed, 90)
    directory.partition("mixed").segment(*mixed[:40]).segment(
        *mixed[40:], base_offset=mixed[39].last_offset + 1
    )
    given = {"index.interval.bytes": str(interval)}
    for partition in directory.partitions:
        folder = partition.write(snapshots=False)
        expected = by_broker(judge(version), folder, tmp_path / "by-broker", given)
        assert expected == by_krepair(folder, given, empty_markers=has_empty_markers(version))
        assert {".index", ".timeindex"} <= {Path(name).suffix for name in expected}


def cut_inside(log: bytearray) -> None:
    del log[-20:]


def zero_tail(log: bytearray) -> None:
    log += bytes(3000)


def flipped(log: bytearray) -> None:
    log[len(log) * 2 // 3] ^= 8


def wrong_length(log: bytearray) -> None:
    log += b"\0\0\0\0\0\1\0\0\x7f\xff\xff\xff\0\0\0\0\2" + bytes(100)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("damage", [cut_inside, zero_tail, flipped, wrong_length])
def test_a_damaged_end_is_cut_where_the_broker_cuts_it(
    damage: Callable[[bytearray], None], version: str, judge: Callable[[str], Judge], tmp_path: Path
) -> None:
    folder = LogDir(tmp_path / "logs").partition("t").segment(*mixed_log(11)).write(snapshots=False)
    log = next(folder.glob("*.log"))
    content = bytearray(log.read_bytes())
    damage(content)
    log.write_bytes(content)
    given = {"index.interval.bytes": "100"}
    expected = by_broker(judge(version), folder, tmp_path / "by-broker", given)
    assert expected == by_krepair(folder, given, empty_markers=has_empty_markers(version))
    assert int(expected[log.name]) < len(content)
