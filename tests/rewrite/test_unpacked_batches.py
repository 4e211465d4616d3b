"""Batches decompressed together give the records that each gives alone; a broken one stops the others."""

from __future__ import annotations

import os
import random

import lz4.frame
import numpy as np
import pytest

from krepair.formats import compression
from krepair.formats.codec import Codec
from krepair.formats.damage import Damage
from krepair.kernels.compact_keys import P_CODEC, P_END, P_PLACE, P_SIZE, P_START, PACKED_COLUMNS
from krepair.kernels.compact_records import SLACK
from krepair.scan.unpacked_batches import UnpackedBatches
from tests import encoders

CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
PLAIN = int(Codec.NONE)
Frame = tuple[int, bytes]


def unpacked(frames: list[Frame]) -> list[bytes | None]:
    """The content of each, None for what is left to the reading in pieces."""
    raw = b"".join(bytes(61) + frame for _, frame in frames)
    window = np.frombuffer(bytearray(raw + bytes(SLACK)), np.uint8)[: len(raw)]
    packed = np.zeros((len(frames), PACKED_COLUMNS), np.int64)
    place = 0
    for row, (codec, frame) in enumerate(frames):
        packed[row, [P_PLACE, P_SIZE, P_CODEC]] = place, 61 + len(frame), codec
        place += 61 + len(frame)
    batches, found, first = UnpackedBatches(len(frames)), [], 0
    while first < len(frames):
        after = batches.unpack(window, packed, first, len(frames))
        assert len(batches.bytes.base) == len(batches.bytes) + SLACK
        found += [batches.bytes[row[P_START] : row[P_END]].tobytes() for row in packed[first:after]]
        if after == first:
            found.append(None)
            after += 1
        first = after
    return found


def content_of(chance: random.Random) -> bytes:
    size = chance.choice((0, 1, 70, 3000, 3000, 3000, 70_000, 300_000, 1_500_000))
    return (chance.randbytes(chance.randrange(1, 900)) * (size + 1))[:size]


def frame_of(codec: int, content: bytes, chance: random.Random) -> bytes:
    if codec == Codec.LZ4 and chance.random() < 0.2:
        return bytes(lz4.frame.compress(content, content_checksum=True, store_size=chance.random() < 0.5))
    return encoders.compress(codec, content)


@pytest.mark.parametrize("seed", range(5) if os.environ.get("KREPAIR_EVERY_STATE") else [4])
def test_batches_of_all_codecs_and_sizes_in_one_window(seed: int) -> None:
    chance = random.Random(seed)
    frames, expected, broken = [], [], set()
    for number in range(120):
        codec, content = chance.choice((Codec.NONE, *CODECS)), content_of(chance)
        frame = frame_of(codec, content, chance)
        if chance.random() < 0.1:
            frame, _ = frame[: chance.randrange(len(frame))], broken.add(number)
        frames.append((codec, frame))
        expected.append(content)
    left = 0
    for number, content in enumerate(unpacked(frames)):
        codec, frame = frames[number]
        if content is None:
            left += 1
            assert number in broken or len(expected[number]) > 60_000 or codec in (Codec.LZ4, Codec.ZSTD)
        elif number in broken:
            assert content == compression.decompress(codec, frame)
        else:
            assert content == expected[number]
    assert 0 < left < 60


def test_very_many_small_batches() -> None:
    frames = [(int(Codec.ZSTD), encoders.compress(Codec.ZSTD, b"%d" % number)) for number in range(3000)]
    assert unpacked(frames) == [b"%d" % number for number in range(3000)]


@pytest.mark.parametrize("codec", [*CODECS, 5, 7])
def test_broken_batch_among_others_is_the_only_one_left(codec: int) -> None:
    known = min(codec, Codec.ZSTD)
    whole, broken = encoders.compress(known, b"whole" * 40), b"no frame of any codec"
    assert isinstance(compression.decompress(codec, broken), Damage)
    if codec in CODECS:
        assert unpacked([(codec, whole), (codec, broken), (codec, whole)]) == [
            b"whole" * 40,
            None,
            b"whole" * 40,
        ]
    else:
        assert unpacked([(codec, whole)]) == [None]


@pytest.mark.parametrize("codec", CODECS)
def test_batches_that_are_not_compressed_are_taken_as_they_lie_even_where_they_look_like_a_frame(
    codec: int,
) -> None:
    frame = encoders.compress(codec, b"packed" * 40)
    frames = [(codec, frame), (PLAIN, frame), (PLAIN, b""), (PLAIN, b"plain"), (codec, frame), (PLAIN, frame)]
    contents = [b"packed" * 40, frame, b"", b"plain", b"packed" * 40, frame]
    assert unpacked(frames) == contents
    assert unpacked(frames[1:]) == contents[1:]


def test_snappy_that_claims_gigabytes_is_left_and_streams_one_behind_the_other_are_taken() -> None:
    bomb = b"\xff\xff\xff\xff\x0f" + b"\xfe\x01\x00" * 100
    one = encoders.compress(Codec.SNAPPY, b"first ")
    assert unpacked([(Codec.SNAPPY, bomb), (Codec.SNAPPY, one + one)]) == [None, b"first first "]
