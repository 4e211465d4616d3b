"""Simulates clusters in which krepair repairs replicas: no replica and no reader may miss what it removes.

See ``tests.replicas.repairing``; the same on real brokers is ``clusters``.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from tests.replicas.repairing import Figures, try_seed
from tools.torture.state import State

MODES: Final = ("none", "in-sync", "replicas")
"""The evidence that krepair has; never without any rule, which is known to diverge."""

HISTORIES: Final = 1000
"""Of each mode and seed, in a full run."""

_OF_A_UNIT: Final = 20


def run(seeds: range, workdir: Path, state: State) -> None:
    """Run ``HISTORIES`` of each mode, or ``state.samples``."""
    for seed in seeds:
        for first in range(0, state.most(HISTORIES), _OF_A_UNIT):
            for mode in MODES:
                unit = f"{mode}:{seed * HISTORIES + first}"
                if state.is_done(unit) or state.time_is_up():
                    continue
                figures = Figures()
                begin = seed * HISTORIES + first
                for number in range(begin, begin + min(_OF_A_UNIT, state.most(HISTORIES) - first)):
                    _try(mode, number, workdir, figures)
                for number, why in figures.diverged.items():
                    state.wrong(f"{mode}:{number}", why)
                state.keep(unit, figures.counts)


def _try(mode: str, seed: int, workdir: Path, figures: Figures) -> None:
    work = workdir / "replicas"
    work.mkdir()
    try:
        try_seed(seed, mode, work, figures)
    finally:
        shutil.rmtree(work)


def replay(case: str, workdir: Path) -> list[str]:
    """Play one history again."""
    mode, _, seed = case.partition(":")
    figures = Figures()
    _try(mode, int(seed), workdir, figures)
    return list(figures.diverged.values())
