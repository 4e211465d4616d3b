"""Reads a ``.log`` as ``LogSegment.recover`` does: checks each batch and makes the entries of both indexes.

It walks once over the batches of every format: length, checksum, offset range, largest timestamp, index entries. A v0
or v1 message counts by its own header, even if it is a wrapper. Recovery (2.2.1, 3.9) reads the offset of the wrapper,
which is the offset of its last message, and the timestamp of the wrapper. It does not decompress. A v0 message has
timestamp -1.

Source: LogSegment.recover, FileLogInputStream.nextBatch, AbstractLegacyRecordBatch, TimeIndex.maybeAppend (2.2.1, 3.9).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from krepair.formats.arrays import Int64s, Uint8s
from krepair.formats.java_numbers import INT32_MAX
from krepair.kernels import classes as c
from krepair.kernels.crc32 import crc32_update
from krepair.kernels.jit import kernel
from krepair.kernels.large_batches import checksum_huge
from krepair.kernels.legacy import (
    FIXED,
    OLD_CRC,
    OLD_CRC_START,
    OLD_MIN_LENGTH_V0,
    OLD_MIN_LENGTH_V1,
    OLD_TIMESTAMP,
)
from krepair.kernels.next_batch import next_batch
from krepair.kernels.scan import DAMAGE_TEXT, ReadInto
from krepair.kernels.scan_window import (
    ATTRIBUTES,
    CRC,
    HEADER,
    LAST_DELTA,
    LENGTH,
    LENGTH_END,
    MAGIC,
    MAX_TIMESTAMP,
    MIN_LENGTH,
)
from krepair.kernels.words import be32, be64, crc32c_update

(R_PLACE, R_ORIGIN, R_LAST_ENTRY, R_LARGEST, R_OFFSET_OF_LARGEST, R_LAST_TIMESTAMP, R_OFFSETS, R_TIMES, R_LAST_OFFSET,
 R_DAMAGE, R_FOUND, R_HUGE_OK, R_BATCHES, R_OLD) = range(14)  # fmt: skip
_STATE_SIZE = 14
WINDOW_BYTES = 1 << 18  # fits the second-level cache, so that what was read is not read from memory again
_FIRST_ENTRIES = 1024


@kernel
def recover_window(buf: Any, filled: int, state: Any, base_offset: int, file_size: int, interval_bytes: int,
                   check_crc: bool, offsets: Any, times: Any) -> int:  # fmt: skip
    """Walk the batches that lie whole in ``buf[state[R_PLACE]:filled]``.

    Args:
        buf: uint8[W]; place 0 is file position ``state[R_ORIGIN]``.
        filled: bytes of it that are valid.
        state: int64[14], carried from window to window.
        base_offset: base offset of the segment.
        file_size: bytes of the log.
        interval_bytes: ``index.interval.bytes``.
        check_crc: whether checksums are checked.
        offsets: int64[N, 2], out: (last offset, position).
        times: int64[N, 2], out: (timestamp, offset).

    Returns:
        NEED_BYTES, OUTPUT_FULL, HUGE or DAMAGE of ``classes``. The batch at ``R_PLACE`` is untouched.
    """
    place = state[R_PLACE]
    origin = state[R_ORIGIN]
    last_entry = state[R_LAST_ENTRY]
    largest = state[R_LARGEST]
    previous_offset = state[R_LAST_OFFSET]
    huge_position = state[R_HUGE_OK]
    batches = state[R_BATCHES]
    status = c.NEED_BYTES
    while place + FIXED <= filled:
        if state[R_OFFSETS] >= offsets.shape[0] or state[R_TIMES] >= times.shape[0]:
            status = c.OUTPUT_FULL
            break
        magic = buf[place + MAGIC]
        position = origin + place
        if place + HEADER > filled and (magic > 1 or be32(buf, place + LENGTH) < OLD_MIN_LENGTH_V0):
            break
        damage = c.D_NONE
        found: Any = np.int64(0)
        size = next_batch(buf, place, file_size - position)
        if size == 0:
            length = be32(buf, place + LENGTH)
            found = length
            if magic > 2:
                damage, found = c.D_MAGIC, np.int64(magic)
            elif length == 0 and be64(buf, place) == 0:
                damage, found = c.D_ZEROS, 0
            elif length < (
                MIN_LENGTH if magic == 2 else OLD_MIN_LENGTH_V1 if magic == 1 else OLD_MIN_LENGTH_V0
            ):
                damage = c.D_LENGTH if magic == 2 else c.D_OLD_LENGTH
            else:
                damage, found = c.D_PAST_END, length + LENGTH_END
            state[R_DAMAGE], state[R_FOUND] = damage, found
            status = c.DAMAGE
            break
        end = place + size
        huge = huge_position == position
        if end > filled and not huge:
            if size > buf.shape[0]:
                status = c.HUGE
            break
        if magic == 2:
            if check_crc and not huge:
                found = crc32c_update(0, buf, place + ATTRIBUTES, end)
                if found != (be32(buf, place + CRC) & 0xFFFFFFFF):
                    damage = c.D_CRC
            last_offset = be64(buf, place) + be32(buf, place + LAST_DELTA)
            timestamp = be64(buf, place + MAX_TIMESTAMP)
        else:
            if check_crc and not huge:
                found = crc32_update(0, buf, place + OLD_CRC_START, end)
                if found != (be32(buf, place + OLD_CRC) & 0xFFFFFFFF):
                    damage = c.D_OLD_CRC
            last_offset = be64(buf, place)
            timestamp = be64(buf, place + OLD_TIMESTAMP) if magic == 1 else np.int64(-1)
            state[R_OLD] += 1
        if damage == c.D_NONE:
            first_offset = be64(buf, place)
            if last_offset < first_offset:
                damage, found = c.D_COUNTS, last_offset - first_offset
            elif first_offset < base_offset or last_offset - base_offset > INT32_MAX:
                damage = c.D_OFFSET_RANGE
                found = first_offset if first_offset < base_offset else last_offset
            elif first_offset <= previous_offset:
                damage, found = c.D_OFFSET_ORDER, first_offset
        if damage != c.D_NONE:
            state[R_DAMAGE], state[R_FOUND] = damage, found
            status = c.DAMAGE
            break
        if timestamp > largest:
            largest = timestamp
            state[R_OFFSET_OF_LARGEST] = last_offset
        if position - last_entry > interval_bytes:
            offsets[state[R_OFFSETS], 0] = last_offset
            offsets[state[R_OFFSETS], 1] = position
            state[R_OFFSETS] += 1
            if largest > state[R_LAST_TIMESTAMP]:
                times[state[R_TIMES], 0] = largest
                times[state[R_TIMES], 1] = state[R_OFFSET_OF_LARGEST]
                state[R_TIMES] += 1
                state[R_LAST_TIMESTAMP] = largest
            last_entry = position
        previous_offset = last_offset
        batches += 1
        place = end
    state[R_PLACE] = place
    state[R_LAST_ENTRY] = last_entry
    state[R_LARGEST] = largest
    state[R_LAST_OFFSET] = previous_offset
    state[R_BATCHES] = batches
    return status


@kernel
def enter_batches(buf: Any, starts: Any, first: int, origin: int, interval_bytes: int, state: Any, columns: Any,
                  offsets: Any, times: Any) -> Any:  # fmt: skip
    """Make the index entries of batches that a scan has found valid, as ``recover_window`` makes them.

    Args:
        buf: uint8[W]; place 0 is file position ``origin``.
        starts: int32[N], places of the batches. A batch larger than the window comes alone, only its header is there.
        first: index of the batch to begin with.
        origin: file position of place 0.
        interval_bytes: ``index.interval.bytes``.
        state: int64[14], carried from window to window.
        columns: int64[3, M], out: position, last offset and timestamp of each batch, M at least N.
        offsets: int64[R, 2], out: (last offset, position).
        times: int64[S, 2], out: (timestamp, offset).

    Returns:
        N; if ``offsets`` or ``times`` is full, the index of the next batch.
    """
    last_entry, largest = state[R_LAST_ENTRY], state[R_LARGEST]
    number = np.int64(first)
    while number < starts.shape[0]:
        if state[R_OFFSETS] >= offsets.shape[0] or state[R_TIMES] >= times.shape[0]:
            break
        place = np.int64(starts[np.uint64(number)])
        last_offset = be64(buf, place)
        magic = buf[place + MAGIC]
        if magic == 2:
            last_offset += be32(buf, place + LAST_DELTA)
            timestamp = be64(buf, place + MAX_TIMESTAMP)
        else:
            timestamp = be64(buf, place + OLD_TIMESTAMP) if magic == 1 else np.int64(-1)
        position = origin + place
        columns[0, number], columns[1, number], columns[2, number] = position, last_offset, timestamp
        if timestamp > largest:
            largest = timestamp
            state[R_OFFSET_OF_LARGEST] = last_offset
        if position - last_entry > interval_bytes:
            row = state[R_OFFSETS]
            offsets[row, 0], offsets[row, 1] = last_offset, position
            state[R_OFFSETS] = row + 1
            if largest > state[R_LAST_TIMESTAMP]:
                row = state[R_TIMES]
                times[row, 0], times[row, 1] = largest, state[R_OFFSET_OF_LARGEST]
                state[R_TIMES] = row + 1
                state[R_LAST_TIMESTAMP] = largest
            last_entry = position
        number += 1
    state[R_LAST_ENTRY], state[R_LARGEST] = last_entry, largest
    return number


class IndexEntries:
    """The index entries that recovery would write, made while a scan reads: ``take`` is called from its ``on_window``.

    Nothing is checked here. So the entries are those of the whole log only if the scan finds no damage.

    Args:
        interval_bytes: ``index.interval.bytes``.
    """

    def __init__(self, interval_bytes: int) -> None:
        self._interval_bytes = interval_bytes
        self._state = _first_state()
        self._offsets: Int64s = np.empty((_FIRST_ENTRIES, 2), np.int64)
        self._times: Int64s = np.empty((_FIRST_ENTRIES, 2), np.int64)
        self._columns: Int64s = np.empty((3, 0), np.int64)
        self._origin = 0

    def take(self, window: Uint8s, end: int, starts: Any) -> Int64s:
        """Enter the batches of the next window.

        Args:
            window: uint8[W].
            end: place after the last batch.
            starts: int32[N], N > 0, places of the batches.

        Returns:
            int64[3, N]: position, last offset and largest timestamp of each batch; valid until the next window.
        """
        if len(starts) > self._columns.shape[1]:
            self._columns = np.empty((3, 2 * len(starts)), np.int64)
        done = 0
        while True:
            done = enter_batches(
                window, starts, done, self._origin, self._interval_bytes, self._state, self._columns,
                self._offsets, self._times,
            )  # fmt: skip
            if done == len(starts):
                break
            self._offsets, self._times = _grown(self._offsets), _grown(self._times)
        self._origin += end
        return self._columns[:, : len(starts)]

    @property
    def position(self) -> int:
        """File position behind the last batch that was entered."""
        return self._origin

    def so_far(self) -> tuple[Int64s, Int64s]:
        """As ``entries`` without the closing one; valid until the next window."""
        return self._offsets[: self._state[R_OFFSETS]], self._times[: self._state[R_TIMES]]

    def entries(self) -> tuple[Int64s, Int64s]:
        """int64[N, 2] (last offset, position) and int64[M, 2] (timestamp, offset), the closing entry included."""
        return self._offsets[: self._state[R_OFFSETS]], _closed(self._state, self._times)


@dataclass(frozen=True)
class RecoveredSegment:
    """What recovery finds in one ``.log``.

    Attributes:
        offsets: int64[N, 2] (last offset, position), the offset index with absolute offsets.
        times: int64[M, 2] (timestamp, offset), the time index with absolute offsets, with its closing entry.
        valid_bytes: bytes of valid batches from position 0; recovery truncates the log there.
        damage: kind of damage (``classes.D_*``) at position ``valid_bytes``, 0 none.
        damage_text: what was expected and found there, or empty.
        largest_timestamp: largest timestamp of a batch header in milliseconds, -1 none.
        offset_of_largest: last offset of the first batch that has this timestamp, -1 none.
        last_offset: last offset of the last valid batch, ``base_offset - 1`` if there is none.
        batches: number of valid batches; a message of v0 or v1 counts as one.
        old_batches: how many of them are messages of v0 or v1.
    """

    offsets: Int64s
    times: Int64s
    valid_bytes: int
    damage: int
    damage_text: str
    largest_timestamp: int
    offset_of_largest: int
    last_offset: int
    batches: int
    old_batches: int


def recover_segment(
    base_offset: int,
    file_size: int,
    interval_bytes: int,
    read_into: ReadInto,
    *,
    check_crc: bool = True,
    window_bytes: int = WINDOW_BYTES,
) -> RecoveredSegment:
    """Walk one ``.log`` as the broker's recovery does. Memory holds one window and the index entries.

    Args:
        base_offset: base offset of the segment.
        file_size: bytes of the log.
        interval_bytes: ``index.interval.bytes``.
        read_into: fills a buffer from a file position; returns bytes read, 0 at the end. It may raise ``OSError``.
        check_crc: whether checksums are checked; a batch larger than the window is checked piece by piece.
        window_bytes: size of the window.

    Raises:
        OSError: ``read_into`` has raised it.
    """
    state = _first_state()
    state[R_LAST_OFFSET] = base_offset - 1
    offsets: Int64s = np.empty((_FIRST_ENTRIES, 2), np.int64)
    times: Int64s = np.empty((_FIRST_ENTRIES, 2), np.int64)
    window: Any = np.empty(window_bytes, np.uint8)
    view = memoryview(window)
    filled = 0
    while True:
        place = int(state[R_PLACE])
        if place and filled > place:
            view[: filled - place] = view[place:filled]
        filled = max(filled - place, 0)
        state[R_ORIGIN] += place
        state[R_PLACE] = 0
        origin = int(state[R_ORIGIN])
        while filled < window_bytes and origin + filled < file_size:
            got = read_into(view[filled : min(window_bytes, file_size - origin)], origin + filled)
            if got == 0:
                file_size = origin + filled
            filled += got
        while True:
            status = recover_window(
                window, filled, state, base_offset, file_size, interval_bytes, check_crc, offsets, times
            )
            if status != c.OUTPUT_FULL:
                break
            offsets, times = _grown(offsets), _grown(times)
        if status == c.NEED_BYTES and origin + filled < file_size:
            continue
        if status != c.HUGE:
            break
        if state[R_PLACE] == 0:
            _settle_huge(window, filled, read_into, state, check_crc=check_crc)
            if state[R_DAMAGE]:
                break
    return _recovered(state, window, filled, file_size, offsets, times)


def _first_state() -> Int64s:
    state = np.zeros(_STATE_SIZE, np.int64)
    for scalar in (R_LARGEST, R_OFFSET_OF_LARGEST, R_LAST_TIMESTAMP, R_HUGE_OK):
        state[scalar] = -1
    return state


def _closed(state: Int64s, times: Int64s) -> Int64s:
    """The entries of the time index; a last one is added if the largest timestamp has no entry yet."""
    times = times[: state[R_TIMES]]
    if state[R_LARGEST] > state[R_LAST_TIMESTAMP]:
        closing = np.array([[state[R_LARGEST], state[R_OFFSET_OF_LARGEST]]], np.int64)
        times = np.concatenate([times, closing])
    return times


def _settle_huge(window: Uint8s, filled: int, read_into: ReadInto, state: Int64s, *, check_crc: bool) -> None:
    """Check the batch at the front of the window piece by piece. The next call of the kernel then uses its header."""
    if check_crc:
        huge = checksum_huge(window, filled, read_into, int(state[R_ORIGIN]))
        if not huge.valid:
            state[R_DAMAGE], state[R_FOUND] = huge.damage, huge.computed
            return
    state[R_HUGE_OK] = state[R_ORIGIN]


def _recovered(
    state: Int64s, window: Uint8s, filled: int, file_size: int, offsets: Int64s, times: Int64s
) -> RecoveredSegment:
    valid_bytes = int(state[R_ORIGIN] + state[R_PLACE])
    left = file_size - valid_bytes
    if state[R_DAMAGE] == c.D_NONE and left > 0:
        zeros = not window[int(state[R_PLACE]) : filled].any()
        state[R_DAMAGE], state[R_FOUND] = (c.D_ZEROS, 0) if zeros else (c.D_TORN, left)
    damage = int(state[R_DAMAGE])
    return RecoveredSegment(
        offsets=offsets[: state[R_OFFSETS]],
        times=_closed(state, times),
        valid_bytes=valid_bytes,
        damage=damage,
        damage_text=DAMAGE_TEXT[damage].format(found=int(state[R_FOUND])) if damage else "",
        largest_timestamp=int(state[R_LARGEST]),
        offset_of_largest=int(state[R_OFFSET_OF_LARGEST]),
        last_offset=int(state[R_LAST_OFFSET]),
        batches=int(state[R_BATCHES]),
        old_batches=int(state[R_OLD]),
    )


def _grown(entries: Int64s) -> Int64s:
    larger = np.empty((len(entries) * 4, 2), np.int64)
    larger[: len(entries)] = entries
    return larger
