"""Healthy log directories of many versions, and what a real node of another version makes of them.

Both kinds of roles: a combined node, and a broker beside a controller. Before 3.3 a broker beside ZooKeeper, cleanly
stopped and killed.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.lab.broker import CLUSTER_ID, Broker, Topic
from tests.lab.client import create_topics
from tests.lab.jars import release
from tests.lab.jvm import java
from tests.lab.ports import free_port
from tests.lab.zookeeper import ZooKeeper
from tests.start.nodes import Quorum, Seen, forget_leader, others, quorum, settings, started, voting, written

VERSIONS = ("2.2.1", "3.3.2", "3.6.2", "3.7.2", "3.9.2", "4.4.0")
KRAFT_SINCE = (3, 3)
SMALL = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": "20000000",
    "log.retention.check.interval.ms": "86400000",
    "num.network.threads": "1",
    "num.io.threads": "2",
}
READY_SECONDS = 90


class Healthy(NamedTuple):
    """One healthy directory.

    Attributes:
        version: that wrote it.
        role: ``alone`` or ``broker`` with KRaft; ``stopped`` or ``killed`` with ZooKeeper.
    """

    version: str
    role: str

    @property
    def kraft(self) -> bool:
        """Whether it is of KRaft."""
        return release(self.version) >= KRAFT_SINCE

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.version}-{self.role}"


HEALTHY = tuple(
    Healthy(version, role)
    for version in VERSIONS
    for role in (("alone", "broker") if release(version) >= KRAFT_SINCE else ("stopped", "killed"))
)


def used(bootstrap: str, version: str) -> None:
    """Let clients write: records, a compacted topic, a transaction, commits of a group."""
    create_topics(bootstrap, version, {"orders": Topic(2), "state": Topic(1, {"cleanup.policy": "compact"})})
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 2})
    for number in range(60):
        producer.produce("orders", key=b"k", value=b"%d" % number, partition=number % 2)
        producer.produce("state", key=b"k%d" % (number % 5), value=b"%d" % number)
    producer.flush(60)
    transactions = Producer({"bootstrap.servers": bootstrap, "transactional.id": "tx-1", "log_level": 2})
    transactions.init_transactions(60)
    transactions.begin_transaction()
    transactions.produce("orders", value=b"t", partition=0)
    transactions.commit_transaction(60)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "app", "log_level": 2})
    consumer.commit(offsets=[TopicPartition("orders", 0, 7)], asynchronous=False)
    consumer.close()


def make(of: Healthy, root: Path) -> Path:
    """Make a directory, once; returns its folder, in which ``logs`` lies."""
    folder = root / of.name
    if (folder / "done").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if not of.kraft:
        with Broker(of.version, folder / "logs", SMALL, work_dir=folder / "work") as broker:
            used(broker.bootstrap, of.version)
            broker.stop(kill=of.role == "killed")
        shutil.rmtree(folder / "work")
    elif of.role == "alone":
        where = quorum("alone")
        config = written(folder / "server.properties", settings(where, 0, folder / "logs", SMALL))
        formatted(of.version, config)
        ran(of.version, config, where)
    else:
        base = make(Healthy(of.version, "alone"), root)
        shutil.copytree(base / "logs", folder / "logs")
        where = quorum("broker")
        voting(folder / "logs", where)
        forget_leader(folder / "logs")
        config = written(folder / "server.properties", settings(where, 0, folder / "logs", SMALL))
        with others(of.version, where, folder / "logs", folder / "others"):
            ran(of.version, config, where, write=False)
        shutil.rmtree(folder / "others")
    (folder / "done").touch()
    return folder


def formatted(version: str, config: Path, *words: str) -> None:
    """Format the directories of a configuration."""
    argv = java(version, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config), *words)
    subprocess.run(argv, check=True, capture_output=True, text=True)


def ran(version: str, config: Path, where: Quorum, *, write: bool = True) -> None:
    """Start a node, let clients write, and stop it cleanly."""
    path = config.with_suffix(".log")
    with path.open("wb") as out:
        process = subprocess.Popen(
            java(version, "kafka.Kafka", str(config)), stdout=out, stderr=subprocess.STDOUT
        )
    try:
        end = time.monotonic() + READY_SECONDS
        while "Kafka Server started" not in path.read_text(errors="replace"):
            said = path.read_text(errors="replace")[-4000:]
            assert process.poll() is None, said
            assert time.monotonic() < end, said
            time.sleep(0.2)
        if write:
            used(f"127.0.0.1:{where.ports[3]}", version)
        process.send_signal(signal.SIGTERM)
        process.wait(READY_SECONDS)
    finally:
        process.kill()
        process.wait()


def judged(of: Healthy, made: Path, version: str, work: Path, more: Mapping[str, str] = {}) -> Seen:
    """What a node of a version makes of a copy of a directory; its controllers are of the version that wrote it.

    Args:
        of: the directory.
        made: its folder.
        version: of the node.
        work: a folder that does not exist yet.
        more: settings over those of the node.
    """
    work.mkdir(parents=True)
    log_dir = work / "logs"
    shutil.copytree(made / "logs", log_dir)
    if release(version) < (3, 0) or (not of.kraft and release(version) < (4, 0)):
        return _beside_zookeeper(version, log_dir, work)
    where = quorum("broker" if of.role == "broker" else "alone")
    if of.kraft:
        voting(log_dir, where)
    config = written(work / "server.properties", settings(where, 0, log_dir, {**SMALL, **more}))
    with others(of.version, where, log_dir, work / "others"):
        return started(version, config, [log_dir], lambda seen: seen.up, seconds=READY_SECONDS)


def _beside_zookeeper(version: str, log_dir: Path, work: Path) -> Seen:
    port, own = free_port(), free_port()
    zookeeper = ZooKeeper("2.2.1", port, work)
    try:
        lines = {
            "broker.id": "0",
            "listeners": f"PLAINTEXT://127.0.0.1:{own}",
            "zookeeper.connect": f"127.0.0.1:{port}",
            "log.dirs": str(log_dir),
            **SMALL,
        }
        config = written(work / "server.properties", lines)
        return started(version, config, [log_dir], lambda seen: seen.up, seconds=READY_SECONDS)
    finally:
        zookeeper.close()
