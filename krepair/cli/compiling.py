"""Says on standard error, once, that a run waits for the compiler."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Final

from krepair.kernels import waiting

_SILENT: Final = frozenset({"--json", "--quiet", "-q"})


def announce(arguments: Sequence[str]) -> None:
    """Tell a person who waits for the compiler, unless the command line asks for silence."""
    waiting.tell(None if _SILENT.intersection(arguments) else say_of_a_run)


def say_of_a_run() -> None:
    """Of a verb that compiles what it calls."""
    _say("compiling what this run needs to machine code, once; `krepair warm` does it in advance")


def say_of_warm(kernels: int) -> None:
    """Of ``krepair warm``, which compiles so many kernels."""
    _say(f"compiling {kernels} kernels to machine code; all of them take about a minute of CPU time")


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
