"""What ``docs/compare.md`` says to do while the brokers run, typed as it stands there on clusters that disagree."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab import jars
from tests.lab.jars import release
from tests.lab.jvm import java
from tests.lab.three import Three
from tests.lab.waiting import wait_for
from tests.replicas.absences import TOPICS, begin, end, far, given, of_readers, repaired, without_cleaner
from tests.runbooks.page import BLOCK, Shell

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.replicas]

PAGE = Path(__file__).parents[2] / "docs" / "compare.md"
VERSIONS = [pytest.param(one, marks=pytest.mark.every_broker) for one in jars.VERSIONS]
OLD_TOOLS = "3.9.2"
"""Whose kafka-transactions.sh is tried on brokers that have none."""


def commands(heading: str) -> list[str]:
    """The commands below a heading of the page."""
    section = re.split(
        r"^##+ ", PAGE.read_text().partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE
    )[0]
    lines = "\n".join(BLOCK.findall(section)).replace("\\\n", " ").splitlines()
    return [" ".join(line.split()) for line in lines if line.strip()]


def test_the_page_has_the_commands() -> None:
    """What the tests below type, also where no broker starts."""
    assert [len(commands(heading)) for heading in HEADINGS] == [2, 3]


HEADINGS = (
    "A key is wrong: write it again",
    "A transaction never ends: abort it",
)
WRITE, ABORT = HEADINGS


@dataclass(frozen=True)
class Operator:
    """Somebody who types commands of the page with the tools of the cluster's version."""

    cluster: Three
    folder: Path

    def type(self, command: str, more: Mapping[str, str]) -> str:
        """Type one command; what it printed."""
        shell = Shell(self.folder, {**self._tools(), **more})
        code = shell.type(command)
        assert code == 0, shell.said[-1]
        return shell.said[-1][1]

    def _tools(self) -> dict[str, str]:
        version = self.cluster.version
        old = not self.cluster.kraft
        producer = "kafka.tools.ConsoleProducer"
        if release(version) >= (4, 0):
            producer = "org.apache.kafka.tools.ConsoleProducer"
        where = "--bootstrap-server b1:9092"
        return {
            "kafka-console-producer.sh": shlex.join(java(version, producer, heap="128m")),
            f"kafka-console-producer.sh {where}": shlex.join(
                java(version, producer, "--broker-list" if old else "--bootstrap-server", heap="128m")
            )
            + f" {self.cluster.bootstrap}",
            "kafka-transactions.sh": shlex.join(
                java(OLD_TOOLS if old else version, "org.apache.kafka.tools.TransactionsCommand", heap="128m")
            ),
            "b1:9092": self.cluster.bootstrap,
        }


def disagree(cluster: Three, root: Path) -> dict[str, tuple[int, int, int]]:
    """Broker 3 is in sync, has missed a tombstone (``tomb``), and cannot end two transactions (``abrt``, ``comm``).

    Returns:
        topic -> producer id, producer epoch and first offset of the transaction that is open on broker 3.
    """
    begin(cluster)
    repaired(cluster, 1, given(root, days_ahead=10, horizon=far(), only_replica=TOPICS))
    assert end(cluster).diverged == {"tomb", "abrt", "comm"}
    out = {}
    for topic in ("abrt", "comm"):
        first = next(one for one in cluster.batches(3, topic) if one.transactional)
        out[topic] = (first.producer_id, first.epoch, first.base_offset)
    return out


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_typed_while_the_brokers_run_makes_the_wrong_replica_right(
    version: str, tmp_path: Path
) -> None:
    with without_cleaner(version, tmp_path / "cluster") as cluster:
        folder = tmp_path / "operator"
        folder.mkdir()
        hanging = disagree(cluster, folder)
        cluster.start_metadata()
        cluster.start(3)
        wait_for(lambda: {one.leader for one in cluster.state("abrt").values()} == {3})
        assert cluster.serves("tomb").table[b"k1"] == b"live-1"
        assert all(
            cluster.serves(topic).stable == hanging[topic][2] < cluster.serves(topic).end for topic in hanging
        )
        operator = Operator(cluster, folder)

        def abort(topic: str, command: str, coordinator: str = "0") -> None:
            producer, epoch, first = hanging[topic]
            operator.type(
                command,
                {
                    "orders": topic,
                    "1003": str(producer),
                    "--producer-epoch 0": f"--producer-epoch {epoch}",
                    "--coordinator-epoch 0": f"--coordinator-epoch {coordinator}",
                    "--start-offset 6": f"--start-offset {first}",
                },
            )

        ask, by_producer, by_start = commands(ABORT)
        if cluster.kraft:  # broker 3 leads and has it open
            abort("comm", by_start)
        cluster.start(1, 2)
        cluster.wait_in_sync(*TOPICS, of=(1, 2, 3))
        cluster.stop(3)
        cluster.start(3)
        cluster.wait_in_sync(*TOPICS, of=(1, 2, 3))
        assert all({one.leader for one in cluster.state(topic).values()} <= {1, 2} for topic in TOPICS)
        if not cluster.kraft:
            abort("comm", by_producer)
            abort("abrt", by_producer)
        else:
            listed = operator.type(ask, {"orders": "abrt"})
            row = re.search(rf"^\s*{hanging['abrt'][0]}\s+\S+\s+(\d+)", listed, re.MULTILINE)
            abort("abrt", by_producer, row[1] if row else "0")

        value, tombstone = commands(WRITE)
        operator.type(value, {"orders": "tomb"})
        if release(version) >= (3, 2):
            operator.type(tombstone, {"orders": "tomb"})
        else:
            cluster.write("tomb", [(b"k1", None)])
        cluster.wait_in_sync(*TOPICS, of=(1, 2, 3))
        right = {topic: of_readers(cluster.serves(topic)) for topic in TOPICS}
        cluster.lead(3, TOPICS)
        for topic in TOPICS:
            served = cluster.serves(topic)
            assert of_readers(served) == right[topic], topic
            assert served.stable == served.end
        assert b"k1" not in cluster.serves("tomb").table
