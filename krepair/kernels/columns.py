"""Reads the headers of batches of any format into columns, one row for each batch.

``krepair.derive`` computes epochs, producers, transactions and index entries from these columns. A message of v0 or v1,
plain or a wrapper, is one row: it has no producer, and the offset of a wrapper is that of its last message. The types
are narrow, so that a window and its columns stay in the second-level cache. The fastest jobs read headers themselves
(``scan_window`` and the kernels of key compaction); ``krepair.checks.walk`` shares nothing with this module.

Source: FileLogInputStream, DefaultRecordBatch, LegacyRecord, ControlRecordType (2.2.1, 3.9).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from krepair.formats import message_set
from krepair.formats.arrays import Int64s, Uint8s
from krepair.kernels.compact_records import SLACK
from krepair.kernels.crc32 import crc32_update
from krepair.kernels.jit import inlined, kernel
from krepair.kernels.large_batches import checksum_huge
from krepair.kernels.legacy import SMALLEST_BYTES
from krepair.kernels.next_batch import next_batch
from krepair.kernels.scan import ReadInto, fill
from krepair.kernels.scan_window import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    CONTROL,
    CRC,
    HEADER,
    LAST_DELTA,
    LEADER_EPOCH,
    LENGTH,
    LENGTH_END,
    MAGIC,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
)
from krepair.kernels.words import be16, be32, be64, byte_at, crc32c_of_57, crc32c_update, le64

BATCH: Final = np.dtype(
    [
        ("position", np.int64),
        ("base_offset", np.int64),
        ("last_offset", np.int64),
        ("base_timestamp", np.int64),
        ("max_timestamp", np.int64),
        ("producer_id", np.int64),
        ("size", np.int32),
        ("record_count", np.int32),
        ("leader_epoch", np.int32),
        ("base_sequence", np.int32),
        ("crc", np.uint32),
        ("computed", np.uint32),
        ("producer_epoch", np.int16),
        ("attributes", np.int16),
        ("control_type", np.int16),
        ("magic", np.uint8),
        ("problem", np.uint8),
    ],
    align=True,
)
"""Columns of a batch.

For a message of v0 or v1 ``record_count`` is -1, a missing timestamp is -1, and ``attributes`` has only the bits of its
format. ``control_type`` is ``NO_CONTROL`` for data and for a control batch without its record, and ``UNREADABLE`` if
the control record cannot be read.
"""
Batches = np.ndarray[Any, Any]
"""A window's rows of ``BATCH``: ``rows["base_offset"]`` is a column."""
_WORDS: Final = BATCH.itemsize // 8
MOST_ROWS: Final = 1 << 13
NO_CONTROL: Final = -2
UNREADABLE: Final = -1

# possible faults of a batch whose place and size can be used
OK: Final = 0
BAD_CRC: Final = 1
BAD_COUNTS: Final = 2
BAD_OFFSETS: Final = 3

# how the walk of a window ended
NEED_BYTES: Final = 0
ROWS_FULL: Final = 1
HUGE: Final = 2
SUSPECT: Final = 3
NO_BATCH: Final = 4

# state of a walk
W_PLACE: Final = 0
W_LAST_OFFSET: Final = 1
WALK_STATE: Final = 2

WINDOW_BYTES: Final = 1 << 18
FRONT: Final = HEADER + 40
"""Bytes that are read of a control batch: the header, and the record up to its key."""
_LONG_VARINTS: Final = np.uint64(
    0x8080800080
)  # bits of record length, timestamp delta, offset delta, key length
_OLD_CRC: Final = message_set.HEADER_V0.place("crc")
_OLD_CRC_START: Final = message_set.CRC_START
_OLD_TIMESTAMP: Final = message_set.HEADER_V1.place("timestamp")
_OLD_FRONT: Final = message_set.HEADER_V1.size
_CODEC: Final = message_set.CODEC_MASK
_CODEC_AND_TIME: Final = _CODEC | message_set.LOG_APPEND_TIME


@inlined
def control_type_of(buf: Any, place: Any, end: Any) -> Any:
    """Return the type in the key of the control record at a place, ``UNREADABLE`` if it cannot be read."""
    if place + 9 <= end and le64(buf, place) & _LONG_VARINTS == 0:
        return be16(buf, place + 7)  # nearly always: each of the four numbers has one byte
    for skipped in range(4):  # record length (and attributes), timestamp delta, offset delta, key length
        taken = 0
        while place < end and buf[place] >= 128 and taken < 10:
            place += 1
            taken += 1
        place += 2 if skipped == 0 else 1
    return be16(buf, place + 2) if place + 4 <= end else np.int64(UNREADABLE)


