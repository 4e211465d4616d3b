"""Random histories on real clusters of three brokers, with krepair in between, and what the cluster serves at the end.

``python -m tools.torture --part clusters`` plays a cluster per version, mode of ``MODES`` and seed.
Each partition of a cluster is a history. Brokers go away, die, lose their folders, are assigned anew; krepair works on
one, two or three of them in two rounds; a replica fetches its beginning from one leader and the rest from another one;
then each broker leads once. No cleaner of these brokers removes a tombstone or a marker. So what is served wrong at the
end is of krepair's making.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from krepair.errors import ExitCode
from krepair.fixes.replicas import parse_brokers
from krepair.ops.compare import compare
from krepair.options import EngineName, Options
from krepair.plan.review import review
from krepair.rules.replicas import model as m
from tests.compaction.directories import Verbs, keys_of, options
from tests.lab.three import Three
from tests.replicas.chances import TOPIC, Chances

MODES = ("replicas", "in-sync", "default", "alone")
PARTITIONS = 12
RETENTION_MS = 1000
DAYS_AHEAD_MS = 10 * 86_400_000
FINE = {m.BYTE_EQUAL, m.HARMLESS, m.IS_BEHIND, m.ALONE}
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "3000",
    "min.cleanable.dirty.ratio": "0.01",
    "retention.ms": "-1",
    "delete.retention.ms": "86400000",
}
SAID = CONFIG | {"delete.retention.ms": str(RETENTION_MS)}
"""What krepair is told, so that a tombstone is past its time in a second."""
COMPACTED = {"cleanup.policy": "compact"}
"""What ``compare`` is told: where no broker cleans, nothing else shows that the topic is compacted."""
FORGOTTEN = (("producer.id.expiration.ms", "1"), ("transactional.id.expiration.ms", "1"))


@dataclass
class Figures:
    """What was tried.

    Attributes:
        counts: histories, repairs, tombstones and markers that went, states compared.
        wrong: what was served wrong, and what ``compare`` said of a healthy cluster.
    """

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def diverged(self) -> list[str]:
        """What was served wrong."""
        return [one for one in self.wrong if not one.startswith("compare")]


def settings_of(seed: int) -> dict[int, dict[str, object]]:
    """Some brokers clean, some do not, and each rolls at another size."""
    chance = random.Random(f"settings {seed}")
    return {
        node: {
            "log.cleaner.enable": chance.choice(("true", "false", "false")),
            "log.index.interval.bytes": chance.choice((100, 1000, 4096)),
        }
        for node in (1, 2, 3)
    }


def play(version: str, mode: str, seed: int, root: Path) -> Figures:
    """One cluster.

    Args:
        version: of Kafka.
        mode: what krepair is told of the other replicas.
        seed: of all chance.
        root: an empty folder.
    """
    chance = random.Random(f"{mode} {seed}")
    figures = Figures()
    apart = [3] if chance.random() < 0.5 else []
    with Three(version, root / "cluster", of=settings_of(seed), apart=apart) as cluster:
        assigned = {number: chance.sample((1, 2, 3), 3) for number in range(PARTITIONS)}
        new = chance.choice((1, 2, 3))
        chances = Chances(cluster, chance, assigned)
        chances.create(CONFIG)
        fewer = {
            number: [one for one in assigned[number] if one != new] for number in range(0, PARTITIONS, 4)
        }
        chances.reassign(fewer)
        _before(chances)
        away = 0 if mode == "in-sync" else chance.choice((1, 2, 3))
        targets = _last_absence(chances, away)
        if mode != "in-sync":
            _judge(chances, figures, "before krepair")
        for number in (1, 2):
            for broker in targets:
                _repair(chances, broker, mode, root / f"{number}-{broker}", figures)
        if mode in {"replicas", "default"}:
            _judge(chances, figures, "after krepair")
        _afterwards(chances, mode, new, away, figures)
    figures.counts["histories"] += PARTITIONS
    figures.counts["clusters"] += 1
    return figures


def _before(chances: Chances) -> None:
    """Brokers come and go while much is written; one loses its folders."""
    chance = chances.chance
    chances.play(60)
    for number in range(2):
        broker = chance.choice((1, 2, 3))
        chances.leave(broker)
        chances.play(30)
        if number == 1 or chance.random() < 0.3:
            chances.empty(broker)
        chances.come_back(broker)
        chances.play(20)


def _last_absence(chances: Chances, away: int) -> list[int]:
    """A broker goes away, tombstones and markers are written; who is repaired. All stand still if one is away."""
    chance = chances.chance
    chances.play(30)
    if away:
        chances.leave(away)
    chances.play(30)
    chances.end_some(0.8)
    for _ in range(2):  # what is older than the newest segment by the retention may go by time
        chances.fill()
        time.sleep(RETENTION_MS / 1000 + 0.3)
    targets = chance.sample((1, 2, 3), chance.randint(1, 3))
    if away:
        cluster = chances.cluster
        (cluster.root / "described").write_text(cluster.describe())
        others = chance.sample([one for one in (1, 2, 3) if one != away], 2)
        cluster.stop(*others)
        cluster.stop_all()
    return targets


def _repair(chances: Chances, broker: int, mode: str, root: Path, figures: Figures) -> None:
    """Plan, apply, verify and purge on one replica, the others stopped or, in sync, running."""
    root.mkdir(parents=True)
    cluster = chances.cluster
    if mode == "in-sync":
        cluster.stop(broker)
        chances.gone(broker)
        chances.wait_in_sync(*(one for one in (1, 2, 3) if one != broker))
        (cluster.root / "described").write_text(cluster.describe())
    verbs = Verbs(cluster.log_dir(broker), _given(chances, broker, mode, root))
    plan = verbs.plan()
    assert review(plan) == []
    changed = [part for part in plan.partitions if part.changes]
    figures.counts["replicas repaired"] += len(changed)
    before = len(_markers(cluster, broker))
    if changed:
        assert verbs.apply(plan).exit_code is ExitCode.DONE
        assert verbs.verify(plan).problems == ()
        assert verbs.purge(plan).exit_code is ExitCode.DONE
        kept = [keys_of(part) for part in changed]
        figures.counts["tombstones that went"] += sum(one.tombstones_dropped for one in kept)
        figures.counts["markers that went"] += before - len(_markers(cluster, broker))
    if mode == "in-sync":
        chances.come_back(broker)
        chances.play(5)
        chances.fill(4)


def _markers(cluster: Three, broker: int) -> list[int]:
    return [one for number in range(PARTITIONS) for one in cluster.markers(broker, TOPIC, number)]


def _given(chances: Chances, broker: int, mode: str, root: Path) -> Options:
    cluster = chances.cluster
    now_ms = time.time_ns() // 1_000_000
    said: dict[str, object] = {"now_ms": now_ms, "delete_horizon": "newest"}
    described = str(cluster.root / "described")
    if mode != "in-sync":
        later = now_ms + DAYS_AHEAD_MS
        said = {"now_ms": later, "delete_horizon": str(later)}
    if mode == "alone":
        said["only_replica"] = (TOPIC,)
    elif mode == "in-sync":
        said["cluster"] = described
    elif mode == "replicas":
        said["cluster"] = described
        said["replicas"] = tuple(
            f"{other}={cluster.log_dir(other)}" for other in (1, 2, 3) if other != broker
        )
    return options(
        root,
        TOPIC,
        settings=SAID,
        fixes=("markers", "compact"),
        partitions=tuple(
            (TOPIC, number) for number in chances.assigned if broker in chances.assigned[number]
        ),
        assume_high_watermark="",
        settings_given=FORGOTTEN,
        **said,
    )


def compared(cluster: Three, settings: Mapping[str, str] | None = None) -> list[str]:
    """What ``compare`` says against the replicas of a healthy stopped cluster."""
    sides = parse_brokers([f"{node}={cluster.log_dir(node)}" for node in cluster.brokers])
    given = tuple((settings or {}).items())
    report = compare(sides, Options(engine=EngineName.INLINE, settings=given))
    return [
        f"compare: {one.name} {one.verdict}: "
        + "; ".join(f"{each.kind} on {each.brokers}: {each.text}" for each in one.disagreements)
        for one in report.partitions
        if one.verdict not in FINE
    ]


def _judge(chances: Chances, figures: Figures, when: str) -> None:
    figures.counts["states compared"] += 1
    figures.wrong += [f"{found} ({when})" for found in compared(chances.cluster, COMPACTED)]


# -- afterwards ---------------------------------------------------------------------------------------


def _afterwards(chances: Chances, mode: str, new: int, away: int, figures: Figures) -> None:
    """Who was away comes back; then a leader change half way, a new replica, and each broker leads."""
    cluster, chance = chances.cluster, chances.chance
    if mode != "in-sync":
        cluster.start_metadata()
        cluster.start(*(one for one in (1, 2, 3) if one != away))
        cluster.start(away)
        chances.wait_in_sync(1, 2, 3)
    _end_all(chances)
    if mode != "in-sync":
        _leader_change_half_way(chances)
    chances.reassign({number: [*to, new] for number, to in chances.assigned.items() if new not in to})
    chances.wait_in_sync(1, 2, 3)
    for broker in chance.sample((1, 2, 3), 3):
        chances.alone(broker)
        figures.wrong += [str(one) for one in chances.wrong(broker)]
        cluster.start(*(one for one in (1, 2, 3) if one != broker))
        chances.wait_in_sync(1, 2, 3)
    cluster.stop_all()
    if mode != "alone":
        _judge(chances, figures, "at the end")


def _end_all(chances: Chances) -> None:
    """What was left open is aborted; some producers end one more transaction each."""
    chances.connect()
    for writer in chances.writers.values():
        if chances.chance.random() < 0.5:
            partition = chances.chance.choice(sorted(chances.assigned))
            chances.put(partition, [(b"later", b"%d" % partition)], writer)
            chances.end(writer)


def _leader_change_half_way(chances: Chances) -> None:
    """One replica fetches its beginning from one leader and the rest from another one."""
    cluster = chances.cluster
    broker, first, second = chances.chance.sample((1, 2, 3), 3)
    chances.cluster.stop(broker)
    chances.gone(broker)
    time.sleep(1)
    chances.empty(broker, source=first)
    both = [number for number, to in chances.assigned.items() if {first, second} <= set(to)]
    assert both
    cluster.stop(first)
    # a partition that only these two have waits for the first one
    cluster.start(broker)
    cluster.start(first)
    chances.wait_in_sync(1, 2, 3)
