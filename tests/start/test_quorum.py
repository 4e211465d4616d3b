"""The quorum of a directory against the configuration of its node; each outcome was seen on 3.6.2 to 4.4.0."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixture_dirs import unpack
from tests.start.nodes import Quorum, settings, voting, written
from tests.start.states import checked, foretold

ALONE, ONE_OF_THREE = Quorum("alone", (1, 2, 3, 4)), Quorum("one of three", (1, 2, 3, 4))
BOOTSTRAPS = {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": "127.0.0.1:1"}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"zookeeper.connect": "z:1"}, "refuse"),
        ({"zookeeper.connect": "z:1", "zookeeper.metadata.migration.enable": "true"}, "start"),
        ({"zookeeper.connect": "z:1", "process.roles": "broker"}, "start"),
    ],
)
def test_files_of_kraft_under_a_configuration_of_zookeeper(
    tmp_path: Path, more: dict[str, str], expected: str
) -> None:
    log_dir = unpack("kraft-3.9.2", tmp_path)
    config = written(tmp_path / "server.properties", {"node.id": "0", "log.dirs": str(log_dir), **more})
    assert set(foretold(checked([log_dir], config, "3.9.2")).values()) == {expected}


@pytest.mark.parametrize(
    ("here", "configured", "more", "fixture", "version", "expected"),
    [
        (ALONE, ALONE, {}, "3.9.2", "3.9.2", "start"),
        (ALONE, ONE_OF_THREE, {}, "3.9.2", "3.9.2", "start"),
        (ALONE, ONE_OF_THREE, {}, "3.9.2", "3.7.2", "refuse"),
        (ONE_OF_THREE, ALONE, {}, "4.4.0", "4.4.0", "start"),
        (ALONE, ALONE, BOOTSTRAPS, "3.9.2", "3.9.2", "refuse"),
        (ALONE, ALONE, BOOTSTRAPS, "4.4.0", "4.4.0", "refuse"),
        (ALONE, ALONE, {"controller.quorum.bootstrap.servers": "127.0.0.1:1"}, "4.4.0", "4.4.0", "start"),
    ],
)
def test_the_voters_of_the_directory_and_of_the_configuration(
    tmp_path: Path,
    here: Quorum,
    configured: Quorum,
    more: dict[str, str],
    fixture: str,
    version: str,
    expected: str,
) -> None:
    log_dir = unpack(f"kraft-{fixture}", tmp_path)
    voting(log_dir, here)
    config = written(tmp_path / "server.properties", settings(configured, 0, log_dir, more))
    report = checked([log_dir], config, version)
    assert set(foretold(report).values()) == {expected}
    told = [one.evidence for one in report.log_dirs[0].findings if one.rule == "KR610"]
    assert any("voters" in one for one in told) is (here is not configured or more == BOOTSTRAPS)
