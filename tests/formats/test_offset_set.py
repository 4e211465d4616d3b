"""Encoded sets of offsets: they decode to the same set, have one form each, and never expand to much more."""

from __future__ import annotations

import random
import tracemalloc

import numpy as np
import pytest

from krepair.formats.offset_set import (
    MOST_BYTES,
    MOST_OFFSETS,
    OffsetSetError,
    as_text,
    of_text,
    packed,
    unpacked,
)


@pytest.mark.parametrize("base", [0, 77, 2**62])
@pytest.mark.parametrize(
    ("count", "among"),
    [(0, 1), (1, 1), (1, 2**31 - 1), (2, 2**31 - 1), (3, 3), (7, 200), (500, 1000), (500, 16_000), (9, 9)],
)
def test_what_is_packed_comes_back(count: int, among: int, base: int) -> None:
    offsets = np.array(sorted(random.Random(count).sample(range(among), count)), np.int64) + base
    data = packed(offsets, base)
    assert unpacked(of_text(as_text(data)), base).tolist() == offsets.tolist()
    assert len(data) <= 5 + count * (2 + max((among // max(count, 1)).bit_length(), 0)) / 8 + 40


def test_every_second_record_takes_three_bits() -> None:
    assert len(packed(np.arange(0, 20_000, 2), 0)) == 5 + 10_000 * 3 // 8


def test_any_other_bytes_are_no_set_or_another_one() -> None:
    offsets = np.array([3, 4, 9, 40, 41, 97, 180], np.int64)
    data = packed(offsets, 0)
    seen = {tuple(offsets.tolist())}
    for bit in range(8 * len(data)):
        other = bytearray(data)
        other[bit // 8] ^= 1 << bit % 8
        try:
            found = unpacked(bytes(other), 0)
        except OffsetSetError:
            continue
        assert packed(found, 0) == bytes(other)
        assert (np.diff(found) > 0).all()
        assert tuple(found.tolist()) not in seen
        seen.add(tuple(found.tolist()))


@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        bytes(5),
        bytes(4) + b"\0\x80",
        b"\0\0\0\1\x20\x80",
        b"\0\0\0\1\x1f\x80",
        b"\xff\xff\xff\xff\0\x80",
        b"\0\0\0\1\0",
        b"\0\0\0\1\0\x80\0",
        b"\0\0\0\2\0\x80",
        b"\0\0\0\2\1\0\xc0",
        (MOST_OFFSETS + 1).to_bytes(4, "big") + b"\0" + b"\xff" * 64,
    ],
    ids=bytes.hex,
)
def test_what_is_no_set_is_refused(data: bytes) -> None:
    with pytest.raises(OffsetSetError):
        unpacked(data, 0)


@pytest.mark.parametrize("text", ["x", "AAAA=", "AAA", "AA AA", "é", "A" * (MOST_BYTES * 4 // 3 + 8)])
def test_what_is_no_text_of_a_set_is_refused(text: str) -> None:
    with pytest.raises(OffsetSetError):
        of_text(text)


def test_a_small_text_that_claims_much_takes_little_memory() -> None:
    claims = MOST_OFFSETS.to_bytes(4, "big") + b"\x1f" + b"\xff" * 1000
    tracemalloc.start()
    with pytest.raises(OffsetSetError):
        unpacked(claims, 0)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
