"""Where the rows of replicas come from, and which are to be joined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

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

    def items(self) -> Iterator[tuple[int, ReplicaItem]]:
        """(place in the group, item that reads records of that replica) for each replica that counts.

        A facts file has the digests of all records. So where one takes part, all are read everywhere.
        """
        numbers = np.array(self.group.differing, np.int64).tobytes()
        every = any(source.facts for source in self.sources)
        for column, (source, replica) in enumerate(zip(self.sources, self.group.replicas, strict=True)):
            if replica.says and source.item is not None:
                differing = None if every else numbers
                yield column, replace(source.item, keys=self.compacted, differing=differing)

    def facts(self) -> Iterator[tuple[int, RowSource]]:
        """(place in the group, source) of each replica that counts and is in a facts file."""
        for column, (source, replica) in enumerate(zip(self.sources, self.group.replicas, strict=True)):
            if replica.says and source.facts:
                yield column, source


class UnreadRows(NamedTuple):
    """A replica whose records cannot be read.

    Attributes:
        work: number of its group.
        column: its place in the group.
        why: file, position, and what was expected there.
    """

    work: int
    column: int
    why: str


class RowsUnreadError(Exception):
    """Records of some replicas cannot be read; those of the others can.

    Attributes:
        unread: the replicas, at least one.
    """

    def __init__(self, unread: Sequence[UnreadRows]) -> None:
        super().__init__("; ".join(one.why for one in unread))
        self.unread = tuple(unread)
