"""``--metrics``: the result of a run is written at its end, however it ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import typer

from krepair.cli.outcome import CHANGING_VERBS, INTERRUPTED_BY_SIGNAL
from krepair.errors import ExitCode, KrepairError
from krepair.plan.view import visible


class MetricsOf:
    """Writes the metrics of one run; without a path it does nothing.

    Args:
        path: as typed, or empty.
        verb: as typed.
        log_dirs: of this run; nothing is written into them.

    Raises:
        KrepairError: see ``krepair.ops.metrics.check_place``.
    """

    def __init__(self, path: str, verb: str, log_dirs: Sequence[str]) -> None:
        self.report: Any = None
        self._verb, self._target = verb, ""
        self._began = time.monotonic()
        if path:
            from krepair.ops import metrics

            self._target = metrics.check_place(path, log_dirs)

    def __enter__(self) -> MetricsOf:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._target:
            return
        from krepair.ops import metrics

        ended = metrics.Ended(self._verb, self._exit_code(error), time.time(), time.monotonic() - self._began)
        try:
            metrics.write(self._target, metrics.render(metrics.families(self.report, ended)))
        except OSError as problem:
            # what the verb did is done: its exit code stays
            text = f"krepair: {self._target}: cannot write the metrics: {problem.strerror or problem}"
            sys.stderr.write(visible(text) + "\n")

    def _exit_code(self, error: BaseException | None) -> int:
        if error is None:
            return int(ExitCode.DONE)
        if isinstance(error, typer.Exit):
            return error.exit_code
        if isinstance(error, KrepairError):
            return int(error.exit_code)
        if isinstance(error, KeyboardInterrupt):
            return INTERRUPTED_BY_SIGNAL
        if isinstance(error, OSError):
            return int(ExitCode.PARTLY if self._verb in CHANGING_VERBS else ExitCode.UNREADABLE)
        return int(ExitCode.BUG)
