"""The lz4 kernel decompresses to the library's bytes, and never takes what the library refuses."""

from __future__ import annotations

import random

import lz4.frame
import pytest

from krepair.formats.codec import Codec
from tests.kernels.packed_frames import by_library, content_of, damaged, frame_of, unpacked


@pytest.mark.parametrize("seed", range(4))
def test_contents_are_those_that_were_packed_and_broken_frames_are_taken_only_as_by_the_library(
    seed: int,
) -> None:
    chance = random.Random(seed)
    taken = 0
    for _ in range(60):
        contents = [content_of(chance) for _ in range(2)]
        frames = [frame_of(content, chance.choice((0, 0, 9, -3))) for content in contents]
        assert unpacked(frames, Codec.LZ4) == contents
        broken = damaged(frames[0], chance)
        for found in unpacked([broken], Codec.LZ4):
            taken += 1
            assert found == by_library(broken, Codec.LZ4)
        room = chance.randrange(len(contents[0]) + 20)
        assert unpacked(frames[:1], Codec.LZ4, room) == contents[:1] * (len(contents[0]) <= room)
    assert taken


@pytest.mark.parametrize(
    "how",
    [
        {"store_size": True},
        {"block_linked": True},
        {"content_checksum": True},
        {"block_checksum": True},
        {"block_size": lz4.frame.BLOCKSIZE_MAX1MB},
    ],
    ids=str,
)
def test_frames_of_other_kinds_are_left_to_the_library(how: dict[str, object]) -> None:
    content = b"abcdefgh" * 20_000
    frame = frame_of(content, **how)
    assert unpacked([frame], Codec.LZ4) == []
    assert by_library(frame, Codec.LZ4) == content


def test_frames_behind_one_that_is_left_to_the_library_are_not_taken_before_it() -> None:
    usual, other = frame_of(b"a" * 100), frame_of(b"b" * 100, store_size=True)
    assert unpacked([usual, other, usual], Codec.LZ4) == [b"a" * 100]
