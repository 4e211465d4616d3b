"""The walk of a recovery against its slow twin; the broker tests compare it with real brokers."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krepair.derive.index_entries import IndexEntries, index_bytes
from krepair.derive.segment import RecoveredSegment, recover_segment
from krepair.kernels import classes as c
from krepair.kernels.columns import BatchWalk
from krepair.kernels.scan import ScanInputs, scan_segment
from tests import builders, encoders
from tests.builders import Batch, joined
from tests.kernels.scanning import scan_bytes
from tests.old_messages import mixed_logs, plain
from tests.strategies import histories


def recovered(
    log: bytes, interval: int = 4096, base_offset: int = 0, *, at_most: int = 1 << 30, **how: Any
) -> RecoveredSegment:
    return recover_segment(base_offset, len(log), interval, builders.reading(log, at_most), **how)


INTERVALS = st.sampled_from([0, 1, 77, 100, 500, 4096])
WINDOWS = st.sampled_from([100, 150, 1000, 1 << 16])


@settings(max_examples=120, deadline=None)
@given(
    mixed_logs() | histories(segments=1, steps=30).map(lambda made: made.batches),
    INTERVALS,
    WINDOWS,
    st.sampled_from([9, 1 << 20]),
)
def test_entries_are_those_of_a_brokers_recovery_whatever_the_window(
    batches: list[Batch], interval: int, window_bytes: int, at_most: int
) -> None:
    log, base = joined(batches), batches[0].base_offset
    found = recovered(log, interval, base, window_bytes=window_bytes, at_most=at_most)
    assert (found.index, found.time_index) == builders.indexes(base, batches, interval)
    assert (found.damage, found.valid_bytes, found.batches) == (c.D_NONE, len(log), len(batches))
    assert found.last_offset == batches[-1].last_offset


@settings(max_examples=60, deadline=None)
@given(mixed_logs(), INTERVALS, st.sampled_from([128, 150, 1000, 1 << 16]))
def test_entries_from_the_windows_of_a_scan_are_those_of_the_walk(
    batches: list[Batch], interval: int, window_bytes: int
) -> None:
    log = joined(batches)
    entries, columns = IndexEntries(interval), []
    scan_segment(
        ScanInputs(base_offset=0, file_size=len(log), now_ms=0),
        builders.reading(log, 1 << 30),
        on_window=lambda window, end, starts, _: columns.append(
            entries.take_window(window, end, starts).copy()
        ),
        window_bytes=window_bytes,
    )
    walked = recovered(log, interval)
    assert index_bytes(0, *entries.entries()) == (walked.index, walked.time_index)
    rows = np.concatenate([found.copy() for found in BatchWalk(builders.reading(log, 1 << 30), len(log))])
    names = ("position", "last_offset", "max_timestamp")
    assert np.array_equal(np.concatenate(columns, axis=1), [rows[name] for name in names])


def test_more_entries_than_there_was_room_for_are_those_of_the_walk() -> None:
    log = joined([builders.data(number, 1, timestamp=number) for number in range(9000)])
    entries = IndexEntries(1)
    scan_segment(
        ScanInputs(base_offset=0, file_size=len(log), now_ms=0),
        builders.reading(log, 1 << 30),
        on_window=lambda window, end, starts, _: entries.take_window(window, end, starts),
    )
    walked = recovered(log, 1)
    assert len(entries.entries()[0]) == 8999
    assert index_bytes(0, *entries.entries()) == (walked.index, walked.time_index)


@settings(max_examples=60, deadline=None)
@given(mixed_logs(), st.data())
def test_walk_ends_where_the_scan_ends_and_for_the_same_reason(
    batches: list[Batch], draw: st.DataObject
) -> None:
    log = bytearray(joined(batches))
    place = draw.draw(st.integers(0, len(log) - 1))
    log[place] ^= 1 << draw.draw(st.integers(0, 7))
    content = bytes(log[: draw.draw(st.integers(place, len(log)))])
    found, scanned = recovered(content), scan_bytes(content)
    assert (found.valid_bytes, found.batches) == (scanned.valid_bytes, scanned.batches)
    assert (found.damage, found.damage_text) == (scanned.damage, scanned.damage_text)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_walked_without_a_crash(noise: bytes) -> None:
    found = recovered(noise, window_bytes=100)
    assert found.valid_bytes + len(noise[found.valid_bytes :]) == len(noise)
    assert (found.damage == c.D_NONE) == (found.valid_bytes == len(noise))


def test_more_entries_than_the_first_buffers_hold() -> None:
    batches = [builders.commit(n, pid=1, timestamp=n) for n in range(3000)]
    found = recovered(joined(batches), 0)
    assert (found.index, found.time_index) == builders.indexes(0, batches, 0)
    assert (len(found.index), len(found.time_index)) == (8 * 2999, 12 * 2999)


def test_a_log_without_batches_has_no_entries() -> None:
    found = recovered(b"")
    assert (found.index, found.time_index) == (b"", b"")


def test_a_log_of_v0_alone_has_an_empty_time_index() -> None:
    found = recovered(joined([plain(n, magic=0) for n in range(200)]), 100)
    assert len(found.time_index) == 0 < len(found.index)


@pytest.mark.parametrize("old", [True, False])
def test_batches_larger_than_the_window_are_checked_piece_by_piece(old: bool) -> None:
    value = random.Random(2).randbytes(9000)
    large = plain(1, value) if old else builders.data(1, [builders.Record(b"k", value)])
    batches = [builders.data(0), large, builders.data(2, 3)]
    log = joined(batches)
    found = recovered(log, 50, window_bytes=256)
    assert (found.index, found.time_index) == builders.indexes(0, batches, 50)
    bad = bytearray(log)
    bad[5000] ^= 4
    found = recovered(bytes(bad), 50, window_bytes=256)
    assert (found.damage, found.valid_bytes) == (c.D_OLD_CRC if old else c.D_CRC, len(builders.data(0).raw))


def test_a_file_that_gives_fewer_bytes_than_listed_ends_there() -> None:
    log = joined([builders.data(n) for n in range(5)])
    found = recover_segment(0, len(log), 4096, builders.reading(log[: len(log) // 2]))
    assert found.valid_bytes == 2 * len(builders.data(0).raw)
    assert found.damage == c.D_TORN


@pytest.mark.parametrize(("offset", "fits"), [(2**31 - 1, True), (2**31, False)])
def test_an_offset_that_overflows_the_base_is_damage(offset: int, fits: bool) -> None:
    found = recovered(joined([builders.data(0), builders.data(offset)]))
    assert found.damage == (c.D_NONE if fits else c.D_OFFSET_RANGE)
    assert all(one.relative_offset >= 0 for one in encoders.decode_offset_index(found.index))
