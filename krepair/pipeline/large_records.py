"""Finds the first record of a compressed batch that is larger than a cleaner of 4.4 reads."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import NamedTuple

from krepair.durable.tree import Tree
from krepair.formats.batch_v2 import CODEC_MASK, HEADER_SIZE, batches
from krepair.formats.compression import decompress
from krepair.formats.damage import Damage
from krepair.formats.filenames import log_name
from krepair.formats.varint import read_varint
from krepair.logdir.reading import opened_for_reading
from krepair.pipeline.items import LogItem
from krepair.pipeline.place import in_its_place
from krepair.pipeline.progress import shown


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
        if not item.size:
            return None
        with mmap.mmap(descriptor, item.size, prot=mmap.PROT_READ) as log:
            for batch in batches(log, check_crc=False):
                if isinstance(batch, Damage):
                    break
                codec = batch.header.attributes & CODEC_MASK
                if not codec:
                    continue
                packed = log[batch.position + HEADER_SIZE : batch.position + batch.header.size_bytes]
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
