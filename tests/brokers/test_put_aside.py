"""Folders that a start puts aside, and what the next one does with them: check says both, and what they hold."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from krepair.findings.reports import LogDirReport
from krepair.ops.check import check
from krepair.options import EngineName, Options
from tests.brokers.serving import PASSIVE
from tests.builders import LogDir, data
from tests.fixture_dirs import unpack
from tests.lab.broker import Broker, BrokerError, Topic
from tests.lab.jars import LATEST
from tests.start.nodes import Seen, quorum, settings, started, voting, written
from tests.start.states import OTHER_ID

pytestmark = [pytest.mark.broker, pytest.mark.slow]

EVERY = os.environ.get("KREPAIR_EVERY_BROKER") == "1"
VERSIONS = ["3.9.2", LATEST] if EVERY else [LATEST]
GONE_ID, ASIDE = "AAAAAAAAAAAAAAAAAAAAZA", frozenset({"one-0", "gone-0"})


def logs(log_dir: Path) -> dict[str, bytes]:
    """What lies in the logs of folders that were put aside."""
    return {path.parent.name.partition(".")[0]: path.read_bytes() for path in log_dir.glob("*-stray/*.log")}


@pytest.mark.parametrize("version", VERSIONS)
def test_folders_of_a_topic_that_is_gone_and_of_another_id_are_put_aside_and_kept(
    version: str, tmp_path: Path
) -> None:
    log_dir, of = unpack(f"kraft-{version}", tmp_path), quorum("alone")
    made = LogDir(tmp_path / "made")
    made.partition("one").segment(*(data(base, 10) for base in (0, 10, 20)))
    shutil.copytree(made.write() / "one-0", log_dir / "one-0", dirs_exist_ok=True)
    shutil.copytree(log_dir / "one-0", log_dir / "gone-0")
    for folder, topic_id in (("one-0", OTHER_ID), ("gone-0", GONE_ID)):
        (log_dir / folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    records = (log_dir / "one-0" / f"{0:020d}.log").read_bytes()
    voting(log_dir, of)
    config = written(tmp_path / "server.properties", settings(of, 0, log_dir, {}))

    def checked() -> LogDirReport:
        options = Options(engine=EngineName.INLINE, config=str(config), broker_version=version)
        return check([str(log_dir)], options).log_dirs[0]

    def start() -> Seen:
        return started(version, config, [log_dir], lambda seen: seen.loaded and seen.aside == ASIDE)

    said = {line.partition for line in checked().forecast if line.expected == "stray"}
    first = start()
    assert (first.up, first.aside, said) == (True, ASIDE, ASIDE), first.log[-3000:]
    assert logs(log_dir) == dict.fromkeys(["one-0", "gone-0"], records)

    report = checked()
    strays = {path.name for path in log_dir.glob("*-stray")}
    assert {line.partition: line.expected for line in report.forecast if line.partition in strays} == (
        dict.fromkeys(strays, "unknown")  # the broker was killed: it recovers their logs, too
    )
    told = {one.file.partition(".")[0]: one.evidence for one in report.findings if one.rule == "KR604"}
    assert set(told) == ASIDE
    assert f"topic id {OTHER_ID}; one-0 beside it: " in told["one-0"]
    assert "it ends at offset 30, one-0 at 0: its records are only here" in told["one-0"]
    assert f"topic id {GONE_ID}; no gone-0 beside it can be read: keep the folder" in told["gone-0"]
    if EVERY:
        assert start().up
    assert {path.name for path in log_dir.glob("*-stray")} == strays
    assert logs(log_dir) == dict.fromkeys(["one-0", "gone-0"], records)


@pytest.mark.every_broker
def test_2_2_keeps_the_folder_of_a_topic_that_is_gone_and_does_not_know_a_stray_one(tmp_path: Path) -> None:
    made = LogDir(tmp_path / "logs")
    for topic in ("t", "gone"):
        made.partition(topic).segment(data(0, 10))
    log_dir = made.write()
    options = Options(engine=EngineName.INLINE, broker_version="2.2.1")

    def said() -> set[str]:
        return {line.expected for line in check([str(log_dir)], options).log_dirs[0].forecast}

    assert said() == {"start"}
    with Broker("2.2.1", log_dir, PASSIVE, {"t": Topic(1, {"retention.ms": "-1"})}) as broker:
        broker.stop()
        assert (log_dir / "gone-0" / f"{0:020d}.log").stat().st_size
        (log_dir / "gone-0").rename(log_dir / f"gone-0.{'a' * 32}-stray")
        assert said() == {"refuse"}
        with pytest.raises(BrokerError, match="stray"):
            broker.start()
