"""Says on standard error that a run waits for the compiler: at once, and how far it is every few seconds."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from krepair.kernels import waiting

LINE_EVERY_S: Final = 5.0
_SILENT: Final = frozenset({"--json", "--quiet", "-q"})


class CompilingLines:
    """What is said while kernels are compiled.

    Args:
        clock: seconds; a test may give another one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._next = -1.0

    def __call__(self, done: int, total: int) -> None:
        """So many kernels of so many are compiled or being compiled; a total of 0 is not known."""
        now = self._clock()
        if self._began < 0:
            self._began = now
            _say(
                f"compiling {total} kernels to machine code"
                if total
                else "compiling what this run needs to machine code, once; `krepair warm` does it in advance"
            )
        elif now < self._next:
            return
        else:
            of_all = f" of {total}" if total else ""
            _say(f"compiling: {done}{of_all} kernels, {now - self._began:.0f} s")
        self._next = now + LINE_EVERY_S


def announce(arguments: Sequence[str]) -> None:
    """Tell a person who waits for the compiler, unless the command line asks for silence."""
    waiting.tell(None if _SILENT.intersection(arguments) else CompilingLines())


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
