"""The runbooks for clusters, typed as they are written on a real cluster of three brokers."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import pytest

from tests.lab.broker import Topic
from tests.lab.jvm import java
from tests.lab.three import Three
from tests.lab.waiting import wait_for
from tests.replicas.absences import CONFIG, of_readers, without_cleaner
from tests.runbooks.clusters import TOPIC, Operator, everybody_serves, story_of, tombstones, write
from tests.runbooks.page import follow
from tests.runbooks.stories import DISAGREE, WHOLE

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.replicas]

UNDER_REPLICATED = (
    "kafka-topics.sh --bootstrap-server localhost:9092 --describe --under-replicated-partitions"
)
REASSIGN_TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


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


@pytest.mark.every_broker
def test_a_replica_that_disagrees_is_moved_away_and_back(tmp_path: Path) -> None:
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
        assert {one.leader for one in cluster.state(TOPIC).values()} == {1}
        reassign = shlex.join(java(cluster.version, REASSIGN_TOOL, heap="128m"))
        operator.names(3, **{"kafka-reassign-partitions.sh": reassign, "BROKER:9092": cluster.bootstrap})
        for command, code in steps[2:]:
            if command.endswith("--verify"):
                wait_for(lambda: "in progress" not in operator.type(command, code), step_s=1.0)  # noqa: B023
            else:
                operator.type(command, code)
            if command.endswith("away.json --verify"):
                wait_for(lambda: not list(cluster.log_dir(3).glob(f"{TOPIC}-0*")))
        cluster.wait_in_sync(TOPIC, of=(1, 2, 3))
        cluster.lead(3, [TOPIC])
        assert of_readers(cluster.serves(TOPIC)) == before
