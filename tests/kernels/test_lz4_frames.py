"""Contents that the lz4 kernel unpacks are those of the library; what the library refuses it never takes."""

from __future__ import annotations

import random

import lz4.frame
import numpy as np
import pytest

from krepair.formats import compression
from krepair.kernels.compact_keys import P_CODEC, P_END, P_PLACE, P_SIZE, P_START, PACKED_COLUMNS
from krepair.kernels.compact_records import SLACK
from krepair.kernels.unpacked_frames import unpack_frames
from tests.kernels.lz4_frames import content_of, damaged, frame_of

ROOM = 1 << 18


def unpacked(frames: list[bytes], room: int = ROOM) -> list[bytes]:
    """The contents of the frames up to the first that was not taken; nothing is written far behind the room."""
    raw = b"".join(bytes(61) + frame for frame in frames)
    window = np.frombuffer(bytearray(raw + bytes(range(SLACK))), np.uint8)[: len(raw)]
    packed = np.zeros((len(frames), PACKED_COLUMNS), np.int64)
    place = 0
    for row, frame in enumerate(frames):
        packed[row, [P_PLACE, P_SIZE, P_CODEC]] = place, 61 + len(frame), 3
        place += 61 + len(frame)
    buffer = np.full(room + SLACK + 32, 0xAB, np.uint8)
    count = int(unpack_frames(window, packed, 0, len(frames), buffer[:room]))
    assert (buffer[room + SLACK :] == 0xAB).all()
    return [buffer[row[P_START] : row[P_END]].tobytes() for row in packed[:count]]


def by_library(frame: bytes) -> bytes | None:
    pieces = list(compression.chunks(3, frame))
    return b"".join(pieces) if all(isinstance(piece, bytes) for piece in pieces) else None  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(4))
def test_contents_are_those_that_were_packed_and_broken_frames_are_taken_only_as_by_the_library(
    seed: int,
) -> None:
    chance = random.Random(seed)
    taken = 0
    for _ in range(60):
        contents = [content_of(chance) for _ in range(2)]
        frames = [frame_of(content, chance.choice((0, 0, 9, -3))) for content in contents]
        assert unpacked(frames) == contents
        broken = damaged(frames[0], chance)
        for found in unpacked([broken]):
            taken += 1
            assert found == by_library(broken)
        room = chance.randrange(len(contents[0]) + 20)
        assert unpacked(frames[:1], room) == contents[:1] * (len(contents[0]) <= room)
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
    assert unpacked([frame]) == []
    assert by_library(frame) == content


def test_frames_behind_one_that_is_left_to_the_library_are_not_taken_before_it() -> None:
    usual, other = frame_of(b"a" * 100), frame_of(b"b" * 100, store_size=True)
    assert unpacked([usual, other, usual]) == [b"a" * 100]
