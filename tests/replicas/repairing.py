"""krepair on replicas of a model's cluster, and the further history of the cluster.

``python -m tools.torture --part replicas`` tries any number of histories.

A history is played, krepair works on one or more stopped replicas, and the cluster goes on: brokers come back, lead,
lose their folders and fetch them anew, are replaced, and change leader half way. Each history is played once more
without krepair. A divergence counts only if that one has none.
"""

from __future__ import annotations

import copy
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from krepair.errors import ExitCode
from krepair.options import Options
from krepair.plan.model import Evidence
from krepair.plan.review import review
from tests.compaction.directories import Verbs, options
from tests.replicas.directories import SETTINGS, TOPIC, read_back, written
from tests.replicas.model import HOUR_MS, Cluster, kind_of

MODES = ("none", "in-sync", "replicas", "alone")
LATER_MS = 100 * 24 * HOUR_MS


@dataclass
class Figures:
    """What was tried.

    Attributes:
        counts: histories, repairs, markers and tombstones that went.
        diverged: seed -> who diverged and why, though not without krepair.
    """

    counts: Counter[str] = field(default_factory=Counter)
    diverged: dict[int, str] = field(default_factory=dict)


def cluster_of(seed: int) -> Cluster:
    """The history of a seed, in v2 and compacted, as far as krepair's coming; brokers may be away."""
    kind = kind_of(seed, magic=2, compacted=True, by_time=False, replaced=seed % 3 == 0)
    cluster = Cluster(seed, kind).play()
    if seed % 2:
        cluster.absence()
    return cluster


def try_seed(seed: int, mode: str, root: Path, figures: Figures) -> None:
    """One history with krepair and without."""
    before = cluster_of(seed)
    if not before.healthy:
        figures.counts["left out: Kafka alone"] += 1
        return
    after = copy.deepcopy(before)
    targets = _targets(after, mode)
    if not targets:
        figures.counts["left out: nobody to repair"] += 1
        return
    figures.counts["histories"] += 1
    for round_number in (1, 2):
        for broker in targets:
            repair(after, broker, mode, root / f"{round_number}-{broker}", figures)
    found = _wrong(after, mode)
    if found and not _wrong(before, mode):
        figures.diverged[seed] = found


def _targets(cluster: Cluster, mode: str) -> list[int]:
    """One, two or three replicas; all brokers are stopped, or but the others where these have to be in sync."""
    chance = cluster.chance
    if mode == "in-sync":
        target = chance.choice(sorted(cluster.replicas))
        for broker in cluster.replicas:
            if not cluster.replicas[broker].running:
                cluster.start(broker)
        if cluster.leader == target and len(cluster.isr) < 2:
            return []
        for broker in cluster.alive:
            cluster.fetch(broker)
        cluster.stop(target)
        for broker in cluster.alive:
            cluster.fetch(broker)
        others = set(cluster.replicas) - {target}
        return [target] if cluster.leader in others and cluster.isr == others else []
    cluster.stop_all()
    return chance.sample(sorted(cluster.replicas), chance.randint(1, 3))


def repair(cluster: Cluster, broker: int, mode: str, root: Path, figures: Figures) -> None:
    """Plan, apply, verify and purge on one replica, then take over what it has made."""
    root.mkdir(parents=True)
    dirs = written(cluster, root)
    replica = cluster.replicas[broker]
    verbs = Verbs(dirs[broker], _given(cluster, broker, mode, root, dirs))
    plan = verbs.plan()
    assert review(plan) == []
    [part] = plan.partitions
    figures.counts[f"plans: {part.status}"] += 1
    if isinstance(part.evidence, Evidence):
        figures.counts[f"evidence: {part.evidence.kind}"] += 1
    if part.changes:
        before = _holds(cluster, broker)
        assert verbs.apply(plan).exit_code is ExitCode.DONE
        assert verbs.verify(plan).problems == ()
        assert verbs.purge(plan).exit_code is ExitCode.DONE
        read_back(replica, dirs[broker])
        for what, count in (before - _holds(cluster, broker)).items():
            figures.counts[f"{what} that went"] += count
    shutil.rmtree(root)


