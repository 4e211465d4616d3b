"""Real brokers on what krepair made: they start without a word, and clients see what they saw before."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.errors import ExitCode
from tests.brokers.serving import Served, serve
from tests.lab.jars import LATEST, VERSIONS
from tests.ops.scene import BLOAT, TV2, Scene, scene, tree

pytestmark = [pytest.mark.broker, pytest.mark.slow]

CASES = [
    (BLOAT, "2.2.1"),
    (TV2, LATEST),
    *(pytest.param(BLOAT, version, marks=pytest.mark.every_broker) for version in VERSIONS[1:]),
]


def assert_served_alike(before: Served, after: Served) -> None:
    assert after.records.keys() == before.records.keys()
    for key, records in before.records.items():
        assert after.records[key] == records, key
    assert after.offsets == before.offsets


@pytest.mark.parametrize(("fixture", "version"), CASES)
def test_clients_see_the_same_before_and_after_apply_and_undo_gives_every_byte_back(
    tmp_path: Path, fixture: str, version: str
) -> None:
    """Offset, key, value, headers and timestamp of every record, both isolation levels, and group offsets."""
    one: Scene = scene(tmp_path / "ours", fixture)
    original = tree(one.path)
    before = serve(version, one.path, tmp_path / "before")
    assert {key[0] for key in before.records} == {"__consumer_offsets", "__transaction_state"}
    assert min(len(records) for records in before.records.values()) > 0
    assert any(before.offsets.values())

    plan = one.plan()
    assert one.apply(plan).exit_code == ExitCode.DONE
    assert any(each.log_bytes_after < each.log_bytes_before for each in plan.partitions)
    after = serve(version, one.path, tmp_path / "after")
    assert_served_alike(before, after)
    assert after.complaints == ()

    assert one.undo(plan).exit_code == ExitCode.DONE
    assert tree(one.path) == original
