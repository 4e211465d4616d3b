"""Reading of one batch that is compressed, or larger than a window, with little memory.

The uncompressed records pass through one buffer, which grows to the largest record. A record, its copy in the new log
and the window of its codec must together stay below 256 MiB; a partition with a larger record is skipped.
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
"""Largest record in a zstd batch, in bytes; a zstd window may take 128 MiB of the 256 MiB."""
_FIRST_BYTES: Final = 1 << 20

RecordConsumer = Callable[[Uint8s, int, int], tuple[int, int, int]]
"""Function that consumes whole records: (buffer, its end, remaining records) -> (status, records consumed, position
after them)."""


class ContentError(Exception):
    """Error: the records of a batch cannot be read.

    Attributes:
        position: position of the batch in the file.
        text: what is wrong with the batch.
        beyond_limit: True if the batch may be intact, but has a record that is too large for krepair.
    """

    def __init__(self, position: int, text: str, *, beyond_limit: bool = False) -> None:
        super().__init__(f"position {position}: {text}")
        self.position = position
        self.text = text
        self.beyond_limit = beyond_limit


class ContentBuffer:
    """Buffer for records outside of a window, kept from batch to batch."""

    def __init__(self) -> None:
        self.bytes: Uint8s = _with_slack(_FIRST_BYTES)

    def read(
        self,
        pieces: Generator[bytes | Damage, None, None],
        codec: int,
        count: int,
        position: int,
        consume: RecordConsumer,
    ) -> None:
        """Pass all records of one v2 batch to ``consume``, see ``reading``."""
        for _ in self.reading(pieces, codec, count, position, consume):
            pass

    def reading(
        self,
        pieces: Generator[bytes | Damage, None, None],
        codec: int,
        count: int,
        position: int,
        consume: RecordConsumer,
    ) -> Iterator[None]:
        """Pass all records of one v2 batch to ``consume``.

        Yields each time ``consume`` was called, so that the caller can pass on output before the batch is complete.

        Args:
            pieces: uncompressed records of the batch, in pieces.
            codec: codec id of the batch.
            count: record count in the header.
            position: position of the batch in the file.
            consume: function that consumes whole records from the start of the buffer.

        Raises:
            ContentError: the records cannot be read, or their number is wrong.
        """
        # Close the generator before the next batch, so that its codec's memory is freed.
        with contextlib.closing(pieces):
            yield from self._reading(pieces, codec, count, position, consume)

    def _reading(
        self, pieces: Iterator[bytes | Damage], codec: int, count: int, position: int, consume: RecordConsumer
    ) -> Iterator[None]:
        remaining, end, limit = count, 0, largest_record(codec)
        for piece in pieces:
            if isinstance(piece, Damage):
                raise ContentError(position, f"{piece.expected} was expected, found {piece.found}")
            done = 0
            while done < len(piece):
                # A gzip batch may have enlarged the buffer beyond the limit of a zstd batch.
                capacity = min(len(self.bytes), limit)
                room = min(len(piece) - done, capacity - end)
                self.bytes[end : end + room] = np.frombuffer(piece, np.uint8, room, done)
                end += room
                done += room
                status, consumed, next_position = consume(self.bytes, end, remaining)
                remaining -= consumed
                if status != NEED_BYTES:
                    raise ContentError(position, record_problem(status))
                if next_position:
                    # memoryview copies overlapping ranges safely; ndarray slices would need a temporary.
                    view = self.bytes.data
                    view[: end - next_position] = view[next_position:end]
                end -= next_position
                if end == capacity:
                    self._grow(limit, position)
                yield
        if remaining or end:
            raise ContentError(position, wrong_count(count, remaining, end))

    def _grow(self, most: int, position: int) -> None:
        """Enlarge the buffer to the largest record at once: unused memory costs nothing, and growth would copy."""
        if len(self.bytes) >= most:
            text = f"a record is larger than {most} bytes, the limit of krepair's compaction"
            raise ContentError(position, text, beyond_limit=True)
        larger = _with_slack(most)
        larger[: len(self.bytes)] = self.bytes
        self.bytes = larger


def _with_slack(size: int) -> Uint8s:
    return np.empty(size + SLACK, np.uint8)[:size]


def largest_record(codec: int) -> int:
    """Return the size in bytes of the largest record that is accepted from batches of a codec."""
    return LARGEST_ZSTD_RECORD_BYTES if codec == Codec.ZSTD else LARGEST_RECORD_BYTES


def wrong_count(count: int, missing: int, end: int) -> str:
    """Describe a batch with missing records, or with bytes after its records."""
    rest = f" and then {count_text(end, 'byte that is', 'bytes that are')} not a record" if end else ""
    was = "was" if count == 1 else "were"
    return f"{count_text(count, 'record')} {was} expected, found {count - missing}{rest}"


def record_problem(status: int) -> str:
    """Describe what a status of the kernels means for a batch."""
    if status == BAD_ORDER:
        return "offsets within the batch do not ascend"
    if status == OLD_FORMAT:
        return "a batch of v2 was expected, found a message of v0 or v1"
    return "a record exceeds its batch or is malformed"


def uncompressed_records(
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
