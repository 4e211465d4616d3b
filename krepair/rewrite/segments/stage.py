"""Copies what stays of segments into a new log, and makes its indexes. A failure is a value.

It writes only into the private sub-folder, and writes the same bytes at the same place however often it is run. Every
window of a source is audited on the way. The new log is read once, for both: the indexes are made of each window, and
the proof looks at the same window.
"""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np
from msgspec.structs import replace

from krepair.checks.audit import audit_gathered, audit_window
from krepair.checks.index_judge import AbortedAudit, MadeIndexes
from krepair.checks.walk import Walked
from krepair.derive.index_entries import IndexEntries, index_bytes
from krepair.durable.disk import Disk
from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.durable.writing_error import WritingError
from krepair.engine.items import Failed, FailureKind, FinishItem, FinishResult, ScanResult, StageItem
from krepair.engine.place import in_its_place
from krepair.engine.progress import shown
from krepair.formats import batch_v2, txn_index
from krepair.formats.arrays import Bools, Int32s, Int64s, Uint8s
from krepair.formats.castagnoli import crc32c
from krepair.formats.filenames import INDEX, TIME_INDEX, TXN_INDEX, log_name, offset_name, segment_name
from krepair.kernels.classes import CLASS_COUNT
from krepair.kernels.gather import fronts_summed, gather_kept
from krepair.kernels.scan import WINDOW_BYTES, ScanInputs, SegmentSummary, scan_segment
from krepair.logdir.fingerprint import digest_bytes
from krepair.logdir.reading import opened_for_reading, read_into_from, why
from krepair.plan.model import SourceSegment
from krepair.rewrite.segments.verify import (
    aborts_missing,
    attribute_problem,
    new_name,
    not_those_made,
    read_new_log,
    verify_group,
    wrong,
)
from krepair.rules.markers import stays
from krepair.scan.segment_files import entry_pairs, pairs, read_entries


@shown("stage")
@in_its_place
def stage(item: StageItem, tree: Tree) -> ScanResult | Failed:
    """Copy what stays of one segment; the decisions are made anew and must be the plan's."""
    source = item.change.sources[item.source]
    name = f"{item.place.folder}/{log_name(source.base_offset)}"
    try:
        entries = read_entries(item.place.stem(source.base_offset), tree)
        inputs = ScanInputs(
            base_offset=source.base_offset,
            file_size=source.log_bytes,
            now_ms=item.now_ms,
            high_watermark=item.high_watermark,
            check_crc=True,  # also of what goes: the plan's digest is of headers alone
            entries=entry_pairs(entries),
            carried=np.array(source.carried_open, np.int64),
            keep_positions=np.array(source.keep_positions, np.int64),
            protected=pairs(source.protected),
            held=np.array(source.held, np.int64),
            last_position=source.last_position,
        )
        path = f"{item.place.path}/{log_name(source.base_offset)}"
        with opened_for_reading(path, tree) as descriptor:
            copy = KeptBytes(item, descriptor, source, RealDisk(tree))
            summary = scan_segment(inputs, read_into_from(descriptor), on_window=copy.take)
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
    """What to say behind the name of a log that is not as it was when the plan was made.

    Args:
        summary: of its scan.
    """
    if summary.damage:
        return (
            f", position {summary.valid_bytes}: {summary.damage_text}; when the plan was made, it was right"
        )
    return ": its batches are not those that the plan was made of"


class Decided(Protocol):
    """What a plan says of the part of a new log that comes from one source."""

    @property
    def decisions(self) -> str:
        """Digest of the decisions, 16 hex digits."""

    @property
    def aborted_kept(self) -> tuple[int, ...]:
        """Numbers of the entries of the transaction index that stay."""


