"""Base class of the reports that verbs return."""

from __future__ import annotations

from msgspec import Struct, field

from krepair.errors import ExitCode
from krepair.next_command import Next


class Report(Struct, frozen=True, kw_only=True):
    """Result of a verb: figures, the next command, and the exit code that follows from them.

    Attributes:
        engine: name of the engine that was used, and why, in one line; empty if none was used.
        next_command: the command to type next; may be empty.
    """

    engine: str = ""
    next_command: Next = field(default_factory=Next)

    @property
    def exit_code(self) -> ExitCode:
        """Exit code of the report: DONE, unless a subclass decides otherwise."""
        return ExitCode.DONE
