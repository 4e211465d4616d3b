"""Pre-recovery before real brokers: killed under load, started plainly and after krepair, killed again.

All versions and partitions: ``KREPAIR_EVERY_BROKER=1 make test ARGS=tests/brokers/test_recovery.py``.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.ops.verify import verify_plan
from krepair.options import Engine, Options
from krepair.plan.model import Plan
from tests.brokers.serving import PASSIVE
from tests.lab import client
from tests.lab.broker import Broker, BrokerError, Topic, free_port

pytestmark = [pytest.mark.broker, pytest.mark.slow]

EVERY = os.environ.get("KREPAIR_EVERY_BROKER") == "1"
VERSIONS = ("2.2.1", "2.8.2", "3.9.2", "4.3.1") if EVERY else ("2.2.1", "4.3.1")
PARTITIONS = 32 if EVERY else 8
SEGMENT_BYTES = 1 << 20
RECORDS = 2600
VALUE = bytes(range(256)) * 4
RECOVERING = re.compile(r"partition=([a-z_]+-[0-9]+)\b.*Recovering unflushed segment ([0-9]+)")
TOPICS = {"t": Topic(PARTITIONS, {"segment.bytes": str(SEGMENT_BYTES), "segment.index.bytes": "65536"})}


def producer(broker: Broker, **more: object) -> Producer:
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
    made = producer(broker, **{"transactional.id": name, "transaction.timeout.ms": 600_000})
    made.init_transactions(60)
    return made


def send(to: Producer, partitions: range, count: int, what: str) -> None:
    failed: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failed.append((error, message.topic(), message.partition()))

    for number in range(count):
        for partition in partitions:
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
    assert to.flush(120) == 0
    assert failed == []


class Load:
    """What is written before the kill, and the producers that go on after it."""

    def __init__(self, broker: Broker, records: int = RECORDS) -> None:
        client.create_topics(broker.bootstrap, broker.version, TOPICS)
        half = PARTITIONS // 2
        self.of_plain, self.of_ready = range(half), range(half, PARTITIONS)
        self.plain, self.ready = producer(broker), producer(broker)
        for name, end in (("committed", True), ("aborted", False)):
            one = transactional(broker, name)
            one.begin_transaction()
            send(one, range(PARTITIONS), 20, name)
            (one.commit_transaction if end else one.abort_transaction)(60)
        send(self.plain, self.of_plain, records, "plain")
        send(self.ready, self.of_ready, records, "ready")
        self.open = transactional(broker, "open")
        self.open.begin_transaction()
        send(self.open, range(PARTITIONS), 5, "open")


class Seen:
    """What clients see of a broker that has just started."""

    def __init__(self, broker: Broker) -> None:
        levels: tuple[client.Isolation, ...] = ("read_uncommitted", "read_committed")
        self.records = {
            (number, level): client.digest(client.read_all(broker.bootstrap, "t", number, level))
            for number in range(PARTITIONS)
            for level in levels
        }
        self.ends = {}
        admin = client.admin(broker.bootstrap)
        for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED):
            asked = {TopicPartition("t", number): OffsetSpec.latest() for number in range(PARTITIONS)}
            answers = admin.list_offsets(asked, isolation_level=level)
            self.ends |= {(one.partition, level.name): answers[one].result(30).offset for one in answers}


def recovered(broker: Broker) -> dict[str, list[int]]:
    out: dict[str, list[int]] = {}
    for folder, base in RECOVERING.findall(broker.log()):
        out.setdefault(folder, []).append(int(base))
    return out


def options(version: str) -> Options:
    return Options(
        engine=Engine.INLINE,
        broker_version=version,
        fixes=("recovery",),
        settings=(("segment.index.bytes", "65536"),),
    )


def made_ready(log_dir: Path, version: str) -> Plan:
    plan = make_plan(str(log_dir), options(version))
    report = apply(plan, options(version))
    assert [one for one in report.results if one.outcome == "failed"] == []
    assert verify_plan(plan, options(version)).problems == ()
    return plan


def ends_planned(plan: Plan) -> dict[str, int]:
    return {part.folder: part.log_end_offset for part in plan.partitions if part.log_end_offset}


def put_back(kept: Path, log_dir: Path) -> None:
    shutil.rmtree(log_dir)
    shutil.copytree(kept, log_dir)


@pytest.mark.parametrize("version", VERSIONS)
def test_killed_broker_serves_the_same_after_krepair_as_after_a_plain_start_and_reads_nothing(
    version: str, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    with Broker(version, tmp_path / "logs", PASSIVE, work_dir=tmp_path / "work", port=free_port()) as broker:
        load = Load(broker)
        broker.stop(kill=True)
        shutil.copytree(broker.log_dir, kept)
        size = sum(log.stat().st_size for log in kept.glob("t-*/*.log"))

        broker.start()
        read_plainly = broker.bytes_read()
        old = recovered(broker)
        assert len(old["t-0"]) > 2
        plainly = Seen(broker)
        send(load.plain, load.of_plain, 50, "goes on")
        broker.stop(kill=True)

        put_back(kept, broker.log_dir)
        said = check([str(broker.log_dir)], options(version))
        assert "recovery" in said.next_command
        plan = made_ready(broker.log_dir, version)
        broker.start()
        read_ready = broker.bytes_read()
        ends = ends_planned(plan)
        first = recovered(broker)
        assert {folder: first[folder] for folder in first if folder.startswith("t-")} == {
            f"t-{number}": [ends[f"t-{number}"]] for number in range(PARTITIONS)
        }
        assert read_plainly - read_ready > 0.8 * size
        ready = Seen(broker)
        assert ready.records == plainly.records
        assert ready.ends == plainly.ends

        # Killed again before anything was flushed: again only the empty ones.
        broker.stop(kill=True)
        broker.start()
        again = recovered(broker)
        assert {folder: again[folder] for folder in again if folder.startswith("t-")} == {
            f"t-{number}": [ends[f"t-{number}"]] for number in range(PARTITIONS)
        }
        send(load.ready, load.of_ready, 50, "goes on")
        opened = transactional(broker, "open")
        opened.begin_transaction()
        send(opened, range(PARTITIONS), 5, "open again")
        opened.commit_transaction(60)
        for number in range(PARTITIONS):
            records = client.read_all(broker.bootstrap, "t", number, "read_committed")
            keys = [(record.key or b"").decode().rpartition("-")[0] for record in records]
            assert (keys.count("committed"), keys.count("aborted"), keys.count("open")) == (20, 0, 0)
            assert keys.count("open again") == 5
            mine = number in load.of_ready
            assert (keys.count("ready"), keys.count("goes on")) == ((RECORDS, 50) if mine else (0, 0))

        # And once more, with what was written since.
        seen = Seen(broker)
        broker.stop(kill=True)
        second = made_ready(broker.log_dir, version)
        broker.start()
        found = recovered(broker)
        assert all(found[f"t-{n}"] == [ends_planned(second)[f"t-{n}"]] for n in range(PARTITIONS))
        assert Seen(broker).records == seen.records


@pytest.fixture
def small_ext4(tmp_path: Path) -> Iterator[Path]:
    """An ext4 of 96 MiB on a loop device; skipped where nothing may be mounted."""
    image, folder = tmp_path / "ext4", tmp_path / "disk"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(96 << 20)
    made = ["mkfs.ext4", "-q", "-F", "-m", "0", str(image)]
    if shutil.which("mkfs.ext4") is None or subprocess.run(made, check=False).returncode:
        pytest.skip("needs mkfs.ext4")
    if subprocess.run(["mount", "-o", "loop", image, folder], capture_output=True, check=False).returncode:
        pytest.skip("needs to mount a file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("ready", [False, True], ids=["plainly", "after krepair"])
def test_start_of_4_3_1_on_a_full_disk_loses_nothing_plainly_nor_after_krepair(
    small_ext4: Path, tmp_path: Path, ready: bool
) -> None:
    """No whole broker was made to lose anything here; its loader was: see ``tests/recovery/test_show.py``.

    It may stop in either case, at the first file that it writes: after krepair that is a ``leader-epoch-checkpoint``.
    """
    with Broker(
        "4.3.1", small_ext4 / "logs", PASSIVE, work_dir=tmp_path / "work", port=free_port(), timeout_s=40
    ) as broker:
        Load(broker, records=RECORDS // 2)
        broker.stop(kill=True)
        if ready:
            made_ready(broker.log_dir, "4.3.1")
        before = {log.name: log.stat().st_size for log in broker.log_dir.glob("t-*/*.log")}
        with (small_ext4 / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(b"x" * 4096):
                pass
        with contextlib.suppress(BrokerError):
            broker.start()
        if ready:
            bases = [found for name, found in recovered(broker).items() if name.startswith("t-")]
            assert bases
            assert all(len(found) == 1 for found in bases)
        after = {log.name: log.stat().st_size for log in broker.log_dir.glob("t-*/*.log")}
        assert {name: size for name, size in before.items() if after.get(name, -1) < size} == {}
        broker.stop(kill=True)
