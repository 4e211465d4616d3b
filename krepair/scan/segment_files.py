"""Functions that read the files of one segment: its indexes without padding, and parts of its log.

``SpotCheck`` compares index entries with the batches that they point to; ``rebuild_offset_and_time`` computes both
indexes as a broker's recovery would.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final, NamedTuple

import numpy as np

from krepair.checks.index_judge import ENTRY_SIZES, MISSING, IndexFile, real_bytes
from krepair.derive.segment import RecoveredSegment, recover_segment
from krepair.durable.tree import Tree
from krepair.engine.items import Place
from krepair.formats import txn_index
from krepair.formats.arrays import Int64s
from krepair.formats.batch_front import FRONT_BYTES, LEAST_BYTES, batch_front
from krepair.formats.damage import UnknownVersion
from krepair.formats.filenames import INDEX, TIME_INDEX, segment_name
from krepair.formats.java_numbers import LARGEST_FILE_BYTES
from krepair.kernels.columns import Batches, BatchWalk
from krepair.kernels.scan import ReadInto
from krepair.logdir.reading import (
    opened_for_reading,
    opened_with_status,
    pread_all,
    read_into_from,
    read_open,
    status_of,
)


def read_entries(stem: str, tree: Tree | None, log_bytes: int | None = None) -> bytes:
    """Read a segment's ``.txnindex``, at most as many bytes as its log can need; empty if there is none.

    Args:
        stem: path of the segment without the suffix.
        tree: directory tree that holds the files; None for any path.
        log_bytes: size of the log in bytes; None for the size of the ``.log`` beside it.

    Raises:
        OSError: the file cannot be read, or its log is missing.
    """
    with ExitStack() as opened:
        try:
            descriptor = opened.enter_context(opened_for_reading(f"{stem}.txnindex", tree))
        except FileNotFoundError:
            return b""
        if log_bytes is None:
            log_bytes = status_of(f"{stem}.log", tree).st_size
        return read_open(descriptor, _entry_bytes_needed(log_bytes))


class TxnEntries(NamedTuple):
    """Content of a ``.txnindex``.

    Attributes:
        data: bytes of the file; empty if they are damaged or of a later version.
        damage: reason why the bytes are not used, or empty.
        unknown: True if the reason is a later version, which is no damage.
    """

    data: bytes = b""
    damage: str = ""
    unknown: bool = False


def sound_entries(place: Place, base_offset: int, tree: Tree) -> TxnEntries:
    """Read a segment's ``.txnindex``."""
    entries = read_entries(place.stem(base_offset), tree)
    damage = txn_index.damage(entries, base_offset)
    if not damage:
        return TxnEntries(entries)
    first, name = damage[0], segment_name(base_offset, ".txnindex")
    unknown = isinstance(first, UnknownVersion)
    where = name if unknown else f"{name}, position {first.position}"
    return TxnEntries(damage=f"{where}: {first.text}", unknown=unknown)


def aborts_in(entries: bytes) -> Int64s:
    """Return int64[N, 3] (producer id, first offset, offset of the abort marker) of the entries."""
    view = txn_index.view(entries)
    columns = [view[name] for name in ("producer_id", "first_offset", "last_offset")]
    return np.column_stack(columns).astype(np.int64)


def entry_pairs(entries: bytes) -> Int64s:
    """Return int64[N, 2] (producer id, offset of the abort marker) of the entries."""
    return np.ascontiguousarray(aborts_in(entries)[:, [0, 2]])


def pairs(values: tuple[tuple[int, int], ...]) -> Int64s:
    """Return pairs as int64[N, 2]."""
    return np.array(values, np.int64).reshape(-1, 2)


READ_AT_MOST_BYTES: Final = 128 << 20
"""Largest index that is read; no log needs a larger one."""
TAIL_AT_MOST_BYTES: Final = 8 << 20
"""Bytes of log that may be read between two entries, or after the last one, before the whole log must decide."""
PAGE_BYTES: Final = 4096
_SLACK_BYTES: Final = 1 << 16
_BLOCK_BYTES: Final = 1 << 20
_EXTENTS_AT_MOST: Final = 1 << 12
"""Largest number of ranges without holes that are listed of a file."""
_NEAR_BYTES: Final = 1 << 14
"""Window in bytes for the batches that an entry points to; a few of them are enough."""
_LAST_CHECKED: Final = 64
"""Number of last entries that are always compared, because a crash loses the last writes before it."""
_SMALL_BYTES: Final = 1 << 14
"""Size up to which an index is read whole, because finding its holes takes longer."""
_NO_SEEK_DATA: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})


