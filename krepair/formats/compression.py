"""Compression and decompression of batches and messages, piece by piece and within a limit.

Input is not trusted: a few bytes may claim to hold gigabytes. ``chunks`` returns pieces in bounded memory, and ends
with a ``Damage`` if the stream is broken or exceeds its limit. Exceptions of the codec libraries do not leave this
module.

``Packing`` compresses the records of rewritten batches piece by piece, at the default level of each codec, as Kafka's
cleaner does. The compressed bytes depend only on the records and on the codec library, not on how the records are cut
into pieces. So a size that was measured for the plan is the size that is written later.

Source: ``CompressionType.java`` and ``KafkaLZ4BlockOutputStream.java`` (2.2.1), ``SnappyInputStream`` of snappy-java,
KAFKA-3160 (lz4 header checksum of v0 messages), KIP-57, KIP-110 (zstd).
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Final, Protocol, overload

import cramjam
import lz4.frame
import snappy
import zstandard

from krepair.errors import UsageError
from krepair.formats.codec import DEFAULT_MAX_BYTES, Codec
from krepair.formats.damage import Bytes, Damage, shown

CHUNK_BYTES = 1 << 20

GZIP_WINDOW_BITS = 31
GZIP_AT_ONCE_BYTES = 1 << 17

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES = 32 * 1024
# A snappy element of 3 bytes gives at most 64 bytes. A block that claims more than that is broken.
SNAPPY_MAX_RATIO = 22
SNAPPY_AT_ONCE_BYTES = 1 << 17

LZ4_MAGIC = b"\x04\x22\x4d\x18"
LZ4_FIXED_DESCRIPTOR_BYTES = 2
LZ4_CONTENT_SIZE_FLAG = 0x08
LZ4_DICTIONARY_FLAG = 0x01
LZ4_UNUSUAL_FLAGS = LZ4_CONTENT_SIZE_FLAG | LZ4_DICTIONARY_FLAG
LZ4_AT_ONCE_BYTES = 1 << 15
LZ4_LEAST_BYTES = 11
# Version 1, independent blocks of at most 64 KiB, no sums, no size: as Kafka's clients write.
LZ4_USUAL_FRONT = LZ4_MAGIC + b"\x60\x40\x82"
LZ4_BLOCK_BYTES = 1 << 16
LZ4_UNPACKED_BLOCK = 1 << 31

# The broker's zstd-jni refuses larger windows too.
ZSTD_MAX_WINDOW_BYTES = 1 << 27
# Four bytes can give a block of 128 KiB. So the input is fed in small pieces, to keep the output bounded.
ZSTD_INPUT_BYTES = 128
ZSTD_GATHERED_BYTES = 1 << 18
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_FRONT_BYTES = 14
_ZSTD_MAGIC_NUMBER = int.from_bytes(ZSTD_MAGIC, "little")
_UINT32 = struct.Struct("<I")
_INT32 = struct.Struct(">i")
_LZ4_FRONT = struct.Struct("<7sI")
_ZSTD_FRONT = struct.Struct("<IBBHB")
ZSTD_BLOCK_BYTES = 1 << 17
ZSTD_CHECKSUM_FLAG = 0b100
ZSTD_CHECKSUM_BYTES = 4
# A frame that cannot give more than this is decompressed in one call.
ZSTD_AT_ONCE_BYTES = 4 << 20


class Stored(Protocol):
    """Compressed bytes: a memoryview, or an object that reads them from a file on demand."""

    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, place: int, /) -> int: ...

    @overload
    def __getitem__(self, place: slice, /) -> Bytes: ...


class _BrokenStreamError(Exception):
    """Error: the stream cannot be decompressed. ``chunks`` turns this exception into a ``Damage``."""


class _Contexts(threading.local):
    """One zstd context per thread, because creating a context takes longer than reading a small batch."""

    def __init__(self) -> None:
        self._zstd: zstandard.ZstdDecompressor | None = None

    def zstd(self) -> zstandard.ZstdDecompressor:
        if self._zstd is None:
            self._zstd = zstandard.ZstdDecompressor(max_window_size=ZSTD_MAX_WINDOW_BYTES)
        return self._zstd


_CONTEXTS: Final = _Contexts()


def chunks(
    codec: int, buf: Bytes | Stored, *, magic: int = 2, max_bytes: int = DEFAULT_MAX_BYTES
) -> Generator[bytes | Damage, None, None]:
    """Decompress a stream piece by piece.

    Args:
        codec: codec id from the attributes.
        buf: all compressed bytes, in memory or in an object that reads them.
        magic: message format. In v0 the lz4 header checksum is ignored, as a broker does (KAFKA-3160).
        max_bytes: limit in bytes; a stream that gives more is damaged.

    Yields:
        Non-empty pieces of at most a few megabytes. If something is wrong, the last value is one ``Damage`` that covers
        all of ``buf``.
    """
    whole: Stored = memoryview(buf) if isinstance(buf, bytes | bytearray) else buf
    produced = 0
    try:
        for piece in _stream(codec, whole, magic, max_bytes):
            produced += len(piece)
            if produced > max_bytes:
                yield Damage(0, len(whole), at_most(max_bytes), "more")
                return
            if piece:
                yield piece
    except (
        _BrokenStreamError,
        zlib.error,
        zstandard.ZstdError,
        snappy.UncompressError,
        RuntimeError,
        EOFError,
    ) as error:
        yield Damage(0, len(whole), _expected(codec), shown(str(error)))


def at_most(max_bytes: int) -> str:
    """Describe what ``chunks`` expects of a stream that exceeds its limit."""
    return f"at most {max_bytes} bytes decompressed"


def at_once(codec: int, stored: memoryview) -> bytes | None:
    """Decompress one small v2 batch in one call, which is faster for callers with very many batches.

    Args:
        codec: codec id from the attributes.
        stored: compressed bytes of one batch.

    Returns:
        The records; None if one call is not enough or something is wrong. The caller must then use ``chunks``, which
        also describes the damage.
    """
    try:
        if codec == Codec.LZ4:
            return _lz4_at_once(stored)
        if codec == Codec.ZSTD:
            return _zstd_at_once(stored) if len(stored) <= CHUNK_BYTES else None
        if codec == Codec.GZIP and len(stored) <= GZIP_AT_ONCE_BYTES:
            member = zlib.decompressobj(wbits=GZIP_WINDOW_BITS)
            content = member.decompress(stored, CHUNK_BYTES)
            return content if member.eof and not member.unused_data else None
        if codec == Codec.SNAPPY and len(stored) <= SNAPPY_AT_ONCE_BYTES:
            return b"".join(_snappy(stored, CHUNK_BYTES))
    except (_BrokenStreamError, zlib.error, snappy.UncompressError, RuntimeError, EOFError):
        return None
    return None


def lz4_into(stored: memoryview, out: memoryview, to: int) -> int:
    """Decompress one lz4 frame of Kafka's clients into a buffer, block by block.

    Neither the library ``lz4`` nor the kernel is used: verification must not decompress with the code that compressed.

    Args:
        stored: exactly one whole frame.
        out: buffer that receives the content.
        to: position in ``out`` at which the content starts.

    Returns:
        Position in ``out`` after the content; -1 if the frame is of another kind, is broken, or does not fit.
        ``at_once`` may still be able to read such a frame.
    """
    size = len(stored)
    if size < _LZ4_FRONT.size:
        return -1
    front, head = _LZ4_FRONT.unpack_from(stored)
    if front != LZ4_USUAL_FRONT:
        return -1
    start = _LZ4_FRONT.size
    try:
        while True:
            if head == 0:
                return to if start == size else -1
            at = start + (head & ~LZ4_UNPACKED_BLOCK)
            room = out[to : to + LZ4_BLOCK_BYTES]
            if at + _UINT32.size > size:
                return -1
            if head & LZ4_UNPACKED_BLOCK:
                if at - start > len(room):
                    return -1
                room[: at - start] = stored[start:at]
                to += at - start
            else:
                to += cramjam.lz4.decompress_block_into(stored[start:at], room, output_len=len(room))
            (head,) = _UINT32.unpack_from(stored, at)
            start = at + _UINT32.size
    except cramjam.DecompressionError:
        return -1


def lz4_blocks_into(
    stored: memoryview, blocks: Iterable[tuple[int, int]], out: memoryview, to: int
) -> list[int]:
    """Decompress lz4 blocks one after another into a buffer, with the library of ``lz4_into``.

    Args:
        stored: bytes that hold the blocks.
        blocks: start and end of each block in ``stored``; 0 and 0 for an empty block.
        out: buffer that receives the contents.
        to: position in ``out`` at which the first content starts.

    Returns:
        Position in ``out`` after each content, up to the first block that is broken or may not fit.
    """
    ends: list[int] = []
    last, into = len(out) - LZ4_BLOCK_BYTES, cramjam.lz4.decompress_block_into
    try:
        for start, end in blocks:
            if to > last:
                break
            if end:
                room = out[to : to + LZ4_BLOCK_BYTES]
                to += into(stored[start:end], room, output_len=LZ4_BLOCK_BYTES)
            ends.append(to)
    except cramjam.DecompressionError:
        pass
    return ends


def snappy_into(stored: memoryview, out: memoryview, to: int) -> int:
    """Decompress one batch in snappy-java's framing into a buffer, block by block.

    Args:
        stored: all frames of one batch and nothing else.
        out: buffer that receives the content.
        to: position in ``out`` at which the content starts.

    Returns:
        Position in ``out`` after the content; -1 if the framing is of another kind, is broken, or does not fit.
        ``at_once`` may be able to read it then.
    """
    size, at = len(stored), len(XERIAL_HEADER)
    if stored[:at] != XERIAL_HEADER:
        return -1
    try:
        while at + _INT32.size <= size:
            (block,) = _INT32.unpack_from(stored, at)
            start, at = at + _INT32.size, at + _INT32.size + block
            if block < 0 or at > size:
                return -1
            to += cramjam.snappy.decompress_raw_into(stored[start:at], out[to:])
    except cramjam.DecompressionError:
        return -1
    return to if at == size else -1


def zstd_frame(stored: memoryview, most: int) -> bytes | None:
    """Decompress one zstd frame whose block headers were checked before; see ``zstd_frames``."""
    try:
        return _CONTEXTS.zstd().decompress(stored, max_output_size=most) if most > 0 else None
    except zstandard.ZstdError:
        return None


def zstd_frames(stored: memoryview, frames: Iterable[tuple[int, int, int]]) -> Iterator[bytes | None]:
    """Decompress zstd frames whose block headers were checked before, see ``kernels.zstd_frames``.

    Args:
        stored: bytes that hold the frames.
        frames: start, end and largest possible content in bytes of each frame.

    Yields:
        The content of each frame; None if it is broken or can hold nothing. The caller must then use ``chunks``.
    """
    unpack = _CONTEXTS.zstd().decompress
    for start, end, most in frames:
        try:
            content = unpack(stored[start:end], max_output_size=most) if most > 0 else None
        except zstandard.ZstdError:
            content = None
        yield content


def decompress(
    codec: int, buf: Bytes, *, magic: int = 2, max_bytes: int = DEFAULT_MAX_BYTES
) -> bytes | Damage:
    """Decompress everything at once, see ``chunks``; this needs at most about twice ``max_bytes`` of memory."""
    out = bytearray()
    for piece in chunks(codec, buf, magic=magic, max_bytes=max_bytes):
        if isinstance(piece, Damage):
            return piece
        out += piece
    return bytes(out)


def _expected(codec: int) -> str:
    names = {known.value: known.name.lower() for known in Codec}
    return f"a {names[codec]} stream" if codec in names else "a known codec"


def _stream(codec: int, buf: Stored, magic: int, max_bytes: int) -> Iterator[bytes]:
    if codec == Codec.NONE:
        return _plain(buf)
    if codec == Codec.GZIP:
        return _gzip(buf)
    if codec == Codec.SNAPPY:
        return _snappy(buf, max_bytes)
    if codec == Codec.LZ4:
        return _lz4(buf, magic)
    if codec == Codec.ZSTD and magic == 2:
        return _zstd(buf)
    raise _BrokenStreamError(f"codec {codec} in message format v{magic}")


def _plain(buf: Stored) -> Iterator[bytes]:
    for start in range(0, len(buf), CHUNK_BYTES):
        yield bytes(buf[start : start + CHUNK_BYTES])


def _gzip(buf: Stored) -> Iterator[bytes]:
    """Read gzip members one after another as one stream, as Java's ``GZIPInputStream`` does."""
    position = 0
    while True:
        member = zlib.decompressobj(wbits=GZIP_WINDOW_BITS)
        while not member.eof:
            piece = bytes(buf[position : position + CHUNK_BYTES])
            if not piece:
                raise _BrokenStreamError("the stream is cut")
            yield member.decompress(piece, CHUNK_BYTES)
            position += len(piece) - len(member.unconsumed_tail) - len(member.unused_data)
        if position == len(buf):
            return


