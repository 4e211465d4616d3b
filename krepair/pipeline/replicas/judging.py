"""What a Spark worker does behind the shuffle: judges rows in which replicas stand side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from krepair.formats.arrays import Int64s
from krepair.pipeline.replicas.join import within
from krepair.rules.replicas.judge import RecordDifference
from krepair.rules.replicas.keys import CatchUp, KeyTable, Standing, judge_keys


class PairBounds(Struct, frozen=True, kw_only=True):
    """Two replicas of a group, and the offsets in which they are compared.

    Attributes:
        one: place in the group.
        other: place in the group.
        low: first offset.
        high: offset after the last.
        missing_too: whether a record that is missing counts.
        hidden: (first, last) offset of each damaged part of the other; none of its records is missing there.
    """

    one: int
    other: int
    low: int
    high: int
    missing_too: bool
    hidden: tuple[tuple[int, int], ...] = ()


class WorkContext(Struct, frozen=True, kw_only=True):
    """What the judges have to know of one group.

    Attributes:
        standings: of its replicas.
        forks: (place, place, first offset of two histories).
        pairs: that are compared offset by offset.
        catch_ups: who may lead whom.
    """

    standings: tuple[Standing, ...]
    forks: tuple[tuple[int, int, int], ...]
    pairs: tuple[PairBounds, ...]
    catch_ups: tuple[CatchUp, ...]


class Judges:
    """The two judges; it travels to the workers.

    Args:
        contexts: of all groups of a job.
    """

    def __init__(self, contexts: Sequence[WorkContext]) -> None:
        self._contexts = msgspec.msgpack.encode(list(contexts))

    def _decoded(self) -> list[WorkContext]:
        return msgspec.msgpack.decode(self._contexts, type=list[WorkContext])

    def keys(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Judge keys; gives (group, finding)."""
        contexts = self._decoded()
        for batch in batches:
            for work, rows in _by_work(batch):
                context = contexts[work]
                count = len(context.standings)

                def columns(name: str, rows: Any = rows, count: int = count) -> Int64s:
                    return np.column_stack([rows(f"{name}{column}") for column in range(count)])

                table = KeyTable(
                    hashes=np.column_stack([rows("first"), rows("second")]).view(np.uint64),
                    offsets=columns("offset"),
                    bits=columns("bits").view(np.uint64),
                    opens=columns("open"),
                    open_bits=columns("open_bits").view(np.uint64),
                    aborts=columns("abort"),
                )
                forks = {(a, b): offset for a, b, offset in context.forks}
                yield from _given(work, judge_keys(table, context.standings, forks, context.catch_ups))

    def records(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Judge records offset by offset; gives (group, difference of a pair)."""
        contexts = self._decoded()
        for batch in batches:
            for work, rows in _by_work(batch):
                yield from _given(
                    work, [one for pair in contexts[work].pairs for one in _difference(pair, rows)]
                )


def _difference(pair: PairBounds, rows: Any) -> Iterator[RecordDifference]:
    offsets = rows("offset")
    inside = (offsets >= pair.low) & (offsets < pair.high)
    there = rows.there(f"digest{pair.one}")
    other = rows.there(f"digest{pair.other}")
    differs = inside & there & other & (rows(f"digest{pair.one}") != rows(f"digest{pair.other}"))
    differing = offsets[differs] if pair.one < pair.other else offsets[:0]
    gone = inside & there & ~other & ~within(offsets, pair.hidden)
    missing = offsets[gone] if pair.missing_too else offsets[:0]
    if len(differing) or len(missing):
        yield RecordDifference(
            pair.one,
            pair.other,
            len(differing),
            int(differing.min()) if len(differing) else -1,
            len(missing),
            int(missing.min()) if len(missing) else -1,
        )


class _Rows:
    """The rows of one group in an Arrow batch."""

    def __init__(self, batch: Any, chosen: Any) -> None:
        self._batch, self._chosen = batch, chosen

    def __call__(self, name: str) -> Int64s:
        column = self._batch.column(name).fill_null(0).to_numpy(zero_copy_only=False)
        found: Int64s = column.astype(np.int64)[self._chosen]
        return found

    def there(self, name: str) -> Any:
        """Where the column has a value."""
        return self._batch.column(name).is_valid().to_numpy(zero_copy_only=False)[self._chosen]


def _by_work(batch: Any) -> Iterator[tuple[int, _Rows]]:
    works = batch.column("work").to_numpy(zero_copy_only=False)
    for work in np.unique(works).tolist():
        yield int(work), _Rows(batch, works == work)


def _given(work: int, found: Sequence[Any]) -> Iterator[Any]:
    import pyarrow as pa

    if found:
        packed = [msgspec.msgpack.encode(one) for one in found]
        yield pa.RecordBatch.from_arrays(
            [pa.array([work] * len(packed), pa.int32()), pa.array(packed, pa.binary())],
            names=["work", "finding"],
        )
