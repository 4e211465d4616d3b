"""The scan kernel against its slow twin."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krepair.kernels import classes as c
from krepair.kernels.scan import ScanInputs, scan_segment
from krepair.kernels.scan_window import decision_delta
from tests import builders
from tests.builders import Batch, joined
from tests.kernels.scanning import (
    CLASS_NAMES,
    NOW_MS,
    same_answer,
    scan_bytes,
    staged,
    summary_in_words,
    twin_in_words,
    twin_of,
)
from tests.strategies import History, Shape, histories

SHAPE = {"segments": 2, "steps": 12}
windows = st.sampled_from(
    [100, 121, 160, 333, 1024, 1 << 16]
)  # a control batch larger than the window is not looked into


def log_of(history: History, segment: int = -1) -> tuple[bytes, int, list[Batch]]:
    base_offset, batches, _ = history.segments[segment]
    return joined(batches), base_offset, batches


def told(history: History, chance: random.Random) -> dict[str, Any]:
    """Inputs as the rules would give them, and some that they would not."""
    _, _, batches = log_of(history)
    pids = sorted({batch.producer_id for batch in batches if batch.producer_id >= 0})
    aborts = [batch for batch in batches if batch.marker == builders.ABORT]
    entries = [(batch.producer_id, batch.base_offset) for batch in aborts if chance.random() < 0.7]
    if entries and chance.random() < 0.3:
        entries[0] = (77, entries[0][1])
    position, emptied = 0, []
    for batch in batches:
        if not batch.records and not batch.control and chance.random() < 0.5:
            emptied.append(position)
        position += len(batch.raw)
    return {
        "entries": entries,
        "carried": {pid for pid in pids if chance.random() < 0.3},
        "protected": {pid: chance.randint(0, 2) for pid in pids if chance.random() < 0.3},
        "keep_positions": emptied,
        "high_watermark": chance.choice([2**63 - 1, batches[len(batches) // 2].base_offset]),
        "last_position": chance.choice([-1, position - len(batches[-1].raw)]),
    }


marker_logs = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.sampled_from(
            ["commit"] * 6 + ["abort"] * 3 + ["stamped", "data", "emptied", "emptied marker", "next epoch"]
        ),
        st.sampled_from([0] * 8 + [1, -7]),
    ),
    min_size=5,
    max_size=60,
)


def marker_log(steps: list[tuple[int, str, int]]) -> list[Batch]:
    """Mostly markers of few producers, so that most change nothing but counts."""
    epochs = {1: 0, 2: 0, 3: 0}
    out: list[Batch] = []
    for number, (pid, what, later) in enumerate(steps):
        offset, time = 5 + 2 * number, builders.NOW_MS + number * 10 + later
        epochs[pid] += what == "next epoch"
        common: dict[str, Any] = {
            "pid": pid,
            "epoch": epochs[pid],
            "timestamp": time,
            "leader_epoch": number // 9,
        }
        if what == "data":
            out.append(builders.data(offset, 2, txn=later == 0, **common))
        elif what == "emptied":
            out.append(builders.emptied(offset, offset + 1, **common))
        elif what == "emptied marker":
            out.append(builders.emptied(offset, control=True, **common))
        else:
            kind = builders.ABORT if what == "abort" else builders.COMMIT
            horizon = builders.NOW_MS + later if what == "stamped" else None
            out.append(builders.marker(offset, kind, delete_horizon=horizon, **common))
    return out


data_logs = st.lists(
    st.tuples(
        st.sampled_from([-1] * 8 + [1, 2]),
        st.sampled_from(["data"] * 8 + ["emptied"] * 3 + ["commit", "abort", "stamped"]),
        st.sampled_from([0] * 8 + [1, -7]),
    ),
    min_size=5,
    max_size=60,
)


def data_log(steps: list[tuple[int, str, int]]) -> list[Batch]:
    """Mostly data of no producer, so that most change nothing but counts."""
    out: list[Batch] = []
    for number, (pid, what, later) in enumerate(steps):
        offset = 5 + 4 * number
        common: dict[str, Any] = {
            "timestamp": builders.NOW_MS + number * 10 + later,
            "leader_epoch": number // 9 - (later < 0),
        }
        if what in {"commit", "abort"}:
            kind = builders.ABORT if what == "abort" else builders.COMMIT
            out.append(builders.marker(offset, kind, pid=abs(pid), **common))
        elif what == "emptied":
            out.append(builders.emptied(offset, offset + number % 3, pid=pid, **common))
        else:
            batch = builders.data(offset, 1 + number % 3, pid=pid, txn=pid >= 0 and later == 0, **common)
            if what == "stamped":
                raw = bytearray(batch.raw)
                raw[22] |= builders.DELETE_HORIZON
                batch = replace(batch, raw=with_valid_crc(raw))
            out.append(batch)
    return out


LOGS = {
    "any history": histories(**SHAPE),
    "long runs of markers": marker_logs.map(lambda steps: History(Shape(), [(0, marker_log(steps), 0)])),
    "long runs of data of no producer": data_logs.map(
        lambda steps: History(Shape(), [(0, data_log(steps), 0)])
    ),
}


@pytest.mark.parametrize("logs", LOGS.values(), ids=LOGS)
@settings(max_examples=200, deadline=None)
@given(
    draw=st.data(),
    window_bytes=windows,
    chance=st.randoms(use_true_random=False),
    at_most=st.sampled_from([7, 64, 1 << 20]),
    check_crc=st.booleans(),
)
def test_a_log_is_summed_up_as_by_the_twin_and_staging_sees_each_batch_once_with_its_class(
    logs: st.SearchStrategy[History],
    draw: st.DataObject,
    window_bytes: int,
    chance: random.Random,
    at_most: int,
    check_crc: bool,
) -> None:
    history = draw.draw(logs)
    log, base_offset, batches = log_of(history)
    how = told(history, chance)
    if chance.random() < 0.5:
        how["last_position"] = len(joined(batches[: chance.randrange(len(batches))]))
    found, seen = staged(
        log, base_offset, window_bytes=window_bytes, at_most=at_most, check_crc=check_crc, **how
    )
    expected = twin_of(log, base_offset, **how)
    assert summary_in_words(found) == twin_in_words(expected)
    assert seen == [(position, name) for position, _, name in expected.batches]
    whole = scan_bytes(log, base_offset, **how)
    assert summary_in_words(whole) == summary_in_words(found)
    assert (whole.headers, whole.decisions) == (found.headers, found.decisions)


@pytest.mark.parametrize("gap", [13, 14, 15, 16])
def test_a_marker_is_held_whatever_offsets_of_data_before_it_are_asked_for(gap: int) -> None:
    """Another replica may hold markers at offsets that are within a batch, or that no batch here has."""
    batches = [builders.data(offset, 2) for offset in (5, 8, 11, 14)]
    log = joined([*batches, builders.commit(20, pid=7), builders.commit(21, pid=7)])
    inputs = ScanInputs(0, len(log), NOW_MS, held=np.array([6, gap, 20], np.int64))
    found = scan_segment(inputs, builders.reading(log, 1 << 20))
    assert found.tallies[c.MARKER_HELD, c.T_BATCHES] == 1
    assert found.tallies[c.MARKER_UNSTAMPED, c.T_BATCHES] == 1


# -- damage ---------------------------------------------------------------------------------------

BASE = 3
LOG = joined(
    [
        builders.commit(3, pid=7, leader_epoch=2),
        builders.abort(4, pid=8, leader_epoch=2),
        builders.commit(5, pid=7, leader_epoch=2),
        builders.abort(6, pid=8, coordinator_epoch=1, leader_epoch=2),
        builders.commit(9, pid=7, timestamp=builders.NOW_MS + 5, leader_epoch=2),
        builders.data(10, 3, pid=7, txn=True, leader_epoch=2),
        builders.commit(13, pid=7, leader_epoch=2),
        builders.emptied(14, 16, pid=8, leader_epoch=2),
        builders.abort(17, pid=8, leader_epoch=2),
        builders.data(18, 2, leader_epoch=2),
        builders.commit(20, pid=9, coordinator_epoch=3, leader_epoch=2),
    ]
)
NOT_COVERED = {*range(8), *range(12, 16)}  # base offset and leader epoch may be any that fit


@pytest.mark.parametrize("bit", [0, 3, 7])
def test_every_flipped_bit_is_damage_or_another_header(bit: int) -> None:
    """The CRC does not cover base offset and leader epoch; the digest does."""
    whole = scan_bytes(LOG, BASE)
    starts = [position for position, _, _ in twin_of(LOG, BASE).batches]
    for place in range(len(LOG)):
        bad = bytearray(LOG)
        bad[place] ^= 1 << bit
        found = scan_bytes(bytes(bad), BASE)
        start = max(start for start in starts if start <= place)
        assert same_answer(found, twin_of(bytes(bad), BASE)), place
        if place - start in NOT_COVERED:
            assert found.headers != whole.headers, place
        else:
            assert (found.is_whole, found.valid_bytes) == (False, start), place


@settings(max_examples=100, deadline=None)
@given(histories(**SHAPE), st.data())
def test_a_truncated_log_is_valid_up_to_its_last_whole_batch(history: History, draw: st.DataObject) -> None:
    log, base_offset, _ = log_of(history)
    size = draw.draw(st.integers(0, len(log)))
    found = scan_bytes(log[:size], base_offset, window_bytes=draw.draw(st.sampled_from([100, 1 << 16])))
    assert same_answer(found, twin_of(log[:size], base_offset))


@pytest.mark.parametrize("zeros", [1, 16, 17, 60, 61, 62, 5000])
@pytest.mark.parametrize("window_bytes", [100, 1 << 16])
def test_a_tail_of_zeros_is_named_as_such(zeros: int, window_bytes: int) -> None:
    found = scan_bytes(LOG + bytes(zeros), BASE, window_bytes=window_bytes)
    assert (found.damage, found.valid_bytes) == (c.D_ZEROS, len(LOG))


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13, 14, 48, 49, 50, 10**6, 2**31 - 13, 2**31 - 1])
@pytest.mark.parametrize("magic", [0, 1, 2, 3, 127, 128, 255])
@pytest.mark.parametrize("check_crc", [True, False])
def test_absurd_lengths_and_magics_are_damage_never_a_crash(length: int, magic: int, check_crc: bool) -> None:
    bad = bytearray(builders.data(21, 2).raw)
    bad[8:12] = length.to_bytes(4, "big", signed=True)
    bad[16] = magic
    log = LOG + bytes(bad)
    found = scan_bytes(log, BASE, window_bytes=200, check_crc=check_crc)
    if check_crc:
        assert same_answer(found, twin_of(log, BASE))
    assert found.valid_bytes >= len(LOG)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400), st.sampled_from([64, 100, 4096]))
def test_any_bytes_are_read_as_by_the_twin(noise: bytes, window_bytes: int) -> None:
    log = LOG + noise
    assert same_answer(scan_bytes(log, BASE, window_bytes=max(100, window_bytes)), twin_of(log, BASE))


def with_valid_crc(batch: bytearray) -> bytes:
    """The same batch with the CRC that its bytes have."""
    batch[17:21] = crc32c.crc32c(batch[21:]).to_bytes(4, "big")
    return bytes(batch)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([78, 95]), st.integers(21, 77), st.integers(0, 255), st.booleans())
def test_a_changed_marker_with_a_right_crc_is_read_as_by_the_twin(
    size: int, place: int, value: int, second: bool
) -> None:
    """Control records of all sorts, malformed ones included."""
    raw = bytearray(builders.commit(21, pid=7).raw)
    raw += bytes(size - len(raw))
    raw[8:12] = (len(raw) - 12).to_bytes(4, "big")
    raw[place] = value
    log = LOG + with_valid_crc(raw) + (builders.abort(30, pid=7).raw if second else b"")
    assert summary_in_words(scan_bytes(log, BASE)) == twin_in_words(twin_of(log, BASE))


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 60), st.integers(0, 255), st.integers(0, 3), st.booleans())
def test_a_changed_batch_of_data_with_a_right_crc_is_read_as_by_the_twin(
    place: int, value: int, number: int, crc: bool
) -> None:
    """Each byte of its header: formats, lengths, offsets, epochs, attributes, producers and counts of all sorts."""
    batches = [bytearray(builders.data(21 + 3 * one, 2, leader_epoch=2).raw) for one in range(4)]
    batches[number][place] = value
    raws = [with_valid_crc(raw) if crc else bytes(raw) for raw in batches]
    log = LOG + b"".join(raws) + builders.abort(40, pid=7, leader_epoch=2).raw
    assert summary_in_words(scan_bytes(log, BASE)) == twin_in_words(twin_of(log, BASE))


def test_a_segment_that_begins_before_its_name_says_so() -> None:
    found = scan_bytes(LOG, BASE + 1)
    assert (found.damage, found.valid_bytes) == (c.D_OFFSET_RANGE, 0)


def test_a_file_that_gives_fewer_bytes_than_listed_is_torn() -> None:
    found = scan_bytes(LOG[:-5] + bytes(5), BASE)
    assert found.damage == c.D_CRC
    assert scan_bytes(b"", 10).is_whole


# -- growth ---------------------------------------------------------------------------------------


def test_thousands_of_producers_and_epochs_make_the_tables_grow() -> None:
    count = 3000
    batches = [builders.commit(n, pid=(n * 7919) % 1500, leader_epoch=n // 2) for n in range(count)]
    log = joined(batches)
    found = scan_bytes(log, 0, window_bytes=1000)
    assert same_answer(found, twin_of(log, 0))
    assert (len(found.rows), len(found.epochs)) == (1500, count // 2)
    assert found.rows[:, c.P_ID].tolist() == sorted(found.rows[:, c.P_ID].tolist())


@pytest.mark.parametrize("window_bytes", [100, 4096, 5000])
def test_batches_larger_than_the_window_are_checked_piece_by_piece(window_bytes: int) -> None:
    big = builders.data(21, [builders.Record(b"k", bytes(range(256)) * 40)], pid=7, txn=True)
    log = LOG + big.raw + builders.commit(22, pid=7).raw
    found, seen = staged(log, BASE, window_bytes=window_bytes)
    assert same_answer(found, twin_of(log, BASE))
    assert len(seen) == found.batches
    bad = bytearray(log)
    bad[len(LOG) + len(big.raw) - 1] ^= 1
    assert summary_in_words(scan_bytes(bytes(bad), BASE, window_bytes=window_bytes)) == twin_in_words(
        twin_of(bytes(bad), BASE)
    )


# -- digests --------------------------------------------------------------------------------------


def test_two_batches_that_change_places_change_the_digest() -> None:
    first, second = builders.commit(0, pid=1).raw, builders.commit(1, pid=2).raw
    other_first, other_second = builders.commit(0, pid=2).raw, builders.commit(1, pid=1).raw
    assert scan_bytes(first + second).headers != scan_bytes(other_first + other_second).headers


def test_a_sum_of_headers_alone_is_not_the_digest() -> None:
    """The same header at another position adds something else."""
    log = builders.data(0, 2).raw
    digests = {scan_bytes(log + builders.commit(number, pid=5).raw).headers for number in range(2, 60)}
    assert len(digests) == 58
    halves = {digest[:16] for digest in digests} | {digest[16:] for digest in digests}
    assert len(halves) == 116


@settings(max_examples=50, deadline=None)
@given(histories(**SHAPE), st.randoms(use_true_random=False))
def test_decisions_moved_one_by_one_give_the_digest_of_the_new_decisions(
    history: History, chance: random.Random
) -> None:
    log, base_offset, batches = log_of(history)
    pids = [batch.producer_id for batch in batches if batch.producer_id >= 0]
    carried = {pid for pid in pids if chance.random() < 0.5}
    plain, before = staged(log, base_offset)
    other, after = staged(log, base_offset, carried=carried)
    numbers = {name: number for number, name in CLASS_NAMES.items()}
    total = np.int64(plain.decisions)
    with np.errstate(over="ignore"):
        for (position, old), (_, new) in zip(before, after, strict=True):
            total += np.int64(decision_delta(position, numbers[old], numbers[new]))
    assert int(total) == other.decisions


def test_batches_before_the_start_position_say_nothing_of_their_producers() -> None:
    batches = [
        builders.data(0, 2, pid=7, sequence=4),
        builders.commit(2, pid=8, coordinator_epoch=3),
        builders.data(3, 1, pid=9, txn=True),
        builders.data(4, 1, pid=7, sequence=6),
    ]
    log = joined(batches)
    start = len(batches[0].raw) + len(batches[1].raw)
    summary = scan_bytes(log, start_position=start)
    assert summary.rows[:, c.P_ID].tolist() == [7, 9]
    assert (summary.batches, summary.first_offset, summary.valid_bytes) == (2, 3, len(log))
    assert scan_bytes(log, start_position=len(log)).batches == 0


def test_batch_without_sequences_has_no_last_sequence() -> None:
    rows = scan_bytes(joined([builders.data(0, 3, pid=7, sequence=-1, txn=True)])).rows
    assert rows[0, c.P_LAST_SEQUENCE] == -1
