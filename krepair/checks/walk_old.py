"""Messages of v0 and v1 for the independent reader, by numpy, zlib and the plain layout, without kernels.

Each message, plain or a wrapper, is returned as the header of a similar v2 batch: one record, no producer, and the
offset of the message as base and last offset. (The offset of a wrapper is that of its last message.) So code that
compares batches with a plan or an index also works for old messages. The magic byte still tells them apart.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from krepair.formats import batch_v2, message_set
from krepair.formats.arrays import Int64s

ReadAt = Callable[[int, int], bytes]

_FIXED = message_set.CRC_START + 1
_HEADER_V0, _HEADER_V1 = message_set.HEADER_V0, message_set.HEADER_V1
_SMALLEST = {
    magic: header.size + 2 * message_set.LENGTH.size for magic, header in message_set.HEADERS.items()
}
_PIECE_BYTES = 1 << 20
BAD_CRC = "the message's CRC-32 is not that of its bytes"


def old_begins(window: Any, place: int = 0) -> bool:
    """Whether a v0 or v1 message may begin at a place, by magic byte and size; False if the window lacks its front."""
    if len(window) - place < _FIXED:
        return False
    size = _size_at(window, place)
    return int(window[place + message_set.CRC_START]) < batch_v2.MAGIC and size >= _SMALLEST[0]


def _size_at(window: Any, place: int) -> int:
    length = bytes(window[place + 8 : place + 12])
    return int.from_bytes(length, "big", signed=True) + message_set.LOG_OVERHEAD


def walk_old(
    read_at: ReadAt, data: bytes, position: int, file_size: int, last_offset: int
) -> tuple[Int64s, Int64s, np.ndarray[Any, Any], str, int]:
    """Read the old messages at the front of a window, up to a v2 batch or the end of the window. zlib checks each CRC.

    Args:
        read_at: gives the bytes at (position, count), for a message larger than the window.
        data: the window.
        position: position of the window in the file.
        file_size: bytes of the file.
        last_offset: last offset of the batch before.

    Returns:
        (positions, sizes, headers, what is wrong or empty, position of the problem or after the last message). There is
        at least one message, or something is wrong.

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
    columns = np.array(rows, np.int64).reshape(-1, 5)
    return columns[:, 0], columns[:, 1], _as_headers(columns), problem, position + place


def _crc_of(read_at: ReadAt, raw: memoryview, place: int, size: int, position: int) -> int:
    """CRC-32 of a message. The part behind the window is read piece by piece."""
    crc = zlib.crc32(raw[place + message_set.CRC_START : place + size])
    done = min(size, len(raw) - place)
    while done < size:
        piece = read_at(position + place + done, min(_PIECE_BYTES, size - done))
        if not piece:
            return -1
        crc = zlib.crc32(piece, crc)
        done += len(piece)
    return crc


def _as_headers(columns: Int64s) -> np.ndarray[Any, Any]:
    headers = np.zeros(len(columns), batch_v2.HEADER.dtype)
    headers["base_offset"] = columns[:, 2]
    headers["batch_length"] = columns[:, 1] - message_set.LOG_OVERHEAD
    headers["partition_leader_epoch"] = -1
    headers["magic"] = columns[:, 4]
    headers["base_timestamp"] = headers["max_timestamp"] = columns[:, 3]
    for name in ("producer_id", "producer_epoch", "base_sequence"):
        headers[name] = -1
    headers["record_count"] = 1
    return headers
