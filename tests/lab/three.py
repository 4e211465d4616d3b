"""A real cluster of three brokers on loopback whose brokers stop, start, die and lead one by one.

    with Three("3.9.2", root) as cluster:
        cluster.create({"t": Topic(1, {"cleanup.policy": "compact"})})
        cluster.write("t", [(b"k", b"v")])
        cluster.stop(3)
        ...
        cluster.start(3)
        cluster.wait_in_sync("t", of=(1, 2, 3))
        cluster.lead(3)
        cluster.serves("t")

All nodes live in one process (``java/Nodes.java``), which costs a tenth of one process for each. A node that is to die
as in a power cut is named in ``apart`` and has a process of its own. From 3.0 node 100 is the controller and holds no
partition; before, a ZooKeeper runs beside the brokers. ``kept`` and ``put_back`` copy the whole stopped cluster, so
that one beginning has several endings.
"""

from __future__ import annotations

import base64
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from confluent_kafka import IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from tests import naive
from tests.lab import beside, client
from tests.lab.broker import CLUSTER_ID, BrokerError, Topic, topic_config
from tests.lab.jars import cache_root, locked, release
from tests.lab.jvm import java
from tests.lab.ports import free_port
from tests.lab.waiting import LIMIT_S, wait_for
from tests.lab.zookeeper import ZooKeeper

NODES = Path(__file__).parent / "java" / "Nodes.java"
CONTROLLER = 100
START_S = 300
_SESSION_S = 10
"""So long after a broker died ZooKeeper may still keep its id."""
Values = Iterable[tuple[bytes, bytes | None]]


@dataclass(frozen=True)
class Served:
    """What the leader of a partition gives to clients.

    Attributes:
        start: log start.
        stable: last stable offset.
        end: high watermark.
        committed, uncommitted: offset, key and value of every record that a reader of that isolation level gets.
    """

    start: int
    stable: int
    end: int
    committed: tuple[tuple[int, bytes | None, bytes | None], ...]
    uncommitted: tuple[tuple[int, bytes | None, bytes | None], ...]

    @property
    def table(self) -> dict[bytes | None, bytes]:
        """The last committed value of each key that has one."""
        last: dict[bytes | None, bytes | None] = {}
        for _, key, value in self.committed:
            last[key] = value
        return {key: value for key, value in last.items() if value is not None}


@dataclass(frozen=True)
class State:
    """Who has a partition, as the cluster says. Without a leader ``leader`` is -1."""

    leader: int
    replicas: tuple[int, ...]
    isr: frozenset[int]


@dataclass
class _Process:
    """A JVM with some of the nodes."""

    popen: subprocess.Popen[str]
    answers: queue.Queue[str] = field(default_factory=queue.Queue)

    def listen(self) -> None:
        assert self.popen.stdout is not None
        with self.popen.stdout as lines:
            for line in lines:
                self.answers.put(line)
        self.answers.put("")

    def tell(self, line: str) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(line + "\n")
        self.popen.stdin.flush()


