"""Runner of the scan kernel on bytes; it translates the result into the twin's terms for comparison."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from krepair.formats.java_numbers import INT64_MAX
from krepair.kernels import classes as c
from krepair.kernels.scan import ScanInputs, SegmentSummary, scan_segment
from tests import builders
from tests.kernels import twins

CLASS_NAMES = {
    c.RECORDS: "records",
    c.MARKER_DATA_REMAINS: "marker data remains",
    c.MARKER_UNSTAMPED: "marker unstamped",
    c.MARKER_STAMP_TO_COME: "marker stamp to come",
    c.MARKER_STAMP_PAST: "marker stamp past",
    c.MARKER_EPOCH: "marker epoch",
    c.CONTROL_OTHER: "control other",
    c.EMPTIED: "emptied",
    c.EMPTIED_PRODUCER: "emptied producer",
    c.EMPTIED_MARKER: "emptied marker",
    c.LAST_EMPTIED_NOW: "last emptied now",
    c.EMPTIED_LAST: "emptied last",
}
DAMAGE_NAMES = {
    c.D_NONE: "",
    c.D_LENGTH: "length",
    c.D_PAST_END: "past end",
    c.D_MAGIC: "magic",
    c.D_CRC: "crc",
    c.D_OFFSET_ORDER: "offset order",
    c.D_OFFSET_RANGE: "offset range",
    c.D_COUNTS: "counts",
    c.D_CONTROL: "control",
    c.D_ZEROS: "zeros",
    c.D_TORN: "torn",
    c.D_OLD_LENGTH: "old length",
    c.D_OLD_CRC: "old crc",
}
ENTRY_NAMES = {
    c.ENTRY_NO_MARKER: "no marker",
    c.ENTRY_NO_DATA: "no data",
    c.ENTRY_DATA: "data",
    c.ENTRY_OTHER_PRODUCER: "other producer",
}
NOW_MS = builders.NOW_MS


def scan_bytes(
    log: bytes,
    base_offset: int = 0,
    *,
    window_bytes: int = 1 << 16,
    at_most: int = 1 << 30,
    entries: Sequence[tuple[int, int]] = (),
    carried: Collection[int] = (),
    keep_positions: Collection[int] = (),
    protected: Mapping[int, int] | None = None,
    on_window: Any = None,
    check_crc: bool = True,
    **more: int,
) -> SegmentSummary:
    """The kernel's summary; ``at_most``: bytes that one read gives, as a file system may."""

    inputs = ScanInputs(
        base_offset=base_offset,
        file_size=len(log),
        now_ms=NOW_MS,
        check_crc=check_crc,
        entries=np.array(list(entries), np.int64).reshape(-1, 2),
        carried=np.array(sorted(carried), np.int64),
        keep_positions=np.array(sorted(keep_positions), np.int64),
        protected=np.array(sorted((protected or {}).items()), np.int64).reshape(-1, 2),
        **more,
    )
    return scan_segment(
        inputs, builders.reading(log, at_most), on_window=on_window, window_bytes=window_bytes
    )


def staged(log: bytes, base_offset: int = 0, **how: Any) -> tuple[SegmentSummary, list[tuple[int, str]]]:
    """The summary, and (position, class) of each batch as staging sees them."""
    seen: list[tuple[int, str]] = []
    position = 0

    def on_window(window: Any, end: int, starts: Any, batch_classes: Any) -> None:
        nonlocal position
        seen.extend(
            (position + start, CLASS_NAMES[kind])
            for start, kind in zip(starts.tolist(), batch_classes.tolist(), strict=True)
        )
        held = min(end, len(window))
        assert window[:held].tobytes() == log[position : position + held]
        position += end

    summary = scan_bytes(log, base_offset, on_window=on_window, **how)
    assert position == summary.valid_bytes
    return summary, seen


def twin_of(log: bytes, base_offset: int = 0, **how: Any) -> twins.Scanned:
    """The twin's answer."""
    return twins.Scan(log, base_offset, now_ms=NOW_MS, **how).run()


