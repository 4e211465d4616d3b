"""Decompresses one segment: all of it for ``check --deep``, or up to a record too large for a cleaner of 4.4."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from krepair.durable.tree import Tree
from krepair.engine.items import LogItem
from krepair.engine.place import in_its_place
from krepair.engine.progress import shown
from krepair.formats import batch_v2
from krepair.formats.batch_v2 import CODEC_MASK, HEADER_SIZE, headers_of
from krepair.formats.compression import decompress
from krepair.formats.damage import Damage
from krepair.formats.filenames import log_name
from krepair.formats.varint import read_varint
from krepair.kernels.columns import BAD_CRC
from krepair.kernels.scan import ReadInto
from krepair.logdir.reading import opened_for_reading, read_exactly_from, read_into_from
from krepair.look.dump.log_walk import KR307, LogWalk, Wanted
from krepair.look.dump.record import Style

MOST_PROBLEMS = 100


class ContentWalk(LogWalk):
    """Reads all compressed content of a log and shows nothing of it; iterate ``problems``.

    Args:
        read_into: as of ``LogWalk``.
        file_size: bytes of the log.
        base_offset: of the segment.
    """

    def __init__(self, read_into: ReadInto, file_size: int, base_offset: int) -> None:
        super().__init__(read_into, file_size, base_offset, Wanted(Style(as_json=True), batches=False))
        self._found: list[tuple[int, Damage]] = []

    def problems(self) -> Iterator[tuple[int, Damage]]:
        """(codec, range) of each content that cannot be read though the batch's checksum is right."""
        for _ in self.lines():
            yield from self._found
            self._found.clear()
        yield from self._found

    def _together(self, rows: Any, origin: int) -> Iterator[bytes | memoryview]:
        yield from ()

    def _one_batch(self, row: Any, origin: int) -> Iterator[bytes | memoryview]:
        if row["problem"] != BAD_CRC and row["attributes"] & batch_v2.CODEC_MASK:
            yield from super()._one_batch(row, origin)

    def _damage_of(self, row: Any, found: Damage, rule: str) -> bytes:
        if rule == KR307:
            self._found.append((int(row["attributes"]) & batch_v2.CODEC_MASK, found))
        return b""


@shown("content")
@in_its_place
def read_contents(item: LogItem, tree: Tree) -> tuple[tuple[int, Damage], ...]:
    """Decompress and parse every compressed batch and message of one segment.

    Returns:
        (codec, range) of content that cannot be read, ascending, at most ``MOST_PROBLEMS``.
    """
    with opened_for_reading(f"{item.place.path}/{log_name(item.base_offset)}", tree) as descriptor:
        walk = ContentWalk(read_into_from(descriptor), item.size, item.base_offset)
        return tuple(islice(walk.problems(), MOST_PROBLEMS))


class LargeRecordItem(LogItem, frozen=True, kw_only=True):
    """One segment, and the largest record in bytes that may be in it."""

    most: int


class LargeRecord(NamedTuple):
    """The first batch with a larger record.

    Attributes:
        position: of the batch.
        first_offset: its base offset.
        last_offset: its last offset.
        bytes: of the record.
    """

    position: int
    first_offset: int
    last_offset: int
    bytes: int


@shown("content")
@in_its_place
def find_large_record(item: LargeRecordItem, tree: Tree) -> LargeRecord | None:
    """Decompress every compressed batch of v2, up to the first with a record that is too large, or to damage."""
    with opened_for_reading(f"{item.place.path}/{log_name(item.base_offset)}", tree) as descriptor:
        read = read_exactly_from(descriptor)
        for batch in headers_of(read, item.size):
            if isinstance(batch, Damage):
                break
            codec = batch.header.attributes & CODEC_MASK
            if not codec:
                continue
            packed = read(batch.header.size_bytes - HEADER_SIZE, batch.position + HEADER_SIZE)
            largest = max(_sizes(codec, packed), default=0)
            if largest > item.most:
                return LargeRecord(
                    position=batch.position,
                    first_offset=batch.header.base_offset,
                    last_offset=batch.header.last_offset,
                    bytes=largest,
                )
    return None


def _sizes(codec: int, packed: bytes) -> Iterator[int]:
    """The sizes of the records as a broker reads them, without their own length field."""
    content = decompress(codec, packed)
    position = 0
    while not isinstance(content, Damage) and position < len(content):
        size = read_varint(content, position, len(content))
        if size is None or size.value < 0:
            return
        yield size.value
        position = size.end + size.value
