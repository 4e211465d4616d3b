"""The audit of a rewrite: what may go and what was collected, each against a plain loop."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krepair.checks.audit import audit_gathered, audit_window
from krepair.formats.batch_v2 import HEADER
from krepair.kernels.gather import gather_kept
from tests import builders, old_messages
from tests.strategies import History, histories

SHAPE = {"segments": 1, "steps": 40, "emptied": True}


def plain_audit(window: Any, starts: Any, end: int, kept: Any) -> bool:
    """The twin of ``audit_window``: whether nothing is wrong, by Python's own integers and slices."""
    raw, place = window.tobytes(), 0
    if end > len(raw):
        return len(starts) == 1 and starts[0] == 0 and bool(kept[0])
    for start, stays in zip(starts.tolist(), kept.tolist(), strict=True):
        magic, size = raw[place + 16 : place + 17], 12 + int.from_bytes(raw[place + 8 : place + 12], "big")
        if start != place or magic not in (b"\0", b"\1", b"\2") or size < (61 if magic == b"\2" else 26):
            return False
        if place + size > end:
            return False
        marker_or_empty = magic == b"\2" and (
            raw[place + 22] & 0x20 or raw[place + 57 : place + 61] == bytes(4)
        )
        if not stays and not marker_or_empty:
            return False
        place += size
    return place == end


def plain_gathered(window: Any, starts: Any, end: int, kept: Any, copied: Any) -> bool:
    """The twin of ``audit_gathered``: whether nothing is wrong."""
    edges, at = [*starts.tolist(), end], 0
    for number, stays in enumerate(kept.tolist()):
        if stays:
            first = edges[number]
            if window[first : first + 24].tobytes() != copied[at : at + 24].tobytes():
                return False
            at += edges[number + 1] - first
    return at == len(copied)


def laid_out(batches: list[builders.Batch]) -> tuple[Any, Any, int]:
    """(window, places, end) of batches side by side."""
    raw = b"".join(batch.raw for batch in batches)
    sizes = [len(batch.raw) for batch in batches]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
    return np.frombuffer(raw + b"\x07" * 30, np.uint8).copy(), starts, len(raw)


def may_go(batch: builders.Batch) -> bool:
    return batch.control or batch.records == 0


@settings(max_examples=100, deadline=None)
@given(histories(**SHAPE), st.randoms(use_true_random=False))
def test_only_batches_without_records_may_go(history: History, chance: random.Random) -> None:
    window, starts, end = laid_out(history.batches)
    kept = np.array([chance.random() < 0.5 or not may_go(batch) for batch in history.batches])
    assert audit_window(window, starts, end, kept) == ""
    data = [number for number, batch in enumerate(history.batches) if not may_go(batch)]
    if data:
        gone = chance.choice(data)
        kept[gone] = False
        assert (
            audit_window(window, starts, end, kept)
            == f"the batch at place {starts[gone]} has records and would go"
        )


@settings(max_examples=300, deadline=None)
@given(histories(**SHAPE), st.randoms(use_true_random=False))
def test_audits_say_what_their_twins_say_of_wrong_claims(history: History, chance: random.Random) -> None:
    batches = list(history.batches)
    if chance.random() < 0.3:
        batches.insert(chance.randrange(len(batches)), old_messages.plain(0, magic=chance.randrange(2)))
    window, starts, end = laid_out(batches)
    kept = np.array([chance.random() < 0.7 or not may_go(batch) for batch in batches])
    out = np.zeros(len(window), np.uint8)
    copied = out[: gather_kept(window, starts, end, kept, out)]
    if len(copied):
        copied[chance.randrange(len(copied))] ^= chance.choice([0, 0, 1, 64])
    less = copied[: len(copied) - chance.choice([0, 0, 0, 1])]
    found = audit_gathered(window, starts, end, kept, less)
    assert (found == "") == plain_gathered(window, starts, end, kept, less)
    number = chance.randrange(len(starts))
    wrong = chance.choice(["nothing", "place", "missing", "end", "bytes", "kept"])
    if wrong == "place":
        starts[number] += chance.choice([-5000, -61, -1, 1, 61, 5000])
    elif wrong == "missing" and len(starts) > 1:
        starts, kept = np.delete(starts, number), np.delete(kept, number)
    elif wrong == "end":
        end += chance.choice([-80, -1, 1, 25, 31, 5000])
    elif wrong == "bytes":
        window[
            starts[number] + chance.choice([8, 9, 10, 11, 16, 22, 57, 60]) % (len(window) - starts[number])
        ] ^= 1 << chance.randrange(8)
    elif wrong == "kept":
        kept[number] = not kept[number]
    assert (audit_window(window, starts, end, kept) == "") == plain_audit(window, starts, end, kept)


