"""What real brokers leave, cleanly stopped or killed, is not damaged: check has no warning that is not true of it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from krepair.checks.catalogue import counts
from krepair.findings.reports import LogDirReport
from krepair.ops.check import check
from krepair.options import EngineName, Options
from tests.lab import client
from tests.lab.broker import Broker, Topic, topic_config
from tests.lab.jars import ENDS, OLDEST_AND_LATEST
from tests.lab.waiting import LIMIT_S, wait_for

pytestmark = [pytest.mark.broker, pytest.mark.slow]

SMALL = {"segment.bytes": "6000"}
COMPACT = {"cleanup.policy": "compact", "segment.bytes": "1048576"}
TOPICS = {
    "plain": Topic(2, SMALL),
    "tx": Topic(2, SMALL),
    "back-dated": Topic(2, SMALL),
    "cut": Topic(1, SMALL),
    "compacted": Topic(1, SMALL | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}),
    "empty": Topic(1),
    "__consumer_offsets": Topic(2, COMPACT),
    "__transaction_state": Topic(2, COMPACT),
}
PROPS = {
    "log.cleaner.backoff.ms": 300,
    "log.retention.check.interval.ms": 1000,
    "log.flush.offset.checkpoint.interval.ms": 1000,
    "log.flush.start.offset.checkpoint.interval.ms": 1000,
    "replica.high.watermark.checkpoint.interval.ms": 500,
}
AGO_MS = 51 * 60_000
STAGES = ("stopped", "killed", "recovered")
QUIET = {"log_level": 0}


class Lived(NamedTuple):
    """Copies of one log directory: after a clean stop, after SIGKILL, after the start and clean stop that followed."""

    stopped: Path
    killed: Path
    recovered: Path


def producer(bootstrap: str, **more: object) -> Producer:
    base = {"bootstrap.servers": bootstrap, "linger.ms": 0, "transaction.timeout.ms": 850_000, **QUIET}
    return Producer(base | {key.replace("_", "."): value for key, value in more.items()})


def send(sender: Producer, topic: str, partition: int, count: int, ago_ms: int = 0) -> None:
    stamp = time.time_ns() // 1_000_000 - ago_ms
    for number in range(count):
        sender.produce(topic, b"v" * 100, b"k%d" % number, partition, timestamp=stamp)
    assert sender.flush(LIMIT_S) == 0


def write(bootstrap: str) -> list[Producer]:
    """Records of every kind; what is given back has transactions open, of records that look 51 minutes old."""
    plain, idempotent = (
        producer(bootstrap, enable_idempotence=False),
        producer(bootstrap, enable_idempotence=True),
    )
    for _ in range(12):
        for partition in range(2):
            send(plain, "plain", partition, 10)
            send(idempotent, "plain", partition, 5)
        send(plain, "compacted", 0, 25)
        send(idempotent, "cut", 0, 10)
    for partition in range(2):
        sender = producer(bootstrap, transactional_id=f"ends-{partition}")
        sender.init_transactions(LIMIT_S)
        for turn in range(16):
            sender.begin_transaction()
            send(sender, "tx", partition, 12)
            (sender.abort_transaction if turn == 3 else sender.commit_transaction)(LIMIT_S)
    opened = []
    for partition in range(2):
        send(plain, "back-dated", partition, 40, AGO_MS)
        sender = producer(bootstrap, transactional_id=f"open-{partition}")
        sender.init_transactions(LIMIT_S)
        sender.begin_transaction()
        send(sender, "back-dated", partition, 8, AGO_MS)
        opened.append(sender)
    return opened


def consume(bootstrap: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "group",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **QUIET,
        }
    )
    consumer.subscribe(["plain"])
    read, end = 0, time.monotonic() + LIMIT_S
    while read < 100 and time.monotonic() < end:
        read += len(consumer.consume(100, 1))
    assert read >= 100
    client.commit(consumer)
    consumer.close()


def delete_below(bootstrap: str, at: TopicPartition) -> None:
    admin = client.admin(bootstrap)  # its futures need it
    admin.delete_records([at])[at].result(LIMIT_S)


def high_watermarks_written(log_dir: Path) -> None:
    """Wait until the broker has written its high watermarks anew, as of now; its cleaner gets some time, too."""
    path = log_dir / "replication-offset-checkpoint"
    for _ in range(2):
        before = path.stat().st_ino
        wait_for(lambda before=before: path.stat().st_ino != before)
    time.sleep(1)


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Lived]]:
    """``lived("3.9.2")``: three starts of a broker of that version, and what each left."""
    made: dict[str, Lived] = {}

    def copied(log_dir: Path, stage: str) -> Path:
        return Path(shutil.copytree(log_dir, log_dir.parent / stage))

    def of(version: str) -> Lived:
        if version in made:
            return made[version]
        log_dir = tmp_path_factory.mktemp(f"lived-{version}") / "logs"
        with Broker(version, log_dir, PROPS, TOPICS) as broker:
            held = write(broker.bootstrap)
            consume(broker.bootstrap)
            delete_below(broker.bootstrap, TopicPartition("cut", 0, 57))
            broker.stop()
            stopped = copied(log_dir, STAGES[0])
            broker.start()
            held += write(broker.bootstrap)
            high_watermarks_written(log_dir)
            broker.stop(kill=True)
            killed = copied(log_dir, STAGES[1])
            broker.start()
            broker.stop()
            made[version] = Lived(stopped, killed, copied(log_dir, STAGES[2]))
            del held
        return made[version]

    yield of
    for each in made.values():
        shutil.rmtree(each.stopped.parent)


def checked(log_dir: Path, version: str, *, described: bool) -> LogDirReport:
    """Check as an operator would: with all that is known of the topics, or with nothing at all."""
    given: dict[str, object] = {"engine": EngineName.INLINE}
    if described:
        topics = log_dir.parent / "topics.json"
        topics.write_text(
            json.dumps(
                {
                    name: {"cleanup.policy": "delete"} | topic_config(version, topic.config)
                    for name, topic in TOPICS.items()
                }
            )
        )
        given |= {"broker_version": version, "topic_config": str(topics)}
    return check([str(log_dir)], Options(**given)).log_dirs[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("described", [True, False], ids=["described", "not described"])
@pytest.mark.parametrize("version", OLDEST_AND_LATEST)
def test_check_warns_of_nothing_but_the_recovery_after_a_kill(
    lived: Callable[[str], Lived], version: str, described: bool
) -> None:
    warned = {}
    for stage, log_dir in zip(STAGES, lived(version), strict=True):
        report = checked(log_dir, version, described=described)
        warned[stage] = [finding for finding in report.findings if counts(finding)]
    recovery = [finding for finding in warned["killed"] if finding.rule == "KR801"]
    assert warned == {"stopped": [], "killed": recovery, "recovered": []}
    assert len(recovery) == 1


@pytest.mark.parametrize("version", ENDS[1:])
def test_snapshots_of_no_segment_that_a_kill_leaves_are_information_and_the_next_start_removes_them(
    lived: Callable[[str], Lived], version: str
) -> None:
    found = {
        finding.partition: finding
        for finding in checked(lived(version).killed, version, described=True).findings
        if finding.rule[:3] == "KR5"
    }
    assert {finding.rule for finding in found.values()} == {"KR504"}
    assert found
    for folder, finding in found.items():
        assert (lived(version).killed / folder / finding.file).exists()
        assert not (lived(version).recovered / folder / finding.file).exists()


@pytest.mark.parametrize("version", OLDEST_AND_LATEST)
def test_live_transactions_of_back_dated_records_are_neither_hanging_nor_unknown_while_their_coordinator_tells(
    lived: Callable[[str], Lived], tmp_path: Path, version: str
) -> None:
    rules = {"KR103", "KR107"}
    alone = Path(shutil.copytree(lived(version).killed, tmp_path / "alone"))
    for folder in alone.glob("__transaction_state-*"):
        shutil.rmtree(folder)
    told = {
        name: [
            finding.rule
            for finding in checked(log_dir, version, described=True).findings
            if finding.rule in rules
        ]
        for name, log_dir in (("with", lived(version).killed), ("without", alone))
    }
    assert told["with"] == []
    assert "KR103" not in told["without"]


@pytest.mark.parametrize("version", OLDEST_AND_LATEST)
def test_closed_segment_of_a_delete_topic_that_is_gone_is_told_with_the_offsets_that_are_lost(
    lived: Callable[[str], Lived], tmp_path: Path, version: str
) -> None:
    log_dir = Path(shutil.copytree(lived(version).stopped, tmp_path / "logs"))
    for name in ("plain-0", "tx-1"):
        bases = sorted(int(path.stem) for path in (log_dir / name).glob("*.log"))
        for path in (log_dir / name).glob(f"{bases[1]:020d}.*"):
            path.unlink()
        report = checked(log_dir, version, described=True)
        (finding,) = [each for each in report.findings if each.partition == name and each.rule == "KR310"]
        expected = f"{bases[2] - bases[1]} offsets without a record: {bases[1]} to {bases[2] - 1} are in no segment; "
        assert finding.evidence.startswith(expected)
