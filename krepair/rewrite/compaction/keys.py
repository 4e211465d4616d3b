"""Collects the keys of one segment: the hash of each key, and the offset of its last committed data record.

The memory is one window, one table and one buffer, however many keys there are: a full table is passed to ``on_rows``
and emptied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from krepair.formats import batch_v2
from krepair.formats.arrays import Int64s, Uint8s
from krepair.formats.batch_front import batch_front
from krepair.kernels import compact_keys as k
from krepair.kernels.compact_records import SLACK
from krepair.kernels.scan import ReadInto, fill
from krepair.rewrite.compaction.batch_records import (
    ContentBuffer,
    ContentError,
    record_problem,
    uncompressed_records,
)
from krepair.rewrite.compaction.headers import BatchNotes, NoteTaker
from krepair.rewrite.compaction.rows import BUCKETS, Rows
from krepair.scan.unpacked_batches import UnpackedBatches

WINDOW_BYTES: Final = 1 << 20
TABLE_ROWS: Final = 1 << 22
_FIRST_ROWS: Final = 1 << 14
_PACKED_ROWS: Final = 1 << 12
_NOTED_ROWS: Final = 1 << 12
BUCKET_SHIFT: Final = np.uint64(64 - 10)

Words = np.ndarray[Any, np.dtype[np.uint64]]
OnRows = Callable[[Rows, Int64s], None]
"""Function that takes the rows of one table, sorted by bucket, and the number of rows before each bucket.

