"""Maps of damaged logs against a slow twin, on real logs of every format, truncated, zeroed, flipped and mixed."""

from __future__ import annotations

import struct
import tempfile
from functools import cache
from pathlib import Path

import crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krepair.engine.items import Place
from krepair.kernels.resync import find_batch
from krepair.kernels.scan import ScanInputs, scan_segment
from krepair.rewrite.damage import (
    MapItem,
    MapResult,
    ValidRange,
    damage_map,
    kept_ranges,
    reader_without,
    recovery_of_offsets,
)
from tests import builders as b
from tests.fixture_dirs import unpack
from tests.rewrite.damage import HIGHEST, batch_at, twin

PLACE = Place(host="h", log_dir="/l", log_dir_inode=1, folder="t-0")
REAL = (
    ("oldformat-2.2.1-before", "m0-none-0", "00000000000000000067.log"),
    ("oldformat-2.2.1-before", "m0-gzip-0", "00000000000000000000.log"),
    ("oldformat-2.2.1-before", "m1-lz4-0", "00000000000000000074.log"),
    ("oldformat-2.2.1-before", "m1-none-0", "00000000000000000000.log"),
    ("compact-2.2.1-before", "c-gzip-0", "00000000000000000223.log"),
    ("compact-2.2.1-before", "c-lz4-0", "00000000000000000000.log"),
    ("offsets-tv2-4.3.1", "__transaction_state-0", "00000000000000002927.log"),
    ("offsets-tv2-4.3.1", "__consumer_offsets-0", "00000000000000002176.log"),
)


@cache
def real_logs() -> tuple[tuple[int, bytes], ...]:
    """(Base offset, bytes) of real logs: v0, v1 and v2, plain and compressed, markers and data."""
    found = []
    with tempfile.TemporaryDirectory() as work:
        roots = {name: unpack(name, Path(work)) for name in {row[0] for row in REAL}}
        for name, folder, log in REAL:
            found.append((int(log[:20]), (roots[name] / folder / log).read_bytes()))
    return tuple(found)


def mapped(base: int, raw: bytes, highest: int = HIGHEST) -> MapResult:
    summary = scan_segment(ScanInputs(base_offset=base, file_size=len(raw), now_ms=0), b.reading(raw))
    first = ValidRange(
        start=0,
        end=summary.valid_bytes,
        first_offset=summary.first_offset,
        last_offset=summary.last_offset,
        batches=summary.batches,
        records=0,
    )
    item = MapItem(
        place=PLACE,
        base_offset=base,
        size=len(raw),
        first=first,
        damage=summary.damage,
        text=summary.damage_text,
        highest=base + highest,
        interval_bytes=4096,
    )
    return damage_map(item, b.reading(raw))


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["cut", "zero", "flip", "insert", "remove", "repeat", "offset"]),
        st.floats(0, 1),
        st.integers(1, 700),
        st.integers(0, 255),
    ),
    min_size=1,
    max_size=4,
)


def broken(raw: bytes, operations: list[tuple[str, float, int, int]]) -> bytes:
    for kind, where, size, value in operations:
        place = int(where * len(raw))
        if kind == "cut":
            raw = raw[: max(len(raw) - size, 0)]
        elif kind == "zero":
            raw = raw[:place] + bytes(min(size, len(raw) - place)) + raw[place + size :]
        elif kind == "flip" and place < len(raw):
            raw = raw[:place] + bytes([raw[place] ^ (value or 1)]) + raw[place + 1 :]
        elif kind == "offset" and (starts := twin(0, raw)[0]):
            start = starts[int(where * (len(starts) - 1))][0] + size % 8
            raw = raw[:start] + bytes([raw[start] ^ (value or 1)]) + raw[start + 1 :]
        elif kind == "insert":
            raw = raw[:place] + bytes([value]) * size + raw[place:]
        elif kind == "remove":
            raw = raw[:place] + raw[place + size :]
        else:
            raw = raw[:place] + raw[max(place - size, 0) : place] + raw[place:]
    return raw


@settings(max_examples=150)
@given(number=st.integers(0, len(REAL) - 1), operations=OPERATIONS)
def test_map_is_the_twins_and_what_stays_is_valid_from_end_to_end(
    number: int, operations: list[tuple[str, float, int, int]]
) -> None:
    base, whole = real_logs()[number]
    raw = broken(whole, operations)
    found = mapped(base, raw)
    valid, damaged = twin(base, raw)
    assert [(one.start, one.end, one.first_offset, one.last_offset) for one in found.valid] == valid
    assert [(one.start, one.end) for one in found.damaged] == damaged
    assert found.complete
    assert sum(one.end - one.start for one in (*found.valid, *found.damaged)) == len(raw)
    kept = kept_ranges(len(raw), tuple((one.start, one.end) for one in found.damaged))
    left = b"".join(raw[start:end] for start, end in kept)
    summary = scan_segment(ScanInputs(base_offset=base, file_size=len(left), now_ms=0), b.reading(left))
    assert summary.is_whole
    pieces = bytearray(len(left))
    read, place = reader_without(b.reading(raw), kept), 0
    while place < len(left):
        got = read(memoryview(pieces)[place : place + 1000], place)
        assert got > 0
        place += got
    assert bytes(pieces) == left


