"""What comes before a way out that loses data: another replica may have what is lost here."""

from __future__ import annotations

from typing import Final

_OPTION: Final = "--accept-data-loss"

OTHERS_FIRST: Final = (
    "If another replica is in sync, nothing has to be lost: while the cluster runs, move the partition away from this "
    "broker and back, see The way back in docs/compare.md. Only for the last copy: the command with "
    "--accept-data-loss."
)


def loses_data(command: str) -> bool:
    """Whether a command accepts that data is lost."""
    return _OPTION in command.split()
