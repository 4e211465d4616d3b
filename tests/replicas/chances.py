"""Random events on a real cluster of three brokers, beside a record of what it has to serve.

One topic has many partitions, and each partition is a history of its own: other records, transactions, tombstones and
leaders. What happens to brokers happens to all of them at once.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Message, Producer
from confluent_kafka.admin import NewTopic

from tests import naive
from tests.lab import client
from tests.lab.broker import topic_config
from tests.lab.jvm import java
from tests.lab.three import Three
from tests.lab.waiting import LIMIT_S, wait_for

TOPIC = "h"
CODECS = ("none", "none", "gzip", "lz4", "snappy")
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".kafka_cleanshutdown",
)
Table = dict[bytes | None, bytes]


@dataclass
class Transaction:
    """A transaction and its end: None while it is open."""

    committed: bool | None = None


@dataclass(frozen=True)
class Record:
    """A record that the cluster has acknowledged. ``transaction`` is None outside transactions."""

    key: bytes
    value: bytes | None
    transaction: Transaction | None


@dataclass
class Writer:
    """A transactional producer."""

    name: str
    producer: Producer
    open: Transaction | None = None


@dataclass(frozen=True)
class Wrong:
    """A leader that does not serve the truth."""

    broker: int
    partition: int
    text: str

    def __str__(self) -> str:
        return f"{TOPIC}-{self.partition} led by {self.broker}: {self.text}"


@dataclass
class Chances:
    """A running cluster, what is written to it, and the truth.

    Attributes:
        cluster: with its brokers running.
        chance: all chance.
        assigned: partition -> brokers; the first is its preferred leader.
        truth: partition -> offset -> record.
        writers: name -> transactional producer; made anew by ``connect``.
    """

    cluster: Three
    chance: random.Random
    assigned: dict[int, list[int]]
    truth: dict[int, dict[int, Record]] = field(default_factory=dict)
    writers: dict[str, Writer] = field(default_factory=dict)
    plain: Producer | None = None
    written: int = 0

    def create(self, config: Mapping[str, str]) -> None:
        """Create the topic, and its writers."""
        new = NewTopic(
            TOPIC,
            num_partitions=len(self.assigned),
            replica_assignment=[self.assigned[number] for number in sorted(self.assigned)],
            config=topic_config(self.cluster.version, config),
        )
        admin = client.admin(self.cluster.bootstrap)
        for future in admin.create_topics([new], operation_timeout=60).values():
            future.result(LIMIT_S)
        self.truth = {number: {} for number in self.assigned}
        self.wait_in_sync(*self.cluster.brokers)
        self.connect()

    # -- writing ----------------------------------------------------------------------------------
    def connect(self, writers: int = 6) -> None:
        """New producers under the old names: the cluster then aborts what they had left open."""
        settings = {"enable.idempotence": "true"} if self.chance.random() < 0.5 else {}
        codec = self.chance.choice(CODECS)
        self.plain = self.cluster.producer(**{"compression.type": codec}, **settings)
        for number in range(writers):
            name = f"w{number}"
            if name in self.writers and (left := self.writers[name].open) is not None:
                left.committed = False
            self.writers[name] = Writer(name, self.cluster.producer(name))

    def play(self, steps: int) -> None:
        """Producers write, begin and end transactions."""
        for _ in range(steps):
            what = self.chance.random()
            if what < 0.4:
                self._write(None)
                continue
            writer = self.chance.choice(list(self.writers.values()))
            if writer.open is not None and what > 0.75:
                self.end(writer)
            else:
                self._write(writer)

    def _write(self, writer: Writer | None) -> None:
        for partition in self.chance.sample(sorted(self.assigned), self.chance.randint(1, 3)):
            records = []
            for _ in range(self.chance.randint(1, 3)):
                self.written += 1
                gone = self.chance.random() < 0.25
                value = b"%d " % self.written + b"." * self.chance.randint(0, 150)
                records.append((b"k%d" % self.chance.randint(0, 7), None if gone else value))
            self.put(partition, records, writer)

    def put(
        self, partition: int, records: Iterable[tuple[bytes, bytes | None]], writer: Writer | None = None
    ) -> None:
        """Write records and keep them as truth once they are acknowledged."""
        if writer is not None and writer.open is None:
            writer.open = Transaction()
            writer.producer.begin_transaction()
        sender = self.plain if writer is None else writer.producer
        assert sender is not None
        transaction = None if writer is None else writer.open
        errors: list[str] = []

        def delivered(error: object, message: Message) -> None:
            if error:
                errors.append(str(error))
                return
            record = Record(message.key() or b"", message.value(), transaction)
            self.truth[partition][message.offset() or 0] = record

        for key, value in records:
            sender.produce(TOPIC, key=key, value=value, partition=partition, on_delivery=delivered)
        if sender.flush(LIMIT_S) or errors:
            raise RuntimeError(f"{TOPIC}-{partition}: not written: {errors[:3]}")

    def end(self, writer: Writer, *, commit: bool | None = None) -> None:
        """End a transaction."""
        assert writer.open is not None
        commit = self.chance.random() < 0.6 if commit is None else commit
        if commit:
            writer.producer.commit_transaction(LIMIT_S)
        else:
            writer.producer.abort_transaction(LIMIT_S)
        writer.open.committed = commit
        writer.open = None

    def end_some(self, share: float) -> None:
        """End about so many of the open transactions."""
        for writer in self.writers.values():
            if writer.open is not None and self.chance.random() < share:
                self.end(writer)

    def fill(self, count: int = 12) -> None:
        """Write to each partition until its segments roll."""
        for partition in self.assigned:
            self.put(partition, [(b"fill-%d" % (number % 3), b"x" * 400) for number in range(count)])

    # -- brokers ----------------------------------------------------------------------------------
    @property
    def everybody(self) -> tuple[int, ...]:
        """The brokers."""
        return self.cluster.brokers

    def wait_in_sync(self, *brokers: int) -> None:
        """Wait until these brokers are in the ISR wherever they are assigned, and each partition has a leader."""

        def there() -> bool:
            states = self.cluster.state(TOPIC)
            return len(states) == len(self.assigned) and all(
                states[number].leader > 0 and set(brokers) & set(assigned) <= states[number].isr
                for number, assigned in self.assigned.items()
            )

        self._until(there)

    def _until(self, there: Callable[[], bool]) -> None:
        """Wait for the cluster.

        Raises:
            TimeoutError: it did not come; the message holds the cluster's state.
        """
        try:
            wait_for(there, step_s=0.2)
        except TimeoutError as error:
            running = sorted(self.cluster.running)
            raise TimeoutError(f"{error}; running {running}: {self.cluster.state(TOPIC)}") from error

    def gone(self, broker: int) -> None:
        """Wait until a stopped broker is in no ISR.

        On 2.2.1 one that has all there is may stay in the ISR after its stop, until something is written.
        """

        def out() -> bool:
            states = self.cluster.state(TOPIC).values()  # none at all where nobody answered
            return bool(states) and all(broker not in one.isr for one in states)

        try:
            wait_for(out, 15, 0.2)
        except TimeoutError:
            self.fill(1)
            self._until(out)

    def leave(self, broker: int) -> None:
        """A broker stops, or dies if it can."""
        if broker in self.cluster.apart and self.chance.random() < 0.6:
            self.cluster.kill(broker)
        else:
            self.cluster.stop(broker)
        self.gone(broker)

    def come_back(self, *brokers: int) -> None:
        """Brokers start and join the ISR."""
        self.cluster.start(*brokers)
        self.wait_in_sync(*self.cluster.running & set(self.everybody))

    def alone(self, broker: int) -> None:
        """All others stop, so that a broker leads all that it has."""
        self.cluster.stop(*(one for one in self.everybody if one != broker and one in self.cluster.running))
        mine = {number for number, assigned in self.assigned.items() if broker in assigned}

        def leads() -> bool:
            states = self.cluster.state(TOPIC)
            return mine <= states.keys() and all(states[number].leader == broker for number in mine)

        self._until(leads)

    def empty(self, broker: int, source: int | None = None) -> None:
        """What a stopped broker has of the topic is gone, but for the beginning of what a source has.

        It is then as if the broker had lost its folders and had fetched some batches from the source, when it died.
        """
        root = self.cluster.log_dir(broker)
        for number, assigned in self.assigned.items():
            folder = root / f"{TOPIC}-{number}"
            if broker not in assigned or not folder.is_dir():
                continue
            for path in folder.iterdir():
                if path.name != "partition.metadata":
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            if source in assigned:
                self._beginning(self.cluster.log_dir(source or 0) / folder.name, folder)
        for name in CHECKPOINTS:
            (root / name).unlink(missing_ok=True)

    def _beginning(self, source: Path, target: Path) -> None:
        logs = sorted(source.glob("*.log"))
        ends = [(log, end) for log in logs for end in _ends(log.read_bytes())]
        if not ends:
            return
        last, end = self.chance.choice(ends)
        for log in logs[: logs.index(last)]:
            shutil.copy2(log, target / log.name)
        (target / last.name).write_bytes(last.read_bytes()[:end])

    def reassign(self, wanted: Mapping[int, list[int]]) -> None:
        """Give partitions other replicas, and wait until these are in sync."""
        if not wanted:
            return
        cluster = self.cluster
        file = cluster.work / "reassign.json"
        rows = [{"topic": TOPIC, "partition": number, "replicas": to} for number, to in wanted.items()]
        file.write_text(json.dumps({"version": 1, "partitions": rows}))
        tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        where = ["--bootstrap-server", cluster.bootstrap]
        if not cluster.kraft:
            tool = "kafka.admin.ReassignPartitionsCommand"
            where = ["--zookeeper", cluster.zookeeper]
        argv = java(cluster.version, tool, *where, "--reassignment-json-file", file, "--execute", heap="128m")
        subprocess.run(argv, check=True, capture_output=True)
        self.assigned.update({number: list(to) for number, to in wanted.items()})

        def done() -> bool:
            states = cluster.state(TOPIC)
            return all(
                set(states[number].replicas) == set(to) == states[number].isr for number, to in wanted.items()
            )

        self._until(done)

    # -- judging ----------------------------------------------------------------------------------
    def table(self, partition: int) -> Table:
        """The last committed value of each key that has one."""
        last: dict[bytes | None, bytes | None] = {}
        for _, record in sorted(self.truth[partition].items()):
            if record.transaction is None or record.transaction.committed:
                last[record.key] = record.value
        return {key: value for key, value in last.items() if value is not None}

    def wrong(self, broker: int) -> list[Wrong]:
        """What a broker that leads alone serves other than the truth. No transaction may be open."""
        mine = [number for number, assigned in self.assigned.items() if broker in assigned]
        out = []
        whole = []
        for number in mine:
            _, stable, end = self.cluster.offsets(TOPIC, number)
            if stable == end:
                whole.append(number)
            else:
                out.append(Wrong(broker, number, f"readers stand still at {stable} of {end}"))
        served = client.read_partitions(self.cluster.bootstrap, TOPIC, whole, "read_committed")
        for number in whole:
            last: dict[bytes | None, bytes | None] = {}
            for record in served[number]:
                last[record.key] = record.value
            found = {key: value for key, value in last.items() if value is not None}
            if found != (right := self.table(number)):
                keys = sorted(
                    (key or b"") for key in found.keys() | right.keys() if found.get(key) != right.get(key)
                )
                out.append(Wrong(broker, number, f"keys {keys} differ"))
        return out


def _ends(log: bytes) -> list[int]:
    """The position behind each batch of a log."""
    return [one.position + one.size for one in naive.parse(log)]