def _holds(cluster: Cluster, broker: int) -> Counter[str]:
    entries = cluster.replicas[broker].entries
    return Counter(
        markers=sum(one.marker is not None for one in entries),
        tombstones=sum(value.value is None for one in entries for value in one.records),
        values=sum(value.value is not None for one in entries for value in one.records),
    )


def _given(cluster: Cluster, broker: int, mode: str, root: Path, dirs: dict[int, Path]) -> Options:
    now_ms = cluster.now_ms + LATER_MS
    said: dict[str, object] = {"delete_horizon": str(now_ms)}
    if mode == "alone":
        said["only_replica"] = (TOPIC,)
    elif mode == "in-sync":
        said |= {"delete_horizon": "newest", "cluster": str(_described(cluster, root))}
    elif mode == "replicas":
        said["cluster"] = str(_described(cluster, root))
        said["replicas"] = tuple(f"{other}={path}" for other, path in dirs.items() if other != broker)
    return options(
        root,
        TOPIC,
        settings=SETTINGS | {"delete.retention.ms": str(cluster.kind.retention_ms)},
        fixes=("markers", "compact"),
        now_ms=now_ms,
        assume_high_watermark="",
        **said,
    )


def _described(cluster: Cluster, root: Path) -> Path:
    """What ``kafka-topics.sh --bootstrap-server ... --describe`` of the cluster's version prints."""
    replicas = ",".join(map(str, cluster.replicas))
    isr = ",".join(map(str, sorted(cluster.isr)))
    topic_id = next(iter(cluster.replicas.values())).topic_id
    middle = f"\tTopicId: {topic_id}" if cluster.kind.stamps else ""
    leader = cluster.leader if cluster.leader > 0 else "none"
    path = root / "described.txt"
    path.write_text(
        f"Topic: {TOPIC}{middle}\tPartitionCount: 1\tReplicationFactor: {len(cluster.replicas)}\tConfigs: \n"
        f"\tTopic: {TOPIC}\tPartition: 0\tLeader: {leader}\tReplicas: {replicas}\tIsr: {isr}\n"
    )
    return path


# -- afterwards ---------------------------------------------------------------------------------------


def _wrong(cluster: Cluster, mode: str) -> str:
    """Who would serve something else than was written, in one of the ways in which the cluster can go on."""
    if found := cluster.diverged():
        return f"at once: {found}"
    if found := cluster.will_diverge():
        return f"after catching up: {found}"
    if mode != "in-sync" and (halfway := _leader_change_halfway(cluster)):
        return halfway
    for seed in range(2):
        after = copy.deepcopy(cluster)
        after.chance.seed(1000 * cluster.seed + seed)
        for broker in list(after.replicas):
            if not after.replicas[broker].running:
                after.start(broker)
        for _ in range(25):
            after.step()
        if found := after.diverged() or after.will_diverge():
            return f"later: {found}, {after.story[-8:]}"
    return ""


def _leader_change_halfway(cluster: Cluster) -> str:
    """A replica that was emptied, or is new, fetches one part from one leader and the rest from another one."""
    for first in sorted(cluster.isr):
        for second in sorted(cluster.isr - {first}):
            for new in set(cluster.replicas) - {first, second}:
                for batches in (1, 3, 6):
                    if found := _halfway(cluster, first, second, new, batches):
                        return (
                            f"{new} fetched {batches} batches from {first}, the rest from {second}: {found}"
                        )
    return ""


def _halfway(cluster: Cluster, first: int, second: int, new: int, batches: int) -> str:
    after = copy.deepcopy(cluster)
    for broker in list(after.alive):
        after.stop(broker)
    after.isr = {first, second}
    after.leader = -1
    for broker in (first, second, new):
        after.replicas[broker].running = True
        after.replicas[broker].checked = -1
    after.elect(first)
    after.fetch(second)
    after.empty(new)
    after.replicas[new].running = True
    after.fetch(new, batches)
    after.isr.discard(new)
    after.elect(second)
    after.fetch(new)
    return after.diverged().get(new, "")
