"""A real cluster whose broker 3 was away at the wrong time, and how it ends once broker 3 is back.

All cleaners are off, so that nobody but krepair removes anything. Broker 3 has

- ``tomb``: a value whose tombstone it has not seen,
- ``abrt``, ``comm``: the data of an open transaction, which was aborted or committed while it was away,
- ``free``: all there is.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from krepair.errors import ExitCode
from krepair.options import Options
from krepair.plan.model import Plan
from krepair.plan.review import review
from tests.compaction.directories import Verbs, options
from tests.lab.broker import Topic
from tests.lab.three import Served, Three
from tests.lab.waiting import LIMIT_S

TOPICS = ("tomb", "abrt", "comm", "free")
TRANSACTIONAL = ("abrt", "comm", "free")
DAY_MS = 86_400_000
RETENTION_MS = 1000
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "3000",
    "delete.retention.ms": str(RETENTION_MS),
    "retention.ms": "-1",
}


def without_cleaner(version: str, root: Path, **more: object) -> Three:
    """A cluster whose cleaners are off."""
    return Three(version, root, {"log.cleaner.enable": "false"}, **more)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Beginning:
    """What brokers 1 and 2 serve before krepair comes.

    Attributes:
        served: topic -> what broker 1 served as leader.
        state: topic -> what ``kafka-topics.sh --describe`` said while 1 and 2 were in sync and 3 was away.
    """

    served: Mapping[str, Served]
    described: str


def begin(cluster: Three) -> Beginning:
    """Write what broker 3 sees, stop it, write the rest; everything is stopped, broker 1 last, and kept as ``away``."""
    cluster.create({name: Topic(1, CONFIG) for name in TOPICS})
    senders = {name: cluster.producer(f"tx-{name}") for name in TRANSACTIONAL}
    for name in TOPICS:
        cluster.write(name, [(b"k1", b"old-1"), (b"k2", b"old-2")])
        cluster.fill(name, 3)
    cluster.write("tomb", [(b"k1", b"live-1")])
    for name, sender in senders.items():
        sender.begin_transaction()
        cluster.write(name, [(b"k1", b"t1-1"), (b"k3", b"t1-3")], sender)
    _end_free(cluster, senders["free"])
    cluster.wait_in_sync(*TOPICS, of=(1, 2, 3))
    cluster.stop(3)
    cluster.write("tomb", [(b"k1", None)])
    senders["abrt"].abort_transaction(LIMIT_S)
    senders["comm"].commit_transaction(LIMIT_S)
    cluster.write("comm", [(b"k1", b"new-1"), (b"k3", b"new-3")])
    for _ in range(2):  # what is older than the newest segment by the retention may go by time
        for name in TOPICS:
            cluster.fill(name, 12)
        time.sleep(RETENTION_MS / 1000 + 0.3)
    described = cluster.describe()
    served = {name: cluster.serves(name) for name in TOPICS}
    cluster.stop_all()
    cluster.kept("away")
    return Beginning(served, described)


def _end_free(cluster: Three, sender: object) -> None:
    sender.commit_transaction(LIMIT_S)  # type: ignore[attr-defined]
    cluster.write("free", [(b"k1", b"new-1"), (b"k3", None)])


@dataclass(frozen=True)
class Ending:
    """Topic -> what broker 1 served after krepair, and what broker 3 served once it had followed and led."""

    first: Mapping[str, Served]
    third: Mapping[str, Served]

    @property
    def diverged(self) -> set[str]:
        """Topics of which broker 3 serves something else, or stands still."""
        return {name for name in self.first if of_readers(self.first[name]) != of_readers(self.third[name])}


def of_readers(served: Served) -> tuple[object, ...]:
    """What must be equal: the table, the last stable offset and the end."""
    return served.table, served.stable, served.end


def end(cluster: Three, topics: Iterable[str] = TOPICS) -> Ending:
    """Broker 1 leads, broker 3 comes back, joins the ISR, and leads; everything is stopped then."""
    names = tuple(topics)
    cluster.start_metadata()
    cluster.start(1)
    cluster.start(3)
    cluster.wait_in_sync(*names, of=(1, 3))
    first = {name: cluster.serves(name) for name in names}
    cluster.lead(3, names)
    third = {name: cluster.serves(name) for name in names}
    cluster.stop_all()
    return Ending(first, third)


# -- krepair on one of them ---------------------------------------------------------------------------

FORGOTTEN = (("producer.id.expiration.ms", "1"), ("transactional.id.expiration.ms", "1"))
"""So that no producer of the scene keeps its markers for a day."""


def given(
    root: Path, *, days_ahead: int = 0, horizon: str = "", retention_ms: int = RETENTION_MS, **more: object
) -> Options:
    """What krepair is told: by default that the horizon is ``newest``, and nothing of other replicas."""
    now_ms = time.time_ns() // 1_000_000 + days_ahead * DAY_MS
    common: dict[str, object] = {
        "fixes": ("markers", "compact"),
        "now_ms": now_ms,
        "assume_high_watermark": "",
    }
    settings = CONFIG | {"delete.retention.ms": str(retention_ms)}
    common["delete_horizon"] = horizon or "newest"
    common["settings_given"] = FORGOTTEN
    return options(root, *TOPICS, settings=settings, **(common | more))


def repaired(cluster: Three, node: int, of: Options, *, must_change: bool = True) -> Plan:
    """Plan, apply, verify and purge on one replica."""
    verbs = Verbs(cluster.log_dir(node), of)
    plan = verbs.plan()
    assert review(plan) == []
    if not any(part.changes for part in plan.partitions):
        assert not must_change
        return plan
    assert verbs.apply(plan).exit_code is ExitCode.DONE
    assert verbs.verify(plan).problems == ()
    assert verbs.purge(plan).exit_code is ExitCode.DONE
    return plan


def far() -> str:
    """A delete horizon ten days ahead."""
    return str(time.time_ns() // 1_000_000 + 10 * DAY_MS)
