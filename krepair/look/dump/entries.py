"""Lines of ``krepair dump`` for the files beside a log: indexes, snapshots, checkpoints, properties."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from krepair.formats import (
    checkpoint,
    meta_properties,
    offset_index,
    partition_metadata,
    producer_snapshot,
    time_index,
    txn_index,
)
from krepair.formats.damage import Damage
from krepair.formats.fixed_entries import padding_start
from krepair.formats.java_numbers import LARGEST_FILE_BYTES
from krepair.formats.layout import Layout
from krepair.logdir.reading import pread_all, read_whole
from krepair.look.dump.record import DumpWord, Style

MOST_TEXT_BYTES: Final = 64 << 20
_WINDOW_BYTES: Final = 1 << 20


class _ShownIndex(NamedTuple):
    """Display of an index's entries.

    Attributes:
        layout: layout of an entry.
        kind: kind of the lines.
        wrong: function of entries and their predecessors, int64[N, C] each, and the base offset; it marks the wrong
            entries, bool[N].
        expected: description of a valid entry.
        offset_column: column by which entries are selected.
        pads: True if a broker leaves zeros after the entries.
    """

    layout: Layout
    kind: str
    wrong: Callable[[Any, Any, int], Any]
    expected: str
    offset_column: int
    pads: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the numbers in a line; offsets are absolute."""
        return tuple(name.removeprefix("relative_") for name in self.layout.names)

    def values(self, entries: Any, base_offset: int) -> Any:
        """Return the numbers of the lines, int64[N, C]."""
        return np.column_stack(
            [
                entries[name].astype(np.int64) + (base_offset if name == "relative_offset" else 0)
                for name in self.layout.names
            ]
        )


INDEXES: Final = {
    "index": _ShownIndex(
        offset_index.ENTRY,
        "index_entry",
        lambda now, before, base: (now <= before).any(axis=1) | (now[:, 0] < base) | (now[:, 1] < 0),
        "an offset and a position above those before",
        0,
    ),
    "timeindex": _ShownIndex(
        time_index.ENTRY,
        "time_index_entry",
        lambda now, before, base: (
            (now[:, 0] <= before[:, 0]) | (now[:, 1] < before[:, 1]) | (now[:, 1] < base)
        ),
        "a timestamp above and an offset not below those before",
        1,
    ),
    "txnindex": _ShownIndex(
        txn_index.ENTRY,
        "aborted_transaction",
        lambda now, before, base: (
            (now[:, 0] != txn_index.VERSION) | (now[:, 1:] < 0).any(axis=1) | (now[:, 2] > now[:, 3])
        ),
        f"version {txn_index.VERSION}, no negative number, and a first offset not above the last",
        3,
        pads=False,
    ),
}


