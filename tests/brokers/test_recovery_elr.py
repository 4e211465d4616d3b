"""Pre-recovery of one replica of three: to the controller it stays one that was not stopped cleanly.

``KREPAIR_EVERY_BROKER=1 make test ARGS=tests/brokers/test_recovery_elr.py``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import NewTopic

from tests.brokers.killed import (
    INDEX_BYTES,
    PROPS,
    SEGMENT_BYTES,
    Traced,
    assert_headers_alone,
    ends_planned,
    logs_of,
    made_ready,
    producer,
    recovered,
    send,
    transactional,
)
from tests.lab import client
from tests.lab.broker import Broker, topic_config
from tests.lab.cluster import Follower, metadata_records
from tests.lab.jars import LATEST
from tests.lab.ports import free_port
from tests.lab.waiting import LIMIT_S, wait_for

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.every_broker,  # three brokers, about a minute
]

VERSION = LATEST
PARTITIONS = 4
OF_THREE = {
    **PROPS,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 1,
    "default.replication.factor": 3,
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[Broker]]:
    """Three brokers; the first one is the controller, too."""
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(
            Broker(VERSION, tmp_path / "0", OF_THREE, work_dir=tmp_path / "w0", port=free_port(), heap="320m")
        )
        others = [
            stack.enter_context(
                Follower(
                    first,
                    number,
                    tmp_path / str(number),
                    OF_THREE,
                    work_dir=tmp_path / f"w{number}",
                    heap="256m",
                )
            )
            for number in (1, 2)
        ]
        yield [first, *others]


def changes(controller: Broker, after: int) -> tuple[int, dict[int, list[dict[str, Any]]]]:
    """Of each partition of ``t`` the in-sync and eligible replicas that the controller wrote since then."""
    records = metadata_records(controller)
    ids = [
        one["data"]["topicId"]
        for one in records
        if one["type"] == "TOPIC_RECORD" and one["data"]["name"] == "t"
    ]
    out: dict[int, list[dict[str, Any]]] = {}
    for one in records[after:]:
        data = one["data"]
        if one["type"] == "PARTITION_CHANGE_RECORD" and data["topicId"] == ids[0]:
            kept = {
                key: data[key]
                for key in ("isr", "eligibleLeaderReplicas", "lastKnownElr")
                if data.get(key) is not None
            }
            out.setdefault(data["partitionId"], []).append({key: sorted(of) for key, of in kept.items()})
    return len(records), out


def in_sync(broker: Broker) -> list[set[int]]:
    found = client.admin(broker.bootstrap).list_topics("t", 10).topics["t"].partitions
    return [set(found[number].isrs) for number in sorted(found)]


def test_replica_that_was_made_ready_is_out_of_isr_and_elr_until_it_has_caught_up_as_after_a_crash(
    cluster: list[Broker], tmp_path: Path
) -> None:
    first, _, third = cluster
    config = {
        "segment.bytes": str(SEGMENT_BYTES),
        "segment.index.bytes": INDEX_BYTES,
        "min.insync.replicas": "3",
    }
    admin = client.admin(first.bootstrap)
    assigned = [[2, 0, 1], [2, 1, 0], [0, 1, 2], [1, 2, 0]]
    topic = NewTopic("t", PARTITIONS, replica_assignment=assigned, config=topic_config(VERSION, config))
    admin.create_topics([topic])["t"].result(LIMIT_S)
    wait_for(lambda: in_sync(first) == [{0, 1, 2}] * PARTITIONS)
    numbers = range(PARTITIONS)
    traced = Traced(third, tmp_path / "strace")
    told = []
    for ready in (False, True):
        known, _ = changes(first, 0)
        send(producer(first), numbers, 400, f"before {ready}")
        opened = transactional(first, f"open {ready}")
        opened.begin_transaction()
        send(opened, numbers, 5, "open")
        third.stop(kill=True)
        wait_for(lambda: in_sync(first) == [{0, 1}] * PARTITIONS)
        send(producer(first, **{"enable.idempotence": False, "acks": 1}), numbers, 20, "while it is down")
        logs, ends = logs_of(third.log_dir), {}
        if ready:
            ends = ends_planned(made_ready(third.log_dir, VERSION))
            assert len(ends) == PARTITIONS
        read = traced.start()
        if ready:
            assert recovered(third) == ends
            assert_headers_alone(read, logs)
        else:
            assert sum(map(len, recovered(third).values())) > 2 * PARTITIONS
        wait_for(lambda: in_sync(first) == [{0, 1, 2}] * PARTITIONS)
        opened.abort_transaction(LIMIT_S)
        told.append(changes(first, known)[1])
    # Stopped: eligible. Registered after an unclean stop: no longer. Caught up: in sync.
    steps = [
        {"isr": [0, 1], "eligibleLeaderReplicas": [2]},
        {"eligibleLeaderReplicas": []},
        {"isr": [0, 1, 2]},
    ]
    assert told == [dict.fromkeys(numbers, steps)] * 2

    served = client.read_partitions(first.bootstrap, "t", numbers)
    admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("t", number) for number in numbers]).result(
        60
    )
    wait_for(lambda: admin.list_topics("t", 10).topics["t"].partitions[0].leader == 2)
    # a new leader learns how far the others are, and serves up to there
    with contextlib.suppress(TimeoutError):
        wait_for(lambda: client.read_partitions(first.bootstrap, "t", numbers) == served)
    assert client.read_partitions(first.bootstrap, "t", numbers) == served
    assert all(len(of) > 840 for of in served.values())