@inlined
def _read_header(buf: Any, filled: Any, place: Any, position: Any, last_offset: Any, row: Any) -> Any:
    """Fill the row of the batch or message at a place. The checksum is not checked.

    Args:
        buf: uint8[W], holds the header (61 bytes from magic 2 on, 26 for magic 1, 18 for magic 0).
        filled: number of valid bytes in the buffer.
        place: place of the header in the buffer.
        position: position of the header in the file.
        last_offset: last offset of the batch before.
        row: a row of ``BATCH``, out.
    """
    magic = np.int64(byte_at(buf, place + MAGIC))
    size = be32(buf, place + LENGTH) + LENGTH_END
    base_offset = be64(buf, place + BASE_OFFSET)
    problem = OK
    row.position = position
    row.size = size
    row.base_offset = base_offset
    row.magic = magic
    row.computed = 0
    row.control_type = NO_CONTROL
    if magic < 2:
        timestamp = be64(buf, place + _OLD_TIMESTAMP) if magic == 1 else np.int64(-1)
        row.last_offset = base_offset
        row.base_timestamp = timestamp
        row.max_timestamp = timestamp
        row.crc = be32(buf, place + _OLD_CRC)
        row.producer_id = -1
        row.producer_epoch = -1
        row.base_sequence = -1
        row.record_count = -1
        row.leader_epoch = -1
        row.attributes = byte_at(buf, place + MAGIC + 1) & (_CODEC_AND_TIME if magic == 1 else _CODEC)
    else:
        delta, count, attributes = (
            be32(buf, place + LAST_DELTA),
            be32(buf, place + RECORD_COUNT),
            be16(buf, place + ATTRIBUTES),
        )
        row.last_offset = base_offset + delta
        row.base_timestamp = be64(buf, place + BASE_TIMESTAMP)
        row.max_timestamp = be64(buf, place + MAX_TIMESTAMP)
        row.crc = be32(buf, place + CRC)
        row.producer_id = be64(buf, place + PRODUCER_ID)
        row.producer_epoch = be16(buf, place + PRODUCER_EPOCH)
        row.base_sequence = be32(buf, place + BASE_SEQUENCE)
        row.record_count = count
        row.leader_epoch = be32(buf, place + LEADER_EPOCH)
        row.attributes = attributes
        if attributes & CONTROL != 0 and count > 0:
            row.control_type = control_type_of(buf, place + HEADER, min(place + size, filled))
        if delta < 0 or count < 0:
            problem = BAD_COUNTS
    if problem == OK and base_offset <= last_offset:
        problem = BAD_OFFSETS
    row.problem = problem


@kernel("bytes, long, long, long, flag, longs, batches, long")
def read_batches(
    buf: Any, filled: Any, origin: Any, file_size: Any, whole: Any, state: Any, rows: Any, limit: Any
) -> Any:
    """Read the batches and messages in a window.

    Args:
        buf: uint8[W]; place 0 is file position ``origin``.
        filled: number of valid bytes in the buffer.
        origin: file position of place 0.
        file_size: length of the log in bytes.
        whole: True if the window must hold each batch completely, and checksums are checked. If False, the first
            ``FRONT`` bytes of a batch are enough, and the place may move past the window.
        state: int64[WALK_STATE]: place of the next batch, last offset so far; both move on.
        rows: rows of the batches, ``BATCH``[N], out.
        limit: largest number of rows to write; ``rows`` has one more.

    Returns:
        Status * 2^32 + number of rows written. ``SUSPECT``: the next batch has a wrong checksum; its row follows the
        written rows, but the walk has not passed it. ``HUGE``: the next batch is larger than the window. ``NO_BATCH``:
        no batch begins at the next place.
    """
    place = state[W_PLACE]
    last_offset = state[W_LAST_OFFSET]
    count = np.int64(0)
    status = NEED_BYTES
    while place + SMALLEST_BYTES <= filled:
        if count >= limit:
            status = ROWS_FULL
            break
        size = next_batch(buf, place, file_size - origin - place)
        if size == 0:
            status = NO_BATCH
            break
        magic = byte_at(buf, place + MAGIC)
        if place + (size if whole else min(size, FRONT) if magic == 2 else _OLD_FRONT) > filled:
            status = HUGE if whole and size > buf.shape[0] else NEED_BYTES
            break
        row = rows[np.uint64(count)]
        _read_header(buf, filled, place, origin + place, last_offset, row)
        if whole:
            if magic == 2:
                computed = (
                    crc32c_of_57(buf, place + ATTRIBUTES)
                    if size == ATTRIBUTES + 57
                    else crc32c_update(0, buf, place + ATTRIBUTES, place + size)
                )
            else:
                computed = crc32_update(0, buf, place + _OLD_CRC_START, place + size)
            if computed != np.int64(row.crc):
                row.problem = BAD_CRC
                row.computed = computed
                status = SUSPECT
                break
        last_offset = max(last_offset, row.last_offset)
        place += size
        count += 1
    state[W_PLACE] = place
    state[W_LAST_OFFSET] = last_offset
    return np.int64(status) << 32 | count


