"""A segment's ``.log`` without the records that key compaction removes, computed as a stream of bytes.

The stream still has all markers, and a header for each batch that loses all records: ``rules.markers`` decides on those
from a scan of the stream. A plan computes the stream to learn its exact size; ``apply`` computes it again to write it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from krepair.derive.transactions import A_FIRST, A_MARKER, A_PRODUCER
from krepair.formats import batch_v2
from krepair.formats.arrays import Int64s, Uint8s
from krepair.formats.batch_front import batch_front
from krepair.formats.batch_v2 import BatchHeader
from krepair.formats.castagnoli import crc32c
from krepair.formats.compression import Packing
from krepair.kernels import compact_filter as f
from krepair.kernels import compact_keys as k
from krepair.kernels.compact_headers import filter_headers
from krepair.kernels.compact_packed import filter_packed, note_packed
from krepair.kernels.compact_records import SLACK
from krepair.kernels.scan import ReadInto, fill
from krepair.rewrite.compaction.batch_records import (
    ContentBuffer,
    ContentError,
    record_problem,
    uncompressed_records,
)
from krepair.rewrite.compaction.headers import GAP_BYTES, NO_NOTES, BatchNotes
from krepair.rewrite.compaction.keys import whole_batch
from krepair.scan.unpacked_batches import UnpackedBatches

WINDOW_BYTES: Final = 1 << 20
_HELD_BYTES: Final = 16 << 20
"""Largest size in bytes of a batch's kept records that are held in memory; more are computed twice."""
_PIECE_BYTES: Final = 1 << 20
_SMALL_BYTES: Final = 1 << 20
"""Largest content in bytes that is decompressed and compressed in one call."""
_LARGEST_PACKED_BYTES: Final = _SMALL_BYTES + (_SMALL_BYTES >> 2)
"""Upper bound in bytes of such a content after some records were removed and the rest was compressed again."""
_PACKED_ROWS: Final = 1 << 12
_ALONE: Final = -1
"""Value of ``P_KEPT`` for a batch that must be read by itself."""
_NONE: Final = -1
_ALL: Final = 1 << 62

Piece = Any
"""Piece of the stream, uint8[] or bytes."""
OnSource = Callable[[Uint8s, int], None]
"""Function that takes a window, uint8[W] with ``SLACK`` bytes after it, and the place after its last batch.

The place is more than W if the batch exceeds the window.
"""
_END_OF_WINDOW: Final = b""


@dataclass(frozen=True)
class StayRules:
    """Rules that decide which records of one segment are kept.

    Attributes:
        offsets: int64[N], offsets of the last record of each key in this segment, ascending.
        aborted: int64[M, 3] (producer id, first offset, offset of the marker), ascending by the first two.
        now_ms: current time in epoch milliseconds, compared with delete horizons.
        drop_unstamped: True if tombstones without a delete horizon in their batch may be removed.
        keyless: True if there may be records without a key, which are kept.
        drop_stamped: True if tombstones past their batch's delete horizon may be removed.
        held: int64[H], ascending offsets of tombstones that are kept whatever their age.
    """

    offsets: Int64s
    aborted: Int64s
    now_ms: int
    drop_unstamped: bool
    keyless: bool = True
    drop_stamped: bool = True
    held: Int64s = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass
class _RecordsLeft:
    """Kept records of one batch."""

    parts: list[bytes] = field(default_factory=list)
    size: int = 0
    crc: int = 0
    kept: int = 0
    max_timestamp: int = -1
    whole: bool = True


