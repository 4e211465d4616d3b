"""An independent reader of a ``.log``, by numpy, the crc32c package and the plain layouts.

It finds the batches, and checks every CRC and that offsets ascend. Batches of one size in a row (markers) are found in
one step, and all batches of a window are checksummed in one step (``checksums``). So millions of markers can be
verified fast enough for an apply. Who reads much has the headers read by a kernel, which shares no code with those that
decide (``check_headers``); what that kernel does not take is read as without it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from krepair.checks.checksums import CRC_BYTES, crcs_are_right, first_wrong_crc
from krepair.checks.walk_old import ReadAt, old_begins, walk_old
from krepair.formats.arrays import Int64s, Uint8s
from krepair.formats.batch_v2 import CRC_START, HEADER, LOG_OVERHEAD, MAGIC
from krepair.formats.castagnoli import crc32c
from krepair.kernels import check_headers as k

ReadInto = Callable[[memoryview, int], int]
OnPlaces = Callable[[Uint8s, Int64s, int], None]

WINDOW_BYTES = 1 << 21
_LENGTH = HEADER.place("batch_length")
_MAGIC = HEADER.place("magic")
_RUN = 32
_FEW = 16
"""So many batches are checksummed one by one: to check all in one step takes longer to prepare."""
_FIRST_ROOM = 4096
_LENGTH_STRUCT = struct.Struct(">i4xb")  # batch_length, (leader epoch,) magic
assert _MAGIC == _LENGTH + 8


@dataclass(frozen=True)
class Walked:
    """The valid batches of one window.

    Attributes:
        positions: int64[N], file positions of the batches.
        sizes: int64[N], bytes of the batches.
        headers: structured array[N], headers of the batches.
        firsts: int64[N], base offset of each batch.
        lasts: int64[N], last offset of each batch.
        stamps: int64[N], largest timestamp of each batch in milliseconds.
        problem: what is wrong at ``position``, empty if nothing.
        position: file position of the problem, or of the end of the last batch.
    """

    positions: Int64s
    sizes: Int64s
    headers: np.ndarray[Any, Any]
    firsts: Int64s
    lasts: Int64s
    stamps: Int64s
    problem: str
    position: int

    @staticmethod
    def of(
        positions: Int64s, sizes: Int64s, headers: np.ndarray[Any, Any], problem: str, position: int
    ) -> Walked:
        """With the columns that are read from the headers."""
        firsts = headers["base_offset"].astype(np.int64)
        lasts = firsts + headers["last_offset_delta"]
        stamps = headers["max_timestamp"].astype(np.int64)
        return Walked(positions, sizes, headers, firsts, lasts, stamps, problem, position)

    def up_to(self, count: int, problem: str, position: int) -> Walked:
        """The first batches of these, and what is wrong behind them."""
        return Walked(
            self.positions[:count], self.sizes[:count], self.headers[:count], self.firsts[:count],
            self.lasts[:count], self.stamps[:count], problem, position,
        )  # fmt: skip


def gathered(window: Uint8s, places: Any, width: int) -> Uint8s:
    """uint8[N, width]: the bytes at N places. No place may be above ``len(window) - width``."""
    words = np.ndarray(max(len(window) - width + 1, 0), f"V{width}", window, 0, 1)
    rows: Uint8s = words[places].view(np.uint8).reshape(len(places), width)
    return rows


def headers_at(window: Uint8s, places: Any) -> np.ndarray[Any, Any]:
    """Structured array[N] of the v2 headers at N places. No place may be above ``len(window) - HEADER.size``."""
    return gathered(window, places, HEADER.size).view(HEADER.dtype)[:, 0]


def proven_headers(window: Uint8s, places: Any) -> tuple[np.ndarray[Any, Any], Int64s] | None:
    """The headers of v2 batches and their sizes, if exactly these places are the starts of batches; else None.

    The first place must be 0, and the size of each batch must lead to the next place.

    Args:
        window: uint8[W].
        places: int[N], an untrusted claim.
    """
    outside = (places < 0) | (places > len(window) - HEADER.size)
    if len(places) == 0 or places[0] != 0 or np.count_nonzero(outside):
        return None
    headers = headers_at(window, places)
    sizes: Int64s = headers["batch_length"].astype(np.int64) + LOG_OVERHEAD
    following = places + sizes
    proven = (
        not np.count_nonzero(sizes < HEADER.size)
        and not np.count_nonzero(headers["magic"] != MAGIC)
        and not np.count_nonzero(following[:-1] != places[1:])
        and following[-1] <= len(window)
    )
    return (headers, sizes) if proven else None


def _read_plainly(window: Uint8s, position: int, *, final: bool) -> Walked:
    """The batches of a window by numpy, not judged yet."""
    places, end, problem = find_batches(window, final=final)
    sizes = np.diff(places, append=end)
    return Walked.of(places + position, sizes, headers_at(window, places), problem, position + end)


class _CompiledReader:
    """Reads the headers of window after window by a kernel of its own; what it does not take is read plainly."""

    def __init__(self) -> None:
        self._room = _FIRST_ROOM

    def read(self, buffer: Uint8s, filled: int, position: int, *, final: bool) -> Walked:
        """The batches of a window, not judged yet.

        Args:
            buffer: uint8[W + 4 or more], the window and what can be read behind it.
            filled: bytes of the window.
            position: of the window in the file.
            final: whether the file ends there.
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
        more, _, problem = find_batches(buffer[end:filled], final=final)
        if len(more):
            return _read_plainly(buffer[:filled], position, final=final)
        headers = np.ndarray(count, HEADER.dtype, rows, 0, (k.ROW_BYTES,))
        return Walked(
            columns[k.POSITION, :count], columns[k.SIZE, :count], headers, columns[k.FIRST, :count],
            columns[k.LAST, :count], columns[k.STAMP, :count], problem, position + end,
        )  # fmt: skip


