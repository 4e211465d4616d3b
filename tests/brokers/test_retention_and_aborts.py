"""An abort was indexed while another transaction was open whose records are deleted since: the index is right."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition

from krepair.ops.check import check
from krepair.options import EngineName, Options
from tests.brokers.serving import PASSIVE
from tests.lab import beside, client
from tests.lab.broker import Broker, Topic
from tests.lab.jars import LATEST
from tests.lab.waiting import LIMIT_S, wait_for

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def producer(broker: Broker, name: str) -> Producer:
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "linger.ms": 0}
    made = Producer(settings | {"transaction.timeout.ms": 600_000} | client.QUIET)
    made.init_transactions(LIMIT_S)
    return made


def write(sender: Producer, count: int) -> None:
    for number in range(count):
        sender.produce("t", key=b"%d" % number, value=b"x" * 400, partition=0)
        sender.flush(LIMIT_S)


@pytest.mark.parametrize(
    "version",
    [
        "3.9.2",
        pytest.param("2.2.1", marks=pytest.mark.every_broker),
        pytest.param(LATEST, marks=pytest.mark.every_broker),
    ],
)
def test_an_index_entry_below_a_transaction_that_was_deleted_is_no_finding(
    version: str, tmp_path: Path
) -> None:
    log_dir = tmp_path / "log"
    with Broker(version, log_dir, PASSIVE | {"log.retention.check.interval.ms": 500}) as broker:
        config = {"segment.bytes": "3000", "retention.ms": "-1"}
        client.create_topics(broker.bootstrap, version, {"t": Topic(1, config)})
        older, aborted = producer(broker, "older"), producer(broker, "aborted")
        older.begin_transaction()
        write(older, 12)
        aborted.begin_transaction()
        write(aborted, 2)
        aborted.abort_transaction(LIMIT_S)
        wait_for(lambda: indexed(log_dir) > 0)  # its marker comes a moment later
        older.commit_transaction(LIMIT_S)
        write(producer_outside(broker), 12)
        admin = client.admin(broker.bootstrap)
        [deleted] = admin.delete_records([TopicPartition("t", 0, 12)]).values()
        deleted.result(LIMIT_S)
        wait_for(lambda: first_base(log_dir) > 0)
        broker.stop()
    [entry] = [
        row[1:]
        for path in sorted((log_dir / "t-0").glob("*.txnindex"))
        for row in struct.iter_unpack(">hqqqq", path.read_bytes())
    ]
    _, first, _, stable = entry
    assert stable == 0 < first_base(log_dir) <= first
    report = check([str(log_dir)], Options(engine=EngineName.INLINE, topics=("t",))).log_dirs[0]
    assert [one for one in report.findings if one.rule == "KR204"] == []


def producer_outside(broker: Broker) -> Producer:
    """One without transactions."""
    return Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0} | client.QUIET)


def indexed(log_dir: Path) -> int:
    """Bytes of all transaction indexes."""
    return sum(map(len, beside.read(log_dir / "t-0", "*.txnindex").values()))


def first_base(log_dir: Path) -> int:
    """Base offset of the first segment that is left."""
    return int(Path(beside.listed(log_dir / "t-0")[0]).stem)
