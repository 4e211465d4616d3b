"""Decide where the originals of a plan are kept, and until when (``--keep``). The plan records it, and apply obeys."""

from __future__ import annotations

from typing import Final

from krepair.plan.changes import changes_logs
from krepair.plan.model import Change, FreeWhenVerified, KeepOriginal, Undo

INPLACE: Final = "inplace"
UNTIL_VERIFIED: Final = "until-verified"
AUTO: Final = "auto"


def undo_for(keep: str, change: Change) -> Undo:
    """Return how a change of a partition is undone.

    Data that is removed by consent is kept in place until purge, whatever ``keep`` says: it may be the only copy, and
    no reading of the new files can prove that it was right to remove it. A change without originals is treated the same
    way, because there is nothing to free.

    Args:
        keep: see ``Policy.keep``. With ``auto`` the originals are kept nevertheless where there is room.
        change: a change of a partition. Files of the root are always kept in place, because they are small.
    """
    if keep == INPLACE or changes_logs([change]) or not change.has_originals:
        return KeepOriginal()
    return FreeWhenVerified()


def is_freed_by_apply(change: Change) -> bool:
    """Return whether apply itself frees the originals of a change, after verifying the new files."""
    return isinstance(change.undo, FreeWhenVerified)


def is_known(keep: str) -> bool:
    """Return whether a value of ``Policy.keep`` is valid."""
    return keep in (INPLACE, UNTIL_VERIFIED, AUTO)
