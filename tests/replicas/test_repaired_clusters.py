"""krepair on a replica of a real cluster while another one is away: what it may remove, nobody misses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.options import Options
from krepair.plan.model import Plan
from krepair.plan.review import review
from tests.compaction.directories import Verbs, keys_of, options
from tests.lab.three import Three
from tests.replicas.absences import CONFIG, DAY_MS, TOPICS, Beginning, begin, end, of_readers, without_cleaner

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.replicas]


FORGOTTEN = (("producer.id.expiration.ms", "1"), ("transactional.id.expiration.ms", "1"))
"""So that no producer of the scene keeps its markers for a day."""


def given(root: Path, *, days_ahead: int = 0, horizon: str = "", **more: object) -> Options:
    now_ms = time.time_ns() // 1_000_000 + days_ahead * DAY_MS
    common: dict[str, object] = {
        "fixes": ("markers", "compact"),
        "now_ms": now_ms,
        "assume_high_watermark": "",
    }
    common["delete_horizon"] = horizon or "newest"
    common["settings_given"] = FORGOTTEN
    return options(root, *TOPICS, settings=CONFIG, **(common | more))


def repaired(cluster: Three, node: int, of: Options) -> Plan:
    verbs = Verbs(cluster.log_dir(node), of)
    plan = verbs.plan()
    assert review(plan) == []
    assert any(part.changes for part in plan.partitions)
    assert verbs.apply(plan).exit_code is ExitCode.DONE
    assert verbs.verify(plan).problems == ()
    assert verbs.purge(plan).exit_code is ExitCode.DONE
    return plan


@pytest.fixture(
    scope="module",
    params=[
        "3.9.2",
        pytest.param("2.2.1", marks=pytest.mark.every_broker),
        pytest.param("2.8.2", marks=pytest.mark.every_broker),
        pytest.param("4.3.1", marks=pytest.mark.every_broker),
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


def far() -> str:
    """A delete horizon ten days ahead."""
    return str(time.time_ns() // 1_000_000 + 10 * DAY_MS)


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


def test_all_others_in_sync_are_evidence_for_what_is_past_its_time(
    away: tuple[Three, Beginning], tmp_path: Path
) -> None:
    cluster, before = away
    put_back(cluster)
    cluster.begin()
    cluster.wait_in_sync(*TOPICS, of=(1, 2, 3))
    cluster.stop(1)
    cluster.wait_in_sync(*TOPICS, of=(2, 3))
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


def test_everything_removed_on_one_replica_alone_diverges(
    away: tuple[Three, Beginning], tmp_path: Path
) -> None:
    cluster, _ = away
    put_back(cluster)
    consent = tuple((name, 0) for name in TOPICS)
    plan = repaired(cluster, 1, given(tmp_path, days_ahead=10, horizon=far(), alone=consent))
    assert removed(plan)["tomb"][1] == 1
    after = end(cluster)
    assert after.diverged == {"tomb", "abrt", "comm"}
