"""Compression in pieces: what a batch that is written anew is packed with, at each codec's default level.

The bytes depend on the codec's library and on nothing else: the same records give the same bytes however they were cut
into pieces, so that a size that was counted once is the size that is written later. Frames are those of Kafka's clients
(``compression.compress``). Source: CompressionType.java (2.2.1), KIP-110, KIP-390 (levels are not asked for: Kafka's
cleaner takes the default one too).
"""

from __future__ import annotations

import struct
import zlib
from typing import Protocol

import lz4.frame
import snappy
import zstandard

from krepair.errors import UsageError
from krepair.formats.codec import Codec
from krepair.formats.compression import (
    GZIP_WINDOW_BITS,
    XERIAL_BLOCK_BYTES,
    XERIAL_HEADER,
    lz4_header_checksum,
)


class Packer(Protocol):
    """Takes a stream in pieces and gives it compressed, in pieces."""

    def add(self, piece: bytes | memoryview) -> bytes:
        """The next compressed bytes, often none."""

    def finish(self) -> bytes:
        """What is left, with the end of the stream."""


class _Plain:
    def add(self, piece: bytes | memoryview) -> bytes:
        return bytes(piece)

    def finish(self) -> bytes:
        return b""


class _Gzip:
    def __init__(self) -> None:
        self._packer = zlib.compressobj(wbits=GZIP_WINDOW_BITS)

    def add(self, piece: bytes | memoryview) -> bytes:
        return self._packer.compress(piece)

    def finish(self) -> bytes:
        return self._packer.flush()


class _Snappy:
    """Blocks of 32 KiB, each with its length in front."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._front = XERIAL_HEADER

    def add(self, piece: bytes | memoryview) -> bytes:
        self._held += piece
        whole = len(self._held) // XERIAL_BLOCK_BYTES * XERIAL_BLOCK_BYTES
        packed = self._packed(bytes(self._held[:whole]))
        del self._held[:whole]
        return packed

    def finish(self) -> bytes:
        return self._packed(bytes(self._held))

    def _packed(self, data: bytes) -> bytes:
        out = bytearray(self._front)
        self._front = b""
        for start in range(0, len(data), XERIAL_BLOCK_BYTES):
            block = bytes(snappy.compress(data[start : start + XERIAL_BLOCK_BYTES]))
            out += struct.pack(">i", len(block)) + block
        return bytes(out)


class _Lz4:
    """One frame of independent blocks of 64 KiB."""

    def __init__(self, *, broken_checksum: bool) -> None:
        self._packer = lz4.frame.LZ4FrameCompressor(
            block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False
        )
        front = bytes(self._packer.begin())
        if broken_checksum:
            front = front[:-1] + bytes((lz4_header_checksum(front, broken=True),))
        self._front = front

    def add(self, piece: bytes | memoryview) -> bytes:
        front, self._front = self._front, b""
        return front + bytes(self._packer.compress(bytes(piece)))

    def finish(self) -> bytes:
        front, self._front = self._front, b""
        return front + bytes(self._packer.flush())


class _Zstd:
    """One frame of unknown size, as a stream of zstd-jni is."""

    def __init__(self, context: zstandard.ZstdCompressor) -> None:
        self._packer = context.compressobj()

    def add(self, piece: bytes | memoryview) -> bytes:
        return self._packer.compress(piece)

    def finish(self) -> bytes:
        return self._packer.flush()


class Packing:
    """Begins compressed streams, one at a time: the next one is begun when the one before is finished."""

    def __init__(self) -> None:
        self._zstd: zstandard.ZstdCompressor | None = None

    def begin(self, codec: int, *, magic: int = 2) -> Packer:
        """Begin a compressed stream.

        Args:
            codec: id from the attributes.
            magic: message format; of v0 the header checksum of lz4 is the wrong one that its readers expect
                (KAFKA-3160).

        Raises:
            UsageError: an unknown codec, or zstd in a message before v2.
        """
        if codec == Codec.NONE:
            return _Plain()
        if codec == Codec.GZIP:
            return _Gzip()
        if codec == Codec.SNAPPY:
            return _Snappy()
        if codec == Codec.LZ4:
            return _Lz4(broken_checksum=magic == 0)
        if codec == Codec.ZSTD and magic == 2:
            # a context takes 50 microseconds to make, a stream in it 2
            self._zstd = self._zstd or zstandard.ZstdCompressor(write_content_size=False)
            return _Zstd(self._zstd)
        raise UsageError(f"codec {codec} cannot be written in message format v{magic}")