@kernel("bytes, long, long, long, batches")
def _front_row(buf: Any, filled: Any, position: Any, last_offset: Any, rows: Any) -> None:
    _read_header(buf, filled, 0, position, last_offset, rows[0])


def words_of(rows: Batches) -> Int64s:
    """Return the rows as int64[N, 10]: numpy copies and compares them ten times faster than field by field."""
    return rows.view(np.int64).reshape(-1, _WORDS)


def copy_of(*parts: Batches) -> Batches:
    """Return a copy of several parts of rows, one after another."""
    copied: Batches = np.concatenate([words_of(part) for part in parts]).view(BATCH)[:, 0]
    return copied


def front_row(window: Uint8s, position: int, last_offset: int) -> Batches:
    """Return the row of the batch at the front of a window, as ``BATCH``[1], without checking its checksum.

    Args:
        window: uint8[W], holds at least the header.
        position: position of the batch in the file.
        last_offset: last offset of the batch before.
    """
    rows = np.empty(1, BATCH)
    _front_row(window, len(window), position, last_offset, rows)
    return rows


@dataclass
class BatchWalk:
    """Walk over the batches of a log. After the iteration its attributes show where and why the walk ended.

    Attributes:
        read_into: function that fills a buffer from a file position and returns the number of bytes read, 0 at the end.
            It may raise ``OSError``.
        file_size: length of the log in bytes.
        position: position of the first batch; during and after the walk, position of the next one.
        last_offset: last offset before the walk; during it, the highest so far.
        until: position at which the walk ends, once the window that holds it is read.
        whole: True if batches are read completely, and their checksums are checked; False to read only headers.
        window_bytes: size of the window.
        window: uint8[W] that the rows were read from; ``SLACK`` bytes more can be read.
        origin: file position of the window's place 0, -1 if the batch is larger than the window.
        suspect: row of the batch with a wrong checksum that ended the walk, else None.
        rest: bytes of the last window from ``position`` on.
    """

    read_into: ReadInto
    file_size: int
    position: int = 0
    last_offset: int = -1
    until: int = 2**63 - 1
    whole: bool = False
    window_bytes: int = WINDOW_BYTES
    window: Any = b""
    origin: int = -1
    suspect: Any = None
    rest: Any = b""

    @property
    def is_at_end(self) -> bool:
        """True if the walk ended exactly at the end of the log."""
        return self.position == self.file_size

    def __iter__(self) -> Iterator[Batches]:
        """Yield the rows of at most ``MOST_ROWS`` batches at a time; they are valid until the next are requested."""
        # A window as small as the log: zeroing a large one takes longer than the walk of a small log.
        remaining = min(self.file_size, self.until + FRONT) - self.position
        size = max(min(self.window_bytes, remaining), FRONT)
        window = self.window = np.zeros(size + SLACK, np.uint8)[:size]
        rows: Batches = np.empty(min(MOST_ROWS, len(window) // SMALLEST_BYTES + 1) + 1, BATCH)
        state = np.array([0, self.last_offset], np.int64)
        status = NEED_BYTES
        while status == NEED_BYTES and self.position < min(self.file_size, self.until):
            self.origin = origin = self.position
            filled = fill(self.read_into, window.data, origin, self.file_size)
            state[W_PLACE], status = 0, ROWS_FULL
            while status == ROWS_FULL:
                packed = int(
                    read_batches(
                        window, filled, origin, self.file_size, self.whole, state, rows, len(rows) - 1
                    )
                )
                status, count = packed >> 32, packed & 0xFFFFFFFF
                self.position, self.last_offset = origin + int(state[W_PLACE]), int(state[W_LAST_OFFSET])
                if status == SUSPECT:
                    self.suspect = rows[count].copy()
                if count:
                    yield rows[:count]
            self.rest = window[int(state[W_PLACE]) : filled]
            if status == HUGE:
                status, row = NEED_BYTES, self._huge()
                if self.suspect is not None:
                    return
                state[W_LAST_OFFSET] = self.last_offset
                yield row
            elif self.position == origin:
                return

    def _huge(self) -> Batches:
        """Read the batch at ``position``, which is larger than the window."""
        filled = fill(self.read_into, self.window.data, self.position, self.file_size)
        self.origin, self.rest = -1, self.window[:filled]
        row = front_row(self.rest, self.position, self.last_offset)
        checksum = checksum_huge(self.rest, filled, self.read_into, self.position)
        if not checksum.valid:
            row["computed"], row["problem"] = checksum.computed, BAD_CRC
            self.suspect = row[0]
        else:
            self.position += int(row["size"][0])
            self.last_offset = max(self.last_offset, int(row["last_offset"][0]))
        return row
