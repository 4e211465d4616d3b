"""Compressed frames in batches, as the kernels take them, and hand-made lz4 frames, valid and damaged."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import lz4.frame
import numpy as np

from krepair.formats import compression
from krepair.formats.arrays import Int64s
from krepair.kernels.compact_keys import P_CODEC, P_END, P_PLACE, P_SIZE, P_START, PACKED_COLUMNS
from krepair.kernels.compact_records import SLACK
from krepair.kernels.unpacked_frames import unpack_frames

ROOM = 1 << 18


def in_batches(frames: Sequence[bytes], codec: int) -> tuple[Any, Int64s]:
    """The window with the batches, and what the kernels are told of each; other bytes lie behind the window."""
    raw = b"".join(bytes(61) + frame for frame in frames)
    window = np.frombuffer(bytearray(raw + bytes(range(1, SLACK + 1))), np.uint8)[: len(raw)]
    packed = np.zeros((len(frames), PACKED_COLUMNS), np.int64)
    place = 0
    for row, frame in enumerate(frames):
        packed[row, [P_PLACE, P_SIZE, P_CODEC]] = place, 61 + len(frame), codec
        place += 61 + len(frame)
    return window, packed


def unpacked(frames: Sequence[bytes], codec: int, room: int = ROOM) -> list[bytes]:
    """The contents of the frames up to the first that was not taken; nothing is written far behind the room."""
    window, packed = in_batches(frames, codec)
    buffer = np.full(room + SLACK + 32, 0xAB, np.uint8)
    count = int(unpack_frames(window, packed, 0, len(frames), buffer[:room]))
    assert (buffer[room + SLACK :] == 0xAB).all()
    return [buffer[row[P_START] : row[P_END]].tobytes() for row in packed[:count]]


def by_library(frame: bytes, codec: int) -> bytes | None:
    """What the library gives, None where it refuses the frame."""
    found = compression.decompress(codec, frame)
    return found if isinstance(found, bytes) else None


def frame_of(content: bytes, level: int = 0, **how: object) -> bytes:
    usual = {"block_size": lz4.frame.BLOCKSIZE_MAX64KB, "block_linked": False, "store_size": False}
    return bytes(lz4.frame.compress(content, compression_level=level, **(usual | how)))


def content_of(chance: random.Random) -> bytes:
    """Noise, runs of any period, text of few letters, and sizes at the edges of a block."""
    size = chance.choice((0, 1, 5, 12, 13, 100, 3000, 65535, 65536, 65537, 100_000))
    kind = chance.randrange(4)
    if kind == 0:
        return chance.randbytes(size)
    if kind == 1:
        return (chance.randbytes(chance.randrange(1, 20)) * (size + 1))[:size]
    if kind == 2:
        return bytes(chance.choices(b"abc", k=size))
    pieces = (
        chance.randbytes(chance.randrange(30)) + bytes([chance.randrange(9)]) * chance.randrange(40)
        for _ in range(size // 30)
    )
    return b"".join(pieces)


def broken(frame: bytes, how: str, place: int, bit: int) -> bytes:
    """A bit flipped, cut, or longer: at this place, counted on from the beginning where the frame ends before it."""
    place %= len(frame)
    if how == "cut":
        return frame[:place]
    if how == "longer":
        return frame + frame[:place] + b"\0"
    return frame[:place] + bytes([frame[place] ^ 1 << bit]) + frame[place + 1 :]


def damaged(frame: bytes, chance: random.Random) -> bytes:
    """The same by chance."""
    how = chance.choice(("flip", "cut", "longer"))
    return broken(frame, how, chance.randrange(len(frame)), chance.randrange(8))
