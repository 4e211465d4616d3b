"""What KR312 says is gone, is gone: a broker starts without a word and gives these offsets again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from krepair.ops.check import check
from krepair.options import EngineName, Options
from tests.brokers.serving import PASSIVE
from tests.lab import client
from tests.lab.broker import Broker, Topic
from tests.lab.waiting import LIMIT_S

pytestmark = [pytest.mark.broker, pytest.mark.slow]

VERSIONS = ["4.4.0", *(["2.2.1", "3.9.2", "4.3.1"] if os.environ.get("KREPAIR_EVERY_STATE") else [])]
RECORDS = 40


def active(folder: Path) -> Path:
    return max(folder.glob("*.log"))


def without_log(folder: Path) -> None:
    active(folder).unlink()


def without_segment(folder: Path) -> None:
    for path in folder.glob(f"{active(folder).stem}.*"):
        path.unlink()


def cut_within_a_batch(folder: Path) -> None:
    data = active(folder).read_bytes()
    active(folder).write_bytes(data[: len(data) * 2 // 3])


def without_any_log(folder: Path) -> None:
    for path in folder.glob("*.log"):
        path.unlink()


LOSSES: list[Callable[[Path], None]] = [
    without_log, without_segment, cut_within_a_batch, without_any_log, lambda folder: None,
]  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_gives_the_offsets_again_that_are_said_to_be_gone(tmp_path: Path, version: str) -> None:
    topics = {"t": Topic(len(LOSSES), {"segment.bytes": "1500"})}
    with Broker(version, tmp_path / "logs", PASSIVE, topics) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, **client.QUIET})
        for place in range(RECORDS * len(LOSSES)):
            producer.produce("t", value=bytes(60), partition=place % len(LOSSES))
            producer.flush(LIMIT_S)
        broker.stop()
        for number, damage in enumerate(LOSSES):
            damage(tmp_path / "logs" / f"t-{number}")
        report = check([str(tmp_path / "logs")], Options(engine=EngineName.INLINE)).log_dirs[0]
        found = {one.partition: one for one in report.findings if one.rule == "KR312" and one.partition}
        broker.start()
        ends = dict(end_of(broker, number) for number in range(len(LOSSES)))
    assert {one.last_offset for one in found.values()} == {RECORDS - 1}
    said = {folder: one.first_offset for folder, one in found.items()}
    assert said == {folder: end for folder, end in ends.items() if folder != f"t-{len(LOSSES) - 1}"}
    assert ends[f"t-{len(LOSSES) - 1}"] == RECORDS


def end_of(broker: Broker, number: int) -> tuple[str, int]:
    """The offset that the next record gets, by a record."""
    given: list[int] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, **client.QUIET})
    producer.produce(
        "t", value=b"x", partition=number, on_delivery=lambda error, sent: given.append(sent.offset())
    )
    producer.flush(LIMIT_S)
    return f"t-{number}", given[0]
