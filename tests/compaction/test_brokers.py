"""Real brokers write without a cleaner, krepair compacts by key, and the same brokers continue with the result."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from krepair.errors import ExitCode
from krepair.plan.review import review
from tests.brokers.serving import OF_THE_LAB, PASSIVE
from tests.compaction.directories import Verbs, keys_of, options
from tests.lab import client
from tests.lab.broker import Broker, Topic
from tests.lab.jars import LATEST
from tests.lab.waiting import LIMIT_S

pytestmark = [pytest.mark.broker, pytest.mark.slow]

KEYS, PARTITIONS, ROUNDS = 20, 40, 500
SEGMENT_BYTES = {"2.2.1": 32_768, "3.9.2": 32_768, LATEST: 1 << 20}
"""Of the brokers' own topics; 4.x takes no less than 1 MiB."""
TOPICS = {
    "k": Topic(1, {"cleanup.policy": "compact", "segment.bytes": "16384", "delete.retention.ms": "1000"}),
    "many": Topic(PARTITIONS, {}),
}


def producer(broker: Broker, codec: str = "none", transactional_id: str = "") -> Producer:
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 2, **client.QUIET,
    }  # fmt: skip
    if transactional_id:
        settings |= {"transactional.id": transactional_id, "transaction.timeout.ms": 600_000}
    made = Producer(settings)
    if transactional_id:
        made.init_transactions(LIMIT_S)
    return made


def write_values(broker: Broker) -> None:
    """A few keys again and again, in all codecs; some end in a tombstone."""
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd" if broker.kraft else "none")):
        of_codec = producer(broker, codec)
        for value in range(600):
            key = f"key-{(value + number) % KEYS}"
            of_codec.produce("k", key=key, value=f"{codec}-{value}-" + "x" * 60)
        for key in range(number, KEYS, 7):
            of_codec.produce("k", key=f"key-{key}", value=None)
        of_codec.flush(LIMIT_S)


def write_transactions(broker: Broker, transactional_id: str, rounds: int) -> None:
    """Committed and aborted values of the same keys, with offsets that are committed in the transaction."""
    sender = producer(broker, transactional_id=transactional_id)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "in-transactions", **client.QUIET}
    )
    metadata = consumer.consumer_group_metadata()
    for number in range(rounds):
        sender.begin_transaction()
        for key in range(3):
            sender.produce("k", key=f"key-{(number + key) % KEYS}", value=f"{transactional_id}-{number}")
        if number % 3 == 2:
            sender.flush(LIMIT_S)
            sender.abort_transaction(LIMIT_S)
        else:
            offsets = [TopicPartition("many", number % 3, number)]
            sender.send_offsets_to_transaction(offsets, metadata, LIMIT_S)
            sender.commit_transaction(LIMIT_S)
    consumer.close()


def _of_all(offset: int) -> list[TopicPartition]:
    return [TopicPartition("many", partition, offset) for partition in range(PARTITIONS)]


def commit_offsets(broker: Broker) -> None:
    """Three groups commit the offsets of many partitions again and again."""
    for group in ("one", "two", "three"):
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                **client.QUIET,
            }
        )
        for number in range(ROUNDS - 1):
            consumer.commit(offsets=_of_all(number), asynchronous=True)
        client.commit(consumer, _of_all(ROUNDS - 1))
        consumer.close()


Table = dict[bytes | None, bytes]


def table(broker: Broker, isolation: client.Isolation) -> tuple[Table, set[tuple[int, bytes | None]]]:
    """The last value of each key, and (offset, value) of all records."""
    records = client.read_all(broker.bootstrap, "k", isolation=isolation)
    last: dict[bytes | None, bytes | None] = {}
    for record in records:
        last[record.key] = record.value
    return {key: value for key, value in last.items() if value is not None}, {
        (record.offset, record.value) for record in records
    }


@pytest.mark.parametrize("version", ["2.2.1", LATEST, pytest.param("3.9.2", marks=pytest.mark.every_broker)])
def test_broker_goes_on_with_what_is_left_after_its_cleaner_was_dead(version: str, tmp_path: Path) -> None:
    log_dir, segment_bytes = tmp_path / "logs", SEGMENT_BYTES[version]
    props = PASSIVE | {
        "offsets.topic.segment.bytes": segment_bytes,
        "transaction.state.log.segment.bytes": segment_bytes,
        "offsets.topic.num.partitions": 1,
    }
    with Broker(version, log_dir, props, work_dir=tmp_path / "work") as broker:
        client.create_topics(broker.bootstrap, version, TOPICS)
        write_values(broker)
        write_transactions(broker, "goes-on", 60)
        commit_offsets(broker)
        write_values(broker)
        committed, all_committed = table(broker, "read_committed")
        _, everything = table(broker, "read_uncommitted")
        offsets = client.fetch_group_offsets(broker.bootstrap)
        broker.stop()

        settings = {"segment.bytes": "16384", "delete.retention.ms": "1000"}
        given = options(
            tmp_path, "k", settings=settings, now_ms=time.time_ns() // 1_000_000, assume_high_watermark=""
        )
        verbs = Verbs(log_dir, given)
        plan = verbs.plan()
        assert review(plan) == []
        parts = {part.folder: part for part in plan.partitions if part.changes}
        assert {"k-0", "__consumer_offsets-0"} <= set(parts)
        assert keys_of(parts["k-0"]).superseded > 3000
        assert keys_of(parts["k-0"]).aborted > 30
        assert keys_of(parts["__consumer_offsets-0"]).superseded > 20_000
        assert verbs.apply(plan).exit_code is ExitCode.DONE
        assert verbs.verify(plan).problems == ()
        assert not any(part.changes for part in verbs.plan().partitions)

        broker.start()
        after, left = table(broker, "read_committed")
        _, all_left = table(broker, "read_uncommitted")
        assert after == committed
        assert left < all_committed
        assert all_left < everything
        assert client.fetch_group_offsets(broker.bootstrap) == offsets
        assert offsets["two"] == {("many", number): (ROUNDS - 1, "") for number in range(PARTITIONS)}
        write_transactions(broker, "goes-on", 4)
        later, _ = table(broker, "read_committed")
        assert {value for value in later.values() if value.startswith(b"goes-on-3")} == {b"goes-on-3"}
        assert [line for line in broker.complaints() if not OF_THE_LAB.search(line)] == []
        broker.stop()
        assert verbs.purge(plan).exit_code is ExitCode.DONE
        broker.start()
        assert table(broker, "read_committed")[0] == later
