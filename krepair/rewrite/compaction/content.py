"""Reading of one batch that is compressed, or larger than a window, with little memory.

The uncompressed records pass through one buffer, which grows to the largest record. A record, its copy in the new log
and the window of its codec must together stay below 256 MB; a partition with a larger record is skipped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from typing import Final

import numpy as np

from krepair.formats import batch_v2, compression
from krepair.formats.arrays import Uint8s
from krepair.formats.codec import Codec
from krepair.formats.damage import Damage
from krepair.formats.words import count_text
from krepair.kernels.compact_keys import BAD_ORDER, NEED_BYTES, OLD_FORMAT
from krepair.kernels.compact_records import SLACK
from krepair.kernels.scan import ReadInto
from krepair.scan.byte_stream import StoredBytes

LARGEST_RECORD_BYTES: Final = 64 << 20
LARGEST_ZSTD_RECORD_BYTES: Final = 24 << 20
"""Largest record in zstd: its window may take 128 MiB."""
TOO_LARGE: Final = "compaction does not take larger ones"
_FIRST_BYTES: Final = 1 << 20

Take = Callable[[Uint8s, int, int], tuple[int, int, int]]
"""Function that takes whole records: (buffer, its end, records left) -> (status, records taken, place after them)."""


class ContentError(Exception):
    """Error: the records of a batch cannot be read."""

    def __init__(self, position: int, text: str) -> None:
        super().__init__(f"position {position}: {text}")
        self.position = position
        self.text = text


class ContentBuffer:
    """Buffer for records outside of a window, kept from batch to batch."""

    def __init__(self) -> None:
        self.bytes: Uint8s = _with_slack(_FIRST_BYTES)

    def read(
        self, pieces: Generator[bytes | Damage, None, None], codec: int, count: int, position: int, take: Take
    ) -> None:
        """Pass all records of one v2 batch to ``take``, see ``reading``."""
        for _ in self.reading(pieces, codec, count, position, take):
            pass

    def reading(
        self, pieces: Generator[bytes | Damage, None, None], codec: int, count: int, position: int, take: Take
    ) -> Iterator[None]:
        """Pass all records of one v2 batch to ``take``, and yield after each piece.

        Args:
            pieces: uncompressed records of the batch, in pieces.
            codec: codec id of the batch.
            count: record count in the header.
            position: position of the batch in the file.
            take: function that takes whole records from the start of the buffer.

        Raises:
            ContentError: the records cannot be read, or their number is wrong.
        """
        with contextlib.closing(
            pieces
        ):  # the generator goes out of scope here: the memory of its codec is free before the next batch
            yield from self._reading(pieces, codec, count, position, take)

    def _reading(
        self, pieces: Iterator[bytes | Damage], codec: int, count: int, position: int, take: Take
    ) -> Iterator[None]:
        remaining, end = count, 0
        for piece in pieces:
            if isinstance(piece, Damage):
                raise ContentError(position, f"{piece.expected} was expected, found {piece.found}")
            done = 0
            while done < len(piece):
                room = min(len(piece) - done, len(self.bytes) - end)
                self.bytes[end : end + room] = np.frombuffer(piece, np.uint8, room, done)
                end += room
                done += room
                status, taken, place = take(self.bytes, end, remaining)
                remaining -= taken
                if status != NEED_BYTES:
                    raise ContentError(position, record_problem(status))
                if place:
                    view = self.bytes.data
                    view[: end - place] = view[place:end]
                end -= place
                if end == len(self.bytes):
                    self._grow(largest_record(codec), position)
                yield
        if remaining or end:
            raise ContentError(position, wrong_count(count, remaining, end))

    def _grow(self, most: int, position: int) -> None:
        """Enlarge the buffer to the largest record at once: unused memory costs nothing, and growth would copy."""
        if len(self.bytes) >= most:
            raise ContentError(position, too_large("record", most))
        larger = _with_slack(most)
        larger[: len(self.bytes)] = self.bytes
        self.bytes = larger


def _with_slack(size: int) -> Uint8s:
    return np.empty(size + SLACK, np.uint8)[:size]


def largest_record(codec: int) -> int:
    """Return the size in bytes of the largest record that is accepted from batches of a codec."""
    return LARGEST_ZSTD_RECORD_BYTES if codec == Codec.ZSTD else LARGEST_RECORD_BYTES


def too_large(noun: str, most: int) -> str:
    """Describe a record or message that is larger than accepted."""
    return f"a {noun} of more than {most} bytes; {TOO_LARGE}"


def wrong_count(count: int, missing: int, end: int) -> str:
    """Describe a batch with missing records, or with bytes after its records."""
    actual = f"{count - missing} and {end} bytes that are none" if end else f"{count - missing}"
    was = "was" if count == 1 else "were"
    return f"{count_text(count, 'record')} {was} expected, found {actual}"


def record_problem(status: int) -> str:
    """Describe what a status of the kernels means for a batch."""
    if status == BAD_ORDER:
        return "offsets that ascend within the batch were expected, found others"
    if status == OLD_FORMAT:
        return "a batch of v2 was expected, found a message of v0 or v1"
    return "a record within its batch was expected, found one that does not fit"


def content_of(
    codec: int, window: Uint8s, place: int, size: int, filled: int, read_into: ReadInto, position: int
) -> Generator[bytes | Damage, None, None]:
    """Return the uncompressed records of a v2 batch, in pieces.

    Args:
        codec: codec id from the attributes.
        window: uint8[W]; the batch begins at ``place`` and may exceed it.
        place: position of the batch in the window.
        size: size of the batch in bytes.
        filled: number of valid bytes in the window.
        read_into: reader of the file.
        position: position of the batch in the file.
    """
    start = batch_v2.HEADER_SIZE
    if place + size <= filled:
        return compression.chunks(codec, window[place + start : place + size].tobytes())
    return compression.chunks(codec, StoredBytes(read_into, position + start, position + size))
