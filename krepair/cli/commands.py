"""Next commands with the paths and options that were typed; the verbs themselves do not know them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import replace as with_fields
from typing import Final, TypeVar

from msgspec.structs import replace

from krepair.errors import KrepairError, NotALogDirError
from krepair.ops import reports
from krepair.ops.plan_command import with_options
from krepair.ops.reports import CheckReport
from krepair.options import Options

Fill = Callable[[str], str]
Made = TypeVar("Made")

# A new plan goes to a new file: the old one may still be needed for undo.
_PLAN: Final = re.compile(r"(?<!--out )(?<!\S)PLAN(?!\S)")
_LOG_DIR: Final = re.compile(r"(?<!\S)LOGDIR(?!\S)")


_CHECK: Final = "krepair check "
_PLAN_AGAIN: Final = "krepair plan "


def _operand(path: str) -> str:
    """A path that is not taken for an option."""
    return shlex.quote(f"./{path}" if path.startswith("-") else path)


@dataclass(frozen=True)
class Filling:
    """Fills in the commands of one run: PLAN and LOGDIR become paths, and the options that were typed are added.

    Attributes:
        plan: path of the plan file, if it is known.
        log_dir: path of the log directory, likewise.
        options: for commands with ``check`` and ``plan``.
    """

    plan: str = ""
    log_dir: str = ""
    options: Options | None = None

    def __call__(self, command: str) -> str:
        """The command, filled in."""
        if self.plan:
            command = _PLAN.sub(lambda _: _operand(self.plan), command)
        if self.log_dir:
            command = _LOG_DIR.sub(lambda _: _operand(self.log_dir), command)
        if self.options is None or not command.startswith((_CHECK, _PLAN_AGAIN)):
            return command
        if not command.startswith(_PLAN_AGAIN):
            return with_options(command, self.options.words("reading"))
        return with_options(command, self.options.words("plan", "reading", "scratch"))

    def without_names(self) -> Filling:
        """The same for any topic and partition."""
        if self.options is None:
            return self
        return with_fields(self, options=with_fields(self.options, topics=(), partitions=()))


def as_typed(report: CheckReport, options: Options) -> CheckReport:
    """With the options in the command of each finding: without the topic's settings it might find nothing to do."""
    fill = Filling(options=options)
    log_dirs = (
        replace(
            one,
            findings=tuple(replace(finding, command=fill(finding.command)) for finding in one.findings),
            rules=tuple(replace(rule, command=fill(rule.command)) for rule in one.rules),
        )
        for one in report.log_dirs
    )
    return replace(report, log_dirs=tuple(log_dirs))


@contextmanager
def typed_again(command: str) -> Iterator[None]:
    """Where only the moment or the user was wrong, the same verb comes next."""
    try:
        yield
    except KrepairError as error:
        if error.again and not error.next_command:
            error.next_command = reports.typed_again(command, error.again)
        raise


@contextmanager
def exact_errors(fill: Fill) -> Iterator[None]:
    """Fills in the next command of any error that passes through."""
    try:
        yield
    except KrepairError as error:
        if isinstance(error, NotALogDirError) and isinstance(fill, Filling):
            # What was named may be what is not there: with it, the next command would fail as this one did.
            fill = fill.without_names()
        error.next_command = fill(error.next_command)
        raise
