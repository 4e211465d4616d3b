"""The tasks that read a replica's batch headers: every checksum is checked, and no record is parsed.

The result is a ``ReplicaHeaders``: sums of batches by ranges of offsets (``derive.sums``), leader epochs, transactions,
damage. The second half finds the markers of a log that must be kept because other replicas need them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from krepair.checks.walk import NotWholeError, headers_of
from krepair.derive.epochs import EPOCH_COLUMNS, EpochRuns
from krepair.derive.sums import RANGE_COLUMNS, joined_ranges, ranges_of
from krepair.derive.transactions import (
    EVENT_COLUMNS,
    TRANSACTION_COLUMNS,
    aborts_with_data,
    events_of,
    no_rows,
    parted,
    runs_of,
    settled,
    transactions_of,
)
from krepair.durable.scratch import SpilledRows, spilled
from krepair.durable.tree import Tree
from krepair.engine.engine import Engine
from krepair.engine.items import Failed, LogsItem, Place
from krepair.engine.place import with_log_dir, with_log_dir_as
from krepair.engine.progress import shown_as
from krepair.formats import batch_v2
from krepair.formats.arrays import Int64s, Uint64s
from krepair.formats.batch_v2 import MAGIC
from krepair.formats.checkpoint import decode_epochs
from krepair.formats.damage import Damage
from krepair.formats.filenames import log_name, segment_name
from krepair.formats.java_numbers import INT32_MAX
from krepair.kernels.columns import BAD_CRC, Batches
from krepair.logdir.reading import opened_for_reading, read_into_from, read_whole
from krepair.replicas.items import ReplicaItem, map_in_parts
from krepair.rules.replicas.replica import START_COLUMNS, DamagedOffsets, ReplicaHeaders, table
from krepair.scan.log_records import BatchesRead, DamageRead, LogRecords, RecordOptions
from krepair.scan.segment_files import aborts_in, sound_entries

_MOST_DAMAGES: Final = 100
"""Largest number of damaged ranges that are kept of one log."""
_SETTLE_ROWS: Final = 1 << 18
"""Number of collected events above which they are reduced to transactions, to limit memory."""
_FOLD_RANGES: Final = 1 << 12
"""Number of collected parts above which their sums by range are merged, to limit memory."""
_EPOCHS_AT_MOST: Final = 64 << 20
_HEADERS_ONLY: Final = RecordOptions(records=False, wrong_crc=True)


class DamageCollector:
    """Collector of the damaged ranges of one log, with the offsets before and after each.

    Attributes:
        found: (range, last offset before it, first offset after it or -1), ascending; at most ``_MOST_DAMAGES``.
        damages: number of all damaged ranges.
        last_offset: last offset of the last valid batch so far.
    """

    def __init__(self, last_offset: int) -> None:
        self.found: list[tuple[Damage, int, int]] = []
        self.damages = 0
        self.last_offset = last_offset

    def damage(self, damaged: Damage) -> None:
        """Add a range. Above the limit, the last range in ``found`` represents all later ranges."""
        self.damages += 1
        if self.damages <= _MOST_DAMAGES:
            self.found.append((damaged, self.last_offset, -1))
        else:
            last, before, _ = self.found[-1]
            self.found[-1] = (last, before, -1)

    def resume(self, offset: int) -> None:
        """Record the offset at which valid batches begin again after the last damage."""
        for index in range(len(self.found) - 1, -1, -1):
            damaged, before, after = self.found[index]
            if after >= 0 and not (index == len(self.found) - 1 and self.damages > _MOST_DAMAGES):
                break
            self.found[index] = (damaged, before, offset)


class Headers:
    """Collector of facts from a replica's batch headers, window by window.

    Args:
        evidence: True to collect the runs of data window by window, and only the aborted transactions.
    """

    def __init__(self, *, evidence: bool) -> None:
        self.batches = 0
        self.first_offset = -1
        self.last_offset = -1
        self.highest_hole = -1
        self.cleaned_to = -1
        self._evidence = evidence
        self._runs: list[Int64s] = []
        self._ranges: list[Uint64s] = []
        self._epochs = EpochRuns()
        self._settled: list[Int64s] = [no_rows(TRANSACTION_COLUMNS)]
        self._events: list[Int64s] = [no_rows(EVENT_COLUMNS)]
        self._event_rows = 0
        self._settle_at = _SETTLE_ROWS

    def take(self, rows: Batches) -> None:
        """Add batches in offset order, at least one."""
        if self.first_offset < 0:
            self.first_offset = int(rows["base_offset"][0])
        self.batches += len(rows)
        self._note_holes(rows)
        self._ranges.append(ranges_of(rows))
        self._epochs.take(rows)
        events = events_of(rows)
        if len(events):
            if self._evidence:
                self._runs.append(runs_of(events))
            self._events.append(events)
            self._event_rows += len(events)
            if self._event_rows > self._settle_at:
                self._reduce_events()
        if len(self._ranges) > _FOLD_RANGES:
            self._ranges = [joined_ranges(self._ranges)]

    def _note_holes(self, rows: Batches) -> None:
        """Record missing offsets. A batch with fewer records than offsets was cleaned: brokers number without gaps."""
        base, last = rows["base_offset"], rows["last_offset"]
        before = np.append(self.last_offset, last[:-1])
        missing = base[(before >= 0) & (base > before + 1)] - 1
        fewer = last[(rows["record_count"] < last - base + 1) & (rows["magic"] >= MAGIC)]
        self.cleaned_to = max(self.cleaned_to, int(fewer.max(initial=-2)) + 1)
        self.highest_hole = max(self.highest_hole, int(missing.max(initial=-1)), int(fewer.max(initial=-1)))
        self.last_offset = int(last[-1])

    def ranges(self) -> Uint64s:
        """Return the sums, uint64[N, RANGE_COLUMNS], ascending by range number."""
        return joined_ranges(self._ranges)

    def epochs(self) -> Int64s:
        """Return the runs, int64[N, EPOCH_COLUMNS] (epoch, first base offset, last offset)."""
        return self._epochs.rows

    def new_runs(self) -> Iterator[Int64s]:
        """Yield the runs of each window added since the last call, int64[N, 3], see ``runs_of``."""
        runs, self._runs = self._runs, []
        yield from runs

    def transactions(self) -> tuple[Int64s, Int64s]:
        """Return (transactions that no other segment changes, events of the others); see ``settled``."""
        self._reduce_events()
        return np.concatenate(self._settled), self._events[0]

    def _reduce_events(self) -> None:
        """Turn the events of complete transactions into transactions, which need less memory."""
        rows, events = settled(np.concatenate(self._events))
        if self._evidence:
            rows = rows[aborts_with_data(rows)]
        self._settled.append(rows)
        self._events, self._event_rows = [events], len(events)
        self._settle_at = max(_SETTLE_ROWS, 2 * len(events))


@shown_as("headers")
@with_log_dir_as(ReplicaHeaders)
def read_headers(item: ReplicaItem, tree: Tree) -> ReplicaHeaders:
    """Read the headers, the epochs and the transaction indexes of a replica, or of some of its segments."""
    reading = _Reading(item, tree)
    runs = spilled(reading.runs(), item.scratch, "runs")
    headers = reading.headers
    transactions, events = headers.transactions()
    return ReplicaHeaders(
        log_end=reading.log_end,
        first_offset=headers.first_offset,
        last_offset=headers.last_offset,
        ranges=headers.ranges().tobytes(),
        epochs=headers.epochs().tobytes(),
        epoch_file=_epoch_starts(item.place, tree).tobytes(),
        transactions=transactions.tobytes(),
        events=events.tobytes(),
        runs=(runs,) if runs.path or runs.data else (),
        index_aborts=_index_aborts(item, tree).tobytes(),
        borders=np.array(reading.borders, np.int64).reshape(-1, 2).tobytes(),
        highest_hole=headers.highest_hole,
        cleaned_to=headers.cleaned_to,
        damages=tuple(reading.damages),
        batches=headers.batches,
        log_bytes=sum(size for _, size in item.segments),
    )


class _Reading:
    """One reading of an item's logs; its results are complete once ``runs`` is exhausted."""

    def __init__(self, item: ReplicaItem, tree: Tree) -> None:
        self.headers = Headers(evidence=item.evidence)
        self.damages: list[DamagedOffsets] = []
        self.borders: list[tuple[int, int]] = []
        self.log_end = item.segments[0][0] if item.segments else 0
        self._item, self._tree = item, tree

    def runs(self) -> Iterator[Int64s]:
        """Yield the runs of data, window by window; none if they are not wanted."""
        item = self._item
        for number, (base, size) in enumerate(item.segments):
            following = item.segments[number + 1][0] if number + 1 < len(item.segments) else item.following
            noted, last = DamageCollector(base - 1), base - 1
            with opened_for_reading(f"{item.place.stem(base)}.log", self._tree) as descriptor:
                for part in LogRecords(read_into_from(descriptor), size, base, _HEADERS_ONLY).parts():
                    if isinstance(part, DamageRead):
                        noted.damage(part.damage)
                    if not isinstance(part, BatchesRead):
                        continue
                    rows = part.batches
                    if not rows["problem"].any():
                        if noted.found:
                            noted.resume(int(rows["base_offset"][0]))
                        last = noted.last_offset = int(rows["last_offset"][-1])
                        self.headers.take(rows)
                        yield from self.headers.new_runs()
                    elif (
                        rows["problem"][0] == BAD_CRC
                        and 0 <= rows["last_offset"][0] - rows["base_offset"][0] <= INT32_MAX
                    ):
                        last = max(last, int(rows["last_offset"][0]))
            self.log_end = max(self.log_end, base, last + 1)
            self.damages += _damaged_offsets(
                noted, log_name(base), size, last, following, zeros_too=item.evidence
            )
            if following >= 0:
                self.borders.append((last + 1, following))
        yield from self.headers.new_runs()


