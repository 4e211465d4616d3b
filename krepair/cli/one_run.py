"""Shared steps of verbs that return a report: run with a progress bar, write metrics and a page, report, end.

For ``apply``, ``undo`` and ``purge`` also: read the plan, or find the backups in a log directory.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NoReturn, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from krepair.cli.outcome import CHANGING_VERBS, exit_code_of, finish
from krepair.engine.progress import Progress, SilentProgress
from krepair.errors import ExitCode, KrepairError, NotALogDirError, UsageError
from krepair.next_command import LOG_DIR, NOTHING, PLAN, Next, by_id, of_error
from krepair.options import Options
from krepair.plan.view import visible

if TYPE_CHECKING:
    from rich.progress import Progress as RichBars
    from rich.progress import TaskID

    from krepair.cli.incident import Incident
    from krepair.commit.reports import ApplyReport
    from krepair.findings.reports import CheckReport
    from krepair.plan.model import Plan
    from krepair.plan.view import View

Made = TypeVar("Made", bound=Struct)


def run_and_finish(
    verb: str,
    log_dirs: Sequence[str],
    run: Callable[[Progress], Made],
    page: Callable[[Made], View],
    options: Options,
    *,
    browser: Callable[[Made], View] | None = None,
    fill: CommandFiller | None = None,
    same: Next | None = None,
    incident: Incident | None = None,
) -> NoReturn:
    """Run a verb, show the result, and leave with the exit code of its report.

    Args:
        verb: verb as the operator typed it.
        log_dirs: log directories of this run, into which neither metrics nor a page are written.
        run: function that carries out the verb.
        page: function that builds the page of the report.
        options: options as typed: ``--metrics``, ``--html``, ``--json``, ``--quiet``.
        browser: function that builds the page for ``--html``, if it differs.
        fill: filler of the next command, in the report and in an error.
        same: next command if the same run could succeed later, or as another user.
        incident: report to which this run is added.

    Raises:
        typer.Exit: always, unless there is an error.
    """
    metrics_file, page_file = _places(options, log_dirs)
    fill = fill or CommandFiller(config=options.config or "")
    made: Made | None = None
    code, began = int(ExitCode.DONE), time.monotonic()
    failure: BaseException | None = None
    try:
        with _events(verb, options, log_dirs), _progress(options) as progress, _exact_errors(fill, same):
            made = report = run(progress)
        if hasattr(report, "next_command"):
            report = replace(report, next_command=fill(report.next_command))
        if page_file:
            _write_page(page_file, (browser or page)(report))
        finish(verb, report, lambda: page(report), options)
    except BaseException as error:
        code, failure = exit_code_of(error, verb), error
        raise
    finally:
        if incident is not None:
            incident.add(
                verb, code, time.monotonic() - began, None if made is None else partial(page, made), failure
            )
        if metrics_file:
            _write_metrics(metrics_file, made, verb, code, time.monotonic() - began)


def _places(options: Options, log_dirs: Sequence[str]) -> tuple[str, str]:
    """Return the paths of metrics and page, empty if not requested; they are checked before any work.

    Raises:
        KrepairError: see ``krepair.durable.output_file.check_place``.
    """
    from krepair.durable.output_file import check_place

    metrics_file = page_file = ""
    if options.html:
        from krepair.cli.views.page import PAGE

        page_file = check_place(PAGE, options.html, log_dirs)
    if options.metrics:
        from krepair.cli.views.metrics import METRICS

        metrics_file = check_place(METRICS, options.metrics, log_dirs)
    return metrics_file, page_file


def _write_metrics(target: str, made: object, verb: str, code: int, duration_s: float) -> None:
    """Write the result of a run, however it ended; a failure here does not change the exit code."""
    from krepair.cli.views import metrics
    from krepair.durable import output_file

    ended = metrics.Ended(verb, code, time.time(), duration_s)
    try:
        output_file.write(metrics.METRICS, target, metrics.render(metrics.families(made, ended)))
    except OSError as problem:
        text = f"krepair: {target}: cannot write the metrics: {problem.strerror or problem}"
        sys.stderr.write(visible(text) + "\n")


def _write_page(target: str, view: View) -> None:
    """Write the whole page for a browser, or keep the old one.

    Raises:
        KrepairError: see ``krepair.durable.output_file.not_written``.
    """
    from krepair.cli.views.page import PAGE, found_page
    from krepair.durable import output_file

    data = found_page(view).encode()
    try:
        output_file.write(PAGE, target, data)
    except OSError as problem:
        raise output_file.not_written(PAGE, target, problem, len(data)) from None


# -- next commands with the typed paths and options, which the verbs themselves do not know


@dataclass(frozen=True)
class CommandFiller:
    """Filler of one run's commands: PLAN and LOGDIR become paths, and the typed options are added.

    Attributes:
        plan: path of the plan file, if known.
        log_dir: path of the log directory, if known.
        options: options for the commands of some verbs, see ``Next.carrying``.
        plan_id: id of the plan, if there is no file of it.
        config: path of the broker's configuration, for commands that carry no options.
    """

    plan: str = ""
    log_dir: str = ""
    options: Options = field(default_factory=Options)
    plan_id: str = ""
    config: str = ""

    def __call__(self, command: Next) -> Next:
        """Fill in a command."""
        if self.plan_id and command == Next.of(command.verb, PLAN):
            # There is no apply by id, so a half-done plan is rolled back.
            return by_id("purge" if command.verb == "purge" else "undo", self.log_dir, self.plan_id)
        filled = command.filled(
            plan=self.plan, log_dir=self.log_dir, config=self.config or self.options.config or ""
        )
        return filled.carrying(self.options)

    def without_names(self) -> CommandFiller:
        """Return this filler without the typed topics and partitions."""
        return with_fields(self, options=with_fields(self.options, topics=(), partitions=()))


def as_typed(report: CheckReport, options: Options) -> CheckReport:
    """Add the options to each finding's command: without the topic's settings it might find nothing to do."""
    fill = CommandFiller(options=options)
    log_dirs = (
        replace(
            log_dir,
            findings=tuple(replace(finding, command=fill(finding.command)) for finding in log_dir.findings),
            rules=tuple(replace(rule, command=fill(rule.command)) for rule in log_dir.rules),
        )
        for log_dir in report.log_dirs
    )
    return replace(report, log_dirs=tuple(log_dirs))


@contextmanager
def _exact_errors(fill: CommandFiller, same: Next | None) -> Iterator[None]:
    """Fill in the next command of any error that passes through."""
    try:
        yield
    except KrepairError as error:
        if error.again and same is not None and not error.next_command:
            error.next_command = same.at(error.again)
        if isinstance(error, NotALogDirError):
            # The named topic may not exist: with it, the next command would fail as this one did.
            fill = fill.without_names()
        command = fill(of_error(error))
        error.next_command = NOTHING if command == same else command
        raise


# -- verbs of a plan


def carry_out(
    verb: str,
    path: str,
    run: Callable[[Plan, Options, Progress], ApplyReport],
    options: Options,
) -> NoReturn:
    """Carry out a verb on the log directory of a plan.

    Args:
        verb: verb as the operator typed it.
        path: path of the plan file.
        run: function that carries out the verb.
        options: options as they were typed.

    Raises:
        typer.Exit: always, with the report's exit code, unless there is an error.
    """
    from krepair.cli.views.reports import apply_view
    from krepair.plan.commands import check_digest
    from krepair.plan.planfile import read_plan

    with without_plan_file(verb, path):
        plan = read_plan(path)
    if options.expect:
        check_digest(plan, options.expect, path)

    def carried_out(progress: Progress) -> ApplyReport:
        return replace(_with_others(run(plan, options, progress)), digest=plan.digest)

    run_on_plan(verb, plan, path, carried_out, apply_view, options)


@contextmanager
def without_plan_file(verb: str, path: str) -> Iterator[None]:
    """Explain an unusable plan file that may have been applied: the backups help then, a new plan does not.

    Args:
        verb: verb as typed; ``apply`` can also use a new plan. The others accept a log directory too.
        path: path of the plan file as typed.
    """
    try:
        yield
    except KrepairError as error:
        if verb != "apply":
            nothing_there = isinstance(error, UsageError) and not os.path.lexists(path)
            neither = ", and no such log directory" if nothing_there else ""
            error.message += (
                f"{neither}. If the plan was applied, a copy of it is in the log directory; the next command lists "
                "what is kept there. See docs/runbooks/kept-originals.md"
            )
            error.next_command = Next.of("undo", LOG_DIR)
        raise


def run_on_plan(
    verb: str,
    plan: Plan,
    path: str,
    run: Callable[[Progress], Made],
    page: Callable[[Made], View],
    options: Options,
) -> NoReturn:
    """Run a verb on a plan; the next command gets its path and the options that it was made with.

    Raises:
        typer.Exit: always, unless there is an error.
    """
    from krepair.plan.commands import options_of

    incident = None
    if verb in CHANGING_VERBS:
        from krepair.cli.incident import Incident

        incident = Incident(plan, path)
    fill = CommandFiller(plan=path, log_dir=plan.log_dir, options=options_of(plan))
    same = Next.of(verb, PLAN)
    run_and_finish(verb, (plan.log_dir,), run, page, options, fill=fill, same=same, incident=incident)


def _with_others(report: ApplyReport) -> ApplyReport:
    """Point the next command to other plans' backups if undo or purge found nothing of this plan."""
    from krepair.commit import kept

    idle = not report.bytes_freed and all(
        result.outcome in {"already", "purged"} for result in report.results
    )
    if report.verb == "apply" or report.exit_code is not ExitCode.DONE or not idle:
        return report
    if not kept.others_keep(report.log_dir, report.plan_id):
        return report
    return replace(report, next_command=Next.of(report.verb, report.log_dir))