class CompactedLog:
    """Stream of one compacted segment.

    Args:
        read_into: function that fills a buffer from a position of the source and returns the bytes read. It may raise
            ``OSError``.
        file_size: size of the source in bytes; all of it must be valid batches.
        stay: rules that decide which records are kept.
        noted: notes on the source. A batch for which they are enough is not read: the stream then has the right number
            of bytes in place of its records, but not the right bytes.
        sums: True to compute the CRC of each new batch.

    Attributes:
        tallies: int64[TALLY_COUNT], counts of the records that were read so far, by their fate.
        size: number of bytes streamed so far.
        on_source: function that takes each window of the source after the caller has read the window's part of the
            stream. Without notes it gets every batch once.
    """

    def __init__(
        self,
        read_into: ReadInto,
        file_size: int,
        stay: StayRules,
        noted: BatchNotes = NO_NOTES,
        *,
        sums: bool = True,
    ) -> None:
        self.tallies: Int64s = np.zeros(f.TALLY_COUNT, np.int64)
        self.size = 0
        self._read_into = read_into
        self._file_size = file_size
        self._stay = stay
        self._noted_of_it = noted
        self.on_source: OnSource | None = None
        self._inputs: Int64s = np.zeros(f.INPUT_SIZE, np.int64)
        self._inputs[f.N_NOW_MS] = stay.now_ms
        self._inputs[f.N_DROP_UNSTAMPED] = stay.drop_unstamped
        self._inputs[f.N_KEYLESS] = stay.keyless
        self._inputs[f.N_DROP_STAMPED] = stay.drop_stamped
        self._inputs[f.N_SUMS] = sums
        self._state: Int64s = np.zeros(f.FILTER_STATE, np.int64)
        self._window: Uint8s = np.empty(WINDOW_BYTES + SLACK, np.uint8)[:WINDOW_BYTES]
        self._out: Uint8s = np.empty(_LARGEST_PACKED_BYTES, np.uint8)
        self._buffer = ContentBuffer()
        self._unpacked = UnpackedBatches(_PACKED_ROWS)
        self._packed: Int64s = np.zeros((_PACKED_ROWS, f.FILTERED_COLUMNS), np.int64)
        self._noted = 0
        self._kept: Uint8s = np.empty(0, np.uint8)
        self._contents: Uint8s = np.frombuffer(b"", np.uint8)
        self._packing = Packing()
        self._source = self.pieces()
        self._held: Any = np.empty(0, np.uint8)
        self._lent: Uint8s | None = None
        self._in_place = False

    # -- the stream read like a file, forward only ------------------------------------------------
    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill a buffer with the next bytes of the stream; ``position`` must not be lower than in earlier calls.

        A call returns whole batches, and at most the kept part of one source window. The next call means that the
        caller has examined all of them.

        Raises:
            ContentError: a batch of the source cannot be read.
            OSError: the source cannot be read.
        """
        filled = 0
        while filled < len(buffer):
            begun = self.size - len(self._held)
            self._held = self._held[position + filled - begun :]
            if len(self._held):
                count = min(len(buffer) - filled, len(self._held))
                buffer[filled : filled + count] = memoryview(self._held[:count])
                filled += count
                continue
            self._lend(buffer if position == self.size and not filled else buffer[:0])
            piece = next(self._source, None)
            self._lent = None
            if piece is None or (len(piece) == 0 and filled):
                break
            self.size += len(piece)
            if self._in_place:
                filled = len(piece)
            else:
                self._held = np.frombuffer(piece, np.uint8)
        return filled

    def _lend(self, buffer: memoryview) -> None:
        """Use the caller's buffer for the next window's output, if it is large enough: this saves a copy."""
        self._in_place = False
        self._lent = np.frombuffer(buffer, np.uint8) if len(buffer) >= len(self._window) else None

    # -- the stream -------------------------------------------------------------------------------
    def pieces(self) -> Iterator[Piece]:
        """Yield the stream in pieces, each valid until the next request. An empty piece marks the end of a window.

        Raises:
            ContentError: a batch of the source cannot be read.
            OSError: the source cannot be read.
        """
        if self._noted_of_it.headers:
            yield from self._beside_headers()
            return
        position = 0
        while position < self._file_size:
            yield from self._from_window(self._fill(position, self._file_size), position)
            if self._state[f.F_PLACE] == 0:
                raise ContentError(position, "a whole batch was expected, found the end of the file")
            yield _END_OF_WINDOW
            if self.on_source:
                self.on_source(self._window, int(self._state[f.F_PLACE]))
            position += int(self._state[f.F_PLACE])

    def _beside_headers(self) -> Iterator[Piece]:
        """Yield the stream computed from the notes; read only the batches for which they are not enough."""
        heads, state = np.frombuffer(self._noted_of_it.headers, np.uint8), self._state
        sizes = np.frombuffer(self._noted_of_it.sizes, np.uint64)
        status = k.OUTPUT_FULL
        while status != k.NEED_BYTES:
            out = self._begin_output()
            status = filter_headers(
                heads, sizes, len(self._window), GAP_BYTES, self._stay.aborted, self._stay.offsets, self._stay.held,
                self._inputs, state, self.tallies, out,
            )  # fmt: skip
            if status == k.BAD_RECORD:
                self._refuse(status, int(state[f.F_POSITION]))
            if state[f.F_OUT]:
                self._in_place = out is not self._out
                yield out[: state[f.F_OUT]]
                yield _END_OF_WINDOW
            if status == k.OTHER:
                yield from self._run(int(state[f.F_POSITION]), int(state[f.F_RUN_END]))
                state[f.F_ROW], state[f.F_POSITION] = state[f.F_RUN_ROW], state[f.F_RUN_END]
                state[f.F_SIZED] = state[f.F_RUN_SIZED]
        if state[f.F_POSITION] != self._file_size:
            raise ContentError(int(state[f.F_POSITION]), "batches up to the end were expected, found none")

    def _run(self, position: int, end: int) -> Iterator[Piece]:
        """Read neighbouring batches together, or one that exceeds the window, and yield the kept part of them."""
        yield from self._from_window(self._fill(position, end), position)
        if self._state[f.F_PLACE] != end - position:
            text = "batches of the sizes that they had in the first reading were expected, found others"
            raise ContentError(position, text)

    def _fill(self, position: int, end: int) -> int:
        return fill(self._read_into, self._window.data, position, end)

    def _from_window(self, filled: int, position: int) -> Iterator[Piece]:
        """Yield the kept part of the batches at the start of the window; ``F_PLACE`` is the position after them."""
        state = self._state
        state[f.F_PLACE] = state[f.F_NEXT] = state[f.F_READY] = self._noted = 0
        status = k.OUTPUT_FULL
        while status == k.OUTPUT_FULL:
            out = self._begin_output()
            status = f.filter_window(
                self._window, filled, position, self._file_size, self._stay.aborted, self._stay.offsets,
                self._stay.held, self._inputs, state, self.tallies, self._packed, self._contents, out,
            )  # fmt: skip
            if status in (k.BAD_RECORD, k.BAD_ORDER, k.NO_BATCH, k.OLD_FORMAT):
                self._refuse(status, position)
            if state[f.F_OUT]:
                self._in_place = out is not self._out
                yield out[: state[f.F_OUT]]
            if status == k.UNPREPARED:
                self._prepare(filled)
                status = k.OUTPUT_FULL
            if status == k.OTHER:
                yield from self._one(filled, position)
                status = k.OUTPUT_FULL if state[f.F_PLACE] < filled else k.NEED_BYTES

    def _begin_output(self) -> Uint8s:
        """Return the buffer for the next piece."""
        self._state[f.F_OUT] = 0
        lent, self._lent = self._lent, None  # for one piece
        return self._out if lent is None else lent

    def _refuse(self, status: int, position: int) -> None:
        here = position + int(self._state[f.F_PLACE])
        if status == k.NO_BATCH:
            raise ContentError(here, "expected a batch, found none")
        raise ContentError(here, record_problem(status))

    def _one(self, filled: int, position: int) -> Iterator[Piece]:
        """Yield the kept part of a batch that is compressed, or exceeds the window."""
        window, place = self._window, int(self._state[f.F_PLACE])
        front = batch_front(window.data, place)
        assert front is not None  # a kernel has found it
        size = front.size
        here = position + place
        raw = window[place : place + batch_v2.HEADER_SIZE].tobytes()
        yield from self._batch(batch_v2.decode_header(raw), raw, place, size, filled, here)
        self._state[f.F_PLACE] = place + size

    def _verbatim(self, place: int, size: int, filled: int, position: int) -> Iterator[Piece]:
        if place + size <= filled:
            yield self._window[place : place + size]
            return
        for done in range(0, size, _PIECE_BYTES):
            wanted = min(_PIECE_BYTES, size - done)
            yield whole_batch(self._window, filled, wanted, filled, self._read_into, position + done)

    # -- compressed batches, many at a time ---------------------------------------------------------
    def _prepare(self, filled: int) -> None:
        """Compute the kept part of the window's next compressed batches, many in one call of the kernel."""
        state, stay, packed = self._state, self._stay, self._packed
        first = int(state[f.F_READY])
        if first == self._noted:
            first = state[f.F_NEXT] = 0
            self._noted = note_packed(
                self._window, filled, state[f.F_PLACE], stay.aborted, stay.offsets, self._inputs, state, packed
            )  # fmt: skip
        after = self._unpacked.unpack(self._window, packed, first, self._noted)
        if after == first:
            after += 1
            packed[first, f.P_KEPT] = _ALONE
        else:
            after = self._filter(first, after)
        state[f.F_READY] = after

    def _filter(self, first: int, after: int) -> int:
        """Copy the kept records from decompressed batches, and compress them; return the row after the last one."""
        if len(self._kept) < len(self._unpacked.bytes):
            self._kept = np.empty(len(self._unpacked.bytes), np.uint8)
        after = filter_packed(
            self._window, self._packed, first, after, self._unpacked.bytes, _SMALL_BYTES, self._stay.offsets,
            self._stay.held, self._inputs, self._state, self.tallies, self._kept,
        )  # fmt: skip
        rows = self._packed[first:after]
        columns, kept = [k.P_CODEC, k.P_START, k.P_END], self._kept.data
        pieces = self._packing.wholes(
            (codec, kept[start:end]) for codec, start, end in rows[:, columns].tolist()
        )
        ends = np.cumsum([len(piece) for piece in pieces])
        rows[:, k.P_START], rows[:, k.P_END] = np.append(0, ends[:-1]), ends
        self._contents = np.frombuffer(b"".join(pieces), np.uint8)
        return after

    # -- batches of v2 ----------------------------------------------------------------------------
    def _batch(
        self, header: BatchHeader, raw: bytes, place: int, size: int, filled: int, position: int
    ) -> Iterator[Piece]:
        if header.is_control or header.is_empty:
            yield from self._verbatim(place, size, filled, position)
            return
        if self._all_go(header):
            self.tallies[f.T_RECORDS] += header.record_count
            self.tallies[f.T_EMPTIED] += 1
            yield batch_v2.empty_batch(header)
            return
        cursor = int(self._state[f.F_CURSOR])

        def pieces(content: _RecordsLeft, tallies: Int64s, hold: int) -> Iterator[bytes]:
            self._state[f.F_CURSOR] = cursor
            return self._kept_content(header, raw, place, size, filled, position, content, tallies, hold)

        content = _RecordsLeft()
        content.parts = list(pieces(content, self.tallies, _HELD_BYTES))
        if content.kept == header.record_count:
            yield from self._verbatim(place, size, filled, position)
        elif content.kept == 0:
            self.tallies[f.T_EMPTIED] += 1
            yield batch_v2.empty_batch(header)
        else:
            self.tallies[f.T_REWRITTEN] += 1
            new = _new_header(header, content)
            summed = _RecordsLeft(crc=crc32c(batch_v2.HEADER.pack(new)[batch_v2.CRC_START :]))
            if content.whole:
                crc = summed.crc
                for part in content.parts:
                    crc = crc32c(part, crc)
                yield batch_v2.HEADER.pack(new._replace(crc=crc))
                yield from content.parts
                return
            # Too much to hold in memory: compute the bytes once for size and CRC, which precede them in the header,
            # and once more to yield them.
            uncounted = np.zeros_like(self.tallies)
            for _ in pieces(summed, uncounted, _NONE):
                pass
            yield batch_v2.HEADER.pack(new._replace(crc=summed.crc))
            yield from pieces(_RecordsLeft(), uncounted, _ALL)

    def _all_go(self, header: BatchHeader) -> bool:
        aborted, offsets = self._stay.aborted, self._stay.offsets
        if header.is_transactional and len(aborted):
            lows = aborted[:, A_PRODUCER] == header.producer_id
            hit = (
                lows
                & (aborted[:, A_FIRST] <= header.base_offset)
                & (aborted[:, A_MARKER] > header.base_offset)
            )
            if hit.any():
                self.tallies[f.T_ABORTED] += header.record_count
                return True
        first = int(np.searchsorted(offsets, header.base_offset))
        some = first < len(offsets) and offsets[first] <= header.last_offset
        if some or self._stay.keyless:
            return False
        self.tallies[f.T_SUPERSEDED] += header.record_count
        return True

    def _kept_content(
        self,
        header: BatchHeader,
        raw: bytes,
        place: int,
        size: int,
        filled: int,
        position: int,
        content: _RecordsLeft,
        tallies: Int64s,
        hold: int,
    ) -> Iterator[bytes]:
        """Yield the kept records, compressed; after ``hold`` bytes only compute their size and CRC."""
        state = self._state
        state[f.F_LAST_OFFSET] = header.base_offset - 1
        state[f.F_KEPT] = 0
        state[f.F_MAX_TIMESTAMP] = -1
        packer = self._packing.begin(header.codec)
        head = np.frombuffer(bytearray(raw), np.uint8)
        ready: list[bytes] = []

        def give(piece: bytes) -> None:
            if piece:
                content.size += len(piece)
                content.crc = crc32c(piece, content.crc)
                ready.append(piece)

        def take(buffer: Uint8s, end: int, remaining: int) -> tuple[int, int, int]:
            if len(self._out) < end:
                self._out = np.empty(len(buffer), np.uint8)
            state[f.F_OUT] = 0
            status, read, after = f.filter_records(
                buffer, 0, end, remaining, head,
                self._stay.offsets, self._stay.held, self._inputs, state, tallies, self._out,
            )  # fmt: skip
            kept = self._out[: state[f.F_OUT]].data
            for start in range(0, len(kept), _PIECE_BYTES):
                give(packer.add(kept[start : start + _PIECE_BYTES]))
            return status, read, after

        source = uncompressed_records(
            header.codec, self._window, place, size, filled, self._read_into, position
        )
        # Bytes are yielded after each piece of the source, so that no batch is in memory as a whole.
        reading = self._buffer.reading(source, header.codec, header.record_count, position, take)
        for _ in reading:
            yield from _given(ready, content, hold)
        give(packer.finish())
        content.kept = int(state[f.F_KEPT])
        content.max_timestamp = int(state[f.F_MAX_TIMESTAMP])
        yield from _given(ready, content, hold)


def _given(ready: list[bytes], content: _RecordsLeft, hold: int) -> Iterator[bytes]:
    for piece in ready:
        if content.size > hold:
            content.whole = False
        if content.whole:
            yield piece
    ready.clear()


def _new_header(header: BatchHeader, content: _RecordsLeft) -> BatchHeader:
    """Build the header of a batch with fewer records, except its CRC."""
    return header._replace(
        batch_length=batch_v2.HEADER_SIZE - batch_v2.LOG_OVERHEAD + content.size,
        record_count=content.kept,
        max_timestamp=header.max_timestamp if header.is_log_append_time else content.max_timestamp,
        crc=0,
    )
