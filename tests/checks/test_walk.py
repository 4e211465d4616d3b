"""The independent reader of logs, against plain loops: places, CRCs, damage."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krepair.checks.walk import walk
from tests import builders
from tests.builders import reading
from tests.strategies import History, histories

SHAPE = {"segments": 1, "steps": 60}


def joined(batches: list[builders.Batch]) -> bytes:
    return b"".join(batch.raw for batch in batches)


def places_of(log: bytes) -> Iterator[int]:
    place = 0
    while place + 61 <= len(log):
        length, magic = struct.unpack_from(">i4xb", log, place + 8)
        if magic != 2 or length < 49 or place + 12 + length > len(log):
            return
        yield place
        place += 12 + length


def walked(log: bytes, window_bytes: int) -> tuple[list[int], list[int], str, int]:
    """(positions, base offsets, problem, its position) of a whole walk."""
    positions: list[int] = []
    offsets: list[int] = []
    problem, position = "", 0
    for each in walk(reading(log), len(log), window_bytes=window_bytes):
        positions += each.positions.tolist()
        offsets += each.headers["base_offset"].tolist()
        problem, position = each.problem, each.position
    return positions[: len(offsets)], offsets, problem, position


@settings(max_examples=80, deadline=None)
@given(histories(**SHAPE), st.integers(0, 200))
def test_a_walk_meets_every_batch_whatever_the_window(history: History, extra: int) -> None:
    log = joined(history.batches)
    for window_bytes in (len(max((b.raw for b in history.batches), key=len)) + extra, 1 << 20):
        positions, offsets, problem, end = walked(log, window_bytes)
        assert (positions, problem, end) == (list(places_of(log)), "", len(log))
        assert offsets == [batch.base_offset for batch in history.batches]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([0, 1, 2]), min_size=1, max_size=12), st.integers(30, 90))
def test_long_runs_of_one_size_are_found_one_for_one(kinds: list[int], run: int) -> None:
    batches: list[builders.Batch] = []
    for kind in kinds:
        for _ in range(run):
            offset = len(batches)
            made = [builders.commit(offset, pid=1), builders.data(offset, 1), builders.emptied(offset, pid=2)]
            batches.append(made[kind])
    log = joined(batches)
    assert walked(log, 1 << 20)[::2] == (list(places_of(log)), "")


LOG = joined([builders.data(0, 2, pid=5, txn=True), *[builders.commit(2 + n, pid=5) for n in range(40)]])


@pytest.mark.parametrize("window_bytes", [200, 1 << 20])
def test_any_flipped_bit_is_a_problem_of_its_batch_or_another_header(window_bytes: int) -> None:
    starts = list(places_of(LOG))
    for place in range(0, len(LOG), 3):
        bad = bytearray(LOG)
        bad[place] ^= 16
        positions, _, problem, position = walked(bytes(bad), window_bytes)
        start = max(start for start in starts if start <= place)
        if 12 <= place - start < 16:
            assert (positions, problem) == (starts, "")
        elif place - start < 8:
            assert problem.endswith("does not ascend") or positions == starts
        else:
            assert (problem != "", position) == (True, start), place


@pytest.mark.parametrize("size", [1, 60, 61, 77, 79, len(LOG) - 1])
def test_a_truncated_log_is_a_problem_at_its_last_whole_batch(size: int) -> None:
    *_, problem, position = walked(LOG[:size], 1 << 20)
    whole = list(places_of(LOG[:size]))
    following = [place for place in places_of(LOG) if place > (whole[-1] if whole else -1)]
    assert (problem != "", position) == (True, following[0])


def test_a_batch_larger_than_the_window_is_checked_in_pieces() -> None:
    big = builders.data(42, [builders.Record(b"k", bytes(5000))])
    log = LOG + big.raw + builders.commit(43, pid=5).raw
    positions, _, problem, end = walked(log, 1000)
    assert (positions, problem, end) == (list(places_of(log)), "", len(log))
    bad = bytearray(log)
    bad[len(LOG) + 4000] ^= 1
    assert walked(bytes(bad), 1000)[2:] == (
        "the batch's CRC-32C is not that of its bytes",
        len(LOG),
    )
