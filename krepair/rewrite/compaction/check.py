"""Verification of a key compaction, in two steps that share no code with the writer.

1. Each new log is read side by side with its sources. Every record of the new log must be in the source at the same
   offset, byte for byte; every header must be right, and no record without a key may be missing.
2. The keys of all groups are joined. For each key the new logs must hold its last committed record, unless that is a
   removable tombstone, and no other record.

This module decides by itself which tombstones are removable, and hashes keys in its own way. Only the formats and the
list of aborted transactions are the writer's.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import numpy as np

from krepair.durable.tree import Tree
from krepair.engine.items import Failed, PartitionItem, Place
from krepair.engine.place import with_log_dir
from krepair.engine.progress import shown_as
from krepair.formats import batch_v2, compression
from krepair.formats.arrays import Int64s, Uint8s
from krepair.formats.codec import Codec
from krepair.formats.damage import Damage
from krepair.kernels import check_compacted as v
from krepair.kernels.check_frames import single_blocks
from krepair.kernels.key_points import points_and_squares
from krepair.kernels.scan import ReadInto
from krepair.logdir.reading import opened_for_reading, read_into_from, why
from krepair.rewrite.compaction.items import CheckedSource, CheckItem, CheckResult
from krepair.rewrite.compaction.rows import SCRATCH_NEEDED, NoScratchError, RowFile, Rows, cut, put_rows
from krepair.scan.byte_stream import StoredBytes

WINDOW_BYTES: Final = 1 << 20
_SLACK: Final = 16
_TABLE_ROWS: Final = 1 << 19
"""Number of rows above which the table of keys is passed on and emptied, to limit memory."""
_FIRST_ROWS: Final = 1 << 12
_NOTED_ROWS: Final = 1 << 12
"""Number of keys that are collected before they enter the table together, so that memory can be prefetched."""
_LARGEST_RECORD_BYTES: Final = 72 << 20
"""Largest record that is verified; it is larger than any that the writer accepts."""
_LARGEST_ZSTD_RECORD_BYTES: Final = 32 << 20
"""Largest record in zstd: two copies of it, and the 128 MiB of zstd's window, stay below 256 MB together."""
_PACKED_ROWS: Final = 1 << 12
_PARTS: Final = 1 << 8
"""Number of parts into which keys are divided by their hashes, so that each can be checked by itself."""
_PART_SHIFT: Final = np.uint64(53)  # hashes have 61 bits


def _fill(read_into: ReadInto, window: Uint8s, held: int, position: int, size: int) -> int:
    """Fill a window whose first ``held`` bytes are valid already; ``position`` is the file position of its start."""
    view = window.data
    wanted = min(len(window), size - position)
    while held < wanted and (got := read_into(view[held:wanted], position + held)):
        held += got
    return held


# -- one group --------------------------------------------------------------------------------------
class _Mismatch(Exception):  # noqa: N818 - the answer of a verification, not an error
    """Difference between a new log and its sources; the message names file and position."""


class _TooLarge(Exception):  # noqa: N818 - not an error either
    """Batch that needs more memory than the writer leaves free; it is then verified from disk."""


class _LogWindow:
    """Log that is read forward through a window.

    In this class a *place* is an index into the window, and a *position* is an offset in the file.
    """

    def __init__(self, read_into: ReadInto, size: int) -> None:
        self.read_into = read_into
        self.size = size
        self.position = 0
        self.window: Uint8s = np.zeros(WINDOW_BYTES + _SLACK, np.uint8)[:WINDOW_BYTES]
        self.filled = 0
        self.go_to(0)

    @property
    def left(self) -> int:
        """Number of bytes after the window."""
        return self.size - self.position - self.filled

    def go_to(self, place: int) -> None:
        """Move the start of the window to a place inside the window or after it."""
        held = max(self.filled - place, 0)
        if held and place:
            self.window.data[:held] = self.window.data[place : self.filled]
        self.position += place
        self.filled = _fill(self.read_into, self.window, held, self.position, self.size)

    def front(self, place: int, count: int) -> bytes:
        """Return ``count`` bytes from a place on, even if they lie past the window."""
        if place + count <= self.filled:
            return self.window[place : place + count].tobytes()
        return bytes(StoredBytes(self.read_into, self.position + place, self.position + place + count)[:])