def _snappy(buf: Stored, max_bytes: int) -> Iterator[bytes]:
    if bytes(buf[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        yield _snappy_block(buf, max_bytes)
        return
    position = 0
    while position < len(buf):
        # There may be several streams in a row, and each has a header.
        if bytes(buf[position : position + len(XERIAL_MAGIC)]) == XERIAL_MAGIC:
            position += len(XERIAL_HEADER)
            if position > len(buf):
                raise _BrokenStreamError("the header is cut")
            continue
        if len(buf) - position < 4:
            raise _BrokenStreamError("the length of a block is cut")
        size = struct.unpack(">i", bytes(buf[position : position + 4]))[0]
        position += 4
        if not 0 <= size <= len(buf) - position:
            raise _BrokenStreamError(f"a block of {size} bytes where {len(buf) - position} are left")
        yield _snappy_block(buf[position : position + size], max_bytes)
        position += size


def _snappy_block(block: Stored, max_bytes: int) -> bytes:
    claimed = 0
    for place in range(5):
        if place >= len(block):
            raise _BrokenStreamError("the length in front of a block is cut")
        claimed |= (block[place] & 0x7F) << (7 * place)
        if block[place] < 0x80:
            break
    if claimed > max_bytes or claimed > SNAPPY_MAX_RATIO * len(block) + 64:
        raise _BrokenStreamError(f"a block of {len(block)} bytes that claims to hold {claimed}")
    return bytes(snappy.uncompress(bytes(block[:])))


def _lz4_descriptor_end(frame: Stored) -> int:
    """Return the position of the header checksum, which follows flags, block size and optional fields."""
    if len(frame) < len(LZ4_MAGIC) + LZ4_FIXED_DESCRIPTOR_BYTES or bytes(frame[:4]) != LZ4_MAGIC:
        raise _BrokenStreamError("no lz4 frame")
    flags = frame[len(LZ4_MAGIC)]
    end = len(LZ4_MAGIC) + LZ4_FIXED_DESCRIPTOR_BYTES
    end += 8 if flags & LZ4_CONTENT_SIZE_FLAG else 0
    end += 4 if flags & LZ4_DICTIONARY_FLAG else 0
    if len(frame) <= end:
        raise _BrokenStreamError("the frame's header is cut")
    return end


def lz4_header_checksum(frame: Stored, *, broken: bool) -> int:
    """Compute the header checksum that a frame should have.

    Args:
        frame: at least the header of an lz4 frame.
        broken: True for v0 messages, whose checksum also covers the magic number (KAFKA-3160).
    """
    end = _lz4_descriptor_end(frame)
    return (_xxh32_short(bytes(frame[0 if broken else len(LZ4_MAGIC) : end])) >> 8) & 0xFF


XXH_PRIME_1 = 0x9E3779B1
XXH_PRIME_2 = 0x85EBCA77
XXH_PRIME_3 = 0xC2B2AE3D
XXH_PRIME_4 = 0x27D4EB2F
XXH_PRIME_5 = 0x165667B1
UINT32_MASK = 0xFFFFFFFF


def _xxh32_short(data: bytes) -> int:
    """Compute xxHash32 with seed 0 of fewer than 32 bytes; a frame header has at most 18."""
    if len(data) < 16:
        state = XXH_PRIME_5
        rest = data
    else:
        lanes = [(XXH_PRIME_1 + XXH_PRIME_2) & UINT32_MASK, XXH_PRIME_2, 0, -XXH_PRIME_1 & UINT32_MASK]
        words = struct.unpack_from("<4I", data)
        lanes = [
            _rotated((lane + word * XXH_PRIME_2) & UINT32_MASK, 13) * XXH_PRIME_1 & UINT32_MASK
            for lane, word in zip(lanes, words, strict=True)
        ]
        state = sum(_rotated(lane, turn) for lane, turn in zip(lanes, (1, 7, 12, 18), strict=True))
        rest = data[16:]
    state = (state + len(data)) & UINT32_MASK
    while len(rest) >= 4:
        word = int.from_bytes(rest[:4], "little")
        state = _rotated((state + word * XXH_PRIME_3) & UINT32_MASK, 17) * XXH_PRIME_4 & UINT32_MASK
        rest = rest[4:]
    for byte in rest:
        state = _rotated((state + byte * XXH_PRIME_5) & UINT32_MASK, 11) * XXH_PRIME_1 & UINT32_MASK
    state = (state ^ state >> 15) * XXH_PRIME_2 & UINT32_MASK
    state = (state ^ state >> 13) * XXH_PRIME_3 & UINT32_MASK
    return state ^ state >> 16


def _rotated(value: int, turn: int) -> int:
    return (value << turn | value >> (32 - turn)) & UINT32_MASK


def _lz4_at_once(stored: memoryview) -> bytes | None:
    """Decompress a small frame without content size, which can give at most 255 times its own size."""
    if not LZ4_LEAST_BYTES <= len(stored) <= LZ4_AT_ONCE_BYTES or stored[len(LZ4_MAGIC)] & LZ4_UNUSUAL_FLAGS:
        return None
    whole, used = lz4.frame.decompress(stored, return_bytes_read=True)
    return bytes(whole) if used == len(stored) else None


def _lz4(buf: Stored, magic: int) -> Iterator[bytes]:
    end = _lz4_descriptor_end(buf)
    if magic == 0:
        # A broker does not check the header checksum of v0. The library does, so it gets the right checksum here.
        front = bytes(buf[:end]) + bytes((lz4_header_checksum(buf, broken=False),))
    else:
        front = bytes(buf[: end + 1])
    if len(buf) <= LZ4_AT_ONCE_BYTES and not buf[len(LZ4_MAGIC)] & LZ4_CONTENT_SIZE_FLAG:
        # This takes little memory: the frame gives at most 255 times its bytes, and it announces no size.
        whole, used = lz4.frame.decompress(front + bytes(buf[end + 1 :]), return_bytes_read=True)
        if used != len(buf):
            raise _BrokenStreamError(f"{len(buf) - used} bytes after the frame")
        yield whole
        return
    decompressor = lz4.frame.LZ4FrameDecompressor()
    yield decompressor.decompress(front, CHUNK_BYTES)
    position = end + 1
    while not decompressor.eof:
        piece = b""
        if decompressor.needs_input:
            piece = bytes(buf[position : position + CHUNK_BYTES])
            position += len(piece)
            if not piece:
                raise _BrokenStreamError("the stream is cut")
        yield decompressor.decompress(piece, CHUNK_BYTES)
    extra = len(buf) - position + len(decompressor.unused_data or b"")
    if extra:
        raise _BrokenStreamError(f"{extra} bytes after the frame")


def _zstd(buf: Stored) -> Iterator[bytes]:
    """Read zstd frames one after another as one stream, as zstd-jni does."""
    if len(buf) <= CHUNK_BYTES and (whole := _zstd_at_once(memoryview(buf[:]))) is not None:
        yield whole
        return
    # Not the thread's shared context: a stream that is read in pieces needs its own context until it ends.
    new_frame: Callable[[], zstandard.ZstdDecompressionObj] = zstandard.ZstdDecompressor(
        max_window_size=ZSTD_MAX_WINDOW_BYTES
    ).decompressobj
    position = 0
    frame = new_frame()
    held = bytearray()
    while position < len(buf):
        piece = bytes(buf[position : position + ZSTD_INPUT_BYTES])
        held += frame.decompress(piece)
        position += len(piece)
        # Output is gathered, because a small input often gives little and each piece costs the caller time.
        if len(held) >= ZSTD_GATHERED_BYTES:
            yield bytes(held)
            held.clear()
        if frame.eof:
            position -= len(frame.unused_data)
            if position == len(buf):
                yield bytes(held)
                return
            frame = new_frame()
    raise _BrokenStreamError("the stream is cut")


def _zstd_at_once(stored: memoryview) -> bytes | None:
    """Decompress one frame that cannot be large; None for every other frame, even a valid one.

    The block headers bound the content of the frame. Another reader handles large frames piece by piece.
    """
    size = len(stored)
    if size < _ZSTD_FRONT.size:
        return None
    magic, flags, _, low, high = _ZSTD_FRONT.unpack_from(stored)
    # The usual frame of Kafka's clients comes first: no flags, and one block that holds everything.
    usual = magic == _ZSTD_MAGIC_NUMBER and not flags and low & 0b111 == 0b101
    if usual and _ZSTD_FRONT.size + (low >> 3 | high << 13) == size:
        return zstd_frame(stored, ZSTD_BLOCK_BYTES)
    place, claimed = _zstd_front(bytes(stored[:ZSTD_FRONT_BYTES]))
    blocks, last = 0, False
    while not last and 0 < place <= size - 3:
        head = int.from_bytes(stored[place : place + 3], "little")
        last, kind = bool(head & 1), head >> 1 & 3
        place += 3 + (1 if kind == 1 else head >> 3)
        blocks += 1
    most = blocks * ZSTD_BLOCK_BYTES
    place += ZSTD_CHECKSUM_BYTES if stored[4] & ZSTD_CHECKSUM_FLAG else 0
    if not last or place != size or max(most, claimed) > ZSTD_AT_ONCE_BYTES:
        return None
    return zstd_frame(stored, most)


def _zstd_front(stored: bytes) -> tuple[int, int]:
    """Return (position of the first block header, content size by the header); (-1, 0) for an unusual frame.

    A frame whose header claims an empty content is unusual: the library believes the claim without reading the blocks.
    """
    if stored[:4] != ZSTD_MAGIC or stored[4] & 0b11:
        return -1, 0
    single = bool(stored[4] & 0b100000)
    size_bytes = (1 if single else 0, 2, 4, 8)[stored[4] >> 6]
    place = 5 if single else 6
    claimed = int.from_bytes(stored[place : place + size_bytes], "little")
    if size_bytes and not claimed and size_bytes != 2:
        return -1, 0
    return place + size_bytes, claimed


class Packer(Protocol):
    """Compressor of one stream, piece by piece."""

    def add(self, piece: bytes | memoryview) -> bytes:
        """Add bytes to the stream; return the compressed bytes that are ready, often none."""

    def finish(self) -> bytes:
        """End the stream; return the remaining compressed bytes."""


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
    """Blocks of 32 KiB, each after its length, as snappy-java writes them."""

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
    """Maker of compressed streams, one at a time: finish a stream before the next begins."""

    def __init__(self) -> None:
        self._zstd: zstandard.ZstdCompressor | None = None

    def begin(self, codec: int) -> Packer:
        """Begin a compressed stream.

        Args:
            codec: codec id from the attributes.

        Raises:
            UsageError: the codec is unknown.
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
        # Kept, because making a context takes 50 microseconds and beginning a stream in it takes 2.
        self._zstd = self._zstd or zstandard.ZstdCompressor(write_content_size=False)
        return self._zstd

    def wholes(self, contents: Iterable[tuple[int, memoryview]]) -> list[bytes]:
        """Compress whole v2 streams to the same bytes that ``begin`` gives; empty content gives no bytes.

        Args:
            contents: codec id from the attributes and content of each stream.

        Raises:
            UsageError: a codec is unknown.
        """
        return [self._whole(codec, content) if len(content) else b"" for codec, content in contents]

    def _whole(self, codec: int, content: memoryview) -> bytes:
        if codec == Codec.LZ4:
            frame: bytes = lz4.frame.compress(
                content, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
            )
            return frame
        if codec == Codec.ZSTD:
            # Begun as a stream like the others: zstd writes other bytes if it knows the size from the start.
            stream = self._zstd_context().compressobj()
            return stream.compress(content) + stream.flush()
        if codec == Codec.SNAPPY and len(content) <= XERIAL_BLOCK_BYTES:
            block = bytes(snappy.compress(content))
            return XERIAL_HEADER + struct.pack(">i", len(block)) + block
        packer = self.begin(codec)
        return packer.add(content) + packer.finish()
