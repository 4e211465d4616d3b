"""The whole way of a preview, typed: beside a real broker under load, then after its stop, until it serves again.

While the preview is made, a producer writes, segments begin and are compacted, and a topic is deleted.
All three versions: ``KREPAIR_EVERY_BROKER=1 make test ARGS=tests/brokers/test_preview.py``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.brokers.starts import bloated_topics
from tests.lab import client, jars
from tests.lab.broker import Broker, Topic
from tests.lab.waiting import LIMIT_S

pytestmark = [pytest.mark.broker, pytest.mark.slow]

VERSIONS = jars.VERSIONS if os.environ.get("KREPAIR_EVERY_BROKER") == "1" else ("3.9.2",)
NEVER_BY_THE_BROKER = str(2**62)
COMPACTED = {"cleanup.policy": "compact"}
TOPICS = {
    "stays": Topic(2, COMPACTED | {"min.compaction.lag.ms": NEVER_BY_THE_BROKER}),
    "grows": Topic(1, COMPACTED | {"min.compaction.lag.ms": NEVER_BY_THE_BROKER}),
    "churn": Topic(1, COMPACTED | {"segment.bytes": "100000", "min.cleanable.dirty.ratio": "0.01"}),
    "deleted": Topic(1, COMPACTED),
}
BLOATED = {name: topic.partitions for name, topic in TOPICS.items() if name != "churn"}
MOST_WAITING = 2_000
PROPS = {"log.cleaner.backoff.ms": 100, "log.segment.delete.delay.ms": 300}
OPTIONS = (
    *(
        "--only-replica",
        "*",
        "--set",
        "cleanup.policy=compact",
        "--set",
        "segment.bytes=100000",
        "--set",
        "delete.retention.ms=1000",
    ),
    *("--delete-horizon", "4000000000000", "--fix", "markers,index", "--engine", "inline"),
)


def typed(*words: object) -> subprocess.CompletedProcess[str]:
    """One command in a process of its own."""
    argv = [sys.executable, "-m", "krepair", *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def in_parts(report: dict[str, Any]) -> dict[str, Any]:
    return {one["folder"]: one for one in report["partitions"]}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_plan_is_previewed_beside_a_busy_broker_and_made_applied_and_verified_after_its_stop(
    tmp_path: Path, version: str
) -> None:
    log_dir = bloated_topics(tmp_path, BLOATED)
    preview, plan = tmp_path / "preview", tmp_path / "plan"
    with Broker(version, log_dir, PROPS, TOPICS) as broker, ThreadPoolExecutor(2) as workers:
        before = {
            number: client.digest(client.read_all(broker.bootstrap, "stays", number)) for number in (0, 1)
        }
        over = threading.Event()

        def produce() -> int:
            producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 2, "linger.ms": 1})
            sent = 0
            while not over.is_set():
                for name in ("churn", "grows"):
                    producer.produce(name, key=b"%d" % (sent % 50), value=os.urandom(3000), partition=0)
                sent += 1
                producer.poll(0.002)
                while (
                    len(producer) > MOST_WAITING and not over.is_set()
                ):  # what waits has to be sent at the end
                    producer.poll(0.05)
            assert producer.flush(LIMIT_S) == 0
            return sent

        load = workers.submit(produce)
        try:
            deadline = time.monotonic() + LIMIT_S  # until the cleaner is at work
            while not list((log_dir / "churn-0").glob("*.deleted")) and time.monotonic() < deadline:
                time.sleep(0.05)
            refused = typed("plan", log_dir, *OPTIONS)
            seen = []
            for number in range(4):
                if number == 2:
                    admin = client.admin(broker.bootstrap)
                    deleting = admin.delete_topics(["deleted"])["deleted"]
                ended = typed("plan", log_dir, *OPTIONS, "--preview", "--out", preview, "--json")
                assert (ended.returncode, ended.stderr) == (2, ""), ended.stderr[-2000:]
                seen.append(json.loads(ended.stdout)["report"])
            deleting.result(LIMIT_S)
        finally:
            over.set()
        assert load.result(LIMIT_S) > 100
        applied = typed("apply", preview)
        broker.stop()
        assert not [line for line in broker.complaints() if "Exception" in line and str(log_dir) in line]

        assert refused.returncode == 11, refused.stderr
        assert applied.returncode == 13, applied.stderr
        assert "is a preview" in applied.stderr
        for report in seen:
            assert report["uncleanable_partitions"] == 0, in_parts(report)
            assert {one["code"] for one in report["partitions"]} <= {"", "changed", "no-high-watermark"}
            assert {in_parts(report)[f"stays-{number}"]["status"] for number in (0, 1)} == {"change"}
            assert in_parts(report)["grows-0"]["changes"]

        ended = typed("plan", log_dir, *OPTIONS, "--out", plan, "--quiet")
        assert ended.returncode == 2, ended.stderr
        found = json.loads(typed("diff", preview, plan, "--json").stdout)["report"]
        other = {one["folder"] for one in found["partitions"] if not one["decisions_same"]}
        assert not other & {"stays-0", "stays-1"}, found

        for verb in ("apply", "verify"):
            ended = typed(verb, plan)
            assert ended.returncode == 0, ended.stdout + ended.stderr
        broker.start()
        after = {
            number: client.digest(client.read_all(broker.bootstrap, "stays", number)) for number in (0, 1)
        }
        assert after == before
        assert len(client.read_all(broker.bootstrap, "grows", 0)) > 100
        assert typed("purge", plan).returncode == 0
        broker.stop()
    assert not list(log_dir.rglob("krepair~*"))


@pytest.mark.every_broker
@pytest.mark.parametrize("version", VERSIONS)
def test_a_plan_of_the_stopped_broker_is_applied_after_one_more_run_that_appended(
    tmp_path: Path, version: str
) -> None:
    log_dir = bloated_topics(tmp_path, BLOATED)
    plan = tmp_path / "plan"
    kept = {name: topic for name, topic in TOPICS.items() if name != "churn"}
    with Broker(version, log_dir, PROPS | {"log.cleaner.enable": "false"}, kept) as broker:
        broker.stop()
        assert typed("plan", log_dir, *OPTIONS, "--out", plan).returncode == 2
        changed = {one["folder"] for one in json.loads(plan.read_text())["partitions"] if one["changes"]}
        assert {"stays-0", "stays-1", "grows-0", "deleted-0"} <= changed
        broker.start()
        before = {
            number: client.digest(client.read_all(broker.bootstrap, "stays", number)) for number in (0, 1)
        }
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 2})
        for number in range(50):
            producer.produce("grows", key=b"%d" % number, value=bytes(100), partition=0)
        assert producer.flush(LIMIT_S) == 0
        broker.stop()
        ended = typed("apply", plan)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert typed("verify", plan).returncode == 0
        broker.start()
        after = {
            number: client.digest(client.read_all(broker.bootstrap, "stays", number)) for number in (0, 1)
        }
        assert after == before
        assert sum(one.value == bytes(100) for one in client.read_all(broker.bootstrap, "grows", 0)) == 50
        broker.stop()
