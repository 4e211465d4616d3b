"""A transactional partition where any mistake of the swap shows: in the records, the aborted ones, "
"or the stable offset.

Segments Z (0) | A (100) B (200) C (300) | active D (400), end 450. Aborted transactions inside A, across
Z-A, A-B, A-C, B-D; committed ones across Z-A; one open in D, so the stable offset is 440; an aborted one
that is dropped whole with its marker and followed by a committed one of the same producer, which a stale
``.txnindex`` would hide. M is A, B and C without some batches, data among them, and each value names the
file it came from, so every reading tells which files were served.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from tests.builders import Batch, LogDir, Record, Replay, abort, commit, data, indexes

TIME_MS = 1_600_000_000_000
INTERVAL_BYTES = 200
SETTINGS = {
    "index.interval.bytes": str(INTERVAL_BYTES),
    "segment.bytes": "1048576",
    "segment.index.bytes": "4096",
    "file.delete.delay.ms": "600000",
}
END, STABLE = 450, 440
SEGMENTS = {0: "Z", 100: "A", 200: "B", 300: "C", 400: "D"}
GROUP = (100, 200, 300)


class Row(NamedTuple):
    """One batch: N plain, T of a transaction, C commit marker, A abort marker."""

    offset: int
    kind: str
    pid: int = -1
    records: int = 5


def plain(start: int, end: int) -> list[Row]:
    return [Row(offset, "N") for offset in range(start, end, 5)]


ROWS = [
    *plain(0, 85), Row(85, "T", 8), *plain(90, 95), Row(95, "T", 4),
    *plain(100, 105), Row(105, "A", 8), Row(106, "C", 4), Row(110, "T", 1), Row(115, "A", 1),
    Row(120, "T", 3), Row(125, "A", 3), Row(130, "T", 3), Row(135, "C", 3), *plain(140, 185),
    Row(185, "T", 2), Row(190, "T", 5), Row(195, "A", 5), Row(196, "T", 7, 3),
    *plain(200, 205), Row(205, "A", 2), Row(210, "T", 2), Row(215, "C", 2), Row(220, "T", 11),
    Row(225, "C", 11), *plain(230, 285), Row(285, "T", 6), Row(290, "C", 12),
    *plain(300, 305), Row(305, "A", 7), *plain(310, 350), Row(350, "T", 1), Row(355, "C", 1),
    *plain(360, 390), Row(390, "T", 13), Row(396, "A", 13), Row(397, "N", -1, 3),
    *plain(400, 405), Row(405, "A", 6), Row(410, "T", 6), Row(415, "C", 6), *plain(420, 440),
    Row(440, "T", 9), Row(445, "N"),
]  # fmt: skip
DROPPED = frozenset({120, 125, 190, 220, 225, 290, 150, 160, 230, 240, 320, 330})
ABORTED = frozenset({85, 110, 120, 185, 190, 196, 285, 390})


def segment_of(offset: int) -> str:
    return SEGMENTS[max(base for base in SEGMENTS if base <= offset)]


def batches(start: int, end: int, source: str, dropped: frozenset[int] = frozenset()) -> list[Batch]:
    """The batches of a range, their values naming the source."""
    out: list[Batch] = []
    sequences: dict[int, int] = {}
    for row in ROWS:
        sequence = sequences.get(row.pid, 0)
        if row.kind == "T":
            sequences[row.pid] = sequence + row.records
        if not start <= row.offset < end or row.offset in dropped:
            continue
        if row.kind == "C":
            out.append(commit(row.offset, pid=row.pid, timestamp=TIME_MS))
        elif row.kind == "A":
            out.append(abort(row.offset, pid=row.pid, timestamp=TIME_MS))
        else:
            records = [
                Record(b"k%06d" % offset, f"{source}|{'x' * 40}".encode())
                for offset in range(row.offset, row.offset + row.records)
            ]
            txn = row.kind == "T"
            own = {"pid": row.pid, "sequence": sequence} if txn else {}
            out.append(data(row.offset, records, txn=txn, timestamp=TIME_MS + row.offset, **own))
    return out


def readable(*, new: bool, committed: bool) -> list[tuple[int, str]]:
    """What a consumer must get: (offset, file it came from)."""
    out: list[tuple[int, str]] = []
    for row in ROWS:
        merged = new and GROUP[0] <= row.offset < 400
        if row.kind in "AC" or (merged and row.offset in DROPPED):
            continue
        if committed and (row.offset in ABORTED or row.offset >= STABLE):
            continue
        source = "M" if merged else segment_of(row.offset)
        out += [(offset, source) for offset in range(row.offset, row.offset + row.records)]
    return out


def write_log_dir(root: Path) -> Path:
    """The log directory with this partition, ``t-0``, and a small other one, stopped cleanly."""
    log_dir = LogDir(root)
    partition = log_dir.partition("t", index_interval_bytes=INTERVAL_BYTES)
    starts = [*SEGMENTS, END]
    for (start, source), end in zip(SEGMENTS.items(), starts[1:], strict=True):
        partition.segment(*batches(start, end, source), mtime_ms=TIME_MS + end)
    log_dir.partition("o").segment(data(0, 3, timestamp=TIME_MS))
    return log_dir.write()


def merged() -> dict[str, bytes]:
    """The staged files of M by extension; ``.txnindex`` as the cleaner carries it over."""
    new = batches(GROUP[0], 400, "M", DROPPED)
    offset_index, time_index = indexes(GROUP[0], new, INTERVAL_BYTES)
    replay = Replay()
    entries = [
        e for b in batches(0, 400, "") if (e := replay.take(b)) is not None and b.base_offset >= GROUP[0]
    ]
    remaining = [(row.pid, row.offset) for row in ROWS if row.kind == "T" and row.offset not in DROPPED]
    carried = [e for e in entries if any(pid == e[0] and e[1] <= offset <= e[2] for pid, offset in remaining)]
    return {
        ".log": b"".join(batch.raw for batch in new),
        ".index": offset_index,
        ".timeindex": time_index,
        ".txnindex": b"".join(struct.pack(">hqqqq", 0, *entry) for entry in carried),
    }
