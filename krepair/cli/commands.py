"""Next commands with the paths and options that were typed; the verbs themselves do not know them."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from msgspec.structs import replace

from krepair.checks.catalogue import Finding
from krepair.errors import KrepairError, NotALogDirError
from krepair.ops.plan_command import with_options
from krepair.ops.reports import (
    ApplyReport,
    CheckReport,
    LogDirReport,
    RuleSummary,
    SequenceReport,
    SequenceVerifyReport,
    VerifyReport,
)
from krepair.options import Options

Report = TypeVar("Report", ApplyReport, CheckReport, VerifyReport, SequenceReport, SequenceVerifyReport)
Told = TypeVar("Told", Finding, RuleSummary)

# A new plan goes to a new file: the old one may still be needed for undo.
_PLAN: Final = re.compile(r"(?<!--out )\bPLAN\b")
_OF_PLAN: Final = re.compile(r"krepair (apply|undo|purge|verify) PLAN\b")
_LOG_DIR: Final = re.compile(r"\bLOGDIR\b")


_CHECK: Final = "krepair check "
_PLAN_AGAIN: Final = "krepair plan "
_FROM_PREVIEW: Final = " --from "


def filled(
    command: str, *, plan: str = "", log_dir: str = "", options: Options | None = None, at: str = ""
) -> str:
    """A command with PLAN and LOGDIR replaced by paths, where they are known, and the options typed before.

    Args:
        command: to type next, or empty.
        plan: path of the plan file, if it is known.
        log_dir: path of the log directory, likewise.
        options: of ``check`` and ``plan``.
        at: what ``--at`` names; a verb of a plan needs it again.
    """
    if at and _OF_PLAN.match(command) and " --at " not in command:
        command = _OF_PLAN.sub(lambda verb: f"{verb[0]} --at {shlex.quote(at)}", command, count=1)
    if plan:
        command = _PLAN.sub(lambda _: shlex.quote(plan), command)
    if log_dir:
        command = _LOG_DIR.sub(lambda _: shlex.quote(log_dir), command)
    if options is None or not command.startswith((_CHECK, _PLAN_AGAIN)) or _FROM_PREVIEW in command:
        return command
    is_plan = command.startswith(_PLAN_AGAIN)
    return with_options(command, options.as_plan_words() if is_plan else options.as_words())


def exact(
    report: Report, *, plan: str = "", log_dir: str = "", options: Options | None = None, at: str = ""
) -> Report:
    """The report with its commands filled in: the next one, and those of the findings."""
    command = filled(report.next_command, plan=plan, log_dir=log_dir, options=options, at=at)
    report = replace(report, next_command=command)
    if isinstance(report, CheckReport) and options is not None:
        return replace(report, log_dirs=tuple(_as_typed(one, options) for one in report.log_dirs))
    return report


def _as_typed(log_dir: LogDirReport, options: Options) -> LogDirReport:
    """With the options in each command: without the topic's settings it might find nothing to do."""
    return replace(
        log_dir,
        findings=tuple(_exact_one(finding, options) for finding in log_dir.findings),
        rules=tuple(_exact_one(rule, options) for rule in log_dir.rules),
    )


def _exact_one(told: Told, options: Options) -> Told:
    return replace(told, command=filled(told.command, options=options)) if told.command else told


@contextmanager
def exact_errors(
    *, plan: str = "", log_dir: str = "", options: Options | None = None, at: str = ""
) -> Iterator[None]:
    """Fills in the next command of any error that passes through."""
    try:
        yield
    except KrepairError as error:
        if isinstance(error, NotALogDirError) and options is not None:
            # What was named may be what is not there: with it, the next command would fail as this one did.
            options = dataclasses.replace(options, topics=(), partitions=())
        error.next_command = filled(error.next_command, plan=plan, log_dir=log_dir, options=options, at=at)
        raise
