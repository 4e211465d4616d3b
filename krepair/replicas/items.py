"""Work items and results of the tasks that read replicas, and the division of large replicas into several tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from krepair.engine.engine import Engine
from krepair.engine.items import LogsItem, Outcome
from krepair.formats.arrays import Uint64s

_PART_BYTES: Final = 1 << 29
"""Bytes of log after which a task ends, at the next segment boundary."""
Result = TypeVar("Result")


class ReplicaItem(LogsItem, frozen=True, kw_only=True):
    """Arguments of the task that reads one replica.

    Attributes:
        secret: 16 bytes, key of the hashes; empty when reading headers.
        transactions: transactions of the replica, the bytes of int64[N, TRANSACTION_COLUMNS]; used when records are
            read.
        scratch: path of the folder for rows that do not fit into a result, or empty.
        rows_inline: largest number of rows in a result; a longer run is written to the scratch folder.
        following: base offset of the segment after the last one here, -1 for none.
        keys: True to collect keys; used when records are read.
        evidence: True if the headers are read as evidence for a plan (``--replicas``): collect runs of data batches,
            collect aborted transactions only, and count zeros after the last batch as damage.
        differing: numbers of the offset ranges in which replicas differ, as ascending int64; only batches that begin in
            these ranges get record digests. If ``keys`` is false, no other batches are read. None selects all ranges.
    """

    secret: bytes = b""
    transactions: bytes = b""
    scratch: str = ""
    rows_inline: int = 1 << 16
    following: int = -1
    keys: bool = False
    evidence: bool = False
    differing: bytes | None = None


def parts_of(item: ReplicaItem) -> Iterator[ReplicaItem]:
    """Split a large replica into items of consecutive segments, so that no task is much larger than others."""
    first = size = 0
    for number, (_, log_bytes) in enumerate(item.segments):
        size += log_bytes
        after = number + 1
        if size >= _PART_BYTES or after == len(item.segments):
            following = item.segments[after][0] if after < len(item.segments) else item.following
            yield replace(item, segments=item.segments[first:after], following=following)
            first, size = after, 0
    if not item.segments:
        yield item


def map_in_parts(
    engine: Engine,
    function: Callable[[ReplicaItem], Result],
    items: Sequence[ReplicaItem],
    joined: Callable[[Sequence[Result]], Result],
) -> Iterator[tuple[int, Result]]:
    """Yield (index of the item, result of its replica) in any order; large replicas are read in several tasks.

    Args:
        function: function that reads some consecutive segments.
        items: one item for each replica.
        joined: function that joins the results of one replica's parts, given in offset order.
    """
    parts = [(number, part) for number, item in enumerate(items) for part in parts_of(item)]
    counts = Counter(number for number, _ in parts)
    waiting = [dict[int, Result]() for _ in items]
    for index, result in engine.map(function, [part for _, part in parts]):
        number = parts[index][0]
        of_one = waiting[number]
        of_one[index] = result
        if len(of_one) == counts[number]:  # join as soon as the last part arrives: the parts take memory
            yield number, joined([of_one[place] for place in sorted(of_one)])
            of_one.clear()


class RowRun(Struct, frozen=True, kw_only=True):
    """Consecutive rows of hashes, held in memory or in a scratch file.

    Attributes:
        rows: number of rows.
        data: bytes of uint64 rows, or empty.
        path: absolute path of a scratch file with the rows, or empty.
    """

    rows: int
    data: bytes = b""
    path: str = ""


class RowsResult(Outcome, frozen=True, kw_only=True):
    """Keys and record digests of a replica, as runs of rows.

    Attributes:
        keys: runs of uint64[N, KEY_WORDS], each ascending by the highest bits of its first column (``BUCKETS``).
        records: runs of uint64[N, 2] (offset, digest), in offset order.
    """

    keys: tuple[RowRun, ...] = ()
    records: tuple[RowRun, ...] = ()


def rows_of(run: RowRun, columns: int) -> Uint64s:
    """View a run as uint64[N, columns]; if it is in a file, only the parts that are used are read."""
    if run.path:
        return np.memmap(run.path, np.uint64, "r").reshape(-1, columns)
    return np.frombuffer(run.data, np.uint64).reshape(-1, columns)
