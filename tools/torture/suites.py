"""Runs completely those tests of which the gate only runs a sample; each test file is one unit.

Which files these are is found by the variables that they ask for (``EVERYTHING``).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
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
_ENDS: Final = re.compile(r"(\d+) (passed|failed|skipped|error)")


def files() -> list[str]:
    """Return the test files, relative to the project."""
    return [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if any(word in path.read_text() for word in _ASK)
    ]


def run(seeds: range, workdir: Path, state: State) -> None:
    """Run each file once; ``--scene tests/brokers/test_purge_beside.py`` selects one of them."""
    del workdir
    for _ in seeds[:1]:
        for file in files():
            if state.is_done(file) or state.time_is_up():
                continue
            figures, failed = _run(file)
            for name in failed:
                state.wrong(name, "failed")
            state.keep(file, figures)


def _run(file: str) -> tuple[dict[str, int], list[str]]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rfE", file]
    # The library of faults is for the processes that this programme kills.
    own = {key: value for key, value in os.environ.items() if key not in {"LD_PRELOAD", "TORTURE_CONTROL"}}
    done = subprocess.run(
        command, cwd=ROOT, env=own | EVERYTHING, capture_output=True, text=True, check=False
    )
    return read_end(done.stdout, done.returncode, file)


def read_end(output: str, code: int, file: str) -> tuple[dict[str, int], list[str]]:
    """Return figures and the names of failed tests from the end of pytest's output.

    Args:
        output: output of pytest.
        code: exit code of pytest.
        file: test file that it ran.
    """
    last = next((line for line in reversed(output.splitlines()) if " in " in line), "")
    figures = {f"tests {word}": int(count) for count, word in _ENDS.findall(last)}
    failed = list(_failed(output))
    if code not in {0, 1, 5} or (code == 1 and not failed):  # 5: no test is left of this file
        failed.append(file)
    return figures, failed


def _failed(output: str) -> Iterator[str]:
    for line in output.splitlines():
        kind, _, rest = line.partition(" ")
        if kind in {"FAILED", "ERROR"}:
            yield rest.partition(" - ")[0].replace(" ", "_")


def replay(case: str, workdir: Path) -> list[str]:
    """Run one test again, by its name or file."""
    del workdir
    _, failed = _run(case)
    return failed