def not_as_decided(summary: SegmentSummary, planned: Decided) -> tuple[FailureKind, str]:
    """How what was staged of one source is not what the plan says; empty if it is.

    Args:
        summary: of the scan in which it was decided anew what stays.
        planned: what the plan says.
    """
    decisions = f"{summary.decisions & (2**64 - 1):016x}"
    kept = tuple(np.flatnonzero(summary.entry_flags == 2).tolist())
    if decisions != planned.decisions or kept != planned.aborted_kept:
        text = "what stays was decided again, and is not what the plan has"
        return "changed", f"{text}: {decisions}, the plan has {planned.decisions}"
    return "", ""


_AT_ONCE_BYTES = 1 << 21
"""Writes end at multiples of this in the new log: file systems keep whole stretches of memory for aligned writes."""


class KeptBytes:
    """Takes the windows of a scan and writes their kept batches, side by side.

    Args:
        item: what is staged; ``item.target`` is there already.
        descriptor: of the source, open for reading.
        source: its part of the plan.
        disk: writes.

    Attributes:
        problem: what is wrong, empty if nothing; then nothing more is written.
        written: bytes of the new log that came from this source, once ``finish`` was called.
        crc: of their fronts, see ``krepair.checks.parts``.
    """

    def __init__(self, item: StageItem, descriptor: int, source: SourceSegment, disk: Disk) -> None:
        self.problem = ""
        self.written = 0
        self.crc = 0
        self._item = item
        self._descriptor = descriptor
        self._disk = disk
        self._read = 0
        self._stays = np.array(
            [
                stays(number, drop_unstamped=source.drop_unstamped, keeps_all=source.keeps)
                for number in range(CLASS_COUNT)
            ]
        )
        self._last_position = source.last_position
        self._held: Uint8s = np.empty(_AT_ONCE_BYTES + WINDOW_BYTES, np.uint8)
        self._holds = 0

    def take(self, window: Uint8s, end: int, starts: Int32s, batch_classes: Uint8s) -> None:
        """Take one window; see ``scan_segment`` for the arguments."""
        if self.problem:
            return
        kept = self._stays.take(batch_classes)
        self.problem = audit_window(window, starts, end, kept)
        if self.problem:
            self.problem = f"position {self._read}: {self.problem}"
            return
        if end > len(window):
            self.crc = fronts_summed(window, starts, kept, self.crc)
            self._copy_huge(end)
        elif kept.any():
            self._gather(window, end, starts, kept)
        self._read += end

    def finish(self) -> None:
        """Write what is still held."""
        if self._holds and not self.problem:
            self._write(self._holds)

    def _gather(self, window: Uint8s, end: int, starts: Int32s, kept: Bools) -> None:
        last = self._last_batch(window, end, starts)
        if last:
            end = self._last_position - self._read
            starts, kept = starts[:-1], kept[:-1]
        if kept.any():
            room = self._held[self._holds :]
            count = max(gather_kept(window, starts, end, kept, room), 0)
            self.problem = audit_gathered(window, starts, end, kept, room[:count])
            self.crc = fronts_summed(window, starts, kept, self.crc)
            self._holds += count
        self.crc = crc32c(last[: batch_v2.CRC_START], self.crc)
        self._hold(last)

    def _last_batch(self, window: Uint8s, end: int, starts: Int32s) -> bytes:
        """The batch that stays as the last one, emptied; nothing if it is not here.

        Where another batch is the last one, the log is not that of the plan. Who compares the decisions says so.
        """
        place = self._last_position - self._read
        return (batch_v2.emptied(window[place:end].tobytes()) or b"") if starts[-1] == place else b""

    def _copy_huge(self, size: int) -> None:
        for done in range(0, size, WINDOW_BYTES):
            self._hold(os.pread(self._descriptor, min(WINDOW_BYTES, size - done), self._read + done))

    def _hold(self, piece: bytes) -> None:
        self._held[self._holds : self._holds + len(piece)] = np.frombuffer(piece, np.uint8)
        self._holds += len(piece)
        if self._holds >= _AT_ONCE_BYTES and not self.problem:
            past = (self._item.out_position + self.written + self._holds) % _AT_ONCE_BYTES
            self._write(self._holds - past)

    def _write(self, count: int) -> None:
        """Write the front of what is held."""
        held = self._held[:count]
        self.written += self._disk.write_at(
            self._item.target, self._item.out_position + self.written, [held.data]
        )
        self._held[: self._holds - count] = self._held[count : self._holds]
        self._holds -= count


