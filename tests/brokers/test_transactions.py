"""What ``krepair transactions`` says is what brokers say, and its commands do on a live cluster what they should."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from krepair.ops.transactions import OpenInLog, TransactionsReport, transactions
from krepair.options import EngineName, Options
from tests import builders, naive
from tests.brokers.serving import PASSIVE
from tests.lab import beside, client
from tests.lab.broker import Broker, Topic
from tests.lab.jars import LATEST
from tests.lab.jvm import java
from tests.lab.waiting import LIMIT_S, wait_for

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TOOL = "org.apache.kafka.tools.TransactionsCommand"
TOOL_FOR = {LATEST: LATEST, "2.2.1": "3.9.2"}
"""The tool of 4.x cannot write markers to brokers before 3.0 (KIP-896)."""
PROPS = PASSIVE | {"transaction.state.log.num.partitions": 1}
HOUR_MS = 3_600_000


def ours(log_dir: Path, version: str) -> TransactionsReport:
    return transactions(str(log_dir), Options(engine=EngineName.INLINE, broker_version=version))


def typed(command: str, broker: Broker) -> str:
    """What a printed command answers on a live cluster; a broker that has only just started needs a moment."""
    words = shlex.split(command.replace("HOST:PORT", broker.bootstrap))
    assert words[0] == "kafka-transactions.sh"
    out: list[str] = []

    def answered() -> bool:
        argv = java(TOOL_FOR[broker.version], TOOL, *words[1:])
        ran = subprocess.run(argv, capture_output=True, text=True, check=False)
        out[:] = [ran.stdout, ran.stderr]
        return ran.returncode == 0

    try:
        wait_for(answered, step_s=1)
    except TimeoutError:
        pytest.fail("".join(out)[-3000:])
    return out[0]


def table(text: str, first: str) -> list[dict[str, str]]:
    """The rows that the tool prints below its headings."""
    lines = [line.split() for line in text.splitlines()]
    place = next((number for number, words in enumerate(lines) if words[:1] == [first]), None)
    if place is None:
        return []
    return [dict(zip(lines[place], words, strict=False)) for words in lines[place + 1 :] if words]


def write_transactions(broker: Broker) -> list[Producer]:
    """A committed transaction in t-0, an open one in t-1, and a committed one of the producer ``hangs`` in t-2."""
    client.create_topics(broker.bootstrap, broker.version, {"t": Topic(3, {"cleanup.policy": "compact"})})
    producers = []
    for number, name in enumerate(("committed", "open", "hangs")):
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": 600_000,
                **client.QUIET,
            }
        )
        producer.init_transactions(LIMIT_S)
        producer.begin_transaction()
        producer.produce("t", key=b"k", value=b"v", partition=number)
        producer.flush(LIMIT_S)
        if name != "open":
            producer.commit_transaction(LIMIT_S)
        producers.append(producer)
    return producers


def leave_hanging(folder: Path) -> int:
    """A batch of a committed transaction's producer that no coordinator knows of (KAFKA-14402); gives its offset.

    A transaction of another producer ended behind it, an hour ago.
    """
    log = folder / f"{0:020d}.log"
    batches = naive.parse(log.read_bytes())
    first, end = batches[0], batches[-1].last_offset + 1
    then = int(time.time() * 1000) - HOUR_MS
    late = builders.data(
        end, 2, pid=first.producer_id, epoch=first.epoch, sequence=1, txn=True, timestamp=then
    )
    other = {"pid": 4_000_000, "timestamp": then}
    behind = (builders.data(end + 2, 1, txn=True, **other), builders.commit(end + 3, **other))
    log.write_bytes(log.read_bytes() + late.raw + b"".join(one.raw for one in behind))
    (folder.parent / ".kafka_cleanshutdown").unlink()
    return end


def stop_with_markers_written(broker: Broker) -> None:
    """A commit is answered before its markers are written."""
    copy = broker.work_dir / "copy"

    def written() -> bool:
        shutil.rmtree(copy, ignore_errors=True)
        found = ours(beside.copied(broker.log_dir, copy), broker.version).transactions
        return {each.state.state for each in found} == {"CompleteCommit", "Ongoing"}

    wait_for(written)
    broker.stop()


def rows_of(report: TransactionsReport) -> dict[str, OpenInLog]:
    return {row.partition: row for row in report.open}


@pytest.mark.parametrize("version", [LATEST, "2.2.1"])
def test_hanging_transaction_is_told_from_an_open_one_and_the_abort_ends_it_alone(
    tmp_path: Path, version: str
) -> None:
    with Broker(version, tmp_path / "logs", PROPS, work_dir=tmp_path / "work") as broker:
        producers = write_transactions(broker)
        stop_with_markers_written(broker)
        offset = leave_hanging(broker.log_dir / "t-2")
        report = ours(broker.log_dir, version)
        states = {each.state.transactional_id: each for each in report.transactions}
        assert {name: each.state.state for name, each in states.items()} == {
            "committed": "CompleteCommit",
            "open": "Ongoing",
            "hangs": "CompleteCommit",
        }
        assert (states["open"].state.partitions, states["open"].state.timeout_ms) == ((("t", 1),), 600_000)
        assert 0 <= states["open"].age_ms < HOUR_MS
        rows = rows_of(report)
        assert set(rows) == {"t-1", "t-2"}
        assert (rows["t-1"].transactional_id, rows["t-1"].verdict, rows["t-1"].abort) == (
            "open",
            "goes on",
            "",
        )
        hung = rows["t-2"]
        assert (hung.transactional_id, hung.verdict, hung.first_offset) == ("hangs", "hangs", offset)
        broker.start()
        if version == LATEST:
            find, describe = report.live_commands
            [theirs] = table(typed(find, broker), "Topic")
            assert (theirs["Topic"], theirs["Partition"]) == ("t", "2")
            assert (int(theirs["ProducerId"]), int(theirs["ProducerEpoch"])) == (
                hung.producer_id,
                hung.producer_epoch,
            )
            assert int(theirs["StartOffset"]) == offset
            assert int(theirs["CoordinatorEpoch"]) == hung.coordinator_epoch
            assert "CompleteCommit" in typed(describe, broker)
        typed(hung.abort, broker)
        broker.stop()
        del producers
        again = ours(broker.log_dir, version)
    assert set(rows_of(again)) == {"t-1"}
    batches = naive.parse((tmp_path / "logs" / "t-2" / f"{0:020d}.log").read_bytes())
    assert (batches[-1].producer_id, batches[-1].epoch, batches[-1].ends_transaction) == (
        hung.producer_id,
        hung.producer_epoch,
        True,
    )
