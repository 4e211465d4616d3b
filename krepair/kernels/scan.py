"""Scan of one ``.log``: reads it once, checks every batch, and gives the summary on which most decisions rest.

This module reads the file into a window and calls the kernels (``scan_window``, ``legacy``). Memory does not grow with
the segment or with its largest batch: there is one window of ``WINDOW_BYTES``, one row per producer id, and one flag
per entry of the transaction index. A batch that exceeds the window is checksummed piece by piece.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct, field

from krepair.formats.arrays import Int32s, Int64s, Uint8s
from krepair.formats.java_numbers import INT64_MAX
from krepair.kernels import classes as c
from krepair.kernels import scan_window as kernel
from krepair.kernels.compact_records import SLACK
from krepair.kernels.large_batches import checksum_huge, huge_size
from krepair.kernels.legacy import SMALLEST_BYTES, legacy_window

WINDOW_BYTES = 1 << 20
_FIRST_ROWS = 64
_FIRST_EPOCHS = 64
_BEFORE_CRC = 0xFFFFFFFF
"""Mask of the bytes before the CRC in the header word that ends with the CRC."""

ReadInto = Callable[[memoryview, int], int]
"""Function that fills a buffer from a file position and returns the bytes read, 0 at the end; may raise ``OSError``."""
OnWindow = Callable[[Uint8s, int, Int32s, Uint8s], None]

DAMAGE_TEXT: dict[int, str] = {
    c.D_LENGTH: "batch_length of at least 49 was expected, found {found}",
    c.D_PAST_END: "a batch of {found} bytes is declared, which passes the end of the file",
    c.D_MAGIC: "magic byte 0, 1 or 2 was expected, found {found}",
    c.D_CRC: "the batch's CRC-32C is not that of its bytes (computed {found:#010x})",
    c.D_OFFSET_ORDER: "a base offset above the previous batch's last offset was expected, found {found}",
    c.D_OFFSET_RANGE: "offset {found} is not within 2147483647 of the base offset of its segment",
    c.D_COUNTS: "last_offset_delta and record_count must not be negative, found {found}",
    c.D_CONTROL: "the control record cannot be read",
    c.D_ZEROS: "a batch was expected, found zero bytes",
    c.D_TORN: "a whole batch was expected, {found} bytes are left",
    c.D_OLD_LENGTH: "a message_size of at least 14 (v0) or 22 (v1) was expected, found {found}",
    c.D_OLD_CRC: "the message's CRC-32 is not that of its bytes (computed {found:#010x})",
}


def no_ids() -> Int64s:
    """Return an empty list of ids or positions, int64[0]."""
    return np.empty(0, np.int64)


def no_pairs() -> Int64s:
    """Return an empty list of pairs, int64[0, 2]."""
    return np.empty((0, 2), np.int64)


class ScanInputs(Struct, frozen=True):
    """The input of a scan: one segment, and what the caller knows of the rest of the log.

    Attributes:
        base_offset: base offset of the segment.
        file_size: number of bytes of the ``.log`` to scan; it may be less than the size of the file.
        now_ms: current time in milliseconds, for markers with a delete horizon.
        high_watermark: offsets at or above it are not replicated; ``INT64_MAX`` if it does not matter.
        check_crc: True if every CRC is checked.
        digests_crc: True if the digest of headers covers the CRCs; False for a stream that is computed from notes,
            whose batches have no right CRC (see ``rewrite.compaction.headers``).
        entries: int64[E, 2] (producer id, offset of the abort marker) of the transaction index, by offset.
        carried: sorted ids of producers whose open transaction has a kept batch in an earlier segment.
        keep_positions: sorted positions of empty batches that are kept.
        protected: int64[N, 2], sorted pairs (producer id, epoch) whose markers are kept.
        held: sorted offsets of markers that are kept for other replicas.
        last_position: position of the batch that is kept because it is the last batch, -1 none.
        start_position: position of the first batch to scan; the bytes before it count as valid.
    """

    base_offset: int
    file_size: int
    now_ms: int
    high_watermark: int = INT64_MAX
    check_crc: bool = True
    digests_crc: bool = True
    entries: Int64s = field(default_factory=no_pairs)
    carried: Int64s = field(default_factory=no_ids)
    keep_positions: Int64s = field(default_factory=no_ids)
    protected: Int64s = field(default_factory=no_pairs)
    held: Int64s = field(default_factory=no_ids)
    last_position: int = -1
    start_position: int = 0


class SegmentSummary(Struct, frozen=True, kw_only=True, eq=False):  # noqa: PLW1641 - has no hash
    """Result of a scan: counts and bounds, not one row per batch.

    The file consists of ``valid_bytes`` bytes of valid batches and a rest, which is damaged or empty.

    Attributes:
        base_offset: base offset of the segment.
        file_size: number of bytes that the scan was asked for.
        valid_bytes: bytes of the valid batches, from position 0.
        damage: kind (``classes.D_*``) of the first damage, 0 none.
        damage_text: expected and actual content at position ``valid_bytes``, or empty.
        old_batches: number of v0 and v1 messages; each, plain or a wrapper, counts as one batch with one record.
        old_position: position of the first v0 or v1 message, -1 none.
        last_old_position: position of the last v0 or v1 message, -1 none.
        batches: number of valid batches.
        first_offset: base offset of the first batch, -1 none; for a v0 or v1 wrapper the offset of its last message.
        last_offset: last offset of the last batch, ``base_offset - 1`` if there is none.
        max_timestamp: largest max_timestamp of a batch in milliseconds, -1 none.
        offset_of_max: last offset of the first batch that has this timestamp.
        min_timestamp: smallest max_timestamp of a batch in milliseconds, -1 none.
        headers: digest over each batch's position and header, 32 hex digits.
        decisions: digest over each batch's class (int64 sum).
        rows: int64[P, ROW_SIZE], one per producer id, sorted by id.
        tallies: batches and bytes by class, int64[CLASS_COUNT, TALLY_COLUMNS].
        entry_flags: uint8[E], what the log shows for each entry of the transaction index, ENTRY_* of ``classes``.
        epochs: int64[M, EPOCH_SIZE], one row per batch at which the leader epoch changes; see ``classes``. In the row
            of the first batch, the last offset before is the segment's ``base_offset - 1``.
        stamped: number of batches with a delete horizon (KIP-534).
        largest_batch: bytes of the largest batch.
        aborts_unindexed: abort markers of kept data that have no entry; a producer's first marker is not counted.
        min_unreplicated: lowest first offset of a transaction whose marker is not below the high watermark.
        last_position: position of the last batch, -1 none.
        last_size: bytes of the last batch.
        last_class: class of the last batch.
    """

    base_offset: int
    file_size: int
    valid_bytes: int
    damage: int
    damage_text: str
    old_batches: int
    old_position: int
    last_old_position: int
    batches: int
    first_offset: int
    last_offset: int
    max_timestamp: int
    offset_of_max: int
    min_timestamp: int
    headers: str
    decisions: int
    rows: Int64s
    tallies: Int64s
    entry_flags: Uint8s
    epochs: Int64s
    stamped: int
    largest_batch: int
    aborts_unindexed: int
    min_unreplicated: int
    last_position: int
    last_size: int
    last_class: int

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SegmentSummary):
            return NotImplemented
        fields = ((getattr(self, name), getattr(other, name)) for name in self.__struct_fields__)
        return all(
            np.array_equal(mine, its) if isinstance(mine, np.ndarray) else mine == its for mine, its in fields
        )

    @property
    def is_whole(self) -> bool:
        """True if every byte belongs to a valid batch, of whatever format."""
        return self.damage == 0 and self.valid_bytes == self.file_size

    @property
    def old_format(self) -> bool:
        """True if there are messages of v0 or v1."""
        return self.old_batches > 0


class _Tables:
    """Arrays that may have to grow during a scan."""

    def __init__(self) -> None:
        self.rows: Int64s = np.empty((_FIRST_ROWS, c.ROW_SIZE), np.int64)
        self.slots = np.full(_FIRST_ROWS * 4, -1, np.int32)
        self.epochs: Int64s = np.empty((_FIRST_EPOCHS, c.EPOCH_SIZE), np.int64)

    def grow_rows(self) -> None:
        """Make room for four times the rows, and fill new hash slots."""
        used = self.rows
        self.rows = np.empty((len(used) * 4, c.ROW_SIZE), np.int64)
        self.rows[: len(used)] = used
        self.slots = np.full(len(self.rows) * 4, -1, np.int32)
        kernel.insert_rows(self.slots, used[:, c.P_ID].copy())

    def grow_epochs(self) -> None:
        used = self.epochs
        self.epochs = np.empty((len(used) * 4, c.EPOCH_SIZE), np.int64)
        self.epochs[: len(used)] = used


def _inputs_array(inputs: ScanInputs, *, stage: bool) -> Int64s:
    array = np.zeros(c.INPUT_SIZE, np.int64)
    array[c.I_CHECK_CRC] = inputs.check_crc
    array[c.I_NOW_MS] = inputs.now_ms
    array[c.I_HIGH_WATERMARK] = inputs.high_watermark
    array[c.I_BASE_OFFSET] = inputs.base_offset
    array[c.I_FILE_SIZE] = inputs.file_size
    array[c.I_STAGE] = stage
    array[c.I_CRC_MASK] = -1 if inputs.digests_crc else _BEFORE_CRC
    array[c.I_LAST_POSITION] = inputs.last_position
    return array


def _first_state(inputs: ScanInputs) -> Int64s:
    state = np.zeros(c.STATE_SIZE, np.int64)
    for scalar in (c.S_FIRST_OFFSET, c.S_MAX_TIMESTAMP, c.S_OFFSET_OF_MAX, c.S_MIN_TIMESTAMP, c.S_LAST_POSITION,
                   c.S_LAST_CLASS, c.S_LAST_LEADER_EPOCH, c.S_HUGE_OK):  # fmt: skip
        state[scalar] = -1
    state[c.S_ORIGIN] = inputs.start_position
    state[c.S_LAST_OFFSET] = inputs.base_offset - 1
    state[c.S_MIN_UNREPLICATED] = INT64_MAX
    return state


def fill(read_into: ReadInto, buffer: memoryview, position: int, end: int) -> int:
    """Fill a buffer completely, or up to the end of the file.

    Args:
        read_into: function that fills a buffer; it may return fewer bytes than requested.
        buffer: buffer to fill, uint8[W].
        position: position in the file of the first byte.
        end: position in the file where reading ends.

    Returns:
        Number of valid bytes in the buffer: fewer than its size only at ``end`` or at the end of the file.

    Raises:
        OSError: ``read_into`` has raised it.
    """
    wanted, filled = min(len(buffer), end - position), 0
    while filled < wanted and (got := read_into(buffer[filled:wanted], position + filled)):
        filled += got
    return filled


def scan_segment(
    inputs: ScanInputs,
    read_into: ReadInto,
    *,
    on_window: OnWindow | None = None,
    window_bytes: int = WINDOW_BYTES,
) -> SegmentSummary:
    """Scan one ``.log``.

    Args:
        inputs: facts about the segment and the pass.
        read_into: function that fills a buffer from a file position; returns bytes read, 0 at the end. It may raise
            ``OSError``. The bytes of one call are examined before the next call.
        on_window: called for each window of batches with (window, end place, starts, classes) before the window is
            used again. It gets every valid batch once. A batch larger than the window comes alone: its start is at
            place 0, and its end place lies after the window. Place 0 has the file position ``start_position`` plus
            the end places of all earlier calls. ``SLACK`` bytes after the window can be read; they have no meaning.
        window_bytes: size of the window.

    Returns:
        The summary. Damage is a value in it, not an exception.

    Raises:
        OSError: ``read_into`` has raised it.
    """
    tables = _Tables()
    window = np.empty(window_bytes + SLACK, np.uint8)[:window_bytes]
    view = window.data
    state = _first_state(inputs)
    array = _inputs_array(inputs, stage=on_window is not None)
    tallies = np.zeros((c.CLASS_COUNT, c.TALLY_COLUMNS), np.int64)
    entry_flags = np.zeros(len(inputs.entries), np.uint8)
    starts = np.empty(window_bytes // SMALLEST_BYTES + 2 if on_window else 0, np.int32)
    batch_classes = np.empty(len(starts), np.uint8)
    filled = 0
    at_end = False
    status = c.NEED_BYTES
    damage_text = ""
    while True:
        place = int(state[c.S_PLACE])
        if place and filled > place:
            view[: filled - place] = view[place:filled]
        filled -= place
        state[c.S_ORIGIN] += place
        state[c.S_PLACE] = 0
        state[c.S_STARTS] = 0
        wanted = min(window_bytes - filled, inputs.file_size - int(state[c.S_ORIGIN]) - filled)
        if not at_end and filled < window_bytes:
            got = (
                read_into(view[filled : filled + wanted], int(state[c.S_ORIGIN]) + filled)
                if wanted > 0
                else 0
            )
            at_end = got == 0
            filled += got
        status = _scan_filled(
            window, filled, state, array, tables, tallies, inputs, entry_flags, starts, batch_classes
        )
        if on_window is not None and state[c.S_STARTS]:
            used = int(state[c.S_STARTS])
            on_window(window, int(state[c.S_PLACE]), starts[:used], batch_classes[:used])
        if status == c.HUGE:
            if state[c.S_PLACE] or (filled < window_bytes and not at_end):
                continue  # the huge batch must be at the front of the window, and fill it
            size = huge_size(window)
            position = int(state[c.S_ORIGIN])
            huge = checksum_huge(window, filled, read_into, position) if inputs.check_crc else None
            if huge is not None and not huge.valid:
                state[c.S_DAMAGE], state[c.S_DAMAGE_FOUND] = huge.damage, huge.computed
                status = c.DAMAGE
                break
            state[c.S_HUGE_OK] = position
            status = _scan_filled(
                window, filled, state, array, tables, tallies, inputs, entry_flags, starts, batch_classes
            )
            if on_window is not None and state[c.S_STARTS]:
                on_window(window, size, starts[:1], batch_classes[:1])
            if status != c.NEED_BYTES:
                break
            state[c.S_ORIGIN] += size
            state[c.S_PLACE] = 0
            filled = 0
            continue
        if status == c.NEED_BYTES and not at_end:
            continue
        break
    unread = inputs.file_size - int(state[c.S_ORIGIN] + state[c.S_PLACE])
    if status == c.NEED_BYTES and unread > 0:
        zeros = filled > state[c.S_PLACE] and not window[int(state[c.S_PLACE]) : filled].any()
        state[c.S_DAMAGE], state[c.S_DAMAGE_FOUND] = (c.D_ZEROS, 0) if zeros else (c.D_TORN, unread)
    if state[c.S_DAMAGE]:
        damage_text = DAMAGE_TEXT[int(state[c.S_DAMAGE])].format(found=int(state[c.S_DAMAGE_FOUND]))
    return _summary(inputs, state, tables, tallies, entry_flags, damage_text)


class WholeWindows:
    """Scan of windows that the caller has read; it checks checksums, and computes the digest of the headers.

    Args:
        inputs: facts about the segment and the pass.
        read_into: function that reads the rest of a batch that exceeds the window, see ``scan_segment``.
    """

    def __init__(self, inputs: ScanInputs, read_into: ReadInto) -> None:
        self._inputs = inputs
        self._read_into = read_into
        self._tables = _Tables()
        self._state = _first_state(inputs)
        self._array = _inputs_array(inputs, stage=False)
        self._tallies: Int64s = np.zeros((c.CLASS_COUNT, c.TALLY_COLUMNS), np.int64)
        self._entry_flags: Uint8s = np.zeros(len(inputs.entries), np.uint8)
        self._whole = True

    def take(self, window: Uint8s, end: int) -> None:
        """Scan one window.

        Args:
            window: uint8[W] that begins with a batch.
            end: place after the window's last batch; more than W if that batch exceeds the window.

        Raises:
            OSError: the rest of a batch cannot be read.
        """
        if self._whole and self._scan(window, min(end, len(window))) == c.HUGE:
            self._huge(window, end)
        self._whole = self._whole and int(self._state[c.S_PLACE]) == end
        if self._whole:
            self._state[c.S_ORIGIN] += end
            self._state[c.S_PLACE] = 0

    def _scan(self, window: Uint8s, filled: int) -> int:
        nothing = np.empty(0, np.int32)
        return _scan_filled(
            window, filled, self._state, self._array, self._tables, self._tallies, self._inputs, self._entry_flags,
            nothing, self._entry_flags[:0],
        )  # fmt: skip

    def _huge(self, window: Uint8s, end: int) -> None:
        """Handle the last batch, which is larger than the window."""
        state, place = self._state, int(self._state[c.S_PLACE])
        front: Uint8s = window[place:].copy()
        position = int(state[c.S_ORIGIN]) + place
        if place + huge_size(front) != end:
            return
        if self._inputs.check_crc:
            huge = checksum_huge(front, len(front), self._read_into, position)
            if not huge.valid:
                state[c.S_DAMAGE], state[c.S_DAMAGE_FOUND] = huge.damage, huge.computed
                return
        state[c.S_HUGE_OK] = position
        self._scan(window, len(window))

    def summary(self) -> SegmentSummary:
        """Return the result; nothing after the first damage was scanned."""
        damage = int(self._state[c.S_DAMAGE])
        detail = int(self._state[c.S_DAMAGE_FOUND])
        text = DAMAGE_TEXT[damage].format(found=detail) if damage else ""
        return _summary(self._inputs, self._state, self._tables, self._tallies, self._entry_flags, text)


def _scan_filled(window: Uint8s, filled: int, state: Int64s, array: Int64s, tables: _Tables, tallies: Int64s,
                 inputs: ScanInputs, entry_flags: Uint8s, starts: Any, batch_classes: Uint8s) -> int:  # fmt: skip
    """Call the kernel of each format in turn. If a table is full, enlarge it and call the kernel again."""
    while True:
        status = kernel.scan_window(
            window, filled, state, array, tables.rows, tables.slots, tallies, inputs.entries, entry_flags,
            inputs.carried, inputs.keep_positions, inputs.protected, inputs.held,
            tables.epochs, starts, batch_classes,
        )  # fmt: skip
        if status == c.TABLE_FULL:
            tables.grow_rows()
        elif status == c.EPOCHS_FULL:
            tables.grow_epochs()
        elif status == c.OLD_FORMAT:
            status = legacy_window(window, filled, state, array, tallies, starts, batch_classes)
            if status != c.NEW_FORMAT:
                return int(status)
        else:
            return int(status)


def _summary(inputs: ScanInputs, state: Int64s, tables: _Tables, tallies: Int64s, entry_flags: Uint8s,
             damage_text: str) -> SegmentSummary:  # fmt: skip
    values = state.tolist()
    rows = tables.rows[: values[c.S_ROWS]]
    if not len(rows):
        rows = rows.copy()
    else:
        rows = rows[np.argsort(rows[:, c.P_ID], kind="stable")]
        rows[:, c.P_MARKERS] += rows[:, c.P_PLAIN_MARKERS]
        rows[:, c.P_FREE_MARKERS] += rows[:, c.P_PLAIN_MARKERS]
        rows[:, c.P_PLAIN_MARKERS] = 0
    lanes = (values[c.S_HEADERS_1] & (2**64 - 1), values[c.S_HEADERS_2] & (2**64 - 1))
    return SegmentSummary(
        base_offset=inputs.base_offset,
        file_size=inputs.file_size,
        valid_bytes=values[c.S_ORIGIN] + values[c.S_PLACE],
        damage=values[c.S_DAMAGE],
        damage_text=damage_text,
        old_batches=values[c.S_OLD_BATCHES],
        old_position=values[c.S_OLD_POSITION] if values[c.S_OLD_BATCHES] else -1,
        last_old_position=values[c.S_LAST_OLD_POSITION] if values[c.S_OLD_BATCHES] else -1,
        batches=values[c.S_BATCHES],
        first_offset=values[c.S_FIRST_OFFSET],
        last_offset=values[c.S_LAST_OFFSET],
        max_timestamp=values[c.S_MAX_TIMESTAMP],
        offset_of_max=values[c.S_OFFSET_OF_MAX],
        min_timestamp=values[c.S_MIN_TIMESTAMP],
        headers=f"{lanes[0]:016x}{lanes[1]:016x}",
        decisions=values[c.S_DECISIONS],
        rows=rows,
        tallies=tallies,
        entry_flags=entry_flags,
        epochs=tables.epochs[: values[c.S_EPOCHS]].copy(),
        stamped=values[c.S_STAMPED],
        largest_batch=values[c.S_LARGEST_BATCH],
        aborts_unindexed=values[c.S_ABORTS_UNINDEXED],
        min_unreplicated=values[c.S_MIN_UNREPLICATED],
        last_position=values[c.S_LAST_POSITION],
        last_size=values[c.S_LAST_SIZE],
        last_class=values[c.S_LAST_CLASS],
    )
