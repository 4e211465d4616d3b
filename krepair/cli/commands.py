"""Next commands with the paths that were typed; the verbs themselves do not know them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from msgspec.structs import replace

from krepair.errors import KrepairError
from krepair.ops.reports import ApplyReport, CheckReport, VerifyReport

Report = TypeVar("Report", ApplyReport, CheckReport, VerifyReport)

# A new plan goes to a new file: the old one may still be needed for undo.
_PLAN: Final = re.compile(r"(?<!--out )\bPLAN\b")
_LOG_DIR: Final = re.compile(r"\bLOGDIR\b")


def filled(command: str, *, plan: str = "", log_dir: str = "") -> str:
    """A command with PLAN and LOGDIR replaced by paths, where they are known."""
    if plan:
        command = _PLAN.sub(lambda _: shlex.quote(plan), command)
    if log_dir:
        command = _LOG_DIR.sub(lambda _: shlex.quote(log_dir), command)
    return command


def exact(report: Report, *, plan: str = "", log_dir: str = "") -> Report:
    """The report with its next command filled in."""
    return replace(report, next_command=filled(report.next_command, plan=plan, log_dir=log_dir))


@contextmanager
def exact_errors(*, plan: str = "", log_dir: str = "") -> Iterator[None]:
    """Fills in the next command of any error that passes through."""
    try:
        yield
    except KrepairError as error:
        error.next_command = filled(error.next_command, plan=plan, log_dir=log_dir)
        raise
