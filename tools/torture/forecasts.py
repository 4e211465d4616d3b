"""The forecast of the next start against Kafka's own loader classes: random damages, every case from a seed.

    python -m tools.torture.forecasts --seeds 1..10000

breaks a sound partition per seed (logs, all three indexes, snapshots, leader epochs; cleanly stopped or killed; with
lines of the root's checkpoints), asks ``krepair check`` what 2.2.1, 2.8.2, 3.9.2 and 4.3.1 would do to it, and lets the
loader classes of the four do it: start, recover, truncate to which byte, delete, refuse. It ends with 0 only if none
differs, and prints one command per case that does. As a part of ``make torture`` it does the same with the seeds
from 1 to ``CASES``. Needs a JDK and Maven.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.lab.starts import Figures, Starts, chunks
from tools.torture.state import State

REPLAY = "python -m tools.torture.forecasts --seeds {seed}"
CHUNK = 50
CASES = 10_000


def compare(seeds: Sequence[int], progress: Callable[[str], None], scratch: Path | None = None) -> Figures:
    """Compare the cases of these seeds; the figures name each forecast that was wrong.

    Args:
        seeds: one case each.
        progress: told in words now and then, and of each wrong forecast at once.
        scratch: folder for copies; a temporary one if None.
    """
    figures = Figures()
    with tempfile.TemporaryDirectory(dir=scratch) as folder, Starts(Path(folder), REPLAY) as starts:
        for some in chunks(seeds, CHUNK):
            found = starts.run(some)
            for text in found.wrong:
                progress(f"WRONG {text}")
            figures.add(found)
            progress(f"{figures.cases} of {len(seeds)} cases, {len(figures.wrong)} wrong")
    return figures


def run(seeds: range, workdir: Path, state: State) -> None:
    """As a part of the programme: ``CASES`` seeds for each of its seeds, or ``state.samples``."""
    for seed in seeds:
        cases = range(1, state.most(CASES) + 1)
        for some in chunks([seed * CASES + case for case in cases], CHUNK):
            unit = f"{some[0]}..{some[-1]}"
            if state.is_done(unit) or state.time_is_up():
                continue
            found = compare(some, lambda text: None, workdir)
            for text in found.wrong:
                state.wrong(unit, text)
            figures = Counter({"cases": found.cases, "forecasts compared": found.compared.total()})
            state.keep(unit, figures + Counter({f"left out: {why}": n for why, n in found.left_out.items()}))


def replay(case: str, workdir: Path) -> list[str]:
    """Compare some seeds again."""
    return compare(seeds_of(case), lambda text: None, workdir).wrong


def seeds_of(text: str) -> list[int]:
    """``7`` or ``1..100``."""
    first, _, last = text.partition("..")
    return list(range(int(first), int(last or first) + 1))


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=seeds_of, default=seeds_of("1..3000"), help="7 or 1..3000")
    parser.add_argument("--scratch", type=Path, help="folder for copies, best in memory (/dev/shm)")
    given = parser.parse_args()
    begun = time.monotonic()
    figures = compare(given.seeds, lambda text: print(text, flush=True), given.scratch)
    print(f"{time.strftime('%Y-%m-%d')}, {time.monotonic() - begun:.0f} s")
    print(figures.table())
    return 1 if figures.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
