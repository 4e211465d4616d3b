"""Comparison of records in the driver: reads records where batch checksums differ, and joins keys and digests.

``krepair.rules.replicas`` judges the differences.
"""

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
"""Largest size of logs, in bytes, that needs no scratch folder, because all rows fit into memory."""
_WITHOUT_SCRATCH_BYTES: Final = 256 << 20
"""Largest size of logs, in bytes, whose records are read in one job without a scratch folder."""
_ALL_ROWS: Final = 2**62
_ROWS_INLINE: Final = 1 << 16
"""Largest number of rows of a run that a result holds; larger runs are written to the scratch folder."""


@dataclass(frozen=True)
class GroupWork:
    """Group of replicas whose records are to be compared.

    Attributes:
        sources: source of each replica's records: the item that reads them, their place in a facts file, or None.
        compacted: True if the topic is compacted.
        assumed: True if krepair only assumes that the topic is compacted, because a cleaner has left traces.
    """

    group: ReplicaGroup
    sources: tuple[ReplicaItem | FactsLog | None, ...]
    compacted: bool
    assumed: bool = False


Unread = tuple[Replica, str]
"""Replica whose records cannot be read, with file, position and expectation."""


def contents_of(
    engine: Engine, work: Sequence[GroupWork], scratch: Scratch
) -> tuple[list[ComparedRecords], list[Unread]]:
    """Compare the records of each group, in order; if replicas cannot be read, return those and no results.

    Raises:
        RefusedError: the rows need a scratch folder, and there is none.
        UnreadableError: a facts file cannot be read.
    """
    results: list[ComparedRecords] = []
    for some in _portions(work, scratch):
        rows, unread = _rows_of(engine, some, *_room_for_rows(some, scratch))
        if unread:
            return [], unread
        results += [
            join(group_work.group, mine, compacted=group_work.compacted, assumed=group_work.assumed)
            for group_work, mine in zip(some, rows, strict=True)
        ]
    return results, []


def _portions(work: Sequence[GroupWork], scratch: Scratch) -> Iterator[Sequence[GroupWork]]:
    """Split the work into portions that need no scratch folder, if there is none."""
    if _bytes_of(work) <= _WITHOUT_SCRATCH_BYTES or scratch.path:
        yield work
        return
    some: list[GroupWork] = []
    total = 0
    for group_work in work:
        size = _bytes_of([group_work])
        if some and total + size > _WITHOUT_SCRATCH_BYTES:
            yield some
            some, total = [], 0
        some.append(group_work)
        total += size
    yield some


def _bytes_of(work: Iterable[GroupWork]) -> int:
    return sum(
        source.bytes_to_read for each in work for source in each.sources if isinstance(source, ReplicaItem)
    )


def _rows_of(
    engine: Engine, work: Sequence[GroupWork], folder: str, rows_inline: int
) -> tuple[list[list[RowsResult]], list[Unread]]:
    """Return the rows of each replica by group, and the replicas that could not be read.

    A replica that is not compared has no rows.
    """
    from krepair.replicas.records import read_records_of_all

    rows = [[RowsResult() for _ in group_work.sources] for group_work in work]
    targets: list[tuple[list[RowsResult], int, Replica]] = []
    items: list[ReplicaItem] = []
    for of_one, group_work in zip(rows, work, strict=True):
        # A facts file has the digests of all records. So if one takes part, all records of the other replicas are read.
        every = any(isinstance(source, FactsLog) for source in group_work.sources)
        differing = None if every else np.array(group_work.group.differing, np.int64).tobytes()
        for column, (source, replica) in enumerate(
            zip(group_work.sources, group_work.group.replicas, strict=True)
        ):
            if replica.failure:
                continue
            if isinstance(source, FactsLog):
                of_one[column] = source.file.rows(source.number, folder, rows_inline)
            elif source is not None:
                targets.append((of_one, column, replica))
                items.append(
                    replace(
                        source,
                        keys=group_work.compacted,
                        differing=differing,
                        scratch=folder,
                        rows_inline=rows_inline,
                    )
                )
    unread: list[Unread] = []
    for index, result in read_records_of_all(engine, items):
        of_one, column, replica = targets[index]
        of_one[column] = result
        if result.failure:
            unread.append((replica, result.why))
    return rows, unread