@pytest.mark.parametrize("mixed", [False, True])
def test_places_that_are_none_are_refused(mixed: bool) -> None:
    batches = [builders.commit(n, pid=1) for n in range(30)]
    if mixed:
        batches[7] = builders.data(7, 3)
    window, starts, end = laid_out(batches)
    kept = np.ones(len(starts), bool)
    assert audit_window(window, starts, end, kept) == ""
    for number in range(len(starts)):
        moved = starts.copy()
        moved[number] += 1
        assert audit_window(window, moved, end, kept) != ""
        without = np.delete(starts, number)
        assert audit_window(window, without, end, kept[:-1]) != ""
        damaged = window.copy()
        damaged[starts[number] + 16] = 3
        assert (
            audit_window(damaged, starts, end, kept)
            == f"no batch of the claimed size starts at place {starts[number]}"
        )
    assert audit_window(window, starts, end - 1, kept) != ""
    assert audit_window(window, starts, end + 1, kept) != ""
    outside = starts.copy()
    outside[-1] = len(window) - 5
    assert (
        audit_window(window, outside, end, kept)
        == f"no batch of the claimed size starts at place {starts[-2]}"
    )


def test_data_among_markers_of_its_size_may_not_go() -> None:
    """One size all over is the quick way; it must look at every batch's control bit."""
    marker = builders.commit(0, pid=1)
    data = next(
        made
        for size in range(40)
        if len((made := builders.data(1, [builders.Record(b"", b"x" * size)])).raw) == len(marker.raw)
    )
    window, starts, end = laid_out([marker, data, builders.commit(2, pid=1)])
    assert audit_window(window, starts, end, np.array([False, False, False])) == (
        f"the batch at place {starts[1]} has records and would go"
    )
    assert audit_window(window, starts, end, np.array([False, True, False])) == ""


def test_a_batch_larger_than_the_window_may_only_stay() -> None:
    window, starts, end = laid_out([builders.data(0, 1)])
    for kept, problem in ((True, ""), (False, "a batch larger than the window goes")):
        assert audit_window(window, starts, len(window) + 50, np.array([kept])) == problem
    assert end < len(window)


@settings(max_examples=100, deadline=None)
@given(histories(**SHAPE), st.randoms(use_true_random=False), st.floats(0, 1))
def test_gathered_bytes_are_those_of_a_plain_loop(
    history: History, chance: random.Random, share: float
) -> None:
    window, starts, end = laid_out(history.batches)
    kept = np.array([chance.random() < share for _ in history.batches])
    expected = b"".join(batch.raw for batch, stays in zip(history.batches, kept, strict=True) if stays)
    out = np.zeros(len(window), np.uint8)
    count = gather_kept(window, starts, end, kept, out)
    assert out[:count].tobytes() == expected
    if expected:
        assert audit_gathered(window, starts, end, kept, out[:count]) == ""
        assert gather_kept(window, starts, end, kept, out[: count - 1]) == -1


def test_wrongly_gathered_bytes_are_found_where_no_crc_covers_them() -> None:
    batches = [builders.commit(n, pid=n % 3) if n % 2 else builders.data(n, 2) for n in range(20)]
    window, starts, end = laid_out(batches)
    kept = np.arange(20) % 3 == 0
    out = np.zeros(end, np.uint8)
    copied = out[: gather_kept(window, starts, end, kept, out)]
    assert audit_gathered(window, starts, end, kept, copied) == ""
    assert audit_gathered(window, starts, end, kept, copied[:-1]) != ""
    sizes = np.diff(np.append(starts, end))[kept]
    for first, start in zip(starts[kept].tolist(), (np.cumsum(sizes) - sizes).tolist(), strict=True):
        named = f"the kept batch at place {first} was gathered wrongly"
        for place in (*range(8), *range(12, 21)):
            copied[start + place] ^= 1
            assert audit_gathered(window, starts, end, kept, copied) == named
            copied[start + place] ^= 1


def test_first_place_must_be_0() -> None:
    window, starts, end = laid_out([builders.data(0, 1), builders.data(1, 1)])
    found = audit_window(window, starts[1:], end, np.array([True]))
    assert found == f"the first batch starts at place {starts[1]}, not 0"


def test_batch_that_ends_with_the_window_is_looked_at() -> None:
    raw = builders.data(0, 1).raw
    window = np.frombuffer(raw, np.uint8).copy()
    first = np.zeros(1, np.int32)
    gone, kept = np.array([False]), np.array([True])
    assert audit_window(window, first, len(raw), gone) == "the batch at place 0 has records and would go"
    assert audit_window(window, first, len(raw), kept) == ""
    assert audit_window(window, first, len(raw) + 1, kept) == ""
    assert audit_window(window, first, len(raw) + 1, gone) == "a batch larger than the window goes"
    assert audit_window(window, first + 1, len(raw) + 1, kept) == "a batch is claimed outside of the window"


