"""Creates the log directories in ``fixtures/`` with real brokers and real clients.

    python -m tools.make_fixtures offsets-bloat-2.2.0-clean --transactions 300 --out /some/folder
    python -m tools.make_fixtures offsets-tv2-4.3.1

Needs Maven, a JDK and the test dependencies. Each gives ``NAME.tar.zst`` (a log directory under ``logs/``,
with ``lab-manifest.json`` in it) and ``NAME.json`` (counts per partition) in ``fixtures/`` or another folder.
"""

from __future__ import annotations

import argparse
import json
import struct
import subprocess
import tarfile
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import zstandard
from confluent_kafka import Consumer, Producer, TopicPartition

from tests import naive
from tests.lab.broker import Broker, Topic
from tests.lab.client import admin, create_topics
from tests.lab.jvm import java

HERE = Path(__file__).parent
FIXTURES = HERE.parent / "fixtures"
QUIET = {"log_level": 2}


def compacted(segment_bytes: int, delete_retention_ms: int) -> dict[str, str]:
    """Return the settings of a topic that is cleaned at every opportunity."""
    return {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(segment_bytes),
        "delete.retention.ms": str(delete_retention_ms),
        "min.cleanable.dirty.ratio": "0.01",
    }


def counts(folder: Path) -> dict[str, object]:
    """Count what a partition folder holds."""
    segments, snapshots = naive.read_partition(folder)
    batches = [batch for segment in segments for batch in naive.parse(segment.log)]
    kinds = Counter(batch.kind for batch in batches)
    ends = [batches[0].base_offset, batches[-1].last_offset] if batches else [None, None]
    return {
        "segments": len(segments),
        "bytes": sum(len(segment.log) for segment in segments),
        "batches": len(batches),
        "records": sum(batch.records for batch in batches if not batch.control),
        "empty_batches": kinds["emptied"],
        "markers": kinds["commit"] + kinds["abort"],
        "commit": kinds["commit"],
        "abort": kinds["abort"],
        "stamped": sum(batch.stamped for batch in batches),
        "producers": len({batch.producer_id for batch in batches if batch.producer_id >= 0}),
        "greatest_producer_epoch": max((batch.epoch for batch in batches), default=-1),
        "leader_epochs": len({e for s in segments for e in leader_epochs(s.log)}),
        "offsets": ends,
        "snapshots": len(snapshots),
    }


def leader_epochs(log: bytes) -> set[int]:
    """Return the leader epochs in a ``.log``."""
    return {struct.unpack_from(">i", log, batch.position + 12)[0] for batch in naive.parse(log)}


