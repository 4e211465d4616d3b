"""Tasks that decompress a segment: for ``check --deep``, and to find a record too large for the cleaner of 4.4."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from krepair.durable.tree import Tree
from krepair.engine.items import LogItem
from krepair.engine.place import with_log_dir
from krepair.engine.progress import shown_as
from krepair.formats.batch_v2 import CODEC_MASK, HEADER_SIZE, headers_of
from krepair.formats.compression import decompress
from krepair.formats.damage import Damage
from krepair.formats.filenames import log_name
from krepair.formats.varint import read_varint
from krepair.kernels.scan import ReadInto
from krepair.logdir.reading import opened_for_reading, read_exactly_from, read_into_from
from krepair.scan.log_records import DamageRead, LogRecords, RecordOptions

MOST_PROBLEMS = 100


def unreadable_contents(
    read_into: ReadInto, file_size: int, base_offset: int
) -> Iterator[tuple[int, Damage]]:
    """Decompress and parse all compressed content of a log.

    Args:
        read_into: function that fills a buffer from a file position, see ``LogRecords``.
        file_size: size of the log in bytes.

    Yields:
        (codec, range) of each content that is unreadable although the checksum of its batch is valid.
    """
    for part in LogRecords(read_into, file_size, base_offset, RecordOptions(compressed_only=True)).parts():
        if isinstance(part, DamageRead) and part.is_compressed:
            yield int(part.batch["attributes"]) & CODEC_MASK, part.damage


@shown_as("content")
@with_log_dir
def read_contents(item: LogItem, tree: Tree) -> tuple[tuple[int, Damage], ...]:
    """Decompress and parse every compressed batch and message of one segment.

    Returns:
        (codec, range) of each unreadable content, ascending by position, at most ``MOST_PROBLEMS``.
    """
    with opened_for_reading(f"{item.place.path}/{log_name(item.base_offset)}", tree) as descriptor:
        problems = unreadable_contents(read_into_from(descriptor), item.size, item.base_offset)
        return tuple(islice(problems, MOST_PROBLEMS))


class LargeRecord(NamedTuple):
    """First batch with a record that is too large.

    Attributes:
        position: position of the batch in the log.
        first_offset: base offset of the batch.
        bytes: size of the record in bytes.
    """

    position: int
    first_offset: int
    last_offset: int
    bytes: int


@shown_as("content")
@with_log_dir
def find_large_record(item: LogItem, tree: Tree, most: int) -> LargeRecord | None:
    """Decompress the compressed v2 batches up to the first record of more than ``most`` bytes, or up to damage."""
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
            if largest > most:
                return LargeRecord(
                    position=batch.position,
                    first_offset=batch.header.base_offset,
                    last_offset=batch.header.last_offset,
                    bytes=largest,
                )
    return None


def _sizes(codec: int, packed: bytes) -> Iterator[int]:
    """Yield the sizes of the records as a broker reads them, without their length field."""
    content = decompress(codec, packed)
    position = 0
    while not isinstance(content, Damage) and position < len(content):
        size = read_varint(content, position, len(content))
        if size is None or size.value < 0:
            return
        yield size.value
        position = size.end + size.value