def test_two_batches_of_which_the_last_is_past_the_window_are_refused() -> None:
    window, starts, end = laid_out([builders.data(0, 1), builders.data(1, 2)])
    cut = window[: end - 1]
    found = audit_window(cut, starts, end, np.array([True, True]))
    assert found == "" or found.startswith(("a batch is claimed", "no batch of the claimed"))
    assert audit_window(window[: starts[1] + 25], starts, end, np.array([True, True])) == (
        "a batch is claimed outside of the window"
    )


def test_places_that_go_back_are_refused() -> None:
    window, starts, end = laid_out([builders.data(n, 1) for n in range(3)])
    for other in ([0, starts[2], starts[1]], [0, -5, starts[1]], [0, 0, starts[1]]):
        found = audit_window(window, np.array(other, np.int32), end, np.array([True] * 3))
        assert found == "no batch of the claimed size starts at place 0"


@pytest.mark.parametrize("magic", [0, 1])
def test_message_of_an_old_format_never_goes(magic: int) -> None:
    batches = [
        old_messages.plain(0, magic=magic),
        builders.commit(1, pid=7),
        old_messages.plain(2, magic=magic),
    ]
    window, starts, end = laid_out(batches)
    assert audit_window(window, starts, end, np.array([True, False, True])) == ""
    for gone in (0, 2):
        kept = np.array([True, False, True])
        kept[gone] = False
        assert audit_window(window, starts, end, kept) == (
            f"the message of an old format at place {starts[gone]} would go"
        )
    window[starts[2] + 16] = 3
    assert audit_window(window, starts, end, np.array([True, False, True])) == (
        f"no batch of the claimed size starts at place {starts[2]}"
    )


def test_smallest_message_of_each_format_is_taken() -> None:
    smallest = builders.Batch(old_messages.raw_message(0, None, magic=0), 0, 0, 0, -1, -1, -1, -1, 1)
    assert len(smallest.raw) == 26
    empty = builders.emptied(1, pid=7)
    window, starts, end = laid_out([smallest, empty])
    assert audit_window(window, starts, end, np.array([True, False])) == ""
    short = window.copy()
    short[starts[1] + 8 : starts[1] + 12] = (0, 0, 0, 48)
    assert audit_window(short[: end - 1], starts, end - 1, np.array([True, True])) == (
        f"no batch of the claimed size starts at place {starts[1]}"
    )


@pytest.mark.parametrize("count", [1, 2, 255, 256, 65536])
def test_batch_of_any_number_of_records_may_not_go(count: int) -> None:
    window, starts, end = laid_out([builders.data(0, 1), builders.data(1, 1)])
    window[starts[1] + 57 : starts[1] + 61] = np.frombuffer(count.to_bytes(4, "big"), np.uint8)
    assert audit_window(window, starts, end, np.array([True, False])) == (
        f"the batch at place {starts[1]} has records and would go"
    )
    window[starts[1] + 57 : starts[1] + 61] = 0
    assert audit_window(window, starts, end, np.array([True, False])) == ""


def test_markers_of_one_size_are_all_looked_at() -> None:
    window, starts, end = laid_out([builders.commit(n, pid=1) for n in range(4)])
    none = np.zeros(4, bool)
    assert audit_window(window, starts, end, none) == ""
    for number in range(4):
        for place, value in ((8, 1), (11, 0), (16, 1), (22, 0x10)):
            changed = window.copy()
            changed[starts[number] + place] = value
            assert audit_window(changed, starts, end, none) != "", (number, place)
        other = window.copy()
        other[starts[number] + 21] = 0xFF  # the high byte of the attributes is not looked at
        assert audit_window(other, starts, end, none) == ""


def test_nothing_kept_is_no_copy() -> None:
    window, starts, end = laid_out([builders.commit(0, pid=1)])
    none = np.zeros(1, bool)
    assert audit_gathered(window, starts, end, none, np.zeros(0, np.uint8)) == ""
    assert audit_gathered(window, starts, end, none, window[:1]) == "1 bytes were gathered, 0 stay"
    one = np.ones(1, bool)
    assert audit_gathered(window, starts, end, one, window[: end - 1]) == (
        f"{end - 1} bytes were gathered, {end} stay"
    )
    copied = window[:end].copy()
    copied[23] ^= 1
    assert audit_gathered(window, starts, end, one, copied) == (
        "the kept batch at place 0 was gathered wrongly"
    )


@pytest.mark.parametrize("size", [30, HEADER.size - 1])
def test_batches_shorter_than_a_header_are_none_though_each_calls_itself_a_marker(size: int) -> None:
    one = bytearray(size)
    one[8:12] = (size - 12).to_bytes(4, "big")
    one[16] = 2
    one[22] = 0x20
    window = np.frombuffer(bytes(one) * 9, np.uint8).copy()
    starts = np.arange(0, 4 * size, size, dtype=np.int32)
    assert audit_window(window, starts, 4 * size, np.zeros(4, bool)) == (
        "no batch of the claimed size starts at place 0"
    )
