"""Progress bars on standard error, where that is a terminal."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

from krepair.pipeline.progress import Progress, SilentProgress

if TYPE_CHECKING:
    from rich.progress import Progress as RichBars
    from rich.progress import TaskID


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


class ProgressOf:
    """The progress of one verb; leaves no bar behind, however the verb ends."""

    def __init__(self, *, quiet: bool) -> None:
        self._progress: Progress = SilentProgress() if quiet or not sys.stderr.isatty() else BarProgress()

    def __enter__(self) -> Progress:
        return self._progress

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.finish()
