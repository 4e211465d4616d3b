"""Independent check that no other replica still needs a transaction marker that ``apply`` removes.

The plan decides which markers must be kept. This check starts from the new logs that were written: it finds the markers
that they lack, and searches the other replicas for a batch of a transaction that such a marker ended. It shares only
the formats with the code behind the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from msgspec import Struct

from krepair.checks.walk import NotWholeError, headers_of
from krepair.durable.scratch import SpilledRows, spilled
from krepair.durable.tree import Tree
from krepair.engine.items import Failed, LogsItem, Place
from krepair.engine.place import with_log_dir
from krepair.engine.progress import shown_as
from krepair.formats import batch_v2
from krepair.formats.arrays import Int64s

_AT_ONCE: Final = 1 << 20
_PRODUCER, _BEFORE, _MARKER = range(3)
"""Columns of a removed marker: producer id, offset of the producer's previous marker or -1, its own offset."""
_NO_OFFSETS: Final = np.empty(0, np.int64)


class MissingMarkersItem(Struct, frozen=True, kw_only=True):
    """Arguments of the task that finds the markers that new logs no longer have.

    Attributes:
        logs: (base offset, absolute path, bytes of valid batches) of all original logs, ascending.
        results: absolute path of the new log by the base offset of the log that it replaces.
        scratch: path of the scratch folder, empty if there is none.
    """

    place: Place
    logs: tuple[tuple[int, str, int], ...]
    results: dict[int, str]
    scratch: str = ""

    @property
    def bytes_to_read(self) -> int:
        """Upper bound for both the old and the new logs, in bytes."""
        return 2 * sum(size for *_, size in self.logs)


# -- markers


@shown_as("prove")
@with_log_dir
def find_missing_markers(item: MissingMarkersItem, tree: Tree) -> SpilledRows | Failed:
    """Find the markers of the original logs that the new logs lack; the rows are those of ``find_needed``."""
    try:
        return spilled(_missing_markers(item, tree), item.scratch, "gone")
    except NotWholeError as damage:
        return Failed("verify", str(damage))


def _missing_markers(item: MissingMarkersItem, tree: Tree) -> Iterator[Int64s]:
    before: dict[int, int] = {}
    stays: Int64s = _NO_OFFSETS
    of_result = ""
    for base, path, size in item.logs:
        result = item.results.get(base, "")
        if result and result != of_result:
            kept = [_markers(headers)[:, 1] for headers in headers_of(result, -1, tree)]
            stays, of_result = np.concatenate([_NO_OFFSETS, *kept]), result
        for headers in headers_of(path, size, tree):
            markers = _with_previous(_markers(headers), before)
            if result and len(markers):
                yield markers[~np.isin(markers[:, _MARKER], stays)]


def _with_previous(markers: Int64s, before: dict[int, int]) -> Int64s:
    """Pair each marker with the previous one of its producer: int64[M, 3], ascending by offset.

    Args:
        markers: int64[M, 2], markers of a window.
        before: producer id -> last marker in earlier windows; this window's markers are added.
    """
    rows = markers[np.lexsort((markers[:, 1], markers[:, 0]))]
    begins = np.ones(len(rows), bool)
    begins[1:] = rows[1:, 0] != rows[:-1, 0]
    firsts = np.flatnonzero(begins)
    producers = rows[firsts, 0].tolist()
    earlier = np.append(np.int64(-1), rows[:-1, 1])[: len(rows)]
    earlier[firsts] = [before.get(producer, -1) for producer in producers]
    lasts = rows[np.append(firsts[1:], len(rows))[: len(firsts)] - 1, 1]
    before.update(zip(producers, lasts.tolist(), strict=True))
    paired = np.column_stack([rows[:, 0], earlier, rows[:, 1]])
    return paired[np.argsort(paired[:, _MARKER], kind="stable")]


def _markers(headers: Any) -> Int64s:
    """Return int64[M, 2] (producer id, offset) of the markers that still hold their record."""
    attributes = headers["attributes"]
    both = batch_v2.CONTROL | batch_v2.TRANSACTIONAL
    whole = headers[(attributes & both == both) & (headers["record_count"] != 0)]
    return np.column_stack([whole["producer_id"].astype(np.int64), whole["base_offset"].astype(np.int64)])


@shown_as("prove")
@with_log_dir
def find_needed(item: LogsItem, tree: Tree, gone: SpilledRows) -> Failed | None:
    """Search for a batch of a transaction whose marker was removed; return a failure that names the first one.

    Args:
        item: log of another replica.
        gone: removed markers, with the columns ``_PRODUCER``, ``_BEFORE``, ``_MARKER``; ascending by the last.
    """
    try:
        for intervals in _intervals(gone):
            for path, size in item.logs:
                for headers in headers_of(path, size, tree):
                    data = headers[
                        (headers["attributes"] & batch_v2.TRANSACTIONAL != 0)
                        & (headers["attributes"] & batch_v2.CONTROL == 0)
                    ]
                    offsets = data["base_offset"].astype(np.int64)
                    need = intervals.needed(data["producer_id"].astype(np.int64), offsets, offsets)
                    if need:
                        return Failed("verify", f"{need}, in {path}")
    except NotWholeError as damage:
        return Failed("changed", str(damage))
    return None


class _Intervals:
    """Transactions whose markers are gone, each between two markers of its producer.

    Args:
        rows: int64[N, 3], as in ``find_needed``.
    """

    def __init__(self, rows: Int64s) -> None:
        rows = rows[np.lexsort((rows[:, _MARKER], rows[:, _PRODUCER]))]
        self._before, self._markers = rows[:, _BEFORE], rows[:, _MARKER]
        self._producers = np.unique(rows[:, _PRODUCER])
        self._ascending = np.unique(self._markers)
        self._places = self._place(
            np.searchsorted(self._producers, rows[:, _PRODUCER]),
            np.searchsorted(self._ascending, self._markers),
        )
        self._of = rows[:, _PRODUCER]

    def _place(self, producers: Int64s, markers: Int64s) -> Int64s:
        """Combine (index of a producer, index of a marker) into one sortable number."""
        return producers * (len(self._ascending) + 1) + markers

    def needed(self, producers: Int64s, firsts: Int64s, lasts: Int64s) -> str:
        """Describe a batch of another replica that lies in one of these transactions; empty if there is none.

        Args:
            producers: int64[N], producer ids.
            firsts: int64[N], offset of the first batch of each run.
            lasts: int64[N], offset of the last batch of each run.
        """
        ranks = np.searchsorted(self._producers, producers)
        ranks[ranks == len(self._producers)] = 0
        ours = self._producers[ranks] == producers
        ranks, firsts, lasts = ranks[ours], firsts[ours], lasts[ours]
        # the first of these markers after the batch
        places = np.searchsorted(
            self._places, self._place(ranks, np.searchsorted(self._ascending, firsts, "right"))
        )
        inside = places < len(self._places)
        ranks, firsts, lasts, places = ranks[inside], firsts[inside], lasts[inside], places[inside]
        wrong = (self._of[places] == self._producers[ranks]) & (self._before[places] < lasts)
        if not wrong.any():
            return ""
        at = int(np.flatnonzero(wrong)[0])
        return (
            f"the marker at offset {int(self._markers[places[at]])} is gone, but a batch of its transaction (producer "
            f"{int(self._producers[ranks[at]])}) is at offset {int(firsts[at])} of another replica"
        )


def _intervals(gone: SpilledRows) -> Iterator[_Intervals]:
    rows = gone.rows
    for first in range(0, len(rows), _AT_ONCE):
        yield _Intervals(np.array(rows[first : first + _AT_ONCE]))
