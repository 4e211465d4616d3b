"""The kernel's size bound for zstd frames is enough for the library, and no more than their blocks allow."""

from __future__ import annotations

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from krepair.formats import compression
from krepair.formats.codec import Codec
from krepair.kernels.zstd_frames import most_of_zstd
from tests.kernels.packed_frames import broken, in_batches

MOST = compression.ZSTD_AT_ONCE_BYTES
CONTENTS = st.one_of(
    st.binary(max_size=400),
    st.builds(lambda piece, times: piece * times, st.binary(max_size=30), st.integers(0, 20_000)),
)


def most_of(*frames: bytes) -> list[int]:
    """Of frames that lie in batches side by side."""
    window, packed = in_batches(frames, Codec.ZSTD)
    most = np.zeros(len(frames), np.int64)
    most_of_zstd(window, packed, 0, len(frames), most)
    return [int(each) for each in most]


def frame_of(content: bytes, *, sized: bool = False, summed: bool = False, level: int = 3) -> bytes:
    packer = zstandard.ZstdCompressor(level=level, write_content_size=sized, write_checksum=summed)
    return packer.compress(content)


def streamed(content: bytes, piece: int) -> bytes:
    """As Kafka's clients write: flushed now and then, of no known size."""
    packer = zstandard.ZstdCompressor().compressobj()
    out = b""
    for start in range(0, len(content), piece):
        out += packer.compress(content[start : start + piece])
        out += packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    return out + packer.flush()


@given(
    content=CONTENTS, sized=st.booleans(), summed=st.booleans(), level=st.sampled_from((-5, 1, 3, 19)),
    piece=st.integers(100, 1 << 17),
)  # fmt: skip
def test_every_usual_frame_can_be_unpacked_with_its_limit(
    content: bytes, sized: bool, summed: bool, level: int, piece: int
) -> None:
    frames = (frame_of(content, sized=sized, summed=summed, level=level), streamed(content, piece))
    for frame, most in zip(frames, most_of(*frames), strict=True):
        if most < 0:  # many blocks; or it claims to be empty, and that is looked at closer
            assert not content or most_blocks(frame) * compression.ZSTD_BLOCK_BYTES > MOST
            continue
        assert len(content) <= most <= MOST
        assert compression.zstd_frame(memoryview(frame), most) == content


def most_blocks(frame: bytes) -> int:
    """Blocks of a frame without content size and sum, walked in Python."""
    place, blocks, last = 6, 0, False
    while not last:
        head = int.from_bytes(frame[place : place + 3], "little")
        last = bool(head & 1)
        place += 3 + (1 if head >> 1 & 3 == 1 else head >> 3)
        blocks += 1
    return blocks


@given(
    content=CONTENTS, sized=st.booleans(), summed=st.booleans(), place=st.integers(0, 10**6), bit=st.integers(0, 7),
    how=st.sampled_from(("flip", "cut", "longer", "front")),
)  # fmt: skip
def test_broken_frame_gives_what_the_pieces_give_or_nothing(
    content: bytes, sized: bool, summed: bool, place: int, bit: int, how: str
) -> None:
    frame = frame_of(content, sized=sized, summed=summed)
    stored = broken(frame, how, place % 12 if how == "front" else place, bit)
    (most,) = most_of(stored)
    assert most <= MOST
    found = compression.zstd_frame(memoryview(stored), most)
    if found is not None:
        assert how not in ("cut", "longer")
        assert found == compression.decompress(Codec.ZSTD, stored)


SKIPPABLE = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"other"
USUAL = frame_of(b"some data" * 50)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        USUAL[:8],
        USUAL + USUAL,
        USUAL + b"?",
        SKIPPABLE,
        SKIPPABLE + USUAL,
        USUAL + SKIPPABLE,
        # a dictionary, a content of 8 TB, one of 5 MiB in a block of 128 KiB, one of nothing
        USUAL[:4] + b"\x01" + USUAL[5:6] + b"\x07" + USUAL[6:],
        USUAL[:4] + b"\xc0" + USUAL[5:6] + (1 << 43).to_bytes(8, "little") + USUAL[6:],
        USUAL[:4] + b"\x80" + USUAL[5:6] + (5 << 20).to_bytes(4, "little") + USUAL[6:],
        USUAL[:4] + b"\x80" + USUAL[5:6] + bytes(4) + USUAL[6:],
        # blocks of one repeated byte: each of four bytes gives 128 KiB
        USUAL[:6] + (b"\x02\0\x10" + b"a") * 40 + b"\x01\0\0",
        zstandard.ZstdCompressor().compress(bytes(100_000_000)),
    ],
    ids=range(13),
)
def test_frame_that_is_not_alone_or_claims_what_it_cannot_hold_is_left_to_the_pieces(frame: bytes) -> None:
    assert most_of(frame) == [-1]
    assert compression.zstd_frame(memoryview(frame), -1) is None


def test_frame_that_claims_nothing_but_holds_something_is_damage() -> None:
    empty = frame_of(b"", sized=True)
    lies = USUAL[:4] + b"\x80" + USUAL[5:6] + bytes(4) + USUAL[6:]
    assert compression.decompress(Codec.ZSTD, empty) == b""
    assert not isinstance(compression.decompress(Codec.ZSTD, lies), bytes)
