"""The files for ``kafka-reassign-partitions.sh`` are right by who is wrong, and are not there where nobody is right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from krepair.ops.compare import WayBack, way_back
from krepair.rules.replicas import model as m
from tests.replicas.real_clusters import compared, unpack_cluster


def column(broker: int) -> m.ReplicaColumn:
    return m.ReplicaColumn(
        broker=broker,
        log_start=0,
        log_end=9,
        last_stable_offset=9,
        high_watermark=9,
        cleaner_position=-1,
        clean_stop=True,
        log_bytes=1,
        segments=1,
    )


def verdict(number: int, right: tuple[int, ...], *found: m.Disagreement) -> m.PartitionVerdict:
    return m.PartitionVerdict(
        topic="orders",
        partition=number,
        verdict=m.DIVERGED,
        disagreements=found,
        right=right,
        replicas=tuple(column(broker) for broker in (1, 2, 3, 4)),
    )


def found(
    kind: str, *brokers: int, right: tuple[int, ...] = (), may_lead: tuple[int, ...] = ()
) -> m.Disagreement:
    return m.Disagreement(
        kind=kind, rule=m.RULE_OF[kind], brokers=brokers, offset=0, text="", right=right, may_lead=may_lead
    )


def replicas(text: str) -> list[list[int]]:
    return [row["replicas"] for row in json.loads(text)["partitions"]]


def test_right_replicas_come_first_and_wrong_ones_go_and_come_back_last() -> None:
    way = way_back(
        [
            verdict(0, (2, 4), found(m.TOMBSTONE_MISSED, 1, right=(2, 4)), found(m.BEHIND, 3)),
            verdict(1, (4,), found(m.STUCK, 1, right=(4,)), found(m.LOST, 2, right=(4,))),
        ]
    )
    assert way is not None
    assert replicas(way.away) == [[2, 4, 3], [4, 3]]
    assert replicas(way.back) == [[2, 4, 3, 1], [4, 3, 1, 2]]
    assert (way.wrong, way.right) == (
        {"orders-0": (1,), "orders-1": (1, 2)},
        {"orders-0": (2, 4), "orders-1": (4,)},
    )


@pytest.mark.parametrize(
    "one",
    [
        verdict(0, (), found(m.FORK, 1, 2)),
        verdict(0, (1, 2), found(m.BEHIND, 3)),
        verdict(0, (1, 2), found(m.LEADER_DECIDES, 3, may_lead=(2,))),
        verdict(0, (), found(m.UNKNOWN_LOSS, 1)),
    ],
)
def test_there_is_no_way_back_where_nobody_is_right_or_nobody_is_wrong(one: m.PartitionVerdict) -> None:
    assert way_back([one]) is None


def test_a_replica_that_nobody_can_lead_without_harm_is_wrong() -> None:
    way = way_back([verdict(0, (1, 2), found(m.LEADER_DECIDES, 3))])
    assert way is not None
    assert way.wrong == {"orders-0": (3,)}


def test_so_many_at_a_time() -> None:
    way = way_back([verdict(number, (2,), found(m.LOST, 1, right=(2,))) for number in range(50)])
    assert isinstance(way, WayBack)
    assert (len(replicas(way.away)), way.left) == (40, 10)


def test_the_report_of_a_real_cluster_has_it(tmp_path: Path) -> None:
    unpack_cluster("open-4.3.1-tomb", tmp_path)
    way = compared(tmp_path).way_back
    assert way is not None
    assert (replicas(way.away), replicas(way.back)) == ([[1, 2]], [[1, 2, 3]])
