"""What is known of the records of one segment when it is read as compaction leaves it, from its item."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from krepair.formats.arrays import Int64s
from krepair.formats.offset_set import unpacked
from krepair.pipeline.compaction.items import CompactItem, OffsetFile, ranges_of
from krepair.pipeline.compaction.log import Stay


def stay_of(item: CompactItem) -> Stay:
    """What decides which records of a segment stay.

    Raises:
        OSError: a file of the scratch folder cannot be read.
        OffsetSetError: offsets that a plan has are none.
    """
    return Stay(
        offsets=offsets_between(item.stays, item.base_offset, item.next_base),
        aborted=ranges_of(item.aborted),
        now_ms=item.now_ms,
        drop_unstamped=item.drop_unstamped,
        keyless=item.keyless,
        drop_stamped=not item.keeps_all,
        held=offsets_between(item.held, item.base_offset, item.next_base),
    )


def offsets_between(files: Sequence[OffsetFile], first: int, after: int) -> Int64s:
    """The offsets of some files that lie in a segment, ascending.

    Raises:
        OSError: a file cannot be read.
        OffsetSetError: packed offsets are none.
    """
    parts: list[Int64s] = []
    for file in files:
        if file.path and os.path.getsize(file.path) == 0:
            continue
        if file.packed:
            every: Any = unpacked(file.packed, first)
        else:
            every = np.memmap(file.path, np.int64, "r") if file.path else np.frombuffer(file.data, np.int64)
        start, end = np.searchsorted(every, [first, after])
        parts.append(np.array(every[start:end]))
    found: Int64s = np.concatenate(parts) if parts else np.empty(0, np.int64)
    if len(parts) > 1:
        found.sort()
    return found
