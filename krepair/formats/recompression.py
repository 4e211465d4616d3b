"""Compresses the records of rewritten batches piece by piece, at the default level of each codec.

The compressed bytes depend only on the records and on the library of the codec. It does not matter how the records are
cut into pieces. So a size that was counted for the plan is the size that is written later. The frames are those of
Kafka's clients (``compression.compress``). Kafka's cleaner uses the default level too.

Source: ``CompressionType.java`` (2.2.1), KIP-110, KIP-390 (compression levels).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Protocol

import lz4.frame
import snappy
import zstandard

from krepair.errors import UsageError
from krepair.formats.codec import Codec
from krepair.formats.compression import GZIP_WINDOW_BITS, XERIAL_BLOCK_BYTES, XERIAL_HEADER


class Packer(Protocol):
    """Compresses one stream piece by piece."""

    def add(self, piece: bytes | memoryview) -> bytes:
        """Add bytes to the stream. Gives the compressed bytes that are ready, often none."""

    def finish(self) -> bytes:
        """End the stream. Gives the rest of the compressed bytes."""


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
    """Blocks of 32 KiB with the length in front of each."""

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

    def __init__(self) -> None:
        self._packer = lz4.frame.LZ4FrameCompressor(
            block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False
        )
        self._front = bytes(self._packer.begin())

    def add(self, piece: bytes | memoryview) -> bytes:
        front, self._front = self._front, b""
        return front + bytes(self._packer.compress(bytes(piece)))

    def finish(self) -> bytes:
        front, self._front = self._front, b""
        return front + bytes(self._packer.flush())


class _Zstd:
    """One frame without content size, like a stream of zstd-jni."""

    def __init__(self, context: zstandard.ZstdCompressor) -> None:
        self._packer = context.compressobj()

    def add(self, piece: bytes | memoryview) -> bytes:
        return self._packer.compress(piece)

    def finish(self) -> bytes:
        return self._packer.flush()


class Packing:
    """Makes compressed streams, one at a time: finish a stream before the next one begins."""

    def __init__(self) -> None:
        self._zstd: zstandard.ZstdCompressor | None = None

    def begin(self, codec: int) -> Packer:
        """Begin a compressed stream.

        Args:
            codec: codec id from the attributes.

        Raises:
            UsageError: an unknown codec.
        """
        if codec == Codec.NONE:
            return _Plain()
        if codec == Codec.GZIP:
            return _Gzip()
        if codec == Codec.SNAPPY:
            return _Snappy()
        if codec == Codec.LZ4:
            return _Lz4()
        if codec == Codec.ZSTD:
            return _Zstd(self._zstd_context())
        raise UsageError(f"codec {codec} cannot be written")

    def _zstd_context(self) -> zstandard.ZstdCompressor:
        # Kept, because it takes 50 microseconds to make a context, and 2 to begin a stream in it.
        self._zstd = self._zstd or zstandard.ZstdCompressor(write_content_size=False)
        return self._zstd

    def wholes(self, contents: Iterable[tuple[int, memoryview]]) -> list[bytes]:
        """Streams of v2, each in one go; the bytes are those that ``begin`` gives. Of nothing comes nothing.

        Args:
            contents: codec id from the attributes, and what a stream holds.

        Raises:
            UsageError: an unknown codec.
        """
        return [self._whole(codec, content) if len(content) else b"" for codec, content in contents]

    def _whole(self, codec: int, content: memoryview) -> bytes:
        if codec == Codec.LZ4:
            frame: bytes = lz4.frame.compress(
                content, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
            )
            return frame
        if codec == Codec.ZSTD:
            # Begun like a stream, too: a frame whose size is known from the start gets other bytes.
            stream = self._zstd_context().compressobj()
            return stream.compress(content) + stream.flush()
        if codec == Codec.SNAPPY and len(content) <= XERIAL_BLOCK_BYTES:
            block = bytes(snappy.compress(content))
            return XERIAL_HEADER + struct.pack(">i", len(block)) + block
        packer = self.begin(codec)
        return packer.add(content) + packer.finish()