class _LentWindow(_LogWindow):
    """Window of whole batches that another reader has read; this class itself reads nothing."""

    def __init__(self) -> None:
        self.read_into = lambda buffer, position: 0
        self.position = self.size = self.filled = 0

    def lend(self, window: Uint8s, filled: int) -> None:
        """Set the next window of the log."""
        self.window, self.position, self.filled = window, self.size, filled
        self.size += filled

    def go_to(self, place: int) -> None:
        """Raise, because nothing follows.

        Raises:
            _Mismatch: more bytes were expected.
        """
        raise _Mismatch(f"position {self.position + place}: whole batches were expected")


class _CheckedContent:
    """Reader of the uncompressed records of one batch at a time, piece by piece.

    Args:
        grows: True if a record may be larger than the buffer.
    """

    def __init__(self, *, grows: bool) -> None:
        self._grows = grows
        self._pieces: Iterator[bytes | Damage] = iter(())
        self.buffer: Uint8s = np.zeros((1 << 20) + _SLACK, np.uint8)[: 1 << 20]
        self.end = 0
        self._most = _LARGEST_RECORD_BYTES

    def begin(self, log: _LogWindow, place: int, header: batch_v2.BatchHeader) -> _CheckedContent:
        """Begin to decompress the batch at a place of a log's window."""
        first, size = place + batch_v2.HEADER_SIZE, header.size_bytes
        if place + size <= log.filled:
            self._pieces = compression.chunks(header.codec, log.window[first : place + size].tobytes())
        else:
            start = log.position + place
            stored = StoredBytes(log.read_into, log.position + first, start + size)
            self._pieces = compression.chunks(header.codec, stored)
        self.end = 0
        zstd = header.codec == Codec.ZSTD
        self._most = _LARGEST_ZSTD_RECORD_BYTES if zstd else _LARGEST_RECORD_BYTES
        return self

    def more(self, place: int) -> bool:
        """Drop the bytes before a place, and read the next piece; return False if there is none."""
        if self.end > place > 0:
            self.buffer.data[: self.end - place] = self.buffer.data[place : self.end]
        self.end -= place
        piece = next(self._pieces, None)
        if piece is None:
            return False
        if isinstance(piece, Damage):
            raise _Mismatch(f"{piece.expected} was expected, found {piece.found}")
        wanted = self.end + len(piece)
        if wanted > self._most:
            raise _Mismatch(f"a record of more than {self._most} bytes")
        if wanted > len(self.buffer):
            if not self._grows:
                raise _TooLarge
            # The largest size is allocated at once: memory that is never written costs nothing.
            larger: Uint8s = np.zeros(self._most + _SLACK, np.uint8)[: self._most]
            larger[: self.end] = self.buffer[: self.end]
            self.buffer = larger
        self.buffer[self.end : wanted] = np.frombuffer(piece, np.uint8)
        self.end = wanted
        return True