def joined_headers(parts: Sequence[ReplicaHeaders]) -> ReplicaHeaders:
    """Join the parts of one replica, which were read in offset order."""
    failed = next((part for part in parts if part.failure), None)
    if failed is not None:
        return failed
    epochs = EpochRuns()
    hole, last = -1, -1
    for part in parts:
        epochs.add(table(part.epochs, EPOCH_COLUMNS))
        if 0 <= last < part.first_offset - 1:
            hole = max(hole, part.first_offset - 1)
        hole, last = max(hole, part.highest_hole), max(last, part.last_offset)
    ranges = joined_ranges([table(part.ranges, RANGE_COLUMNS).view(np.uint64) for part in parts])
    events = np.concatenate([table(part.events, EVENT_COLUMNS) for part in parts])
    of_parts = [table(part.transactions, TRANSACTION_COLUMNS) for part in parts]
    index_aborts = b"".join(part.index_aborts for part in parts)
    transactions = np.concatenate([transactions_of(events), *of_parts])
    return ReplicaHeaders(
        log_end=max(part.log_end for part in parts),
        first_offset=next((part.first_offset for part in parts if part.first_offset >= 0), -1),
        last_offset=last,
        ranges=ranges.tobytes(),
        epochs=epochs.rows.tobytes(),
        epoch_file=parts[0].epoch_file,
        transactions=parted(transactions, hole, table(index_aborts, 3)).tobytes(),
        runs=tuple(runs for part in parts for runs in part.runs),
        index_aborts=index_aborts,
        borders=b"".join(part.borders for part in parts),
        highest_hole=hole,
        cleaned_to=max(part.cleaned_to for part in parts),
        damages=tuple(damage for part in parts for damage in part.damages),
        batches=sum(part.batches for part in parts),
        log_bytes=sum(part.log_bytes for part in parts),
    )


