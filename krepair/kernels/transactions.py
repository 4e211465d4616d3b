"""Finds the aborted transactions of a log from its batch headers, as a broker does when it rebuilds a ``.txnindex``.

The replay keeps the first offset of each producer's open transaction. The open transactions form a linked list in
offset order, so the last stable offset at the end of a transaction is found in one step, even if many are open.

The replay also keeps the highest offset at which a transaction may have begun. Up to 2.2.1 a cleaner may remove the
COMMIT marker of a transaction whose data it left in an earlier segment (KAFKA-8351), or leave the marker without its
record. So data before missing offsets, or before such an empty marker, may belong to an earlier transaction of the
producer; data that follows without a gap belongs to the same transaction.

Source: ProducerAppendInfo.append and appendEndTxnMarker, ProducerStateManager.lastStableOffset (2.2.1, 2.8, 3.9);
Cleaner.cleanSegments (2.2.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from krepair.formats.arrays import Int64s
from krepair.formats.batch_front import FRONT_BYTES
from krepair.kernels.columns import FRONT, control_type_of
from krepair.kernels.digests import mix
from krepair.kernels.jit import inlined, kernel
from krepair.kernels.next_batch import next_batch
from krepair.kernels.scan import ReadInto, fill
from krepair.kernels.scan_window import (
    ABORT,
    ATTRIBUTES,
    BASE_OFFSET,
    COMMIT,
    CONTROL,
    HEADER,
    LAST_DELTA,
    MAGIC,
    PRODUCER_ID,
    RECORD_COUNT,
    TRANSACTIONAL,
)
from krepair.kernels.words import be16, be32, be64

# Status with which a call of ``transactions_window`` ends.
NEED_BYTES, TABLE_FULL, OUTPUT_FULL, STOPPED = range(4)
# Elements of the state: position and counts, and head and tail of the list of open transactions.
(T_POSITION, T_ROWS, T_ENTRIES, T_HEAD, T_TAIL, T_NEXT_OFFSET, T_GAPS, T_HOLES, T_WAITING, T_WAITS) = range(
    10
)
_STATE_SIZE = 10
# Columns of a producer's row: its id, its open transaction, and that transaction's neighbours in the list.
_ID, _FIRST, _BEFORE, _AFTER, _MARKER, _LATEST, _HOLES = range(7)
_ROW_SIZE = 7
# Columns of an aborted transaction, see ``SegmentTransactions.entries``.
E_PRODUCER, E_FIRST, E_LAST, E_STABLE, E_HAS_DATA, E_MARKER, E_LATEST, E_NEXT = range(8)
_ENTRY_SIZE = 8
WINDOW_BYTES = 1 << 18  # fits into the second-level cache, so that the kernel need not wait for memory
_FIRST_ROWS = 64
_FIRST_ENTRIES = 256


@inlined
def _row_of(producer_id: int, slots: Any, rows: Any, state: Any) -> Any:
    """Return the index of a producer's row; a new producer gets a new row. -1 if the table is full."""
    mask = np.uint64(slots.shape[0] - 1)
    slot = np.int64(mix(np.uint64(producer_id)) & mask)
    while slots[slot] >= 0:
        if rows[slots[slot], _ID] == producer_id:
            return np.int64(slots[slot])
        slot = np.int64(np.uint64(slot + 1) & mask)
    row = state[T_ROWS]
    if row >= rows.shape[0]:
        return np.int64(-1)
    slots[slot] = row
    state[T_ROWS] = row + 1
    rows[row, _ID] = producer_id
    for column in range(1, _ROW_SIZE):
        rows[row, column] = -1
    return np.int64(row)


@inlined
def _link(rows: Any, row: int, state: Any) -> None:
    """Append a row to the list; its first offset must be higher than all first offsets in the list."""
    rows[row, _BEFORE] = state[T_TAIL]
    rows[row, _AFTER] = -1
    if state[T_TAIL] >= 0:
        rows[state[T_TAIL], _AFTER] = row
    else:
        state[T_HEAD] = row
    state[T_TAIL] = row


@inlined
def _unlink(rows: Any, row: int, state: Any) -> None:
    before, after = rows[row, _BEFORE], rows[row, _AFTER]
    if before >= 0:
        rows[before, _AFTER] = after
    else:
        state[T_HEAD] = after
    if after >= 0:
        rows[after, _BEFORE] = before
    else:
        state[T_TAIL] = before