def summary_in_words(summary: SegmentSummary) -> dict[str, Any]:
    """A summary as the twin would say it."""
    tallies = {
        CLASS_NAMES[number]: tuple(tally)
        for number, tally in enumerate(summary.tallies.tolist())
        if tally[c.T_BATCHES]
    }
    return {
        "valid_bytes": summary.valid_bytes,
        "damage": DAMAGE_NAMES[summary.damage],
        "old": (summary.old_batches, summary.old_position, summary.last_old_position),
        "batches": summary.batches,
        "first_offset": summary.first_offset,
        "last_offset": summary.last_offset,
        "max_timestamp": summary.max_timestamp,
        "offset_of_max": summary.offset_of_max,
        "min_timestamp": summary.min_timestamp,
        "tallies": tallies,
        "epochs": [tuple(pair) for pair in summary.epochs.tolist()],
        "stamped": summary.stamped,
        "largest_batch": summary.largest_batch,
        "entry_flags": [ENTRY_NAMES[flag] for flag in summary.entry_flags.tolist()],
        "aborts_unindexed": summary.aborts_unindexed,
        "min_unreplicated": summary.min_unreplicated,
        "last": (summary.last_position, summary.last_size, CLASS_NAMES.get(summary.last_class, "")),
        "rows": {row[c.P_ID]: _row_in_words(row) for row in summary.rows.tolist()},
    }


def same_answer(summary: SegmentSummary, found: twins.Scanned) -> bool:
    """Whether kernel and twin agree."""
    return summary_in_words(summary) == twin_in_words(found)


def _row_in_words(row: list[int]) -> dict[str, Any]:
    lead = (c.P_LEAD_POSITION, c.P_LEAD_CLASS, c.P_LEAD_SIZE, c.P_LEAD_ENTRY, c.P_LEAD_ABORT, c.P_LEAD_KEPT,
            c.P_LEAD_OFFSET, c.P_LEAD_FIRST)  # fmt: skip
    following = (
        c.P_NEXT_POSITION,
        c.P_NEXT_CLASS,
        c.P_NEXT_SIZE,
        c.P_NEXT_ENTRY,
        c.P_NEXT_ABORT,
        c.P_NEXT_KEPT,
    )

    def marker(columns: tuple[int, ...], *, is_there: bool) -> tuple[object, ...] | None:
        return (
            tuple(CLASS_NAMES[row[n]] if place == 1 else row[n] for place, n in enumerate(columns))
            if is_there
            else None
        )

    return {
        "epoch": row[c.P_EPOCH],
        "first_epoch": row[c.P_FIRST_EPOCH],
        "epochs_mixed": row[c.P_EPOCHS_MIXED],
        "markers": row[c.P_MARKERS],
        "free_markers": row[c.P_FREE_MARKERS],
        "timestamp": row[c.P_TIMESTAMP],
        "open_first": row[c.P_OPEN_FIRST],
        "open_kept": row[c.P_OPEN_KEPT],
        "last_data_offset": row[c.P_LAST_DATA_OFFSET],
        "last_data_position": row[c.P_LAST_DATA_POSITION],
        "last_data_emptied": row[c.P_LAST_DATA_EMPTIED],
        "last_sequence": row[c.P_LAST_SEQUENCE],
        "last_data_delta": row[c.P_LAST_DATA_DELTA],
        "last_data_timestamp": row[c.P_LAST_DATA_TIMESTAMP],
        "coordinator_epoch": row[c.P_COORDINATOR_EPOCH],
        "lead": marker(lead, is_there=row[c.P_MARKERS] > 0),
        "next": marker(following, is_there=row[c.P_NEXT_POSITION] >= 0),
    }


def twin_in_words(found: twins.Scanned) -> dict[str, Any]:
    """The twin's answer in the same form."""
    largest, smallest = max(found.timestamps, default=(-1, -1))[0], min(found.timestamps, default=(-1, -1))[0]
    of_max = next((last for time, last in found.timestamps if time == largest > -1), -1)
    return {
        "valid_bytes": found.valid_bytes,
        "damage": found.damage,
        "old": (
            len(found.old_positions),
            *(found.old_positions[at] if found.old_positions else -1 for at in (0, -1)),
        ),
        "batches": len(found.batches),
        "first_offset": found.first_offset,
        "last_offset": found.last_offset,
        "max_timestamp": largest,
        "offset_of_max": of_max,
        "min_timestamp": smallest,
        "tallies": found.tallies,
        "epochs": found.epochs,
        "stamped": found.stamped,
        "largest_batch": max((size for _, size, _ in found.batches), default=0),
        "entry_flags": found.entry_flags,
        "aborts_unindexed": found.aborts_unindexed,
        "min_unreplicated": found.min_unreplicated,
        "last": found.batches[-1] if found.batches else (-1, 0, ""),
        "rows": {pid: {name: getattr(row, name) for name in _ROW_NAMES} for pid, row in found.rows.items()},
    }


_ROW_NAMES = ("epoch", "first_epoch", "epochs_mixed", "markers", "free_markers", "timestamp", "open_first", "open_kept",
              "last_data_offset", "last_data_position", "last_data_emptied", "last_sequence", "last_data_delta",
              "last_data_timestamp", "coordinator_epoch", "lead", "next")  # fmt: skip
assert INT64_MAX == twins.INT64_MAX
