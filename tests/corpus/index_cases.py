"""Rows of the corpus about index files: offset, time and transaction index of one segment."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from tests.builders import NOW_MS
from tests.corpus.bases import Made
from tests.corpus.case import (
    CHECKED,
    RECOVERS,
    UNHARMED,
    Before,
    Case,
    Change,
    all_of,
    case_of,
    in_batch,
    on_segment,
    unclean,
)

OFFSETS, TIMES, ABORTED = ".index", ".timeindex", ".txnindex"
ENTRY = {OFFSETS: 8, TIMES: 12, ABORTED: 34}
REBUILT = Before("start", "recover", "recover")
"""Without an offset index 3.9 and 4.3 read the segment; 2.2.1 makes an empty one."""
YOUNGER_THAN_THE_REAL_ONES = frozenset({"timeindex-too-young", "timeindex-past-the-log"})
"""The first entry of the real time index is later than the last one that these make up."""


LATER_VERSION = "another-version"
"""Unknown, and no damage."""
START_TO_4_3 = Before("start", "start", "refuse")


class OnIndex(NamedTuple):
    """A damage of one index file.

    Attributes:
        name: of the damage.
        suffix: of the file.
        change: old bytes in, new bytes out; None removes the file.
        rules: findings of it.
        before: what brokers do.
    """

    name: str
    suffix: str
    change: Change
    rules: str
    before: Before = UNHARMED


def _entry(data: bytes, place: int, size: int, new: bytes) -> bytes:
    """The data with the entry of that place replaced; negative places count from the end."""
    entries = [data[at : at + size] for at in range(0, len(data), size)]
    entries[place] = new
    return b"".join(entries)


def _swap(size: int) -> Change:
    """The first two entries in each other's place."""
    return lambda data: data[size : 2 * size] + data[:size] + data[2 * size :]


def _offset(relative: int, position: int) -> bytes:
    return struct.pack(">ii", relative, position)


def _time(timestamp: int, relative: int) -> bytes:
    return struct.pack(">qi", timestamp, relative)


DAMAGES = (
    OnIndex("missing", OFFSETS, lambda data: None, "KR203 KR801", REBUILT),
    OnIndex("padded", OFFSETS, lambda data: data + bytes(8 * 500), "KR203"),
    OnIndex("all-zeros", OFFSETS, lambda data: bytes(len(data)), "KR203"),
    OnIndex("last-entry-zeros", OFFSETS, lambda data: data[:-8] + bytes(8), "KR203"),
    OnIndex("torn", OFFSETS, lambda data: data + b"\0\0\7", "KR205", CHECKED),
    OnIndex("cut", OFFSETS, lambda data: data[:-3], "KR205", CHECKED),
    OnIndex("one-byte", OFFSETS, lambda data: b"\1", "KR205", CHECKED),
    OnIndex("disorder", OFFSETS, _swap(8), "KR203"),
    OnIndex("twice", OFFSETS, lambda data: data[:8] + data, "KR203"),
    OnIndex("between-batches", OFFSETS, lambda data: _entry(data, 0, 8, _offset(3, 81)), "KR203"),
    OnIndex("past-the-log", OFFSETS, lambda data: data + _offset(400, 1 << 20), "KR203"),
    OnIndex("negative", OFFSETS, lambda data: _entry(data, -1, 8, _offset(-1, -1)), "KR203", CHECKED),
    OnIndex("garbage", OFFSETS, lambda data: b"\xa5" * 64, "KR203", CHECKED),
    OnIndex("offset-too-low", OFFSETS, lambda data: data[:-8] + _offset(4, 0)[:4] + data[-4:], "KR203"),
    OnIndex("missing", TIMES, lambda data: None, "KR201"),
    OnIndex("empty", TIMES, lambda data: b"", "KR201"),
    OnIndex("padded", TIMES, lambda data: data + bytes(12 * 500), "KR201", CHECKED),
    OnIndex("all-zeros", TIMES, lambda data: bytes(len(data)), "KR201"),
    OnIndex("torn", TIMES, lambda data: data + b"\0" * 5, "KR205", CHECKED),
    OnIndex("cut", TIMES, lambda data: data[:-5], "KR205 KR202", CHECKED),
    OnIndex("disorder", TIMES, _swap(12), "KR202"),
    OnIndex("without-the-last", TIMES, lambda data: data[:-12], "KR202"),
    OnIndex("too-young", TIMES, lambda data: _entry(data, -1, 12, _time(NOW_MS + 9_000_000, 9)), "KR202"),
    OnIndex("past-the-log", TIMES, lambda data: data + _time(NOW_MS + 9_000_000, 900), "KR202"),
    OnIndex("negative", TIMES, lambda data: _entry(data, -1, 12, _time(-1, -1)), "KR202", CHECKED),
    OnIndex("garbage", TIMES, lambda data: b"\xa5" * 60, "KR202", CHECKED),
)

