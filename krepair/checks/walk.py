"""Independent reader of a ``.log`` that finds the batches and checks every CRC and the order of offsets.

The reader shares no code with the kernels that decide: the headers of v2 are read by a separate kernel
(``check_headers``), messages of v0 and v1 by zlib and the plain layout. All batches of a window are checksummed in one
step by the crc32c package, so millions of markers can be verified fast enough for an apply.

A CRC is linear. If each stored CRC is written right after its batch, over bytes that no CRC covers, one checksum of the
whole window verifies all batches. The crc32c package computes it at memory speed, without work per batch.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from krepair.durable.tree import Tree
from krepair.formats import batch_v2, message_set
from krepair.formats.arrays import Int64s, Uint8s
from krepair.formats.batch_v2 import CRC_START, HEADER, LOG_OVERHEAD, MAGIC
from krepair.formats.castagnoli import crc32c
from krepair.kernels import check_headers as k
from krepair.logdir.reading import opened_for_reading, read_into_from

ReadInto = Callable[[memoryview, int], int]
ReadAt = Callable[[int, int], bytes]
OnPlaces = Callable[[Uint8s, Int64s, int], None]

WINDOW_BYTES = 1 << 21
CRC_BYTES = 4
_LENGTH = HEADER.place("batch_length")
_MAGIC = HEADER.place("magic")
_FEW = 16
"""Number of batches up to which checksumming them one by one is faster than preparing the single step."""
_FIRST_ROOM = 4096
_LENGTH_STRUCT = struct.Struct(">i4xb")  # batch_length, (leader epoch,) magic
assert _MAGIC == _LENGTH + 8
_ONES = np.uint32(0xFFFFFFFF)
_FRONT_BYTES = 25
"""Bytes at the front of each batch that ``crcs_are_right`` overwrites."""

_FIXED = message_set.CRC_START + 1
_HEADER_V0, _HEADER_V1 = message_set.HEADER_V0, message_set.HEADER_V1
_SMALLEST = {
    magic: header.size + 2 * message_set.LENGTH.size for magic, header in message_set.HEADERS.items()
}
_PIECE_BYTES = 1 << 20
BAD_CRC = "the message's CRC-32 is not that of its bytes"


@dataclass(frozen=True)
class Walked:
    """Valid batches of one window.

    Attributes:
        positions: int64[N], file positions of the batches.
        sizes: int64[N], bytes of the batches.
        headers: structured array[N], headers of the batches.
        firsts: int64[N], base offset of each batch.
        lasts: int64[N], last offset of each batch.
        timestamps: int64[N], largest timestamp of each batch in milliseconds.
        problem: fault at ``position``, or an empty text.
        position: file position of the problem, or of the end of the last batch.
    """

    positions: Int64s
    sizes: Int64s
    headers: np.ndarray[Any, Any]
    firsts: Int64s
    lasts: Int64s
    timestamps: Int64s
    problem: str
    position: int

    @staticmethod
    def of(
        positions: Int64s, sizes: Int64s, headers: np.ndarray[Any, Any], problem: str, position: int
    ) -> Walked:
        """Build the batches with the offset and timestamp columns of their headers."""
        firsts = headers["base_offset"].astype(np.int64)
        lasts = firsts + headers["last_offset_delta"]
        timestamps = headers["max_timestamp"].astype(np.int64)
        return Walked(positions, sizes, headers, firsts, lasts, timestamps, problem, position)

    def up_to(self, count: int, problem: str, position: int) -> Walked:
        """Return the first ``count`` batches, with the problem after them."""
        return Walked(
            self.positions[:count], self.sizes[:count], self.headers[:count], self.firsts[:count],
            self.lasts[:count], self.timestamps[:count], problem, position,
        )  # fmt: skip


def gathered(window: Uint8s, places: Any, width: int) -> Uint8s:
    """Copy the bytes at N places into uint8[N, width]; no place may be above ``len(window) - width``."""
    words = np.ndarray(max(len(window) - width + 1, 0), f"V{width}", window, 0, 1)
    rows: Uint8s = words[places].view(np.uint8).reshape(len(places), width)
    return rows


class _HeaderReader:
    """Reader of batch headers, window by window, that adapts its buffers to the batches per window."""

    def __init__(self) -> None:
        self._room = _FIRST_ROOM

    def read(self, buffer: Uint8s, filled: int, position: int, *, final: bool) -> Walked:
        """Return the batches of a window, before their CRCs and offsets are judged.

        Args:
            buffer: uint8[W + 4 or more], the window and readable bytes after it.
            filled: bytes of the window.
            position: position of the window in the file.
            final: True if the file ends with this window.
        """
        room = self._room
        while True:
            rows, columns = np.empty(room * k.ROW_BYTES, np.uint8), np.empty((k.COLUMNS, room), np.int64)
            count = int(k.read_headers(buffer, filled, position, rows, columns))
            if count < room:
                break
            room = filled // HEADER.size + 1
        self._room = 2 * count + 64
        end = int(columns[k.POSITION, count - 1] + columns[k.SIZE, count - 1]) - position if count else 0
        headers = np.ndarray(count, HEADER.dtype, rows, 0, (k.ROW_BYTES,))
        return Walked(
            columns[k.POSITION, :count], columns[k.SIZE, :count], headers, columns[k.FIRST, :count],
            columns[k.LAST, :count], columns[k.STAMP, :count], _problem_at(buffer, end, filled, final=final),
            position + end,
        )  # fmt: skip


def _problem_at(window: Uint8s, place: int, filled: int, *, final: bool) -> str:
    """Describe the problem at a place where no whole v2 batch begins; empty if just the window ends there."""
    remaining = filled - place
    if remaining < HEADER.size:
        return f"{remaining} bytes are left that are not a batch" if final and remaining else ""
    length, magic = _LENGTH_STRUCT.unpack_from(window.data, place + _LENGTH)
    if magic != MAGIC or length < HEADER.size - LOG_OVERHEAD:
        return f"magic {MAGIC} and batch_length >= 49 were expected, found {magic} and {length}"
    return f"a batch of {length + LOG_OVERHEAD} bytes does not fit" if final else ""


def walk(
    read_into: ReadInto,
    file_size: int,
    *,
    window_bytes: int = WINDOW_BYTES,
    check_crc: bool = True,
    on_places: OnPlaces | None = None,
) -> Iterator[Walked]:
    """Yield the batches of a ``.log`` window by window, up to the first problem.

    Args:
        read_into: function that fills a buffer from a file position and returns the bytes read; may raise ``OSError``.
        file_size: bytes of the file.
        window_bytes: bytes of a window; a larger batch is checksummed piece by piece.
        check_crc: False to skip the CRCs of v2 batches, because the caller compares their bytes with verified bytes.
        on_places: function that gets each window while it still has the bytes of the file (the CRC check overwrites
            some): (window, int64[N] places of its batches, place after the last). Their CRCs are not checked yet. A
            batch larger than the window comes alone: its front is at place 0, and its end lies after the window.

    Raises:
        OSError: ``read_into`` has raised it.
    """
    # One buffer for all windows: new memory for each would take more time than the work on it.
    buffer = np.empty(min(window_bytes, file_size) + CRC_BYTES, np.uint8)
    reader, position, last_offset = _HeaderReader(), 0, -1
    while position < file_size:
        wanted = min(window_bytes, file_size - position)
        window = buffer[:wanted]
        missing = wanted - _filled(read_into, window.data, position)
        if missing:
            yield _no_batches(position, f"{missing} bytes are missing at the end")
            return
        final = position + wanted == file_size
        walked = reader.read(buffer, wanted, position, final=final)
        if walked.problem and old_begins(window, walked.position - position):
            walked = walked.up_to(len(walked.positions), "", walked.position)
        special = not len(walked.positions) and not walked.problem
        if special:
            walked = _walk_other(read_into, window.tobytes(), position, file_size, last_offset)
        if on_places is not None and len(walked.positions):
            end = int(walked.positions[-1] + walked.sizes[-1])
            on_places(window, walked.positions - position, end - position)
        if not special:
            walked = _checked_batches(buffer, walked, position, last_offset, check_crc=check_crc)
        yield walked
        if walked.problem:
            return
        position, last_offset = walked.position, int(walked.lasts[-1])


def _checked_batches(
    buffer: Uint8s, walked: Walked, position: int, last_offset: int, *, check_crc: bool
) -> Walked:
    """Return the batches of a window up to the first with a wrong CRC or offset."""
    if not len(walked.positions):
        return walked
    places, end = walked.positions - position, int(walked.positions[-1] + walked.sizes[-1]) - position
    few = len(places) <= _FEW
    if check_crc and (few or not crcs_are_right(buffer, places, walked.headers, walked.sizes, end)):
        bad = first_wrong_crc(buffer, places, walked.sizes, walked.headers["crc"])
        if bad >= 0:
            text = "the batch's CRC-32C is not that of its bytes"
            walked = walked.up_to(bad, text, int(walked.positions[bad]))
    before = np.empty_like(walked.lasts)
    before[:1], before[1:] = last_offset, walked.lasts[:-1]
    wrong = (walked.firsts <= before) | (walked.lasts < walked.firsts)
    if not np.count_nonzero(wrong):  # for a few batches this takes a tenth of the time of ``any``
        return walked
    first = int(wrong.argmax())
    text = f"offset {walked.firsts[first]} does not ascend"
    return walked.up_to(first, text, int(walked.positions[first]))


def _filled(read_into: ReadInto, buffer: memoryview, position: int) -> int:
    """Fill the buffer and return the bytes read. They are fewer than its size only at the end of the file."""
    done = 0
    while done < len(buffer) and (got := read_into(buffer[done:], position + done)):
        done += got
    return done


def _no_batches(position: int, problem: str) -> Walked:
    none = np.empty(0, np.int64)
    return Walked.of(none, none, np.empty(0, HEADER.dtype), problem, position)


def _walk_other(read_into: ReadInto, data: bytes, position: int, file_size: int, last_offset: int) -> Walked:
    """Read old messages, or one batch that is larger than the window."""

    def read_at(place: int, count: int) -> bytes:
        piece = bytearray(count)
        return bytes(piece[: _filled(read_into, memoryview(piece), place)])

    if old_begins(data):
        return Walked.of(*_walk_old(read_at, data, position, file_size, last_offset))
    return _walk_huge(read_at, data, position, file_size)


def _walk_huge(read_at: ReadAt, data: bytes, position: int, file_size: int) -> Walked:
    """Read one batch that is larger than the window."""
    header = np.frombuffer(data[: HEADER.size], HEADER.dtype)
    size = int(header["batch_length"][0]) + LOG_OVERHEAD
    if position + size > file_size:
        return _no_batches(position, f"a batch of {size} bytes does not fit")
    crc = crc32c(memoryview(data)[CRC_START:])
    done = len(data)
    while done < size:
        piece = read_at(position + done, min(WINDOW_BYTES, size - done))
        if not piece:
            return _no_batches(position, "the file ends inside the batch")
        crc = crc32c(piece, crc)
        done += len(piece)
    if crc != header["crc"][0]:
        return _no_batches(position, "the batch's CRC-32C is not that of its bytes")
    return Walked.of(np.array([position]), np.array([size]), header, "", position + size)


# -- checksums


def crcs_are_right(
    buffer: Uint8s, places: Int64s, headers: np.ndarray[Any, Any], sizes: Int64s, end: int
) -> bool:
    """Return True if the stored CRC-32C of every batch of a window is right.

    A single wrong batch is always detected. Several wrong batches go undetected with probability 2**-32, the same as
    for one CRC over random bytes.

    Args:
        buffer: uint8[W + 4 or more], the window with room for one CRC after its end. On True the first 25 bytes of
            each batch are overwritten; on False nothing is changed.
        places: int64[N], N > 0, starts of the batches, without gaps, the first at 0.
        headers: structured array[N], copied headers of the batches.
        sizes: int64[N], bytes of the batches.
        end: place after the last batch.
    """
    # The CRC of a message is the inverted remainder of the message (its first 32 bits inverted) and 32 zero bits. So a
    # message and then its inverted CRC have remainder 0. A row of such messages with zeros between them also has
    # remainder 0. The CRC of a batch is put into the front of the next batch, which no CRC covers.
    last = int(k.close_up(buffer, sizes))
    behind = buffer[end : end + CRC_BYTES].copy()
    buffer[end : end + CRC_BYTES].view("<u4")[0] = last
    # The package inverts the start value and the result. With ones as the start value it starts at 0.
    right = bool(crc32c(buffer[: end + CRC_BYTES], int(_ONES)) == _ONES)
    buffer[end : end + CRC_BYTES] = behind
    if not right:
        as_fronts = np.ndarray(end + CRC_BYTES - _FRONT_BYTES + 1, f"V{_FRONT_BYTES}", buffer, 0, 1)
        headers = np.ascontiguousarray(headers)
        as_fronts[places] = np.ndarray(len(places), as_fronts.dtype, headers, 0, headers.strides)
    return right


def first_wrong_crc(window: Uint8s, places: Int64s, sizes: Int64s, stored: np.ndarray[Any, Any]) -> int:
    """Return the index of the first batch with a wrong CRC, -1 if all are right; it checks batch by batch.

    Args:
        window: uint8[W], bytes of the window.
        places: int64[N], starts of the batches.
        sizes: int64[N], bytes of the batches.
        stored: uint32[N], stored CRCs of the batches.
    """
    raw = window.data
    spans = zip((places + CRC_START).tolist(), (places + sizes).tolist(), stored.tolist(), strict=True)
    for number, (start, end, crc) in enumerate(spans):
        if crc32c(raw[start:end]) != crc:
            return number
    return -1


# -- messages of v0 and v1


def old_begins(window: Any, place: int = 0) -> bool:
    """Return True if a v0 or v1 message may begin at a place, by its magic byte and size.

    The result is False if the window lacks the front of the message.
    """
    if len(window) - place < _FIXED:
        return False
    size = _size_at(window, place)
    return int(window[place + message_set.CRC_START]) < batch_v2.MAGIC and size >= _SMALLEST[0]


def _size_at(window: Any, place: int) -> int:
    length = bytes(window[place + 8 : place + 12])
    return int.from_bytes(length, "big", signed=True) + message_set.LOG_OVERHEAD


def _walk_old(
    read_at: ReadAt, data: bytes, position: int, file_size: int, last_offset: int
) -> tuple[Int64s, Int64s, np.ndarray[Any, Any], str, int]:
    """Read the old messages at the front of a window, up to a v2 batch or the window's end; zlib checks each CRC.

    Each message, plain or a wrapper, is returned as the header of a similar v2 batch: one record, no producer, and the
    offset of the message as base and last offset. (The offset of a wrapper is that of its last message.) So code that
    compares batches with a plan or an index also works for old messages. The magic byte still tells them apart.

    Args:
        read_at: function that returns the bytes at (position, count), for a message larger than the window.
        data: bytes of the window.
        position: position of the window in the file.
        file_size: bytes of the file.
        last_offset: last offset of the preceding batch.

    Returns:
        (positions, sizes, headers, problem or empty, position of the problem or after the last message). There is at
        least one message, or a problem.

    Raises:
        OSError: ``read_at`` has raised it.
    """
    rows: list[tuple[int, int, int, int, int]] = []
    raw = memoryview(data)
    place, problem = 0, ""
    while old_begins(raw, place):
        size = _size_at(raw, place)
        if position + place + size > file_size:
            problem = f"a message of {size} bytes does not fit"
            break
        if place + size > len(raw) and rows:
            break  # it will be read at the front of the next window
        if len(raw) - place < min(size, _SMALLEST[1]):
            break
        magic = raw[place + message_set.CRC_START]
        offset, _, crc, _, _ = _HEADER_V0.unpack(raw, place)
        if size < _SMALLEST[magic]:
            problem = f"a message of v{magic} with {size} bytes"
        elif _crc_of(read_at, raw, place, size, position) != crc:
            problem = BAD_CRC
        elif offset <= last_offset:
            problem = f"offset {offset} does not ascend"
        if problem:
            break
        timestamp = _HEADER_V1.unpack(raw, place)[-1] if magic else message_set.NO_TIMESTAMP
        rows.append((position + place, size, offset, timestamp, magic))
        last_offset = offset
        place += size
    positions, sizes, *fields = np.array(rows, np.int64).reshape(-1, 5).T
    return positions, sizes, _as_headers(sizes, *fields), problem, position + place


def _crc_of(read_at: ReadAt, raw: memoryview, place: int, size: int, position: int) -> int:
    """Compute the CRC-32 of a message; the part after the window is read piece by piece."""
    crc = zlib.crc32(raw[place + message_set.CRC_START : place + size])
    done = min(size, len(raw) - place)
    while done < size:
        piece = read_at(position + place + done, min(_PIECE_BYTES, size - done))
        if not piece:
            return -1
        crc = zlib.crc32(piece, crc)
        done += len(piece)
    return crc


def _as_headers(sizes: Int64s, offsets: Int64s, timestamps: Int64s, magics: Int64s) -> np.ndarray[Any, Any]:
    headers = np.zeros(len(sizes), batch_v2.HEADER.dtype)
    headers["base_offset"] = offsets
    headers["batch_length"] = sizes - message_set.LOG_OVERHEAD
    headers["partition_leader_epoch"] = -1
    headers["magic"] = magics
    headers["base_timestamp"] = headers["max_timestamp"] = timestamps
    for name in ("producer_id", "producer_epoch", "base_sequence"):
        headers[name] = -1
    headers["record_count"] = 1
    return headers


class NotWholeError(Exception):
    """Error for a log that contains anything but whole batches; the message has file, position and problem."""


def headers_of(path: str, size: int, tree: Tree) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the headers of all batches of a log, a window at a time, without computing checksums.

    Args:
        path: absolute path of the log.
        size: bytes of the log's valid batches, -1 for the whole file.
        tree: directory tree that holds the log.

    Raises:
        NotWholeError: a batch is damaged, or other bytes follow the last batch.
        OSError: the log cannot be read.
    """
    with opened_for_reading(path, tree) as descriptor:
        position, size = 0, os.fstat(descriptor).st_size if size < 0 else size
        for walked in walk(read_into_from(descriptor), size, check_crc=False):
            if walked.problem:
                raise NotWholeError(f"{path}, position {walked.position}: {walked.problem}")
            position = walked.position
            yield walked.headers
        if position != size:
            raise NotWholeError(
                f"{path}, position {position}: a batch was expected, found the end of the file"
            )