@dataclass
class _Group:
    """Comparison of one group with its sources."""

    item: CheckItem
    tree: Tree
    beside_writer: bool = False

    def __post_init__(self) -> None:
        self.points = points_and_squares(self.item.points)
        self.state: Int64s = np.zeros(v.CHECK_STATE, np.int64)
        self.ranges: Int64s = np.frombuffer(self.item.aborted, np.int64).reshape(-1, 3)
        self.noted: Rows = np.empty((_NOTED_ROWS, v.ROW_WORDS), np.uint64)
        self.table: Rows = np.empty((0, v.ROW_WORDS), np.uint64)
        self._grow_table(_FIRST_ROWS)
        self.facts: Int64s = np.zeros(v.BATCH_FACTS, np.int64)
        self.inputs: Int64s = np.array(
            [self.item.now_ms, 0, self.item.transactions, self.item.elsewhere], np.int64
        )
        self.packed: Int64s = np.zeros((_PACKED_ROWS, v.PACKED_COLUMNS), np.int64)
        self.unpacked, self.unpacked_kept = CheckedContents(), CheckedContents()
        self.blocks, self.blocks_kept = (np.zeros((_PACKED_ROWS, 2), np.int64) for _ in range(2))
        self.rows: list[RowFile] = []
        self.content, self.kept = (_CheckedContent(grows=not self.beside_writer) for _ in range(2))

    def run(self) -> None:
        """Read the whole group and compare it with its sources.

        Raises:
            _Mismatch: the result differs from what the sources require.
            OSError: a file cannot be read.
        """
        with ExitStack() as opened:
            descriptor = opened.enter_context(opened_for_reading(self.item.result, self.tree))
            result = _LogWindow(read_into_from(descriptor), os.fstat(descriptor).st_size)
            for source in self.item.sources:
                self.inputs[v.I_HORIZON] = source.horizon_passed
                with opened_for_reading(source.path, self.tree) as source_descriptor:
                    source_log = _LogWindow(read_into_from(source_descriptor), source.size)
                    self.state[v.C_SOURCE] = 0
                    self._source(source_log, result, source)
            if result.position + int(self.state[v.C_RESULT]) != result.size:
                raise _Mismatch(f"{self.item.result}: {v.TEXTS[v.NOT_IN_SOURCE]}")

    def check_windows(self, source_log: _LogWindow, result: _LogWindow, source: CheckedSource) -> None:
        """Compare the whole batches in a window of the source with those in a window of the result.

        Raises:
            _Mismatch: the result differs from what the source requires.
            OSError: the scratch folder cannot be written.
        """
        self.inputs[v.I_HORIZON] = source.horizon_passed
        self.state[v.C_SOURCE] = self.state[v.C_RESULT] = 0
        self._source(source_log, result, source)
        if self.state[v.C_RESULT] != result.filled:
            raise _Mismatch(f"{source.path}, near position {source_log.position}: {v.TEXTS[v.NOT_IN_SOURCE]}")

    def result(self) -> CheckResult:
        """Return the collected rows and the counts of records.

        Raises:
            _Mismatch: the scratch folder has no room for the rows.
            OSError: the scratch folder cannot be written.
        """
        self._drain(last=True)
        return CheckResult(
            rows=tuple(self.rows),
            records=int(self.state[v.C_RECORDS]),
            kept=int(self.state[v.C_KEPT]),
        )

    def _source(self, source_log: _LogWindow, result: _LogWindow, source: CheckedSource) -> None:
        """Compare one source with its part of the result, and collect the rows of its keys."""
        status = v.NEED_SOURCE
        while status != v.DONE:
            status = v.check_window(
                source_log.window, source_log.filled, source_log.left, result.window, result.filled, result.left,
                self.ranges, self.inputs, self.points, self.noted, self.state, self.facts, self.packed,
            )  # fmt: skip
            self._join_noted_rows()
            if self.state[v.C_PACKED]:
                self._unpack(source_log, result, source)
            if status == v.PACKED_FULL:
                continue
            if status in (v.NEED_SOURCE, v.NEED_RESULT):
                log, column = (source_log, v.C_SOURCE) if status == v.NEED_SOURCE else (result, v.C_RESULT)
                if self.state[column] == 0:
                    raise _Mismatch(f"{source.path}, position {source_log.position}: {v.TEXTS[v.BAD_SOURCE]}")
                log.go_to(int(self.state[column]))
                self.state[column] = 0
            elif status == v.SLOW:
                self._compare_large(source_log, result, source)
            elif status not in (v.DONE, v.TABLE_FULL):
                where = source_log.position + int(self.state[v.C_SOURCE])
                raise _Mismatch(f"{source.path}, near position {where}: {v.TEXTS[status]}")

    # -- compressed batches that both windows hold completely, many at a time
    def _unpack(self, source_log: _LogWindow, result: _LogWindow, source: CheckedSource) -> None:
        """Decompress and compare the batches that the kernel put into ``packed``, except large ones."""
        state, next_places = self.state, (int(self.state[v.C_SOURCE]), int(self.state[v.C_RESULT]))
        count, first = int(state[v.C_PACKED]), 0
        state[v.C_PACKED] = 0
        source_data, result_data = source_log.window.data, result.window.data
        rows = self.packed[:count, : v.P_MODE].tolist()
        rows_without_block = self._find_blocks(source_log, result, count)
        row = self._add_blocks(source_data, result_data, 0, rows_without_block[0])
        while row < count:
            source_place, size, result_place, result_size, codec = rows[row]
            content = source_data[source_place + batch_v2.HEADER_SIZE : source_place + size]
            kept_from, kept_to = result_place + batch_v2.HEADER_SIZE, result_place + result_size
            kept = result_data[kept_from:kept_to] if result_size else None
            if not self._add(codec, content, kept):
                self._check_unpacked(source_log, result, first, row, source)
                first = row
                if not self._add(codec, content, kept):
                    if self.beside_writer:
                        raise _TooLarge
                    # A large or broken batch is read piece by piece, which also describes an error.
                    state[v.C_SOURCE], state[v.C_RESULT] = source_place, result_place
                    self._compare_large(source_log, result, source)
                    first = row + 1
            row += 1
            row += self._add_blocks(
                source_data, result_data, row, rows_without_block[bisect_left(rows_without_block, row)]
            )
        self._check_unpacked(source_log, result, first, count, source)
        state[v.C_SOURCE], state[v.C_RESULT] = next_places

    def _find_blocks(self, source_log: _LogWindow, result: _LogWindow, count: int) -> list[int]:
        """Find the batches that are a single lz4 block; return the rows of the others, and the row after the last."""
        single_blocks(source_log.window, self.packed, count, v.P_SOURCE, self.blocks)
        single_blocks(result.window, self.packed, count, v.P_RESULT, self.blocks_kept)
        without_block = np.minimum(self.blocks[:count, 0], self.blocks_kept[:count, 0]) < 0
        return [*np.flatnonzero(without_block).tolist(), count]

    def _add_blocks(self, source_data: memoryview, result_data: memoryview, first: int, after: int) -> int:
        """Decompress batches of one lz4 block each, in source and result; return the number of batches that fitted."""
        taken = self.unpacked.add_blocks(source_data, self.blocks[first:after].tolist())
        kept = self.unpacked_kept.add_blocks(result_data, self.blocks_kept[first : first + taken].tolist())
        self.unpacked.forget_last(taken - kept)
        return kept

    def _add(self, codec: int, content: memoryview, kept: memoryview | None) -> bool:
        """Add the records of a batch in source and result (None if none is kept); return False if there was no room."""
        if not self.unpacked.add(codec, content):
            return False
        if self.unpacked_kept.add_nothing() if kept is None else self.unpacked_kept.add(codec, kept):
            return True
        self.unpacked.forget_last()
        return False

    def _check_unpacked(
        self, source_log: _LogWindow, result: _LogWindow, first: int, after: int, source: CheckedSource
    ) -> None:
        for content, start in ((self.unpacked, v.P_START), (self.unpacked_kept, v.P_RESULT_START)):
            ends = content.taken()
            self.packed[first:after, start] = ends[:-1]
            self.packed[first:after, start + 1] = ends[1:]
        while first < after:
            status, first = v.check_packed(
                source_log.window, result.window, self.packed, first, after, self.unpacked.buffer,
                self.unpacked_kept.buffer, self.ranges, self.inputs, self.points, self.noted, self.state, self.facts,
            )  # fmt: skip
            self._join_noted_rows()
            if status not in (v.DONE, v.TABLE_FULL):
                where = source_log.position + int(self.packed[first, v.P_SOURCE])
                raise _Mismatch(f"{source.path}, position {where}: {v.TEXTS[status]}")

    # -- batches that are compressed and large, or exceed a window
    def _compare_large(self, source_log: _LogWindow, result: _LogWindow, source: CheckedSource) -> None:
        """Compare the batch at ``C_SOURCE`` piece by piece, and move both windows past it."""
        source_place, result_place = int(self.state[v.C_SOURCE]), int(self.state[v.C_RESULT])
        where = f"{source.path}, position {source_log.position + source_place}"
        size = _size_at(source_log, source_place)
        result_has_more = result.position + result_place < result.size
        result_size = _size_at(result, result_place) if result_has_more else 0
        header = batch_v2.decode_header(source_log.front(source_place, batch_v2.HEADER_SIZE))
        new_header = _header_at(result, result_place) if result_has_more else None
        if new_header is not None and new_header.base_offset < header.base_offset:
            raise _Mismatch(f"{where}: {v.TEXTS[v.NOT_IN_SOURCE]}")
        if new_header is not None and new_header.base_offset != header.base_offset:
            new_header = None
        self._batch(source_log, source_place, header, result, result_place, new_header, where)
        is_in_result = new_header is not None
        self.state[v.C_SOURCE] = source_place + size
        self.state[v.C_RESULT] = result_place + (result_size if is_in_result else 0)
        for log, end in ((source_log, v.C_SOURCE), (result, v.C_RESULT)):
            if self.state[end] > log.filled:
                log.go_to(int(self.state[end]))
                self.state[end] = 0

    def _batch(
        self,
        source_log: _LogWindow,
        source_place: int,
        header: batch_v2.BatchHeader,
        result: _LogWindow,
        result_place: int,
        new_header: batch_v2.BatchHeader | None,
        where: str,
    ) -> None:
        """Compare one batch of the source, and its header, with the batch of the same offset in the result.

        Args:
            new_header: header of that batch in the result; None if the result has no such batch.
            where: path and position in the source, for messages.

        Raises:
            _Mismatch: the batch in the result is wrong.
        """
        identical = new_header == header and _same_bytes(
            source_log, source_place, result, result_place, header.size_bytes
        )
        head = np.frombuffer(source_log.front(source_place, batch_v2.HEADER_SIZE) + bytes(8), np.uint8)
        if not header.is_control and not header.is_empty:
            v.batch_facts(head, 0, self.ranges, self.inputs, self.facts)
            self.facts[v.B_MODE] = (
                v.SAME if identical else v.COMPARE if new_header is not None else v.ALL_GONE
            )
            self.state[v.C_LEFT], self.state[v.C_MAX_TIME] = header.record_count, -1
            self.state[v.C_RESULT_LEFT] = 0 if identical or new_header is None else new_header.record_count
            if new_header is not None and new_header.record_count > 0 and new_header.codec != header.codec:
                raise _Mismatch(f"{where}: {v.TEXTS[v.HEADER_CHANGED]}")
            kept = None
            if new_header is not None and not identical and new_header.record_count:
                kept = self.kept.begin(result, result_place, new_header)
            self._records(self.content.begin(source_log, source_place, header), kept, where)
        if new_header is not None and not identical:
            new_head = np.frombuffer(result.front(result_place, batch_v2.HEADER_SIZE) + bytes(8), np.uint8)
            if header.is_control and not new_header.is_empty:
                raise _Mismatch(f"{where}: {v.TEXTS[v.HEADER_CHANGED]}")
            if not v.header_is_right(head, 0, new_head, 0, self.state[v.C_MAX_TIME]):
                raise _Mismatch(f"{where}: {v.TEXTS[v.HEADER_CHANGED]}")

    def _records(self, source: _CheckedContent, kept: _CheckedContent | None, where: str) -> None:
        """Compare the records of one batch; ``kept`` is its content in the result, None if no record is kept."""
        state, saved = self.state, (int(self.state[v.C_SOURCE]), int(self.state[v.C_RESULT]))
        state[v.C_SOURCE] = state[v.C_RESULT] = 0
        nothing = np.zeros(_SLACK, np.uint8)
        status = v.NEED_SOURCE
        while status != v.DONE:
            if status == v.NEED_SOURCE:
                if not source.more(int(state[v.C_SOURCE])):
                    raise _Mismatch(f"{where}: {v.TEXTS[v.BAD_SOURCE]}")
                state[v.C_SOURCE] = 0
            elif status == v.NEED_RESULT:
                if kept is None or not kept.more(int(state[v.C_RESULT])):
                    raise _Mismatch(f"{where}: {v.TEXTS[v.CHANGED]}")
                state[v.C_RESULT] = 0
            elif status != v.TABLE_FULL:
                raise _Mismatch(f"{where}: {v.TEXTS[status]}")
            status = v.check_records(
                source.buffer, source.end, kept.buffer if kept else nothing, kept.end if kept else 0, self.facts,
                self.points, self.noted, state,
            )  # fmt: skip
            self._join_noted_rows()
        for content, end in ((source, v.C_SOURCE), (kept, v.C_RESULT)):
            if content is not None and (state[end] != content.end or content.more(content.end)):
                raise _Mismatch(f"{where}: bytes are left after the last record")
        state[v.C_SOURCE], state[v.C_RESULT] = saved

    # -- rows
    def _join_noted_rows(self) -> None:
        """Enter the collected keys into the table."""
        count = int(self.state[v.C_NOTED])
        if count == 0:
            return
        while (held := int(self.state[v.C_ROWS])) + count > len(self.table):
            if held and len(self.table) >= _TABLE_ROWS:
                self._drain()
            else:
                self._grow_table(4 * len(self.table))
        v.join_rows(self.noted[:count], self.table, self.slots, self.state)
        self.state[v.C_NOTED] = 0

    def _grow_table(self, rows: int) -> None:
        """Move the rows of the table to a larger one with room for ``rows`` rows."""
        held = int(self.state[v.C_ROWS])
        old, self.table = self.table, np.empty((rows, v.ROW_WORDS), np.uint64)
        self.table[:held] = old[:held]
        self.slots = np.full(2 * rows, -1, np.int32)
        v.enter_slots(self.table, held, self.slots)

    def _drain(self, *, last: bool = False) -> None:
        """Put the rows of the table into a row file, sorted by part, and empty the table."""
        held = self.table[: self.state[v.C_ROWS]]
        # numpy sorts 8-bit numbers with a radix sort, which is faster than a sort that compares.
        parts = (held[:, 0] >> _PART_SHIFT).astype(np.uint8)
        rows: Rows = held[np.argsort(parts, kind="stable")]
        if not last:
            self.slots[:] = -1
        self.state[v.C_ROWS] = 0
        if len(rows) == 0:
            return
        starts = np.append(0, np.cumsum(np.bincount(parts, minlength=_PARTS))).astype(np.int64)
        inline = not self.rows and len(rows) <= self.item.rows_inline
        try:
            self.rows.append(put_rows(rows, starts, "checked", self.item.scratch, inline=inline))
        except NoScratchError:
            raise _Mismatch(SCRATCH_NEEDED) from None


