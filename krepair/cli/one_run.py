"""What verbs that hand back a report do alike: run under a progress bar, write metrics and a page, report, end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from krepair.cli.commands import Fill, Made, as_it_is, exact, exact_errors
from krepair.cli.metrics import MetricsOf
from krepair.cli.outcome import finish
from krepair.cli.page_file import PageFile
from krepair.cli.progress import ProgressOf
from krepair.options import Options
from krepair.pipeline.progress import Progress

if TYPE_CHECKING:
    from krepair.plan.view import View


def run_and_finish(
    verb: str,
    log_dirs: Sequence[str],
    run: Callable[[Progress], Made],
    page: Callable[[Made], View],
    options: Options,
    *,
    fill: Fill = as_it_is,
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
    html = PageFile(options.html, log_dirs)
    with MetricsOf(options.metrics, verb, log_dirs) as measured:
        with ProgressOf(quiet=options.quiet) as progress, exact_errors(fill):
            report = run(progress)
        measured.report = report = exact(report, fill)
        html.write(report)
        finish(verb, report, lambda: page(report), options)
