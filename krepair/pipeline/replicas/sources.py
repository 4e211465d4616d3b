"""Where the rows of replicas come from, and which are to be joined."""

from __future__ import annotations

from dataclasses import dataclass

from krepair.pipeline.replicas.items import ReplicaItem
from krepair.rules.replicas.judge import Group


@dataclass(frozen=True)
class RowSource:
    """Where the rows of one replica come from: its directory, or a facts file.

    Attributes:
        item: reads it in its directory, None if it is in a facts file or cannot be read.
        facts: path of the facts file, or empty.
        index: its number in the facts file.
    """

    item: ReplicaItem | None = None
    facts: str = ""
    index: int = -1


@dataclass(frozen=True)
class GroupWork:
    """One group whose records are to be compared.

    Attributes:
        group: the replicas.
        sources: of each where its rows come from.
        compacted: whether its topic is compacted.
    """

    group: Group
    sources: tuple[RowSource, ...]
    compacted: bool