@settings(max_examples=60)
@given(
    number=st.integers(0, len(REAL) - 1),
    operations=OPERATIONS,
    window=st.integers(200, 5000),
    start=st.floats(0, 1),
)
def test_search_finds_the_same_batch_whatever_the_window(
    number: int, operations: list[tuple[str, float, int, int]], window: int, start: float
) -> None:
    base, whole = real_logs()[number]
    raw = broken(whole, operations)
    place = int(start * len(raw))
    found = find_batch(b.reading(raw), place, len(raw), base, base + HIGHEST, window_bytes=window)
    expected = next((at for at in range(place, len(raw)) if batch_at(raw, at, base, base - 1, HIGHEST)), -1)
    assert found.position == expected
    assert found.complete


def test_batch_larger_than_the_window_is_found() -> None:
    large = b.data(10, [b.Record(b"k", bytes(range(256)) * 9000)]).raw
    raw = b"\x55" * 1234 + large
    assert find_batch(b.reading(raw), 0, len(raw), 5, 50, window_bytes=1 << 14).position == 1234
    assert find_batch(b.reading(raw[:-1]), 0, len(raw) - 1, 5, 50, window_bytes=1 << 14).position == -1


def test_hostile_bytes_cannot_make_a_search_checksum_without_end() -> None:
    """Headers that could be batches of half the log at every 61st byte: given up, and said."""
    size = 1 << 21
    header = struct.pack(">qiibIhiqqqhii", 7, size // 2, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1)
    raw = (header * (size // len(header) + 1))[:size]
    found = find_batch(b.reading(raw), 0, len(raw), 0, 100, budget=64 << 20)
    assert (found.position, found.complete) == (-1, False)
    assert found.checksummed <= 64 << 20


@pytest.mark.parametrize(
    "content", [bytes(100_000), np.random.default_rng(7).bytes(100_000)], ids=["zeros", "noise"]
)
def test_nothing_is_found_where_nothing_is(content: bytes) -> None:
    found = find_batch(b.reading(content), 0, len(content), 0, 2**31)
    assert (found.position, found.complete) == (-1, True)


def test_batch_that_lies_in_the_value_of_a_damaged_one_is_not_taken_for_the_next() -> None:
    """A topic may hold batches as values: where the damaged batch still says how long it is, it is left as a whole."""
    inner = b.data(12, 1).raw
    outer = bytearray(b.data(10, [b.Record(b"k", inner), b.Record(b"l", inner)]).raw)
    outer[-1] ^= 1
    raw = b.data(0, 10).raw + bytes(outer) + b.data(20, 5).raw
    found = mapped(0, raw)
    start = len(b.data(0, 10).raw)
    assert [(one.start, one.end) for one in found.damaged] == [(start, start + len(outer))]
    assert (found.damaged[0].records, found.damaged[0].last_lost) == (2, 11)


def test_offsets_behind_damage_must_lie_below_the_next_segment() -> None:
    raw = b.data(0, 10).raw + b"\x77" * 90 + b.data(500, 5).raw
    assert len(mapped(0, raw).valid) == 2
    assert len(mapped(0, raw, highest=499).valid) == 1


def test_recovery_minds_only_index_entries_that_go_back_and_offsets_that_do_not_fit() -> None:
    batches = [b.data(5 * number, 5).raw for number in range(20)]
    size = len(batches[3])

    def of(raw: bytes, interval: int, base: int = 0, cut: int = -1, next_base: int = -1) -> str:
        cut = len(raw) if cut < 0 else cut
        return recovery_of_offsets(b.reading(raw), len(raw), cut, base, interval, next_base=next_base)

    back = b"".join([*batches[:10], batches[2], *batches[10:]])
    assert (of(back, 100 * size), of(back, 1), of(back, 1, cut=5 * size)) == ("", "empties", "")
    whole = b"".join(batches)
    assert (of(whole, 1), of(whole, 1, base=20)) == ("", "stops")
    far = whole + b.data(2**31 + 5, 5).raw
    assert (of(far, 1), of(far + b.data(120, 5).raw, 1)) == ("jumps", "stops")
    assert (of(far, 1, next_base=2**31 + 10), of(far, 1, next_base=200)) == ("splits", "jumps")


@pytest.mark.parametrize(
    ("name", "wrong", "damaged"),
    [
        ("too low by one, as the one before it", (63, 63, 65), 1),
        ("too high", (63, 576, 65), 1),
        ("too low", (63, 4, 65), 1),
        ("the first too high", (576, 64, 65), 0),
    ],
)
def test_of_two_offsets_that_contradict_each_other_the_other_neighbours_tell_which_is_wrong(
    name: str, wrong: tuple[int, int, int], damaged: int
) -> None:
    """The wrong batch is the larger one, so that its size does not tell."""
    sizes = [3000 if number == damaged else 10 for number in range(3)]
    values = [b"x" * size for size in sizes]
    batches = [b.data(62).raw]
    for true, offset, value in zip((63, 64, 65), wrong, values, strict=True):
        raw = b.data(true, [b.Record(None, value)]).raw
        batches.append(offset.to_bytes(8) + raw[8:])
    batches.append(b.data(66).raw)
    starts = [sum(map(len, batches[:number])) for number in range(len(batches) + 1)]
    found = mapped(0, b"".join(batches))
    assert [(one.start, one.end) for one in found.damaged] == [(starts[damaged + 1], starts[damaged + 2])], (
        name
    )


def test_a_last_offset_that_the_number_of_records_contradicts_is_the_damage() -> None:
    raw = b.data(16).raw
    grown = bytearray(raw)
    grown[23:27] = (524288).to_bytes(4)
    grown[17:21] = crc32c.crc32c(bytes(grown[21:])).to_bytes(4)
    before, behind = b.data(14, 2).raw, b.data(17).raw
    found = mapped(14, before + bytes(grown) + behind)
    assert [(one.start, one.end) for one in found.damaged] == [(len(before), len(before) + len(raw))]
