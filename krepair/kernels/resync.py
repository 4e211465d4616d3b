"""Finds the next valid batch after damage. It examines every position, but computes a checksum only at a likely header.

Bytes may be a header if the length fits into the file, and the offsets are above the offsets before the damage and
below the next segment. Few bytes pass this test if they are not a batch, so a search reads the log about once. Hostile
bytes can pass the test often, so the number of bytes that a search may checksum is limited.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from krepair.formats.batch_front import batch_front
from krepair.kernels.jit import kernel
from krepair.kernels.large_batches import checksum_huge, huge_size
from krepair.kernels.legacy import OLD_MIN_LENGTH_V0, OLD_MIN_LENGTH_V1, SMALLEST_BYTES
from krepair.kernels.scan import ReadInto, fill
from krepair.kernels.scan_window import (
    HEADER,
    LAST_DELTA,
    LENGTH,
    LENGTH_END,
    MAGIC,
    MIN_LENGTH,
    RECORD_COUNT,
)
from krepair.kernels.words import be32, be64, byte_at

WINDOW_BYTES = 1 << 20
CHECKSUM_AT_MOST = 4
"""Limit of a search: it may checksum this many times the size of the log, plus ``_SPARE_BYTES``."""
_SPARE_BYTES = 64 << 20
_NONE = -1


@kernel("bytes, long, long, long, long, long, long, long")
def next_candidate(
    buf: Any, start: int, end: int, filled: int, origin: int, file_size: int, lowest: int, highest: int
) -> Any:
    """Return the first place in ``[start, end)`` where the header of a batch may begin, or -1.

    Args:
        buf: uint8[W]; place 0 is file position ``origin``.
        start: first place to examine.
        end: place after the last one to examine; ``end + 17`` must not be above ``filled``.
        filled: number of valid bytes in the buffer.
        origin: file position of place 0.
        file_size: length of the log in bytes.
        lowest: lowest offset that the batch may have.
        highest: highest offset that the batch may have.
    """
    for place in range(start, end):
        magic = np.int64(byte_at(buf, place + MAGIC))
        if magic > 2:
            continue
        length = be32(buf, place + LENGTH)
        least = MIN_LENGTH if magic == 2 else OLD_MIN_LENGTH_V1 if magic == 1 else OLD_MIN_LENGTH_V0
        if length < least or origin + place + length + LENGTH_END > file_size:
            continue
        offset = be64(buf, place)
        if offset < lowest or offset > highest:
            continue
        if magic == 2:
            if place + HEADER > filled:
                continue
            delta = be32(buf, place + LAST_DELTA)
            if delta < 0 or be32(buf, place + RECORD_COUNT) < 0 or offset + delta > highest:
                continue
        return np.int64(place)
    return np.int64(_NONE)


@dataclass(frozen=True)
class Resynced:
    """Result of a search.

    Attributes:
        position: position of the next valid batch, -1 if none was found.
        complete: True if the search reached a batch or the end of the log; False if its budget ended before.
        checksummed: number of bytes that were checksummed.
    """

    position: int
    complete: bool
    checksummed: int


def search_budget(file_size: int) -> int:
    """Return the number of bytes that all searches in a log of ``file_size`` bytes may checksum together."""
    return CHECKSUM_AT_MOST * file_size + _SPARE_BYTES


def find_batch(
    read_into: ReadInto,
    position: int,
    file_size: int,
    lowest: int,
    highest: int,
    *,
    budget: int | None = None,
    window_bytes: int = WINDOW_BYTES,
) -> Resynced:
    """Search a log for the next valid batch of any format.

    Args:
        read_into: function that fills a buffer from a file position; returns bytes read, 0 at the end. It may raise
            ``OSError``.
        position: position where the search begins.
        file_size: bytes of the log.
        lowest: lowest offset that the batch may have.
        highest: highest offset that the batch may have.
        budget: bytes that may be checksummed, None for ``search_budget(file_size)``.
        window_bytes: size of the window.

    Raises:
        OSError: ``read_into`` has raised it.
    """
    budget_left = search_budget(file_size) if budget is None else budget
    allowed = budget_left
    window: Any = np.empty(window_bytes, np.uint8)
    origin = position
    while origin + SMALLEST_BYTES <= file_size:
        filled = fill(read_into, window.data, origin, file_size)
        if filled < SMALLEST_BYTES:
            break
        final = origin + filled >= file_size or filled < window_bytes
        end = filled - (SMALLEST_BYTES if final else HEADER) + 1
        place = 0
        while True:
            candidate = int(next_candidate(window, place, end, filled, origin, file_size, lowest, highest))
            if candidate < 0:
                break
            size = huge_size(window[candidate:])
            budget_left -= size
            if budget_left < 0:
                return Resynced(_NONE, complete=False, checksummed=allowed)
            if _is_valid(read_into, window[candidate:filled], origin + candidate, size):
                return Resynced(origin + candidate, complete=True, checksummed=allowed - budget_left)
            place = candidate + 1
        if final:
            break
        origin += end
    return Resynced(_NONE, complete=True, checksummed=allowed - budget_left)


def checksummed_end(read_into: ReadInto, position: int, end: int, file_size: int) -> int:
    """Return the position after a run of batches with right checksums. Their offsets are not checked.

    Args:
        read_into: function that fills a buffer from a file position; returns bytes read, 0 at the end. It may raise
            ``OSError``.
        position: position of the first batch.
        end: no batch that begins here or later is read.
        file_size: bytes of the log.

    Returns:
        The position after the last batch with a right checksum; ``position`` if there is none.

    Raises:
        OSError: ``read_into`` has raised it.
    """
    front: Any = np.empty(WINDOW_BYTES, np.uint8)
    origin, filled = position, 0
    while position < end:
        place = position - origin
        if place + HEADER > filled:
            origin, place = position, 0
            filled = fill(read_into, front.data, origin, file_size)
        front_facts = batch_front(front[place:filled].data)
        if front_facts is None or not front_facts.fits(file_size - position):
            break
        if not _is_valid(read_into, front[place:filled], position, front_facts.size):
            break
        position += front_facts.size
    return position


def _is_valid(read_into: ReadInto, front: Any, position: int, size: int) -> bool:
    """Return whether a batch is whole and its checksum is right, reading it again if ``front`` has only a part."""
    if size > len(front):
        front = np.empty(min(size, WINDOW_BYTES), np.uint8)
        if fill(read_into, front.data, position, position + len(front)) < len(front):
            return False
    have = min(len(front), size)
    return checksum_huge(front[:have], have, read_into, position).valid
