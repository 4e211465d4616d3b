"""``undo`` and ``purge`` of a log directory instead of a plan file: list what is kept, or do it by the plan's id."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial
from typing import Final, Literal, NoReturn

from krepair.cli.commands import typed_again
from krepair.cli.one_run import run_and_finish
from krepair.cli.outcome import finish
from krepair.errors import UsageError
from krepair.ops.reports import ApplyReport
from krepair.options import Options
from krepair.pipeline.progress import Progress

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