@shown("verify")
@in_its_place
def finish(item: FinishItem, tree: Tree) -> FinishResult | Failed:
    """Index, attributes, sync and verification of one staged group."""
    try:
        return _finished(item, RealDisk(tree)) if item.make else verify_group(item, tree)
    except WritingError as error:
        return Failed("disk", f"{error.filename}: {why(error)}")
    except OSError as error:
        return Failed("disk", f"{item.change.change_id}: {why(error)}")


def _finished(item: FinishItem, disk: RealDisk) -> FinishResult | Failed:
    """As ``finish``, of a group whose indexes are to be made: none is made of a log that is not right."""
    log = f"{item.stage}/{offset_name(item.change.base_offset)}.log"
    disk.set_attributes(log, item.attributes)
    disk.sync_file(log)
    files, problem = _read_and_made(item, disk.tree)
    if problem:
        return wrong(problem)
    made = _make_companions(item, disk, files)
    problem = not_those_made(replace(item, made=made), disk.tree) or attribute_problem(item, disk.tree)
    if problem:
        return wrong(problem)
    return FinishResult(batches=item.change.batches, bytes=item.change.log_bytes, made=made)


def _read_and_made(item: FinishItem, tree: Tree) -> tuple[dict[str, bytes], str]:
    """The indexes of a new log by suffix, each held against it; and what is wrong with any of them, or empty.

    Raises:
        OSError: a file cannot be read.
    """
    base_offset, interval_bytes = item.change.base_offset, item.index_interval_bytes
    carried = carried_entries(item, tree)
    entries, judge, aborted = (
        IndexEntries(interval_bytes),
        MadeIndexes(base_offset),
        AbortedAudit(entry_pairs(carried)),
    )

    def make(window: Uint8s, places: Int64s, end: int) -> None:
        entries.take_window(window, end, places.astype("int32"))
        judge.tell(*entries.so_far())

    def hold_against(walked: Walked) -> None:
        judge.feed(walked)
        aborted.feed(walked)

    problem = read_new_log(item, tree, hold_against, make)
    if problem:
        return {}, problem
    files = dict(zip((INDEX, TIME_INDEX), index_bytes(base_offset, *entries.entries()), strict=True))
    for suffix, text in judge.problems(files, entries.position, interval_bytes).items():
        return {}, f"{new_name(item)}{suffix}: {text}"
    for suffix, position, text in aborted.finish():
        return {}, f"{new_name(item)}{suffix}, position {position}: {text}"
    return files | ({TXN_INDEX: carried} if carried else {}), aborts_missing(item, len(aborted.aborted))


def _make_companions(item: FinishItem, disk: RealDisk, files: dict[str, bytes]) -> dict[str, str]:
    """Makes the indexes; returns a digest of each by its name, for whoever reads them again."""
    stem = f"{item.stage}/{offset_name(item.change.base_offset)}"
    for suffix in (INDEX, TIME_INDEX, TXN_INDEX):
        # A task that is run again meets what it made before.
        if disk.tree.is_there(stem + suffix):
            disk.unlink(stem + suffix)
        if suffix in files:
            disk.create(stem + suffix, files[suffix], like=item.attributes)
    disk.sync_dir(item.stage)
    return {
        segment_name(item.change.base_offset, suffix): digest_bytes(data) for suffix, data in files.items()
    }


def carried_entries(item: FinishItem, tree: Tree) -> bytes:
    """Entries of the sources' transaction indexes that are carried over, byte for byte."""
    kept: list[bytes] = []
    size = txn_index.ENTRY_SIZE
    for source in item.change.sources:
        if source.aborted_kept:
            entries = read_entries(item.place.stem(source.base_offset), tree)
            kept.extend(entries[number * size : (number + 1) * size] for number in source.aborted_kept)
    return b"".join(kept)
