"""Brokers killed under load, what clients see of them afterwards, and what their next start reads."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.options import EngineName, Options
from krepair.plan.model import Plan
from tests.brokers.serving import PASSIVE
from tests.lab import client
from tests.lab.broker import Broker, Topic
from tests.lab.ports import free_port
from tests.lab.waiting import LIMIT_S, wait_for
from tests.twins.of_plan import verified

SEGMENT_BYTES = 128 << 10
INDEX_BYTES = "65536"
RECORDS = 400
VALUE = bytes(range(256)) * 4
GROUP = "readers"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HEADER_BYTES = 61
"""Of a batch: the most that one call reads of a log that is not recovered. 3.9.2 looks for the largest timestamp so."""
PROPS = {**PASSIVE, "broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500}
RECOVERING = re.compile(
    r"partition=([A-Za-z_]+-[0-9]+), dir=([^\]]+)\].*Recovering unflushed segment ([0-9]+)"
)
_READ = re.compile(r"^[a-z0-9_]+\([0-9]+<([^>]+)>.* = ([0-9]+)$", re.MULTILINE)


def topics(partitions: int) -> dict[str, Topic]:
    """One topic ``t``: three or more segments a partition after ``Load``."""
    return {"t": Topic(partitions, {"segment.bytes": str(SEGMENT_BYTES), "segment.index.bytes": INDEX_BYTES})}


def producer(broker: Broker, **more: object) -> Producer:
    """An idempotent producer."""
    return Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": 20_000,
            "retries": 1000,
            **client.QUIET,
            **more,
        }
    )


def transactional(broker: Broker, name: str) -> Producer:
    """A producer with a transactional id, initialised: an open transaction of that id is aborted."""
    made = producer(broker, **{"transactional.id": name, "transaction.timeout.ms": 600_000})
    made.init_transactions(LIMIT_S)
    return made


def send(to: Producer, partitions: Iterable[int], count: int, what: str) -> None:
    """So many records to each partition; every one is acknowledged."""
    failed: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failed.append((error, message.topic(), message.partition()))

    numbers = list(partitions)
    for number in range(count):
        for partition in numbers:
            while True:
                try:
                    to.produce(
                        "t",
                        key=f"{what}-{number}".encode(),
                        value=VALUE,
                        partition=partition,
                        on_delivery=delivered,
                    )
                    break
                except BufferError:
                    to.poll(0.2)
        to.poll(0)
    assert to.flush(LIMIT_S) == 0
    assert failed == [], failed[:3]


class Load:
    """What is written before the kill, and the producers that go on after it.

    ``plain`` and ``ready`` are idempotent, each for one half of the partitions: one goes on after a plain start, the
    other after krepair. ``open``, ``later_plain`` and ``later_ready`` have transactions that are open at the kill.
    """

    def __init__(self, broker: Broker, partitions: int, records: int = RECORDS) -> None:
        client.create_topics(broker.bootstrap, broker.version, topics(partitions))
        self.partitions, self.records = range(partitions), records
        self.of_plain, self.of_ready = self.partitions[: partitions // 2], self.partitions[partitions // 2 :]
        self.plain, self.ready = producer(broker), producer(broker)
        for name, end in (("committed", True), ("aborted", False)):
            one = transactional(broker, name)
            one.begin_transaction()
            send(one, self.partitions, 20, name)
            (one.commit_transaction if end else one.abort_transaction)(LIMIT_S)
        send(self.plain, self.of_plain, records, "plain")
        send(self.ready, self.of_ready, records, "ready")
        self.offsets = {("t", number): (number + 1, "") for number in self.partitions}
        self._commit_offsets(broker)
        self.open, self.later_plain, self.later_ready = (
            self._opened(broker, name) for name in ("open", "later_plain", "later_ready")
        )

    def _opened(self, broker: Broker, name: str) -> Producer:
        made = transactional(broker, name)
        made.begin_transaction()
        send(made, self.partitions, 5, name)
        return made

    def _commit_offsets(self, broker: Broker) -> None:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP, **client.QUIET})
        wanted = [TopicPartition(name, number, at) for (name, number), (at, _) in self.offsets.items()]
        client.commit(consumer, wanted)
        consumer.close()

    def expected(
        self, of: Mapping[int, dict[str, int]], of_all: Mapping[str, int]
    ) -> dict[int, dict[str, int]]:
        """What ``counts`` gives: what was written before the kill, and more, of single partitions and of all."""
        return {
            number: {
                "committed": 20,
                "plain" if number in self.of_plain else "ready": self.records,
                **of_all,
                **of.get(number, {}),
            }
            for number in self.partitions
        }

    def wait_for_counts(self, broker: Broker, wanted: Mapping[int, dict[str, int]]) -> None:
        """Until a consumer sees so many: the markers of a transaction are written after its end was told."""
        with contextlib.suppress(TimeoutError):
            wait_for(lambda: self.counts(broker) == wanted)
        assert self.counts(broker) == wanted

    def counts(self, broker: Broker) -> dict[int, dict[str, int]]:
        """Of each partition how many records of each sender a consumer sees that reads what is committed."""
        out = {}
        for number, records in client.read_partitions(
            broker.bootstrap, "t", self.partitions, "read_committed"
        ).items():
            names = [(record.key or b"").decode().rpartition("-")[0] for record in records]
            out[number] = {name: names.count(name) for name in dict.fromkeys(names)}
        return out


class Seen:
    """What clients see of a broker that has just started: records, ends, last stable offsets, committed offsets."""

    def __init__(self, broker: Broker, partitions: Iterable[int]) -> None:
        levels: tuple[client.Isolation, ...] = ("read_uncommitted", "read_committed")
        numbers = list(partitions)
        self.records = {
            (number, level): client.digest(records)
            for level in levels
            for number, records in client.read_partitions(broker.bootstrap, "t", numbers, level).items()
        }
        self.ends = {}
        admin = client.admin(broker.bootstrap)
        for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED):
            asked = {TopicPartition("t", number): OffsetSpec.latest() for number in numbers}
            answers = admin.list_offsets(asked, isolation_level=level)
            self.ends |= {(one.partition, level.name): answers[one].result(LIMIT_S).offset for one in answers}
        self.offsets = client.fetch_group_offsets(broker.bootstrap, [GROUP])[GROUP]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Seen) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


def recovered(broker: Broker, topic: str = "t") -> dict[str, list[int]]:
    """Base offsets of the segments that the last start recovered, by folder."""
    out: dict[str, list[int]] = {}
    for folder, _, base in RECOVERING.findall(broker.log()):
        if folder.rpartition("-")[0] == topic:
            out.setdefault(folder, []).append(int(base))
    return out


def options(version: str) -> Options:
    """Of every verb here."""
    return Options(
        engine=EngineName.INLINE,
        broker_version=version,
        fixes=("recovery",),
        settings=(("segment.index.bytes", INDEX_BYTES),),
    )


def made_ready(log_dir: Path, version: str) -> Plan:
    """Plan, apply and verify; nothing may fail."""
    plan = make_plan(str(log_dir), options(version))
    report = apply(plan, options(version))
    assert [one for one in report.results if one.outcome == "failed"] == []
    assert verified(plan, options(version)) == []
    return plan


def ends_planned(*plans: Plan) -> dict[str, list[int]]:
    """The log ends of the partitions of ``t`` that are made ready, as ``recovered`` tells them."""
    return {
        part.folder: [part.log_end_offset]
        for plan in plans
        for part in plan.partitions
        if part.log_end_offset and part.topic == "t"
    }


def crash(broker: Broker) -> None:
    """Kill a broker; what it has written of recovery points goes: a fast machine kills it before it writes the first.

    It writes them 30 s after its start, and 2.2.1 has no setting for that.
    """
    broker.stop(kill=True)
    for log_dir in broker.log_dirs:
        (log_dir / RECOVERY_POINTS).write_bytes(b"")


def put_back(kept: Path, *log_dirs: Path) -> None:
    """The directories as ``set_aside`` has kept them."""
    for log_dir in log_dirs:
        shutil.rmtree(log_dir)
        shutil.copytree(kept / log_dir.name, log_dir)


def set_aside(kept: Path, *log_dirs: Path) -> None:
    """Keep copies of directories."""
    for log_dir in log_dirs:
        shutil.copytree(log_dir, kept / log_dir.name)


class Traced:
    """What the starts of a broker read of which files, as strace saw it."""

    def __init__(self, broker: Broker, place: Path) -> None:
        if shutil.which("strace") is None:
            pytest.skip("needs strace")
        self.broker, self.place = broker, place
        self.starts = 0

    def start(self) -> dict[str, list[int]]:
        """Start the broker; gives the bytes that each call has read, by path of the file."""
        self.starts += 1
        folder = self.place / str(self.starts)
        folder.mkdir(parents=True)
        calls = "trace=read,readv,pread64,preadv,preadv2,mmap,sendfile,copy_file_range"
        self.broker.before = (
            "strace",
            "-D",
            "-ff",
            "--seccomp-bpf",
            "-y",
            "-s0",
            "-o",
            f"{folder}/t",
            "-e",
            calls,
        )
        try:
            self.broker.start()
        finally:
            self.broker.before = ()
        read: dict[str, list[int]] = {}
        for path in folder.iterdir():
            for name, count in _READ.findall(path.read_text(errors="replace")):
                read.setdefault(name, []).append(int(count))
        return read


def bytes_of(read: Mapping[str, list[int]], logs: Iterable[Path]) -> int:
    """How much of some files was read."""
    return sum(sum(read.get(str(log), ())) for log in logs)


def assert_headers_alone(read: Mapping[str, list[int]], logs: Mapping[Path, int]) -> None:
    """Nothing of these logs was read but headers of single batches, and of each log less than a hundredth."""
    calls = [count for log in logs for count in read.get(str(log), ())]
    assert max(calls, default=0) <= HEADER_BYTES
    assert sum(calls) < sum(logs.values()) / 100


def logs_of(*log_dirs: Path) -> dict[Path, int]:
    """The logs of ``t`` that hold something, and their sizes."""
    found = (log for log_dir in log_dirs for log in log_dir.glob("t-*/*.log"))
    return {log: size for log in found if (size := log.stat().st_size)}


def broker_for(version: str, root: Path, *, work_dir: Path | None = None, **more: Any) -> Broker:
    """A broker of its own cluster on ``root/logs``."""
    return Broker(version, root / "logs", PROPS, work_dir=work_dir or root / "work", port=free_port(), **more)
