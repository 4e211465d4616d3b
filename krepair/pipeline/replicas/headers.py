"""Reads the headers of one replica: no record is parsed, every checksum is checked.

Batches are summed up by ranges of offsets, so that equal ranges cost no row. A sum does not depend on the order, and a
batch counts in the range of its base offset. Two replicas that never cleaned have equal sums, since a follower appends
its leader's bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from krepair.durable.tree import Tree
from krepair.formats import batch_v2, txn_index
from krepair.formats.checkpoint import decode_epochs
from krepair.formats.damage import Damage
from krepair.kernels import dump_rows as r
from krepair.kernels.replica_rows import marker_kinds
from krepair.kernels.scan import ReadInto
from krepair.logdir.reading import opened_for_reading, read_whole, why
from krepair.pipeline.dump.log_walk import LogWalk, Wanted
from krepair.pipeline.dump.style import Style
from krepair.pipeline.indexes.regenerate import read_into_from
from krepair.pipeline.place import reached, what_failed
from krepair.pipeline.replicas.items import Damaged, HeadersResult, ReplicaItem
from krepair.pipeline.segment_files import log_name, read_entries
from krepair.rules.replicas.judge import RANGE_BITS
from krepair.rules.replicas.transactions import (
    DATA,
    EVENT_COLUMNS,
    Int64s,
    no_rows,
    transactions_of,
)

_EPOCHS_AT_MOST: Final = 64 << 20
_MOST_DAMAGES: Final = 100
_FOLD_ROWS: Final = 1 << 20
_FACTORS: Final = tuple(
    np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
)
_31: Final = np.uint64(31)
_EXACT_COUNTS: Final = 2


class NotedDamage(Wanted):
    """Keeps what a walk finds damaged; it writes no line."""

    def __init__(self, *, records: bool) -> None:
        super().__init__(Style(as_json=True), records=records, cut=2**31 - 1)
        self.found: list[tuple[Damage, int]] = []
        self.last_offset = -1

    def damage(self, found: Damage, rule: str = "") -> bytes:
        """Keep it, with the last offset before it."""
        self.damages += 1
        if len(self.found) < _MOST_DAMAGES:
            self.found.append((found, self.last_offset))
        return b""


class _HeaderWalk(LogWalk):
    """Gives rows of whole, valid batches to the summary."""

    def __init__(
        self, read_into: ReadInto, size: int, base_offset: int, noted: NotedDamage, to: Headers
    ) -> None:
        super().__init__(read_into, size, base_offset, noted)
        self._noted, self._to = noted, to
        self.last = base_offset - 1

    def _together(self, rows: Any, origin: int) -> Iterator[bytes | memoryview]:
        yield from ()
        kinds = np.full(len(rows), -1, np.int64)
        control = (rows[:, r.B_ATTRIBUTES] & batch_v2.CONTROL != 0) & (rows[:, r.B_COUNT] > 0)
        if origin >= 0 and control.any():
            found = np.empty(int(control.sum()), np.int64)
            marker_kinds(self._window, origin, np.ascontiguousarray(rows[control]), found)
            kinds[control] = found
        self.last = int(rows[-1, r.B_LAST_OFFSET])
        self._noted.last_offset = self.last
        self._to.take(rows, kinds)

    def _one_batch(self, row: Any, origin: int) -> Iterator[bytes | memoryview]:
        yield from ()
        if row[r.B_PROBLEM] == r.BAD_CRC and 0 <= row[r.B_LAST_OFFSET] - row[r.B_BASE_OFFSET] < 2**31:
            self.last = max(self.last, int(row[r.B_LAST_OFFSET]))


class Headers:
    """Sums up the headers of a replica, segment after segment, window after window."""

    def __init__(self) -> None:
        self.batches = 0
        self.highest_hole = -1
        self._end = -1
        self._ranges: list[np.ndarray[Any, Any]] = []
        self._epochs: list[list[int]] = []
        self._events: list[Int64s] = []
        self._event_rows = 0
        self.transactions_so_far: list[Int64s] = []

    def take(self, rows: Int64s, kinds: Int64s) -> None:
        """Take batches in offset order.

        Args:
            rows: int64[B, dump_rows.BATCH_COLUMNS].
            kinds: int64[B], kinds of markers, -1 for others.
        """
        self.batches += len(rows)
        self._sum(rows)
        self._note_epochs(rows)
        self._note_holes(rows)
        transactional = (rows[:, r.B_ATTRIBUTES] & batch_v2.TRANSACTIONAL != 0) & (rows[:, r.B_MAGIC] == 2)
        control = rows[:, r.B_ATTRIBUTES] & batch_v2.CONTROL != 0
        wanted = (transactional & ~control) | (
            control & (kinds >= 0) & (kinds <= 1) & (rows[:, r.B_MAGIC] == 2)
        )
        if wanted.any():
            chosen = rows[wanted]
            events = np.empty((len(chosen), EVENT_COLUMNS), np.int64)
            events[:, 0] = chosen[:, r.B_PRODUCER_ID]
            events[:, 1] = chosen[:, r.B_BASE_OFFSET]
            events[:, 2] = np.where(control[wanted], kinds[wanted], DATA)
            events[:, 3] = chosen[:, r.B_PRODUCER_EPOCH]
            self._events.append(events)

    def _sum(self, rows: Int64s) -> None:
        numbers = rows[:, r.B_BASE_OFFSET] >> RANGE_BITS
        words = rows[:, [r.B_BASE_OFFSET, r.B_LAST_OFFSET, r.B_LEADER_EPOCH, r.B_CRC]].astype(np.uint64)
        sums = np.empty((len(rows), 2), np.uint64)
        for column, turn in enumerate((0, 2)):
            state = np.full(len(rows), _FACTORS[turn + 1], np.uint64)
            for place in range(words.shape[1]):
                state = (state ^ words[:, place]) * _FACTORS[turn]
                state ^= state >> _31
            sums[:, column] = state * _FACTORS[turn + 1]
        starts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
        found = np.empty((len(starts), 4), np.uint64)
        found[:, 0] = numbers[starts].astype(np.uint64)
        found[:, 1] = np.diff(np.append(starts, len(rows))).astype(np.uint64)
        found[:, 2:] = np.add.reduceat(sums, starts, axis=0)
        self._ranges.append(found)

    def _note_epochs(self, rows: Int64s) -> None:
        epochs = rows[:, r.B_LEADER_EPOCH]
        for start in np.flatnonzero(np.append(True, epochs[1:] != epochs[:-1])).tolist():
            epoch = int(epochs[start])
            if not self._epochs or self._epochs[-1][0] != epoch:
                self._epochs.append([epoch, int(rows[start, r.B_BASE_OFFSET]), 0])
            else_end = np.flatnonzero(epochs[start:] != epoch)
            end = start + int(else_end[0]) if len(else_end) else len(rows)
            self._epochs[-1][2] = int(rows[end - 1, r.B_LAST_OFFSET])

    def _note_holes(self, rows: Int64s) -> None:
        before = np.append(self._end, rows[:-1, r.B_LAST_OFFSET])
        gap = (rows[:, r.B_BASE_OFFSET] > before + 1) & (before >= 0)
        size = rows[:, r.B_LAST_OFFSET] - rows[:, r.B_BASE_OFFSET] + 1
        inside = (rows[:, r.B_MAGIC] >= _EXACT_COUNTS) & (rows[:, r.B_COUNT] < size)
        for mask, column in ((gap, r.B_BASE_OFFSET), (inside, r.B_LAST_OFFSET)):
            places = np.flatnonzero(mask)
            if len(places):
                self.highest_hole = max(
                    self.highest_hole, int(rows[places[-1], column]) - (column == r.B_BASE_OFFSET)
                )
        self._end = int(rows[-1, r.B_LAST_OFFSET])

    def ranges(self) -> np.ndarray[Any, Any]:
        """uint64[N, 4], ascending by the number of the range."""
        if not self._ranges:
            return np.empty((0, 4), np.uint64)
        rows = np.concatenate(self._ranges)
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        starts = np.flatnonzero(np.append(True, rows[1:, 0] != rows[:-1, 0]))
        summed = np.add.reduceat(rows, starts, axis=0)
        summed[:, 0] = rows[starts, 0]
        return summed

    def epochs(self) -> Int64s:
        """int64[N, 3] (epoch, first base offset, last offset)."""
        return np.array(self._epochs, np.int64).reshape(-1, 3)

    def transactions(self) -> Int64s:
        """See ``transactions_of``."""
        return transactions_of(np.concatenate(self._events) if self._events else no_rows(EVENT_COLUMNS))


def read_headers(item: ReplicaItem) -> HeadersResult:
    """Read the headers, the epochs and the transaction indexes of a replica."""
    tree, wrong = reached(item.place)
    if wrong:
        return HeadersResult(failure="elsewhere", why=wrong)
    headers = Headers()
    damages: list[Damaged] = []
    borders: list[tuple[int, int]] = []
    end, name = (item.segments[0][0] if item.segments else 0), ""
    try:
        for number, (base, size) in enumerate(item.segments):
            name = log_name(base)
            following = item.segments[number + 1][0] if number + 1 < len(item.segments) else -1
            noted = NotedDamage(records=False)
            noted.last_offset = base - 1
            with opened_for_reading(f"{item.place.stem(base)}.log", tree) as descriptor:
                walk = _HeaderWalk(read_into_from(descriptor), size, base, noted, headers)
                for _ in walk.lines():
                    pass
            end = max(end, base, walk.last + 1)
            damages += _damages(noted, name, size, walk.last, following)
            if following >= 0:
                borders.append((walk.last + 1, following))
        return HeadersResult(
            log_end=end,
            ranges=headers.ranges().tobytes(),
            epochs=headers.epochs().tobytes(),
            epoch_file=_epoch_file(item, tree).tobytes(),
            transactions=headers.transactions().tobytes(),
            index_aborts=_index_aborts(item, tree).tobytes(),
            borders=np.array(borders, np.int64).reshape(-1, 2).tobytes(),
            highest_hole=headers.highest_hole,
            damages=tuple(damages),
            batches=headers.batches,
            log_bytes=sum(size for _, size in item.segments),
        )
    except OSError as error:
        return HeadersResult(failure="unreadable", why=what_failed(item.place, error, name))


def _damages(noted: NotedDamage, name: str, size: int, last: int, following: int) -> Iterator[Damaged]:
    """The damages of one segment with the offsets that they may hold."""
    for found, before in noted.found:
        reaches_end = found.position + found.length >= size and last <= before
        tail = reaches_end and following < 0
        if tail and found.found == "zeros":
            continue  # a file that was made larger in advance
        upto = following - 1 if reaches_end else last
        yield Damaged(
            first=before + 1,
            last=-1 if tail else upto,
            tail=tail,
            text=f"{name} at {found.position}: {found.expected} was expected, found {found.found}",
        )


def _epoch_file(item: ReplicaItem, tree: Tree) -> Int64s:
    try:
        data = read_whole(f"{item.place.path}/leader-epoch-checkpoint", _EPOCHS_AT_MOST, tree)
    except FileNotFoundError:
        return no_rows(2)
    return np.array([tuple(entry) for entry in decode_epochs(data).entries], np.int64).reshape(-1, 2)


def _index_aborts(item: ReplicaItem, tree: Tree) -> Int64s:
    found = []
    for base, _ in item.segments:
        try:
            entries = read_entries(item.place, base, tree)
        except OSError as error:
            raise OSError(error.errno, why(error), f"{base:020d}.txnindex") from error
        if entries:
            view = txn_index.view(entries)
            columns = [view[name].astype(np.int64) for name in ("producer_id", "first_offset", "last_offset")]
            found.append(np.column_stack(columns))
    return np.concatenate(found) if found else no_rows(3)
