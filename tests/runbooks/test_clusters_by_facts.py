"""A stopped cluster of three is repaired as the runbook says, and nothing but questions and answers travels."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.lab.three import Three
from tests.replicas.absences import of_readers, without_cleaner
from tests.runbooks.clusters import ROOT, TOPIC, Operator, everybody_serves, story_of, tombstones, write
from tests.runbooks.page import follow
from tests.runbooks.stories import WHOLE

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.replicas]
FIRST_ROUND = 4
PROPERTIES = "/etc/kafka/server.properties"
TRANSACTIONAL = 0x10


def in_transactions(cluster: Three, node: int) -> list[int]:
    """The last offsets of batches that belong to a transaction and still have a record."""
    return [
        one.last_offset
        for one in cluster.batches(node, TOPIC)
        if one.attributes & TRANSACTIONAL and not one.ends_transaction and one.records
    ]


def test_a_stopped_cluster_is_repaired_by_facts_that_travel(tmp_path: Path) -> None:
    story = story_of(WHOLE, 2)
    with without_cleaner(story.cluster, tmp_path / "cluster") as cluster:
        write(cluster)
        before = of_readers(cluster.serves(TOPIC))
        operator = Operator(cluster, tmp_path / "root")
        cluster.stop(3, 2)
        (operator.shell.folder / "described.txt").write_text(cluster.describe())
        cluster.stop_all()
        steps = list(follow(story.page, story.steps))
        for part, left in ((steps[:FIRST_ROUND], 1), (steps[FIRST_ROUND:], 0)):
            for node in cluster.brokers:
                first, second = [broker for broker in cluster.brokers if broker != node]
                folder = operator.shell.folder
                turned = {
                    "2026-11-22T12:00:00Z": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                    "/mnt/b1/kafka": str(cluster.log_dir(node)),
                    "/mnt/b2/kafka": str(cluster.log_dir(first)),
                    "/mnt/b3/kafka": str(cluster.log_dir(second)),
                    "2=/var/tmp/b2.answer": f"{first}={folder}/b2.answer",
                    "3=/var/tmp/b3.answer": f"{second}={folder}/b3.answer",
                    f"{ROOT}facts_1.krplan": str(folder / f"{node}-facts.krplan"),
                    "/var/tmp": str(folder),
                }
                # Each answers on its own host, with its own configuration.
                answering = {"krepair facts /mnt/b2/": first, "krepair facts /mnt/b3/": second}
                operator.names(node, **turned)
                for command, code in part:
                    whose = next((one for at, one in answering.items() if command.startswith(at)), node)
                    properties = str(cluster.work / f"node-{whose}.properties")
                    operator.shell.names = {**operator.shell.names, PROPERTIES: properties}
                    operator.type(command, code)
                assert tombstones(cluster, node) == left
                # the last value of a key was written in a transaction: its batch stays, and so does its marker
                assert (
                    left
                    or cluster.markers(node, TOPIC)
                    == [one + 1 for one in in_transactions(cluster, node)]
                    != []
                )
        cluster.begin()
        cluster.wait_in_sync(TOPIC, of=(1, 2, 3))
        everybody_serves(cluster, before)
