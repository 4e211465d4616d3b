"""Exit codes and exceptions of krepair.

A broken log is a value (a finding), never an exception. Exceptions are for the environment, refusals, wrong use, and
bugs of krepair. Each carries the exit code that the command line returns and, if there is one, the next command to
type.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol


class ExitCode(IntEnum):
    """Result of a run of krepair.

    Values are never reused; a caller takes an unknown one as a failure.
    """

    DONE = 0
    BUG = 1
    FOUND = 2
    PARTLY = 3
    PERSON_DECIDES = 4
    NOT_A_LOG_DIR = 10
    LOCKED = 11
    STALE_PLAN = 12
    REFUSED = 13
    VERIFY_FAILED = 14
    UNREADABLE = 15
    INTERRUPTED = 16
    UNWRITABLE = 17
    USAGE = 64


EXIT_CODE_MEANING: dict[ExitCode, str] = {
    ExitCode.DONE: "done, or nothing to do",
    ExitCode.BUG: "an error of krepair itself; please report it",
    ExitCode.FOUND: (
        "findings, damage or changes exist (check, compare, diff, dump, groups, plan, transactions, verify)"
    ),
    ExitCode.PARTLY: "done in part; the directory is consistent, and the page names what is not done, with its reason",
    ExitCode.PERSON_DECIDES: "krepair cannot know this; a person has to decide",
    ExitCode.NOT_A_LOG_DIR: "not a log directory, or it does not contain what was named",
    ExitCode.LOCKED: "the log directory is in use; the message names the process that has locked it",
    ExitCode.STALE_PLAN: "nothing was changed: the files are not those of the plan, or it is for another directory",
    ExitCode.REFUSED: "nothing was changed: it would not have been safe",
    ExitCode.VERIFY_FAILED: "a new file was not as planned: the original was restored, or is still kept",
    ExitCode.UNREADABLE: "a file could not be read (an I/O error is never taken for damage)",
    ExitCode.INTERRUPTED: (
        "stopped between two steps; rerun the command to resume, or roll an apply back with krepair undo"
    ),
    ExitCode.UNWRITABLE: "a file could not be written (no space, a quota, an I/O error, a closed output)",
    ExitCode.USAGE: "the command line is wrong",
}


class Command(Protocol):
    """Interface of ``krepair.next_command.Next``, which lies above this module because it knows the options."""

    verb: str


class KrepairError(Exception):
    """Base of all errors that krepair raises on purpose.

    Args:
        message: what is wrong: the file, the position, and what was expected.
        next_command: command to type next; see ``krepair.next_command.of_error``.

    Attributes:
        again: when, or as which user, to repeat the same command; empty if that does not help.
    """

    exit_code = ExitCode.BUG
    again = ""

    def __init__(self, message: str, *, next_command: Command | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.next_command = next_command


class UsageError(KrepairError):
    """Error for a wrong command line, or a wrong value in it."""

    exit_code = ExitCode.USAGE


class NotALogDirError(KrepairError):
    """Error for a path that is not a Kafka log directory."""

    exit_code = ExitCode.NOT_A_LOG_DIR


class LockedError(KrepairError):
    """Error for a log directory whose lock another process holds."""

    exit_code = ExitCode.LOCKED
    again = "when the lock is free"


class StalePlanError(KrepairError):
    """Error for a plan made from other files or another directory, or edited since."""

    exit_code = ExitCode.STALE_PLAN


class DirectoryGoneError(StalePlanError):
    """Error for a plan whose directory is missing here."""

    again = "when its disk is mounted"


class RefusedError(KrepairError):
    """Error for a step that would not be safe."""

    exit_code = ExitCode.REFUSED


class DamagedJournalError(RefusedError):
    """Error for a journal whose records cannot be trusted."""


class WrongUserError(RefusedError):
    """Error for a user who may not change the files; their owner, or root, may."""

    again = "as that user, or as root"


class PersonDecidesError(KrepairError):
    """Error for a question that only the operator can answer."""

    exit_code = ExitCode.PERSON_DECIDES


class VerifyFailedError(KrepairError):
    """Error for a new file that differs from the plan; it replaced nothing."""

    exit_code = ExitCode.VERIFY_FAILED


def is_forbidden(error: BaseException) -> bool:
    """Return whether an error, or its cause, is a missing permission."""
    return any(isinstance(link, PermissionError) for link in (error, error.__cause__, error.__context__))


AS_A_READER = "as root, or as the user of the broker"
"""Users who may read a file where only permissions prevent it."""


class UnreadableError(KrepairError):
    """Error of the operating system while reading the input. It is never taken for corruption."""

    exit_code = ExitCode.UNREADABLE


class UnwritableError(KrepairError):
    """Error of the operating system while writing the output."""

    exit_code = ExitCode.UNWRITABLE


class InterruptedAtSafePointError(KrepairError):
    """Interruption between two steps; the same command resumes."""

    exit_code = ExitCode.INTERRUPTED


class LockLostError(KrepairError):
    """Error for a lock that no longer keeps brokers away; nothing may be touched after it.

    Args:
        message: what happened to the lock.
        next_command: see ``KrepairError``.
        before: exit code of the cause, if this run has changed nothing yet.
    """

    exit_code = ExitCode.PARTLY

    def __init__(
        self, message: str, *, next_command: Command | None = None, before: ExitCode | None = None
    ) -> None:
        super().__init__(message, next_command=next_command)
        if before is not None:
            self.exit_code = before