def _size_at(log: _LogWindow, place: int) -> int:
    return int.from_bytes(log.front(place + 8, 4), "big", signed=True) + batch_v2.LOG_OVERHEAD


def _header_at(log: _LogWindow, place: int) -> batch_v2.BatchHeader | None:
    raw = log.front(place, min(batch_v2.HEADER_SIZE, log.size - log.position - place))
    return batch_v2.decode_header(raw) if len(raw) == batch_v2.HEADER_SIZE else None


def _same_bytes(
    source_log: _LogWindow, source_place: int, result: _LogWindow, result_place: int, size: int
) -> bool:
    for done in range(0, size, WINDOW_BYTES):
        count = min(WINDOW_BYTES, size - done)
        if source_log.front(source_place + done, count) != result.front(result_place + done, count):
            return False
    return True


@shown_as("prove")
@with_log_dir
def check_group(item: CheckItem, tree: Tree) -> CheckResult | Failed:
    """Compare one new segment with its sources."""
    group = _Group(item, tree)
    try:
        group.run()
        return group.result()
    except (_Mismatch, OSError) as problem:
        return _failed(item, problem)


def _failed(item: CheckItem, problem: Exception) -> Failed:
    if isinstance(problem, OSError):
        return Failed("unreadable", f"{problem.filename or item.result}: {why(problem)}")
    return Failed("verify", str(problem))