def _entry_bytes_needed(log_bytes: int) -> int:
    """Return how many bytes of a ``.txnindex`` to read: an entry for each batch, and more to notice errors."""
    batches = log_bytes // LEAST_BYTES[0] + 1
    return min(batches * txn_index.ENTRY_SIZE + _SLACK_BYTES, txn_index.AT_MOST_BYTES)


def read_index(path: str, suffix: str, log_bytes: int, tree: Tree | None = None) -> IndexFile:
    """Read an index file without the zeros after its entries; holes are not read at all.

    Args:
        path: path of the index file.
        suffix: ``.index`` or ``.timeindex``.
        log_bytes: size of the log in bytes; an index cannot have more entries.
        tree: directory tree that holds the file; None for any path.

    Raises:
        OSError: the file cannot be read, or is not a regular file.
    """
    try:
        with opened_with_status(path, tree) as (descriptor, status):
            return _read_open(descriptor, status.st_size, suffix, log_bytes)
    except FileNotFoundError:
        return MISSING


def _read_open(descriptor: int, size: int, suffix: str, log_bytes: int) -> IndexFile:
    entry = ENTRY_SIZES[suffix]
    whole = size // entry * entry
    torn = size - whole
    if size > LARGEST_FILE_BYTES:
        return IndexFile(size, torn=torn, unread=True)
    small = pread_all(descriptor, whole) if whole <= _SMALL_BYTES else b""
    last = len(small.rstrip(b"\0")) if small else _last_used(descriptor, whole)
    end = -(-last // entry) * entry
    if end > min(max(log_bytes, PAGE_BYTES), READ_AT_MOST_BYTES):
        return IndexFile(size, torn=torn, unread=True)
    raw = small[:end] if small else pread_all(descriptor, end)
    used = real_bytes(raw, suffix)
    if suffix == TIME_INDEX and used == 0 and whole == entry:
        return IndexFile(size, bytes(entry), torn=torn)  # a lone entry of zeros is real
    return IndexFile(size, raw[:used], padded=(whole - used) // entry, torn=torn)


def read_front(path: str, count: int, tree: Tree | None = None) -> bytes:
    """Read the first ``count`` bytes of a file.

    Raises:
        OSError: the file cannot be read.
    """
    with opened_for_reading(path, tree) as descriptor:
        return pread_all(descriptor, count)


def _extents(descriptor: int, end: int) -> list[tuple[int, int]]:
    """Return the ranges of the file that are not holes, as far as the file system reports them."""
    extents: list[tuple[int, int]] = []
    position = 0
    try:
        while position < end:
            first = os.lseek(descriptor, position, os.SEEK_DATA)
            position = os.lseek(descriptor, first, os.SEEK_HOLE)
            extents.append((first, min(position, end)))
            if len(extents) == _EXTENTS_AT_MOST:
                extents.append((position, end))
                break
    except OSError as error:
        if error.errno in _NO_SEEK_DATA:
            return [(0, end)]
        if error.errno != errno.ENXIO:  # no data from here on
            raise
    return [(first, last) for first, last in extents if first < last]


def _last_used(descriptor: int, end: int) -> int:
    """Return the position after the last non-zero byte below ``end``."""
    for first, last in reversed(_extents(descriptor, end)):
        while last > first:
            start = max(first, last - _BLOCK_BYTES)
            used = len(os.pread(descriptor, last - start, start).rstrip(b"\0"))
            if used:
                return start + used
            last = start
    return 0


def sampled(count: int, entry_bytes: int) -> list[int]:
    """Choose the entries to compare: the first and last of each page, and the last few.

    If a write was lost, whole pages are missing, and one of these entries shows it.
    """
    per_page = PAGE_BYTES // entry_bytes
    chosen = set(range(0, count, per_page)) | set(range(per_page - 1, count, per_page))
    return sorted(chosen | set(range(max(0, count - _LAST_CHECKED), count)))


class SpotCheck:
    """Comparison of index entries with the batches that they point to, without reading the rest of the log.

    This check can only prove that the entries are right. If anything differs from what brokers write, ``index_judge``
    has to compare the entries with the whole log.

    Args:
        descriptor: descriptor of the log.
        log_bytes: size of the log in bytes.
        offsets: int64[N, 2], see ``index_judge.offset_entries``.
        times: int64[M, 2], (timestamp, offset) of the ``.timeindex``.

    Attributes:
        certain: True if each compared entry is as brokers write it, and the batches from the last entry on extend to
            the end of the log.
        largest: largest timestamp after the last entry, -1 if none.
    """

    def __init__(self, descriptor: int, log_bytes: int, offsets: Int64s, times: Int64s) -> None:
        self.descriptor = descriptor
        self.log_bytes = log_bytes
        self.offsets = offsets
        self.times = times
        self.largest = -1
        self.certain = self._offsets_fit() and self._tail_fits() and self._times_fit()

    def _offsets_fit(self) -> bool:
        entries = sampled(len(self.offsets), ENTRY_SIZES[INDEX])
        return all(self._fits_at(entry, *self.offsets[entry].tolist()) for entry in entries)

    def _fits_at(self, entry: int, offset: int, position: int) -> bool:
        """Return whether a batch starts at a position, and no batch before it ends at the offset or later."""
        front = batch_front(os.pread(self.descriptor, FRONT_BYTES, position))
        if front is None or not front.fits(self.log_bytes - position):
            return False
        return front.offset <= offset or self._ends_below(entry, offset, position)

    def _ends_below(self, entry: int, offset: int, position: int) -> bool:
        """Return whether the batches from the previous entry up to a position end exactly there, below an offset.

        Compaction causes this: the entry's offset no longer exists, and the entry points to the next batch.
        """
        start = int(self.offsets[entry - 1, 1]) if entry else 0
        if not 0 <= position - start <= TAIL_AT_MOST_BYTES:
            return False
        walk = BatchWalk(read_into_from(self.descriptor), position, start)
        last = -1
        for rows in walk:
            last = int(rows["last_offset"][-1])
        return walk.is_at_end and last < offset

    def _tail_fits(self) -> bool:
        start = int(self.offsets[-1, 1]) if len(self.offsets) else 0
        if self.log_bytes - start > TAIL_AT_MOST_BYTES:
            return False
        walk = BatchWalk(read_into_from(self.descriptor), self.log_bytes, start)
        last_offset = -1
        for rows in walk:
            self.largest = max(self.largest, int(rows["max_timestamp"].max()))
            last_offset = int(rows["last_offset"][-1])
        past = len(self.offsets) and int(self.offsets[-1, 0]) > last_offset
        past = past or (len(self.times) and int(self.times[-1, 1]) > last_offset)
        return walk.is_at_end and not past

    def _times_fit(self) -> bool:
        for entry in sampled(len(self.times), ENTRY_SIZES[TIME_INDEX]):
            timestamp, offset = self.times[entry].tolist()
            stamp = self._timestamp_at(offset)
            if stamp is None or timestamp > stamp:
                return False
        return True

    def _timestamp_at(self, offset: int) -> int | None:
        """Return the largest timestamp of the batch that holds an offset, else of the next batch."""
        before = int(np.searchsorted(self.offsets[:, 0], offset, side="right")) - 1
        start = int(self.offsets[before, 1]) if before >= 0 else 0
        for rows in self._batches_from(start):
            at = int(np.searchsorted(rows["last_offset"], offset))
            if at < len(rows):
                return int(rows["max_timestamp"][at])
        return None

    def _batches_from(self, start: int) -> Iterator[Batches]:
        walk = BatchWalk(
            read_into_from(self.descriptor),
            self.log_bytes,
            start,
            until=start + TAIL_AT_MOST_BYTES,
            window_bytes=_NEAR_BYTES,
        )
        return iter(walk)


def kept_ranges(size: int, without: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Return (start, end) of each kept range of a file."""
    kept, position = [], 0
    for start, end in without:
        kept.append((position, start))
        position = end
    return tuple((start, end) for start, end in [*kept, (position, size)] if start < end)


def reader_without(read_into: ReadInto, kept: tuple[tuple[int, int], ...]) -> ReadInto:
    """Return a reader of a file in which the kept ranges follow each other without gaps."""
    starts = np.cumsum([0, *(end - start for start, end in kept)])

    def read(buffer: memoryview, position: int) -> int:
        number = int(np.searchsorted(starts, position, side="right")) - 1
        if number >= len(kept):
            return 0
        start, end = kept[number]
        at = start + position - int(starts[number])
        return read_into(buffer[: min(len(buffer), end - at)], at)

    return read


def rebuild_offset_and_time(
    path: str,
    size: int,
    base_offset: int,
    interval_bytes: int,
    *,
    tree: Tree | None = None,
) -> RecoveredSegment:
    """Compute the ``.index`` and ``.timeindex`` of a segment from its ``.log``, one window at a time.

    Args:
        path: path of the ``.log``.
        size: size of the log in bytes, as listed.
        interval_bytes: bytes of log between two index entries (``index.interval.bytes`` of the topic).
        tree: directory tree that holds the file; None for any path.

    Returns:
        The bytes of both files for the valid part of the log. Damage is a value in the result, never an exception.

    Raises:
        OSError: the file cannot be read.
    """
    with opened_for_reading(path, tree) as descriptor:
        return recover_segment(base_offset, size, interval_bytes, read_into_from(descriptor))
