"""The companions of a segment made anew from its ``.log``, byte for byte what the broker's own recovery writes.

The offset and the time index follow from the batch headers alone, of every format and codec: recovery never looks into
a batch, so neither is anything decompressed here. Source: LogSegment.recover, TimeIndex.maybeAppend (2.2.1, 3.9).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from krepair.derive.segment import recover_segment
from krepair.durable.tree import Tree
from krepair.formats import offset_index, time_index
from krepair.formats.arrays import Int64s
from krepair.formats.layout import Layout
from krepair.logdir.reading import opened_for_reading, read_into_from


@dataclass(frozen=True)
class Regenerated:
    """What recovery would make of one segment.

    Attributes:
        index: bytes of the ``.index``, trimmed to its entries.
        time_index: bytes of the ``.timeindex``, trimmed to its entries.
        valid_bytes: bytes of valid batches from position 0; the broker's recovery cuts the log there.
        damage_text: what was expected and found at position ``valid_bytes``; empty if the whole log is valid.
        last_offset: of the last valid batch, one less than the base offset if there is none.
        batches: valid batches; a message of v0 or v1, plain or wrapping others, counts as one.
    """

    index: bytes
    time_index: bytes
    valid_bytes: int
    damage_text: str
    last_offset: int
    batches: int


def regenerate_offset_and_time(
    path: str,
    size: int,
    base_offset: int,
    interval_bytes: int,
    *,
    tree: Tree | None = None,
) -> Regenerated:
    """The ``.index`` and ``.timeindex`` of one segment from its ``.log``, in memory of one window and the entries.

    Args:
        path: of the ``.log``.
        size: bytes of it that count, as it was listed.
        base_offset: of the segment.
        interval_bytes: the topic's ``index.interval.bytes``.
        tree: below which the file is; None: anywhere.

    Returns:
        The bytes of both files for the valid part of the log. Damage is a value in it, never an exception.

    Raises:
        OSError: the file cannot be read.
    """
    with opened_for_reading(path, tree) as descriptor:
        found = recover_segment(base_offset, size, interval_bytes, read_into_from(descriptor))
    index, times = index_bytes(base_offset, found.offsets, found.times)
    return Regenerated(
        index=index,
        time_index=times,
        valid_bytes=found.valid_bytes,
        damage_text=found.damage_text,
        last_offset=found.last_offset,
        batches=found.batches,
    )


def index_bytes(base_offset: int, offsets: Int64s, times: Int64s) -> tuple[bytes, bytes]:
    """The bytes of an ``.index`` and a ``.timeindex``.

    Args:
        base_offset: of the segment.
        offsets: int64[N, 2] (last offset, position).
        times: int64[M, 2] (timestamp, offset).
    """
    return (
        packed(offset_index.ENTRY, offsets[:, 0] - base_offset, offsets[:, 1]),
        packed(time_index.ENTRY, times[:, 0], times[:, 1] - base_offset),
    )


def packed(layout: Layout, *columns: Int64s) -> bytes:
    """Entries of a layout from one column per field."""
    entries = np.empty(len(columns[0]), layout.dtype)
    for name, column in zip(layout.names, columns, strict=True):
        entries[name] = column
    return entries.tobytes()