# -- ``undo`` and ``purge`` of a log directory instead of a plan file: list the backups, or act by the plan's id

Verb = Literal["undo", "purge"]


def is_log_dir(target: str, plan_id: str) -> bool:
    """Return whether the operator gave a log directory rather than a plan file.

    Raises:
        UsageError: an id was given with a plan file, which has its own.
    """
    if os.path.isdir(target):
        return True
    if plan_id:
        raise UsageError(f"{target}: --plan-id needs a log directory, and this is not one")
    return False


def list_kept(verb: Verb, log_dir: str, options: Options) -> NoReturn:
    """List the plans that a verb could act on in a log directory; the verb itself is not loaded.

    Raises:
        typer.Exit: always, unless there is an error.
    """
    from krepair.cli.views.reports import kept_view
    from krepair.commit.kept import kept_report

    listed = kept_report(log_dir, options.now_ms, verb)
    finish(verb, listed, lambda: kept_view(verb, listed), options)


def carry_out_by_id(
    verb: Verb,
    log_dir: str,
    run: Callable[[str, str, Options, Progress], ApplyReport],
    options: Options,
) -> NoReturn:
    """Carry out a verb on a log directory, for the plan of ``--plan-id``.

    Args:
        log_dir: path as the operator typed it.
        run: function that carries out the verb.
        options: options as typed.

    Raises:
        typer.Exit: always, with the report's exit code, unless there is an error.
    """
    from krepair.cli.views.reports import apply_view

    path, plan_id = os.path.abspath(log_dir), options.plan_id
    run_and_finish(
        verb,
        (log_dir,),
        partial(run, log_dir, plan_id, options),
        apply_view,
        options,
        fill=CommandFiller(log_dir=path, plan_id=plan_id),
        same=by_id(verb, path, plan_id),
    )


