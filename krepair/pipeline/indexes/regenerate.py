"""The companions of a segment made anew from its ``.log``, byte for byte what the broker's own recovery writes.

The offset and the time index follow from the batch headers alone, of every format and codec: recovery never looks into
a batch, so neither is anything decompressed here. Source: LogSegment.recover, TimeIndex.maybeAppend (2.2.1, 3.9).
"""

from __future__ import annotations

from krepair.derive.segment import RecoveredSegment, recover_segment
from krepair.durable.tree import Tree
from krepair.logdir.reading import opened_for_reading, read_into_from


def regenerate_offset_and_time(
    path: str,
    size: int,
    base_offset: int,
    interval_bytes: int,
    *,
    tree: Tree | None = None,
) -> RecoveredSegment:
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
        return recover_segment(base_offset, size, interval_bytes, read_into_from(descriptor))
