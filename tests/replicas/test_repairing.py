"""krepair in thousands of model clusters removes nothing that a replica misses; without its rule they diverge.

``KREPAIR_REPLICA_HISTORIES=3000`` tries as many in each way.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.replicas.repairing import Figures, try_seed

pytestmark = pytest.mark.replicas
HISTORIES = int(os.environ.get("KREPAIR_REPLICA_HISTORIES", "20"))


def tried(mode: str, root: Path, first: int, count: int) -> Figures:
    figures = Figures()
    for seed in range(first, first + count):
        try_seed(seed, mode, root / str(seed), figures)
    return figures


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["in-sync", "none", "replicas"])
def test_nobody_misses_what_krepair_removes(mode: str, tmp_path: Path) -> None:
    figures = tried(mode, tmp_path, 0, HISTORIES)
    assert figures.diverged == {}
    assert figures.counts["histories"] > HISTORIES // 2
    assert figures.counts["values that went"] > 5 * HISTORIES
    assert (figures.counts["markers that went"] > 0) == (mode != "none")


@pytest.mark.slow
def test_without_the_rule_the_same_histories_diverge(tmp_path: Path) -> None:
    figures = tried("alone", tmp_path, 10, 32)
    assert len(figures.diverged) >= 3
    why = " ".join(figures.diverged.values())
    assert "stable offset" in why
    assert "keys" in why
