"""lz4 frames made by hand, whole and damaged."""

from __future__ import annotations

import random

import lz4.frame


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


def damaged(frame: bytes, chance: random.Random) -> bytes:
    """A bit flipped, cut, or with bytes behind it."""
    how = chance.randrange(3)
    place = chance.randrange(len(frame))
    if how == 0:
        return frame[:place] + bytes([frame[place] ^ (1 << chance.randrange(8))]) + frame[place + 1 :]
    return frame[:place] if how == 1 else frame + chance.randbytes(chance.randrange(1, 6))