class SourceProof:
    """Verification of one source while the new log is written, so that neither file need be read again.

    It gets each window of the source together with the bytes that the writer made from it. A later reader of the new
    log only has to check the CRCs, and that the file holds what was written. At a large record the proof gives up,
    because the writer needs the memory: then both files are verified from disk.

    Args:
        item: item of one source; the proof does not read the source's files.
        tree: tree of the log directory; the scratch folder lies outside of it.
    """

    def __init__(self, item: CheckItem, tree: Tree) -> None:
        self._item = item
        self._group = _Group(item, tree, beside_writer=True)
        self._source, self._result = _LentWindow(), _LentWindow()
        self._outcome: Failed | None = None
        self._is_active = True

    def take(self, window: Uint8s, end: int, result: Uint8s, result_end: int) -> None:
        """Compare the batches of one source window with the bytes that the writer made from them.

        Args:
            window: uint8[W] with 16 bytes after it, unchanged during the call.
            end: place after the last batch; more than W if that batch exceeds the window, where the proof gives up.
            result: uint8[V] with 16 bytes after it.
            result_end: number of valid bytes in ``result``.
        """
        if end > len(window):
            self.give_up()
        if not self._is_active:
            return
        self._source.lend(window, end)
        self._result.lend(result, result_end)
        try:
            self._group.check_windows(self._source, self._result, self._item.sources[0])
        except (_Mismatch, OSError) as problem:
            self._outcome, self._is_active = _failed(self._item, problem), False
        except _TooLarge:
            self.give_up()

    def give_up(self) -> None:
        """Stop the proof; the files must then be verified from disk."""
        self._outcome, self._is_active = None, False

    def end(self) -> CheckResult | Failed | None:
        """Return the result of the proof; None if it gave up."""
        if not self._is_active:
            return self._outcome
        source = self._item.sources[0]
        if self._source.size != source.size:
            text = f"{source.path}: {self._source.size} of {source.size} bytes were read"
            return Failed("verify", text)
        try:
            return self._group.result()
        except (_Mismatch, OSError) as problem:
            return _failed(self._item, problem)


