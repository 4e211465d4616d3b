"""A log with a record of two gigabytes."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator

import crc32c
import lz4.frame
import snappy
import zstandard

from krepair.formats.codec import Codec
from krepair.formats.compression import XERIAL_BLOCK_BYTES, XERIAL_HEADER
from tests import builders

ABOVE = 256_000_000
TWO_GB = 2_147_000_000
EVERY = bool(os.environ.get("KREPAIR_HUGE_RECORDS"))
"""Two gigabytes in each codec; without it only zstd, the smallest, has so many."""
SIZES = {
    Codec.ZSTD: TWO_GB,
    Codec.GZIP: TWO_GB if EVERY else 300_000_000,
    Codec.LZ4: TWO_GB if EVERY else 300_000_000,
    Codec.SNAPPY: TWO_GB if EVERY else 300_000_000,
}
STEADY_MALLOC = {"MALLOC_MMAP_THRESHOLD_": "1048576", "MALLOC_ARENA_MAX": "1"}
"""glibc keeps freed blocks of up to 32 MB, one time more than another, and reserves 64 MB of addresses for each thread
that finds another one allocating, as on a busy machine: what is tried is what krepair holds."""
HUGE_AT = 3


def _content(records: list[tuple[bytes, int]]) -> Iterator[bytes]:
    """Records with values of zeros."""
    zeros = bytes(1 << 20)
    for number, (key, size) in enumerate(records):
        front = b"\0" + builders.varint(0) + builders.varint(number)
        front += builders.varint(len(key)) + key + builders.varint(size)
        yield builders.varint(len(front) + size + 1) + front
        for done in range(0, size, len(zeros)):
            yield zeros[: size - done]
        yield b"\0"


def _packed(codec: Codec, pieces: Iterator[bytes]) -> bytes:
    out = bytearray()
    if codec == Codec.SNAPPY:
        out += XERIAL_HEADER
        known: dict[bytes, bytes] = {}
        for piece in pieces:
            for start in range(0, len(piece), XERIAL_BLOCK_BYTES):
                block = piece[start : start + XERIAL_BLOCK_BYTES]
                packed = known.setdefault(block, b"") or snappy.compress(block)
                known[block] = packed
                out += struct.pack(">i", len(packed)) + packed
        return bytes(out)
    if codec == Codec.LZ4:
        framed = lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False)
        out += framed.begin()
        for piece in pieces:
            out += framed.compress(piece)
        return bytes(out + framed.flush())
    packer = (
        zlib.compressobj(wbits=31)
        if codec == Codec.GZIP
        else zstandard.ZstdCompressor(  # the largest window that a broker reads
            compression_params=zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
        ).compressobj()
    )
    for piece in pieces:
        out += packer.compress(piece)
    return bytes(out + packer.flush())


def batch(codec: Codec, records: list[tuple[bytes, int]], offset: int) -> bytes:
    """A valid batch of records of so many zeros."""
    body = struct.pack(
        ">hiqqqhii", codec, len(records) - 1, builders.NOW_MS, builders.NOW_MS, -1, -1, -1, len(records)
    )  # fmt: skip
    body += _packed(codec, _content(records))
    return struct.pack(">qiibI", offset, len(body) + 9, 0, 2, crc32c.crc32c(body)) + body
