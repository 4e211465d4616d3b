"""Real brokers on logs that have forgotten a transaction which a snapshot keeps open, after the fix.

What loaders of all versions do before it and after it: ``tests/lab/test_forgotten.py``.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from krepair.errors import ExitCode
from krepair.ops.apply import apply
from tests import forgotten
from tests.brokers.serving import PASSIVE
from tests.forgotten import CASES, END, Case
from tests.lab import client
from tests.lab.broker import Broker, Topic
from tests.lab.jars import SINCE_4, VERSIONS
from tests.lab.waiting import LIMIT_S, wait_for
from tests.ops.inline import Inline
from tests.twins.of_plan import verified

pytestmark = [pytest.mark.broker, pytest.mark.slow]

CHECKPOINTS = ("recovery-point-offset", "replication-offset", "log-start-offset", "cleaner-offset")
QUIET_S = 2
"""So long nothing more may come to a consumer that has got all."""
VERBS = Inline(fixes=("snapshots",))
UNCLEAN = {
    f"c{number}": one
    for number, one in enumerate(CASES)
    if not one.clean and (one.told or not one.refuses)  # what is not told is not mended
}


def made(root: Path, cases: Mapping[str, Case]) -> Path:
    """A log directory after an unclean stop, with a partition of each case."""
    lines: dict[str, list[str]] = {name: [] for name in CHECKPOINTS}
    for topic, case in cases.items():
        one = forgotten.made(root.parent / "made" / topic, case)
        shutil.copytree(one / "t-0", root / f"{topic}-0")
        for name, found in lines.items():
            _, _, *rows = (one / f"{name}-checkpoint").read_text().splitlines()
            found += [f"{topic} {row.removeprefix('t ')}" for row in rows]
        shutil.copy(one / "meta.properties", root)
    for name, found in lines.items():
        (root / f"{name}-checkpoint").write_text("\n".join(["0", str(len(found)), *found]) + "\n")
    shutil.rmtree(root.parent / "made")
    return root


def broker_on(log_dir: Path, version: str, cases: Iterable[str]) -> Broker:
    topics = {topic: Topic(1, {"retention.ms": "-1", "segment.ms": "9000000000000"}) for topic in cases}
    return Broker(version, log_dir, PASSIVE, topics)


def last_stable(broker: Broker, topics: Iterable[str]) -> dict[str, int]:
    """Per topic the offset before which a consumer of committed records reads; -1 while it is not led yet."""
    asked = {TopicPartition(topic, 0): OffsetSpec.latest() for topic in topics}
    admin = client.admin(broker.bootstrap)
    found = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
    out = {}
    for place, future in found.items():
        out[place.topic] = -1
        with contextlib.suppress(KafkaException):
            out[place.topic] = future.result(LIMIT_S).offset
    return out


def waits_at(version: str, case: Case, offset: int) -> int:
    """Where a broker of that version waits; 4.3.1 names the first offset that is there."""
    return min((one for one in case.offsets if one >= offset), default=END) if version in SINCE_4 else offset


def read(broker: Broker, expected: Mapping[str, int]) -> dict[str, list[client.Consumed]]:
    """All records per topic; those of a consumer of committed records end at the expected offsets."""
    found: dict[str, int] = {}

    def reached() -> bool:
        found.update(last_stable(broker, expected))
        return found == expected

    with contextlib.suppress(TimeoutError):
        wait_for(reached, step_s=0.5)
    assert found == expected
    records = {topic: client.read_all(broker.bootstrap, topic) for topic in expected}
    assert {found[-1].offset for found in records.values()} == {END - 1}
    below = {
        topic: [one.offset for one in found if one.offset < expected[topic]]
        for topic, found in records.items()
    }
    assert committed(broker, below) == below
    return records


def committed(broker: Broker, wanted: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """Offsets that a consumer of committed records gets: those that are wanted, and what else comes soon after.

    A consumer is not told that it is at its end, if it waits at an offset that a cleaner has removed.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            **client.QUIET,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in wanted])
    out: dict[str, list[int]] = {topic: [] for topic in wanted}
    until = time.monotonic() + LIMIT_S
    try:
        while time.monotonic() < until:
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    out[message.topic()].append(message.offset())
            if out == wanted:
                until = min(until, time.monotonic() + QUIET_S)
    finally:
        consumer.close()
    return out


SOME = [
    pytest.param(version, marks=pytest.mark.every_broker) if version == "3.9.2" else version
    for version in VERSIONS
]


def rules(log_dir: Path, version: str) -> dict[str, set[str]]:
    """Rules of the findings per topic, of those that this is about."""
    out: dict[str, set[str]] = {}
    for one in VERBS.checked(log_dir, broker_version=version).findings:
        if one.rule in ("KR505", "KR803"):
            out.setdefault(one.partition.rpartition("-")[0], set()).add(one.rule)
    return out


@pytest.mark.parametrize("version", SOME)
def test_broker_starts_and_consumers_get_all_after_the_fix(tmp_path: Path, version: str) -> None:
    log_dir = made(tmp_path / "logs", UNCLEAN)
    plan = VERBS.planned(log_dir, broker_version=version)
    assert apply(plan, VERBS.options()).exit_code == ExitCode.DONE
    assert verified(plan, VERBS.options()) == []
    assert rules(log_dir, version) == {}
    ends = {
        topic: waits_at(version, case, case.after if case.told else case.waits)
        for topic, case in UNCLEAN.items()
    }
    with broker_on(log_dir, version, UNCLEAN) as broker:
        first = read(broker, ends)
        broker.stop()
        assert rules(log_dir, version) == {}
        broker.start()  # with the state that it wrote itself
        assert read(broker, ends) == first
        broker.stop()
    assert rules(log_dir, version) == {}
    assert sum(ends[topic] == END for topic, case in UNCLEAN.items() if case.told) > 5