_INTO: Final = {int(Codec.LZ4): compression.lz4_into, int(Codec.SNAPPY): compression.snappy_into}
_CONTENT_SLACK: Final = 16
_CONTENT_BYTES: Final = 1 << 20


class CheckedContents:
    """Buffer with the uncompressed records of many batches, one after another.

    The decompression is not the writer's: it uses other code for lz4 and snappy, and walks over zstd frames in Python.
    Both use the same libraries for gzip and for the content of zstd frames.

    Attributes:
        buffer: uint8[V], with 16 bytes after it.
        ends: position after each content, preceded by 0.
    """

    def __init__(self) -> None:
        self._make(_CONTENT_BYTES)
        self.ends = [0]

    def _make(self, size: int) -> None:
        self.buffer: Uint8s = np.zeros(size + _CONTENT_SLACK, np.uint8)[:size]
        self._view = self.buffer.data

    def add(self, codec: int, stored: memoryview) -> bool:
        """Decompress the records of one more batch.

        Args:
            codec: codec id of the batch.
            stored: compressed records of the batch.

        Returns:
            True if the content was added. False if there is no room, or if the content is large or broken, so that it
            must be read in pieces. The first content always has room.
        """
        into = _INTO.get(codec)
        if into and (end := into(stored, self._view, self.ends[-1])) >= 0:
            self.ends.append(end)
            return True
        content = compression.at_once(codec, stored)
        return content is not None and self._take(content)

    def _take(self, content: bytes) -> bool:
        start = self.ends[-1]
        end = start + len(content)
        if end > len(self.buffer):
            if start:
                return False
            self._make(end)
        self._view[start:end] = content
        self.ends.append(end)
        return True

    def add_nothing(self) -> bool:
        """Add an empty content, for a batch without records."""
        self.ends.append(self.ends[-1])
        return True

    def add_blocks(self, window: memoryview, blocks: Iterable[tuple[int, int]]) -> int:
        """Decompress lz4 blocks one after another, see ``compression.lz4_blocks_into``; return their number."""
        ends = compression.lz4_blocks_into(window, blocks, self._view, self.ends[-1])
        self.ends += ends
        return len(ends)

    def forget_last(self, count: int = 1) -> None:
        """Remove the contents that were added last."""
        del self.ends[len(self.ends) - count :]

    def taken(self) -> list[int]:
        """Return the starts of the contents and the end of the last, and empty the buffer."""
        ends, self.ends = self.ends, [0]
        return ends


