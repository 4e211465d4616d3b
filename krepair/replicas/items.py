"""What travels to and from the functions that read replicas."""

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
Result = TypeVar("Result")


class ReplicaItem(LogsItem, frozen=True, kw_only=True):
    """Read one replica of one partition.

    Attributes:
        secret: 16 bytes, the key of the hashes; of a reading of headers empty.
        transactions: bytes of int64[N, TRANSACTION_COLUMNS], for a reading of records.
        scratch: folder for rows that do not fit into a result, or empty.
        rows_inline: at most so many rows travel in a result.
        following: base offset of the segment behind these, -1 none.
        keys: of a reading of records: whether keys are wanted.
        evidence: of a reading of headers: the runs of data are wanted, of transactions only those that are aborted, and
            zeros behind the last batch are damage, too.
        differing: numbers of ranges of offsets, ascending, int64: only of batches that begin in these the digests of
            records are wanted, and without keys no others are read; None: all are.
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
    """A large replica in several items, each with segments side by side, so that no task is much larger than others."""
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
    """Yield (index of the item, what its replica comes to) in any order; large replicas are read in several tasks.

    Args:
        engine: runs them.
        function: reads some segments side by side.
        items: the replicas.
        joined: what the parts of one come to, which it gets in offset order.
    """
    parts = [(number, part) for number, item in enumerate(items) for part in parts_of(item)]
    counts = Counter(number for number, _ in parts)
    waiting = [dict[int, Result]() for _ in items]
    for index, result in engine.map(function, [part for _, part in parts]):
        number = parts[index][0]
        of_one = waiting[number]
        of_one[index] = result
        if len(of_one) == counts[number]:  # results are large: they go as soon as they can
            yield number, joined([of_one[place] for place in sorted(of_one)])
            of_one.clear()


class RowRun(Struct, frozen=True, kw_only=True):
    """Rows of hashes.

    Attributes:
        rows: how many.
        data: bytes of uint64 rows, or empty.
        path: absolute path of a scratch file that holds them, or empty.
    """

    rows: int
    data: bytes = b""
    path: str = ""


class RowsResult(Outcome, frozen=True, kw_only=True):
    """The result of the records of a replica.

    Attributes:
        keys: runs of uint64[N, KEY_WORDS], each ascending by the highest bits of its first column (``BUCKETS``).
        records: runs of uint64[N, 2] (offset, digest), in offset order.
    """

    keys: tuple[RowRun, ...] = ()
    records: tuple[RowRun, ...] = ()


def rows_of(run: RowRun, columns: int) -> Uint64s:
    """uint64[N, columns] of a run; of a file only what is used is read."""
    if run.path:
        return np.memmap(run.path, np.uint64, "r").reshape(-1, columns)
    return np.frombuffer(run.data, np.uint64).reshape(-1, columns)
