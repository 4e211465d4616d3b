"""What one replica still holds of transactions, and which markers of another replica have to stay because of it.

A marker goes or is emptied only if no other replica holds a batch of its transaction, data or emptied: such a replica
would never end the transaction, or would end it by the next marker of the producer. Of another replica it is enough to
know from where to where each producer has data without a marker in between. The first marker of the producer behind
such a run, on this replica, ends it. A replica that has lost a marker has several transactions in one run: then the
markers inside of the run stay as well.

Both sides are read in the order of offsets, so that no more of them is held than what is open at one place.

Source: ProducerAppendInfo.append and appendDataBatch (2.2.1, 3.9.2, 4.3.1).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct

from krepair.checks.walk import walk
from krepair.durable.scratch import write_scratch
from krepair.durable.tree import Tree
from krepair.formats import batch_v2
from krepair.formats.arrays import Int64s
from krepair.logdir.reading import opened_for_reading, read_into_from, why
from krepair.pipeline.items import LogsItem, Outcome, Place
from krepair.pipeline.place import at_its_place
from krepair.pipeline.progress import shown
from krepair.pipeline.replicas.histories import EpochRuns, read_epoch_starts, runs_of

PAIRS_INLINE: Final = 1 << 12
"""So many pairs travel in a result; more go to the scratch folder, where there is one."""
_PIECE: Final = 1 << 14
COLUMNS: Final = 3
_NO_PAIRS: Final = np.empty((0, COLUMNS), np.int64)
_NO_OFFSETS: Final = np.empty(0, np.int64)


class Pairs(Struct, frozen=True, kw_only=True):
    """int64[N, 3] (producer id, offset of the first and of the last batch of a run), ascending by the first offset.

    Attributes:
        path: in the scratch folder; empty: ``data`` holds them.
        data: their bytes.
    """

    path: str = ""
    data: bytes = b""

    @property
    def rows(self) -> Int64s:
        """All of them; those of a file are read as they are used.

        Raises:
            OSError: the file cannot be read.
        """
        if not self.path:
            return np.frombuffer(self.data, np.int64).reshape(-1, COLUMNS)
        found: Int64s = np.memmap(self.path, np.int64, "r").reshape(-1, COLUMNS)
        return found


def kept_pairs(pieces: Iterable[Int64s], scratch: str) -> Pairs:
    """Pairs in memory if they are few, else in a file of the scratch folder.

    Args:
        pieces: int64[N, 3] each.
        scratch: path of the folder; without one they stay in memory.

    Raises:
        OSError: the file cannot be written.
    """
    waiting = iter(pieces)
    first: list[Int64s] = []
    count = 0
    for piece in waiting:
        first.append(piece)
        count += len(piece)
        if scratch and count > PAIRS_INLINE:
            pieces = map(np.ascontiguousarray, itertools.chain(first, waiting))
            return Pairs(path=write_scratch(scratch, "held", pieces))
    return Pairs(data=np.concatenate([_NO_PAIRS, *first]).tobytes())


class HeldItem(LogsItem, frozen=True, kw_only=True):
    """Find the transactions of which a log holds a batch.

    Attributes:
        scratch: path of the scratch folder, empty if there is none.
    """

    scratch: str = ""


class HeldResult(Outcome, frozen=True, kw_only=True):
    """The transactions of one log; ``why`` also says what is damaged.

    Attributes:
        damaged: whether the log is damaged, so that it says nothing.
        log_end: offset after the last batch.
        transactions: the runs of data batches of each producer, without a marker in between.
        epochs: int64[N, 3], see ``EpochRuns``.
        epoch_starts: int64[M, 2], see ``read_epoch_starts``.
    """

    damaged: bool = False
    log_end: int = 0
    transactions: Pairs = Pairs()
    epochs: bytes = b""
    epoch_starts: bytes = b""


class MarkersItem(LogsItem, frozen=True, kw_only=True):
    """Find the markers of a log that end transactions of others; the bytes of its segments are those of valid batches.

    Attributes:
        transactions: see ``HeldResult``, of each of the other replicas.
    """

    transactions: tuple[Pairs, ...]


class MarkersResult(Outcome, frozen=True, kw_only=True):
    """The markers that have to stay.

    Attributes:
        offsets: int64[H], ascending.
    """

    offsets: bytes = b""


class _Damaged(Exception):  # noqa: N818 - an answer, not an error
    """What is damaged, and where."""


# -- what a log holds


@shown("replicas")
@at_its_place(HeldResult)
def find_held(item: HeldItem, tree: Tree) -> HeldResult:
    """Read every batch of a log, with its checksum."""
    reading = _Held(item, tree)
    try:
        pairs = kept_pairs(reading.pieces(), item.scratch)
        starts = read_epoch_starts(item.place, tree)
    except _Damaged as damage:
        return HeldResult(why=str(damage), damaged=True)
    except OSError as error:
        return HeldResult(failure="unreadable", why=f"{error.filename or item.place.path}: {why(error)}")
    return HeldResult(
        log_end=reading.log_end,
        transactions=pairs,
        epochs=reading.epochs.rows.tobytes(),
        epoch_starts=starts.tobytes(),
    )


class _Held:
    """Reads one log once, and knows then where it ends and which leader epochs it has."""

    def __init__(self, item: HeldItem, tree: Tree) -> None:
        self.log_end = item.segments[0][0] if item.segments else 0
        self.epochs = EpochRuns()
        self._item, self._tree = item, tree

    def pieces(self) -> Iterator[Int64s]:
        """The runs of transactional data, window by window.

        Raises:
            _Damaged: a batch is damaged, or offsets do not ascend.
            OSError: a log cannot be read.
        """
        item = self._item
        for headers in _headers(item.place, item.segments, self._tree, check_crc=True):
            if len(headers) == 0:
                continue
            bases = headers["base_offset"].astype(np.int64)
            if bases[0] < self.log_end:
                text = (
                    f"{item.place.path}: an offset of {self.log_end} or more was expected, found {bases[0]}"
                )
                raise _Damaged(text)
            self.log_end = int(bases[-1]) + int(headers["last_offset_delta"][-1]) + 1
            self.epochs.add(runs_of(headers))
            yield _runs(headers)


def _headers(
    place: Place, segments: tuple[tuple[int, int], ...], tree: Tree, *, check_crc: bool
) -> Iterator[Any]:
    """The headers of all batches, a window at a time.

    Raises:
        _Damaged: a batch is damaged, or bytes are left behind the last one.
        OSError: a log cannot be read.
    """
    for base_offset, size in segments:
        path = f"{place.stem(base_offset)}.log"
        with opened_for_reading(path, tree) as descriptor:
            here = os.fstat(descriptor).st_size
            if here < size:
                raise _Damaged(f"{path}: {size} bytes were expected, found {here}")
            position = 0
            for walked in walk(read_into_from(descriptor), size, compiled=True, check_crc=check_crc):
                if walked.problem:
                    raise _Damaged(f"{path}, position {walked.position}: {walked.problem}")
                position = walked.position
                yield walked.headers
            if position != size:
                raise _Damaged(
                    f"{path}, position {position}: a batch was expected, found the end of the file"
                )


def _of_transactions(headers: Any) -> Any:
    attributes = headers["attributes"]
    return (attributes & batch_v2.TRANSACTIONAL != 0) & (headers["producer_id"] >= 0)


def _runs(headers: Any) -> Int64s:
    """Of each producer's run of data batches without a marker between them the ends: int64[N, 3] by first offset."""
    ours = headers[_of_transactions(headers)]
    is_data = ours["attributes"] & batch_v2.CONTROL == 0
    producers = ours["producer_id"].astype(np.int64)
    order = np.argsort(producers, kind="stable")
    producers, is_data = producers[order], is_data[order]
    bases = ours["base_offset"].astype(np.int64)[order]
    goes_on = is_data[:-1] & is_data[1:] & (producers[1:] == producers[:-1])
    begins, ends = is_data.copy(), is_data.copy()
    begins[1:] &= ~goes_on
    ends[:-1] &= ~goes_on
    runs = np.column_stack([producers[begins], bases[begins], bases[ends]])
    found: Int64s = runs[np.argsort(runs[:, 1], kind="stable")]
    return found


