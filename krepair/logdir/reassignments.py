"""Which partitions are being reassigned, as ZooKeeper says it: the content of ``/admin/reassign_partitions``.

2.2 and 2.3 do not print reassignments with ``--describe``.

Source: ``ReassignPartitionsZNode`` in ``ZkData.scala`` (2.2.1); the node is deleted when nothing is left to move.
"""

from __future__ import annotations

import json
from typing import Any, Final

from krepair.errors import UsageError
from krepair.formats.damage import shown
from krepair.logdir.reading import why

PATH: Final = "/admin/reassign_partitions"
_MAX_BYTES: Final = 64 << 20
_NO_NODE: Final = f"Node does not exist: {PATH}"


def read_text(path: str) -> str:
    """A file given with ``--cluster-config``.

    Raises:
        UsageError: it could not be read.
    """
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        reason = why(error) if isinstance(error, OSError) else str(error)
        raise UsageError(f"--cluster-config {shown(path)}: could not be read: {reason}") from error


def is_of_reassignments(text: str) -> bool:
    """Whether a file is about reassignments: JSON, or what ZooKeeper's client prints where there is no node."""
    return text.lstrip().startswith("{") or _NO_NODE in text


def moving_partitions(path: str, text: str) -> frozenset[tuple[str, int]]:
    """Topics and numbers of the partitions that are being reassigned.

    Raises:
        UsageError: it is not the content of that node.
    """
    if _NO_NODE in text:
        return frozenset()
    try:
        rows: list[Any] = json.loads(text)["partitions"]
        return frozenset((str(row["topic"]), int(row["partition"])) for row in rows)
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"--cluster-config {path}: expected the content of {PATH}, as "
            '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'
        ) from error
