"""An independent reader of a ``.log``, by numpy, the crc32c package and the plain layouts, without kernels.

It finds the batches, and checks every CRC and that offsets ascend. Batches of one size in a row (markers) are found in
one step, and all batches of a window are checksummed in one step (``checksums``). So millions of markers can be
verified fast enough for an apply.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from krepair.checks.checksums import CRC_BYTES, crcs_are_right, first_wrong_crc
from krepair.checks.walk_old import ReadAt, old_begins, walk_old
from krepair.formats.arrays import Int64s, Uint8s
from krepair.formats.batch_v2 import CRC_START, HEADER, LOG_OVERHEAD, MAGIC
from krepair.formats.castagnoli import crc32c

ReadInto = Callable[[memoryview, int], int]
Claim = Callable[[Uint8s], np.ndarray[Any, Any]]
OnPlaces = Callable[[Uint8s, Int64s, int], None]

WINDOW_BYTES = 1 << 21
_LENGTH = HEADER.place("batch_length")
_MAGIC = HEADER.place("magic")
_RUN = 32
_LENGTH_STRUCT = struct.Struct(">i4xb")  # batch_length, (leader epoch,) magic
assert _MAGIC == _LENGTH + 8


@dataclass(frozen=True)
class Walked:
    """The valid batches of one window.

    Attributes:
        positions: int64[N], file positions of the batches.
        sizes: int64[N], bytes of the batches.
        headers: structured array[N], headers of the batches.
        problem: what is wrong at ``position``, empty if nothing.
        position: file position of the problem, or of the end of the last batch.
    """

    positions: Int64s
    sizes: Int64s
    headers: np.ndarray[Any, Any]
    problem: str
    position: int

    @cached_property
    def firsts(self) -> Int64s:
        """int64[N] base offset of each batch."""
        found: Int64s = self.headers["base_offset"].astype(np.int64)
        return found

    @cached_property
    def lasts(self) -> Int64s:
        """int64[N] last offset of each batch."""
        found: Int64s = self.firsts + self.headers["last_offset_delta"]
        return found


def gathered(window: Uint8s, places: Any, width: int) -> Uint8s:
    """uint8[N, width]: the bytes at N places. No place may be above ``len(window) - width``."""
    words = np.ndarray(max(len(window) - width + 1, 0), f"V{width}", window, 0, 1)
    rows: Uint8s = words[places].view(np.uint8).reshape(len(places), width)
    return rows


def headers_at(window: Uint8s, places: Any) -> np.ndarray[Any, Any]:
    """Structured array[N] of the v2 headers at N places. No place may be above ``len(window) - HEADER.size``."""
    return gathered(window, places, HEADER.size).view(HEADER.dtype)[:, 0]


def proven_headers(window: Uint8s, places: Any) -> np.ndarray[Any, Any] | None:
    """The headers of v2 batches, if exactly these places are the starts of batches; else None.

    The first place must be 0, and the size of each batch must lead to the next place.

    Args:
        window: uint8[W].
        places: int[N], an untrusted claim.
    """
    if len(places) == 0 or places[0] != 0 or places.min() < 0 or places.max() + HEADER.size > len(window):
        return None
    headers = headers_at(window, places)
    length = headers["batch_length"].astype(np.int64)
    following = places + (length + LOG_OVERHEAD)
    proven = (
        length.min() >= HEADER.size - LOG_OVERHEAD
        and (headers["magic"] == MAGIC).all()
        and (following[:-1] == places[1:]).all()
        and following[-1] <= len(window)
    )
    return headers if proven else None


def _batches_of(
    window: Uint8s, claim: Claim | None, *, final: bool
) -> tuple[Int64s, np.ndarray[Any, Any], int, str]:
    """As ``find_batches``, with the headers. If the claim is proven, the search is skipped."""
    places = np.empty(0, np.int64) if claim is None else claim(window).astype(np.int64)
    headers = proven_headers(window, places)
    if headers is None:
        places, end, problem = find_batches(window, final=final)
        return places, headers_at(window, places), end, problem
    end = int(places[-1]) + LOG_OVERHEAD + int(headers["batch_length"][-1])
    more, rest, problem = find_batches(window[end:], final=final)
    if len(more):
        places = np.concatenate([places, more + end])
        headers = headers_at(window, places)
    return places, headers, end + rest, problem


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
    claim: Claim | None = None,
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
        claim: says where the batches of a window begin. It only saves time, because it is proven before it is used.
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
    while position < file_size:
        wanted = min(window_bytes, file_size - position)
        window = buffer[:wanted]
        missing = wanted - _filled(read_into, window.data, position)
        if missing:
            yield _nothing(position, f"{missing} bytes are missing at the end")
            return
        places, headers, end, problem = _batches_of(window, claim, final=position + wanted == file_size)
        if problem and old_begins(window, end):
            problem = ""
        if len(places) == 0 and not problem:
            walked = _walk_other(read_into, window.tobytes(), position, file_size, last_offset)
            if on_places is not None and len(walked.positions):
                on_places(
                    window,
                    walked.positions - position,
                    int(walked.positions[-1] + walked.sizes[-1]) - position,
                )
        else:
            if on_places is not None and len(places):
                on_places(window, places, end)
            walked = _judged(
                buffer, places, headers, end, problem, position, last_offset, check_crc=check_crc
            )
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
    headers = proven_headers(window, places)
    if headers is None or int(places[-1]) + LOG_OVERHEAD + int(headers["batch_length"][-1]) != end:
        yield from walk(read_into, position + end, position=position, last_offset=last_offset)
        return
    if len(buffer) < end + CRC_BYTES:
        buffer = np.concatenate([window, np.empty(CRC_BYTES, np.uint8)])
    yield _judged(buffer, places.astype(np.int64), headers, end, "", position, last_offset, check_crc=True)


def _judged(
    buffer: Uint8s,
    places: Int64s,
    headers: np.ndarray[Any, Any],
    end: int,
    problem: str,
    position: int,
    last_offset: int,
    *,
    check_crc: bool,
) -> Walked:
    """The batches of a window up to the first that is wrong."""
    ends = np.empty_like(places)
    ends[:-1], ends[-1:] = places[1:], end
    sizes = ends - places
    bad = -1
    if check_crc and len(places) and not crcs_are_right(buffer, places, headers, end):
        bad = first_wrong_crc(buffer, places, sizes, headers["crc"])
    if bad >= 0:
        problem, end = "the batch's CRC-32C is not that of its bytes", int(places[bad])
        places, sizes, headers = places[:bad], sizes[:bad], headers[:bad]
    walked = Walked(places + position, sizes, headers, problem, position + end)
    before = np.empty_like(walked.lasts)
    before[:1], before[1:] = last_offset, walked.lasts[:-1]
    wrong = (walked.firsts <= before) | (walked.lasts < walked.firsts)
    if not wrong.any():
        return walked
    first = int(wrong.argmax())
    problem, end = f"offset {headers['base_offset'][first]} does not ascend", int(places[first])
    return Walked(places[:first] + position, sizes[:first], headers[:first], problem, position + end)


def _filled(read_into: ReadInto, buffer: memoryview, position: int) -> int:
    """Fill the buffer and return the bytes read. They are fewer than its size only at the end of the file."""
    done = 0
    while done < len(buffer) and (got := read_into(buffer[done:], position + done)):
        done += got
    return done


def _nothing(position: int, problem: str) -> Walked:
    none = np.empty(0, np.int64)
    return Walked(none, none, np.empty(0, HEADER.dtype), problem, position)


def _walk_other(read_into: ReadInto, data: bytes, position: int, file_size: int, last_offset: int) -> Walked:
    """Read old messages, or one batch that is larger than the window."""

    def read_at(place: int, count: int) -> bytes:
        piece = bytearray(count)
        return bytes(piece[: _filled(read_into, memoryview(piece), place)])

    if old_begins(data):
        return Walked(*walk_old(read_at, data, position, file_size, last_offset))
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
    return Walked(np.array([position]), np.array([size]), header, "", position + size)
