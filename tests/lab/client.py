"""View of a real client: records of a partition in both isolation levels, and committed group offsets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.lab.judge import Record, digest_of
from tests.lab.waiting import LIMIT_S, wait_for

if TYPE_CHECKING:
    from tests.lab.broker import Topic

Isolation = Literal["read_uncommitted", "read_committed"]
QUIET = {"log_level": 2}
Records = tuple[tuple[int, bytes | None, bytes | None], ...]
"""Offset, key and value."""
_PASSING = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Said while leaders move or a connection is made anew; the client goes on by itself."""
_NO_COORDINATOR_YET = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError._WAIT_COORD,
    }
)
"""Said of a group right after a start, until its partition of ``__consumer_offsets`` is led and loaded."""
TIMESTAMP_TYPES = {0: "none", 1: "CreateTime", 2: "LogAppendTime"}


class Consumed(NamedTuple):
    """One record as a consumer got it."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_type: str
    timestamp: int


_ENDED: Final[SimpleQueue[AdminClient]] = SimpleQueue()


@cache
def _begin_to_end_clients() -> None:
    def end() -> None:
        while True:
            _ENDED.get()

    threading.Thread(target=end, name="end-clients", daemon=True).start()


class _Admin(AdminClient):  # type: ignore[misc]
    """An admin client that is ended in a thread of its own.

    librdkafka may wait for ever for the thread of a broker that is gone. An object in a trace is ended whenever the
    garbage collector runs: a test that has nothing to do with it stood still there until its time was up.
    """

    def __del__(self) -> None:
        _ENDED.put(self)


def admin(bootstrap: str) -> AdminClient:
    """An admin client; keep the object as long as its futures."""
    _begin_to_end_clients()
    return _Admin({"bootstrap.servers": bootstrap, **QUIET})


def create_topics(bootstrap: str, version: str, topics: Mapping[str, Topic]) -> None:
    """Create topics with one replica and wait for the answer."""
    from tests.lab.broker import topic_config

    new = [
        NewTopic(name, topic.partitions, 1, config=topic_config(version, topic.config))
        for name, topic in topics.items()
    ]
    try:
        _create(admin(bootstrap), new)
    except KafkaException as error:
        # A client that asked before there was a controller may wait for it to the end; a new one finds it.
        if error.args[0].code() != KafkaError._TIMED_OUT:
            raise
        _create(admin(bootstrap), new)


def _create(client: AdminClient, topics: list[NewTopic]) -> None:
    for future in client.create_topics(topics, operation_timeout=60).values():
        try:
            future.result(LIMIT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # the first try was only slow
                raise


def commit(consumer: Consumer, offsets: list[TopicPartition] | None = None) -> None:
    """Commit the offsets, or what was read, as soon as the group has a coordinator."""
    given = {} if offsets is None else {"offsets": offsets}

    def committed() -> bool:
        try:
            consumer.commit(asynchronous=False, **given)
        except KafkaException as error:
            if error.args[0].code() not in _NO_COORDINATOR_YET:
                raise
            return False
        return True

    wait_for(committed)


def read_all(
    bootstrap: str,
    topic: str,
    partition: int = 0,
    isolation: Isolation = "read_uncommitted",
    timeout_s: float = LIMIT_S,
) -> list[Consumed]:
    """Every record of a partition from its start to its end, CRCs checked.

    Raises:
        RuntimeError: the client met an error.
        TimeoutError: the end was not reached in time.
    """
    return read_partitions(bootstrap, topic, [partition], isolation, timeout_s)[partition]


def read_partitions(
    bootstrap: str,
    topic: str,
    partitions: Iterable[int],
    isolation: Isolation = "read_uncommitted",
    timeout_s: float = LIMIT_S,
) -> dict[int, list[Consumed]]:
    """The same of several partitions, with one consumer.

    Raises:
        RuntimeError: the client met an error.
        TimeoutError: an end was not reached in time.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "krepair-lab-reader",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "check.crcs": True,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            **QUIET,
        }
    )
    records: dict[int, list[Consumed]] = {number: [] for number in partitions}
    waiting = set(records)
    consumer.assign([TopicPartition(topic, number, 0) for number in records])
    deadline = time.monotonic() + timeout_s
    try:
        while waiting and time.monotonic() < deadline:
            for message in consumer.consume(5000, 0.1):
                error, number = message.error(), message.partition()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    waiting.discard(number)
                elif error is not None and error.code() in _PASSING:
                    continue
                elif error is not None:
                    raise RuntimeError(f"{topic}-{number}: {error}")
                elif number in waiting:
                    records[number].append(_consumed(message))
    finally:
        consumer.close()
    if waiting:
        counts = {number: len(records[number]) for number in sorted(waiting)}
        raise TimeoutError(
            f"{topic} was not read to its end in {timeout_s} s: records of partitions {counts}"
        )
    return records


