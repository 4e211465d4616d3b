"""Reads one ``.log`` as a broker's recovery does: checks all checksums, builds the indexes, finds where it truncates.

Source: LogSegment.recover, FileLogInputStream.nextBatch, AbstractLegacyRecordBatch (2.2.1, 3.9).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from krepair.derive.index_entries import IndexEntries, index_bytes
from krepair.formats.arrays import Int64s
from krepair.formats.batch_front import LEAST_BYTES, batch_front
from krepair.formats.batch_v2 import HEADER_SIZE, LOG_OVERHEAD, MAGIC
from krepair.formats.java_numbers import INT32_MAX
from krepair.kernels import classes as c
from krepair.kernels.columns import WINDOW_BYTES, Batches, BatchWalk
from krepair.kernels.scan import DAMAGE_TEXT, ReadInto


@dataclass(frozen=True)
class RecoveredSegment:
    """Result of recovering one ``.log``.

    Attributes:
        positions: int64[N], positions of the entries in the offset index.
        index: content of the ``.index`` for the valid batches, trimmed to its entries.
        time_index: content of the ``.timeindex``, trimmed likewise.
        valid_bytes: size in bytes of the valid batches from position 0; recovery truncates the log to it.
        damage: kind of damage (``classes.D_*``) at position ``valid_bytes``, 0 for none.
        damage_text: what was expected and what was found at ``valid_bytes``, or empty.
        last_offset: last offset of the last valid batch, ``base_offset - 1`` if there is none.
        batches: number of valid batches; a v0 or v1 message counts as one.
    """

    positions: Int64s
    index: bytes
    time_index: bytes
    valid_bytes: int
    damage: int
    damage_text: str
    last_offset: int
    batches: int


def recover_segment(
    base_offset: int,
    file_size: int,
    interval_bytes: int,
    read_into: ReadInto,
    *,
    window_bytes: int = WINDOW_BYTES,
) -> RecoveredSegment:
    """Walk one ``.log`` as a broker's recovery does; memory holds one window and the index entries.

    Args:
        file_size: size of the log in bytes.
        interval_bytes: bytes of log between two index entries (``index.interval.bytes``).
        read_into: function that fills a buffer from a file position and returns the number of bytes read, 0 at the end.
            It may raise ``OSError``.
        window_bytes: size of the window in bytes.

    Raises:
        OSError: ``read_into`` raised it.
    """
    walk = BatchWalk(read_into, file_size, last_offset=base_offset - 1, whole=True, window_bytes=window_bytes)
    entries = IndexEntries(interval_bytes)
    batches, last_offset, valid_bytes = 0, base_offset - 1, 0
    damage: tuple[int, int] | None = None
    for rows in walk:
        good, damage = _count_possible_offsets(rows, base_offset, last_offset)
        entries.take(rows[:good])
        if good:
            batches, last_offset = batches + good, int(rows["last_offset"][good - 1])
            valid_bytes = int(rows["position"][good - 1]) + int(rows["size"][good - 1])
        if damage is not None:
            break
    kind, evidence = damage if damage is not None else _damage_at_end(walk)
    offsets, times = entries.entries()
    index, time_index = index_bytes(base_offset, offsets, times)
    return RecoveredSegment(
        positions=offsets[:, 1],
        index=index,
        time_index=time_index,
        valid_bytes=valid_bytes,
        damage=kind,
        damage_text=DAMAGE_TEXT[kind].format(found=evidence) if kind else "",
        last_offset=last_offset,
        batches=batches,
    )


def _count_possible_offsets(
    rows: Batches, base_offset: int, last_offset: int
) -> tuple[int, tuple[int, int] | None]:
    """Count the first batches whose offsets are possible; also return kind and evidence of the damage after them."""
    first, last = rows["base_offset"], rows["last_offset"]
    if not rows["problem"].any() and first[0] >= base_offset and last[-1] - base_offset <= INT32_MAX:
        return len(rows), None
    before = np.append(last_offset, last[:-1])
    wrong = (last < first) | (first < base_offset) | (last - base_offset > INT32_MAX) | (first <= before)
    if not wrong.any():
        return len(rows), None
    at = int(wrong.argmax())
    base, end = int(first[at]), int(last[at])
    if end < base:
        return at, (c.D_COUNTS, end - base)
    if base < base_offset or end - base_offset > INT32_MAX:
        return at, (c.D_OFFSET_RANGE, base if base < base_offset else end)
    return at, (c.D_OFFSET_ORDER, base)


def _damage_at_end(walk: BatchWalk) -> tuple[int, int]:
    """Return kind and evidence of the damage at the end of a walk; ``D_NONE`` at the end of the log."""
    suspect: Any = walk.suspect
    remaining = walk.file_size - walk.position
    if suspect is not None:
        return c.D_CRC if suspect["magic"] == MAGIC else c.D_OLD_CRC, int(suspect["computed"])
    if not remaining:
        return c.D_NONE, 0
    rest = walk.rest
    front = batch_front(rest.data)
    torn = (c.D_TORN, remaining) if rest.any() else (c.D_ZEROS, 0)
    if front is None or (len(rest) < HEADER_SIZE and (front.magic >= MAGIC or front.size < LEAST_BYTES[0])):
        return torn
    length = front.size - LOG_OVERHEAD
    if not front.is_known:
        return c.D_MAGIC, front.magic
    if length == 0 and front.offset == 0:
        return c.D_ZEROS, 0
    if front.size < LEAST_BYTES[front.magic]:
        return c.D_LENGTH if front.magic == MAGIC else c.D_OLD_LENGTH, length
    return (c.D_PAST_END, front.size) if front.size > remaining else torn
