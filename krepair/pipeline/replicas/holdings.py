"""What one replica still holds of transactions, and which markers of another replica have to stay because of it.

A marker goes or is emptied only if no other replica holds a batch of its transaction, data or emptied: such a replica
would never end the transaction, or would end it by the next marker of the producer. Of another replica it is enough to
know where each transaction begins of which a batch is left: the first marker of that producer behind it, on this
replica, ends it.

Source: ProducerAppendInfo.append and appendDataBatch (2.2.1, 3.9.2, 4.3.1).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from msgspec import Struct

from krepair.checks.walk import walk
from krepair.durable.tree import Tree
from krepair.formats import batch_v2
from krepair.kernels.places import claimed_places
from krepair.kernels.scan import Int64s
from krepair.logdir.reading import opened_for_reading, why
from krepair.pipeline.indexes.regenerate import read_into_from
from krepair.pipeline.items import FailureKind, Place
from krepair.pipeline.place import reached

PAIR_BYTES: Final = 16
_KEY_SHIFT: Final = 32
_LARGEST_STEP: Final = (1 << 31) + 1


class HeldItem(Struct, frozen=True, kw_only=True):
    """Find the transactions of which a log holds a batch.

    Attributes:
        place: where.
        segments: (base offset, bytes) of all segments, ascending.
    """

    place: Place
    segments: tuple[tuple[int, int], ...]

    @property
    def bytes_to_read(self) -> int:
        """All logs."""
        return sum(size for _, size in self.segments)


class HeldResult(Struct, frozen=True, kw_only=True):
    """The transactions of one log.

    Attributes:
        failure: kind of failure, empty if there is none.
        why: of a failure, or what is damaged.
        damaged: whether the log is damaged, so that it says nothing.
        log_end: offset after the last batch.
        transactions: int64[N, 2] (producer id, offset of a batch): of each transaction with a batch at least its first.
    """

    failure: FailureKind = ""
    why: str = ""
    damaged: bool = False
    log_end: int = 0
    transactions: bytes = b""


class MarkersItem(Struct, frozen=True, kw_only=True):
    """Find the markers of a log that end transactions of others.

    Attributes:
        place: where.
        segments: (base offset, bytes of valid batches) of the segments, ascending.
        transactions: see ``HeldResult``, of all other replicas.
    """

    place: Place
    segments: tuple[tuple[int, int], ...]
    transactions: bytes

    @property
    def bytes_to_read(self) -> int:
        """All logs."""
        return sum(size for _, size in self.segments)


class MarkersResult(Struct, frozen=True, kw_only=True):
    """The markers that have to stay.

    Attributes:
        failure: kind of failure, empty if there is none.
        why: of a failure.
        offsets: int64[H], ascending.
    """

    failure: FailureKind = ""
    why: str = ""
    offsets: bytes = b""


class _Damaged(Exception):  # noqa: N818 - an answer, not an error
    """What is damaged, and where."""


def find_held(item: HeldItem) -> HeldResult:
    """Read every batch of a log, with its checksum."""
    tree, wrong = reached(item.place)
    if wrong:
        return HeldResult(failure="elsewhere", why=wrong)
    found: list[Int64s] = []
    log_end = item.segments[0][0] if item.segments else 0
    try:
        for headers in _headers(item.place, item.segments, tree, check_crc=True):
            if len(headers):
                log_end = int(headers["base_offset"][-1]) + int(headers["last_offset_delta"][-1]) + 1
                found.append(_beginnings(headers))
    except _Damaged as damage:
        return HeldResult(why=str(damage), damaged=True)
    except OSError as error:
        return HeldResult(failure="unreadable", why=f"{error.filename or item.place.path}: {why(error)}")
    return HeldResult(log_end=log_end, transactions=_sorted_pairs(found).tobytes())


def find_markers_to_keep(item: MarkersItem) -> MarkersResult:
    """Of each transaction of others, the first marker of its producer behind it."""
    tree, wrong = reached(item.place)
    if wrong:
        return MarkersResult(failure="elsewhere", why=wrong)
    waiting = _sorted_pairs([np.frombuffer(item.transactions, np.int64).reshape(-1, 2)])
    kept: list[Int64s] = []
    try:
        for headers in _headers(item.place, item.segments, tree, check_crc=False):
            if len(waiting) == 0:
                break
            markers, waiting = _markers_behind(headers, waiting)
            kept.append(markers)
    except _Damaged as damage:
        return MarkersResult(failure="changed", why=str(damage))
    except OSError as error:
        return MarkersResult(failure="unreadable", why=f"{error.filename or item.place.path}: {why(error)}")
    offsets = np.unique(np.concatenate(kept)) if kept else np.empty(0, np.int64)
    return MarkersResult(offsets=offsets.astype(np.int64).tobytes())


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
            for walked in walk(read_into_from(descriptor), size, claim=claimed_places, check_crc=check_crc):
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


def _beginnings(headers: Any) -> Int64s:
    """Of each producer's run of data batches without a marker between them the first: int64[N, 2]."""
    ours = headers[_of_transactions(headers)]
    is_data = ours["attributes"] & batch_v2.CONTROL == 0
    producers = ours["producer_id"].astype(np.int64)
    order = np.argsort(producers, kind="stable")
    producers, is_data = producers[order], is_data[order]
    begins = is_data.copy()
    begins[1:] &= ~(is_data[:-1] & (producers[1:] == producers[:-1]))
    return np.column_stack([producers[begins], ours["base_offset"].astype(np.int64)[order][begins]])


def _sorted_pairs(parts: list[Any]) -> Int64s:
    every: Int64s = np.concatenate(parts) if parts else np.empty((0, 2), np.int64)
    return np.ascontiguousarray(every[np.lexsort((every[:, 1], every[:, 0]))], np.int64)


def _markers_behind(headers: Any, waiting: Int64s) -> tuple[Int64s, Int64s]:
    """(offsets of the markers in a window that end waiting transactions, the transactions that still wait).

    Args:
        headers: of one window.
        waiting: int64[N, 2] (producer id, offset), sorted.
    """
    is_marker = _of_transactions(headers) & (headers["attributes"] & batch_v2.CONTROL != 0)
    markers = headers[is_marker & (headers["record_count"] > 0)]
    if len(markers) == 0:
        return np.empty(0, np.int64), waiting
    first = int(headers["base_offset"][0])
    ids = np.unique(markers["producer_id"].astype(np.int64))
    keys = (np.searchsorted(ids, markers["producer_id"].astype(np.int64)) << _KEY_SHIFT) + (
        markers["base_offset"].astype(np.int64) - first + 1
    )
    order = np.argsort(keys, kind="stable")
    keys, offsets = keys[order], markers["base_offset"].astype(np.int64)[order]
    rank = np.minimum(np.searchsorted(ids, waiting[:, 0]), len(ids) - 1)
    steps = np.clip(waiting[:, 1] - first + 1, 0, _LARGEST_STEP)
    steps = np.where(waiting[:, 1] < first, 0, steps)
    at = np.searchsorted(keys, (rank << _KEY_SHIFT) + steps, side="right")
    inside = np.minimum(at, len(keys) - 1)
    ended = (ids[rank] == waiting[:, 0]) & (at < len(keys)) & (keys[inside] >> _KEY_SHIFT == rank)
    return np.unique(offsets[inside[ended]]), waiting[~ended]
