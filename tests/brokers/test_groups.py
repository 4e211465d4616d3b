"""What ``krepair groups`` says of a log directory is what brokers answer through the group protocol on the same one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import defaultdict
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_STORED, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions

from krepair.errors import ExitCode
from krepair.ops.dump import Dump
from krepair.ops.groups import GroupsReport, groups
from krepair.options import EngineName, Options
from tests.brokers.serving import PASSIVE, topics_of
from tests.fixture_dirs import unpack
from tests.lab import beside, client
from tests.lab.broker import Broker, Topic
from tests.lab.jars import LATEST
from tests.lab.jvm import java
from tests.lab.waiting import LIMIT_S, wait_for

pytestmark = [pytest.mark.broker, pytest.mark.slow]

NEWER_GROUPS = Path(__file__).parents[1] / "lab" / "java" / "NewerGroups.java"
EVERY = os.environ.get("KREPAIR_EVERY_BROKER") == "1"
BLOAT, TV2 = "offsets-bloat-2.2.0-clean", "offsets-tv2-4.3.1"


def ours(log_dir: Path) -> GroupsReport:
    return groups(str(log_dir), Options(engine=EngineName.INLINE))


def commits_of(report: GroupsReport) -> dict[str, dict[tuple[str, int], tuple[int, str]]]:
    return {
        group.group: {(each.topic, each.partition): (each.offset, each.metadata) for each in group.commits}
        for group in report.groups
        if group.state != "Dead"
    }


def described(broker: Broker, names: list[str]) -> dict[str, Any]:
    admin = client.admin(broker.bootstrap)
    futures = admin.describe_consumer_groups(names, request_timeout=LIMIT_S)
    return {name: future.result(LIMIT_S) for name, future in futures.items()}


@pytest.mark.parametrize(
    ("fixture", "version"), [(BLOAT, "2.2.1"), *([(BLOAT, "3.9.2")] if EVERY else []), (TV2, LATEST)]
)
def test_groups_and_their_commits_are_what_a_broker_answers(
    tmp_path: Path, fixture: str, version: str
) -> None:
    log_dir = unpack(fixture, tmp_path)
    report = ours(log_dir)
    copy = Path(shutil.copytree(log_dir, tmp_path / "copy"))
    with Broker(version, copy, PASSIVE, topics_of(copy)) as broker:
        names = sorted(commits_of(report))
        # until the coordinator has loaded its partitions it knows fewer
        wait_for(lambda: client.group_ids(broker.bootstrap) == names)
        answered = client.fetch_group_offsets(broker.bootstrap)
        states = {name: each.state.name for name, each in described(broker, names).items()}
    assert commits_of(report) == answered
    assert len(answered) > 5
    assert sum(len(each) for each in answered.values()) > 8
    for group in report.groups:
        # members of the fixture's time are gone: a broker finds that out after their session timeout
        if group.state == "Empty":
            assert states[group.group] == "EMPTY"
        else:
            assert states[group.group] in {"STABLE", "PREPARING_REBALANCING", "EMPTY"}


COORDINATORS = [(LATEST, False), *([("3.9.2", True)] if os.environ.get("KREPAIR_EVERY_STATE") else [])]
"""Each with whether it finds a commit in another partition that it leads."""


@pytest.mark.parametrize(("version", "sees"), COORDINATORS)
def test_commits_before_a_raised_number_of_partitions(tmp_path: Path, version: str, sees: bool) -> None:
    """A coordinator since 4.0 looks in one partition. An older one finds what lies in any that it leads."""
    names = [*(f"grp-{number}" for number in range(6)), "größe", "\U0001d4a2", "deleted once"]
    with Broker(version, tmp_path / "logs", PASSIVE) as broker:
        client.create_topics(broker.bootstrap, version, {"t-a": Topic(1, {})})
        for name in names:
            consumer = joined(broker, name, "classic", ["t-a"], name="one")
            # a coordinator refuses the commit of a member that has not joined to the end
            wait_for(partial(has_partitions, consumer))
            client.commit(consumer, [TopicPartition("t-a", 0, 10)])
            consumer.close()
        admin = client.admin(broker.bootstrap)
        admin.create_partitions([NewPartitions("__consumer_offsets", 5)])["__consumer_offsets"].result(
            LIMIT_S
        )
        wait_for(lambda: len(list((tmp_path / "logs").glob("__consumer_offsets-*"))) == 5)
        broker.stop()
        report = ours(Path(shutil.copytree(tmp_path / "logs", tmp_path / "copy")))
        broker.start()
        wait_for(lambda: client.group_ids(broker.bootstrap) == sorted(names))
        answered = client.fetch_group_offsets(broker.bootstrap, names)
    hidden = {group.group for group in report.groups if group.unseen_commits}
    assert 2 < len(hidden) < len(names)
    assert {name for name in names if not answered[name]} == (set() if sees else hidden)
    assert all(commit.out_of_range for group in report.groups for commit in group.commits)


def joined(broker: Broker, group: str, protocol: str, topics: list[str], name: str) -> Consumer:
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": name, "group.protocol": protocol,
        "enable.auto.commit": False, "auto.offset.reset": "earliest", **client.QUIET,
        # a leader that had joined before it knew a topic would learn of it after five minutes
        "topic.metadata.refresh.interval.ms": 1000,
    }  # fmt: skip
    consumer = Consumer(settings)
    consumer.subscribe(topics)
    return consumer


def has_partitions(consumer: Consumer) -> bool:
    consumer.poll(0.1)
    return bool(consumer.assignment())


@pytest.mark.parametrize(
    ("version", "protocols"), [(LATEST, ("classic", "consumer")), ("2.2.1", ("classic",))]
)
def test_members_subscriptions_and_states_are_what_a_broker_says(
    tmp_path: Path, version: str, protocols: tuple[str, ...]
) -> None:
    consumers: list[Consumer] = []
    with (
        Broker(version, tmp_path / "logs", PASSIVE, work_dir=tmp_path / "work") as broker,
        ExitStack() as leaving,
    ):
        client.create_topics(broker.bootstrap, version, {name: Topic(2, {}) for name in ("t-a", "t-b")})
        for protocol in protocols:
            for name, topics in (("one", ["t-a"]), ("two", ["t-a", "t-b"])):
                consumer = joined(broker, f"of-{protocol}", protocol, topics, f"{protocol}-{name}")
                leaving.callback(consumer.close)
                consumers.append(consumer)
        names = [f"of-{protocol}" for protocol in protocols]

        def settled() -> bool:
            for consumer in consumers:
                consumer.poll(0.1)
            try:
                found = described(broker, names)
            except KafkaException:  # the coordinator is still loading, or does not know the group yet
                return False
            return all(consumer.assignment() for consumer in consumers) and all(
                each.state.name == "STABLE"
                and len(each.members) == 2
                and all(m.assignment.topic_partitions for m in each.members)
                for each in found.values()
            )

        wait_for(settled)
        for number, consumer in enumerate(consumers):
            first = sorted((p.topic, p.partition) for p in consumer.assignment())[0]
            # without metadata: this client writes a zero byte behind it, and takes it away when it reads
            client.commit(consumer, [TopicPartition(*first, 10 + number)])
        said, answered = described(broker, names), client.fetch_group_offsets(broker.bootstrap, names)
        beside.copied(tmp_path / "logs", tmp_path / "copy")
    report = ours(tmp_path / "copy")
    found = {group.group: group for group in report.groups}
    assert {name: commits_of(report)[name] for name in names} == answered
    for name in names:
        group, theirs = found[name], said[name]
        assert (group.state, group.kind) == ("Stable", name.removeprefix("of-"))
        assert sorted((m.member_id, m.client_id, m.client_host) for m in group.members) == sorted(
            (m.member_id, m.client_id, m.host) for m in theirs.members
        )
        assert {m.client_id.rpartition("-")[2]: m.topics for m in group.members} == {
            "one": ("t-a",),
            "two": ("t-a", "t-b"),
        }
        sizes = {m.member_id: sum(map(len, m.assigned.values())) for m in group.members}
        assert sizes == {m.member_id: len(m.assignment.topic_partitions) for m in theirs.members}
        if group.kind == "classic":
            assert group.protocol == theirs.partition_assignor
    assert {each.evidence.split(":")[0] for each in report.findings} == {f"group {name}" for name in names}


QUICK_SHARE = {
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 2,
    "group.share.min.heartbeat.interval.ms": 500,
    "group.share.heartbeat.interval.ms": 500,
    "group.streams.initial.rebalance.delay.ms": 0,
}


def while_they_live(work: Path, copy: Path) -> dict[str, list[list[str]]]:
    """Copies a log directory while newer groups have members; what the broker says of them, by first word."""
    said: dict[str, list[list[str]]] = defaultdict(list)
    with Broker(LATEST, work / "logs", PASSIVE | QUICK_SHARE, work_dir=work / "work") as broker:
        argv = java(LATEST, str(NEWER_GROUPS), broker.bootstrap, heap="256m")
        with (
            (work / "clients.log").open("w") as errors,
            subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            ) as clients,
        ):
            assert clients.stdout is not None
            for line in clients.stdout:
                word, *fields = line.rstrip("\n").split("\t")
                if word == "READY":
                    break
                said[word].append(fields)
            else:
                raise AssertionError((work / "clients.log").read_text()[-3000:])
            beside.copied(work / "logs", copy)
    return said


def share_starts(log_dir: Path) -> dict[tuple[str, str, int], int]:
    """Group, topic id and partition -> where the share group is, by the dump of ``__share_group_state``."""
    folders = sorted(map(str, log_dir.glob("__share_group_state-*")))
    dump = Dump(folders, Options(records=True, json_lines=True))
    starts: dict[tuple[str, str, int], int] = {}
    for row in map(json.loads, b"".join(map(bytes, dump.lines())).splitlines()):
        if row["type"] == "record":
            key, value = row["key_fields"], row["value_fields"]
            starts[key["group_id"], key["topic_id"], key["partition"]] = value["start_offset"]
    return starts


def test_share_and_streams_groups_are_what_a_broker_says_while_their_members_live(tmp_path: Path) -> None:
    said = while_they_live(tmp_path, tmp_path / "copy")
    topics = {topic_id: topic for topic, topic_id in said["topic"]}
    found = {group.group: group for group in ours(tmp_path / "copy").groups}
    assert sorted((g.group, g.kind, g.state) for g in found.values()) == sorted(
        (name, kind.lower(), state) for name, kind, _, state in said["group"]
    )
    assert {name: (g.generation, g.generation) for name, g in found.items()} == {
        name: (int(epoch), int(target)) for name, epoch, target in said["epochs"]
    }
    assert sorted(
        [name, m.member_id, m.client_id, m.client_host,
         ",".join(sorted(f"{topics.get(at, at)}:{number}" for at, held in m.assigned.items() for number in held))]
        for name, group in found.items() for m in group.members
    ) == sorted([*fields[:4], fields[5]] for fields in said["member"])  # fmt: skip
    assert {m.client_id: m.topics for group in found.values() for m in group.members} == {
        "share-one": ("t-a",), "share-two": ("t-a", "t-b"), "streams-one": ("t-a",), "streams-two": ("t-a",),
    }  # fmt: skip
    assert {
        (group, topics[topic_id], number): at
        for (group, topic_id, number), at in share_starts(tmp_path / "copy").items()
    } == {("of-share", topic, int(number)): int(at) for topic, number, at in said["start"]}


OUTSIDE = {"below": 5, "at the start": 6, "within": 8, "at the end": 10, "above": 11}


@pytest.mark.parametrize("version", [LATEST, *(["2.2.1", "3.9.2"] if EVERY else [])])
def test_commits_outside_of_a_log_are_those_from_which_a_consumer_cannot_read(
    tmp_path: Path, version: str
) -> None:
    props = PASSIVE | {"log.flush.start.offset.checkpoint.interval.ms": 500}
    props |= {} if version == "2.2.1" else {"log.initial.task.delay.ms": 500}
    with Broker(version, tmp_path / "logs", props) as broker:
        client.create_topics(broker.bootstrap, version, {"t-a": Topic(1, {})})
        producer = Producer({"bootstrap.servers": broker.bootstrap, **client.QUIET})
        for _ in range(10):
            producer.produce("t-a", value=b"x")
        producer.flush(LIMIT_S)
        admin = client.admin(broker.bootstrap)
        admin.delete_records([TopicPartition("t-a", 0, 6)])[TopicPartition("t-a", 0)].result(LIMIT_S)
        failed = {name for name, offset in OUTSIDE.items() if not reads(broker, name, offset)}
        line = "t-a 0 6"
        wait_for(lambda: line in (tmp_path / "logs" / "log-start-offset-checkpoint").read_text())
        beside.copied(tmp_path / "logs", tmp_path / "copy")
    report = ours(tmp_path / "copy")
    commits = {group.group: group.commits[0] for group in report.groups}
    assert {name: (one.log_start, one.log_end) for name, one in commits.items()} == (
        dict.fromkeys(OUTSIDE, (6, 10))
    )
    assert {name for name, one in commits.items() if one.out_of_range} == failed == {"below", "above"}
    assert report.exit_code == ExitCode.FOUND


def reads(broker: Broker, group: str, offset: int) -> bool:
    """Commits an offset, and whether a consumer that goes on from there is let."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False}
    more = {"auto.offset.reset": "error", "enable.partition.eof": True, **client.QUIET}
    consumer = Consumer(settings | more)
    try:
        client.commit(consumer, [TopicPartition("t-a", 0, offset)])
        consumer.assign([TopicPartition("t-a", 0, OFFSET_STORED)])
        while True:
            message = consumer.poll(LIMIT_S)
            error = message.error()
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                return True
            if error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
                return False
    finally:
        consumer.close()