def read_headers_of_all(engine: Engine, items: Sequence[ReplicaItem]) -> Iterator[tuple[int, ReplicaHeaders]]:
    """Yield (index of the item, headers of its replica) in any order."""
    return map_in_parts(engine, read_headers, items, joined_headers)


def _damaged_offsets(
    noted: DamageCollector, name: str, size: int, last: int, following: int, *, zeros_too: bool
) -> Iterator[DamagedOffsets]:
    """Yield the damages of one segment with the offsets that they may hold."""
    for damaged, before, after in noted.found:
        tail = after < 0 and following < 0 and last <= before and damaged.position + damaged.length >= size
        if tail and damaged.found == "zeros" and not zeros_too:
            continue  # space that was preallocated
        next_one = after if after >= 0 else following
        upto = next_one - 1 if next_one >= 0 else max(last, before + 1)
        yield DamagedOffsets(
            first=before + 1,
            last=-1 if tail else upto,
            tail=tail,
            text=f"{name} at {damaged.position}: {damaged.text}",
        )


def _index_aborts(item: ReplicaItem, tree: Tree) -> Int64s:
    aborts = [no_rows(3)]
    for base, _ in item.segments:
        try:
            aborts.append(aborts_in(sound_entries(item.place, base, tree).data))
        except OSError as error:
            raise OSError(error.errno, error.strerror, segment_name(base, ".txnindex")) from error
    return np.concatenate(aborts)


def _epoch_starts(place: Place, tree: Tree) -> Int64s:
    """Read (leader epoch, start offset) of ``leader-epoch-checkpoint``, int64[M, 2]; empty if it is missing.

    Raises:
        OSError: the file cannot be read, or is larger than any broker writes it.
    """
    try:
        data = read_whole(f"{place.path}/leader-epoch-checkpoint", _EPOCHS_AT_MOST, tree)
    except FileNotFoundError:
        return np.empty((0, START_COLUMNS), np.int64)
    rows = [tuple(entry) for entry in decode_epochs(data).entries]
    return np.array(rows, np.int64).reshape(-1, START_COLUMNS)


