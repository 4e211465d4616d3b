"""A coordinator loads what ``compact`` leaves, on versions that hang where a segment ends without records."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from krepair.errors import ExitCode
from krepair.ops.check import check
from krepair.options import Options
from tests import naive
from tests.brokers.serving import PASSIVE
from tests.builders import Record, data
from tests.builders import emptied as of_producer
from tests.compaction.directories import Verbs, options
from tests.lab import client
from tests.lab.broker import Broker, Topic
from tests.lab.waiting import LIMIT_S

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TOPIC = "__transaction_state"
PROPS = PASSIVE | {"transaction.state.log.num.partitions": 1, "transaction.state.log.segment.bytes": 1500}
HANGS_S = 4.0
"""A load that ends takes well below a second."""


def producer(broker: Broker) -> Producer:
    """A client of the transactional id ``tx``."""
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": "tx", **client.QUIET}
    return Producer(settings)


def begins(broker: Broker, timeout_s: float) -> bool:
    """Whether a transactional id of the partition can begin."""
    try:
        producer(broker).init_transactions(timeout_s)
    except KafkaException:
        return False
    return True


def write_transactions(broker: Broker) -> None:
    """Some segments of the coordinator's log."""
    client.create_topics(broker.bootstrap, broker.version, {"t": Topic(1, {})})
    sender = producer(broker)
    sender.init_transactions(LIMIT_S)
    for number in range(12):
        sender.begin_transaction()
        sender.produce("t", value=b"%d" % number)
        sender.commit_transaction(LIMIT_S)


def last_closed(log_dir: Path) -> tuple[Path, bytes, naive.Batch]:
    """The last closed segment of the coordinator's log: path, bytes before its last batch, and that batch."""
    path = sorted((log_dir / f"{TOPIC}-0").glob("*.log"))[-2]
    log = path.read_bytes()
    last = naive.parse(log)[-1]
    return path, log[: last.position], last


def left_by_a_cleaner(log_dir: Path) -> None:
    """The last closed segment ends with an emptied batch, as cleaners of 3.9.2 and later leave it (KAFKA-17076)."""
    path, before, last = last_closed(log_dir)
    batch = of_producer(
        last.base_offset,
        last.last_offset,
        pid=-1,
        epoch=-1,
        sequence=-1,
        txn=False,
        timestamp=last.max_timestamp,
    )
    path.write_bytes(before + batch.raw)


def end_with_a_tombstone(log_dir: Path) -> None:
    """The last closed segment ends with the tombstone of an id that has expired."""
    path, before, last = last_closed(log_dir)
    # the key of version 0: version, and the id as a string with its length
    expired = [Record(b"\0\0\0\4gone", None)]
    path.write_bytes(before + data(last.base_offset, expired, timestamp=last.max_timestamp).raw)


def compact(log_dir: Path, version: str) -> None:
    """``--fix compact`` of everything that may go, applied and verified."""
    now_ms = int(time.time() * 1000)
    given = options(log_dir.parent, TOPIC, settings={"segment.bytes": "1500"}, now_ms=now_ms, topics=(TOPIC,))
    verbs = Verbs(
        log_dir, replace(given, delete_horizon=str(now_ms), broker_version=version, only_replica=(TOPIC,))
    )
    plan = verbs.plan()
    assert plan.partitions[0].changes, plan.partitions[0].why
    assert verbs.apply(plan).exit_code is ExitCode.DONE
    assert verbs.verify(plan).problems == ()


def named(log_dir: Path, version: str) -> bool:
    """Whether check says that the load does not end."""
    report = check([str(log_dir)], Options(broker_version=version))
    return any(one.rule == "KR109" for one in report.log_dirs[0].findings)


@pytest.mark.parametrize(("version", "hangs"), [("2.2.1", True), ("3.7.2", True), ("3.9.2", False)])
def test_transactions_begin_once_what_stopped_them_is_compacted(
    version: str, hangs: bool, tmp_path: Path
) -> None:
    log_dir = tmp_path / "logs"
    with Broker(version, log_dir, PROPS, work_dir=tmp_path / "work") as broker:
        write_transactions(broker)
        broker.stop()
        assert not named(log_dir, version)

        end_with_a_tombstone(log_dir)
        compact(log_dir, version)
        assert not named(log_dir, "2.2.1")
        broker.start()
        assert begins(broker, LIMIT_S)
        broker.stop()

        left_by_a_cleaner(log_dir)
        broker.start()
        assert begins(broker, HANGS_S if hangs else LIMIT_S) is not hangs
        # 2.2.1 waits for the load that does not end before it stops.
        broker.stop(kill=hangs)
        assert named(log_dir, version) is hangs

        compact(log_dir, version)
        assert not named(log_dir, "2.2.1")
        broker.start()
        assert begins(broker, LIMIT_S)