def read_to_the_end(
    bootstrap: str,
    topics: Mapping[str, Collection[int]],
    isolation: Isolation,
    done: Callable[[], bool] | None = None,
) -> dict[tuple[str, int], Records]:
    """Every record of every partition that can be read to its end, CRCs checked, with one consumer.

    Args:
        bootstrap: of the broker.
        topics: topic -> partitions.
        isolation: level of the reader.
        done: whether to wait no longer; without it, after 20 s in which nothing came.
    """
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "krepair-torture",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "check.crcs": True,
        "isolation.level": isolation,
        "fetch.wait.max.ms": 20,
    }
    consumer = Consumer(settings | QUIET)
    waiting = {(topic, number) for topic, numbers in topics.items() for number in numbers}
    out: dict[tuple[str, int], list[tuple[int, bytes | None, bytes | None]]] = {key: [] for key in waiting}
    consumer.assign([TopicPartition(topic, number, 0) for topic, number in sorted(waiting)])
    silent = 0
    try:
        while waiting and not (done() if done is not None else silent >= 40):
            messages = consumer.consume(5000, 0.5)
            silent = 0 if messages else silent + 1
            for message in messages:
                key = (message.topic() or "", message.partition() or 0)
                error = message.error()
                if error is None:
                    out[key].append((message.offset() or 0, message.key(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    waiting.discard(key)
    finally:
        consumer.close()
    return {key: tuple(records) for key, records in out.items() if key not in waiting}


def _consumed(message: Message) -> Consumed:
    kind, timestamp = message.timestamp()
    headers = tuple(message.headers() or ())
    return Consumed(
        message.offset(), message.key(), message.value(), headers, TIMESTAMP_TYPES[kind], timestamp
    )


def digest(records: Iterable[Consumed]) -> str:
    """The digest of ``tests.lab.judge``, so that a consumer's reading compares with a judge's."""

    def text(data: bytes | None) -> str | None:
        return None if data is None else data.hex()

    return digest_of(
        Record(
            r.offset,
            r.timestamp,
            r.timestamp_type,
            text(r.key),
            text(r.value),
            tuple((name, text(value)) for name, value in r.headers),
        )
        for r in records
    )


def group_ids(bootstrap: str, timeout_s: float = 30) -> list[str]:
    """The groups that the broker knows, sorted, once it has loaded all, or after that time."""
    client = admin(bootstrap)
    deadline = time.monotonic() + timeout_s
    while True:
        found = client.list_consumer_groups(request_timeout=30).result()
        if not found.errors or time.monotonic() > deadline:
            return sorted(group.group_id for group in found.valid)
        time.sleep(0.1)


def fetch_group_offsets(
    bootstrap: str, groups: Iterable[str] | None = None, timeout_s: float = LIMIT_S
) -> dict[str, dict[tuple[str, int], tuple[int, str]]]:
    """Committed offsets of groups (default: all that the broker knows) through the group protocol.

    Returns:
        group -> (topic, partition) -> (offset, metadata).
    """
    client = admin(bootstrap)
    wanted = sorted(group_ids(bootstrap) if groups is None else groups)
    out: dict[str, dict[tuple[str, int], tuple[int, str]]] = {}
    deadline = time.monotonic() + timeout_s
    for group in wanted:
        request = [ConsumerGroupTopicPartitions(group)]
        while True:
            try:
                answer = client.list_consumer_group_offsets(request, request_timeout=10)[group].result()
                found = {
                    (one.topic, one.partition): (one.offset, one.metadata or "")
                    for one in answer.topic_partitions
                }
                # Rarely the library hands out metadata with what lies behind it in memory, which may be no text.
                if out.get(group) == found:
                    break
                out[group] = found
            except Exception as error:  # right after the start the coordinator is still loading
                if time.monotonic() > deadline:
                    raise TimeoutError(f"group {group}: {error}") from error
                time.sleep(0.2)
    return out
