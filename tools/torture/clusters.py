"""Runs real clusters of three brokers with random histories: krepair repairs some replicas, and compares healthy ones.

A unit is one cluster, whose partitions are histories; see ``tests.replicas.histories`` and
``tests.replicas.healthy_brokers``. Of ``alone``, where krepair removes what others still need, something
has to diverge: else the programme would notice nothing.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.lab.jars import VERSIONS
from tests.replicas import healthy_brokers, histories
from tests.replicas.histories import MODES, Figures
from tools.torture.state import State

HEALTHY = "healthy"
ALONE = "alone"


def play(mode: str, version: str, seed: int, work: Path) -> Figures:
    """Run one cluster and count its failures.

    Args:
        mode: one of ``MODES``, or ``healthy``.
        version: version of Kafka.
        seed: seed of all random choices.
        work: an empty folder; it is removed.
    """
    work.mkdir()
    try:
        if mode == HEALTHY:
            return healthy_brokers.play(version, seed, work)
        history = histories.play(version, mode, seed, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if mode != ALONE:
        return history
    history.counts["partitions that diverged without the rule"] = len(history.diverged)
    history.wrong = [] if history.diverged else ["krepair removed what others still need, and nobody noticed"]
    return history


def run(seeds: range, workdir: Path, state: State) -> None:
    """Run one cluster of each version and mode per seed."""
    for seed in seeds:
        for version in VERSIONS:
            for mode in (*MODES, HEALTHY):
                unit = f"{mode}:{version}:{seed}"
                if state.is_done(unit) or state.time_is_up():
                    continue
                history = play(mode, version, seed, workdir / "cluster")
                for text in history.wrong:
                    state.wrong(unit, text)
                state.keep(unit, history.counts)


def replay(text: str, workdir: Path) -> list[str]:
    """Play one cluster again."""
    mode, version, seed = text.split(":")
    return play(mode, version, int(seed), workdir / "cluster").wrong
