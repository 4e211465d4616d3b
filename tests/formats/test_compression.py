from __future__ import annotations

import gzip
import struct
import tracemalloc

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from krepair.formats import compression
from krepair.formats.compression import Codec, Packing
from krepair.formats.damage import Damage
from tests import encoders
from tests.kernels.packed_frames import broken

PACKED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
BOMB_BYTES = 300_000_000


@pytest.mark.parametrize("codec", list(Codec))
@given(data=st.binary(max_size=3000))
def test_stream_decompresses_to_what_was_compressed(codec: Codec, data: bytes) -> None:
    assert compression.decompress(codec, encoders.compress(codec, data)) == data


@pytest.mark.parametrize("codec", list(Codec))
def test_stream_larger_than_one_piece_comes_in_pieces_of_bounded_size(codec: Codec) -> None:
    data = bytes(range(256)) * 30_000
    pieces = list(compression.chunks(codec, encoders.compress(codec, data)))
    assert b"".join(pieces) == data  # type: ignore[arg-type]
    assert len(pieces) > 1
    assert max(map(len, pieces)) <= 8 << 20


@pytest.mark.parametrize("codec", PACKED)
@given(data=st.binary(min_size=1, max_size=300), place=st.integers(0, 10**6))
def test_stream_cut_anywhere_is_damage(codec: Codec, data: bytes, place: int) -> None:
    packed = encoders.compress(codec, data)
    cut = packed[: place % len(packed)]
    # an xerial stream may end after any block, and so after its header
    if codec is Codec.SNAPPY and len(cut) == len(compression.XERIAL_HEADER):
        assert compression.decompress(codec, cut) == b""
    else:
        assert isinstance(compression.decompress(codec, cut), Damage)


@pytest.mark.parametrize("codec", PACKED)
@given(data=st.binary(max_size=3000), draw=st.data())
def test_small_batch_is_read_at_once_as_in_pieces_and_a_broken_one_is_left_to_the_pieces(
    codec: Codec, data: bytes, draw: st.DataObject
) -> None:
    packed = bytearray(encoders.compress(codec, data))
    assert compression.at_once(codec, memoryview(packed)) == data
    packed[draw.draw(st.integers(0, len(packed) - 1))] ^= draw.draw(st.integers(1, 255))
    packed = packed[: draw.draw(st.integers(0, len(packed)))]
    found = compression.at_once(codec, memoryview(packed))
    assert found is None or found == compression.decompress(codec, packed)


@pytest.mark.parametrize("codec", PACKED)
def test_small_batch_that_holds_very_much_is_not_read_at_once(codec: Codec) -> None:
    packed = encoders.compress(codec, bytes(64 << 20))
    found = compression.at_once(codec, memoryview(packed))
    assert found is None, len(found or b"")


def bomb(codec: Codec) -> bytes:
    zeros = bytes(BOMB_BYTES)
    if codec is Codec.GZIP:
        return gzip.compress(zeros, 9)
    if codec is Codec.LZ4:
        return bytes(lz4.frame.compress(zeros, block_size=lz4.frame.BLOCKSIZE_MAX4MB))
    if codec is Codec.ZSTD:
        return zstandard.ZstdCompressor().compress(zeros)
    return bytes(snappy.compress(zeros))


@pytest.mark.parametrize("codec", PACKED)
def test_decompression_bomb_is_damage_in_bounded_memory(codec: Codec) -> None:
    packed = bomb(codec)
    tracemalloc.start()
    try:
        found = compression.decompress(codec, packed, max_bytes=1_000_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(found, Damage)
    assert found.length == len(packed)
    assert peak < 20_000_000


@pytest.mark.parametrize("claimed", [2**31, 2**32 - 1, 10**6])
def test_snappy_block_that_claims_more_than_it_can_hold_is_damage(claimed: int) -> None:
    preamble = bytearray()
    while claimed >= 128:
        preamble.append(claimed & 0x7F | 0x80)
        claimed >>= 7
    preamble.append(claimed)
    found = compression.decompress(Codec.SNAPPY, bytes(preamble) + b"\0a")
    assert isinstance(found, Damage)
    assert "claims to hold" in found.found


def test_stream_of_exactly_the_cap_is_taken_and_one_byte_more_is_damage() -> None:
    for codec in PACKED:
        packed = encoders.compress(codec, b"x" * 1000)
        assert compression.decompress(codec, packed, max_bytes=1000) == b"x" * 1000
        assert isinstance(compression.decompress(codec, packed, max_bytes=999), Damage)


def test_streams_one_behind_the_other_are_one_as_for_a_broker() -> None:
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.ZSTD):
        packed = encoders.compress(codec, b"first ") + encoders.compress(codec, b"second")
        assert compression.decompress(codec, packed) == b"first second"