# -- progress on standard error: bars on a terminal, else a line now and then

LINE_EVERY_S: Final = 10.0


class BarProgress:
    """Progress with one bar per task."""

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

        class Terminal(Console):
            """Console that draws in ASCII if the locale has nothing else; Python itself would write UTF-8 there."""

            @property
            def encoding(self) -> str:
                return super().encoding if _is_utf8() else "ascii"

        self._bars: RichBars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Terminal(stderr=True),
            transient=True,
        )
        self._task: TaskID | None = None

    def start(self, task: str, total_bytes: int) -> None:
        """Draw a new bar, which pulses if the total is unknown."""
        self._bars.start()
        self._task = self._bars.add_task(task, total=total_bytes or None)

    def advance(self, done_bytes: int) -> None:
        """Move the bar forward."""
        if self._task is not None:
            self._bars.advance(self._task, done_bytes)

    def finish(self) -> None:
        """Remove the bar."""
        if self._task is not None:
            self._bars.remove_task(self._task)
            self._task = None
        self._bars.stop()


def _is_utf8() -> bool:
    """Return whether the locale that was set for this process writes UTF-8.

    In the locale C, Python itself sets LC_CTYPE to C.UTF-8, so that value proves nothing.
    """
    coerced = os.environ.get("LC_CTYPE", "")
    names = (os.environ.get("LC_ALL"), "" if coerced == "C.UTF-8" else coerced, os.environ.get("LANG"))
    return "utf" in next(filter(None, names), "C").lower()


class LineProgress:
    """Progress as a line every few seconds where there is no terminal, so that a log shows that work continues.

    Args:
        clock: function that returns seconds; tests replace it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._task, self._total, self._done = "", 0, 0
        self._began = self._next = 0.0

    def start(self, task: str, total_bytes: int) -> None:
        """Begin to count; quick tasks print nothing."""
        self._task, self._total, self._done = task, total_bytes, 0
        self._began = self._clock()
        self._next = self._began + LINE_EVERY_S

    def advance(self, done_bytes: int) -> None:
        """Print the progress if nothing was printed for a while."""
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
        """Do nothing; the next task starts from zero."""


def _events(verb: str, options: Options, log_dirs: Sequence[str]) -> contextlib.AbstractContextManager[None]:
    """Write the log of one verb, if it was requested."""
    if not (options.verbose or options.log):
        return contextlib.nullcontext()
    from krepair.cli.event_log import logged

    return logged(verb, options, log_dirs)


@contextmanager
def _progress(options: Options) -> Iterator[Progress]:
    """Provide the progress of one verb, and leave no bar behind, however the verb ends."""
    bars = sys.stderr.isatty() and not options.verbose
    progress = SilentProgress() if options.quiet else BarProgress() if bars else LineProgress()
    try:
        yield progress
    finally:
        progress.finish()
