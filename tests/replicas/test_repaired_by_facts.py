"""krepair on all replicas of a real cluster by facts alone: only questions and answers travel between the brokers.

``KREPAIR_EVERY_BROKER=1`` runs it; one such cluster in every run is that of the runbook.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.options import Options
from krepair.plan.model import Evidence
from tests.compaction.directories import Verbs
from tests.lab.three import Three
from tests.replicas.absences import TOPICS, begin, end, far, given, of_readers, without_cleaner
from tests.replicas.by_facts import answer, asked

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.replicas, pytest.mark.every_broker]
REPLICAS = "1,2,3"


def described(root: Path) -> Path:
    """Who is assigned, as ``kafka-topics.sh --describe`` says it."""
    lines = []
    for name in TOPICS:
        lines.append(f"Topic: {name}\tPartitionCount: 1\tReplicationFactor: 3\tConfigs: a=1\n")
        lines.append(f"\tTopic: {name}\tPartition: 0\tLeader: 1\tReplicas: {REPLICAS}\tIsr: 1,2\n")
    path = root / "described.txt"
    path.write_text("".join(lines))
    return path


def by_answers(cluster: Three, node: int, root: Path, said: Options) -> Options:
    """The options of one broker, once all others have answered its question."""
    root.mkdir()
    question = root / "question"
    asked(cluster.log_dir(node), question, said)
    others = [other for other in cluster.brokers if other != node]
    sides = [
        answer(other, cluster.log_dir(other), question, root / f"b{other}.answer", said) for other in others
    ]
    return dataclasses.replace(said, replicas=tuple(sides))


def two_rounds(cluster: Three, root: Path) -> dict[str, int]:
    """All brokers, one after the other, twice; the markers that are left, by topic and broker."""
    left: dict[str, int] = {}
    for number in (1, 2):
        for node in cluster.brokers:
            folder = root / f"{number}-{node}"
            folder.mkdir(parents=True)
            said = given(folder, days_ahead=10, horizon=far(), cluster=str(described(folder)))
            verbs = Verbs(cluster.log_dir(node), by_answers(cluster, node, folder / "travels", said))
            plan = verbs.plan()
            ours = [part for part in plan.partitions if part.topic in TOPICS]
            assert len(ours) == len(TOPICS)
            for part in ours:
                assert isinstance(part.evidence, Evidence)
                assert part.evidence.kind == "replicas", part.evidence.why
            if any(part.changes for part in plan.partitions):
                assert verbs.apply(plan).exit_code is ExitCode.DONE
                assert verbs.verify(plan).problems == ()
                assert verbs.purge(plan).exit_code is ExitCode.DONE
            left |= {f"{part.topic}-{node}": len(cluster.markers(node, part.topic)) for part in ours}
    return left


@pytest.mark.parametrize("version", ["2.2.1", "3.9.2", "4.3.1"])
def test_two_rounds_by_facts_remove_nothing_that_a_broker_away_misses(version: str, tmp_path: Path) -> None:
    """At first broker 3 has not seen the markers, and data of them; once it has caught up, they go everywhere."""
    with without_cleaner(version, tmp_path / "three") as cluster:
        before = begin(cluster)
        left = two_rounds(cluster, tmp_path / "away")
        assert left["abrt-1"] == left["comm-1"] == left["free-1"] == 1
        after = end(cluster)
        assert after.diverged == set()
        left = two_rounds(cluster, tmp_path / "back")
        assert set(left.values()) == {0}
        again = end(cluster)
        assert again.diverged == set()
        for name in TOPICS:
            for served in (after.third, again.first, again.third):
                assert of_readers(served[name]) == of_readers(before.served[name])
