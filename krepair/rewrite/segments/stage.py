"""Tasks that copy the kept batches of segments into a new log (``stage``), and finish that log (``finish``).

Both tasks write only into the work folder, and a repeated task writes the same bytes at the same positions. ``stage``
checks every window of a source while copying. ``finish`` reads the new log once, builds the indexes, and verifies log
and indexes in the same reading.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from msgspec.structs import replace

from krepair.checks.audit import audit_gathered, audit_window
from krepair.checks.index_judge import AbortedAudit, RebuiltIndexes
from krepair.checks.walk import Walked
from krepair.derive.index_entries import IndexEntries, index_bytes
from krepair.durable.disk import Disk
from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.durable.writing_error import WritingError
from krepair.engine.items import Failed, FailureKind, FinishItem, FinishResult, ScanResult, StageItem
from krepair.engine.place import with_log_dir
from krepair.engine.progress import shown_as
from krepair.formats import batch_v2, txn_index
from krepair.formats.arrays import Bools, Int32s, Int64s, Uint8s
from krepair.formats.castagnoli import crc32c
from krepair.formats.filenames import INDEX, TIME_INDEX, TXN_INDEX, log_name, offset_name, segment_name
from krepair.kernels.classes import CLASS_COUNT
from krepair.kernels.compact_records import SLACK
from krepair.kernels.gather import crc_of_fronts, gather_kept
from krepair.kernels.scan import WINDOW_BYTES, ReadInto, ScanInputs, SegmentSummary, scan_segment
from krepair.logdir.fingerprint import digest_bytes
from krepair.logdir.reading import opened_for_reading, read_into_from, why
from krepair.plan.model import SourceSegment
from krepair.rewrite.segments.verify import (
    attribute_problem,
    changed_index,
    new_name,
    read_new_log,
    txn_index_problem,
    verify_group,
    wrong,
)
from krepair.rules.markers import stays
from krepair.scan.segment_files import entry_pairs, pairs, read_entries


@shown_as("stage")
@with_log_dir
def stage(item: StageItem, tree: Tree) -> ScanResult | Failed:
    """Copy the kept batches of one segment; the decisions are recomputed and must equal the plan's."""
    source = item.change.sources[item.source]
    name = f"{item.place.folder}/{log_name(source.base_offset)}"
    try:
        entries = read_entries(item.place.stem(source.base_offset), tree)
        inputs = ScanInputs(
            base_offset=source.base_offset,
            file_size=source.log_bytes,
            now_ms=item.now_ms,
            high_watermark=item.high_watermark,
            check_crc=True,  # even of batches that are removed: the plan's digest covers only headers
            entries=entry_pairs(entries),
            carried=np.array(source.carried_open, np.int64),
            keep_positions=np.array(source.keep_positions, np.int64),
            protected=pairs(source.protected),
            held=np.array(source.held, np.int64),
            last_position=source.last_position,
        )
        path = f"{item.place.path}/{log_name(source.base_offset)}"
        with opened_for_reading(path, tree) as descriptor:
            read_into = read_into_from(descriptor)
            copy = KeptBytes(
                source, item.target, item.out_position,
                keeps_all=source.keeps, read_into=read_into, disk=RealDisk(tree), audits=True,
            )  # fmt: skip
            summary = scan_segment(inputs, read_into, on_window=copy.take)
            copy.finish()
    except WritingError as error:
        return Failed("disk", f"{error.filename}: {why(error)}")
    kind, text = _stage_problem(item, source, copy, summary)
    if kind:
        return Failed(kind, f"{name}{text}")
    return ScanResult(summary=summary, entries=entries, written_crc=copy.crc)


def _stage_problem(
    item: StageItem, source: SourceSegment, copy: KeptBytes, summary: SegmentSummary
) -> tuple[FailureKind, str]:
    if copy.problem:
        return "verify", f": {copy.problem}"
    if summary.headers != item.headers or summary.damage:
        return "changed", not_as_planned(summary)
    kind, text = not_as_decided(summary, source)
    return kind, f": {text}" if kind else ""


def not_as_planned(summary: SegmentSummary) -> str:
    """Describe how a log differs from its state when the plan was made, as a continuation of the log's name.

    Args:
        summary: summary of the log's scan.
    """
    if summary.damage:
        return f", position {summary.valid_bytes}: {summary.damage_text}; the log was valid when the plan was made"
    return ": its batches differ from those that the plan lists"


class Decided(Protocol):
    """Planned decisions about the batches of one source."""

    @property
    def decisions(self) -> str:
        """Digest of the decisions, 16 hex digits."""

    @property
    def aborted_kept(self) -> tuple[int, ...]:
        """Positions, in the transaction index, of the entries that are kept."""


