"""What a broker's recovery finds in one ``.log``: every checksum checked, index entries made, and where it stops.

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
    """What recovery finds in one ``.log``.

    Attributes:
        positions: int64[N], those in the offset index.
        index: bytes of the ``.index`` for the valid batches, trimmed to its entries.
        time_index: bytes of the ``.timeindex``, likewise.
        valid_bytes: bytes of valid batches from position 0; recovery truncates the log there.
        damage: kind of damage (``classes.D_*``) at position ``valid_bytes``, 0 none.
        damage_text: what was expected and found there, or empty.
        last_offset: last offset of the last valid batch, ``base_offset - 1`` if there is none.
        batches: number of valid batches; a message of v0 or v1 counts as one.
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
    """Walk one ``.log`` as the broker's recovery does. Memory holds one window and the index entries.

    Args:
        base_offset: base offset of the segment.
        file_size: bytes of the log.
        interval_bytes: ``index.interval.bytes``.
        read_into: fills a buffer from a file position; returns bytes read, 0 at the end. It may raise ``OSError``.
        window_bytes: size of the window.

    Raises:
        OSError: ``read_into`` has raised it.
    """
    walk = BatchWalk(read_into, file_size, last_offset=base_offset - 1, whole=True, window_bytes=window_bytes)
    entries = IndexEntries(interval_bytes)
    batches, last_offset, valid_bytes = 0, base_offset - 1, 0
    damage: tuple[int, int] | None = None
    for rows in walk:
        good, damage = _good(rows, base_offset, last_offset)
        entries.take(rows[:good])
        if good:
            batches, last_offset = batches + good, int(rows["last_offset"][good - 1])
            valid_bytes = int(rows["position"][good - 1]) + int(rows["size"][good - 1])
        if damage is not None:
            break
    kind, found = damage if damage is not None else _why_it_stops(walk)
    offsets, times = entries.entries()
    index, time_index = index_bytes(base_offset, offsets, times)
    return RecoveredSegment(
        positions=offsets[:, 1],
        index=index,
        time_index=time_index,
        valid_bytes=valid_bytes,
        damage=kind,
        damage_text=DAMAGE_TEXT[kind].format(found=found) if kind else "",
        last_offset=last_offset,
        batches=batches,
    )


def _good(rows: Batches, base_offset: int, last_offset: int) -> tuple[int, tuple[int, int] | None]:
    """How many batches have offsets that can be; kind of damage of the next one, and what was found."""
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


def _why_it_stops(walk: BatchWalk) -> tuple[int, int]:
    """Kind of damage at the end of a walk, and what was found; ``D_NONE`` at the end of the log."""
    suspect: Any = walk.suspect
    left = walk.file_size - walk.position
    if suspect is not None:
        return c.D_CRC if suspect["magic"] == MAGIC else c.D_OLD_CRC, int(suspect["computed"])
    if not left:
        return c.D_NONE, 0
    rest = walk.rest
    front = batch_front(rest.data)
    torn = (c.D_TORN, left) if rest.any() else (c.D_ZEROS, 0)
    if front is None or (len(rest) < HEADER_SIZE and (front.magic >= MAGIC or front.size < LEAST_BYTES[0])):
        return torn
    length = front.size - LOG_OVERHEAD
    if not front.is_known:
        return c.D_MAGIC, front.magic
    if length == 0 and front.offset == 0:
        return c.D_ZEROS, 0
    if front.size < LEAST_BYTES[front.magic]:
        return c.D_LENGTH if front.magic == MAGIC else c.D_OLD_LENGTH, length
    return (c.D_PAST_END, front.size) if front.size > left else torn
