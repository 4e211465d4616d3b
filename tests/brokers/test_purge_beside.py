"""Purge beside real brokers under load, while a topic is deleted and a partition moves to another log directory.

The gate takes the version that forgives least: 2.2.1 takes a log directory for broken when a file goes while the folder
is being deleted. All three: ``KREPAIR_EVERY_BROKER=1 make test ARGS=tests/brokers/test_purge_beside.py``.
"""

from __future__ import annotations

import base64
import os
import subprocess
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer

from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.purge import purge
from krepair.options import EngineName, Options
from krepair.plan.model import Plan
from tests.brokers.starts import bloated_topics
from tests.durable.disks import Call, PassingDisk
from tests.lab import client, jars
from tests.lab.broker import CLUSTER_ID, Broker, Topic
from tests.lab.jars import release
from tests.lab.jvm import java
from tests.lab.waiting import LIMIT_S, wait_for
from tests.ops.scene import outcomes

pytestmark = pytest.mark.broker

VERSIONS = jars.VERSIONS if os.environ.get("KREPAIR_EVERY_BROKER") == "1" else ("2.2.1",)
TOPICS = {"deleted": 3, "moved": 2, "stays": 2}
MOVE = Path(__file__).parents[1] / "lab" / "java" / "MoveReplicas.java"
PROPS = {"log.cleaner.enable": "false", "log.segment.delete.delay.ms": 50}
# Words of a broker that has lost a log directory, or met a file that it did not expect to be gone.
BROKEN = (
    "offline",
    "NoSuchFile",
    "Error while deleting",
    "KafkaStorageException",
    "FATAL",
    "IOException: Failed",
)


class SlowDisk(PassingDisk):
    """Waits before each call, so that a purge lasts while brokers do other things, and says when it has begun.

    It comes to one folder only when that has been marked for deletion, however slow the broker is.
    """

    def __init__(self, marked: Path) -> None:
        super().__init__(RealDisk())
        self.begun = threading.Event()
        self.marked = marked

    def _before(self, call: Call) -> None:
        self.begun.set()
        if call.path.startswith(f"{self.marked}/"):
            wait_for(lambda: not self.marked.exists())
        time.sleep(0.004)


def log_dir_with_kept_originals(tmp_path: Path, version: str) -> tuple[Path, Plan]:
    """A log directory of user topics, one plan applied to all of them."""
    log_dir = bloated_topics(tmp_path, TOPICS)
    common = {"broker_version": version, "engine": EngineName.INLINE}
    settings = (("cleanup.policy", "compact"), ("segment.bytes", "100000"), ("delete.retention.ms", "1000"))
    options = Options(**common, settings=settings, delete_horizon="4000000000000")  # type: ignore[arg-type]
    plan = make_plan(str(log_dir), options)
    assert sum(bool(partition.changes) for partition in plan.partitions) == sum(TOPICS.values())
    assert apply(plan, Options(**common)).exit_code is ExitCode.DONE  # type: ignore[arg-type]
    return log_dir, plan


@pytest.mark.parametrize("version", VERSIONS)
def test_purge_goes_on_while_a_topic_is_deleted_a_partition_moves_and_a_producer_writes(
    tmp_path: Path, version: str
) -> None:
    log_dir, plan = log_dir_with_kept_originals(tmp_path, version)
    other = tmp_path / "other"
    other.mkdir()
    if release(version) >= (3, 0):
        directory = base64.urlsafe_b64encode(uuid.UUID(int=0x1234_5678_9ABC_4DEF_8000_0000_0000_0001).bytes)
        (other / "meta.properties").write_text(
            f"version=1\ncluster.id={CLUSTER_ID}\nnode.id=0\ndirectory.id={directory.decode()[:22]}\n"
        )
    topics = {
        name: Topic(count, {"cleanup.policy": "compact", "segment.bytes": "1048576"})
        for name, count in TOPICS.items()
    }
    props = PROPS | {"log.dirs": f"{log_dir},{other}"}
    with Broker(version, log_dir, props, topics) as broker, ThreadPoolExecutor(3) as workers:
        before = {
            (topic, number): client.digest(client.read_all(broker.bootstrap, topic, number))
            for topic in ("moved", "stays")
            for number in range(TOPICS[topic])
        }
        written = threading.Event()

        def produce() -> int:
            producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 2})
            sent = 0
            while not written.is_set():
                producer.produce("stays", key=b"load", value=bytes(1000), partition=0)
                sent += 1
                time.sleep(0.001)
            assert producer.flush(LIMIT_S) == 0
            return sent

        load = workers.submit(produce)
        disk = SlowDisk(log_dir / "deleted-2")
        purging = workers.submit(purge, plan, Options(), disk=disk)
        disk.begun.wait(LIMIT_S)
        words = [word for number in range(TOPICS["moved"]) for word in ("moved", number)]
        moving = subprocess.Popen(
            java(version, str(MOVE), broker.bootstrap, other, *words), stdout=subprocess.PIPE, text=True
        )
        deleting = client.admin(broker.bootstrap)
        deleting.delete_topics(["deleted"])["deleted"].result(LIMIT_S)
        report = purging.result(LIMIT_S)
        assert moving.communicate(timeout=LIMIT_S)[0] == "MOVING\n"
        wait_for(lambda: all((other / f"moved-{number}").is_dir() for number in range(TOPICS["moved"])))
        # Only the roots are listed: a broker removes the folders below while one looks.
        roots = (log_dir, other)
        wait_for(
            lambda: not [name for root in roots for name in os.listdir(root) if name.endswith("-delete")]
        )
        written.set()
        sent = load.result(LIMIT_S)
        after = {key: client.digest(read(broker, *key, drop=sent)) for key in before}
        assert not [line for line in broker.log().splitlines() if any(word in line for word in BROKEN)]
        broker.stop()

    assert report.exit_code is ExitCode.DONE, report
    found = outcomes(report)
    assert {outcome for number in range(TOPICS["stays"]) for outcome in found[f"stays-{number}"]} == {
        "purged"
    }
    assert any("gone" in found[f"deleted-{number}"] for number in range(TOPICS["deleted"])), found
    assert sent > 100
    assert after == before
    assert not list(tmp_path.rglob("krepair~*"))
    assert not list(log_dir.glob("deleted-*"))


def read(broker: Broker, topic: str, number: int, *, drop: int) -> list[client.Consumed]:
    """The records of a partition without those that the load has written."""
    records = client.read_all(broker.bootstrap, topic, number)
    loaded = [record for record in records if record.key == b"load"]
    assert len(loaded) == (drop if (topic, number) == ("stays", 0) else 0)
    return [record for record in records if record.key != b"load"]
