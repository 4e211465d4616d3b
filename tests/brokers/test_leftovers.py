"""Real brokers on what brokers leave behind, and on folders that they have marked: what check forecast happens.

Pending swaps: ``test_swaps.py``; what apply makes of leftovers: ``tests/corpus``.
"""

from __future__ import annotations

import re
import shutil
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

from krepair.ops.check import check
from krepair.ops.plan import make_plan
from tests.commit import txfixture
from tests.lab import client
from tests.lab.broker import Broker, BrokerError, Topic
from tests.lab.jars import ENDS
from tests.lab.waiting import wait_for
from tests.ops import pending
from tests.ops.pending import FOLDER, name, options

pytestmark = [pytest.mark.broker, pytest.mark.slow]

CONFIG = {"retention.ms": str(2**63 - 1), "index.interval.bytes": str(txfixture.INTERVAL_BYTES)}
TOPICS = {topic: Topic(1, CONFIG) for topic in ("t", "o")}
PROPERTIES = {"log.cleaner.enable": "false", "transactional.id.expiration.ms": "2147483647"}


def count(broker: Broker) -> int:
    """Records of the partition as it was written."""
    return sum(one.offset < txfixture.END for one in client.read_all(broker.bootstrap, "t"))


def forecast(root: Path, version: str) -> dict[str, str]:
    given = options(broker_version=version, settings=(*pending.SETTINGS, ("retention.ms", "-1")))
    report = check([str(root)], given)
    return {line.partition: line.expected for line in report.log_dirs[0].forecast}


def marked(root: Path, kind: str, *, with_log: bool = True) -> Path:
    """A folder that a broker marked."""
    folder = root / f"gone-0.{uuid.uuid4().hex}-{kind}"
    if with_log:
        shutil.copytree(root / "o-0", folder)
    else:
        folder.mkdir()
    return folder


LEFT = {name(50, ".timeindex"), name(50, ".log.deleted"), "x.deleted", name(500, ".log.cleaned")}
"""What ``leftovers`` removes."""


@pytest.mark.parametrize("version", ENDS)
def test_every_broker_deletes_what_leftovers_removes_and_does_with_marked_folders_what_is_forecast(
    tmp_path: Path, version: str
) -> None:
    root = txfixture.write_log_dir(tmp_path / "logs")
    for file in LEFT:
        (root / FOLDER / file).write_bytes(bytes(12))
    plan = make_plan(str(root), options())
    assert {change.change_id for change in plan.partitions[1].changes} == {
        f"{FOLDER}/{file}" for file in LEFT
    }
    deleted, stray = [marked(root, "delete")], []
    if version != "2.2.1":
        deleted, stray = [*deleted, marked(root, "delete", with_log=False)], [marked(root, "stray")]
    said = forecast(root, version)
    assert said[FOLDER] == "start"
    assert {said[folder.name] for folder in deleted} == {"delete"}
    assert [said[folder.name] for folder in stray] == ["start"] * len(stray)
    props = PROPERTIES | {"log.segment.delete.delay.ms": "100"}
    with Broker(version, root, props, TOPICS):
        assert not LEFT & {path.name for path in (root / FOLDER).iterdir()}
        wait_for(lambda: not any(folder.exists() for folder in deleted))
        assert all(folder.exists() for folder in stray)


@pytest.mark.parametrize(("kind", "with_log"), [("delete", False), ("stray", True)])
def test_marked_folders_that_stop_2_2_1_are_forecast_and_moved_away_it_starts(
    tmp_path: Path, kind: str, *, with_log: bool
) -> None:
    root = txfixture.write_log_dir(tmp_path / "logs")
    folder = marked(root, kind, with_log=with_log)
    assert set(forecast(root, "2.2.1").values()) == {"refuse"}
    with pytest.raises(BrokerError), Broker("2.2.1", root, PROPERTIES, TOPICS):
        pass
    shutil.move(folder, tmp_path / "aside")
    assert forecast(root, "2.2.1")[FOLDER] in {"start", "recover"}
    with Broker("2.2.1", root, PROPERTIES, TOPICS) as broker:
        assert count(broker) == len(txfixture.readable(new=False, committed=False))


@pytest.mark.parametrize("version", ENDS[1:])
def test_a_partition_in_two_log_directories_stops_every_broker_until_one_is_moved(
    tmp_path: Path, version: str
) -> None:
    root = txfixture.write_log_dir(tmp_path / "one")
    with Broker(version, root, PROPERTIES, TOPICS) as broker:
        broker.stop()
        other = tmp_path / "other"
        shutil.copytree(root, other)
        shutil.rmtree(other / "o-0")
        meta = other / "meta.properties"
        directory = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        meta.write_text(re.sub(r"directory\.id=.*", f"directory.id={directory}", meta.read_text()))
        (other / FOLDER / name(400)).unlink()
        report = check([str(root), str(other)], options())
        told = [one.evidence for each in report.log_dirs for one in each.findings if one.rule == "KR603"]
        assert len(told) == 2
        assert "does not start" in told[0]
        broker.props["log.dirs"] = f"{root},{other}"
        with pytest.raises(BrokerError, match="Duplicate log directories"):
            broker.start()
        shutil.move(other / FOLDER, tmp_path / "aside")
        broker.start()
        assert count(broker) == len(txfixture.readable(new=False, committed=False))
