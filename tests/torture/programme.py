"""Runs a part of ``make torture`` as a person does, and reads what it kept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tools.torture.__main__ import PARTS, file_system_of
from tools.torture.state import State, source_digest

ROOT = Path(__file__).parent.parent.parent
IN_THE_GATE = (
    "markers",
    "everything",
    "leftovers-without-fence",
    "recovery",
    "keys",
    "forgotten-and-recovery",
    "swap-over-damage",
    "markers~until-verified",
    "everything~until-verified",
)
"""Scenes of which the gate kills verbs and fails calls: to make a scene costs more than to try it."""


def of_scenes(names: Iterable[str]) -> list[str]:
    """Arguments for ``run_part``: only these."""
    return [word for name in names for word in ("--scene", name)]


def run_part(part: str, folder: Path, *arguments: str) -> State:
    """Run ``python -m tools.torture --part PART`` in a process of its own; gives what it kept in the folder."""
    command = [sys.executable, "-m", "tools.torture", "--part", part, "--state", str(folder), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stdout[-4000:] + done.stderr[-4000:]
    memory = Path("/dev/shm")
    where = memory if os.access(memory, os.W_OK) else folder
    on_disk = next(one.on_disk for one in PARTS if one.name == part)
    return State(folder / source_digest(), part, file_system_of(where) if on_disk else "")


def run_script(script: str) -> str:
    """Run a script that starts itself again under the library of faults; gives what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def wrong_of(state: State) -> str:
    """The first things that were wrong, with the commands that replay them."""
    return "\n".join(f"{state.command(case)}\n{text}" for case, text in list(state.all_wrong.items())[:5])
