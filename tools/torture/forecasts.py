"""The forecast of the next start against Kafka's own loader classes: random damages, every case from a seed.

    python -m tools.torture.forecasts --seeds 1..10000

breaks a sound partition per seed (logs, all three indexes, snapshots, leader epochs; cleanly stopped or killed; with
lines of the root's checkpoints), asks ``krepair check`` what 2.2.1, 2.8.2, 3.9.2 and 4.3.1 would do to it, and lets the
loader classes of the four do it: start, recover, truncate to which byte, delete, refuse. It ends with 0 only if none
differs, and prints one command per case that does. ``run(seeds, progress)`` is the same for another program. Needs a
JDK and Maven.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.lab.starts import Figures, Starts, chunks

REPLAY = "python -m tools.torture.forecasts --seeds {seed}"
CHUNK = 50


def run(seeds: Sequence[int], progress: Callable[[str], None], scratch: Path | None = None) -> Figures:
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
    figures = run(given.seeds, lambda text: print(text, flush=True), given.scratch)
    print(f"{time.strftime('%Y-%m-%d')}, {time.monotonic() - begun:.0f} s")
    print(figures.table())
    return 1 if figures.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