def not_as_decided(summary: SegmentSummary, planned: Decided) -> tuple[FailureKind, str]:
    """Describe how the staged data of one source differs from the plan; empty if there is no difference.

    Args:
        summary: summary of the scan that recomputed the decisions.
        planned: decisions of the plan.
    """
    decisions = f"{summary.decisions & (2**64 - 1):016x}"
    kept = tuple(np.flatnonzero(summary.entry_flags == 2).tolist())
    if decisions != planned.decisions or kept != planned.aborted_kept:
        text = "what stays was decided again, and is not what the plan has"
        return "changed", f"{text}: {decisions}, the plan has {planned.decisions}"
    return "", ""


_AT_ONCE_BYTES = 1 << 21
"""Alignment of writes in the new log. Aligned writes keep large contiguous pieces in the page cache."""


class KeptBytes:
    """Writer of the kept batches of a scan's windows, one after another.

    Args:
        source: the source's part of the plan.
        target: absolute path of the new log, which already exists.
        position: position in the new log of the first byte from this source.
        keeps_all: True to keep transaction markers and tombstones of any age.
        read_into: reader of the source, for the rest of a batch that exceeds the window.
        audits: True to audit every window.

    Attributes:
        problem: description of an error, or empty; after an error nothing more is written.
        written: number of bytes written from this source, complete after ``finish`` was called.
        crc: CRC-32C over the headers of these batches, see ``krepair.checks.parts``.
        held: buffer of bytes not written yet, with room for one more window.
        holds: number of bytes in the buffer.
    """

    def __init__(
        self,
        source: SourceSegment,
        target: str,
        position: int,
        *,
        keeps_all: bool,
        read_into: ReadInto,
        disk: Disk,
        audits: bool,
    ) -> None:
        self.problem = ""
        self.written = 0
        self.crc = 0
        self._last_position = source.last_position
        self._target = target
        self._position = position
        self._read_into = read_into
        self._disk = disk
        self._audits = audits
        self._read = 0
        self._stays = bytes(
            stays(number, drop_unstamped=source.drop_unstamped, keeps_all=keeps_all)
            for number in range(CLASS_COUNT)
        ).ljust(1 << 8, b"\0")
        room = _AT_ONCE_BYTES + WINDOW_BYTES
        self.held: Uint8s = np.empty(room + SLACK, np.uint8)[:room]
        self.holds = 0

    def take(self, window: Uint8s, end: int, starts: Int32s, batch_classes: Uint8s) -> None:
        """Copy the kept batches of one window; see ``scan_segment`` for the arguments."""
        self.hold_kept(window, end, starts, batch_classes)
        self.write_aligned()

    def hold_kept(self, window: Uint8s, end: int, starts: Int32s, batch_classes: Uint8s) -> None:
        """Buffer the kept batches of one window; write only if the buffer is full."""
        if self.problem:
            return
        # bytes.translate takes a tenth of the time of looking up each class in an array.
        kept = np.frombuffer(bytearray(batch_classes).translate(self._stays), np.bool_)
        if self._audits:
            self.problem = audit_window(window, starts, end, kept)
            if self.problem:
                self.problem = f"position {self._read}: {self.problem}"
                return
        if end > len(window):
            self._hold_huge(window, end, starts, kept)
        else:
            self._gather(window, end, starts, kept)
        self._read += end

    def write_aligned(self) -> None:
        """Write the buffer up to the last multiple of ``_AT_ONCE_BYTES`` in the new log, if the buffer reaches one."""
        if self.holds >= _AT_ONCE_BYTES and not self.problem:
            self.write(self.holds - (self._position + self.written + self.holds) % _AT_ONCE_BYTES)

    def finish(self) -> None:
        """Write the rest of the buffer."""
        if self.holds and not self.problem:
            self.write(self.holds)

    def write(self, count: int) -> None:
        """Write the first ``count`` bytes of the buffer."""
        pieces = [self.held[:count].data]
        self.written += self._disk.write_at(self._target, self._position + self.written, pieces)
        self.held[: self.holds - count] = self.held[count : self.holds]
        self.holds -= count

    def _gather(self, window: Uint8s, end: int, starts: Int32s, kept: Bools) -> None:
        last = self._last_batch(window, end, starts)
        if last:
            end = self._last_position - self._read
            starts, kept = starts[:-1], kept[:-1]
        if kept.any():
            if self.holds + end > len(self.held):
                self.write_aligned()
            room = self.held[self.holds :]
            count = max(gather_kept(window, starts, end, kept, room), 0)
            if self._audits:
                self.problem = audit_gathered(window, starts, end, kept, room[:count])
            self.crc = crc_of_fronts(window, starts, kept, self.crc)
            self.holds += count
        if last:
            self._hold_made(last)

    def _last_batch(self, window: Uint8s, end: int, starts: Int32s) -> bytes:
        """Return the source's last batch without its records, if the plan keeps only its offset; else empty.

        A log with a different last batch differs from the plan's log, which ``not_as_decided`` reports.
        """
        place = self._last_position - self._read
        return (batch_v2.emptied(window[place:end].tobytes()) or b"") if starts[-1] == place else b""

    def _hold_huge(self, window: Uint8s, size: int, starts: Int32s, kept: Bools) -> None:
        """Buffer a batch that exceeds the window, of which the window holds only the start."""
        if self._read == self._last_position:
            header = batch_v2.decode_header(window[: batch_v2.HEADER_SIZE].tobytes())
            self._hold_made(batch_v2.empty_batch(header))
        elif kept[0]:
            self.crc = crc_of_fronts(window, starts, kept, self.crc)
            self._hold(window)
            done, piece = len(window), np.empty(WINDOW_BYTES, np.uint8)
            while done < size:
                got = self._read_into(piece.data[: min(WINDOW_BYTES, size - done)], self._read + done)
                if got == 0:
                    break
                self._hold(piece[:got])
                done += got

    def _hold_made(self, batch: bytes) -> None:
        self.crc = crc32c(batch[: batch_v2.CRC_START], self.crc)
        self._hold(np.frombuffer(batch, np.uint8))

    def _hold(self, piece: Uint8s) -> None:
        if self.holds + len(piece) > len(self.held):
            self.write_aligned()
        self.held[self.holds : self.holds + len(piece)] = piece
        self.holds += len(piece)


