"""The runbooks for clusters, typed as they are written on a real cluster of three brokers."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import pytest

from tests.lab import beside
from tests.lab.broker import Topic
from tests.lab.jvm import java
from tests.lab.three import Three
from tests.lab.waiting import LIMIT_S, wait_for
from tests.replicas.absences import CONFIG, of_readers, without_cleaner
from tests.runbooks.page import Shell, follow
from tests.runbooks.stories import DISAGREE, STORIES, WHOLE, Story

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.replicas]

TOPIC = "orders"
TOPICS_TOOL = "org.apache.kafka.tools.TopicCommand"
ROOT = "/root" + "/"
UNDER_REPLICATED = (
    "kafka-topics.sh --bootstrap-server localhost:9092 --describe --under-replicated-partitions"
)


def story_of(page: str, place: int = 0) -> Story:
    return [story for story in STORIES if story.page == page][place]


class Operator:
    """Somebody at the brokers of a cluster who follows a page."""

    def __init__(self, cluster: Three, root: Path) -> None:
        self.cluster = cluster
        root.mkdir()
        synonyms = "".join(
            f"  {key}={value} sensitive=false synonyms={{DYNAMIC_TOPIC_CONFIG:{key}={value}}}\n"
            for key, value in CONFIG.items()
        )
        (root / "topics.txt").write_text(f"All configs for topic {TOPIC} are:\n{synonyms}")
        self.shell = Shell(root, {})

    def names(self, node: int, **more: str) -> None:
        """What stands in the page, as it is at one broker."""
        properties = self.cluster.work / f"node-{node}.properties"
        self.shell.names = {
            "/var/lib/kafka": str(self.cluster.log_dir(node)),
            "/etc/kafka/server.properties": str(properties),
            "/root": str(self.shell.folder),
            **{
                f"{ROOT}{name}": str(self.shell.folder / f"{node}-{name}")
                for name in ("cluster.krplan", "first_1.krplan", "second_1.krplan")
            },
            "localhost:9092": self.cluster.bootstrap,
            "OTHER-BROKER:9092": self.cluster.bootstrap,
            "kafka-topics.sh": shlex.join(java(self.cluster.version, TOPICS_TOOL, heap="128m")),
            **{f"/mnt/b{broker}/kafka": str(self.cluster.log_dir(broker)) for broker in self.cluster.brokers},
            **more,
        }

    def type(self, command: str, code: int) -> str:
        """One command of the page; what it printed."""
        assert self.shell.type(command) == code, (command, self.shell.said[-1][1][-3000:])
        return self.shell.said[-1][1]


def write(cluster: Three) -> None:
    """A few keys again and again, a tombstone, and transactions."""
    cluster.create({TOPIC: Topic(1, CONFIG)})
    sender = cluster.producer("tx")
    for number in range(3):
        cluster.write(TOPIC, [(b"a", b"%d" % number), (b"gone", b"%d" % number)])
        sender.begin_transaction()
        cluster.write(TOPIC, [(b"b", b"%d" % number)], sender)
        sender.commit_transaction(LIMIT_S) if number != 1 else sender.abort_transaction(LIMIT_S)
        cluster.fill(TOPIC, 8)
    cluster.write(TOPIC, [(b"gone", None)])
    for _ in range(2):
        cluster.fill(TOPIC, 12)
        time.sleep(1.3)


def tombstones(cluster: Three, node: int) -> int:
    """How often the deleted key is there with and without a value."""
    return sum(
        content.count(b"gone") for content in beside.read(cluster.log_dir(node) / f"{TOPIC}-0").values()
    )


def everybody_serves(cluster: Three, wanted: object) -> None:
    for leader in (1, 3):
        cluster.lead(leader, [TOPIC])
        assert of_readers(cluster.serves(TOPIC)) == wanted, leader
        cluster.start(*(node for node in cluster.brokers if node != leader))
        cluster.wait_in_sync(TOPIC, of=(1, 2, 3))


def test_a_cluster_is_repaired_broker_by_broker_while_it_runs(tmp_path: Path) -> None:
    story = story_of(WHOLE)
    with without_cleaner(story.cluster, tmp_path / "cluster") as cluster:
        write(cluster)
        before = of_readers(cluster.serves(TOPIC))
        operator = Operator(cluster, tmp_path / "root")
        for node in cluster.brokers:
            for command, code in follow(story.page, story.steps):
                operator.names(node)
                if command.startswith("systemctl stop"):
                    cluster.stop(node)
                    cluster.wait_out_of_sync(TOPIC, node)
                elif command.startswith("systemctl start"):
                    cluster.start(node)
                    cluster.wait_in_sync(TOPIC, of=(1, 2, 3))
                else:
                    said = operator.type(command, code)
                    assert command != UNDER_REPLICATED or "Topic:" not in said
            assert tombstones(cluster, node) == 0
            assert of_readers(cluster.serves(TOPIC)) == before
        everybody_serves(cluster, before)


def test_a_stopped_cluster_is_repaired_in_two_rounds(tmp_path: Path) -> None:
    story = story_of(WHOLE, 1)
    with without_cleaner(story.cluster, tmp_path / "cluster") as cluster:
        write(cluster)
        before = of_readers(cluster.serves(TOPIC))
        operator = Operator(cluster, tmp_path / "root")
        cluster.stop(3, 2)
        (operator.shell.folder / "described.txt").write_text(cluster.describe())
        cluster.stop_all()
        steps = list(follow(story.page, story.steps))
        for part, left in ((steps[:4], 1), (steps[4:8], 0)):
            for node in cluster.brokers:
                others = [broker for broker in cluster.brokers if broker != node]
                turned = {
                    "2026-11-22T12:00:00Z": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                    "/mnt/b1/kafka": str(cluster.log_dir(node)),
                    "2=/mnt/b2/kafka": f"{others[0]}={cluster.log_dir(others[0])}",
                    "3=/mnt/b3/kafka": f"{others[1]}={cluster.log_dir(others[1])}",
                }
                operator.names(node, **turned)
                for command, code in part:
                    operator.type(command, code)
                assert tombstones(cluster, node) == left
            operator.names(1)
            operator.type(*steps[8])
        cluster.begin()
        cluster.wait_in_sync(TOPIC, of=(1, 2, 3))
        everybody_serves(cluster, before)


def test_a_replica_that_disagrees_is_fetched_anew(tmp_path: Path) -> None:
    story = story_of(DISAGREE)
    config = CONFIG | {"min.cleanable.dirty.ratio": "0.001", "delete.retention.ms": "0"}
    with Three(story.cluster, tmp_path / "cluster") as cluster:
        cluster.create({TOPIC: Topic(1, config)})
        cluster.write(TOPIC, [(b"gone", b"here")])
        cluster.stop(3)
        cluster.write(TOPIC, [(b"gone", None)])

        def cleaned() -> bool:
            cluster.fill(TOPIC, 8)
            return tombstones(cluster, 1) + tombstones(cluster, 2) == 0

        wait_for(cleaned, step_s=0.5)
        cluster.start(3)
        cluster.wait_in_sync(TOPIC, of=(1, 2, 3))
        before = of_readers(cluster.serves(TOPIC))
        cluster.stop_all()
        operator = Operator(cluster, tmp_path / "root")
        steps = list(follow(story.page, story.steps))
        for step in steps[:2]:
            operator.names(3, **{"orders-0": f"{TOPIC}-0"})
            said = operator.type(*step)
            assert "tombstone-missed" in said
        cluster.begin()
        cluster.wait_in_sync(TOPIC, of=(1, 2, 3))
        for command, code in steps[2:]:
            operator.names(3)
            operator.shell.names = {
                **operator.shell.names,
                **{f"/mnt/b{node}/kafka": str(tmp_path / f"snapshot-{node}") for node in (1, 2)},
                "2026-11-22T12:00:00Z": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            }
            if command.startswith("systemctl stop"):
                cluster.stop(3)
                cluster.wait_out_of_sync(TOPIC, 3)
                for node in (1, 2):
                    beside.copied(cluster.log_dir(node), tmp_path / f"snapshot-{node}")
            elif command.startswith("systemctl start"):
                cluster.start(3)
                cluster.wait_in_sync(TOPIC, of=(1, 2, 3))
            else:
                operator.type(command, code)
        cluster.lead(3, [TOPIC])
        assert of_readers(cluster.serves(TOPIC)) == before
