"""krepair on a replica of a real cluster while another one is away removes nothing that a replica misses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from krepair.plan.model import Plan
from tests.compaction.directories import Verbs, keys_of
from tests.lab.jars import LATEST
from tests.lab.three import Three
from tests.replicas.absences import (
    DAY_MS,
    TOPICS,
    TRANSACTIONAL,
    Beginning,
    begin,
    end,
    far,
    given,
    of_readers,
    repaired,
    without_cleaner,
)

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.replicas]


@pytest.fixture(
    scope="module",
    params=[
        "3.9.2",
        pytest.param("2.2.1", marks=pytest.mark.every_broker),
        pytest.param("2.8.2", marks=pytest.mark.every_broker),
        pytest.param(LATEST, marks=pytest.mark.every_broker),
    ],
)
def away(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Three, Beginning]]:
    """A stopped cluster of which broker 3 was away, kept as ``away``."""
    with without_cleaner(request.param, tmp_path_factory.mktemp("three")) as cluster:
        yield cluster, begin(cluster)


def put_back(cluster: Three) -> None:
    """As broker 3 was away, whatever a test before has left."""
    cluster.end()
    cluster.put_back("away")


def removed(plan: Plan) -> dict[str, tuple[int, int]]:
    """Topic -> superseded records and tombstones that go."""
    out = {}
    for part in plan.partitions:
        if part.changes:
            keys = keys_of(part)
            out[part.folder.rpartition("-")[0]] = (keys.superseded, keys.tombstones_dropped)
    return out


def test_default_removes_nothing_that_a_broker_away_misses(
    away: tuple[Three, Beginning], tmp_path: Path
) -> None:
    cluster, before = away
    put_back(cluster)
    plan = repaired(cluster, 1, given(tmp_path, days_ahead=10, horizon=far()))
    went = removed(plan)
    assert set(went) == set(TOPICS)
    assert all(superseded > 10 and not tombstones for superseded, tombstones in went.values())
    for name in TOPICS[1:]:
        assert len(cluster.markers(1, name)) == 1
    after = end(cluster)
    assert after.diverged == set()
    for name in TOPICS:
        assert of_readers(after.third[name]) == of_readers(before.served[name])


@pytest.mark.every_broker
def test_describe_that_shows_a_broker_away_is_no_evidence(
    away: tuple[Three, Beginning], tmp_path: Path
) -> None:
    cluster, _ = away
    put_back(cluster)
    cluster.start_metadata()
    cluster.start(1)
    cluster.start(2)
    cluster.wait_in_sync(*TOPICS, of=(1, 2))
    cluster.stop(1)
    (tmp_path / "described").write_text(cluster.describe())
    cluster.stop(2)
    cluster.stop_all()
    plan = repaired(cluster, 1, given(tmp_path, cluster=str(tmp_path / "described")))
    assert {tombstones for _, tombstones in removed(plan).values()} == {0}
    assert [len(cluster.markers(1, name)) for name in TOPICS] == [0, 1, 1, 1]
    cluster.start_metadata()
    cluster.start(2)
    cluster.start(1)
    cluster.wait_in_sync(*TOPICS, of=(1, 2))
    cluster.stop_all()
    after = end(cluster)
    assert after.diverged == set()


@pytest.mark.every_broker
def test_all_others_in_sync_are_evidence_for_what_is_past_its_time(
    away: tuple[Three, Beginning], tmp_path: Path
) -> None:
    cluster, before = away
    put_back(cluster)
    cluster.begin()
    cluster.wait_in_sync(*TOPICS, of=(1, 2, 3))
    cluster.stop(1)
    cluster.wait_in_sync(*TOPICS, of=(2, 3))
    (tmp_path / "one").write_text(cluster.describe("free"))
    of_one = Verbs(cluster.log_dir(1), given(tmp_path, cluster=str(tmp_path / "one"))).plan()
    assert {name for name, (_, tombstones) in removed(of_one).items() if tombstones} == {"free"}
    (tmp_path / "described").write_text(cluster.describe())
    plan = repaired(cluster, 1, given(tmp_path, cluster=str(tmp_path / "described")))
    went = removed(plan)
    assert went["tomb"][1] == went["free"][1] == 1
    assert [len(cluster.markers(1, name)) for name in TOPICS] == [0, 0, 0, 0]
    cluster.start(1)
    cluster.wait_in_sync(*TOPICS, of=(1, 2, 3))
    for leader in (1, 3):
        cluster.lead(leader, TOPICS)
        for name in TOPICS:
            assert of_readers(cluster.serves(name)) == of_readers(before.served[name]), (leader, name)
        cluster.start(*(node for node in cluster.brokers if node != leader))
        cluster.wait_in_sync(*TOPICS, of=(1, 2, 3))
    cluster.stop_all()


def test_the_logs_of_all_others_keep_what_the_broker_away_still_needs(
    away: tuple[Three, Beginning], tmp_path: Path
) -> None:
    """Broker 3 has the data of all three transactions in its active segment: their markers stay on 1 and 2."""
    cluster, before = away
    put_back(cluster)
    (tmp_path / "described").write_text(before.described)
    horizon = far()
    for number, node in enumerate((1, 2, 3, 1, 2, 3)):
        others = tuple(f"{other}={cluster.log_dir(other)}" for other in (1, 2, 3) if other != node)
        folder = tmp_path / str(number)
        folder.mkdir()
        said = {"replicas": others, "cluster": str(tmp_path / "described"), "horizon": horizon}
        repaired(cluster, node, given(folder, days_ahead=10, **said), must_change=number < 2)
    for node in (1, 2):
        assert [len(cluster.markers(node, name)) for name in TRANSACTIONAL] == [1, 1, 1]
    after = end(cluster)
    assert after.diverged == set()
    for name in TOPICS:
        assert of_readers(after.third[name]) == of_readers(before.served[name])


@pytest.mark.every_broker
def test_only_replica_is_not_believed_where_the_cluster_says_otherwise(
    away: tuple[Three, Beginning], tmp_path: Path
) -> None:
    cluster, before = away
    put_back(cluster)
    (tmp_path / "described").write_text(before.described)
    said = {"only_replica": ("*",), "cluster": str(tmp_path / "described")}
    plan = repaired(cluster, 1, given(tmp_path, days_ahead=10, horizon=far(), **said))
    assert {tombstones for _, tombstones in removed(plan).values()} == {0}


@pytest.mark.every_broker
def test_as_a_broker_removes_by_time_what_a_cleaner_would_and_diverges_as_kafka_does(
    away: tuple[Three, Beginning], tmp_path: Path
) -> None:
    cluster, _ = away
    put_back(cluster)
    plan = repaired(cluster, 1, given(tmp_path, as_broker=True))
    assert removed(plan)["tomb"][1] == removed(plan)["free"][1] == 1
    assert [len(cluster.markers(1, name)) for name in TOPICS] == [0, 0, 0, 0]
    assert end(cluster).diverged == {"tomb", "abrt", "comm"}


@pytest.mark.every_broker
def test_as_a_broker_keeps_what_is_younger_than_its_retention(
    away: tuple[Three, Beginning], tmp_path: Path
) -> None:
    cluster, before = away
    put_back(cluster)
    plan = repaired(cluster, 1, given(tmp_path, as_broker=True, retention_ms=DAY_MS))
    assert {tombstones for _, tombstones in removed(plan).values()} == {0}
    assert [len(cluster.markers(1, name)) for name in TOPICS] == [0, 1, 1, 1]
    after = end(cluster)
    assert after.diverged == set()
    assert of_readers(after.third["tomb"]) == of_readers(before.served["tomb"])