@inlined
def _note_next(entries: Any, state: Any, producer_id: int, base_offset: int) -> None:
    """Enter the start of a transaction into those entries of other producers that have no next transaction yet.

    ``T_WAITING`` is the first such entry. ``T_WAITS`` is the producer id of all such entries, -1 if they have several:
    so a producer that aborts again and again need not examine its own entries each time.
    """
    if state[T_WAITS] == producer_id:
        return
    waiting = state[T_ENTRIES]
    for entry in range(state[T_WAITING], state[T_ENTRIES]):
        if entries[entry, E_NEXT] < 0:
            if entries[entry, E_PRODUCER] != producer_id:
                entries[entry, E_NEXT] = base_offset
            elif waiting == state[T_ENTRIES]:
                waiting = entry
    state[T_WAITING] = waiting
    state[T_WAITS] = producer_id


@kernel("ints, rows, long")
def rehash(slots: Any, rows: Any, count: int) -> None:
    """Enter rows 0..count-1 into empty hash slots; see ``transactions_window`` for the shapes."""
    mask = np.uint64(slots.shape[0] - 1)
    for row in range(count):
        slot = np.int64(mix(np.uint64(rows[row, _ID])) & mask)
        while slots[slot] >= 0:
            slot = np.int64(np.uint64(slot + 1) & mask)
        slots[slot] = row


@kernel("bytes, long, long, long, longs, rows, ints, rows")
def transactions_window(buf: Any, filled: int, origin: int, file_size: int, state: Any, rows: Any, slots: Any,
                        entries: Any) -> int:  # fmt: skip
    """Replay the batches whose headers lie in a window.

    Args:
        buf: uint8[W]; place 0 is file position ``origin``.
        filled: number of valid bytes in the buffer.
        origin: file position of place 0.
        file_size: bytes of the log; all of them must be valid batches with ascending offsets.
        state: int64[10]; ``T_POSITION`` is the next batch and may lie past the window.
        rows: int64[R, 7], one per producer id.
        slots: int32[2**k], hash slots into ``rows``, -1 empty.
        entries: int64[N, 8], out, see ``SegmentTransactions``.

    Returns:
        NEED_BYTES at the end of the window; TABLE_FULL or OUTPUT_FULL if ``rows`` or ``entries`` must grow; STOPPED if
        no whole batch with a higher offset begins at the position.
    """
    position = state[T_POSITION]
    status = NEED_BYTES
    while position < file_size:
        place = position - origin
        if place + FRONT_BYTES > filled:
            break
        size = next_batch(buf, place, file_size - position)
        if size == 0:
            status = STOPPED
            break
        base_offset = be64(buf, place + BASE_OFFSET)
        if base_offset < state[T_NEXT_OFFSET]:  # offsets go back: entries from here on would be wrong
            status = STOPPED
            break
        if buf[place + MAGIC] < 2:
            state[T_NEXT_OFFSET] = base_offset + 1  # a wrapper holds several offsets: no gap is counted
            state[T_HOLES] += 1  # but there may be one
            position += size
            continue
        if place + min(size, FRONT) > filled:
            break
        attributes = be16(buf, place + ATTRIBUTES)
        count = be32(buf, place + RECORD_COUNT)
        last_delta = be32(buf, place + LAST_DELTA)
        producer_id = be64(buf, place + PRODUCER_ID)
        if base_offset != state[T_NEXT_OFFSET]:
            state[T_HOLES] += 1
        if producer_id >= 0 and attributes & (TRANSACTIONAL | CONTROL) != 0:
            if state[T_ENTRIES] >= entries.shape[0]:
                status = OUTPUT_FULL
                break
            row = _row_of(producer_id, slots, rows, state)
            if row < 0:
                status = TABLE_FULL
                break
            if attributes & CONTROL == 0:
                if rows[row, _FIRST] < 0:
                    rows[row, _FIRST] = rows[row, _LATEST] = base_offset
                    _link(rows, row, state)
                    _note_next(entries, state, producer_id, base_offset)
                elif rows[row, _HOLES] != state[T_HOLES]:
                    rows[row, _LATEST] = base_offset
                rows[row, _HOLES] = state[T_HOLES]
            elif count == 0:
                rows[row, _HOLES] = -1
            else:
                kind = control_type_of(buf, place + HEADER, min(place + size, filled))
                if kind in (ABORT, COMMIT):
                    first = rows[row, _FIRST]
                    if first >= 0:
                        _unlink(rows, row, state)
                    if kind == ABORT:
                        entry = state[T_ENTRIES]
                        entries[entry, E_PRODUCER] = producer_id
                        entries[entry, E_FIRST] = first if first >= 0 else base_offset
                        entries[entry, E_LAST] = base_offset
                        entries[entry, E_STABLE] = base_offset + 1
                        if state[T_HEAD] >= 0:
                            entries[entry, E_STABLE] = rows[state[T_HEAD], _FIRST]
                        entries[entry, E_HAS_DATA] = 1 if first >= 0 else 0
                        entries[entry, E_MARKER] = rows[row, _MARKER]
                        entries[entry, E_LATEST] = base_offset
                        if first >= 0 and rows[row, _HOLES] == state[T_HOLES]:
                            entries[entry, E_LATEST] = rows[row, _LATEST]
                        entries[entry, E_NEXT] = -1
                        if state[T_WAITING] == entry:
                            state[T_WAITS] = producer_id
                        elif state[T_WAITS] != producer_id:
                            state[T_WAITS] = -1
                        state[T_ENTRIES] = entry + 1
                    rows[row, _FIRST] = -1
                    rows[row, _MARKER] = base_offset
        if base_offset != state[T_NEXT_OFFSET] or count != last_delta + 1:
            state[T_GAPS] += 1
        state[T_NEXT_OFFSET] = base_offset + last_delta + 1
        position += size
    state[T_POSITION] = position
    return status


