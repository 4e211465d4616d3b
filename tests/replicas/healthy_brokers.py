"""Healthy clusters of real brokers in many states: ``compare`` reports nothing on any of them.

``python -m tools.torture --part clusters`` plays a cluster per version and seed, and compares it ``STATES`` times:
after clean stops, after all brokers died at once while they were written to, after one died alone and was cut
by the epochs of its leader. Brokers clean, roll and delete each in its own way; records are deleted; folders are lost.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

from confluent_kafka import TopicPartition

from tests.lab import client
from tests.lab.broker import Topic
from tests.lab.three import Three
from tests.lab.waiting import LIMIT_S
from tests.replicas.chances import Chances
from tests.replicas.histories import Figures, compared

STATES = 7
PARTITIONS = 6
DAY_MS = 86_400_000
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "3000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": str(DAY_MS),
    "retention.ms": "-1",
}
OTHERS = {
    "by-size": {"cleanup.policy": "delete", "segment.bytes": "3000", "retention.bytes": "9000"},
    "both-ways": COMPACTED | {"cleanup.policy": "compact,delete", "retention.bytes": "12000"},
    "own-segments": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
}
"""Topics beside the one whose truth is kept. Of the last one each broker has segments and horizons of its own."""


def settings_of(chance: random.Random) -> dict[int, dict[str, object]]:
    """Each broker rolls, cleans and deletes in its own way; at least one cleans."""
    cleans = chance.sample(("true", "true", "false"), 3)
    return {
        node: {
            "log.cleaner.enable": cleans[node - 1],
            "log.roll.ms": chance.choice((1500, 4000, 9000)),
            "log.cleaner.delete.retention.ms": chance.choice((DAY_MS // 2, DAY_MS)),
            "log.cleaner.backoff.ms": chance.choice((200, 3000)),
            "log.retention.check.interval.ms": chance.choice((500, 3000, 9000)),
            "log.index.interval.bytes": chance.choice((100, 4096)),
        }
        for node in (1, 2, 3)
    }


def play(version: str, seed: int, root: Path) -> Figures:
    """One cluster in ``STATES`` states.

    Args:
        version: of Kafka.
        seed: of all chance.
        root: an empty folder.
    """
    chance = random.Random(f"healthy {seed}")
    figures = Figures()
    apart = chance.choice((1, 2, 3))
    with Three(version, root / "cluster", of=settings_of(chance), apart=[apart]) as cluster:
        chances = Chances(
            cluster, chance, {number: chance.sample((1, 2, 3), 3) for number in range(PARTITIONS)}
        )
        chances.create(COMPACTED)
        cluster.create({name: Topic(1, config) for name, config in OTHERS.items()})
        for state in range(STATES):
            what = ("stop", "kill-all", "kill-one", "empty", "delete", "kill-all", "kill-one")[state]
            _happens(chances, what, apart)
            figures.wrong += [f"{one} (state {state}, {what})" for one in compared(cluster)]
            figures.counts["states compared"] += 1
            figures.counts[f"after {what}"] += 1
            cluster.begin()
            _wait(chances)
            chances.connect()
        chances.end_some(1)
        for broker in (1, 2, 3):
            chances.alone(broker)
            figures.wrong += [str(one) for one in chances.wrong(broker)]
            cluster.start(*(one for one in (1, 2, 3) if one != broker))
            _wait(chances)
        cluster.stop_all()
    figures.counts["clusters"] += 1
    return figures


def _wait(chances: Chances) -> None:
    chances.wait_in_sync(1, 2, 3)
    chances.cluster.wait_in_sync(*OTHERS, of=(1, 2, 3))


def _happens(chances: Chances, what: str, apart: int) -> None:
    """Write, let it happen, and let all brokers be stopped at the end."""
    cluster, chance = chances.cluster, chances.chance
    _write(chances)
    if what == "delete":
        _delete_records(chances)
    elif what in {"kill-one", "empty"}:
        broker = apart if what == "kill-one" else chance.choice((1, 2, 3))
        if what == "kill-one":
            _unheard(chances)
            cluster.kill(broker)
        else:
            cluster.stop(broker)
        chances.gone(broker)
        _write(chances)
        if what == "empty":
            chances.empty(broker)
        cluster.start(broker)
        _wait(chances)
        _write(chances)
    if what == "kill-all":
        _unheard(chances)
        cluster.kill_all()
        return
    time.sleep(chance.random() * 3)  # cleaners and retention get some time
    order = chance.sample((1, 2, 3), 3)
    cluster.stop(*order)
    cluster.stop_all()


def _write(chances: Chances) -> None:
    chances.play(25)
    chances.fill(4)
    for name in OTHERS:
        rows = [
            (b"k%d" % chances.chance.randint(0, 9), b"v" * chances.chance.randint(1, 300)) for _ in range(30)
        ]
        chances.cluster.write(name, rows)


def _unheard(chances: Chances) -> None:
    """Records that nobody waits for: at a kill some replicas have them and others do not."""
    sender = chances.cluster.producer(acks="1")
    for number in range(200):
        sender.produce(
            f"{list(OTHERS)[number % 3]}", key=b"k%d" % (number % 9), value=b"u" * 200, partition=0
        )
    sender.poll(0.05)


def _delete_records(chances: Chances) -> None:
    cluster = chances.cluster
    _, _, end = cluster.offsets("by-size")
    admin = client.admin(cluster.bootstrap)
    asked = admin.delete_records([TopicPartition("by-size", 0, end - chances.chance.randint(1, 40))])
    for future in asked.values():
        future.result(LIMIT_S)