def pack(name: str, log_dir: Path, manifest: Mapping[str, object], out: Path) -> None:
    """Pack the log directory of a stopped broker, with modification times but without owners."""
    (log_dir / "lab-manifest.json").write_text(json.dumps(manifest, indent=1, sort_keys=True))
    out.mkdir(parents=True, exist_ok=True)
    parameters = zstandard.ZstdCompressionParameters.from_level(19, window_log=27)

    def nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    with (
        (out / f"{name}.tar.zst").open("wb") as packed,
        zstandard.ZstdCompressor(compression_params=parameters).stream_writer(packed) as stream,
        tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        tar.add(log_dir, arcname="logs", filter=nobody)
    folders = sorted(path for path in log_dir.iterdir() if path.is_dir())
    rows = [f" {json.dumps(folder.name)}: {json.dumps(counts(folder))}" for folder in folders]
    (out / f"{name}.json").write_text("{\n" + ",\n".join(rows) + "\n}\n")
    print(f"{name}: {(out / f'{name}.tar.zst').stat().st_size} bytes")
    print("\n".join(rows))


def wait_for_cleaner(broker: Broker, quiet_s: float = 2, longest_s: float = 30) -> None:
    """Wait until the cleaner has logged nothing for a while."""
    lines, since, deadline = -1, time.monotonic(), time.monotonic() + longest_s
    while time.monotonic() < deadline and time.monotonic() - since < quiet_s:
        now = broker.log().count("LogCleaner")
        if now != lines:
            lines, since = now, time.monotonic()
        time.sleep(0.1)


# -- offsets-bloat: KAFKA-8335 as it happened -----------------------------------------------------------
class Committer:
    """Transactional id that commits offsets of a group."""

    def __init__(self, bootstrap: str, name: str) -> None:
        common = {"bootstrap.servers": bootstrap, **QUIET}
        self.consumer = Consumer({**common, "group.id": f"g-{name}", "enable.auto.commit": False})
        self.group = self.consumer.consumer_group_metadata()
        self.settings = {
            **common,
            "transactional.id": f"tx-{name}",
            "transaction.timeout.ms": 600_000,
            "retry.backoff.ms": 2,
            "retry.backoff.max.ms": 5,
        }
        self.restart()

    def restart(self) -> None:
        """Start the next life of the transactional id, which increments its epoch."""
        self.producer = Producer(self.settings)
        self.producer.init_transactions(30)

    def begin(self, number: int) -> None:
        """Commit offsets and leave the transaction open."""
        self.producer.begin_transaction()
        offsets = [TopicPartition("t-a", number % 2, number), TopicPartition("t-b", 0, number)]
        self.producer.send_offsets_to_transaction(offsets, self.group, 30)

    def run(self, number: int) -> None:
        """Run one transaction; every seventh is aborted."""
        self.begin(number)
        (self.producer.abort_transaction if number % 7 == 3 else self.producer.commit_transaction)(30)

    def work(self, first: int, count: int, restart_every: int) -> None:
        """Run many transactions."""
        for number in range(first, first + count):
            self.run(number)
            if restart_every and number % restart_every == restart_every - 1:
                self.restart()


def offsets_bloat(name: str, transactions: int, out: Path) -> None:
    """Create bloat of 2.2.0 with its cleaner on: six transactional ids, a deleted group, open transactions."""
    # A small fixture rolls small segments, else the cleaner has no inactive segment to leave bloat in.
    segment_bytes = 100_000 if transactions >= 1000 else 20_000
    props = {
        "offsets.topic.segment.bytes": segment_bytes,
        "transaction.state.log.segment.bytes": 100_000,
        "log.cleaner.backoff.ms": 200,
        "log.cleaner.delete.retention.ms": 1000,
        "log.cleaner.min.cleanable.ratio": 0.01,
        "offsets.retention.check.interval.ms": 5000,
    }
    topics = {f"t-{letter}": Topic(2) for letter in "abc"}
    described = {n: asdict(t) for n, t in topics.items()}
    for internal in ("__consumer_offsets", "__transaction_state"):
        described[internal] = asdict(Topic(2, compacted(segment_bytes, 1000)))
    with tempfile.TemporaryDirectory(prefix="krepair-fixture-") as work:
        log_dir = Path(work) / "logs"
        with Broker("2.2.0", log_dir, props) as broker:
            create_topics(broker.bootstrap, "2.2.0", topics)
            idle = Committer(broker.bootstrap, "idle")
            idle.work(0, 3, 0)
            plain = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "plain", **QUIET})
            workers = [Committer(broker.bootstrap, str(n)) for n in range(6)]
            per_round = max(1, transactions // 3)
            for turn in range(3):
                first = turn * per_round
                threads = [
                    threading.Thread(
                        target=w.work, args=(first, per_round, 0 if n else max(2, transactions // 8))
                    )
                    for n, w in enumerate(workers)
                ]
                for thread in threads:
                    thread.start()
                while any(thread.is_alive() for thread in threads):
                    plain.commit(offsets=[TopicPartition("t-a", 0, first)], asynchronous=False)
                    time.sleep(0.05)
                if turn == 0:
                    gone = Committer(broker.bootstrap, "gone")
                    gone.work(0, 20, 0)
                    client = admin(broker.bootstrap)
                    for future in client.delete_consumer_groups(["g-gone"]).values():
                        future.result(30)
                wait_for_cleaner(broker, 1.5, 20)
            still_open = [Committer(broker.bootstrap, f"open{n}") for n in range(2)]
            for committer in still_open:
                committer.begin(77)
            for worker in workers:
                worker.work(10_000, 60, 0)
            time.sleep(1.2)
            wait_for_cleaner(broker)
            broker.stop()
        manifest = {"version": "2.2.0", "props": props, "topics": described, "stopped": "SIGTERM"}
        pack(name, log_dir, manifest, out)


# -- offsets-tv2: KIP-890 epochs and KIP-534 stamps --------------------------------------------------------
def offsets_tv2(name: str, transactions: int, out: Path) -> None:
    """Run Kafka's own client against transaction.version=2; the cleaner stamps markers that may not go yet."""
    version = "4.3.1"
    props = {"log.cleaner.backoff.ms": 200, "offsets.retention.check.interval.ms": 5000}
    topics = {f"t-{letter}": Topic(2) for letter in "ab"}
    for internal in ("__consumer_offsets", "__transaction_state"):
        topics[internal] = Topic(2, compacted(30_000, 600_000))
    with tempfile.TemporaryDirectory(prefix="krepair-fixture-") as work:
        log_dir = Path(work) / "logs"
        with Broker(version, log_dir, props, topics, transaction_version=2) as broker:
            source = HERE / "java" / "TxnOffsets.java"
            argv = java(version, str(source), broker.bootstrap, 4, transactions)
            done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
            if "DONE" not in done.stdout:
                raise SystemExit(f"the client failed: {done.stderr[-3000:]}")
            wait_for_cleaner(broker)
            broker.stop()
        described = {n: asdict(t) for n, t in topics.items()}
        manifest = {
            "version": version,
            "props": props,
            "topics": described,
            "transaction.version": 2,
            "stopped": "SIGTERM",
        }
        pack(name, log_dir, manifest, out)


MAKERS = {"offsets-bloat-2.2.0-clean": (offsets_bloat, 3000), "offsets-tv2-4.3.1": (offsets_tv2, 2000)}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=sorted(MAKERS))
    parser.add_argument("--transactions", type=int, help="per transactional id (bloat), in all (tv2)")
    parser.add_argument("--out", type=Path, default=FIXTURES)
    arguments = parser.parse_args()
    make, usual = MAKERS[arguments.name]
    make(arguments.name, arguments.transactions or usual, arguments.out)


if __name__ == "__main__":
    main()
