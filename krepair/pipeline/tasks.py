"""What one task does: scan a segment, stage a segment's kept bytes, finish a group. The same functions run inline.

Each opens the files itself and returns its failure as a value. Staging writes only into the private sub-folder, and
writes the same bytes at the same place however often it is run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.durable.writing_error import WritingError
from krepair.formats import txn_index
from krepair.kernels.header_walk import HeaderWalk
from krepair.kernels.scan import Int64s, OnWindow, ReadInto, ScanInputs, SegmentSummary, scan_segment
from krepair.logdir.fingerprint import digest_bytes
from krepair.logdir.reading import opened_for_reading, read_open, why
from krepair.pipeline.byte_ranges import kept_ranges, reader_without
from krepair.pipeline.index_files import index_bytes_needed
from krepair.pipeline.items import (
    FailureKind,
    FinishItem,
    FinishResult,
    Place,
    ScanItem,
    ScanResult,
    StageItem,
)
from krepair.pipeline.place import reached, what_failed
from krepair.pipeline.regenerate import read_into_from, regenerate_offset_and_time
from krepair.pipeline.wire import encode_summary
from krepair.plan.model import SourceSegment

if TYPE_CHECKING:
    from krepair.pipeline.kept_bytes import KeptBytes

TXN_INDEX_AT_MOST_BYTES = 1 << 30


def log_name(base_offset: int) -> str:
    """File name of a segment's ``.log``."""
    return f"{base_offset:020d}.log"


def pairs(values: tuple[tuple[int, int], ...]) -> Int64s:
    """Pairs as int64[N, 2]."""
    return np.array(values, np.int64).reshape(-1, 2)


def read_entries(place: Place, base_offset: int, tree: Tree) -> bytes:
    """The bytes of a segment's ``.txnindex``, empty if there is none; no more than its log could need."""
    stem = place.stem(base_offset)
    try:
        with opened_for_reading(f"{stem}.txnindex", tree) as descriptor:
            return read_open(descriptor, index_bytes_needed(stem, txn_index.ENTRY_SIZE, tree))
    except FileNotFoundError:
        return b""


def entry_pairs(entries: bytes) -> Int64s:
    """(producer id, offset of the abort marker) of each entry."""
    if not entries:
        return np.empty((0, 2), np.int64)
    view = txn_index.view(entries)
    return np.column_stack([view["producer_id"], view["last_offset"]]).astype(np.int64)


def scan(item: ScanItem) -> ScanResult:
    """Scan one ``.log``."""
    return scan_once(item)[0]


def scan_once(item: ScanItem, on_window: OnWindow | None = None) -> tuple[ScanResult, SegmentSummary | None]:
    """As ``scan``; the summary besides, None if the log could not be read.

    Args:
        item: what is scanned.
        on_window: takes every window of batches, see ``scan_segment``.
    """
    tree, wrong = reached(item.place)
    if wrong:
        return ScanResult(failure="elsewhere", why=wrong), None
    name = log_name(item.base_offset)
    try:
        entries = read_entries(item.place, item.base_offset, tree)
        damage = txn_index.damage(entries, item.base_offset)
        if damage:
            entries = b""
        with opened_for_reading(f"{item.place.stem(item.base_offset)}.log", tree) as descriptor:
            kept = kept_ranges(item.size, item.without)
            read_into = read_into_from(descriptor)
            if item.without:
                read_into = reader_without(read_into, kept)
            size = sum(end - start for start, end in kept)
            inputs = ScanInputs(
                base_offset=item.base_offset,
                file_size=size,
                now_ms=item.now_ms,
                high_watermark=item.high_watermark,
                check_crc=item.check_crc,
                entries=entry_pairs(entries),
                protected=pairs(item.protected),
                start_position=_position_of(item, read_into, size),
            )
            summary = scan_segment(inputs, read_into, on_window=on_window)
    except OSError as error:
        return ScanResult(failure="unreadable", why=what_failed(item.place, error, name)), None
    where = f"{item.base_offset:020d}.txnindex"
    text = (
        f"{where}, position {damage[0].position}: {damage[0].expected} was expected, found {damage[0].found}"
        if damage
        else ""
    )
    return ScanResult(summary=encode_summary(summary), entries=entries, txn_damage=text), summary


