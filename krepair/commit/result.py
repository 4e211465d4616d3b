"""Report how one change of a plan, or one whole partition, ended: one partition's failure never stops the others."""

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
        change_id: of the change; the partition folder when the partition was refused as a whole.
        partition: folder name.
        outcome: ``committed`` now, ``already`` done before, ``skipped`` because one of the partition failed that
            comes first, ``failed``, ``undone``, ``purged``, ``gone``: a broker deletes the partition and with it
            what was kept.
        exit_code: of ``failed`` and ``skipped``: what it would be on its own; else 0.
        why: of ``failed``, ``skipped`` and ``gone``: one line with file, position and what was
            expected; else empty.
        bytes_freed: bytes of the disk that came free (negative: taken): of ``purge`` by it; of ``apply`` and ``undo``
            in its whole partition, at the first of its results.
        next_command: of ``failed``: what to type next; may be empty.
        again: of ``failed``: when, or as whom, the same command can be typed again; may be empty.
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
        error: what stopped it.
        change_id: of the change; empty: the partition failed as a whole.
        code: exit code in place of the error's own, which is PARTLY for one of the operating system.
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