@dataclass(frozen=True)
class SegmentTransactions:
    """Result of the replay of one segment.

    Attributes:
        entries: int64[N, 8] (producer id, first offset, offset of the abort marker, last stable offset, whether the
            transaction has data; without data its first offset is that of the marker; offset of the producer's previous
            marker, -1 if none; highest offset at which the transaction may have begun; offset at which the next
            transaction of another producer begins in the segment, -1 if none does), in the order of the abort markers.
        gaps: number of batches with missing offsets in them or before them, which a cleaner removed.
        valid_bytes: position at which the replay ended.
    """

    entries: Int64s
    gaps: int
    valid_bytes: int


class TransactionReplay:
    """Replay of segments in offset order. Its memory grows with the producer ids and the aborted transactions.

    Args:
        next_offset: offset at which the log starts; if the first batch is above it, that counts as a gap.
        window_bytes: size of the window.
    """

    def __init__(self, next_offset: int, *, window_bytes: int = WINDOW_BYTES) -> None:
        self._state = np.zeros(_STATE_SIZE, np.int64)
        self._state[T_HEAD] = self._state[T_TAIL] = -1
        self._state[T_NEXT_OFFSET] = next_offset
        self._window: Any = np.empty(max(window_bytes, 2 * FRONT), np.uint8)
        self._rows: Int64s = np.empty((_FIRST_ROWS, _ROW_SIZE), np.int64)
        self._slots = np.full(_FIRST_ROWS * 4, -1, np.int32)

    def segment(self, file_size: int, read_into: ReadInto) -> SegmentTransactions:
        """Replay the next segment.

        Args:
            file_size: bytes of its log that are valid batches.
            read_into: function that fills a buffer from a file position; returns bytes read, 0 at the end. It may raise
                ``OSError``.

        Raises:
            OSError: ``read_into`` has raised it.
        """
        state = self._state
        state[T_POSITION] = state[T_ENTRIES] = state[T_GAPS] = state[T_WAITING] = 0
        entries: Int64s = np.empty((_FIRST_ENTRIES, _ENTRY_SIZE), np.int64)
        view = memoryview(self._window)
        while state[T_POSITION] < file_size:
            origin = int(state[T_POSITION])
            filled = fill(read_into, view, origin, file_size)
            status = TABLE_FULL
            while status in (TABLE_FULL, OUTPUT_FULL):
                status = transactions_window(
                    self._window,
                    filled,
                    origin,
                    file_size,
                    state,
                    self._rows,
                    self._slots,
                    entries,
                )
                if status == TABLE_FULL:
                    self._grow_rows()
                elif status == OUTPUT_FULL:
                    entries = _grown(entries)
            if status == STOPPED or state[T_POSITION] == origin:
                break
        return SegmentTransactions(
            entries[: state[T_ENTRIES]].copy(), int(state[T_GAPS]), int(state[T_POSITION])
        )

    def _grow_rows(self) -> None:
        self._rows = _grown(self._rows)
        self._slots = np.full(len(self._rows) * 4, -1, np.int32)
        rehash(self._slots, self._rows, int(self._state[T_ROWS]))


def _grown(table: Int64s) -> Int64s:
    larger = np.empty((len(table) * 4, table.shape[1]), np.int64)
    larger[: len(table)] = table
    return larger
