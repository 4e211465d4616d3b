"""Reads the records of replicas where their headers differ, and joins them in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from krepair.durable.scratch import Scratch
from krepair.engine.engine import Engine
from krepair.errors import RefusedError
from krepair.formats.arrays import Int64s, Uint64s
from krepair.kernels.replica_rows import KEY_WORDS
from krepair.next_command import SCRATCH
from krepair.replicas.facts import FactsLog
from krepair.replicas.items import ReplicaItem, RowRun, RowsResult, rows_of
from krepair.rewrite.compaction.rows import BUCKETS
from krepair.rules.replicas.judge import ComparedRecords, RecordDifference, ReplicaGroup
from krepair.rules.replicas.keys import KeyFinding, differing, joined, judge_keys, merged
from krepair.rules.replicas.replica import NOWHERE, Replica

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
        assumed: whether only what cleaners left says so.
    """

    group: ReplicaGroup
    sources: tuple[ReplicaItem | FactsLog | None, ...]
    compacted: bool
    assumed: bool = False


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
            join(one.group, mine, compacted=one.compacted, assumed=one.assumed)
            for one, mine in zip(some, rows, strict=True)
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
    from krepair.replicas.records import read_records_of_all

    rows = [[RowsResult() for _ in one.sources] for one in work]
    asked: list[tuple[list[RowsResult], int, Replica]] = []
    items: list[ReplicaItem] = []
    for of_one, one in zip(rows, work, strict=True):
        # A facts file has the digests of all records. So where one takes part, all are read everywhere.
        every = any(isinstance(source, FactsLog) for source in one.sources)
        differing = None if every else np.array(one.group.differing, np.int64).tobytes()
        for column, (source, replica) in enumerate(zip(one.sources, one.group.replicas, strict=True)):
            if replica.failure:
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
            next_command=SCRATCH,
        )
    return "", _ALL_ROWS


ROWS_AT_ONCE: Final = 1 << 20
_RECORD_COLUMNS: Final = 2


def join(
    group: ReplicaGroup, rows: Sequence[RowsResult], *, compacted: bool, assumed: bool = False
) -> ComparedRecords:
    """Judge the records of a group.

    Args:
        group: the replicas.
        rows: of each replica; empty where it does not count.
        compacted: whether keys are judged; else every record that is missing is lost.
        assumed: whether a topic may not be compacted after all: then records that are missing count, too, from where no
            cleaner is known to have been.
    """
    found: list[KeyFinding] = []
    if compacted:
        forks = {pair: fork.offset for pair, fork in group.forks.items()}
        catch_ups = group.catch_ups()
        with_keys = sum(1 for of_one in rows if of_one.keys)
        for part in key_parts([of_one.keys for of_one in rows]):
            found += judge_keys(joined(differing(part, with_keys)), group.replicas, forks, catch_ups)
    missing_from = group.never_cleaned_from if assumed else NOWHERE if compacted else 0
    records = _record_differences(group, [of_one.records for of_one in rows], missing_from)
    return ComparedRecords(keys=tuple(merged(found)), records=tuple(records), assumed=assumed)


def key_parts(keys: Sequence[Sequence[RowRun]]) -> Iterator[list[Uint64s]]:
    """Yield the rows of all replicas, one range of hashes after the other, each small enough for memory.

    Runs are in the order of their buckets only, so a range begins and ends with a bucket.
    """
    runs = [[rows_of(run, KEY_WORDS) for run in of_one] for of_one in keys]
    total = sum(len(rows) for of_one in runs for rows in of_one)
    parts = min(BUCKETS, 1 << max(0, (total - 1) // ROWS_AT_ONCE).bit_length())
    width = 2**64 // parts
    for part in range(parts):
        low = np.uint64(part * width)
        high = np.uint64((part + 1) * width - 1) if part + 1 < parts else np.uint64(2**64 - 1)
        yield [_concatenated([_slice(rows, low, high) for rows in of_one], KEY_WORDS) for of_one in runs]


def _slice(rows: Uint64s, low: np.uint64, high: np.uint64) -> Uint64s:
    """The rows whose first column lies in a range, both ends included."""
    column = rows[:, 0]
    return np.asarray(rows[np.searchsorted(column, low, "left") : np.searchsorted(column, high, "right")])


def _concatenated(pieces: list[Uint64s], columns: int) -> Uint64s:
    return np.concatenate(pieces) if pieces else np.empty((0, columns), np.uint64)


def _record_differences(
    group: ReplicaGroup, records: Sequence[Sequence[RowRun]], missing_from: int
) -> Iterator[RecordDifference]:
    """Compare the digests of records offset by offset, all pairs."""
    tables = [[rows_of(run, _RECORD_COLUMNS) for run in of_one] for of_one in records]
    for a, one in enumerate(group.replicas):
        for b, other in enumerate(group.replicas):
            if a == b or one.failure or other.failure or (a > b and missing_from == NOWHERE):
                continue
            low = max(one.state.log_start, other.state.log_start)
            high = min(one.end, other.end, group.fork_of(a, b))
            totals = [0, -1, 0, -1]
            for mine, theirs in _windows(tables[a], tables[b], low, high):
                _add(totals, mine, theirs, other.hidden, missing_from)
            if a > b:
                totals[:2] = 0, -1
            if totals[0] or totals[2]:
                yield RecordDifference(a, b, *totals)


def _windows(
    mine: Sequence[Uint64s], theirs: Sequence[Uint64s], low: int, high: int
) -> Iterator[tuple[Uint64s, Uint64s]]:
    """Yield the records of both in the same ranges of offsets."""
    for begin, end in _ranges(mine, low, high):
        span = np.uint64(begin), np.uint64(end - 1)
        yield (
            _concatenated([_slice(rows, *span) for rows in mine], _RECORD_COLUMNS),
            _concatenated([_slice(rows, *span) for rows in theirs], _RECORD_COLUMNS),
        )


def _ranges(mine: Sequence[Uint64s], low: int, high: int) -> Iterator[tuple[int, int]]:
    begin = low
    for rows in mine:
        for place in range(0, len(rows), ROWS_AT_ONCE):
            edge = int(rows[place, 0])
            if begin < edge < high:
                yield begin, edge
                begin = edge
    if begin < high:
        yield begin, high


def _add(
    totals: list[int], mine: Uint64s, theirs: Uint64s, hidden: Sequence[tuple[int, int]], missing_from: int
) -> None:
    """Count what differs and what is missing in one range of offsets."""
    if not len(mine):
        return
    if len(mine) == len(theirs) and np.array_equal(mine, theirs):
        return
    places = np.searchsorted(theirs[:, 0], mine[:, 0])
    inside = places < len(theirs)
    both: Any = np.zeros(len(mine), bool)
    both[inside] = theirs[places[inside], 0] == mine[inside, 0]
    differing: Int64s = np.flatnonzero(both)
    differing = differing[theirs[places[differing], 1] != mine[differing, 1]]
    _count(totals, 0, mine[differing, 0])
    _count(totals, 2, mine[~both & ~within(mine[:, 0], hidden) & (mine[:, 0] >= missing_from), 0])


def within(offsets: Any, parts: Sequence[tuple[int, int]]) -> Any:
    """Which offsets lie in damaged parts, given by first and last offset."""
    found = np.zeros(len(offsets), bool)
    for first, last in parts:
        found |= (offsets >= first) & (offsets <= last)
    return found


def _count(totals: list[int], at: int, offsets: Uint64s) -> None:
    if len(offsets):
        totals[at] += len(offsets)
        if totals[at + 1] < 0:
            totals[at + 1] = int(offsets[0])
