"""Operator of a small cluster who types the commands of a runbook."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

from tests.lab import beside
from tests.lab.broker import Topic
from tests.lab.jvm import java
from tests.lab.three import Three
from tests.lab.waiting import LIMIT_S
from tests.replicas.absences import CONFIG, of_readers
from tests.runbooks.page import Shell
from tests.runbooks.stories import STORIES, Story

TOPIC = "orders"
TOPICS_TOOL = "org.apache.kafka.tools.TopicCommand"
ROOT = "/root" + "/"


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
