"""The columns of a log against the headers of its batches, read one by one with struct."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krepair.kernels import columns as k
from tests import builders
from tests.builders import Batch, joined
from tests.kernels.twins import control_kind
from tests.old_messages import mixed_logs, plain
from tests.strategies import History, histories

WINDOWS = st.sampled_from([1, 150, 1000, 1 << 16])


def twin(log: bytes) -> Iterator[dict[str, int]]:
    """What each header of a valid log says."""
    position, last = 0, -1
    while position < len(log):
        base, length, fourth, magic = struct.unpack_from(">qiiB", log, position)
        row = {"position": position, "size": length + 12, "base_offset": base, "magic": magic, "computed": 0}
        if magic < 2:
            time = struct.unpack_from(">q", log, position + 18)[0] if magic else -1
            row |= dict.fromkeys(("producer_id", "producer_epoch", "base_sequence", "leader_epoch"), -1)
            row |= {"base_timestamp": time, "max_timestamp": time, "record_count": -1, "last_offset": base}
            row |= {
                "crc": fourth & 0xFFFFFFFF,
                "attributes": log[position + 17],
                "control_type": k.NO_CONTROL,
            }
        else:
            names = ("crc", "attributes", "delta", "base_timestamp", "max_timestamp", "producer_id",
                     "producer_epoch", "base_sequence", "record_count")  # fmt: skip
            row |= dict(zip(names, struct.unpack_from(">IhiqqqHii", log, position + 17), strict=True))
            row |= {"leader_epoch": fourth, "last_offset": base + row.pop("delta")}
            row["producer_epoch"] = (row["producer_epoch"] + 2**15) % 2**16 - 2**15
            is_marker = row["attributes"] & 0x20 and row["record_count"]
            kind = control_kind(log[position + 61 : position + length + 12]) if is_marker else k.NO_CONTROL
            row["control_type"] = k.UNREADABLE if kind is None else kind
        row["problem"] = k.BAD_OFFSETS if base <= last else k.OK
        last = max(last, row["last_offset"])
        position += length + 12
        yield row


def walked(log: bytes, **how: Any) -> tuple[k.BatchWalk, list[dict[str, int]]]:
    walk = k.BatchWalk(builders.reading(log, how.pop("at_most", 1 << 30)), len(log), **how)
    rows = [dict(zip(k.BATCH.names or (), row, strict=True)) for found in walk for row in found.tolist()]
    return walk, rows


@settings(max_examples=60, deadline=None)
@given(
    mixed_logs() | histories(segments=1, steps=30, emptied=True).map(lambda made: made.batches),
    st.booleans(),
    WINDOWS,
    st.sampled_from([9, 1 << 20]),
)
def test_columns_are_what_each_header_says(
    batches: list[Batch], whole: bool, window_bytes: int, at_most: int
) -> None:
    log = joined(batches)
    walk, rows = walked(log, whole=whole, window_bytes=window_bytes, at_most=at_most)
    assert rows == list(twin(log))
    assert (walk.position, walk.is_at_end, walk.suspect) == (len(log), True, None)


@settings(max_examples=60, deadline=None)
@given(mixed_logs(), WINDOWS, st.data())
def test_a_whole_walk_ends_at_the_first_flipped_bit_that_a_checksum_covers(
    batches: list[Batch], window_bytes: int, draw: st.DataObject
) -> None:
    number = draw.draw(st.integers(0, len(batches) - 1))
    log = bytearray(joined(batches))
    start = len(joined(batches[:number]))
    log[start + 25] ^= 1
    walk, rows = walked(bytes(log), whole=True, window_bytes=window_bytes)
    assert (len(rows), walk.position) == (number, start)
    assert (int(walk.suspect["position"]), int(walk.suspect["problem"])) == (start, k.BAD_CRC)
    assert walk.suspect["computed"] != walk.suspect["crc"]
    assert bytes(walk.rest) == log[start : start + len(walk.rest)]


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize("flipped", [0, 5000])
def test_batches_larger_than_the_window_are_checked_piece_by_piece(old: bool, flipped: int) -> None:
    value = bytes(9000)
    large = plain(1, value) if old else builders.data(1, [builders.Record(b"k", value)])
    log = bytearray(joined([builders.data(0), large, builders.data(2)]))
    log[flipped] ^= 4 if flipped else 0
    walk, rows = walked(bytes(log), whole=True, window_bytes=256)
    assert (len(rows), walk.suspect is None) == ((1, False) if flipped else (3, True))


@given(histories(segments=1), st.integers(0, 1000))
def test_a_walk_with_an_end_gives_the_batches_up_to_it(history: History, until: int) -> None:
    log = joined(history.batches)
    walk, rows = walked(log, until=until, window_bytes=1)
    assert rows == list(twin(log))[: len(rows)]
    assert walk.position >= min(until, len(log))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400), st.booleans())
def test_any_bytes_are_walked_without_a_crash(noise: bytes, whole: bool) -> None:
    walk, rows = walked(noise, whole=whole, window_bytes=100)
    assert walk.position == sum(row["size"] for row in rows) <= len(noise)


def test_a_row_is_narrower_than_the_smallest_marker_and_its_window_fits_the_cache() -> None:
    assert k.BATCH.itemsize <= 80
    assert k.WINDOW_BYTES + (k.MOST_ROWS + 1) * k.BATCH.itemsize < 1 << 20
    assert np.zeros(1, k.BATCH)["position"] == 0
