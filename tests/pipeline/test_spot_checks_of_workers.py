"""This host reads a few closed segments itself: a worker that has read another log is found out."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from krepair.errors import ExitCode, RefusedError
from krepair.pipeline.engines.spot_checks import SpotChecks
from krepair.pipeline.items import ScanItem
from krepair.pipeline.scan import scan
from krepair.pipeline.scan_and_indexes import look_at_segment
from tests.builders import LogDir, data
from tests.ops.scene import BLOAT, scene
from tests.pipeline.scanned import HUGE, scan_items


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> list[ScanItem]:
    return scan_items(scene(tmp_path_factory.mktemp("log"), BLOAT), HUGE)


def test_equal_results_pass_and_at_most_three_closed_segments_are_read(items: list[ScanItem]) -> None:
    spots = SpotChecks(scan, items, random.Random(1))
    assert len(spots.places) == 3
    assert len(items) - 1 not in spots.places
    for place, item in enumerate(items):
        spots.check(place, "host-2", scan.run(item))


def test_a_worker_that_read_an_older_state_is_refused_by_name(items: list[ScanItem]) -> None:
    spots = SpotChecks(scan, items, random.Random(1))
    place = min(spots.places)
    other = scan.run(items[place - 1 if place else place + 1])
    with pytest.raises(RefusedError, match=r"\.log: host host-2 read other batches than this host") as error:
        spots.check(place, "host-2", other)
    assert error.value.exit_code is ExitCode.REFUSED
    spots.check(place, "host-2", replace(other, failure="unreadable"))


def test_active_and_very_large_segments_and_other_tasks_are_left_out(tmp_path: Path) -> None:
    made = LogDir(tmp_path / "logs")
    made.partition("t").segment(data(0, 2))
    path = made.write()
    one = ScanItem(place=items_place(path), base_offset=0, size=100, now_ms=0, high_watermark=0)
    later = replace(one, base_offset=2)
    choose = random.Random(1)
    assert SpotChecks(scan, [one], choose).places == frozenset()
    assert SpotChecks(scan, [one, later], choose).places == {0}
    assert SpotChecks(scan, [replace(one, size=1 << 30), later], choose).places == frozenset()
    assert SpotChecks(look_at_segment, [one, later], choose).places == frozenset()


def items_place(path: Path):  # type: ignore[no-untyped-def]
    from tests.compaction.compacting import place_of

    return place_of(path / "t-0")
