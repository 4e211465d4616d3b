"""The way back as ``compare`` prints it, typed on real clusters of three, and what happens where it is not followed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.lab.jars import LATEST
from tests.lab.jvm import java
from tests.lab.three import Three
from tests.lab.waiting import wait_for
from tests.replicas.absences import TOPICS, begin, end, far, given, of_readers, repaired, without_cleaner
from tests.runbooks.page import Shell

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.replicas]

WRONG = ("tomb", "abrt", "comm")
"""Topics of which broker 3 has a wrong replica; brokers 1 and 2 are right."""


@dataclass(frozen=True)
class Operator:
    """Somebody who types what ``compare`` has printed.

    Attributes:
        cluster: the cluster.
        away, back: the commands of both halves, as printed.
        served: topic -> what a right leader serves.
        shell: where it is typed.
    """

    cluster: Three
    away: list[str]
    back: list[str]
    served: dict[str, tuple[object, ...]]
    shell: Shell

    def type(self, command: str) -> str:
        """Type one command; what it printed."""
        cluster = self.cluster
        tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        where = f"--bootstrap-server {cluster.bootstrap}"
        if not cluster.kraft:
            tool, where = "kafka.admin.ReassignPartitionsCommand", f"--zookeeper {cluster.zookeeper}"
        self.shell.names = {
            "kafka-reassign-partitions.sh": shlex.join(java(cluster.version, tool, heap="128m")),
            "--bootstrap-server BROKER:9092": where,
        }
        assert self.shell.type(command) == 0, self.shell.said[-1]
        return self.shell.said[-1][1]

    def moved(self, half: list[str]) -> None:
        """Type one half, ``--verify`` again and again until nothing is under way."""
        *before, verify = half
        for command in before:
            self.type(command)
        wait_for(lambda: "in progress" not in self.type(verify), step_s=1.0)

    def folders(self) -> list[str]:
        """Folders of wrong replicas on broker 3, also those that it is about to delete."""
        names = [path.name for path in self.cluster.log_dir(3).iterdir() if path.is_dir()]
        return sorted(name for name in names if name.partition("-")[0] in WRONG)

    def differing(self, broker: int) -> set[str]:
        """Topics of which a broker serves something else than a right one, as leader."""
        self.cluster.lead(broker, TOPICS)
        return {name for name in TOPICS if of_readers(self.cluster.serves(name)) != self.served[name]}

    def start_all(self) -> None:
        """All brokers run and are in sync; broker 3, which was alone in the ISR, leads."""
        self.cluster.end()
        self.cluster.put_back("wrong")
        self.cluster.start_metadata()
        self.cluster.start(1, 2, 3)
        self.cluster.wait_in_sync(*TOPICS, of=(1, 2, 3))

    def let_a_right_one_lead(self) -> None:
        """As printed: the broker of the wrong one is stopped, and started again."""
        self.cluster.stop(3)
        wait_for(lambda: all(self._leader(name) in {1, 2} for name in TOPICS), step_s=0.5)
        self.cluster.start(3)
        self.cluster.wait_in_sync(*TOPICS, of=(1, 2, 3))

    def _leader(self, topic: str) -> int:
        return next((one.leader for one in self.cluster.state(topic).values()), -1)


@pytest.fixture(
    scope="module",
    params=[
        LATEST,
        pytest.param("3.9.2", marks=pytest.mark.every_broker),
        pytest.param("2.2.1", marks=pytest.mark.every_broker),
    ],
)
def operator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    root = tmp_path_factory.mktemp("way-back")
    with without_cleaner(request.param, root / "cluster") as cluster:
        begin(cluster)
        repaired(cluster, 1, given(root, days_ahead=10, horizon=far(), only_replica=("*",)))
        ending = end(cluster)
        assert ending.diverged == set(WRONG)
        cluster.kept("wrong")
        folder = root / "typed"
        folder.mkdir()
        sides = " ".join(f"{broker}={cluster.log_dir(broker)}" for broker in cluster.brokers)
        shell = Shell(folder, {"SIDES": sides})
        assert shell.type("krepair compare SIDES") == 2
        away, back = printed(shell.said[-1][1])
        served = {name: of_readers(ending.first[name]) for name in TOPICS}
        yield Operator(cluster, away, back, served, shell)


def printed(page: str) -> tuple[list[str], list[str]]:
    """The commands of both halves."""
    lines = [line.strip() for line in page.splitlines()]
    commands = [line for line in lines if line.startswith(("echo '{", "kafka-reassign-partitions.sh "))]
    assert len(commands) == 6
    return commands[:4], commands[4:]


def test_a_wrong_replica_is_fetched_anew(operator: Operator) -> None:
    operator.start_all()
    operator.let_a_right_one_lead()
    operator.moved(operator.away)
    wait_for(lambda: not operator.folders(), step_s=0.5)
    operator.moved(operator.back)
    operator.cluster.wait_in_sync(*TOPICS, of=(1, 2, 3))
    assert operator.differing(3) == set()


@pytest.mark.every_broker
def test_the_broker_of_the_wrong_replica_is_down_while_it_goes_away(operator: Operator) -> None:
    """The tool refuses to give it back until then. From 3.9 on its folder is put aside at its start; 2.2.1 keeps it."""
    cluster = operator.cluster
    operator.start_all()
    operator.let_a_right_one_lead()
    cluster.stop(3)
    cluster.wait_out_of_sync("tomb", 3)
    operator.moved(operator.away)
    operator.shell.type(operator.back[0])
    assert {one.replicas for one in cluster.state("tomb").values()} == {(1, 2)}
    assert set(operator.folders()) == {f"{name}-0" for name in WRONG}
    cluster.start(3)
    if cluster.kraft:
        wait_for(lambda: all(name.endswith("-stray") for name in operator.folders()), step_s=0.5)
    else:
        assert set(operator.folders()) == {f"{name}-0" for name in WRONG}
        operator.moved(operator.back)
        operator.moved(operator.away)
        wait_for(lambda: not operator.folders(), step_s=0.5)
    operator.moved(operator.back)
    cluster.wait_in_sync(*TOPICS, of=(1, 2, 3))
    assert operator.differing(3) == set()
