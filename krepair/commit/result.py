"""Outcomes of changes and of whole partitions; the failure of one partition never stops the others."""

from __future__ import annotations

import logging
from typing import Final, Literal

from msgspec import Struct, field

from krepair.errors import ExitCode, KrepairError
from krepair.next_command import NOTHING, Next, of_error

_LOG: Final = logging.getLogger(__name__)
ChangeOutcome = Literal["committed", "already", "skipped", "failed", "undone", "purged", "gone"]


class ChangeResult(Struct, frozen=True, kw_only=True):
    """Outcome of one change of the plan, or of one whole partition.

    Attributes:
        change_id: id of the change; name of the partition folder if the partition was refused as a whole.
        partition: name of the partition folder.
        outcome: ``committed`` now, ``already`` done before, ``skipped`` after the failure of an earlier change in the
            partition, ``failed``, ``undone``, ``purged``, or ``gone``: a broker deletes the partition with its backups.
        exit_code: exit code that a failed or skipped change would have by itself; else 0.
        why: one line with file, position and what was expected, if the outcome is ``failed``, ``skipped`` or ``gone``;
            else empty.
        bytes_freed: bytes freed on the disk (negative: used). ``purge`` counts each change; ``apply`` and ``undo``
            count the whole partition in its first result.
        next_command: command to type after a failure; may be empty.
        again: when, or as which user, the failed command can be repeated; may be empty.
    """

    change_id: str
    partition: str
    outcome: ChangeOutcome
    exit_code: int = 0
    why: str = ""
    bytes_freed: int = 0
    next_command: Next = field(default_factory=Next)
    again: str = ""

    @property
    def failed(self) -> bool:
        """True if the change stopped its partition."""
        return self.outcome == "failed"


def failed(
    partition: str, error: KrepairError | OSError, change_id: str = "", *, code: ExitCode | None = None
) -> ChangeResult:
    """Return the failure for an exception.

    Args:
        error: exception that stopped the change.
        change_id: id of the change; empty if the partition failed as a whole.
        code: exit code that replaces the error's own; an error of the operating system has PARTLY.
    """
    next_command, again = NOTHING, ""
    if isinstance(error, KrepairError):
        own, why, next_command, again = error.exit_code, error.message, of_error(error), error.again
    else:
        where = error.filename if isinstance(error.filename, str) else "the disk"
        own, why = ExitCode.PARTLY, f"{where}: {error.strerror or error}"
    _LOG.info("%s: not done: %s", change_id or partition, why)
    return ChangeResult(
        change_id=change_id or partition,
        partition=partition,
        outcome="failed",
        exit_code=int(own if code is None else code),
        why=why,
        next_command=next_command,
        again=again,
    )
