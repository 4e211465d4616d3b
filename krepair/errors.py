"""Every exit code and every exception of krepair.

A broken log is a value (a finding), never an exception. Exceptions are for the environment, refusals,
wrong use, and our own bugs. Each carries the exit code that the command line returns and, where there is
one, the next command to type.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol


class ExitCode(IntEnum):
    """The result of a run of krepair. Values are never reused; an unknown one is a failure."""

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
    ExitCode.PARTLY: "done in part; the directory is consistent, and what is not done is named with its reason",
    ExitCode.PERSON_DECIDES: "krepair cannot know this; a person has to decide",
    ExitCode.NOT_A_LOG_DIR: "not a log directory, or what was named is not in it",
    ExitCode.LOCKED: "the log directory is in use; who has locked it is named",
    ExitCode.STALE_PLAN: "nothing was changed: the files are not those of the plan, or it is for another directory",
    ExitCode.REFUSED: "nothing was changed: it would not have been safe",
    ExitCode.VERIFY_FAILED: "a new file was not as planned: the original is back, or is still kept",
    ExitCode.UNREADABLE: "a file could not be read (an I/O error is never taken for damage)",
    ExitCode.INTERRUPTED: "stopped between two steps; the same command goes on, and krepair undo takes an apply back",
    ExitCode.UNWRITABLE: "a file could not be written (no space, a quota, an I/O error, a closed output)",
    ExitCode.USAGE: "the command line is wrong",
}


class Command(Protocol):
    """A ``krepair.next_command.Next``; that stands above errors, since it knows the options."""

    verb: str


class KrepairError(Exception):
    """Base of all errors that krepair raises on purpose.

    Args:
        message: what is wrong: the file, the position, and what was expected.
        next_command: what to type next; see ``krepair.next_command.of_error``.

    Attributes:
        again: when, or as whom, the same command can be typed again; empty where that is no way on.
    """

    exit_code = ExitCode.BUG
    again = ""

    def __init__(self, message: str, *, next_command: Command | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.next_command = next_command


class UsageError(KrepairError):
    """The command line or a value in it is wrong."""

    exit_code = ExitCode.USAGE


class NotALogDirError(KrepairError):
    """The path is not a Kafka log directory."""

    exit_code = ExitCode.NOT_A_LOG_DIR


class LockedError(KrepairError):
    """Somebody holds the log directory's lock."""

    exit_code = ExitCode.LOCKED
    again = "when the lock is free"


class StalePlanError(KrepairError):
    """The plan was made of other files or another directory, or it was edited."""

    exit_code = ExitCode.STALE_PLAN


class DirectoryGoneError(StalePlanError):
    """The directory of the plan is not here."""

    again = "when its disk is mounted"


class RefusedError(KrepairError):
    """Going on would not be safe."""

    exit_code = ExitCode.REFUSED


class DamagedJournalError(RefusedError):
    """The records of a journal cannot be gone by."""


class WrongUserError(RefusedError):
    """This user may not change the files; their owner, or root, may."""

    again = "as that user, or as root"


class PersonDecidesError(KrepairError):
    """krepair cannot know; somebody has to say."""

    exit_code = ExitCode.PERSON_DECIDES


class VerifyFailedError(KrepairError):
    """What was written is not what was planned; it replaced nothing."""

    exit_code = ExitCode.VERIFY_FAILED


def is_forbidden(error: BaseException) -> bool:
    """Whether an error says that only the permissions were in the way."""
    return any(isinstance(one, PermissionError) for one in (error, error.__cause__, error.__context__))


AS_A_READER = "as root, or as the user of the broker"
"""Who may read where only the permissions are in the way."""


class UnreadableError(KrepairError):
    """The operating system could not read the input. This is never taken for corruption."""

    exit_code = ExitCode.UNREADABLE


class UnwritableError(KrepairError):
    """The operating system could not write the output."""

    exit_code = ExitCode.UNWRITABLE


class InterruptedAtSafePointError(KrepairError):
    """Stopped between two steps; the same command continues."""

    exit_code = ExitCode.INTERRUPTED


class LockLostError(KrepairError):
    """The log directory's lock no longer keeps brokers away; from here on nothing may be touched.

    Args:
        message: what became of the lock.
        next_command: see ``KrepairError``.
        before: exit code of the cause, where this run has changed nothing yet.
    """

    exit_code = ExitCode.PARTLY

    def __init__(
        self, message: str, *, next_command: Command | None = None, before: ExitCode | None = None
    ) -> None:
        super().__init__(message, next_command=next_command)
        if before is not None:
            self.exit_code = before