# -- which markers end that


@shown("markers")
@at_its_place(MarkersResult)
def find_markers_to_keep(item: MarkersItem, tree: Tree) -> MarkersResult:
    """Of each transaction of others, the first marker of its producer behind it."""
    kept: list[Int64s] = []
    try:
        waiting = _Waiting([pairs.rows for pairs in item.transactions])
        for headers in _headers(item.place, item.segments, tree, check_crc=False):
            if len(headers):
                kept.append(waiting.ended_by(_markers(headers), int(headers["base_offset"][-1])))
    except _Damaged as damage:
        return MarkersResult(failure="changed", why=str(damage))
    except OSError as error:
        return MarkersResult(failure="unreadable", why=f"{error.filename or item.place.path}: {why(error)}")
    offsets = np.unique(np.concatenate(kept)) if kept else _NO_OFFSETS
    return MarkersResult(offsets=offsets.astype(np.int64).tobytes())


def _markers(headers: Any) -> Int64s:
    """int64[M, 2] (producer id, offset) of the markers that are not emptied."""
    is_marker = _of_transactions(headers) & (headers["attributes"] & batch_v2.CONTROL != 0)
    markers = headers[is_marker & (headers["record_count"] > 0)]
    return np.column_stack([markers["producer_id"].astype(np.int64), markers["base_offset"].astype(np.int64)])


class _Waiting:
    """The runs of others that no marker has ended yet, up to a place that moves on.

    Args:
        tables: int64[N, 3] each, see ``Pairs``.
    """

    def __init__(self, tables: Sequence[Int64s]) -> None:
        self._tables = [_Ascending(table) for table in tables]
        self._open: Int64s = _NO_PAIRS

    def ended_by(self, markers: Int64s, last: int) -> Int64s:
        """Offsets of those markers that end a run, or lie inside of one.

        Args:
            markers: int64[M, 2] of the next window.
            last: offset up to which the window goes.
        """
        runs = np.concatenate([self._open, *(table.up_to(last) for table in self._tables)])
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
    """A table that is read forward, a piece at a time."""

    def __init__(self, table: Int64s) -> None:
        self._table, self._next = table, 0
        self._piece: Int64s = _NO_PAIRS

    def up_to(self, last: int) -> Int64s:
        """The rows that were not given yet, up to an offset."""
        parts: list[Int64s] = [_NO_PAIRS]
        while True:
            if len(self._piece) == 0:
                self._piece = np.array(self._table[self._next : self._next + _PIECE])
                self._next += len(self._piece)
            count = int(np.searchsorted(self._piece[:, 1], last, "right"))
            parts.append(self._piece[:count])
            self._piece = self._piece[count:]
            if count == 0 or len(self._piece):
                return np.concatenate(parts)
