"""Progress on standard error: bars on a terminal, else a line now and then."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final

from krepair.pipeline.progress import Progress, SilentProgress

if TYPE_CHECKING:
    from rich.progress import Progress as RichBars
    from rich.progress import TaskID


LINE_EVERY_S: Final = 10.0


class BarProgress:
    """One bar per task."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        self._bars: RichBars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task: TaskID | None = None

    def start(self, task: str, total_bytes: int) -> None:
        """Draw a new bar; an unknown total moves without an end."""
        self._bars.start()
        self._task = self._bars.add_task(task, total=total_bytes or None)

    def advance(self, done_bytes: int) -> None:
        """Move the bar."""
        if self._task is not None:
            self._bars.advance(self._task, done_bytes)

    def finish(self) -> None:
        """Take the bar away."""
        if self._task is not None:
            self._bars.remove_task(self._task)
            self._task = None
        self._bars.stop()


class LineProgress:
    """A line now and then, where there is no terminal: a log shows that the work goes on.

    Args:
        clock: seconds; a test may give another one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._task, self._total, self._done = "", 0, 0
        self._began = self._next = 0.0

    def start(self, task: str, total_bytes: int) -> None:
        """Begin to count; nothing is said of what is quick."""
        self._task, self._total, self._done = task, total_bytes, 0
        self._began = self._clock()
        self._next = self._began + LINE_EVERY_S

    def advance(self, done_bytes: int) -> None:
        """Say how far it is, if nothing was said for a while."""
        self._done += done_bytes
        now = self._clock()
        if now < self._next:
            return
        self._next = now + LINE_EVERY_S
        share = f", {100 * self._done // self._total} %" if self._total else ""
        with contextlib.suppress(OSError):
            sys.stderr.write(
                f"{self._task}: {self._done:,} of {self._total:,} bytes{share}, {now - self._began:.0f} s\n"
            )
            sys.stderr.flush()

    def finish(self) -> None:
        """The next task begins anew."""


class ProgressOf:
    """The progress of one verb; leaves no bar behind, however the verb ends."""

    def __init__(self, *, quiet: bool) -> None:
        self._progress: Progress = (
            SilentProgress() if quiet else BarProgress() if sys.stderr.isatty() else LineProgress()
        )

    def __enter__(self) -> Progress:
        return self._progress

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.finish()
