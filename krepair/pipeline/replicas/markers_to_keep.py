"""Which markers of a log have to stay, because another replica still holds data of their transactions.

A marker goes or is emptied only if no other replica holds a batch of its transaction, data or emptied: such a replica
would never end the transaction, or would end it by the next marker of the producer. Of another replica it is enough to
know from where to where each producer has data without a marker in between. The first marker of the producer behind
such a run, on this replica, ends it. A replica that has lost a marker has several transactions in one run: then the
markers inside of the run stay as well.

The log is read in the order of offsets, so that no more of its markers are held than those of a window: a log may
have little else.

Source: ProducerAppendInfo.append and appendDataBatch (2.2.1, 3.9.2, 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from krepair.checks.walk import NotWholeError, headers_of
from krepair.durable.scratch import SpilledRows
from krepair.durable.tree import Tree
from krepair.formats import batch_v2
from krepair.formats.arrays import Int64s
from krepair.pipeline.items import Failed, LogsItem
from krepair.pipeline.place import in_its_place
from krepair.pipeline.progress import shown

RUN_COLUMNS: Final = 3
_PIECE: Final = 1 << 14
_NO_RUNS: Final = np.empty((0, RUN_COLUMNS), np.int64)
_NO_OFFSETS: Final = np.empty(0, np.int64)


class MarkersItem(LogsItem, frozen=True, kw_only=True):
    """Find the markers of a log that end transactions of others; the bytes of its segments are those of valid batches.

    Attributes:
        runs: of each of the other replicas, see ``ReplicaHeaders``.
    """

    runs: tuple[tuple[SpilledRows, ...], ...]


@shown("markers")
@in_its_place
def find_markers_to_keep(item: MarkersItem, tree: Tree) -> Int64s | Failed:
    """Of each transaction of others, the first marker of its producer behind it."""
    kept = [_NO_OFFSETS]
    waiting = _Waiting(item.runs)
    try:
        for path, size in item.logs:
            for headers in headers_of(path, size, tree):
                if len(headers):
                    kept.append(waiting.ended_by(_markers(headers), int(headers["base_offset"][-1])))
    except NotWholeError as change:
        return Failed("changed", str(change))
    return np.unique(np.concatenate(kept))


def _markers(headers: Any) -> Int64s:
    """int64[M, 2] (producer id, offset) of the markers that are not emptied."""
    both = batch_v2.CONTROL | batch_v2.TRANSACTIONAL
    is_marker = (headers["attributes"] & both == both) & (headers["producer_id"] >= 0)
    markers = headers[is_marker & (headers["record_count"] > 0)]
    return np.column_stack([markers["producer_id"].astype(np.int64), markers["base_offset"].astype(np.int64)])


class _Waiting:
    """The runs of others that no marker has ended yet, up to a place that moves on.

    Args:
        runs: see ``MarkersItem``.
    """

    def __init__(self, runs: Sequence[Sequence[SpilledRows]]) -> None:
        self._replicas = [_Ascending(parts) for parts in runs]
        self._open: Int64s = _NO_RUNS

    def ended_by(self, markers: Int64s, last: int) -> Int64s:
        """Offsets of those markers that end a run, or lie inside of one.

        Args:
            markers: int64[M, 2] of the next window.
            last: offset up to which the window goes.
        """
        runs = np.concatenate([self._open, *(piece for one in self._replicas for piece in one.up_to(last))])
        ends = np.column_stack([markers, np.full(len(markers), -1, np.int64)])
        events = np.concatenate([runs, ends])
        is_marker = np.arange(len(events)) >= len(runs)
        # a run that begins at the offset of a marker is behind that marker
        order = np.lexsort((~is_marker, events[:, 1], events[:, 0]))
        producers, offsets, lasts = events[order].T
        is_marker = is_marker[order]
        begins = np.ones(len(order), bool)
        begins[1:] = producers[1:] != producers[:-1]
        groups = np.cumsum(begins) - 1
        data_to = _greatest(lasts, groups)  # of the runs that began before
        marked_to = _greatest(np.where(is_marker, offsets, -1), groups)
        before = np.append(np.int64(-1), marked_to[:-1])
        before[begins] = -1
        is_last = np.append(begins[1:], True)[: len(order)]
        waits = is_last & (data_to > marked_to)
        self._open = np.column_stack(
            [producers[waits], np.full(int(waits.sum()), -1, np.int64), data_to[waits]]
        )
        found: Int64s = offsets[is_marker & (data_to > before)]
        return found


def _greatest(values: Int64s, groups: Int64s) -> Int64s:
    """Of each place the greatest value so far in its group.

    Args:
        values: int64[N].
        groups: int64[N], ascending from 0 on.
    """
    known, ranks = np.unique(values, return_inverse=True)
    shifted = groups * len(known)
    found: Int64s = known[np.maximum.accumulate(shifted + ranks) - shifted]
    return found


class _Ascending:
    """The runs of one replica, read forward, a piece at a time.

    Args:
        parts: side by side.
    """

    def __init__(self, parts: Sequence[SpilledRows]) -> None:
        self._pieces = (
            np.array(rows[first : first + _PIECE])
            for part in parts
            for rows in (part.rows,)
            for first in range(0, len(rows), _PIECE)
        )
        self._piece: Int64s = _NO_RUNS

    def up_to(self, last: int) -> Iterator[Int64s]:
        """The rows that were not given yet, up to an offset."""
        while True:
            if len(self._piece) == 0:
                self._piece = next(self._pieces, _NO_RUNS)
            count = int(np.searchsorted(self._piece[:, 1], last, "right"))
            yield self._piece[:count]
            self._piece = self._piece[count:]
            if count == 0 or len(self._piece):
                return
