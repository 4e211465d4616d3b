"""Index files made anew by krepair are byte for byte those that real brokers' recovery makes of the same logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixture_dirs import unpack
from tests.lab.judge import Judge
from tests.pipeline.recovered import by_broker, by_krepair, settings_of

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
VERSIONS = ("2.2.1", "3.9.2", "4.3.1")
EMPTY_MARKERS_UP_TO = (2, 7)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("fixture", [*V2_FIXTURES, "oldformat-2.2.1-before", "offsets-bloat-2.2.0-clean"])
def test_regenerated_companions_are_those_that_the_broker_rebuilds(
    fixture: str, version: str, judge: Callable[[str], Judge], tmp_path: Path
) -> None:
    logs = unpack(fixture, tmp_path)
    empty_markers = tuple(int(part) for part in version.split(".")[:2]) <= EMPTY_MARKERS_UP_TO
    compared: set[str] = set()
    for folder in sorted(path for path in logs.iterdir() if path.is_dir() and list(path.glob("*.log"))):
        settings = settings_of(logs, folder.name.rpartition("-")[0])
        expected = by_broker(judge(version), folder, tmp_path / "by-broker", settings)
        assert expected == by_krepair(folder, settings, empty_markers=empty_markers), folder.name
        compared |= {name.rpartition(".")[2] for name in expected}
    assert compared == SUFFIXES_IN.get(fixture, {"index", "timeindex", "txnindex"})