ABORTED_DAMAGES = (
    OnIndex("missing", ABORTED, lambda data: None, "KR204"),
    OnIndex("empty", ABORTED, lambda data: b"", "KR204"),
    OnIndex("cut", ABORTED, lambda data: data[:-9], "KR204"),
    OnIndex("torn", ABORTED, lambda data: data + b"\0" * 9, "KR204"),
    OnIndex("padded", ABORTED, lambda data: data + bytes(34), "KR204"),
    OnIndex("all-zeros", ABORTED, lambda data: bytes(len(data)), "KR204"),
    OnIndex("twice", ABORTED, lambda data: data * 2, "KR204"),
    OnIndex("another-producer", ABORTED, lambda data: data[:2] + struct.pack(">q", 99) + data[10:], "KR204"),
    # up to 4.3 a broker reads the first byte of the version only
    OnIndex(LATER_VERSION, ABORTED, lambda data: b"\0\7" + data[2:], "KR204", START_TO_4_3),
    # an aborted transaction that ends below the base offset makes a broker recover the segment, if it knows the version
    OnIndex(
        "garbage", ABORTED, lambda data: b"\xa5" * 68, "KR204 KR801", Before("recover", "recover", "refuse")
    ),
)


def _cases(base: str, base_offset: int, rows: tuple[OnIndex, ...], fix: str = "index") -> Iterator[Case]:
    for row in rows:
        name = f"{row.suffix[1:]}-{row.name}"
        earlier = base == "real indexes" and name in YOUNGER_THAN_THE_REAL_ONES
        yield Case(
            name=f"{name}-{base}".replace(" ", "-"),
            base=base,
            damage=on_segment(base_offset, row.suffix, row.change),
            findings=frozenset(row.rules.split()),
            fixes=(fix,),
            before=CHECKED if earlier else row.before,
            mended=row.name != LATER_VERSION,
        )


def _exchanged(made: Made) -> None:
    """The two indexes of a segment under each other's name."""
    offsets, times = made.file(10, OFFSETS), made.file(10, TIMES)
    first, second = offsets.read_bytes(), times.read_bytes()
    offsets.write_bytes(second)
    times.write_bytes(first)


def _all_missing(made: Made) -> None:
    for base_offset in made.bases[:-1]:
        for suffix in (OFFSETS, TIMES):
            made.file(base_offset, suffix).unlink()


def _orphans(made: Made) -> None:
    for suffix, size in ENTRY.items():
        made.file(77, suffix).write_bytes(b"\0" * size)


def _preallocated(made: Made) -> None:
    """What a crash leaves of an active segment, and what is right while a broker runs."""
    for suffix in (OFFSETS, TIMES):
        os.truncate(made.file(20, suffix), (10 << 20) // ENTRY[suffix] * ENTRY[suffix])


def _padded_everywhere(made: Made) -> None:
    for base_offset in made.bases[:-1]:
        for suffix in (OFFSETS, TIMES):
            os.truncate(made.file(base_offset, suffix), (10 << 20) // ENTRY[suffix] * ENTRY[suffix])


OTHERS = (
    case_of(
        "index-empty-beside-a-small-log",
        "plain",
        on_segment(10, OFFSETS, lambda data: b""),
        "",
        "index",
        mended=False,
    ),
    case_of(
        "index-empty-beside-a-large-log",
        "large",
        on_segment(0, OFFSETS, lambda data: b""),
        "KR206",
        "index=regenerate",
    ),
    case_of("indexes-exchanged", "plain", _exchanged, "KR202 KR203 KR205", "index", CHECKED),
    case_of("indexes-all-missing", "plain", _all_missing, "KR203 KR201 KR801", "index", REBUILT),
    case_of("indexes-without-a-log", "plain", _orphans, "KR312 KR701", "index", mended=False),
    case_of(
        "indexes-of-the-active-segment-preallocated",
        "plain",
        _preallocated,
        "",
        "index",
        CHECKED,
        mended=False,
    ),
    case_of("indexes-never-trimmed", "real indexes", _padded_everywhere, "KR201 KR203", "index", CHECKED),
    case_of(
        "indexes-never-trimmed-expiring",
        "expiring",
        _padded_everywhere,
        "KR201 KR203 KR802",
        "index",
        Before("recover", "delete", "delete"),
    ),
    case_of(
        "indexes-never-trimmed-unclean",
        "plain",
        all_of(unclean, _padded_everywhere),
        "KR201 KR203 KR801",
        "index",
        RECOVERS,
        left="KR801",
        after="recover",
    ),
)


def _older_segment_is_back(made: Made) -> None:
    """A segment from before a merge lies beside the merged one, which has the same offsets."""
    log = made.file(0, ".log").read_bytes()
    first = 12 + int.from_bytes(log[8:12])
    made.file(2, ".log").write_bytes(log[first:])


UNREAD_MARKERS = (
    case_of(
        "txnindex-of-a-damaged-marker",
        "transactions",
        in_batch(6, 2, 61, bytes(8)),
        "KR302",
        "index=regenerate",
        mended=False,
    ),
    case_of(
        "txnindex-of-a-marker-with-another-offset",
        "transactions",
        in_batch(6, 2, 6, b"\2"),
        "KR303",
        "index=regenerate",
        mended=False,
    ),
    case_of(
        "txnindex-where-segments-overlap",
        "transactions",
        _older_segment_is_back,
        "KR201 KR203 KR303 KR801",
        "index",
        REBUILT,
        left="KR303",
    ),
)
"""Entries that no batch which can be read contradicts."""

INDEX_CASES: tuple[Case, ...] = (
    *_cases("plain", 10, DAMAGES),
    *_cases("real indexes", 240, DAMAGES),
    *_cases("transactions", 0, ABORTED_DAMAGES, "index=regenerate"),
    *OTHERS,
    *UNREAD_MARKERS,
)
