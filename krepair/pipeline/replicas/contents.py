"""Reads the records of replicas where their headers differ, and joins them in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from msgspec.structs import replace

from krepair.durable.scratch import Scratch
from krepair.errors import RefusedError
from krepair.pipeline.engines.engine import Engine
from krepair.pipeline.replicas.facts import FactsLog
from krepair.pipeline.replicas.items import ReplicaItem, RowsResult
from krepair.pipeline.replicas.join import join
from krepair.rules.replicas.judge import ComparedRecords, ReplicaGroup
from krepair.rules.replicas.replica import Replica

_SMALL_BYTES: Final = 4 << 20
_WITHOUT_SCRATCH_BYTES: Final = 256 << 20
_ALL_ROWS: Final = 2**62
_ROWS_INLINE: Final = 1 << 16


@dataclass(frozen=True)
class GroupWork:
    """One group whose records are to be compared.

    Attributes:
        group: the replicas.
        sources: of each where its records are: what reads them, its place in a facts file, or None.
        compacted: whether its topic is compacted.
    """

    group: ReplicaGroup
    sources: tuple[ReplicaItem | FactsLog | None, ...]
    compacted: bool


Unread = tuple[Replica, str]
"""A replica whose records cannot be read; and file, position, and what was expected there."""


def contents_of(
    engine: Engine, work: Sequence[GroupWork], scratch: Scratch
) -> tuple[list[ComparedRecords], list[Unread]]:
    """The result of the records of each group, in order; nothing where those of some replicas cannot be read.

    Raises:
        RefusedError: the rows need a scratch folder, and there is none.
        UnreadableError: a facts file cannot be read.
    """
    found: list[ComparedRecords] = []
    for some in _shares(work, scratch):
        rows, unread = _rows_of(engine, some, *_room(some, scratch))
        if unread:
            return [], unread
        found += [
            join(one.group, mine, compacted=one.compacted) for one, mine in zip(some, rows, strict=True)
        ]
    return found, []


def _shares(work: Sequence[GroupWork], scratch: Scratch) -> Iterator[Sequence[GroupWork]]:
    """All of it where there is a scratch folder; else as many at a time as do without one."""
    if _bytes_of(work) <= _WITHOUT_SCRATCH_BYTES or scratch.path:
        yield work
        return
    some: list[GroupWork] = []
    total = 0
    for one in work:
        size = _bytes_of([one])
        if some and total + size > _WITHOUT_SCRATCH_BYTES:
            yield some
            some, total = [], 0
        some.append(one)
        total += size
    yield some


def _bytes_of(work: Iterable[GroupWork]) -> int:
    return sum(one.bytes_to_read for each in work for one in each.sources if isinstance(one, ReplicaItem))


def _rows_of(
    engine: Engine, work: Sequence[GroupWork], folder: str, rows_inline: int
) -> tuple[list[list[RowsResult]], list[Unread]]:
    """(of each group the rows of its replicas, empty of one that does not count; replicas that cannot be read)."""
    from krepair.pipeline.replicas.records import read_records_of_all

    rows = [[RowsResult() for _ in one.sources] for one in work]
    asked: list[tuple[list[RowsResult], int, Replica]] = []
    items: list[ReplicaItem] = []
    for of_one, one in zip(rows, work, strict=True):
        # A facts file has the digests of all records. So where one takes part, all are read everywhere.
        every = any(isinstance(source, FactsLog) for source in one.sources)
        differing = None if every else np.array(one.group.differing, np.int64).tobytes()
        for column, (source, replica) in enumerate(zip(one.sources, one.group.replicas, strict=True)):
            if not replica.says:
                continue
            if isinstance(source, FactsLog):
                of_one[column] = source.file.rows(source.number, folder, rows_inline)
            elif source is not None:
                asked.append((of_one, column, replica))
                items.append(
                    replace(
                        source,
                        keys=one.compacted,
                        differing=differing,
                        scratch=folder,
                        rows_inline=rows_inline,
                    )
                )
    unread: list[Unread] = []
    for index, result in read_records_of_all(engine, items):
        of_one, column, replica = asked[index]
        of_one[column] = result
        if result.failure:
            unread.append((replica, result.why))
    return rows, unread


def _room(work: Sequence[GroupWork], scratch: Scratch) -> tuple[str, int]:
    """(scratch folder, rows that stay in memory)."""
    total = _bytes_of(work)
    in_files = any(isinstance(source, FactsLog) for one in work for source in one.sources)
    if total <= _SMALL_BYTES and not in_files:
        return "", _ALL_ROWS
    folder = scratch.path
    if folder:
        return folder, _ROWS_INLINE
    if total > _WITHOUT_SCRATCH_BYTES:
        raise RefusedError(
            "the temporary folder is on the file system of a log directory; there krepair writes only with --scratch",
            next_command="krepair compare ... --scratch DIR, on another file system where there is one",
        )
    return "", _ALL_ROWS
