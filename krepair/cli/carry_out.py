"""What ``apply``, ``undo`` and ``purge`` do alike: read the plan, carry it out under a progress bar, report."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, Literal, NoReturn

from msgspec.structs import replace

from krepair.cli.commands import Filling, Made, typed_again
from krepair.cli.one_run import run_and_finish
from krepair.cli.outcome import finish
from krepair.errors import ExitCode, KrepairError, UsageError
from krepair.ops.reports import ApplyReport
from krepair.options import Options
from krepair.pipeline.progress import Progress
from krepair.plan.model import Plan
from krepair.plan.view import View


def carry_out(
    verb: str,
    path: str,
    run: Callable[[Plan, Options, Progress], ApplyReport],
    options: Options,
) -> NoReturn:
    """Do to the log directory of a plan what a verb does.

    Args:
        verb: as typed.
        path: of the plan file.
        run: the verb.
        options: what was typed.

    Raises:
        typer.Exit: always, with the report's exit code, unless there is an error.
    """
    from krepair.cli.views.reports import apply_view
    from krepair.ops import show
    from krepair.ops.show import check_digest

    with without_plan_file(verb):
        plan = show.load(path)
    if options.expect:
        check_digest(plan, options.expect, path)

    def carried_out(progress: Progress) -> ApplyReport:
        return replace(_with_others(run(plan, options, progress)), digest=plan.digest)

    run_on_plan(verb, plan, path, carried_out, apply_view, options)


@contextmanager
def without_plan_file(verb: str) -> Iterator[None]:
    """Where a plan file cannot be used that may have been applied, a new plan helps nobody: what is kept does.

    Args:
        verb: as typed; ``apply`` can also need a new plan.
    """
    try:
        yield
    except KrepairError as error:
        if verb != "apply":
            error.message += (
                ". If the plan was applied, a copy of it is in the log directory; the next command lists what is kept "
                "there. See docs/runbooks/kept-originals.md"
            )
            error.next_command = "krepair undo LOGDIR"
        raise


def run_on_plan(
    verb: str,
    plan: Plan,
    path: str,
    run: Callable[[Progress], Made],
    page: Callable[[Made], View],
    options: Options,
) -> NoReturn:
    """Run a verb of a plan; the next command has the path, and what it was made with.

    Raises:
        typer.Exit: always, unless there is an error.
    """
    from krepair.ops.plan_command import options_of

    fill = Filling(plan=path, log_dir=plan.log_dir, options=options_of(plan))

    def carried_out(progress: Progress) -> Made:
        with typed_again(f"krepair {verb} PLAN"):
            return run(progress)

    run_and_finish(verb, (plan.log_dir,), carried_out, page, options, fill=fill)


def _with_others(report: ApplyReport) -> ApplyReport:
    """Where undo or purge found nothing, but other plans keep something, the next command lists that."""
    from krepair.ops import kept

    idle = not report.bytes_freed and all(
        result.outcome in {"already", "purged"} for result in report.results
    )
    if report.verb == "apply" or report.exit_code is not ExitCode.DONE or not idle:
        return report
    if not kept.others_keep(report.log_dir, report.plan_id):
        return report
    return replace(report, next_command=f"krepair {report.verb} {shlex.quote(report.log_dir)}")


# -- ``undo`` and ``purge`` of a log directory instead of a plan file: list what is kept, or do it by the plan's id

Verb = Literal["undo", "purge"]

# By id there is no apply: what is half done is taken back.
_WITH_PLAN_FILE: Final = re.compile(r"^krepair (undo|purge|apply|verify) PLAN$")


def is_log_dir(target: str, plan_id: str) -> bool:
    """Whether a log directory was given, and not a plan file.

    Raises:
        UsageError: an id goes with a plan file, which has one of its own.
    """
    if os.path.isdir(target):
        return True
    if plan_id:
        raise UsageError(f"{target}: --plan-id goes with a log directory, and this is none")
    return False


def carry_out_by_id(
    verb: Verb,
    log_dir: str,
    run: Callable[[str, str, Options, Progress], ApplyReport],
    options: Options,
) -> NoReturn:
    """Do to a log directory what a verb does, or list what it could be done to.

    Args:
        verb: which.
        log_dir: as typed.
        run: the verb.
        options: what was typed; without an id of a plan it is listed.

    Raises:
        typer.Exit: always, with the report's exit code, unless there is an error.
    """
    from krepair.cli.views.reports import apply_view, kept_view
    from krepair.ops import kept

    plan_id = options.plan_id
    if not plan_id:
        listed = kept.kept_report(log_dir, options.now_ms, verb)
        finish(verb, listed, lambda: kept_view(verb, listed), options)

    def carried_out(progress: Progress) -> ApplyReport:
        with typed_again(kept.by_id_command(verb, os.path.abspath(log_dir), plan_id)):
            return run(log_dir, plan_id, options, progress)

    run_and_finish(
        verb,
        (log_dir,),
        carried_out,
        apply_view,
        options,
        fill=partial(_by_id, verb=verb, log_dir=log_dir, plan_id=plan_id),
    )


def _by_id(command: str, *, verb: Verb, log_dir: str, plan_id: str) -> str:
    from krepair.ops.kept import by_id_command

    match = _WITH_PLAN_FILE.fullmatch(command)
    if match is None:
        return command
    asked = verb if match[1] == verb else "purge" if match[1] == "purge" else "undo"
    return by_id_command(asked, os.path.abspath(log_dir), plan_id)
