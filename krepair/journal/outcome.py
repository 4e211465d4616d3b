"""What became of one change, as a value: one partition's failure never stops the others."""

from __future__ import annotations

from typing import NamedTuple

from krepair.errors import ExitCode, KrepairError


class Committed(NamedTuple):
    """The change is in place (now, or since an earlier run).

    Attributes:
        change_id: of the change.
    """

    change_id: str


class Undone(NamedTuple):
    """The originals of the change are in their places.

    Attributes:
        change_id: of the change.
    """

    change_id: str


class Skipped(NamedTuple):
    """Nothing was done for the change.

    Attributes:
        change_id: of the change.
        why: one line.
        as_wanted: whether it is as if the verb had been carried out: undo of what is not applied.
    """

    change_id: str
    why: str
    as_wanted: bool = False


class ChangeFailed(NamedTuple):
    """The change was not carried out, or not to its end; its partition stops here.

    Attributes:
        change_id: of the change.
        code: exit code for this partition.
        why: file, what was expected, what was found.
        next_command: what to type next, or empty.
        rolled_back: whether everything is as before the change; else the next run of the same command continues.
        again: see ``KrepairError``.
    """

    change_id: str
    code: ExitCode
    why: str
    next_command: str
    rolled_back: bool
    again: str = ""


Outcome = Committed | Undone | Skipped | ChangeFailed


def failed(change_id: str, error: KrepairError | OSError, *, rolled_back: bool) -> ChangeFailed:
    """The failure that an exception stands for."""
    if isinstance(error, KrepairError):
        return ChangeFailed(
            change_id, error.exit_code, error.message, error.next_command, rolled_back, error.again
        )
    where = error.filename if isinstance(error.filename, str) else "the disk"
    why = f"{where}: {error.strerror or error}"
    return ChangeFailed(change_id, ExitCode.PARTLY, why, "", rolled_back)
