"""The leader during a replica's catch-up decides the outcome: krepair's prediction against what happens."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.ops.compare import CompareReport
from krepair.options import Options
from krepair.rules.replicas import model as m
from tests import naive
from tests.builders import LogDir, Record, data, marker
from tests.compaction.directories import Verbs, options
from tests.lab import beside
from tests.replicas.entries import ABORT, COMMIT, fates
from tests.replicas.model import NOBODY, Cluster, kind_of
from tests.replicas.real_clusters import compared, unpack_cluster
from tests.replicas.said import compared_cluster

ABSENT = "absent-3.9.2"
ONLY = ("rand-only", "txn-only", "tomb-only")
MORE = int(os.environ.get("KREPAIR_REPLICA_HISTORIES", "0"))


def said_of(report: CompareReport) -> dict[str, m.PartitionVerdict]:
    return {one.topic: one for one in report.partitions}


def decided(verdict: m.PartitionVerdict) -> m.Disagreement:
    [found] = [one for one in verdict.disagreements if one.kind == m.LEADER_DECIDES]
    return found


def removed_on_one(root: Path) -> None:
    """krepair removes on broker 1 all that an only replica may lose, untruly."""
    given: Options = options(
        root,
        *ONLY,
        fixes=("markers", "compact"),
        now_ms=1_800_000_000_000,
        delete_horizon=str(1_800_000_000_000),
        only_replica=("*",),
        assume_high_watermark="",
    )
    verbs = Verbs(root / "b1", given)
    assert verbs.apply(verbs.plan()).exit_code is ExitCode.DONE


def test_a_replica_that_is_behind_is_told_who_must_lead_once_another_one_has_removed_what_it_lacks(
    tmp_path: Path,
) -> None:
    """Seen on real brokers: led by broker 1 all three topics diverged, led by broker 2 none did."""
    unpack_cluster(ABSENT, tmp_path)
    before = said_of(compared(tmp_path, topics=ONLY))
    assert {one.verdict for one in before.values()} == {m.IS_BEHIND}
    removed_on_one(tmp_path)
    report = compared(tmp_path, topics=ONLY)
    assert report.exit_code is ExitCode.FOUND
    for verdict in report.partitions:
        found = decided(verdict)
        assert verdict.verdict == m.DECIDED_BY_LEADER
        assert (found.brokers, found.may_lead, found.must_not_lead) == ((3,), (2,), (1,))
        assert verdict.right == (1, 2)
        assert [one.state for one in verdict.replicas] == [m.MUST_NOT_LEAD, m.AS_IT_SHOULD_BE, m.IS_BEHIND]
    assert [line.key for line in decided(said_of(report)["tomb-only"]).keys] == ["k1", "k2", "k3"]


def test_a_broker_that_has_removed_a_marker_is_not_wrong_where_a_third_one_still_has_it(
    tmp_path: Path,
) -> None:
    unpack_cluster(ABSENT, tmp_path)
    [verdict] = compared(tmp_path, topics=("dstuck",)).partitions
    [found] = verdict.disagreements
    assert (found.kind, found.may_lead, found.must_not_lead) == (m.LEADER_DECIDES, (2,), (1,))
    assert "stall at offset 9" in found.text
    assert verdict.right == (1, 2)


def catch_up(root: Path, leader: int, topics: tuple[str, ...]) -> None:
    """Broker 3 fetches the batches of a leader from its own end on."""
    for topic in topics:
        mine, theirs = (root / f"b{broker}" / f"{topic}-0" for broker in (3, leader))
        last = sorted(mine.glob("*.log"))[-1]
        end = naive.parse(last.read_bytes())[-1].last_offset + 1
        for content in beside.read(theirs).values():
            for batch in naive.parse(content):
                if batch.base_offset >= end:
                    with last.open("ab") as log:
                        log.write(content[batch.position : batch.position + batch.size])


@pytest.mark.parametrize("leader", [1, 2])
def test_what_becomes_of_it_under_each_leader_is_what_was_told(leader: int, tmp_path: Path) -> None:
    unpack_cluster(ABSENT, tmp_path)
    removed_on_one(tmp_path)
    topics = (*ONLY, "dstuck")
    catch_up(tmp_path, leader, topics)
    found = {one.topic: one.verdict for one in compared(tmp_path, topics=topics).partitions}
    assert set(found.values()) <= ({m.DIVERGED} if leader == 1 else {m.HARMLESS}), found


@pytest.mark.parametrize("topic", ["dabrt", "dcomm"])
def test_where_nobody_has_the_marker_any_more_the_last_values_are_equal_and_nothing_is_said(
    topic: str, tmp_path: Path
) -> None:
    """A limit: broker 3 then ends the transaction with the next marker of its producer."""
    unpack_cluster(ABSENT, tmp_path)
    assert {one.verdict for one in compared(tmp_path, topics=(topic,)).partitions} == {m.IS_BEHIND}
    catch_up(tmp_path, 1, (topic,))
    assert compared(tmp_path, topics=(topic,)).exit_code is ExitCode.DONE


def three_of(root: Path, first: int, second: int, *, caught_up: bool) -> None:
    """Broker 3 has the data of a producer's first transaction; broker 2 alone has kept its marker.

    The same keys have been written again since, so the last values do not show how it ended.
    """
    again = data(4, [Record(b"a", b"2"), Record(b"b", b"2")])
    later = [data(6, [Record(b"c", b"3")], pid=7, txn=True, sequence=2), marker(7, second, pid=7)]
    open_data = data(1, [Record(b"a", b"1"), Record(b"b", b"1")], pid=7, txn=True, sequence=0)
    before = data(0, [Record(b"z", b"0")])
    closed = {1: [before], 2: [before, marker(3, first, pid=7)], 3: [before, open_data]}
    for broker, batches in closed.items():
        directory = LogDir(root / f"b{broker}")
        ahead = [again, *later] if broker < 3 or caught_up else []
        directory.partition("t").segment(*batches, *ahead)
        cleaner = {} if broker == 3 else {"t-0": 4}
        directory.write(cleaner_points=cleaner, broker=broker)


@pytest.mark.parametrize(
    ("first", "second", "kind", "words"),
    [
        (ABORT, COMMIT, m.ABORTED_TO_COMMITTED, "serve aborted records from offset 1"),
        (COMMIT, ABORT, m.COMMITTED_TO_ABORTED, "hide committed records from offset 1"),
    ],
)
def test_where_one_replica_still_has_the_marker_it_is_told_before_and_found_afterwards(
    first: int, second: int, kind: str, words: str, tmp_path: Path
) -> None:
    three_of(tmp_path / "before", first, second, caught_up=False)
    [verdict] = compared(tmp_path / "before").partitions
    found = decided(verdict)
    assert words in found.text
    assert (found.may_lead, found.must_not_lead) == ((2,), (1,))
    three_of(tmp_path / "after", first, second, caught_up=True)
    [verdict] = compared(tmp_path / "after").partitions
    assert [(one.kind, one.brokers) for one in verdict.disagreements] == [(kind, (3,))]
    assert verdict.right == (1, 2)


# -- clusters made by code ----------------------------------------------------------------------------


def left_behind(seed: int) -> Cluster | None:
    """One broker was away, and only some of the others have removed what it missed; all have stopped."""
    kind = kind_of(
        seed, compacted=True, by_time=False, losses=seed % 2 == 0, replaced=False, steps=20 + seed % 5 * 10
    )
    cluster = Cluster(seed, kind).play()
    if cluster.absence(cluster.chance.randint(3, 20)) == NOBODY:
        return None
    cleaning = [broker for broker in cluster.alive if cluster.chance.random() < 0.5]
    for _ in range(3):
        cluster.now_ms += kind.retention_ms + kind.expiration_ms
        cluster.write(None)
        cluster.replicate()
        for broker in cluster.alive:
            cluster.replicas[broker].roll(cluster.now_ms)
            if broker in cleaning or cluster.chance.random() < 0.15:
                cluster.clean(broker)
    for _ in range(cluster.chance.randint(0, 8)):
        cluster.produce()
    cluster.end_all()  # what an open transaction hides is served later
    cluster.replicate()
    cluster.stop_all()
    return None if cluster.forks() else cluster


def harm(cluster: Cluster, leader: int, broker: int) -> str:
    """What is wrong with a replica once it has caught up under a leader, by last values or by records."""
    after = cluster.caught_up(leader, broker)
    if broker in (found := after.diverged()):
        return "values: " + found[broker]
    replica = after.replicas[broker]
    mine, right = fates(replica.received)[0], fates(replica.shadow)[0]
    wrong = [
        one.base
        for one in replica.entries
        if one.txn and one.data and mine.get(one.base) != right.get(one.base)
    ]
    return f"records: {wrong}" if wrong else ""


@pytest.mark.slow
def test_what_is_told_of_leaders_is_what_the_model_makes_of_them(tmp_path: Path) -> None:
    """Nothing is told that does no harm; harm that depends on the leader is told, or the replica is called wrong."""
    seen: Counter[str] = Counter()
    for seed in range(160 + MORE):
        cluster = left_behind(seed)
        if cluster is None:
            continue
        verdict = compared_cluster(cluster, tmp_path / str(seed))
        told = {one.brokers[0]: one for one in verdict.disagreements if one.kind == m.LEADER_DECIDES}
        wrong = {
            broker
            for one in verdict.disagreements
            if one.kind not in {m.BEHIND, m.LEADER_DECIDES}
            for broker in one.brokers
        }
        for broker, replica in cluster.replicas.items():
            ahead = [one for one, other in cluster.replicas.items() if other.end > replica.end]
            becomes = {leader: harm(cluster, leader, broker) for leader in ahead if leader not in wrong}
            bad = set(told[broker].must_not_lead) - wrong if broker in told else set()
            where = (seed, broker, becomes, verdict)
            assert all(becomes[leader] for leader in bad), where
            values = {leader for leader, what in becomes.items() if what.startswith("values")}
            if broker in wrong or not values:
                continue
            if values < becomes.keys():  # another leader does no harm that can be told
                assert values <= bad, where
                assert set(told[broker].may_lead) == becomes.keys() - bad, where
                seen["decided"] += 1
            else:
                seen["harm by all, told" if bad else "harm by all, not told"] += 1
    assert seen["decided"] >= 10, seen
    assert seen["harm by all, not told"] <= seen["decided"] // 4, seen
