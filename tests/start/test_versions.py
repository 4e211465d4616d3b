"""Healthy directories of every version under every other one: what check foretells is what a real node then does.

The gate tries three pairs; ``KREPAIR_EVERY_BROKER=1`` makes twelve directories and tries all seventy-two.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from krepair.cli.views.check import check_view
from krepair.cli.views.writers import plain
from krepair.options import Options
from tests.fixture_dirs import unpack
from tests.lab.jars import LATEST
from tests.start.healthy import HEALTHY, VERSIONS, Healthy, judged, make
from tests.start.nodes import written
from tests.start.states import checked, foretold

GATE = (("3.9.2", LATEST), (LATEST, "3.9.2"), ("3.9.2", "3.9.2"))


def agrees(of: Healthy, folder: Path, version: str, work: Path) -> None:
    config = folder / "server.properties"
    now_ms = int(time.time() * 1000)
    report = checked([folder / "logs"], config if config.exists() else None, version, now_ms)
    said = set(foretold(report).values())
    seen = judged(of, folder, version, work)
    assert bool(seen.aside) is ("stray" in said)
    assert seen.up is ("refuse" not in said), (said, seen.log[-3000:])


@pytest.mark.broker
@pytest.mark.parametrize(("written", "version"), GATE)
def test_a_version_starts_on_what_it_is_said_to_read(tmp_path: Path, written: str, version: str) -> None:
    unpack(f"kraft-{written}", tmp_path / "made").parent.rename(tmp_path / "one")
    agrees(Healthy(written, "alone"), tmp_path / "one", version, tmp_path / "work")


@pytest.mark.broker
def test_a_broker_ends_beside_a_zookeeper_of_another_cluster_and_the_page_says_so(tmp_path: Path) -> None:
    log_dir = unpack("leader-epochs-2.2.1", tmp_path / "one")
    (log_dir / "meta.properties").write_text("version=0\nbroker.id=0\ncluster.id=krepair-test-cluster00\n")
    report = checked([log_dir], None, "3.9.2", int(time.time() * 1000))
    page = plain(check_view(report, Options(), 200))
    assert "ZooKeeper was not queried: if its cluster.id is not krepair-test-cluster00" in page
    seen = judged(Healthy("2.2.1", "stopped"), log_dir.parent, "3.9.2", tmp_path / "work")
    assert not seen.up
    assert "Invalid cluster.id" in seen.log


@pytest.mark.broker
def test_files_of_kraft_end_a_broker_of_zookeeper(tmp_path: Path) -> None:
    log_dir = unpack("kraft-3.9.2", tmp_path / "one")
    config = written(
        tmp_path / "zookeeper.properties",
        {"broker.id": "0", "log.dirs": str(log_dir), "zookeeper.connect": "z:1"},
    )
    report = checked([log_dir], config, "3.9.2", int(time.time() * 1000))
    assert set(foretold(report).values()) == {"refuse"}
    seen = judged(Healthy("2.2.1", "stopped"), log_dir.parent, "3.9.2", tmp_path / "work")
    assert not seen.up
    assert "Found unexpected version" in seen.log


@pytest.mark.broker
@pytest.mark.every_broker
@pytest.mark.parametrize("of", HEALTHY, ids=lambda of: of.name)
def test_each_healthy_directory_under_each_version(
    of: Healthy, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    folder = make(of, tmp_path_factory.getbasetemp().parent / "healthy")
    for version in VERSIONS:
        agrees(of, folder, version, tmp_path / version)
