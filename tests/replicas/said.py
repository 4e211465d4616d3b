"""Verdicts of ``compare`` on a model's cluster."""

from __future__ import annotations

from pathlib import Path

from krepair.fixes.replicas import parse_brokers
from krepair.ops.compare import compare
from krepair.options import EngineName, Options
from krepair.rules.replicas.model import PartitionVerdict
from tests.replicas.directories import SETTINGS, written
from tests.replicas.model import Cluster


def compared_cluster(cluster: Cluster, root: Path) -> PartitionVerdict:
    """Write the directories of a stopped cluster, and compare them."""
    return compared_sides(cluster, written(cluster, root))


def compared_sides(cluster: Cluster, paths: dict[int, Path]) -> PartitionVerdict:
    """Compare directories that were written before."""
    policy = "compact" if cluster.kind.compacted else "delete"
    options = Options(
        engine=EngineName.INLINE, settings=tuple((SETTINGS | {"cleanup.policy": policy}).items())
    )
    [verdict] = compare(
        parse_brokers([f"{broker}={path}" for broker, path in paths.items()]), options
    ).partitions
    return verdict
