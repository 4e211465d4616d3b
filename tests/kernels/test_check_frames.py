"""Frames of one block that the proof decompresses give the library's result; other frames are not taken."""

from __future__ import annotations

import random

import lz4.frame
import numpy as np
import pytest

from krepair.formats import compression
from krepair.formats.codec import Codec
from krepair.kernels import check_compacted as v
from krepair.kernels.check_frames import single_blocks
from tests.kernels.packed_frames import content_of, damaged, frame_of

ROOM = 1 << 20


def unpacked(frames: list[bytes | None]) -> list[bytes | None]:
    """The content of each frame that is one block, None for others; empty for none at all."""
    raw = b"".join(bytes(61) + frame for frame in frames if frame is not None)
    window = np.frombuffer(bytearray(raw + bytes(16)), np.uint8)[: len(raw)]
    packed = np.zeros((len(frames), v.PACKED_COLUMNS), np.int64)
    packed[:, v.P_CODEC] = Codec.LZ4
    place = 0
    for row, frame in enumerate(frames):
        if frame is not None:
            packed[row, [v.P_RESULT, v.P_RESULT_SIZE]] = place, 61 + len(frame)
            place += 61 + len(frame)
    blocks = np.full((len(frames), 2), 7, np.int64)
    single_blocks(window, packed, len(frames), v.P_RESULT, blocks)
    found: list[bytes | None] = []
    for start, end in blocks.tolist():
        out = memoryview(bytearray(ROOM))
        ends = compression.lz4_blocks_into(window.data, [(start, end)], out, 5) if start >= 0 else []
        found.append(bytes(out[5 : ends[0]]) if ends else None)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_frames_of_one_block_give_their_content_and_broken_ones_at_most_what_the_library_gives(
    seed: int,
) -> None:
    chance = random.Random(seed)
    taken = 0
    for _ in range(80):
        content = content_of(chance)
        frame = frame_of(content)
        block = int.from_bytes(frame[7:11], "little")
        alone = 0 < block < 1 << 31 and 11 + block + 4 == len(frame)
        assert unpacked([None, frame, frame]) == [b"", *[content if alone else None] * 2]
        broken = damaged(frame, chance)
        (found,) = unpacked([broken])
        if found is not None:
            taken += 1
            assert found == compression.decompress(Codec.LZ4, broken)
    assert taken


@pytest.mark.parametrize(
    "how",
    [
        {"store_size": True},
        {"content_checksum": True},
        {"block_checksum": True},
        {"block_size": lz4.frame.BLOCKSIZE_MAX1MB},
    ],
    ids=str,
)
def test_frames_of_other_kinds_are_not_taken(how: dict[str, object]) -> None:
    times = 20_000 if "block_size" in how else 2000  # the library writes a smaller size for a small content
    assert unpacked([frame_of(b"abcdefgh" * times, **how)]) == [None]


def test_blocks_are_unpacked_up_to_the_first_without_room_or_that_is_broken() -> None:
    frame = frame_of(b"x" * 50_000)
    block = (11, len(frame) - 4)
    out = memoryview(bytearray(200_000))
    stored = memoryview(frame)
    assert compression.lz4_blocks_into(stored, [block] * 5, out, 0) == [50_000, 100_000, 150_000]
    assert compression.lz4_blocks_into(stored, [block, (0, 0), (0, 9), block], out, 0) == [50_000, 50_000]