# -- markers of a log that have to be kept because another replica still holds data of their transactions
#
# A marker may be removed only if no other replica holds a batch of its transaction, with or without records: such a
# replica would never end the transaction, or would end it by the next marker of the producer. For another replica it is
# enough to know the runs in which each producer has data without a marker in between. The first marker of the producer
# after such a run, on this replica, ends it. A replica that has lost a marker has several transactions in one run:
# then the markers inside the run are kept as well.
#
# The log is read in the order of offsets, so that only one window of its markers is held in memory: a log may
# consist of little else.
#
# Source: ProducerAppendInfo.append and appendDataBatch (2.2.1, 3.9.2, 4.3.1).

RUN_COLUMNS: Final = 3
_PIECE: Final = 1 << 14
_NO_RUNS: Final = np.empty((0, RUN_COLUMNS), np.int64)
_NO_OFFSETS: Final = np.empty(0, np.int64)


@shown_as("markers")
@with_log_dir
def find_markers_to_keep(
    item: LogsItem, tree: Tree, runs: tuple[tuple[SpilledRows, ...], ...]
) -> Int64s | Failed:
    """Find the markers to keep: for each run of data on another replica, the markers in the run and the next one.

    Args:
        item: log whose markers are examined; sizes count valid batches.
        runs: runs of each other replica, see ``ReplicaHeaders``.
    """
    kept = [_NO_OFFSETS]
    waiting = _UnendedRuns(runs)
    try:
        for path, size in item.logs:
            for headers in headers_of(path, size, tree):
                if len(headers):
                    kept.append(waiting.ended_by(_markers(headers), int(headers["base_offset"][-1])))
    except NotWholeError as change:
        return Failed("changed", str(change))
    return np.unique(np.concatenate(kept))


def _markers(headers: Any) -> Int64s:
    """Return int64[M, 2] (producer id, offset) of the markers that still hold their record."""
    both = batch_v2.CONTROL | batch_v2.TRANSACTIONAL
    is_marker = (headers["attributes"] & both == both) & (headers["producer_id"] >= 0)
    markers = headers[is_marker & (headers["record_count"] > 0)]
    return np.column_stack([markers["producer_id"].astype(np.int64), markers["base_offset"].astype(np.int64)])


class _UnendedRuns:
    """Runs of other replicas that no marker has ended yet, while the log is read in offset order.

    Args:
        runs: runs of each other replica, see ``ReplicaHeaders``.
    """

    def __init__(self, runs: Sequence[Sequence[SpilledRows]]) -> None:
        self._replicas = [_RunsOfReplica(parts) for parts in runs]
        self._open: Int64s = _NO_RUNS

    def ended_by(self, markers: Int64s, last: int) -> Int64s:
        """Return the offsets of those markers of the next window that end a run, or lie inside a run.

        Args:
            markers: int64[M, 2], markers of the next window.
            last: last offset of the window.
        """
        runs = np.concatenate(
            [self._open, *(piece for replica in self._replicas for piece in replica.up_to(last))]
        )
        ends = np.column_stack([markers, np.full(len(markers), -1, np.int64)])
        events = np.concatenate([runs, ends])
        is_marker = np.arange(len(events)) >= len(runs)
        # a run that begins at the offset of a marker comes after that marker
        order = np.lexsort((~is_marker, events[:, 1], events[:, 0]))
        producers, offsets, lasts = events[order].T
        is_marker = is_marker[order]
        begins = np.ones(len(order), bool)
        begins[1:] = producers[1:] != producers[:-1]
        groups = np.cumsum(begins) - 1
        data_to = _running_maximum(lasts, groups)  # of the runs that began before
        marked_to = _running_maximum(np.where(is_marker, offsets, -1), groups)
        before = np.append(np.int64(-1), marked_to[:-1])
        before[begins] = -1
        is_last = np.append(begins[1:], True)[: len(order)]
        waits = is_last & (data_to > marked_to)
        self._open = np.column_stack(
            [producers[waits], np.full(int(waits.sum()), -1, np.int64), data_to[waits]]
        )
        needed: Int64s = offsets[is_marker & (data_to > before)]
        return needed


def _running_maximum(values: Int64s, groups: Int64s) -> Int64s:
    """Return, for each element, the greatest value up to it in its group.

    Args:
        groups: int64[N], ascending from 0.
    """
    known, ranks = np.unique(values, return_inverse=True)
    shifted = groups * len(known)
    greatest: Int64s = known[np.maximum.accumulate(shifted + ranks) - shifted]
    return greatest


class _RunsOfReplica:
    """Runs of one replica, read forward, a piece at a time.

    Args:
        parts: consecutive parts of the runs.
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
        """Yield the rows up to an offset that were not returned yet."""
        while True:
            if len(self._piece) == 0:
                self._piece = next(self._pieces, _NO_RUNS)
            count = int(np.searchsorted(self._piece[:, 1], last, "right"))
            yield self._piece[:count]
            self._piece = self._piece[count:]
            if count == 0 or len(self._piece):
                return
