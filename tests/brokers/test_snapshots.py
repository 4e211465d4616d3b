"""Real brokers and their producer snapshots: what check forecast happens, and mended they know every producer."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from krepair.errors import ExitCode
from krepair.formats.producer_snapshot import ProducerEntry
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.options import EngineName, Options
from tests import encoders
from tests.brokers.serving import OF_THE_LAB, PASSIVE
from tests.lab import client
from tests.lab.broker import Broker, BrokerError, Topic
from tests.lab.jars import ENDS
from tests.lab.waiting import LIMIT_S, wait_for
from tests.ops.snapshots import entries
from tests.twins.of_plan import twin_problems

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TOPIC, FOLDER = "s", "s-0"
# Copies of the partition, to which the same thing is done, each once left to the broker and once mended.
NONE, NONE_MENDED, PAST, PAST_MENDED = COPIES = ("none", "none-mended", "past", "past-mended")
SMALL = Topic(1, {"segment.bytes": "6000"})
TOPICS = {
    **dict.fromkeys((TOPIC, *COPIES), SMALL),
    "__consumer_offsets": Topic(2, {"cleanup.policy": "compact", "segment.bytes": "1048576"}),
    "__transaction_state": Topic(2, {"cleanup.policy": "compact", "segment.bytes": "1048576"}),
}
OPEN_RECORDS = 4


def produce(bootstrap: str) -> Producer:
    """Several producers; the one that is given back has a transaction open, of ``OPEN_RECORDS`` records."""

    def producer(**more: object) -> Producer:
        base = {"bootstrap.servers": bootstrap, "linger.ms": 0, "transaction.timeout.ms": 850_000}
        return Producer(base | {key.replace("_", "."): value for key, value in more.items()})

    def send(sender: Producer, count: int) -> None:
        failed: list[object] = []
        for number in range(count):
            sender.produce(
                TOPIC,
                key=b"k%d" % number,
                value=b"v" * 100,
                partition=0,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert sender.flush(LIMIT_S) == 0
        assert failed == []

    committing = producer(transactional_id="commits")
    committing.init_transactions(LIMIT_S)
    for turn in range(6):
        committing.begin_transaction()
        send(committing, 10 + turn)
        (committing.abort_transaction if turn == 3 else committing.commit_transaction)(LIMIT_S)
    for life in range(3):
        fenced = producer(transactional_id="lives again")
        fenced.init_transactions(LIMIT_S)
        fenced.begin_transaction()
        send(fenced, 5)
        if life == 0:
            fenced.commit_transaction(LIMIT_S)
    # the third life aborts what the second one left, and is aborted itself
    fenced.abort_transaction(LIMIT_S)
    idempotent = producer(enable_idempotence=True)
    for _ in range(5):
        send(idempotent, 12)
    plain = producer(enable_idempotence=False, acks=1)
    send(plain, 7)
    opened = producer(transactional_id="never ends")
    opened.init_transactions(LIMIT_S)
    opened.begin_transaction()
    send(opened, OPEN_RECORDS)
    return opened


def end(broker: Broker, level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> int:
    """Where the log of ``TOPIC`` ends for readers of that isolation level."""
    admin, at = client.admin(broker.bootstrap), TopicPartition(TOPIC, 0)
    return int(
        admin.list_offsets({at: OffsetSpec.latest()}, isolation_level=level)[at].result(LIMIT_S).offset
    )


def stable_end(broker: Broker) -> int:
    """Its last stable offset."""
    return end(broker, IsolationLevel.READ_COMMITTED)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """``written("3.9.2")``: a log directory as a broker of that version left it at a clean stop."""
    made: dict[str, Path] = {}

    def of(version: str) -> Path:
        if version not in made:
            log_dir = tmp_path_factory.mktemp(f"written-{version}") / "logs"
            with Broker(version, log_dir, PASSIVE, TOPICS) as broker:
                held = produce(broker.bootstrap)
                # A commit is answered before its marker is written.
                wait_for(lambda: stable_end(broker) == end(broker) - OPEN_RECORDS)
                broker.stop()
                del held
            made[version] = log_dir
        return made[version]

    yield of
    for path in made.values():
        shutil.rmtree(path.parent)


def options(version: str, *topics: str) -> Options:
    return Options(
        engine=EngineName.INLINE,
        now_ms=time.time_ns() // 1_000_000,
        fixes=("snapshots",),
        broker_version=version,
        topics=topics or (TOPIC,),
    )


def mend(log_dir: Path, version: str, *topics: str) -> None:
    given = options(version, *topics)
    plan = make_plan(str(log_dir), given)
    assert apply(plan, given).exit_code == ExitCode.DONE
    assert twin_problems(plan) == []


def snapshots(log_dir: Path, topic: str = TOPIC) -> list[Path]:
    return sorted((log_dir / f"{topic}-0").glob("*.snapshot"))


@pytest.mark.parametrize("version", ENDS)
def test_last_snapshot_deleted_is_left_to_the_broker_which_reads_the_log_from_the_one_before(
    tmp_path: Path, written: Callable[[str], Path], version: str
) -> None:
    log_dir = Path(shutil.copytree(written(version), tmp_path / "logs"))
    snapshots(log_dir)[-1].unlink()
    report = check([str(log_dir)], options(version)).log_dirs[0]
    assert report.findings == ()


class Started(NamedTuple):
    """What a broker made of the copies.

    Attributes:
        found: topic -> rules of its findings, before.
        told: topic -> what its forecast said.
        committed: topic -> records that a consumer of committed ones got.
        known: topic -> producers in the snapshot of the next clean stop.
        expected: producers that the broker had written.
        only_here: one that only the snapshot at the log end of ``PAST`` knows.
        complaints: of the broker.
    """

    found: dict[str, list[str]]
    told: dict[str, str]
    committed: dict[str, int]
    known: dict[str, set[ProducerEntry]]
    expected: set[ProducerEntry]
    only_here: ProducerEntry
    complaints: list[str]


@pytest.fixture(scope="module")
def started(
    written: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Started]:
    """Start once on all copies, add a record of no producer to each, stop cleanly."""
    done: dict[str, Started] = {}

    def of(version: str) -> Started:
        if version not in done:
            log_dir = tmp_path_factory.mktemp(f"started-{version}") / "logs"
            done[version] = start_on(version, Path(shutil.copytree(written(version), log_dir)))
            shutil.rmtree(log_dir)
        return done[version]

    return of


def start_on(version: str, log_dir: Path) -> Started:
    last = snapshots(log_dir)[-1]
    expected, end = entries(last), int(last.name[:20])
    only_here = ProducerEntry(123456, 3, 17, 5, 0, time.time_ns() // 1_000_000, 2, -1)
    for topic in COPIES:
        shutil.rmtree(log_dir / f"{topic}-0")
        shutil.copytree(log_dir / FOLDER, log_dir / f"{topic}-0")
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            path = log_dir / name
            path.write_text(re.sub(rf"(?m)^{topic} 0 \d+$", f"{topic} 0 {end}", path.read_text()))
        at_end = log_dir / f"{topic}-0" / last.name
        if topic in {NONE, NONE_MENDED}:
            for path in snapshots(log_dir, topic):
                path.unlink()
        else:  # what the log cannot give back shows whether the good one was loaded
            at_end.write_bytes(encoders.encode_snapshot([*expected, only_here]))
            shutil.copy(at_end, at_end.with_name(f"{10**6:020d}.snapshot"))
    report = check([str(log_dir)], options(version, *COPIES)).log_dirs[0]
    found: dict[str, list[str]] = {topic: [] for topic in COPIES}
    for finding in report.findings:
        if (
            finding.partition
        ):  # of the whole directory: transactions of the copies, of which no coordinator knows
            found[finding.partition[:-2]].append(finding.rule)
    told = {line.partition[:-2]: line.text for line in report.forecast}
    mend(log_dir, version, NONE_MENDED, PAST_MENDED)
    with Broker(version, log_dir, PASSIVE, TOPICS) as broker:
        committed = {
            topic: len(client.read_all(broker.bootstrap, topic, isolation="read_committed"))
            for topic in COPIES
        }
        plain = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": False})
        for topic in COPIES:
            plain.produce(topic, value=b"one more", partition=0)
        assert plain.flush(LIMIT_S) == 0
        broker.stop()
        complaints = [line for line in broker.complaints() if not OF_THE_LAB.search(line)]
    known = {topic: entries(snapshots(log_dir, topic)[-1]) for topic in COPIES}
    return Started(found, told, committed, known, expected, only_here, complaints)


@pytest.mark.parametrize("version", ENDS)
def test_without_a_snapshot_producers_are_forgotten_as_forecast_and_mended_they_are_not(
    started: Callable[[str], Started], version: str
) -> None:
    seen = started(version)
    assert seen.found[NONE] == ["KR503"]
    assert "4 producers, 1 of them with an open transaction are forgotten" in seen.told[NONE]
    assert seen.known[NONE] == set()
    assert seen.known[NONE_MENDED] == seen.expected
    # records of the open transaction are served as if it had been committed
    assert seen.committed[NONE] == seen.committed[NONE_MENDED] + OPEN_RECORDS


@pytest.mark.parametrize("version", ENDS)
def test_snapshot_past_the_end_costs_the_good_one_since_2_8_as_forecast_and_mended_it_is_loaded(
    started: Callable[[str], Started], version: str
) -> None:
    seen = started(version)
    lost = version != "2.2.1"
    assert seen.found[PAST] == ["KR502"]
    assert ("reads the log" in seen.told[PAST]) is lost
    assert seen.known[PAST] == (seen.expected if lost else seen.expected | {seen.only_here})
    assert seen.known[PAST_MENDED] == seen.expected | {seen.only_here}


@pytest.mark.parametrize("version", ENDS)
def test_broker_starts_on_what_krepair_made_without_a_complaint(
    started: Callable[[str], Started], version: str
) -> None:
    assert started(version).complaints == []


@pytest.mark.parametrize("version", ENDS)
def test_snapshot_without_an_offset_in_its_name_keeps_the_broker_down_as_forecast(
    tmp_path: Path, written: Callable[[str], Path], version: str
) -> None:
    log_dir = Path(shutil.copytree(written(version), tmp_path / "logs"))
    shutil.copy(snapshots(log_dir)[-1], log_dir / FOLDER / "copy.snapshot")
    report = check([str(log_dir)], options(version)).log_dirs[0]
    assert {line.expected for line in report.forecast} == {"refuse"}
    with pytest.raises(BrokerError, match="NumberFormatException"), Broker(version, log_dir, PASSIVE, TOPICS):
        pass
