"""What comes before a way out that loses data: another replica may have what is lost here."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

_OPTION: Final = "--accept-data-loss"
_MOST: Final = 5

OTHERS_FIRST: Final = (
    "If another replica is in sync: type krepair plan --fix refetch. Then this broker fetches the partition anew, and "
    "nothing is lost. Only for the last copy: the command with --accept-data-loss."
)


def loses_data(command: str) -> bool:
    """Whether a command accepts that data is lost."""
    return _OPTION in command.split()


def refetch_command(log_dir: str, folders: Sequence[str]) -> str:
    """What to type where another replica has the data; krepair asks for the proof of it.

    Args:
        log_dir: path of the log directory.
        folders: names of the partitions; of many the first.
    """
    names = [word for folder in folders[:_MOST] for word in ("--partition", folder)]
    known = shlex.join(("krepair", "plan", log_dir, "--fix", "refetch", *names))
    return f"{known} --replicas ID=DIR --cluster FILE --cluster-as-of TIME --out PLAN"