class Three:
    """Brokers 1, 2 and 3 for the length of a ``with`` block.

    Args:
        version: e.g. ``3.9.2``.
        root: gets ``b1``, ``b2``, ``b3`` (the log directories) and ``work`` (metadata, settings, logs of the nodes).
        props: settings of all brokers over the lab's own.
        of: settings of single brokers over these.
        apart: brokers with a process of their own; only these can be killed alone.
        metadata_beside: KRaft: ``__cluster_metadata-0`` lies in each broker's log directory, as by default.
        heap: of the process that all share.
    """

    def __init__(
        self,
        version: str,
        root: Path,
        props: Mapping[str, object] | None = None,
        *,
        of: Mapping[int, Mapping[str, object]] | None = None,
        apart: Iterable[int] = (),
        metadata_beside: bool = False,
        heap: str = "1200m",
    ) -> None:
        self.version = version
        self.root = Path(root).absolute()
        self.work = self.root / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        self.props = dict(props or {})
        self.of = {node: dict(settings) for node, settings in (of or {}).items()}
        self.apart = frozenset(apart)
        self.metadata_beside = metadata_beside
        self.heap = heap
        self.brokers = (1, 2, 3)
        self.kraft = release(version) >= (3, 0)
        self.running: set[int] = set()
        self._died = -float(_SESSION_S)
        self._ports = {node: free_port() for node in (*self.brokers, CONTROLLER)}
        self._processes: dict[int, _Process] = {}
        self._zookeeper: ZooKeeper | None = None

    def __enter__(self) -> Three:
        try:
            self.begin()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.end()

    # -- life -------------------------------------------------------------------------------------
    def begin(self) -> None:
        """Start what keeps the cluster's metadata, and all brokers.

        Raises:
            BrokerError: a node did not start.
        """
        self.start_metadata()
        self.start(*self.brokers)

    def start_metadata(self) -> None:
        """Start the controller or ZooKeeper, if it is not running."""
        if not self.kraft:
            self._start_zookeeper()
        elif CONTROLLER not in self.running:
            self.start(CONTROLLER)

    def start(self, *nodes: int) -> None:
        """Start these nodes at once and wait until they serve."""
        if not self.kraft:
            time.sleep(max(0.0, self._died + _SESSION_S - time.monotonic()))
        for node in nodes:
            settings = self._prepared(node)
            self._process(node).tell(f"start {node} {settings}")
        self._wait(nodes)
        self.running.update(nodes)
        if self.running - {CONTROLLER}:
            wait_for(self._whole)

    def _whole(self) -> bool:
        """Whether the brokers know each other and a controller; a client that asks before may never find it."""
        try:
            found = client.admin(self.bootstrap).list_topics(timeout=5)
        except KafkaException:
            return False
        return set(found.brokers) == self.running - {CONTROLLER} and found.controller_id > 0

    def stop(self, *nodes: int) -> None:
        """Stop these nodes cleanly, one after the other: a leader hands over to who is left in the ISR."""
        for node in nodes:
            self._process(node).tell(f"stop {node}")
            self._wait([node])
            self.running.discard(node)
            if node in self.apart:
                self._end_process(node)

    def kill(self, node: int) -> None:
        """End a broker that lives apart as a power cut would; what the system has not written is not lost."""
        assert node in self.apart, f"broker {node} shares its process with others: name it in apart"
        self._end_process(node)
        self.running.discard(node)
        self._died = time.monotonic()

    def kill_all(self) -> None:
        """End all nodes at once, the controller too."""
        if self.running:
            self._died = time.monotonic()
        for key in list(self._processes):
            self._end_process(key)
        self.running.clear()

    def stop_all(self) -> None:
        """Stop all brokers cleanly, 3 first, then what keeps the metadata."""
        self.stop(*(node for node in reversed(self.brokers) if node in self.running))
        if CONTROLLER in self.running:
            self.stop(CONTROLLER)
        self._stop_zookeeper()

    def end(self) -> None:
        """End every process; nothing is stopped cleanly."""
        self.kill_all()
        self._stop_zookeeper()

    def lead(self, node: int, topics: Iterable[str]) -> None:
        """Let one broker lead by a clean election: all others are stopped.

        Raises:
            TimeoutError: it was not elected, for one as it is not in the ISR.
        """
        self.stop(*(other for other in self.brokers if other != node and other in self.running))
        for topic in topics:
            wait_for(lambda: {one.leader for one in self.state(topic).values()} == {node})  # noqa: B023

    def _rests(self) -> bool:
        return not self.running and self._zookeeper is None

    def kept(self, name: str) -> Path:
        """Copy the stopped cluster: all log directories and all metadata."""
        assert self._rests(), "a running cluster is not copied"
        self.kill_all()
        target = self.root / "kept" / name
        for part in (*(f"b{node}" for node in self.brokers), "work"):
            shutil.copytree(self.root / part, target / part, symlinks=True)
        return target

    def put_back(self, name: str) -> None:
        """Make the stopped cluster what it was when it was kept under that name."""
        assert self._rests(), "a running cluster is not put back"
        self.kill_all()
        source = self.root / "kept" / name
        for part in (*(f"b{node}" for node in self.brokers), "work"):
            shutil.rmtree(self.root / part)
            shutil.copytree(source / part, self.root / part, symlinks=True)

    # -- processes --------------------------------------------------------------------------------
    def _process(self, node: int) -> _Process:
        key = node if node in self.apart else 0
        if key not in self._processes:
            heap = "400m" if key else self.heap
            log = (self.work / f"process-{key}.log").open("ab")
            argv = java(self.version, str(NODES), heap=heap)
            with log:
                popen = subprocess.Popen(
                    argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
                )
            made = _Process(popen)
            threading.Thread(target=made.listen, daemon=True).start()
            self._processes[key] = made
        return self._processes[key]

    def _end_process(self, key: int) -> None:
        process = self._processes.pop(key, None)
        if process is not None:
            process.popen.kill()
            process.popen.wait()
            assert process.popen.stdin is not None
            process.popen.stdin.close()

    def _wait(self, nodes: Sequence[int]) -> None:
        deadline = time.monotonic() + START_S
        waiting = set(nodes)
        while waiting:
            process = self._process(next(iter(waiting)))
            try:
                answer = process.answers.get(timeout=max(1.0, deadline - time.monotonic()))
            except queue.Empty:
                answer = "ERR no answer in time"
            if not answer.startswith("OK "):
                raise BrokerError(
                    f"Kafka {self.version}, nodes {sorted(waiting)}: {answer}{self.log()[-6000:]}"
                )
            waiting.discard(int(answer.split()[1]))

    def log(self, node: int = 0) -> str:
        """What a process said; 0 is the one that nodes share."""
        path = self.work / f"process-{node}.log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def _start_zookeeper(self) -> None:
        if self._zookeeper is None:
            self._zookeeper = ZooKeeper(self.version, self._ports[CONTROLLER], self.work)
            self._zookeeper.write({})

    def _stop_zookeeper(self) -> None:
        if self._zookeeper is not None:
            self._zookeeper.close()
            self._zookeeper = None

    # -- settings ---------------------------------------------------------------------------------
    def log_dir(self, node: int) -> Path:
        """The log directory of a broker."""
        return self.root / f"b{node}"

    def metadata_dir(self, node: int) -> Path:
        """Where a KRaft node has ``__cluster_metadata-0``."""
        beside = self.metadata_beside and node != CONTROLLER
        return self.log_dir(node) if beside else self.work / f"metadata-{node}"

    @property
    def bootstrap(self) -> str:
        """Where the running brokers serve."""
        return ",".join(f"127.0.0.1:{self._ports[node]}" for node in sorted(self.running - {CONTROLLER}))

    @property
    def zookeeper(self) -> str:
        """Where ZooKeeper serves, before 3.0."""
        return f"127.0.0.1:{self._ports[CONTROLLER]}"

    def _prepared(self, node: int) -> Path:
        """Settings and formatted storage of a node; gives the file of its settings."""
        path = self.work / f"node-{node}.properties"
        settings = self._settings(node) | self.props | self.of.get(node, {})
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        if not self.kraft:
            self.log_dir(node).mkdir(exist_ok=True)
            return path
        folders = {self.metadata_dir(node)} | ({self.log_dir(node)} if node != CONTROLLER else set())
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / "meta.properties").exists():
                directory = base64.urlsafe_b64encode(b"\x01" + os.urandom(15)).decode().rstrip("=")
                lines = {
                    "version": 1,
                    "cluster.id": CLUSTER_ID,
                    "node.id": node,
                    "directory.id": directory,
                }
                text = "".join(f"{key}={value}\n" for key, value in lines.items())
                (folder / "meta.properties").write_text(text)
        if not list(self.metadata_dir(node).rglob("*.checkpoint")):
            shutil.copytree(self._bootstrap_metadata(), self.metadata_dir(node), dirs_exist_ok=True)
        return path

    def _bootstrap_metadata(self) -> Path:
        """What formatting writes for the first controller, in a folder; made once, kept in the cache."""
        kept = cache_root() / "seeds" / f"bootstrap-{self.version}"
        with locked(kept.with_suffix(".lock")):
            if not list(kept.rglob("*.checkpoint")):
                with tempfile.TemporaryDirectory(prefix="krepair-format-") as folder:
                    config = Path(folder) / "format.properties"
                    settings = self._settings(CONTROLLER) | {
                        "log.dirs": folder,
                        "metadata.log.dir": folder,
                    }
                    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
                    argv = java(
                        self.version,
                        "kafka.tools.StorageTool",
                        *("format", "-t", CLUSTER_ID, "-c", config, "--ignore-formatted"),
                        heap="128m",
                    )
                    done = subprocess.run(argv, capture_output=True, text=True, check=False)
                    if done.returncode:
                        raise BrokerError(f"format: {done.stdout[-2000:]}{done.stderr[-2000:]}")
                    shutil.copytree(
                        folder, kept, ignore=shutil.ignore_patterns("*.properties"), dirs_exist_ok=True
                    )
        return kept

    def _settings(self, node: int) -> dict[str, object]:
        quick: dict[str, object] = {
            "num.partitions": 1,
            "auto.create.topics.enable": "false",
            "default.replication.factor": 3,
            "min.insync.replicas": 1,
            "offsets.topic.replication.factor": 3,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 3,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            "unclean.leader.election.enable": "false",
            "auto.leader.rebalance.enable": "false",
            "log.cleaner.dedupe.buffer.size": 4_000_000,
            "log.cleaner.backoff.ms": 200,
            "log.segment.delete.delay.ms": 100,
            "log.retention.check.interval.ms": 1000,
            "log.flush.start.offset.checkpoint.interval.ms": 1000,
            "log.flush.offset.checkpoint.interval.ms": 1000,
            "replica.high.watermark.checkpoint.interval.ms": 500,
            "replica.lag.time.max.ms": 10_000,
            "replica.fetch.wait.max.ms": 100,
            "replica.fetch.backoff.ms": 100,
            "num.network.threads": 2,
            "num.io.threads": 3,
        }
        here = f"PLAINTEXT://127.0.0.1:{self._ports[node]}"
        if not self.kraft:
            return quick | {
                "broker.id": node,
                "listeners": here,
                "log.dirs": self.log_dir(node),
                "zookeeper.connect": self.zookeeper,
                "zookeeper.connection.timeout.ms": 30_000,
                "zookeeper.session.timeout.ms": 6_000,
            }
        quick |= {
            "log.initial.task.delay.ms": 300,
            "node.id": node,
            "controller.quorum.voters": f"{CONTROLLER}@127.0.0.1:{self._ports[CONTROLLER]}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "metadata.log.dir": self.metadata_dir(node),
            "broker.session.timeout.ms": 9_000,
            "broker.heartbeat.interval.ms": 1_000,
            "initial.broker.registration.timeout.ms": 120_000,
        }
        if node == CONTROLLER:
            return quick | {
                "process.roles": "controller",
                "listeners": here.replace("PLAINTEXT", "CONTROLLER"),
                "log.dirs": self.metadata_dir(node),
            }
        return quick | {"process.roles": "broker", "listeners": here, "log.dirs": self.log_dir(node)}

    # -- topics -----------------------------------------------------------------------------------
    def create(self, topics: Mapping[str, Topic], first: int = 1) -> None:
        """Create topics with three replicas; broker ``first`` is their preferred leader."""
        order = [first, *(node for node in self.brokers if node != first)]
        new = [
            NewTopic(
                name,
                num_partitions=topic.partitions,
                replica_assignment=[order] * topic.partitions,
                config=topic_config(self.version, topic.config),
            )
            for name, topic in topics.items()
        ]
        admin = client.admin(self.bootstrap)
        for future in admin.create_topics(new, operation_timeout=60).values():
            future.result(LIMIT_S)
        for name in topics:
            self.wait_in_sync(name, of=self.running - {CONTROLLER})

    def state(self, topic: str) -> dict[int, State]:
        """Leader, replicas and ISR of each partition, as a running broker says."""
        try:
            found = client.admin(self.bootstrap).list_topics(topic, 10).topics[topic].partitions
        except KafkaException:
            return {}
        return {
            number: State(one.leader, tuple(one.replicas), frozenset(one.isrs))
            for number, one in found.items()
        }

    def wait_in_sync(self, *topics: str, of: Iterable[int], timeout_s: float = LIMIT_S) -> None:
        """Wait until these brokers are in the ISR of every partition, and each has a leader.

        Raises:
            TimeoutError: they are not in time.
        """
        wanted = frozenset(of)

        def there() -> bool:
            states = [one for topic in topics for one in self.state(topic).values()]
            return bool(states) and all(one.leader > 0 and wanted <= one.isr for one in states)

        wait_for(there, timeout_s, 0.1)

    def wait_out_of_sync(self, topic: str, node: int, timeout_s: float = LIMIT_S) -> None:
        """Wait until a broker is out of the ISR of every partition.

        Raises:
            TimeoutError: it is not in time.
        """

        def out() -> bool:
            states = self.state(topic).values()  # none at all where nobody answered
            return bool(states) and all(node not in one.isr for one in states)

        wait_for(out, timeout_s, 0.1)

    def describe(self, *topics: str) -> str:
        """The output of ``kafka-topics.sh --bootstrap-server ... --describe``, for these topics or for all."""
        tool = "kafka.admin.TopicCommand" if not self.kraft else "org.apache.kafka.tools.TopicCommand"
        words = ["--bootstrap-server", self.bootstrap, "--describe"]
        said = ""
        for topic in topics or ("",):
            of = ["--topic", topic] if topic else []
            argv = java(self.version, tool, *words, *of, heap="128m")
            said += subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        return said

    # -- writing ----------------------------------------------------------------------------------
    def producer(self, transactional_id: str = "", **settings: object) -> Producer:
        """A producer; with an id its transactions are initialised."""
        common: dict[str, object] = {
            "bootstrap.servers": self.bootstrap,
            "acks": "all",
            "linger.ms": 0,
            "batch.num.messages": 4,  # small segments take no large batch
            "message.timeout.ms": 1000 * LIMIT_S,
            **client.QUIET,
        }
        if transactional_id:
            common |= {"transactional.id": transactional_id, "transaction.timeout.ms": 600_000}
        made = Producer(common | settings)
        if transactional_id:
            made.init_transactions(LIMIT_S)
        return made

    def write(self, topic: str, values: Values, producer: Producer | None = None, partition: int = 0) -> None:
        """Write records and wait until all in the ISR have them.

        Raises:
            RuntimeError: one was not taken.
        """
        errors: list[str] = []
        sender = producer or self.producer()
        for key, value in values:
            sender.produce(
                topic,
                key=key,
                value=value,
                partition=partition,
                on_delivery=lambda error, _: errors.append(str(error)) if error else None,
            )
        left = sender.flush(LIMIT_S)
        if errors or left:
            raise RuntimeError(f"{topic}-{partition}: {left} records are not written; {errors[:3]}")

    def fill(self, topic: str, rounds: int, bytes_each: int = 400) -> None:
        """Write records of three keys, so that segments roll and the cleaner has something to do."""
        self.write(topic, [(b"fill-%d" % (number % 3), b"x" * bytes_each) for number in range(rounds)])

    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int, int]:
        """Log start, last stable offset and high watermark, as the leader says."""
        admin = client.admin(self.bootstrap)
        wanted = TopicPartition(topic, partition)

        def ask(spec: OffsetSpec, level: IsolationLevel) -> int:
            deadline = time.monotonic() + LIMIT_S
            while True:
                try:
                    answer = admin.list_offsets({wanted: spec}, isolation_level=level, request_timeout=10)
                    return int(answer[wanted].result().offset)
                except KafkaException:  # a leader that was just elected
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.2)

        return (
            ask(OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED),
            ask(OffsetSpec.latest(), IsolationLevel.READ_COMMITTED),
            ask(OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED),
        )

    def serves(self, topic: str, partition: int = 0) -> Served:
        """What the leader of a partition gives to readers of both isolation levels."""
        start, stable, end = self.offsets(topic, partition)
        committed, uncommitted = (
            tuple(
                (record.offset, record.key, record.value)
                for record in client.read_all(self.bootstrap, topic, partition, isolation)
            )
            for isolation in ("read_committed", "read_uncommitted")
        )
        return Served(start, stable, end, committed, uncommitted)

    # -- files ------------------------------------------------------------------------------------
    def batches(self, node: int, topic: str, partition: int = 0) -> list[naive.Batch]:
        """The batches of a broker's replica as its files have them now; a torn tail is left out."""
        out: list[naive.Batch] = []
        for content in beside.read(self.log_dir(node) / f"{topic}-{partition}").values():
            out += naive.parse(content)
        return out

    def markers(self, node: int, topic: str, partition: int = 0) -> list[int]:
        """The offsets of a replica's markers that are whole."""
        return [one.base_offset for one in self.batches(node, topic, partition) if one.ends_transaction]