A row is (first half of the key's hash, second half, offset + 1). The highest bits of the first half are the bucket.
The numbers are int64[BUCKETS + 1].
"""


class TransactionError(Exception):
    """Error: a batch belongs to a transaction, but the aborted transactions are not known yet."""


@dataclass
class KeyWalk:
    """Collector of the keys of one ``.log``.

    Attributes:
        read_into: function that fills a buffer from a file position and returns the bytes read, 0 at the end. It may
            raise ``OSError``.
        file_size: size of the log in bytes; all of it must be valid batches.
        aborted: aborted transactions as int64[N, 3] (producer id, first offset, offset of the marker), sorted by
            producer id and first offset.
        secret: uint64[2], key of the hash.
        on_rows: function that takes the rows of a table before it is emptied.
        table_rows: size of the largest table in rows, a power of two.
        notes: taker of notes on headers and records.
        aborted_known: True if ``aborted`` was determined.
        lowest: True to store the lowest offset of each key in place of the highest, see
            ``kernels.compact_keys.LARGEST``.
    """

    read_into: ReadInto
    file_size: int
    aborted: Int64s
    secret: Rows
    on_rows: OnRows
    table_rows: int = TABLE_ROWS
    notes: NoteTaker = field(default_factory=lambda: NoteTaker(0))
    aborted_known: bool = True
    lowest: bool = False
    _state: Int64s = field(default_factory=lambda: np.zeros(k.STATE_SIZE, np.int64))
    _buffer: ContentBuffer = field(default_factory=ContentBuffer)

    def run(self) -> int:
        """Walk the whole log; return the number of records without a key.

        Raises:
            ContentError: a record cannot be read.
            OSError: the file cannot be read.
        """
        self.begin()
        window: Uint8s = np.empty(WINDOW_BYTES + SLACK, np.uint8)[:WINDOW_BYTES]
        position = 0
        while position < self.file_size:
            filled = fill(self.read_into, window.data, position, self.file_size)
            self._state[k.K_PLACE] = 0
            while self._step(window, filled, position):
                pass
            if self._state[k.K_PLACE] == 0:
                raise ContentError(position, "a whole batch was expected, found the end of the file")
            self.notes.take(window, int(self._state[k.K_PLACE]))
            position += int(self._state[k.K_PLACE])
        return self.end()

    def begin(self) -> None:
        """Create the tables; all windows must then be passed to ``take``."""
        self._table = np.zeros((min(_FIRST_ROWS, self.table_rows), k.ROW_WORDS), np.uint64)
        self._rows: Rows = np.empty((min(_NOTED_ROWS, self.table_rows // 2), k.ROW_WORDS), np.uint64)
        self._sizes: Words = np.empty(len(self._rows), np.uint64)
        self._packed: Int64s = np.zeros((_PACKED_ROWS, k.PACKED_COLUMNS), np.int64)
        self._unpacked = UnpackedBatches(_PACKED_ROWS)
        self._state[k.K_ABORTED_UNKNOWN] = not self.aborted_known
        self._state[k.K_LOWEST] = self.lowest
        self._state[k.K_SIZES] = self.notes.wants_sizes
        self._position = 0

    def take(self, window: Uint8s, end: int) -> None:
        """Enter the keys of the next window of batches, which another reader has read.

        Args:
            window: uint8[W], with ``SLACK`` bytes after it.
            end: position after its last batch; more than W if it holds the start of one larger batch.

        Raises:
            ContentError: a record cannot be read.
            TransactionError: a batch belongs to a transaction, and the aborted ones are unknown.
            OSError: the file cannot be read.
        """
        self._state[k.K_PLACE] = 0
        while self._step(window, min(end, len(window)), self._position):
            pass
        if self._state[k.K_PLACE] != end:
            raise ContentError(
                self._position, "expected the batches that the scan found here, found different ones"
            )
        self.notes.take(window, end)
        self._position += end

    @property
    def noted(self) -> BatchNotes:
        """Notes on all batches of the log."""
        return self.notes.found(sizes=bool(self._state[k.K_SIZES]))

    def end(self) -> int:
        """Pass the remaining rows to ``on_rows``; return the number of records without a key."""
        self._drain()
        return int(self._state[k.K_KEYLESS])

    def _step(self, window: Uint8s, filled: int, position: int) -> bool:
        """Enter keys until the window ends or a batch needs special treatment; return whether batches remain."""
        state = self._state
        status = k.keys_window(
            window,
            filled,
            position,
            self.file_size,
            self.aborted,
            self.secret,
            self._rows,
            state,
            self._sizes,
            self._packed,
        )
        self._enter_rows()
        if state[k.K_PACKED]:
            self._unpack(window, filled, position)
        if status in (k.PACKED_FULL, k.TABLE_FULL):
            return True
        if status == k.OTHER:
            self._one(window, filled, position)
            return bool(state[k.K_PLACE] < filled)
        if status == k.TRANSACTION:
            raise TransactionError
        if status != k.NEED_BYTES:
            here = position + int(state[k.K_PLACE])
            if status == k.NO_BATCH:
                raise ContentError(here, "expected a batch, found none")
            raise ContentError(here, record_problem(status))
        return False

    def _unpack(self, window: Uint8s, filled: int, position: int) -> None:
        """Decompress the batches that the kernel has deferred, and enter their keys."""
        state, there = self._state, int(self._state[k.K_PLACE])
        count = int(state[k.K_PACKED])
        state[k.K_PACKED] = 0
        first = 0
        while first < count:
            after = self._unpacked.unpack(window, self._packed, first, count)
            self._enter(window, first, after, position)
            if after == first:
                state[k.K_PLACE] = self._packed[first, k.P_PLACE]
                self._one(window, filled, position)
                after += 1
            first = after
        state[k.K_PLACE] = there

    def _enter(self, window: Uint8s, first: int, after: int, position: int) -> None:
        """Enter the keys of batches that were decompressed."""
        while first < after:
            status, first = k.keys_of_packed(
                window, self._packed, first, after, self._unpacked.bytes, self.secret, self._rows, self._state
            )
            self._enter_rows()
            if status not in (k.TABLE_FULL, k.NEED_BYTES):
                raise ContentError(position + int(self._packed[first, k.P_PLACE]), record_problem(status))

    def _enter_rows(self) -> None:
        """Merge the collected keys into the table, and pass the packed facts of their records to ``notes``."""
        while 2 * int(self._state[k.K_KEYS] + self._state[k.K_NOTED]) > len(self._table):
            self._make_room()
        k.merge_rows(self._rows[: self._state[k.K_NOTED]], self._table, self._state)
        if self._state[k.K_SIZES] and self._state[k.K_SIZED]:
            self.notes.take_sizes(self._sizes[: self._state[k.K_SIZED]])
            self._state[k.K_SIZES] = self.notes.wants_sizes
        self._state[k.K_NOTED] = self._state[k.K_SIZED] = 0

    def _make_room(self) -> None:
        """Replace a full table by a larger table; if it has its largest size already, empty it."""
        if len(self._table) >= self.table_rows:
            self._drain()
            return
        old = self._table
        self._table = np.zeros((min(len(old) * 8, self.table_rows), k.ROW_WORDS), np.uint64)
        self._state[k.K_KEYS] = 0
        k.merge_rows(old[old[:, 2] != 0], self._table, self._state)

    def _drain(self) -> None:
        count = int(self._state[k.K_KEYS])
        if count:
            rows: Rows = np.empty((count, k.ROW_WORDS), np.uint64)
            starts = np.zeros(BUCKETS + 1, np.int64)
            k.drain_by_bucket(self._table, BUCKET_SHIFT, starts, rows)
            self.on_rows(rows, starts)
        self._state[k.K_KEYS] = 0

    def _one(self, window: Uint8s, filled: int, position: int) -> None:
        """Enter the keys of one batch that the kernel cannot handle: it is compressed, or exceeds the window."""
        place = int(self._state[k.K_PLACE])
        here = position + place
        front = batch_front(window.data, place)
        assert front is not None  # a kernel has found it
        size = front.size
        header = batch_v2.decode_header(window[place : place + batch_v2.HEADER_SIZE].tobytes())
        self._state[k.K_LAST_OFFSET] = header.base_offset - 1
        self._state[k.K_BATCH_LAST] = header.last_offset
        pieces = uncompressed_records(header.codec, window, place, size, filled, self.read_into, here)
        sizes = self._sizes[:0] if header.codec else self._sizes

        def take(buffer: Uint8s, end: int, remaining: int) -> tuple[int, int, int]:
            return self._take(buffer, end, remaining, header.base_offset, sizes)

        self._buffer.read(pieces, header.codec, header.record_count, here, take)
        self._state[k.K_PLACE] = place + size

    def _take(
        self, buffer: Uint8s, end: int, remaining: int, base_offset: int, sizes: Words
    ) -> tuple[int, int, int]:
        taken = place = 0
        status = k.TABLE_FULL
        while status == k.TABLE_FULL:
            status, more, place = k.keys_of_records(
                buffer,
                place,
                end,
                remaining - taken,
                base_offset,
                self.secret,
                self._rows,
                self._state,
                sizes,
            )
            self._enter_rows()
            taken += more
        return status, taken, place


def whole_batch(
    window: Uint8s, place: int, size: int, filled: int, read_into: ReadInto, position: int
) -> bytes:
    """Return the bytes of a batch, from the window or, if it exceeds that, from the file.

    Raises:
        ContentError: the file ends inside it.
    """
    if place + size <= filled:
        return window[place : place + size].tobytes()
    raw = bytearray(size)
    view, done = memoryview(raw), 0
    while done < size and (got := read_into(view[done:], position + done)):
        done += got
    if done < size:
        raise ContentError(position, f"a message of {size} bytes was expected, found {done} to the end")
    return bytes(raw)
