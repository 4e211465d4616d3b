"""The independent reader of logs, against plain loops: places, CRCs, damage; of batches and of older messages."""

from __future__ import annotations

import random
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krepair.checks.walk import walk
from krepair.ops.verify import verify_log_dir
from tests.builders import Batch, Record, commit, data, emptied, joined, reading
from tests.old_messages import mixed_log, mixed_logs, plain, wrapper
from tests.ops.scene import OLD_FORMAT, scene
from tests.strategies import History, histories

WHOLE = 1 << 20
"""A window for all of a log."""


class Walked(NamedTuple):
    """(Position, size) of what was found valid, the base offsets of batches; what is wrong and where."""

    places: list[tuple[int, int]]
    offsets: list[int]
    problem: str
    position: int


def walked(log: bytes, window_bytes: int = WHOLE) -> Walked:
    places: list[tuple[int, int]] = []
    offsets: list[int] = []
    problem, position = "", 0
    for each in walk(reading(log), len(log), window_bytes=window_bytes):
        places += zip(each.positions.tolist(), each.sizes.tolist(), strict=True)
        offsets += each.headers["base_offset"].tolist()
        problem, position = each.problem, each.position
    return Walked(places, offsets, problem, position)


def placed(batches: list[Batch]) -> list[tuple[int, int]]:
    sizes = [len(batch.raw) for batch in batches]
    return list(zip([0, *accumulate(sizes)], sizes, strict=False))


@settings(max_examples=80, deadline=None)
@given(histories(segments=1, steps=60), st.integers(0, 200))
def test_a_walk_meets_every_batch_whatever_the_window(history: History, extra: int) -> None:
    log = joined(history.batches)
    offsets = [batch.base_offset for batch in history.batches]
    for window_bytes in (max(len(batch.raw) for batch in history.batches) + extra, WHOLE):
        assert walked(log, window_bytes) == (placed(history.batches), offsets, "", len(log))


@settings(max_examples=60, deadline=None)
@given(mixed_logs(), st.sampled_from([100, 300, WHOLE]))
def test_all_of_a_mixed_log_is_found(batches: list[Batch], window_bytes: int) -> None:
    found = walked(joined(batches), window_bytes)
    assert (found.places, found.problem, found.position) == (placed(batches), "", len(joined(batches)))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([0, 1, 2]), min_size=1, max_size=12), st.integers(30, 90))
def test_long_runs_of_one_size_are_found_one_for_one(kinds: list[int], run: int) -> None:
    batches: list[Batch] = []
    for kind in kinds:
        for _ in range(run):
            offset = len(batches)
            batches.append([commit(offset, pid=1), data(offset, 1), emptied(offset, pid=2)][kind])
    found = walked(joined(batches))
    assert (found.places, found.problem) == (placed(batches), "")


MARKERS = [data(0, 2, pid=5, txn=True), *[commit(2 + n, pid=5) for n in range(40)]]


@pytest.mark.parametrize("window_bytes", [200, WHOLE])
@pytest.mark.parametrize(
    "batches", [MARKERS, *(mixed_log(seed, 8) for seed in range(4))], ids=["markers", *"0123"]
)
def test_any_flipped_bit_is_found_where_it_is(batches: list[Batch], window_bytes: int) -> None:
    """But for the offset, which no checksum covers, and the leader epoch of a batch."""
    log = joined(batches)
    for number, (start, size) in enumerate(placed(batches)):
        for place in range(start, start + size):
            bad = bytearray(log)
            bad[place] ^= 1 << random.Random(place).randrange(8)
            found = walked(bytes(bad), window_bytes)
            if place - start < 8:
                assert found.problem.endswith("does not ascend") or len(found.places) == len(batches)
            elif batches[number].raw[16] == 2 and 12 <= place - start < 16:
                assert (len(found.places), found.problem) == (len(batches), "")
            else:
                assert (found.problem != "", found.position) == (True, start), (place, found.problem)
                assert len(found.places) == number or window_bytes < WHOLE


@pytest.mark.parametrize("size", [1, 60, 61, 77, 79, len(joined(MARKERS)) - 1])
def test_a_truncated_log_is_a_problem_at_its_last_whole_batch(size: int) -> None:
    found = walked(joined(MARKERS)[:size])
    torn = next(start for start, length in placed(MARKERS) if start + length > size)
    assert (found.problem != "", found.position) == (True, torn)


@pytest.mark.parametrize("window_bytes", [128, 1000, WHOLE])
@pytest.mark.parametrize(
    ("large", "told"),
    [
        (data(1, [Record(b"k", bytes(7000))]), "the batch's CRC-32C is not that of its bytes"),
        (plain(1, random.Random(1).randbytes(7000)), "the message's CRC-32 is not that of its bytes"),
    ],
    ids=["batch", "message"],
)
def test_what_is_larger_than_the_window_is_checked_in_pieces(
    large: Batch, told: str, window_bytes: int
) -> None:
    batches = [plain(0), large, data(2)]
    log = bytearray(joined(batches))
    found = walked(bytes(log), window_bytes)
    assert (found.places, found.problem, found.position) == (placed(batches), "", len(log))
    log[6000] ^= 1
    found = walked(bytes(log), window_bytes)
    assert (len(found.places), found.problem, found.position) == (1, told, len(batches[0].raw))


def test_offsets_must_ascend_over_the_borders_of_formats() -> None:
    for first, second in ((plain(5), data(5)), (data(5), plain(5)), (plain(5), wrapper(4, [1, 2]))):
        found = walked(first.raw + second.raw)
        assert (len(found.places), "does not ascend" in found.problem) == (1, True)


def test_indexes_that_a_live_broker_wrote_for_old_formats_are_true(tmp_path: Path) -> None:
    old = scene(tmp_path, OLD_FORMAT)
    assert verify_log_dir(str(old.path), old.options()).problems == ()