def find_batches(window: Uint8s, *, final: bool) -> tuple[Int64s, int, str]:
    """Find the whole v2 batches from place 0 on.

    Returns:
        (int64[N] of their places, place after the last batch, what is wrong there). The text is empty if the window
        ends there.
    """
    places: list[int] = []
    parts: list[Int64s] = []
    place, filled = 0, len(window)
    raw = window.data
    length_at, previous, alike = _LENGTH_STRUCT.unpack_from, -1, 0
    problem = ""
    while place + HEADER.size <= filled:
        length, magic = length_at(raw, place + _LENGTH)
        size = length + LOG_OVERHEAD
        if magic != MAGIC or length < HEADER.size - LOG_OVERHEAD:
            problem = f"magic {MAGIC} and batch_length >= 49 were expected, found {magic} and {length}"
            break
        if place + size > filled:
            problem = f"a batch of {size} bytes does not fit" if final else ""
            break
        places.append(place)
        place += size
        alike = alike + 1 if size == previous else 0
        previous = size
        if alike >= _RUN:
            run = _run_of_size(window, place, size, length)
            parts += [np.array(places, np.int64), np.arange(place, place + run * size, size, dtype=np.int64)]
            places, alike = [], 0
            place += run * size
    parts.append(np.array(places, np.int64))
    if not problem and final and place < filled:
        problem = f"{filled - place} bytes are left that are not a batch"
    return np.concatenate(parts), place, problem


def _run_of_size(window: Uint8s, place: int, size: int, length: int) -> int:
    """How many batches from ``place`` on have the same size, found in one step."""
    count = (len(window) - place) // size
    if count <= 0:
        return 0
    rows = window[place : place + count * size].reshape(count, size)
    found = np.ascontiguousarray(rows[:, _LENGTH : _LENGTH + 4]).view(">i4")[:, 0]
    other = np.flatnonzero((found != length) | (rows[:, _MAGIC] != MAGIC))
    return int(other[0]) if len(other) else count


def walk(
    read_into: ReadInto,
    file_size: int,
    *,
    window_bytes: int = WINDOW_BYTES,
    compiled: bool = False,
    check_crc: bool = True,
    position: int = 0,
    last_offset: int = -1,
    on_places: OnPlaces | None = None,
) -> Iterator[Walked]:
    """Read a whole ``.log`` window by window. It ends after the first problem.

    Args:
        read_into: fills a buffer from a file position; returns bytes read. It may raise ``OSError``.
        file_size: bytes of the file.
        window_bytes: size of the window. A batch that is larger is checksummed piece by piece.
        compiled: whether a kernel of its own reads the headers. It only saves time.
        check_crc: whether the CRCs of v2 batches are checked. False if their bytes are compared with checked ones.
        position: position at which a batch begins. Nothing before it is read.
        last_offset: last offset of the batch before it, -1 if there is none.
        on_places: is given each window before its batches are, while it has the bytes that were read: (window, int64[N]
            places of the batches that were found, place after the last of them). Their CRCs are not checked yet. A
            batch larger than the window comes alone: its front is at place 0, and its end lies behind the window.

    Raises:
        OSError: ``read_into`` has raised it.
    """
    # One buffer for all windows: new memory for each would take more time than the work on it.
    buffer = np.empty(min(window_bytes, max(file_size - position, 0)) + CRC_BYTES, np.uint8)
    reader = _CompiledReader() if compiled else None
    while position < file_size:
        wanted = min(window_bytes, file_size - position)
        window = buffer[:wanted]
        missing = wanted - _filled(read_into, window.data, position)
        if missing:
            yield _nothing(position, f"{missing} bytes are missing at the end")
            return
        final = position + wanted == file_size
        if reader is None:
            walked = _read_plainly(window, position, final=final)
        else:
            walked = reader.read(buffer, wanted, position, final=final)
        if walked.problem and old_begins(window, walked.position - position):
            walked = walked.up_to(len(walked.positions), "", walked.position)
        other = not len(walked.positions) and not walked.problem
        if other:
            walked = _walk_other(read_into, window.tobytes(), position, file_size, last_offset)
        if on_places is not None and len(walked.positions):
            end = int(walked.positions[-1] + walked.sizes[-1])
            on_places(window, walked.positions - position, end - position)
        if not other:
            walked = _judged(buffer, walked, position, last_offset, check_crc=check_crc, compiled=compiled)
        yield walked
        if walked.problem:
            return
        position, last_offset = walked.position, int(walked.lasts[-1])