def _room_for_rows(work: Sequence[GroupWork], scratch: Scratch) -> tuple[str, int]:
    """Return (scratch folder, number of rows that stay in memory)."""
    total = _bytes_of(work)
    in_files = any(isinstance(source, FactsLog) for group_work in work for source in group_work.sources)
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
"""Approximate number of rows that are compared at a time, to limit memory."""
_RECORD_COLUMNS: Final = 2


def join(
    group: ReplicaGroup, rows: Sequence[RowsResult], *, compacted: bool, assumed: bool = False
) -> ComparedRecords:
    """Compare and judge the records of a group.

    Args:
        rows: rows of each replica; empty for a replica that is not compared.
        compacted: True to judge keys; if False, every missing record is lost.
        assumed: True if krepair only assumes that the topic is compacted. Then records that are missing above the
            highest offset known to be cleaned also count as lost.
    """
    findings: list[KeyFinding] = []
    if compacted:
        forks = {pair: fork.offset for pair, fork in group.forks.items()}
        catch_ups = group.catch_ups()
        with_keys = sum(1 for of_one in rows if of_one.keys)
        for part in key_parts([of_one.keys for of_one in rows]):
            findings += judge_keys(joined(differing(part, with_keys)), group.replicas, forks, catch_ups)
    missing_from = group.never_cleaned_from if assumed else NOWHERE if compacted else 0
    records = _record_differences(group, [of_one.records for of_one in rows], missing_from)
    return ComparedRecords(keys=tuple(merged(findings)), records=tuple(records), assumed=assumed)


def key_parts(keys: Sequence[Sequence[RowRun]]) -> Iterator[list[Uint64s]]:
    """Yield the keys of all replicas in ranges of hashes that are small enough for memory.

    Rows are sorted only by bucket, so a range consists of whole buckets.
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
    """Return the rows whose first column lies in a range, both ends included."""
    column = rows[:, 0]
    return np.asarray(rows[np.searchsorted(column, low, "left") : np.searchsorted(column, high, "right")])


def _concatenated(pieces: list[Uint64s], columns: int) -> Uint64s:
    return np.concatenate(pieces) if pieces else np.empty((0, columns), np.uint64)


def _record_differences(
    group: ReplicaGroup, records: Sequence[Sequence[RowRun]], missing_from: int
) -> Iterator[RecordDifference]:
    """Compare the digests of records offset by offset, for all pairs of replicas."""
    tables = [[rows_of(run, _RECORD_COLUMNS) for run in of_one] for of_one in records]
    for a, first in enumerate(group.replicas):
        for b, second in enumerate(group.replicas):
            if a == b or first.failure or second.failure or (a > b and missing_from == NOWHERE):
                continue
            low = max(first.state.log_start, second.state.log_start)
            high = min(first.end, second.end, group.fork_of(a, b))
            totals = [0, -1, 0, -1]
            for mine, theirs in _windows(tables[a], tables[b], low, high):
                _count_differences(totals, mine, theirs, second.damaged_ranges, missing_from)
            if a > b:
                totals[:2] = 0, -1
            if totals[0] or totals[2]:
                yield RecordDifference(a, b, *totals)


def _windows(
    mine: Sequence[Uint64s], theirs: Sequence[Uint64s], low: int, high: int
) -> Iterator[tuple[Uint64s, Uint64s]]:
    """Yield the records of both replicas in the same ranges of offsets."""
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


def _count_differences(
    totals: list[int], mine: Uint64s, theirs: Uint64s, hidden: Sequence[tuple[int, int]], missing_from: int
) -> None:
    """Count the records that differ, and those that one replica lacks, in one range of offsets."""
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
    _count_offsets(totals, 0, mine[differing, 0])
    _count_offsets(totals, 2, mine[~both & ~within(mine[:, 0], hidden) & (mine[:, 0] >= missing_from), 0])


def within(offsets: Any, parts: Sequence[tuple[int, int]]) -> Any:
    """Mark the offsets in damaged parts, given by first and last offset."""
    mask = np.zeros(len(offsets), bool)
    for first, last in parts:
        mask |= (offsets >= first) & (offsets <= last)
    return mask


def _count_offsets(totals: list[int], at: int, offsets: Uint64s) -> None:
    if len(offsets):
        totals[at] += len(offsets)
        if totals[at + 1] < 0:
            totals[at + 1] = int(offsets[0])
