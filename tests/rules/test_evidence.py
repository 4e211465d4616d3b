"""Evidence that markers and tombstones may go, by bare facts: at each limit, and one past it."""

from __future__ import annotations

from dataclasses import replace as changed_line

import pytest

from krepair.logdir.cluster import Assignment
from krepair.rules.evidence import (
    CLOCKS_APART_MS,
    Evidence,
    Kind,
    latest_horizon_ms,
    why_not_in_sync,
    why_outdated,
)

NOW = 10_000_000


@pytest.mark.parametrize(
    ("kind", "latest"),
    [
        ("none", 0),
        ("in-sync", NOW - 70),
        ("as-broker", NOW - 70),
        ("only-replica", 2**63 - 1),
        ("replicas", 2**63 - 1),
    ],
)
def test_time_limits_only_the_evidence_that_rests_on_time(kind: Kind, latest: int) -> None:
    assert latest_horizon_ms(kind, NOW, 70) == latest
    assert Evidence(kind=kind, why="").keeps_all == (kind == "none")


@pytest.mark.parametrize(
    ("as_of", "stopped", "why"),
    [
        (NOW, NOW, ""),
        (NOW - CLOCKS_APART_MS, NOW, ""),
        (NOW - CLOCKS_APART_MS - 1, NOW, "is from 60 s before this broker's last write"),
        (NOW - 1_234_567, NOW, "is from 1234 s before this broker's last write"),
        (NOW + 1_234_567, 0, ""),
    ],
)
def test_the_state_of_a_cluster_is_of_now_within_a_minute(as_of: int, stopped: int, why: str) -> None:
    found = why_outdated(as_of, stopped)
    assert why in found
    assert bool(found) == bool(why)


LINE = Assignment(topic_id="x" * 22, replicas=(1, 2, 3), isr=(2, 3), leader=2, moving=False)


@pytest.mark.parametrize(
    ("broker", "topic_id", "changed", "why"),
    [
        (1, "x" * 22, {}, ""),
        (1, "", {}, ""),
        (1, "x" * 22, {"topic_id": ""}, ""),
        (1, "y" * 22, {}, "topic id"),
        (-1, "", {}, "meta.properties"),
        (4, "", {}, "not among its replicas"),
        (1, "", {"isr": (1, 2, 3)}, "still in sync"),
        (1, "", {"isr": (2,)}, "replica 3 is not in sync"),
        (1, "", {"leader": -1}, "no other replica"),
        (1, "", {"leader": 1}, "no other replica"),
        (1, "", {"leader": 3, "isr": (2,)}, "no other replica"),
        (1, "", {"replicas": (1,), "isr": (), "leader": -1}, "--only-replica TOPIC"),
        (1, "", {"replicas": (1, 2, 3, 4)}, "replica 4 is not in sync"),
    ],
)
def test_a_line_of_describe_is_evidence_only_if_all_others_are_in_sync_without_this_broker(
    broker: int, topic_id: str, changed: dict[str, object], why: str
) -> None:
    found = why_not_in_sync(broker, topic_id, changed_line(LINE, **changed))
    assert why in found
    assert bool(found) == bool(why)


def test_a_partition_that_describe_does_not_list_has_no_evidence() -> None:
    assert "does not list it" in why_not_in_sync(1, "", None)
