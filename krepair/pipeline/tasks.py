"""What one task does: scan a segment, stage a segment's kept bytes, finish a group. The same functions run inline.

Each opens the files itself and returns its failure as a value. Staging writes only into the private sub-folder, and
writes the same bytes at the same place however often it is run.
"""

from __future__ import annotations

import os
import socket

import numpy as np

from krepair.checks.audit import Bools, Int32s, audit_gathered, audit_window, runs_of
from krepair.durable.real_disk import RealDisk
from krepair.formats import batch_v2, txn_index
from krepair.kernels.huge import Bytes
from krepair.kernels.places import gather_kept
from krepair.kernels.scan import WINDOW_BYTES, Int64s, ScanInputs, SegmentSummary, scan_segment
from krepair.logdir.reading import opened_for_reading, read_whole, why
from krepair.pipeline.items import (
    FailureKind,
    FinishItem,
    FinishResult,
    Place,
    ScanItem,
    ScanResult,
    StageItem,
)
from krepair.pipeline.regenerate import read_into_from, regenerate_offset_and_time
from krepair.pipeline.verify import verify_group
from krepair.pipeline.wire import encode_summary
from krepair.plan.model import SourceSegment
from krepair.rules.markers import stays

TXN_INDEX_AT_MOST_BYTES = 1 << 30
_PIECES = 64
_COPY_BYTES = 1 << 20


def log_name(base_offset: int) -> str:
    """File name of a segment's ``.log``."""
    return f"{base_offset:020d}.log"


def elsewhere(place: Place) -> str:
    """Why this worker cannot do an item of that place, or empty."""
    if place.host != socket.gethostname():
        return f"the work is on host {place.host}, this worker runs on {socket.gethostname()}"
    try:
        inode = os.stat(place.log_dir).st_ino
    except OSError as error:
        return f"{place.log_dir}: {why(error)}"
    return "" if inode == place.log_dir_inode else f"{place.log_dir} is not the same directory on this worker"


def pairs(values: tuple[tuple[int, int], ...]) -> Int64s:
    """Pairs as int64[N, 2]."""
    return np.array(values, np.int64).reshape(-1, 2)


def read_entries(place: Place, base_offset: int) -> bytes:
    """The bytes of a segment's ``.txnindex``, empty if there is none."""
    try:
        return read_whole(f"{place.path}/{base_offset:020d}.txnindex", TXN_INDEX_AT_MOST_BYTES)
    except FileNotFoundError:
        return b""


def entry_pairs(entries: bytes) -> Int64s:
    """(producer id, offset of the abort marker) of each entry."""
    view = txn_index.view(entries)
    return np.column_stack([view["producer_id"], view["last_offset"]]).astype(np.int64)


def scan(item: ScanItem) -> ScanResult:
    """Scan one ``.log``."""
    wrong = elsewhere(item.place)
    if wrong:
        return ScanResult(failure="elsewhere", why=wrong)
    name = log_name(item.base_offset)
    try:
        entries = read_entries(item.place, item.base_offset)
        damage = txn_index.damage(entries, item.base_offset)
        if damage:
            entries = b""
        inputs = ScanInputs(
            base_offset=item.base_offset,
            file_size=item.size,
            now_ms=item.now_ms,
            high_watermark=item.high_watermark,
            check_crc=item.check_crc,
            entries=entry_pairs(entries),
            protected=pairs(item.protected),
        )
        with opened_for_reading(f"{item.place.path}/{name}") as descriptor:
            summary = scan_segment(inputs, read_into_from(descriptor))
    except OSError as error:
        return ScanResult(failure="unreadable", why=f"{item.place.folder}/{name}: {why(error)}")
    where = f"{item.base_offset:020d}.txnindex"
    text = (
        f"{where}, position {damage[0].position}: {damage[0].expected} was expected, found {damage[0].found}"
        if damage
        else ""
    )
    return ScanResult(summary=encode_summary(summary), entries=entries, txn_damage=text)


class _Copy:
    """Copies what stays of one source to its place in the new ``.log``, auditing every window on the way."""

    def __init__(self, item: StageItem, descriptor: int, source: SourceSegment) -> None:
        self.item = item
        self.descriptor = descriptor
        self.disk = RealDisk()
        self.written = 0
        self.problem = ""
        self.read = 0
        self.stays = np.array([stays(number, drop_unstamped=source.drop_unstamped) for number in range(12)])
        self.last_position = source.last_position
        self.gathered = np.empty(WINDOW_BYTES, np.uint8)

    def take(self, window: Bytes, end: int, starts: Int32s, batch_classes: Bytes) -> None:
        kept = self.stays[batch_classes]
        if self.problem:
            return
        self.problem = audit_window(window, end, starts, kept)
        if self.problem:
            self.problem = f"position {self.read}: {self.problem}"
            return
        if end > len(window):
            self._copy_huge(end)
        elif kept.any():
            self._write_runs(window, end, starts, kept)
        self.read += end

    def _write_runs(self, window: Bytes, end: int, starts: Int32s, kept: Bools) -> None:
        last: list[memoryview] = []
        if self.read <= self.last_position < self.read + end:
            last = [self._last_piece(window, end)]
            end = self.last_position - self.read
            starts, kept = starts[:-1], kept[:-1]
        if not kept.any():
            self._write(last)
        elif np.count_nonzero(kept[1:] != kept[:-1]) <= 2 * _PIECES:
            self._write([window.data[first:after] for first, after in runs_of(starts, kept, end)] + last)
        else:
            self._write([self._gathered(window, end, starts, kept), *last])

    def _gathered(self, window: Bytes, end: int, starts: Int32s, kept: Bools) -> memoryview:
        """Many stretches as one piece: a write takes few pieces, and a Python step for each would be the slow part."""
        count = gather_kept(window, starts, end, kept, self.gathered)
        self.problem = self.problem or audit_gathered(
            window, end, starts, kept, self.gathered[: max(count, 0)]
        )
        return self.gathered.data[: max(count, 0)]

    def _write(self, pieces: list[memoryview]) -> None:
        """Write, then read back: each kept batch is byte for byte its source's."""
        if self.problem:
            return
        at = self.item.out_position + self.written
        count = self.disk.write_at(self.item.target, at, pieces)
        self.written += count
        with opened_for_reading(self.item.target) as descriptor:
            back = np.frombuffer(os.pread(descriptor, count, at), np.uint8)
        done = 0
        for piece in pieces:
            if not np.array_equal(back[done : done + len(piece)], np.frombuffer(piece, np.uint8)):
                self.problem = (
                    f"what was written at position {at + done} of the new log reads back differently"
                )
                return
            done += len(piece)

    def _last_piece(self, window: Bytes, end: int) -> memoryview:
        """The last batch is emptied unless it is so already."""
        place = self.last_position - self.read
        batch = window[place:end].tobytes()
        header = batch_v2.decode_header(batch, 0)
        return memoryview(batch if header.record_count == 0 else batch_v2.empty_batch(header))

    def _copy_huge(self, size: int) -> None:
        for done in range(0, size, _COPY_BYTES):
            piece = os.pread(self.descriptor, min(_COPY_BYTES, size - done), self.read + done)
            self._write([memoryview(piece)])