@shown_as("verify")
@with_log_dir
def finish(item: FinishItem, tree: Tree) -> FinishResult | Failed:
    """Build indexes, set attributes, sync and verify one staged group."""
    try:
        return _finish(item, RealDisk(tree)) if item.make else verify_group(item, tree)
    except WritingError as error:
        return Failed("disk", f"{error.filename}: {why(error)}")
    except OSError as error:
        return Failed("disk", f"{item.change.change_id}: {why(error)}")


def _finish(item: FinishItem, disk: RealDisk) -> FinishResult | Failed:
    """Build and check the indexes of a staged group, and sync its files."""
    log = f"{item.stage}/{offset_name(item.change.base_offset)}.log"
    # Sync the log before reading it back: a disk error shows up here, while the originals are still in place.
    disk.set_attributes(log, item.attributes)
    disk.sync_file(log)
    files, problem = _build_indexes(item, disk.tree)
    if problem:
        return wrong(problem)
    made = _make_companions(item, disk, files)
    problem = changed_index(replace(item, made=made), disk.tree) or attribute_problem(item, disk.tree)
    if problem:
        return wrong(problem)
    return FinishResult(batches=item.change.batches, bytes=item.change.log_bytes, made=made)


def _build_indexes(item: FinishItem, tree: Tree) -> tuple[dict[str, bytes], str]:
    """Read a new log once, build its indexes and check them against the log; return them by suffix, and any problem.

    Raises:
        OSError: a file cannot be read.
    """
    base_offset, interval_bytes = item.change.base_offset, item.index_interval_bytes
    carried = carried_entries(item, tree)
    entries, judge, aborted = (
        IndexEntries(interval_bytes),
        RebuiltIndexes(base_offset),
        AbortedAudit(entry_pairs(carried)),
    )

    def make(window: Uint8s, places: Int64s, end: int) -> None:
        entries.take_window(window, end, places.astype("int32"))
        judge.take_entries(*entries.so_far())

    def check_walked(walked: Walked) -> None:
        judge.feed(walked)
        aborted.feed(walked)

    problem = read_new_log(item, tree, check_walked, make)
    if problem:
        return {}, problem
    files = dict(zip((INDEX, TIME_INDEX), index_bytes(base_offset, *entries.entries()), strict=True))
    for suffix, text in judge.problems(files, entries.position, interval_bytes).items():
        return {}, f"{new_name(item)}{suffix}: {text}"
    for suffix, position, text in aborted.finish():
        return {}, f"{new_name(item)}{suffix}, position {position}: {text}"
    return files | ({TXN_INDEX: carried} if carried else {}), txn_index_problem(item, len(aborted.aborted))


def _make_companions(item: FinishItem, disk: RealDisk, files: dict[str, bytes]) -> dict[str, str]:
    """Write the indexes; return the digest of each by name, for later checks."""
    stem = f"{item.stage}/{offset_name(item.change.base_offset)}"
    for suffix in (INDEX, TIME_INDEX, TXN_INDEX):
        # The file may exist already: a task that is repeated finds the file of its first attempt.
        if disk.tree.is_there(stem + suffix):
            disk.unlink(stem + suffix)
        if suffix in files:
            disk.create(stem + suffix, files[suffix], like=item.attributes)
    disk.sync_dir(item.stage)
    return {
        segment_name(item.change.base_offset, suffix): digest_bytes(data) for suffix, data in files.items()
    }


def carried_entries(item: FinishItem, tree: Tree) -> bytes:
    """Return the kept entries of the sources' transaction indexes, unchanged."""
    # Copied, not computed: the last stable offset of an entry depends on transactions whose batches may be removed.
    kept: list[bytes] = []
    size = txn_index.ENTRY_SIZE
    for source in item.change.sources:
        if source.aborted_kept:
            entries = read_entries(item.place.stem(source.base_offset), tree)
            kept.extend(entries[number * size : (number + 1) * size] for number in source.aborted_kept)
    return b"".join(kept)
