"""Runs completely those tests of which the gate only runs a sample; each test file is one unit.

Which files these are is found by the variables that they ask for (``EVERYTHING``).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tools.torture.state import State

ROOT: Final = Path(__file__).resolve().parents[2]
EVERYTHING: Final = {
    "KREPAIR_EVERY_STATE": "1",
    "KREPAIR_EVERY_BROKER": "1",
    "KREPAIR_EVERY_CALL": "1",
    "KREPAIR_EVERY_LINK": "1",
    "KREPAIR_HUGE_RECORDS": "1",
}
"""Of the environment of these tests."""

_ASK: Final = (
    *EVERYTHING,
    "every_broker",
    "from hypothesis",  # the gate tries the same examples each time, this programme new ones (``tests/conftest.py``)
    "EVERY_CALL",  # of ``tests/ops/stops.py``
    "telling_stops",
    "huge_record",
)


def files() -> list[str]:
    """Return the test files, relative to the project."""
    return [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if any(word in path.read_text() for word in _ASK)
    ]


def run(seeds: range, workdir: Path, state: State) -> None:
    """Run each file once; ``--scene tests/brokers/test_purge_beside.py`` selects one of them."""
    del seeds, workdir
    for file in files():
        if not state.is_done(file) and not state.time_is_up():
            if failures := failures_of(file):
                state.wrong(file, failures)
            state.keep(file, {"files": 1})


def failures_of(file: str) -> str:
    """Run a test file; return the lines that name what failed, empty if nothing did."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rfE", file]
    # The library of faults is for the processes that this programme kills.
    own = {key: value for key, value in os.environ.items() if key not in {"LD_PRELOAD", "TORTURE_CONTROL"}}
    done = subprocess.run(
        command, cwd=ROOT, env=own | EVERYTHING, capture_output=True, text=True, check=False
    )
    if done.returncode in {0, 5}:  # 5: no test is left of this file
        return ""
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return "\n".join(lines) or done.stdout[-2000:]


def replay(case: str, workdir: Path) -> list[str]:
    """Run a test file again, or one test by its name."""
    del workdir
    return [failures] if (failures := failures_of(case)) else []
