"""The forecast of the next start against Kafka's own loader classes: random damages, every case from a seed.

A sound partition is broken per seed (logs, all three indexes, snapshots, leader epochs; cleanly stopped or killed; with
lines of the root's checkpoints). ``krepair check`` says what 2.2.1, 2.8.2, 3.9.2 and 4.3.1 would do to it, and the
loader classes of the four do it: start, recover, truncate to which byte, delete, refuse. Needs a JDK and Maven.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.lab.starts import Figures, Starts, chunks
from tools.torture.state import State

CHUNK = 50
CASES = 10_000


def compare(seeds: Sequence[int], scratch: Path) -> Figures:
    """Compare the cases of these seeds; the figures name each forecast that was wrong.

    Args:
        seeds: one case each.
        scratch: folder for copies.
    """
    with tempfile.TemporaryDirectory(dir=scratch) as folder, Starts(Path(folder)) as starts:
        return starts.run(seeds)


def run(seeds: range, workdir: Path, state: State) -> None:
    """As a part of the programme: ``CASES`` seeds for each of its seeds, or ``state.samples``."""
    for seed in seeds:
        cases = range(1, state.most(CASES) + 1)
        for some in chunks([seed * CASES + case for case in cases], CHUNK):
            unit = f"{some[0]}..{some[-1]}"
            if state.is_done(unit) or state.time_is_up():
                continue
            found = compare(some, workdir)
            for text in found.wrong:
                state.wrong(unit, text)
            figures = Counter({"cases": found.cases, "forecasts compared": found.compared.total()})
            state.keep(unit, figures + Counter({f"left out: {why}": n for why, n in found.left_out.items()}))


def replay(case: str, workdir: Path) -> list[str]:
    """Compare some seeds again: ``7`` or ``1..50``."""
    first, _, last = case.partition("..")
    return compare(range(int(first), int(last or first) + 1), workdir).wrong
