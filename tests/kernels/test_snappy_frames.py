"""Contents that the snappy kernel unpacks are those of the library; what the library refuses it never takes."""

from __future__ import annotations

import random
import struct

import pytest
import snappy
from hypothesis import given
from hypothesis import strategies as st

from krepair.formats import compression
from krepair.formats.codec import Codec
from tests.kernels.packed_frames import broken, by_library, unpacked

CONTENTS = st.one_of(
    st.binary(max_size=400),
    st.builds(lambda piece, times: piece * times, st.binary(max_size=80), st.integers(0, 1500)),
)


@given(contents=st.lists(CONTENTS, min_size=1, max_size=3), bare=st.booleans(), less=st.integers(1, 100_000))
def test_contents_are_those_that_were_packed(contents: list[bytes], bare: bool, less: int) -> None:
    pack = snappy.compress if bare else lambda content: compression.compress(Codec.SNAPPY, content)
    frames = [bytes(pack(content)) for content in contents]
    assert unpacked(frames, Codec.SNAPPY) == contents
    first = len(contents[0])
    assert unpacked(frames[:1], Codec.SNAPPY, first) == contents[:1]
    if first:
        assert unpacked(frames[:1], Codec.SNAPPY, max(first - less, 0)) == []


@given(
    content=CONTENTS, bare=st.booleans(), place=st.integers(0, 10**6), bit=st.integers(0, 7),
    how=st.sampled_from(("flip", "cut", "longer")),
)  # fmt: skip
def test_broken_batch_is_taken_only_as_by_the_library(
    content: bytes, bare: bool, place: int, bit: int, how: str
) -> None:
    frame = bytes(snappy.compress(content)) if bare else compression.compress(Codec.SNAPPY, content)
    stored = broken(frame, how, place, bit)
    for found in unpacked([stored], Codec.SNAPPY):
        assert found == by_library(stored, Codec.SNAPPY)


def element(chance: random.Random) -> tuple[bytes, int]:
    """A literal or a copy with any distance, and how many bytes it gives."""
    kind, size = chance.randrange(4), chance.randrange(1, 65)
    distance = chance.choice((0, 1, 2, 3, 7, 8, 9, 20, 60, 300))
    if kind == 0:
        size = chance.choice((size, 61, 300, 70_000)) if chance.random() < 0.2 else min(size, 60)
        more = 0 if size <= 60 else chance.choice([width for width in (1, 2, 3, 4) if size <= 1 << 8 * width])
        tag = (size - 1 if not more else 59 + more) << 2
        return bytes([tag]) + ((size - 1).to_bytes(4, "little")[:more]) + chance.randbytes(size), size
    if kind == 1:
        size = 4 + (size & 7)
        return bytes([1 | (size - 4) << 2 | distance >> 8 << 5, distance & 255]), size
    return bytes([kind | (size - 1) << 2]) + distance.to_bytes(2 if kind == 2 else 4, "little"), size


@pytest.mark.parametrize("seed", range(4))
def test_blocks_of_any_elements_are_taken_exactly_when_the_library_takes_them(seed: int) -> None:
    chance, taken = random.Random(seed), 0
    for _ in range(400):
        elements = [element(chance) for _ in range(chance.randrange(1, 12))]
        claimed = sum(size for _, size in elements) + chance.choice((0, 0, 0, 0, 1, -1))
        front = b""
        while claimed >= 128:
            front, claimed = front + bytes([claimed & 127 | 128]), claimed >> 7
        block = front + bytes([max(claimed, 0)]) + b"".join(raw for raw, _ in elements)
        found = unpacked([block], Codec.SNAPPY, 1 << 20)
        assert (found[0] if found else None) == by_library(block, Codec.SNAPPY)
        taken += len(found)
    assert 10 < taken < 390


def test_streams_one_behind_the_other_are_left_to_the_library_and_bad_sizes_are_not_taken() -> None:
    one = compression.compress(Codec.SNAPPY, b"first ")
    assert unpacked([one + one], Codec.SNAPPY) == []
    assert by_library(one + one, Codec.SNAPPY) == b"first first "
    for size in (-1, -(2**31), 2**31 - 1, 7):
        assert (
            unpacked([compression.XERIAL_HEADER + struct.pack(">i", size) + b"\x01\x00a"], Codec.SNAPPY) == []
        )
    assert unpacked([compression.XERIAL_HEADER[:-1]], Codec.SNAPPY) == []
    assert unpacked([compression.XERIAL_HEADER], Codec.SNAPPY) == [b""]
    # a bomb: four gigabytes are claimed
    assert unpacked([b"\xff\xff\xff\xff\x0f" + b"\xfe\x01\x00" * 100], Codec.SNAPPY) == []