def stage(item: StageItem) -> ScanResult:
    """Copy what stays of one segment; the decisions are made anew and must be the plan's."""
    wrong = elsewhere(item.place)
    if wrong:
        return ScanResult(failure="elsewhere", why=wrong)
    source = item.change.sources[item.source]
    name = f"{item.place.folder}/{log_name(source.base_offset)}"
    try:
        entries = read_entries(item.place, source.base_offset)
        inputs = ScanInputs(
            base_offset=source.base_offset,
            file_size=source.log_bytes,
            now_ms=item.now_ms,
            high_watermark=item.high_watermark,
            check_crc=False,
            entries=entry_pairs(entries),
            carried=np.array(source.carried_open, np.int64),
            keep_positions=np.array(source.keep_positions, np.int64),
            protected=pairs(source.protected),
            last_position=source.last_position,
        )
        with opened_for_reading(f"{item.place.path}/{log_name(source.base_offset)}") as descriptor:
            copy = _Copy(item, descriptor, source)
            summary = scan_segment(inputs, read_into_from(descriptor), on_window=copy.take)
    except OSError as error:
        return ScanResult(failure="unreadable", why=f"{name}: {why(error)}")
    kind, text = _stage_problem(item, source, copy, summary)
    if kind:
        return ScanResult(failure=kind, why=f"{name}: {text}")
    return ScanResult(summary=encode_summary(summary), entries=entries)


def _stage_problem(
    item: StageItem, source: SourceSegment, copy: _Copy, summary: SegmentSummary
) -> tuple[FailureKind, str]:
    if copy.problem:
        return "verify", copy.problem
    if summary.headers != item.headers:
        return "changed", "its batches are not those that the plan was made of"
    decisions = f"{summary.decisions & (2**64 - 1):016x}"
    kept = tuple(np.flatnonzero(summary.entry_flags == 2).tolist())
    if decisions != source.decisions or kept != source.aborted_kept:
        return "changed", f"the decisions made anew ({decisions}) are not the plan's ({source.decisions})"
    if copy.written != source.kept_bytes:
        return "verify", f"{source.kept_bytes} bytes were to stay, {copy.written} were written"
    return "", ""


def finish(item: FinishItem) -> FinishResult:
    """Index, attributes, sync and verification of one staged group."""
    wrong = elsewhere(item.place)
    if wrong:
        return FinishResult(failure="elsewhere", why=wrong)
    try:
        if item.make:
            _make_companions(item)
        return verify_group(item)
    except OSError as error:
        return FinishResult(failure="disk", why=f"{item.change.change_id}: {why(error)}")


def _make_companions(item: FinishItem) -> None:
    disk = RealDisk()
    stem = f"{item.stage}/{item.change.base_offset:020d}"
    change = item.change
    made = regenerate_offset_and_time(
        f"{stem}.log", change.log_bytes, change.base_offset, item.index_interval_bytes, check_crc=False
    )
    files = {".index": made.index, ".timeindex": made.time_index}
    carried = carried_entries(item)
    if carried:
        files[".txnindex"] = carried
    for suffix in (".index", ".timeindex", ".txnindex"):
        if os.path.lexists(stem + suffix):
            disk.unlink(stem + suffix)
        if suffix in files:
            disk.create(stem + suffix, files[suffix])
            disk.set_attributes(stem + suffix, item.attributes)
            disk.sync_file(stem + suffix)
    disk.set_attributes(f"{stem}.log", item.attributes)
    disk.sync_file(f"{stem}.log")
    disk.sync_dir(item.stage)


def carried_entries(item: FinishItem) -> bytes:
    """Entries of the sources' transaction indexes that are carried over, byte for byte."""
    kept: list[bytes] = []
    size = txn_index.ENTRY_SIZE
    for source in item.change.sources:
        if source.aborted_kept:
            entries = read_entries(item.place, source.base_offset)
            kept.extend(entries[number * size : (number + 1) * size] for number in source.aborted_kept)
    return b"".join(kept)