@shown_as("prove")
def check_join(
    item: PartitionItem, rows: tuple[RowFile, ...], first: int, after: int, count: int
) -> int | Failed:
    """Check that the new logs hold the right record of each key in some parts; return the number of keys.

    Args:
        rows: rows of all groups of the partition.
        first: first of the judged parts.
        after: part after the last judged one.
        count: number of rows in these parts.
    """
    del item  # it only tells how much is read
    size = 1 << 10
    while size < 2 * count:
        size *= 2
    every: Rows = np.empty((count, v.ROW_WORDS), np.uint64)
    slots = np.full(size, -1, np.int32)
    state: Int64s = np.zeros(v.CHECK_STATE, np.int64)
    try:
        for file in rows:
            v.join_rows(file.rows(first, after), every, slots, state)
    except OSError as error:
        return Failed("disk", f"{error.filename}: {why(error)}")
    table = every[: state[v.C_ROWS]]
    offset, wrong, keys = v.judge_rows(table, len(table))
    texts = (
        "",
        f"the last record of a key, at offset {offset}, is gone, and it is not a removable tombstone",
        f"the result has another record of the key whose last record is at offset {offset}",
        f"the record at offset {offset} has a key that no committed record of the source has",
        f"the tombstone at offset {offset} is gone, but an older record of its key stays",
    )
    return Failed("verify", texts[wrong]) if wrong else int(keys)


def join_items(
    place: Place, rows: Sequence[RowFile], rows_at_once: int = 1 << 19
) -> Iterator[tuple[PartitionItem, tuple[RowFile, ...], int, int, int]]:
    """Yield the arguments of ``check_join`` for the keys of one partition.

    Args:
        rows: rows of all groups of the partition.
        rows_at_once: approximate number of rows per item.
    """
    if not rows:
        return
    counts = np.sum([np.diff(file.starts()) for file in rows], axis=0)
    for first, after in cut(counts, rows_at_once):
        if counts[first:after].any():
            count = int(counts[first:after].sum())
            item = PartitionItem(place=place, bytes_to_read=count * 8 * v.ROW_WORDS)
            yield item, tuple(rows), first, after, count
