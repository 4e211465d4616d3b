"""Kafka by itself: a broker that was away for longer than tombstones and markers stay comes back and leads wrongly."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest

from tests.lab import beside
from tests.lab.broker import Topic
from tests.lab.jars import LOADER_VERSIONS
from tests.lab.three import Three
from tests.lab.waiting import LIMIT_S

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.every_broker]

TOPICS = ("tomb", "abrt", "comm", "stuck")
TRANSACTIONAL = ("abrt", "comm", "stuck")
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "3000",
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": "300",
}
EXPIRY_MS = 8000
KRAFT = {"producer.id.expiration.ms": EXPIRY_MS, "producer.id.expiration.check.interval.ms": 500}
ZOOKEEPER = {"transactional.id.expiration.ms": EXPIRY_MS}


def left(cluster: Three, node: int, topic: str, tombstone: int) -> int:
    """Markers, or for ``tomb`` its tombstone, that a cleaner has still to remove."""
    if topic == "tomb":
        return int(any(one.base_offset == tombstone for one in cluster.batches(node, topic)))
    return len(cluster.markers(node, topic))


def first_aborted(cluster: Three, node: int, topic: str) -> int:
    """The first offset of all transactions that a replica's indexes have as aborted."""
    indexes = beside.read(cluster.log_dir(node) / f"{topic}-0", "*.txnindex").values()
    return min(first for index in indexes for _, _, first, _, _ in struct.iter_unpack(">hqqqq", index))


@pytest.mark.parametrize("version", LOADER_VERSIONS)
def test_broker_that_missed_tombstones_and_markers_leads_and_is_wrong(version: str, tmp_path: Path) -> None:
    with Three(version, tmp_path, ZOOKEEPER if version.startswith("2.") else KRAFT) as cluster:
        cluster.create({name: Topic(1, CONFIG) for name in TOPICS})
        senders = {name: cluster.producer(f"tx-{name}") for name in TRANSACTIONAL}
        for name in TOPICS:
            cluster.write(name, [(b"k1", b"old-1"), (b"k2", b"old-2")])
        cluster.write("tomb", [(b"k3", b"live-3")])
        for name, sender in senders.items():
            sender.begin_transaction()
            cluster.write(name, [(b"k1", b"t1-1"), (b"k3", b"t1-3")], sender)
        cluster.wait_in_sync(*TOPICS, of=(1, 2, 3))
        cluster.stop(3)
        tombstone = cluster.offsets("tomb")[2]
        cluster.write("tomb", [(b"k3", None)])
        senders["abrt"].abort_transaction(LIMIT_S)
        for name in ("comm", "stuck"):
            senders[name].commit_transaction(LIMIT_S)
            cluster.write(name, [(b"k1", b"new-1"), (b"k3", b"new-3")])
        time.sleep(EXPIRY_MS / 1000)
        deadline = time.monotonic() + LIMIT_S
        restarted = False
        while waiting := [
            name for name in TOPICS if any(left(cluster, node, name, tombstone) for node in (1, 2))
        ]:
            assert time.monotonic() < deadline, waiting
            for name in waiting:
                cluster.fill(name, 8)
            time.sleep(1.5)
            if (
                version.startswith("2.") and not restarted
            ):  # producers are forgotten every ten minutes, or at a start
                restarted = True
                for node in (2, 1):
                    cluster.stop(node)
                    cluster.start(node)
                    cluster.wait_in_sync(*TOPICS, of=(1, 2))
        again = {name: cluster.producer(f"tx-{name}") for name in ("abrt", "comm")}
        for name, sender in again.items():
            sender.begin_transaction()
            cluster.write(name, [(b"k4", b"t2-4")], sender)
        again["abrt"].commit_transaction(LIMIT_S)
        again["comm"].abort_transaction(LIMIT_S)
        before = {name: cluster.serves(name) for name in TOPICS}
        assert all(one.stable == one.end for one in before.values())
        cluster.start(3)
        cluster.wait_in_sync(*TOPICS, of=(1, 2, 3))
        cluster.lead(3, TOPICS)
        after = {name: cluster.serves(name) for name in TOPICS}
        assert b"k3" not in before["tomb"].table
        assert after["tomb"].table[b"k3"] == b"live-3"
        assert before["abrt"].table[b"k1"] == b"old-1"
        assert (after["abrt"].table[b"k1"], after["abrt"].table[b"k3"]) == (b"t1-1", b"t1-3")
        assert after["comm"].table == before["comm"].table
        # its cleaner may have removed what it takes for aborted: only the index of transactions tells
        assert first_aborted(cluster, 3, "comm") < first_aborted(cluster, 1, "comm")
        assert after["stuck"].stable < after["stuck"].end == before["stuck"].end
        assert b"new-1" not in after["stuck"].table.values()