def _position_of(item: ScanItem, read_into: ReadInto, size: int) -> int:
    """Position of the batch that holds ``item.from_offset``, or of the first one after it; else the file's end."""
    if item.from_offset <= item.base_offset:
        return 0
    walk = HeaderWalk(read_into, size)
    for rows in walk:
        at = np.flatnonzero(rows[:, 1] >= item.from_offset)
        if len(at):
            return int(rows[at[0], 0])
    return walk.position


def stage(item: StageItem) -> ScanResult:
    """Copy what stays of one segment; the decisions are made anew and must be the plan's."""
    from krepair.pipeline.kept_bytes import KeptBytes

    tree, wrong = reached(item.place)
    if wrong:
        return ScanResult(failure="elsewhere", why=wrong)
    source = item.change.sources[item.source]
    name = f"{item.place.folder}/{log_name(source.base_offset)}"
    try:
        entries = read_entries(item.place, source.base_offset, tree)
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
        path = f"{item.place.path}/{log_name(source.base_offset)}"
        with opened_for_reading(path, tree) as descriptor:
            copy = KeptBytes(item, descriptor, source, RealDisk(tree))
            summary = scan_segment(inputs, read_into_from(descriptor), on_window=copy.take)
            copy.finish()
    except WritingError as error:
        return ScanResult(failure="disk", why=f"{error.filename}: {why(error)}")
    except OSError as error:
        return ScanResult(
            failure="unreadable", why=what_failed(item.place, error, log_name(source.base_offset))
        )
    kind, text = _stage_problem(item, source, copy, summary)
    if kind:
        return ScanResult(failure=kind, why=f"{name}: {text}")
    return ScanResult(summary=encode_summary(summary), entries=entries, written_crc=copy.crc)


def _stage_problem(
    item: StageItem, source: SourceSegment, copy: KeptBytes, summary: SegmentSummary
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
    from krepair.pipeline.verify import verify_group

    tree, wrong = reached(item.place)
    if wrong:
        return FinishResult(failure="elsewhere", why=wrong)
    try:
        if not item.make:
            return verify_group(item, tree)
        made = _make_companions(item, RealDisk(tree))
        return replace(verify_group(replace(item, made=made), tree), made=made)
    except WritingError as error:
        return FinishResult(failure="disk", why=f"{error.filename}: {why(error)}")
    except OSError as error:
        return FinishResult(failure="disk", why=f"{item.change.change_id}: {why(error)}")


def _make_companions(item: FinishItem, disk: RealDisk) -> dict[str, str]:
    """Makes the indexes; returns a digest of each by its name, for whoever reads them again."""
    stem = f"{item.stage}/{item.change.base_offset:020d}"
    change = item.change
    made = regenerate_offset_and_time(
        f"{stem}.log",
        change.log_bytes,
        change.base_offset,
        item.index_interval_bytes,
        check_crc=False,
        tree=disk.tree,
    )
    files = {".index": made.index, ".timeindex": made.time_index}
    carried = carried_entries(item, disk.tree)
    if carried:
        files[".txnindex"] = carried
    for suffix in (".index", ".timeindex", ".txnindex"):
        # A task that is run again meets what it made before.
        if disk.tree.is_there(stem + suffix):
            disk.unlink(stem + suffix)
        if suffix in files:
            disk.create(stem + suffix, files[suffix], like=item.attributes)
    disk.set_attributes(f"{stem}.log", item.attributes)
    disk.sync_file(f"{stem}.log")
    disk.sync_dir(item.stage)
    return {f"{change.base_offset:020d}{suffix}": digest_bytes(data) for suffix, data in files.items()}


def carried_entries(item: FinishItem, tree: Tree) -> bytes:
    """Entries of the sources' transaction indexes that are carried over, byte for byte."""
    kept: list[bytes] = []
    size = txn_index.ENTRY_SIZE
    for source in item.change.sources:
        if source.aborted_kept:
            entries = read_entries(item.place, source.base_offset, tree)
            kept.extend(entries[number * size : (number + 1) * size] for number in source.aborted_kept)
    return b"".join(kept)