def walk_in_memory(
    buffer: Uint8s, places: Any, end: int, position: int, last_offset: int, read_into: ReadInto
) -> Iterator[Walked]:
    """The batches of one window that was read by somebody else, every CRC checked; as ``walk`` gives them.

    Args:
        buffer: uint8[W], the window from its place 0 on; the first bytes of each batch in it are spent.
        places: int[N], a claim where its batches begin, from whomever; nothing of it is believed.
        end: claimed place after the last of them; more than W of one batch that is larger than the window.
        position: of the window in the file.
        last_offset: of the batch before it, -1 if there is none.
        read_into: reads the file, for what is no run of v2 batches.
    """
    window = buffer[:end]
    proven = proven_headers(window, places)
    if proven is None or int(places[-1] + proven[1][-1]) != end:
        yield from walk(read_into, position + end, position=position, last_offset=last_offset)
        return
    if len(buffer) < end + CRC_BYTES:
        buffer = np.concatenate([window, np.empty(CRC_BYTES, np.uint8)])
    headers, sizes = proven
    walked = Walked.of(places.astype(np.int64) + position, sizes, headers, "", position + end)
    yield _judged(buffer, walked, position, last_offset, check_crc=True, compiled=False)


def _judged(
    buffer: Uint8s, walked: Walked, position: int, last_offset: int, *, check_crc: bool, compiled: bool
) -> Walked:
    """The batches of a window up to the first that is wrong."""
    if not len(walked.positions):
        return walked
    places, end = walked.positions - position, int(walked.positions[-1] + walked.sizes[-1]) - position
    sizes = walked.sizes if compiled else None
    few = len(places) <= _FEW
    if check_crc and (few or not crcs_are_right(buffer, places, walked.headers, end, sizes)):
        bad = first_wrong_crc(buffer, places, walked.sizes, walked.headers["crc"])
        if bad >= 0:
            text = "the batch's CRC-32C is not that of its bytes"
            walked = walked.up_to(bad, text, int(walked.positions[bad]))
    before = np.empty_like(walked.lasts)
    before[:1], before[1:] = last_offset, walked.lasts[:-1]
    wrong = (walked.firsts <= before) | (walked.lasts < walked.firsts)
    if not np.count_nonzero(wrong):  # of a few batches it is known in a tenth of the time of ``any``
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


def _nothing(position: int, problem: str) -> Walked:
    none = np.empty(0, np.int64)
    return Walked.of(none, none, np.empty(0, HEADER.dtype), problem, position)


def _walk_other(read_into: ReadInto, data: bytes, position: int, file_size: int, last_offset: int) -> Walked:
    """Read old messages, or one batch that is larger than the window."""

    def read_at(place: int, count: int) -> bytes:
        piece = bytearray(count)
        return bytes(piece[: _filled(read_into, memoryview(piece), place)])

    if old_begins(data):
        return Walked.of(*walk_old(read_at, data, position, file_size, last_offset))
    return _walk_huge(read_at, data, position, file_size)


def _walk_huge(read_at: ReadAt, data: bytes, position: int, file_size: int) -> Walked:
    """Read one batch that is larger than the window."""
    header = np.frombuffer(data[: HEADER.size], HEADER.dtype)
    size = int(header["batch_length"][0]) + LOG_OVERHEAD
    if position + size > file_size:
        return _nothing(position, f"a batch of {size} bytes does not fit")
    crc = crc32c(memoryview(data)[CRC_START:])
    done = len(data)
    while done < size:
        piece = read_at(position + done, min(WINDOW_BYTES, size - done))
        if not piece:
            return _nothing(position, "the file ends inside the batch")
        crc = crc32c(piece, crc)
        done += len(piece)
    if crc != header["crc"][0]:
        return _nothing(position, "the batch's CRC-32C is not that of its bytes")
    return Walked.of(np.array([position]), np.array([size]), header, "", position + size)
