"""Batches as Kafka's clients compress them, by the libraries alone: they judge what krepair makes of them.

The compressed bytes depend on the library.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import crc32c
import lz4.frame
import snappy
import zstandard


def _gzip(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=31)
    return stream.compress(data) + stream.flush()


def _from_xerial(data: bytes) -> bytes:
    out, place = b"", 16
    while place < len(data):
        size = struct.unpack_from(">i", data, place)[0]
        out += snappy.uncompress(data[place + 4 : place + 4 + size])
        place += 4 + size
    return out


def _xerial(data: bytes) -> bytes:
    out = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    for start in range(0, len(data), 32768):
        block = snappy.compress(data[start : start + 32768])
        out += struct.pack(">i", len(block)) + block
    return out


def _lz4(data: bytes) -> bytes:
    return lz4.frame.compress(
        data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
    )


def _from_zstd(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


def _zstd(data: bytes) -> bytes:
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return stream.compress(data) + stream.flush()


PACK: dict[int, Callable[[bytes], bytes]] = {0: bytes, 1: _gzip, 2: _xerial, 3: _lz4, 4: _zstd}
UNPACK: dict[int, Callable[[bytes], bytes]] = {
    0: bytes,
    1: lambda data: zlib.decompress(data, 31),
    2: _from_xerial,
    3: lz4.frame.decompress,
    4: _from_zstd,
}


def packed(raw: bytes, codec: int) -> bytes:
    """An uncompressed batch with its records compressed; a marker and a batch without records stay as they are."""
    attributes, count = struct.unpack_from(">h", raw, 21)[0], struct.unpack_from(">i", raw, 57)[0]
    if codec == 0 or attributes & 0x20 or count == 0:
        return raw
    return sealed(raw, PACK[codec](raw[61:]), attributes=attributes | codec)


PLACES = {"attributes": (">h", 21), "base_time": (">q", 27), "max_timestamp": (">q", 35), "count": (">i", 57)}


def sealed(raw: bytes, body: bytes, **fields: int) -> bytes:
    """A batch with this header but for some fields, and these bytes behind it; its length and CRC are made to fit."""
    header = bytearray(raw[:61])
    for name, value in fields.items():
        form, place = PLACES[name]
        struct.pack_into(form, header, place, value)
    struct.pack_into(">i", header, 8, 49 + len(body))
    struct.pack_into(">I", header, 17, crc32c.crc32c(bytes(header[21:]) + body))
    return bytes(header) + body
