"""The task that scans one segment: it opens the files, and calls ``kernels.scan``. A failure is a value."""

from __future__ import annotations

import numpy as np
from msgspec import structs

from krepair.durable.tree import Tree
from krepair.engine.items import Failed, ScanItem, ScanResult
from krepair.engine.place import failure_text, open_log_dir
from krepair.engine.progress import shown_as
from krepair.formats.filenames import log_name
from krepair.kernels.classes import D_OFFSET_ORDER
from krepair.kernels.columns import BatchWalk
from krepair.kernels.scan import OnWindow, ReadInto, ScanInputs, SegmentSummary, scan_segment
from krepair.logdir.reading import opened_for_reading, read_into_from
from krepair.scan.segment_files import (
    TxnEntries,
    entry_pairs,
    kept_ranges,
    pairs,
    reader_without,
    sound_entries,
)


@shown_as("scan")
def scan(item: ScanItem) -> ScanResult | Failed:
    """Scan one ``.log``."""
    return scan_beside(item)


def scan_beside(item: ScanItem, on_window: OnWindow | None = None) -> ScanResult | Failed:
    """Scan one ``.log``, and pass each window of batches to ``on_window``, see ``scan_segment``."""
    tree, wrong = open_log_dir(item.place)
    return Failed("elsewhere", wrong) if wrong else scan_below(tree, item, on_window)


def scan_below(tree: Tree, item: ScanItem, on_window: OnWindow | None = None) -> ScanResult | Failed:
    """Scan one ``.log`` below an open log directory.

    Args:
        tree: opened log directory of the item's place.
        on_window: called with every window of batches, see ``scan_segment``.
    """
    name = log_name(item.base_offset)
    try:
        entries, damage, unknown = (
            sound_entries(item.place, item.base_offset, tree) if item.has_txn_index else TxnEntries()
        )
        path = f"{item.place.stem(item.base_offset)}.log"
        with opened_for_reading(path, tree) as descriptor:
            kept = kept_ranges(item.size, item.without)
            read_into = read_into_from(descriptor)
            if item.without:
                read_into = reader_without(read_into, kept)
            size = sum(end - start for start, end in kept)
            inputs = scan_inputs(item, entries, size, _position_of(item, read_into, size))
            summary = scan_segment(inputs, read_into, on_window=on_window)
            if not summary.damage and summary.last_offset >= item.next_base:
                summary = _without_jump(inputs, read_into, summary, item.next_base)
    except OSError as error:
        return Failed("unreadable", failure_text(item.place, error, name))
    return ScanResult(summary=summary, entries=entries, txn_damage=damage, txn_unknown=unknown)


def _without_jump(
    inputs: ScanInputs, read_into: ReadInto, summary: SegmentSummary, next_base: int
) -> SegmentSummary:
    """Turn the last batch into damage if it alone has offsets above the base offset of the next segment.

    No checksum covers a base offset, so a flipped bit may have raised it.
    """
    front = scan_segment(structs.replace(inputs, file_size=summary.last_position), read_into)
    if front.last_offset + 1 >= next_base:
        return summary
    text = f"an offset below {next_base}, where the log continues, was expected, found {summary.last_offset}"
    return structs.replace(front, file_size=summary.file_size, damage=D_OFFSET_ORDER, damage_text=text)


def scan_inputs(item: ScanItem, entries: bytes, size: int, start: int = 0) -> ScanInputs:
    """Build the inputs of a scan.

    Args:
        entries: bytes of the segment's ``.txnindex``, empty if that file is damaged.
        size: number of bytes of the log to scan.
        start: position of the first batch to scan.
    """
    return ScanInputs(
        base_offset=item.base_offset,
        file_size=size,
        now_ms=item.now_ms,
        high_watermark=item.high_watermark,
        check_crc=item.check_crc,
        entries=entry_pairs(entries),
        protected=pairs(item.protected),
        held=np.frombuffer(item.held_markers, np.int64).copy(),
        start_position=start,
    )


def _position_of(item: ScanItem, read_into: ReadInto, size: int) -> int:
    """Return the position of the batch that holds ``item.from_offset``, else of the next batch, else the file's end."""
    if item.from_offset <= item.base_offset:
        return 0
    walk = BatchWalk(read_into, size)
    for rows in walk:
        at = np.flatnonzero(rows["last_offset"] >= item.from_offset)
        if len(at):
            return int(rows["position"][at[0]])
    return walk.position
