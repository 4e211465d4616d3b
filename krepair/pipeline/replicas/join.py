"""Holds the records of replicas of one partition against each other, in this process, a part of the keys at a time.

Rows lie in results or in scratch files, each run sorted, so that a part is found by a search and memory does not grow
with the number of keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from krepair.formats.arrays import Int64s, Uint64s
from krepair.kernels.replica_rows import KEY_WORDS
from krepair.pipeline.compaction.rows import BUCKETS
from krepair.pipeline.replicas.items import RowRun, RowsResult
from krepair.rules.replicas.judge import ComparedRecords, RecordDifference, ReplicaGroup
from krepair.rules.replicas.keys import KeyFinding, differing, joined, judge_keys, merged

ROWS_AT_ONCE: Final = 1 << 20
_RECORD_COLUMNS: Final = 2


def rows_of(run: RowRun, columns: int) -> Uint64s:
    """uint64[N, columns] of a run; of a file only what is used is read."""
    if run.path:
        return np.memmap(run.path, np.uint64, "r").reshape(-1, columns)
    return np.frombuffer(run.data, np.uint64).reshape(-1, columns)


def join(group: ReplicaGroup, rows: Sequence[RowsResult], *, compacted: bool) -> ComparedRecords:
    """Judge the records of a group.

    Args:
        group: the replicas.
        rows: of each replica; empty where it does not count.
        compacted: whether keys are judged; else every record that is missing is lost.
    """
    found: list[KeyFinding] = []
    if compacted:
        forks = {pair: fork.offset for pair, fork in group.forks.items()}
        catch_ups = group.catch_ups()
        with_keys = sum(1 for of_one in rows if of_one.keys)
        for part in key_parts([of_one.keys for of_one in rows]):
            found += judge_keys(joined(differing(part, with_keys)), group.replicas, forks, catch_ups)
    return ComparedRecords(
        keys=tuple(merged(found)),
        records=tuple(
            _record_differences(group, [of_one.records for of_one in rows], missing_too=not compacted)
        ),
    )


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
    group: ReplicaGroup, records: Sequence[Sequence[RowRun]], *, missing_too: bool
) -> Iterator[RecordDifference]:
    """Compare the digests of records offset by offset, all pairs."""
    tables = [[rows_of(run, _RECORD_COLUMNS) for run in of_one] for of_one in records]
    for a, one in enumerate(group.replicas):
        for b, other in enumerate(group.replicas):
            if a == b or not (one.says and other.says) or (a > b and not missing_too):
                continue
            low = max(one.state.log_start, other.state.log_start)
            high = min(one.end, other.end, group.fork_of(a, b))
            totals = [0, -1, 0, -1]
            for mine, theirs in _windows(tables[a], tables[b], low, high):
                _add(totals, mine, theirs, other.hidden, missing_too=missing_too)
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
    totals: list[int], mine: Uint64s, theirs: Uint64s, hidden: Sequence[tuple[int, int]], *, missing_too: bool
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
    if missing_too:
        _count(totals, 2, mine[~both & ~within(mine[:, 0], hidden), 0])


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