class EntryDump:
    """Files of entries of one size, read window by window; holes are skipped.

    Args:
        style: output style, JSON or words.
        base_offset: base offset of the segment.
        lowest: lowest offset whose entries have lines.
        highest: highest offset whose entries have lines.
    """

    def __init__(self, style: Style, base_offset: int, lowest: int, highest: int) -> None:
        self.style = style
        self.base_offset = base_offset
        self.lowest = lowest
        self.highest = highest

    def index(self, kind: str, descriptor: int, size: int) -> Iterator[bytes | Damage]:
        """Yield the lines of an index.

        Args:
            kind: index kind, a key of ``INDEXES``.
            size: size of the whole file in bytes.
        """
        index = INDEXES[kind]
        layout, pads, columns = index.layout, index.pads, index.columns
        write = self.style.row_writer(index.kind, columns)
        whole = min(size, LARGEST_FILE_BYTES) // layout.size * layout.size
        before = np.full((1, len(columns)), -(2**63), np.int64)
        position, zeros = 0, -1
        step = _WINDOW_BYTES // layout.size * layout.size
        while position < whole:
            data = pread_all(descriptor, min(step, whole - position), position)
            count = len(data) // layout.size
            if count == 0:
                yield Damage(position, whole - position, f"a file of {size} bytes", "its end")
                return
            entries = layout.view(data)
            used = padding_start(data, layout.size)
            if used == 0 and position == 0 and count == 1 and pads:
                used = 1  # a single entry of zeros is real: timestamp 0 at the base offset
            if used and zeros >= 0:
                yield Damage(zeros, position - zeros, "entries", "zeros")
                zeros = -1
            now = index.values(entries[:used], self.base_offset)
            wrong = index.wrong(now, np.vstack([before, now[:-1]]), self.base_offset) if used else []
            yield from self._rows(index, now, np.flatnonzero(wrong), write, position)
            if used:
                before = now[-1:]
            if used < count and zeros < 0:
                zeros = position + used * layout.size
            position += count * layout.size
            if zeros >= 0:
                position = min(next_data(descriptor, position, whole) // layout.size * layout.size, whole)
        yield from self._end(size, whole, zeros, layout.size, pads=pads)

    def _end(
        self, size: int, whole: int, zeros: int, entry_size: int, *, pads: bool
    ) -> Iterator[bytes | Damage]:
        """Yield what follows the last entry: zeros from a position (-1 for none), a torn entry, or unread bytes."""
        if zeros >= 0 and pads:
            entries_left = (whole - zeros) // entry_size
            yield self.style.line(
                "padding", {"position": zeros, "length": whole - zeros, "entries": entries_left}
            )
        elif zeros >= 0:
            yield Damage(zeros, whole - zeros, "entries", "zeros")
        if size > LARGEST_FILE_BYTES:
            yield Damage(
                whole, size - whole, f"at most {LARGEST_FILE_BYTES} bytes", "more, which was not read"
            )
        elif size % entry_size:
            yield Damage(whole, size - whole, f"a multiple of {entry_size} bytes", f"{size} bytes")

    def _rows(
        self, index: _ShownIndex, now: Any, bad: Any, write: Callable[[Sequence[int]], bytes], position: int
    ) -> Iterator[bytes | Damage]:
        offsets, entry_size = now[:, index.offset_column], index.layout.size
        wanted = (offsets >= self.lowest) & (offsets <= self.highest)
        begin = 0
        for stop in (*bad.tolist(), len(now)):
            chosen = now[begin : stop + 1][wanted[begin : stop + 1]]
            for row in chosen.tolist():
                yield write(row)
            if stop < len(now):
                actual = ", ".join(str(value) for value in now[stop].tolist())
                yield Damage(position + stop * entry_size, entry_size, index.expected, actual)
            begin = stop + 1

    def snapshot(self, descriptor: int, size: int) -> Iterator[bytes | Damage]:
        """Yield the lines of a producer ``.snapshot``."""
        bounded = min(size, LARGEST_FILE_BYTES)
        wrong: Damage | None = Damage(0, size, f"at most {LARGEST_FILE_BYTES} bytes", f"{size} bytes")
        if size <= LARGEST_FILE_BYTES:
            wrong = producer_snapshot.damage_in(
                size, lambda start, end: pread_all(descriptor, max(min(end, bounded) - start, 0), start)
            )
        if wrong is not None:
            yield wrong
        head = pread_all(descriptor, producer_snapshot.HEADER_SIZE, 0)
        if len(head) < producer_snapshot.HEADER_SIZE:
            return
        version, crc, count = producer_snapshot.HEADER.unpack(head)
        yield self.style.line("snapshot", {"version": version, "crc": crc, "entries": count})
        if version != producer_snapshot.VERSION or size > LARGEST_FILE_BYTES:
            return
        entry = producer_snapshot.ENTRY
        write = self.style.row_writer("producer", entry.names)
        there = min(max(count, 0), (size - producer_snapshot.HEADER_SIZE) // entry.size)
        step = _WINDOW_BYTES // entry.size
        for first in range(0, there, step):
            data = pread_all(
                descriptor,
                min(step, there - first) * entry.size,
                producer_snapshot.HEADER_SIZE + first * entry.size,
            )
            for row in entry.view(data).tolist():
                yield write(row)


def text_file(style: Style, kind: str, data: bytes, size: int) -> Iterator[bytes | Damage]:
    """Yield the lines of a small text file.

    Args:
        style: output style, JSON or words.
        kind: ``offsets``, ``epochs``, ``meta.properties``, ``partition.metadata`` or ``text``.
        data: content of the file, at most ``MOST_TEXT_BYTES``.
        size: size of the whole file in bytes.
    """
    if size > len(data):
        yield Damage(
            len(data), size - len(data), f"at most {MOST_TEXT_BYTES} bytes", "more, which was not read"
        )
    if kind in {"offsets", "epochs"}:
        yield from _checkpoint(style, kind, data)
    elif kind == "meta.properties":
        meta = meta_properties.decode(data)
        if isinstance(meta, Damage):
            yield meta
            return
        for key, value in meta.properties.items():
            yield style.line("property", {"key": key, "value": value})
    elif kind == "partition.metadata":
        metadata = partition_metadata.decode(data)
        if isinstance(metadata, Damage):
            yield metadata
            return
        topic_id = DumpWord(partition_metadata.topic_id_text(metadata.topic_id))
        yield style.line("partition_metadata", {"version": metadata.version, "topic_id": topic_id})
    else:
        for line in data.decode("utf-8", "backslashreplace").splitlines():
            yield style.line("text", {"line": line})


def _checkpoint(style: Style, kind: str, data: bytes) -> Iterator[bytes | Damage]:
    decoded: checkpoint.Checkpoint[Any] = (
        checkpoint.decode_offsets(data) if kind == "offsets" else checkpoint.decode_epochs(data)
    )
    for entry in decoded.entries:
        yield style.line("checkpoint_entry" if kind == "offsets" else "epoch_entry", entry._asdict())
    yield from decoded.damage


def read_text(path: str) -> bytes:
    """Read a small file, but no more than any file of its kind has.

    Raises:
        OSError: the file cannot be read.
    """
    return read_whole(path, MOST_TEXT_BYTES)


def next_data(descriptor: int, position: int, end: int) -> int:
    """Return the position of the next bytes outside of a hole, as far as known; the end if there are none."""
    try:
        return min(os.lseek(descriptor, position, os.SEEK_DATA), end) if position < end else end
    except OSError as error:
        return end if error.errno == errno.ENXIO else position
