"""What a Spark worker does for the shuffle: reads one replica, or its part of a facts file, and gives its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Struct

from krepair.formats.facts_file import BAD_CONTENT
from krepair.kernels.replica_rows import K_AFTER, K_BITS, K_FIRST, K_SECOND, KEY_WORDS
from krepair.pipeline.replicas.facts import opened_facts, read_rows
from krepair.pipeline.replicas.items import ReplicaItem
from krepair.pipeline.replicas.join import rows_of
from krepair.pipeline.replicas.records import Entered, ReplicaError, walk_records
from krepair.rules.replicas.keys import Words

ROWS_SCHEMA: Final = (
    "kind int, work int, replica int, first long, second long, offset long, digest long, bits long"
)
KEYS, RECORDS, UNREAD = 0, 1, 2
"""Kinds of rows."""
_ALL_ROWS: Final = 2**62


class RowTask(Struct, frozen=True, kw_only=True):
    """Give the rows of one replica, or of some of its segments.

    Attributes:
        work: number of its group.
        column: its place in the group.
        item: reads it in its directory, or None.
        facts: path of a facts file, or empty.
        index: its number there.
        keys: of a facts file, whether rows of keys are wanted.
    """

    work: int
    column: int
    item: ReplicaItem | None
    facts: str
    index: int
    keys: bool


def give_rows(batches: Iterable[Any]) -> Iterator[Any]:
    """Run the tasks of Arrow batches; what ``mapInArrow`` calls in a worker.

    A replica whose records cannot be read gives a row of the kind ``UNREAD``. What a worker does not see ends the job.
    """
    for row in (row for batch in batches for row in batch.to_pylist()):
        task = msgspec.msgpack.decode(row["task"], type=RowTask)
        try:
            yield from _of_facts(task) if task.facts else _of_directory(task)
        except ReplicaError as error:
            if error.failure == "elsewhere":
                raise
            yield _batch(task, UNREAD, np.zeros(1, np.uint64), np.zeros(1, np.uint64))


def _of_directory(task: RowTask) -> Iterator[Any]:
    assert task.item is not None
    ready: list[Any] = []
    entered = Entered(
        (lambda rows: ready.append(_key_batch(task, rows))) if task.item.keys else None,
        lambda rows: ready.append(_batch(task, RECORDS, rows[:, 0], rows[:, 1])),
    )
    for _ in walk_records(task.item, entered.take):
        yield from ready
        ready.clear()
    entered.end()
    yield from ready


def _of_facts(task: RowTask) -> Iterator[Any]:
    try:
        with opened_facts(task.facts) as reader:
            found = read_rows(reader, task.index, "", _ALL_ROWS)
    except OSError as error:
        raise ReplicaError("elsewhere", f"{task.facts}: {error.strerror}") from error
    except BAD_CONTENT as error:
        raise ReplicaError("elsewhere", f"{task.facts}: its content cannot be read: {error}") from error
    for run in found.records:
        rows = rows_of(run, 2)
        yield _batch(task, RECORDS, rows[:, 0], rows[:, 1])
    for run in found.keys if task.keys else ():
        yield _key_batch(task, rows_of(run, KEY_WORDS))


def _key_batch(task: RowTask, rows: Words) -> Any:
    nothing = np.zeros(len(rows), np.uint64)
    more = (rows[:, K_FIRST], rows[:, K_SECOND], rows[:, K_BITS])
    return _batch(task, KEYS, rows[:, K_AFTER] - np.uint64(1), nothing, more)


def _batch(task: RowTask, kind: int, offsets: Words, digests: Words, more: tuple[Words, ...] = ()) -> Any:
    import pyarrow as pa

    count = len(offsets)
    nothing = np.zeros(count, np.uint64)
    first, second, bits = more or (nothing, nothing, nothing)
    numbers = [np.full(count, value, np.int32) for value in (kind, task.work, task.column)]
    words = [
        np.ascontiguousarray(column).view(np.int64) for column in (first, second, offsets, digests, bits)
    ]
    names = [part.split()[0] for part in ROWS_SCHEMA.split(", ")]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in (*numbers, *words)], names=names)
