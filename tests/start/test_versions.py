"""Healthy directories of every version under every other one: what check foretells is what a real node then does.

The gate tries three pairs; ``KREPAIR_EVERY_BROKER=1`` makes twelve directories and tries all seventy-two.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.fixture_dirs import unpack
from tests.lab.jars import LATEST
from tests.start.healthy import HEALTHY, VERSIONS, Healthy, judged, make
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
@pytest.mark.every_broker
@pytest.mark.parametrize("of", HEALTHY, ids=lambda of: of.name)
def test_each_healthy_directory_under_each_version(
    of: Healthy, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    folder = make(of, tmp_path_factory.getbasetemp().parent / "healthy")
    for version in VERSIONS:
        agrees(of, folder, version, tmp_path / version)
