"""Real Kafka brokers on loopback ports, one process each.

    with Broker("2.2.1", log_dir, props={"log.cleaner.enable": "false"}, topics=topics) as broker:
        ... broker.bootstrap ...

Before 3.0 a broker runs beside an embedded ZooKeeper, from 3.0 as one KRaft node that is its own controller.
``topics`` are registered before the broker meets the log directory, so that folders already in it belong to
known topics. Without ``topics`` a KRaft broker starts as a new, empty cluster.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType

from tests.lab.archive import Recording, recording
from tests.lab.jars import cache_root, locked, release
from tests.lab.jvm import complaints, java
from tests.lab.ports import free_port
from tests.lab.waiting import LIMIT_S, wait_for
from tests.lab.zookeeper import ZooKeeper

SESSION_S = 3
"""So long after a broker died ZooKeeper may still keep its id."""
CLUSTER_ID = "kRepairLabCluster0000w"


@dataclass(frozen=True)
class Topic:
    """A topic to register.

    Attributes:
        partitions: how many.
        config: topic settings under the names of 2.x; they are translated for later versions.
        epochs: partition number -> leader epoch. ZooKeeper only: a broker that is told no epoch leads at 0
            and cuts the leader epoch cache of the folder. A KRaft broker always leads at 0.
    """

    partitions: int = 1
    config: Mapping[str, str] = field(default_factory=dict)
    epochs: Mapping[int, int] = field(default_factory=dict)


_NOT_ITS_FAULT = re.compile(r"Address already in use|KeeperErrorCode = NodeExists")
"""A port that somebody else took meanwhile; or ZooKeeper has not yet seen that the killed broker is gone."""

# what a JVM that ends cleanly after SIGTERM returns
ENDED_BY_SIGTERM = 143


class BrokerError(RuntimeError):
    """A broker did not start; the message holds the end of its log."""


def topic_config(version: str, config: Mapping[str, str]) -> dict[str, str]:
    """The same topic settings under the names and limits of that version."""
    out = dict(config)
    if release(version) >= (4, 0):
        out.pop("message.format.version", None)
        if int(out.get("segment.bytes", 1 << 30)) < 1 << 20:  # 4.x takes no less under that name
            out["internal.segment.bytes"] = out.pop("segment.bytes")
    return out


class Broker:
    """One broker, and what it needs beside it, for the length of a ``with`` block.

    Args:
        version: e.g. ``3.9.2``.
        log_dir: its log directory; changed in place as a broker does.
        props: broker settings over the lab's own.
        topics: name -> ``Topic``, registered first.
        work_dir: for configuration, metadata and the broker's log; a temporary one by default.
        transaction_version: KRaft: level of ``transaction.version``, e.g. 2 (KIP-890); None: the default.
        keep_partition_metadata: KRaft: leave ``partition.metadata`` files as they are.
        heap: of the JVM.
        timeout_s: longest wait for the start.
        port: on which it serves after each start, so that clients find it again; 0: any that is free.
        more_dirs: further directories of ``log.dirs``.
        before: words before the command, e.g. ``("setpriv", "--reuid=4242")``; they have to become the broker.
    """

    def __init__(
        self,
        version: str,
        log_dir: Path,
        props: Mapping[str, object] | None = None,
        topics: Mapping[str, Topic] | None = None,
        *,
        work_dir: Path | None = None,
        transaction_version: int | None = None,
        keep_partition_metadata: bool = False,
        heap: str = "512m",
        timeout_s: float = LIMIT_S,
        port: int = 0,
        more_dirs: Sequence[Path] = (),
        before: Sequence[str] = (),
    ) -> None:
        self.version = version
        self.port = port
        self.log_dirs = [Path(log_dir).absolute(), *(Path(one).absolute() for one in more_dirs)]
        self.before = tuple(before)
        self.log_dir = Path(log_dir).absolute()
        self.props = dict(props or {})
        self.topics = topics
        self.transaction_version = transaction_version
        self.keep_partition_metadata = keep_partition_metadata
        self.heap = heap
        self.timeout_s = timeout_s
        self.own_work_dir = work_dir is None
        self.work_dir = (
            Path(tempfile.mkdtemp(prefix="krepair-broker-")) if work_dir is None else Path(work_dir)
        )
        self.work_dir.mkdir(parents=True, exist_ok=True)
        for one in self.log_dirs:
            one.mkdir(parents=True, exist_ok=True)
        self.kraft = release(version) >= (3, 0)
        self.bootstrap = ""
        self.killed = False
        self._recording: Recording | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._zookeeper: ZooKeeper | None = None
        self._zookeeper_port = self._controller_port = self._port = 0
        self._log_path = self.work_dir / "broker.log"
        self._log_from = 0

    def __enter__(self) -> Broker:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    # -- life -------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start (again), and wait until it serves.

        Raises:
            BrokerError: it ended, or was not ready in time.
        """
        for attempt in range(3):
            try:
                self._start_once()
            except BrokerError:
                if attempt == 2 or not _NOT_ITS_FAULT.search(self.log()):
                    raise
            else:
                return

    def _start_once(self) -> None:
        self._port = self.port or free_port()
        self.bootstrap = f"127.0.0.1:{self._port}"
        if self.kraft:
            self._prepare_kraft()
        else:
            self._prepare_zookeeper()
        config = self._write_properties("server.properties", self._settings() | self.props)
        self._log_from = self._log_path.stat().st_size if self._log_path.exists() else 0
        with self._log_path.open("ab") as out:
            # another user could not write where the archive lies
            self._recording = None if self.before else recording(self.version)
            options = self._recording.options if self._recording else ()
            argv = [*self.before, *java(self.version, "kafka.Kafka", config, heap=self.heap, options=options)]
            self._process = subprocess.Popen(
                argv, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )
        ready = "Kafka Server started" if self.kraft else "[KafkaServer id=0] started"
        deadline = time.monotonic() + self.timeout_s
        while ready not in self.log():
            code = self._process.poll()
            if code is not None or time.monotonic() > deadline:
                said = self.log()[-6000:]
                why = next((line for line in self.log().splitlines() if "Exception:" in line), "")
                self.stop(kill=True)
                raise BrokerError(f"Kafka {self.version} did not start (exit code {code}): {why}\n{said}")
            time.sleep(0.05)

    def stop(self, *, kill: bool = False, timeout_s: float = LIMIT_S) -> None:
        """Stop it cleanly, or as a power cut would."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._recording is not None:
            self._recording.end(whole=self._process.returncode in (0, ENDED_BY_SIGTERM))
            self._recording = None
        self.killed = kill
        self._process = None

    def ends_within(self, timeout_s: float) -> bool:
        """Whether it ends by itself."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self._process.poll() is not None

    def close(self) -> None:
        """Stop it and all beside it."""
        self.stop()
        if self._zookeeper is not None:
            self._zookeeper.close()
            self._zookeeper = None
        if self.own_work_dir:
            shutil.rmtree(self.work_dir, ignore_errors=True)

    def bytes_read(self) -> int:
        """What its process has read so far, by any call (``rchar``)."""
        assert self._process is not None
        lines = Path(f"/proc/{self._process.pid}/io").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("rchar:")))

    @property
    def zookeeper(self) -> str:
        """Host and port of the ZooKeeper beside it; empty of a KRaft broker."""
        return "" if self.kraft else f"127.0.0.1:{self._zookeeper_port}"

    def log(self) -> str:
        """What the broker logged since its last start."""
        if not self._log_path.exists():
            return ""
        with self._log_path.open("rb") as handle:
            handle.seek(self._log_from)
            return handle.read().decode("utf-8", "replace")

    def complaints(self) -> list[str]:
        """Warnings and errors since its last start, without those of every healthy start."""
        return complaints(self.log())

    # -- settings ---------------------------------------------------------------------------------
    def _settings(self) -> dict[str, object]:
        common: dict[str, object] = {
            "log.dirs": ",".join(map(str, self.log_dirs)),
            "num.partitions": 1,
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 2,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 2,
            "group.initial.rebalance.delay.ms": 0,
            "log.cleaner.dedupe.buffer.size": 20_000_000,
            "num.network.threads": 2,
            "num.io.threads": 2,
            "log.segment.delete.delay.ms": 200,
            "controlled.shutdown.enable": "false",
        }
        here = f"PLAINTEXT://{self.bootstrap}"
        if not self.kraft:
            return common | {
                "broker.id": 0,
                "listeners": here,
                "zookeeper.connect": self.zookeeper,
                "zookeeper.connection.timeout.ms": 20_000,
                "zookeeper.session.timeout.ms": 1000 * SESSION_S,
            }
        controller = f"127.0.0.1:{self._controller_port}"
        return common | {
            # so that its controller takes it for stopped; else the next start waits 9 s for the end of its session
            "controlled.shutdown.enable": "true",
            "process.roles": "broker,controller",
            "node.id": 0,
            "controller.quorum.voters": f"0@{controller}",
            "listeners": f"{here},CONTROLLER://{controller}",
            "advertised.listeners": here,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "metadata.log.dir": self.work_dir / "metadata",
        }

    def _write_properties(self, name: str, settings: Mapping[str, object]) -> Path:
        path = self.work_dir / name
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    # -- ZooKeeper --------------------------------------------------------------------------------
    def _prepare_zookeeper(self) -> None:
        if self._zookeeper is not None:
            if self.killed:
                time.sleep(SESSION_S + 1)
            return
        self._zookeeper_port = free_port()
        self._zookeeper = ZooKeeper(self.version, self._zookeeper_port, self.work_dir)
        nodes: dict[str, object] = {}
        for name, topic in (self.topics or {}).items():
            nodes[f"/config/topics/{name}"] = {
                "version": 1,
                "config": topic_config(self.version, topic.config),
            }
            replicas = {str(number): [0] for number in range(topic.partitions)}
            nodes[f"/brokers/topics/{name}"] = {"version": 1, "partitions": replicas}
            for number, epoch in topic.epochs.items():
                nodes[f"/brokers/topics/{name}/partitions/{number}/state"] = leader_state(epoch)
        self._zookeeper.write(nodes)

    # -- KRaft ------------------------------------------------------------------------------------
    def _prepare_kraft(self) -> None:
        self._controller_port = free_port()
        metadata = self.work_dir / "metadata"
        if (metadata / "meta.properties").exists():
            return
        if self.topics is None:
            self._format(metadata)
            return
        seed = self._seed()
        shutil.copytree(seed / "metadata", metadata)
        shutil.copy(seed / "logs" / "meta.properties", self.log_dir)
        if self.keep_partition_metadata:
            return
        for name, topic in self.topics.items():
            for number in range(topic.partitions):
                folder = f"{name}-{number}"
                if (self.log_dir / folder).is_dir():  # another topic id would make the folder a stray
                    shutil.copy(seed / "logs" / folder / "partition.metadata", self.log_dir / folder)

    def _format(self, metadata: Path) -> None:
        metadata.mkdir(parents=True, exist_ok=True)
        config = self._write_properties("format.properties", self._settings())
        words: list[object] = ["format", "-t", CLUSTER_ID, "-c", config, "--ignore-formatted"]
        if self.transaction_version is not None:
            words += ["--feature", f"transaction.version={self.transaction_version}"]
        argv = java(self.version, "kafka.tools.StorageTool", *words)
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BrokerError(f"format: {done.stdout[-2000:]}{done.stderr[-2000:]}")

    def _seed(self) -> Path:
        """A formatted metadata log that already knows the topics; made once, kept in the cache."""
        assert self.topics is not None
        described = {name: asdict(topic) | {"epochs": {}} for name, topic in self.topics.items()}
        key = json.dumps(["told", self.version, self.transaction_version, described], sort_keys=True)
        seed = cache_root() / "seeds" / hashlib.sha256(key.encode()).hexdigest()[:16]
        with locked(seed.with_suffix(".lock")):
            if not (seed / "done").exists():
                shutil.rmtree(seed, ignore_errors=True)
                self._make_seed(seed)
                (seed / "done").touch()
        return seed

    def _make_seed(self, seed: Path) -> None:
        from tests.lab.client import create_topics

        assert self.topics is not None
        with tempfile.TemporaryDirectory(prefix="krepair-seed-") as work:
            maker = Broker(
                self.version,
                Path(work) / "logs",
                work_dir=Path(work),
                transaction_version=self.transaction_version,
            )
            with maker:
                create_topics(maker.bootstrap, self.version, self.topics)
                folders = [
                    f"{name}-{n}" for name, topic in self.topics.items() for n in range(topic.partitions)
                ]
                wait_for(lambda: all((maker.log_dir / f / "partition.metadata").exists() for f in folders))
                maker.stop()
                shutil.copytree(maker.log_dir, seed / "logs")
                shutil.copytree(maker.work_dir / "metadata", seed / "metadata")


def leader_state(epoch: int) -> dict[str, object]:
    """The state znode of a partition that broker 0 leads at that epoch."""
    return {"controller_epoch": 1, "leader": 0, "version": 1, "leader_epoch": epoch, "isr": [0]}
