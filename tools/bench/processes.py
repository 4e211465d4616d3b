"""Whole processes of krepair, as a person starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from krepair.errors import ExitCode
from tools.bench.table import Spent, spent_by

KREPAIR: Final = Path(sys.executable).parent / "krepair"
GOOD: Final = frozenset({ExitCode.DONE, ExitCode.FOUND})
# a user's Python keeps its bytecode; some build machines tell it not to
ENVIRONMENT: Final = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


def run(*words: str | Path) -> Spent:
    """Run one command, whose output nobody reads.

    Raises:
        RuntimeError: it ended with another code than 0 or 2; with what it said.
    """

    def work() -> None:
        ended = subprocess.run(
            list(map(str, words)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
            env=ENVIRONMENT,
        )
        if ended.returncode not in GOOD:
            raise RuntimeError(f"{words} ended with {ended.returncode}: {ended.stderr.decode()[-2000:]}")

    return spent_by(work)


def done(verb: str, *words: str | Path) -> Spent:
    """A verb of krepair, in one process and with no words of progress."""
    return run(KREPAIR, verb, *words, "--engine", "inline", "--quiet")