def test_bytes_behind_an_lz4_frame_are_damage() -> None:
    assert isinstance(compression.decompress(Codec.LZ4, encoders.compress(Codec.LZ4, b"x") + b"\0"), Damage)


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("behind", [1, 4, 8])
def test_bytes_behind_a_zstd_frame_are_damage(checksum: bool, behind: int) -> None:
    packed = zstandard.ZstdCompressor(write_checksum=checksum).compress(b"some data")
    assert compression.decompress(Codec.ZSTD, packed) == b"some data"
    assert isinstance(compression.decompress(Codec.ZSTD, packed + b"?" * behind), Damage)


LZ4_CONTENTS = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda piece, times: piece * times, st.binary(max_size=30), st.integers(0, 9000)),
)


INTO = {Codec.LZ4: compression.lz4_into, Codec.SNAPPY: compression.snappy_into}


def put_into(codec: Codec, frame: bytes, room: int, to: int) -> bytes | None:
    """What was put at a place of a buffer; nothing else of it is touched."""
    out = bytearray(b"\xab" * (room + 64))
    end = INTO[codec](memoryview(frame), memoryview(out)[:room], to)
    assert out[:to] == b"\xab" * to
    assert out[room:] == b"\xab" * 64
    return None if end < 0 else bytes(out[to:end])


@pytest.mark.parametrize("codec", list(INTO))
@given(data=LZ4_CONTENTS, to=st.integers(0, 50), less=st.integers(0, 400_000))
def test_batch_is_put_into_a_buffer_where_it_has_room(codec: Codec, data: bytes, to: int, less: int) -> None:
    packed = encoders.compress(codec, data)
    assert put_into(codec, packed, to + len(data), to) == data
    if data:
        assert put_into(codec, packed, to + len(data) - 1 - less % len(data), to) is None


@pytest.mark.parametrize("codec", list(INTO))
@given(
    data=LZ4_CONTENTS, place=st.integers(0, 10**6), bit=st.integers(0, 7),
    how=st.sampled_from(("flip", "cut", "longer")),
)  # fmt: skip
def test_broken_batch_is_put_into_a_buffer_only_as_the_reading_in_pieces_has_it(
    codec: Codec, data: bytes, place: int, bit: int, how: str
) -> None:
    packed = encoders.compress(codec, data)
    stored = broken(packed, how, place, bit)
    found = put_into(codec, stored, 400_000, 3)
    if found is not None:
        assert found == compression.decompress(codec, stored)


@pytest.mark.parametrize(
    "how", [{"store_size": True}, {"block_linked": True}, {"content_checksum": True}], ids=str
)
def test_lz4_frame_of_another_kind_is_not_put_into_a_buffer(how: dict[str, bool]) -> None:
    usual = {"block_size": lz4.frame.BLOCKSIZE_MAX64KB, "block_linked": False, "store_size": False}
    packed = bytes(lz4.frame.compress(b"some data" * 9000, **(usual | how)))
    assert put_into(Codec.LZ4, packed, 400_000, 0) is None


def test_bare_snappy_block_is_not_put_into_a_buffer() -> None:
    assert put_into(Codec.SNAPPY, bytes(snappy.compress(b"some data" * 90)), 400_000, 0) is None


def test_bare_snappy_block_without_frame_is_read() -> None:
    assert compression.decompress(Codec.SNAPPY, snappy.compress(b"bare" * 50)) == b"bare" * 50


def test_lz4_header_checksum_is_ignored_in_v0_and_demanded_later() -> None:
    packed = bytearray(encoders.compress(Codec.LZ4, b"data", magic=1))
    packed[6] ^= 0xFF
    assert compression.decompress(Codec.LZ4, packed, magic=0) == b"data"
    assert isinstance(compression.decompress(Codec.LZ4, packed, magic=1), Damage)


@pytest.mark.parametrize("store_size", [False, True])
@given(data=st.binary(min_size=1, max_size=500))
def test_lz4_header_checksum_equals_that_of_the_library(store_size: bool, data: bytes) -> None:
    frame = lz4.frame.compress(data, store_size=store_size)
    end = 14 if store_size else 6
    assert compression.lz4_header_checksum(frame, broken=False) == frame[end]


def test_zstd_frame_with_an_absurd_window_is_damage() -> None:
    frame = struct.pack("<IBB", 0xFD2FB528, 0, 0xF8) + b"\x01\0\0"
    assert isinstance(compression.decompress(Codec.ZSTD, frame), Damage)


def test_codec_that_a_format_does_not_have_is_damage() -> None:
    assert isinstance(
        compression.decompress(Codec.ZSTD, encoders.compress(Codec.ZSTD, b"x"), magic=1), Damage
    )


@pytest.mark.parametrize("codec", list(Codec))
@given(data=LZ4_CONTENTS, piece=st.integers(1, 200_000))
def test_stream_in_one_go_has_the_bytes_of_one_in_pieces(codec: Codec, data: bytes, piece: int) -> None:
    """A plan counts the size in the one way, and apply may write in the other."""
    packing = Packing()
    packer = packing.begin(codec)
    parts = [packer.add(data[start : start + piece]) for start in range(0, len(data), piece)]
    parts.append(packer.finish())
    whole = b"".join(parts) if data else b""
    assert packing.wholes([(codec, memoryview(data))] * 2) == [whole, whole]
