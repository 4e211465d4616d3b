"""What verbs that hand back a report do alike: run under a progress bar, write metrics and a page, report, end."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, NoReturn

from msgspec.structs import replace

from krepair.cli.commands import Fill, Made, exact_errors
from krepair.cli.outcome import exit_code_of, finish
from krepair.errors import ExitCode
from krepair.ops.reports import Report
from krepair.options import Options
from krepair.pipeline.progress import Progress, SilentProgress
from krepair.plan.view import visible

if TYPE_CHECKING:
    from rich.progress import Progress as RichBars
    from rich.progress import TaskID

    from krepair.plan.view import View


def run_and_finish(
    verb: str,
    log_dirs: Sequence[str],
    run: Callable[[Progress], Made],
    page: Callable[[Made], View],
    options: Options,
    *,
    fill: Fill = str,
) -> NoReturn:
    """Run a verb, tell the result, and leave with the exit code of its report.

    Args:
        verb: as typed.
        log_dirs: of this run; neither metrics nor a page is written into them.
        run: the verb.
        page: of its report.
        options: what was typed: ``--metrics``, ``--html``, ``--json``, ``--quiet``.
        fill: fills in the next command, of the report and of an error.

    Raises:
        typer.Exit: always, unless there is an error.
    """
    metrics_file, page_file = _places(options, log_dirs)
    made: Made | None = None
    code, began = int(ExitCode.DONE), time.monotonic()
    try:
        with ProgressOf(quiet=options.quiet) as progress, exact_errors(fill):
            made = report = run(progress)
        if isinstance(report, Report):
            report = replace(report, next_command=fill(report.next_command))
        if page_file:
            _write_page(page_file, report)
        finish(verb, report, lambda: page(report), options)
    except BaseException as error:
        code = exit_code_of(error, verb)
        raise
    finally:
        if metrics_file:
            _write_metrics(metrics_file, made, verb, code, time.monotonic() - began)


def _places(options: Options, log_dirs: Sequence[str]) -> tuple[str, str]:
    """Where metrics and the page go, empty where they are not asked for; proven before any work.

    Raises:
        KrepairError: see ``krepair.ops.output_file.check_place``.
    """
    metrics_file = page_file = ""
    if options.html:
        from krepair.cli.views.page import PAGE
        from krepair.ops import output_file

        page_file = output_file.check_place(PAGE, options.html, log_dirs)
    if options.metrics:
        from krepair.ops import metrics

        metrics_file = metrics.check_place(options.metrics, log_dirs)
    return metrics_file, page_file


def _write_metrics(target: str, made: object, verb: str, code: int, duration_s: float) -> None:
    """The result of a run, however it ended. What the verb did is done: its exit code stays."""
    from krepair.ops import metrics

    ended = metrics.Ended(verb, code, time.time(), duration_s)
    try:
        metrics.write(target, metrics.render(metrics.families(made, ended)))
    except OSError as problem:
        text = f"krepair: {target}: cannot write the metrics: {problem.strerror or problem}"
        sys.stderr.write(visible(text) + "\n")


def _write_page(target: str, report: object) -> None:
    """The page for a browser, whole, or what was there.

    Raises:
        KrepairError: see ``krepair.ops.output_file.not_written``.
    """
    from krepair.cli.views.page import PAGE, check_page, compare_page
    from krepair.ops import output_file
    from krepair.ops.compare import CompareReport
    from krepair.ops.reports import CheckReport

    assert isinstance(report, CheckReport | CompareReport)
    page = check_page(report) if isinstance(report, CheckReport) else compare_page(report)
    data = page.encode()
    try:
        output_file.write(PAGE, target, data)
    except OSError as problem:
        raise output_file.not_written(PAGE, target, problem, len(data)) from None


# -- progress on standard error: bars on a terminal, else a line now and then

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
