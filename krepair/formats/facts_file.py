"""The container of a facts file: a header, named sections of bytes, a table of sections, and a digest of everything.

This module knows nothing about the content of a section. A file is written once, front to back, and a section is read
block by block, so neither side ever holds a whole file.

Layout, all integers little-endian: ``MAGIC``, version (4 bytes), size of the header (4), header (JSON), blocks of the
sections (each: packed size (4), unpacked size (4), bytes packed with zstd), table of sections (JSON), position of the
table (8), SHA-256 of everything before it (32), ``END``.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import zstandard
from msgspec import Raw, Struct

MAGIC: Final = b"krepair facts\n\0\0"
END: Final = b"end.facts"
VERSION: Final = 3
BLOCK_BYTES: Final = 1 << 20
_PROLOG: Final = struct.Struct("<16sII")
_BLOCK: Final = struct.Struct("<II")
_TRAILER: Final = struct.Struct("<Q32s9s")
_HEADER_AT_MOST: Final = 1 << 30
LIST_AT_MOST: Final = 1 << 28
"""Largest section in bytes that is read whole: a list with a million partition folders is smaller."""
_PIECE: Final = 1 << 20

ReadAt = Callable[[int, int], bytes]
"""Function (position, size) -> bytes of a file, fewer at its end. It may raise ``OSError``."""


class FactsDamagedError(Exception):
    """Error: the file is not a facts file, is truncated, or does not match its digest."""


class FactsVersionError(Exception):
    """Error: the file has a version that this krepair does not know."""


BAD_CONTENT: Final = (
    FactsDamagedError,
    msgspec.MsgspecError,
    struct.error,
    ValueError,
    OverflowError,
    RecursionError,
)
"""Exceptions that reading untrusted content can raise. Invalid UTF-8 is a ``ValueError``."""


class SectionPlace(Struct, frozen=True, kw_only=True):
    """Position and size of a section.

    Attributes:
        position: position in the file of the first block.
        blocks: number of blocks.
        packed_bytes: size in the file, in bytes.
        bytes: unpacked size in bytes.
    """

    name: str
    position: int
    blocks: int
    packed_bytes: int
    bytes: int


class FactsHeader(Struct, frozen=True, kw_only=True):
    """Header of a facts file.

    Attributes:
        tool_version: version of the krepair that wrote the file.
        made_ms: time at which reading of the broker began, in epoch milliseconds.
        broker: the broker's state as JSON (``krepair.logdir.view.BrokerState``).
        secret: key of the file's hashes, in hex digits.
    """

    tool_version: str
    made_ms: int
    broker: Raw
    secret: str


class FactsWriter:
    """Writer of a facts file, front to back.

    Args:
        write: function that appends bytes to the file; it may raise ``OSError``.
    """

    def __init__(self, write: Callable[[bytes], Any], header: FactsHeader) -> None:
        self._write_raw = write
        self._digest = hashlib.sha256()
        self._position = 0
        self._sections: list[SectionPlace] = []
        self._packer = zstandard.ZstdCompressor(level=3)
        head = msgspec.json.encode(header)
        self._write(_PROLOG.pack(MAGIC, VERSION, len(head)) + head)

    def section(self, name: str, pieces: Iterator[bytes] | list[bytes]) -> None:
        """Write one section.

        Args:
            name: name of the section, unique in the file.
            pieces: content; each piece is cut into blocks of at most ``BLOCK_BYTES``, and no block spans two pieces.
        """
        position, blocks, size = self._position, 0, 0
        for piece in pieces:
            for at in range(0, len(piece), BLOCK_BYTES):
                part = piece[at : at + BLOCK_BYTES]
                packed = self._packer.compress(part)
                self._write(_BLOCK.pack(len(packed), len(part)) + packed)
                blocks += 1
                size += len(part)
        self._sections.append(
            SectionPlace(
                name=name,
                position=position,
                blocks=blocks,
                packed_bytes=self._position - position,
                bytes=size,
            )
        )

    def finish(self) -> str:
        """Write the table and the digest; return the digest as hex digits."""
        position = self._position
        self._write(msgspec.json.encode(self._sections) + struct.pack("<Q", position))
        digest = self._digest.digest()
        self._write_raw(digest + END)
        return digest.hex()

    def _write(self, data: bytes) -> None:
        self._digest.update(data)
        self._write_raw(data)
        self._position += len(data)


class FactsReader:
    """Reader of a facts file.

    Args:
        read_at: function that reads from the file.
        size: size of the file in bytes.

    Raises:
        FactsDamagedError: the file is not a facts file, is truncated, or does not match its digest.
        FactsVersionError: the file has an unknown version.
        OSError: the file cannot be read.

    Attributes:
        digest: digest of the file, in hex digits.
        sections: position and size of each section, by name.
    """

    def __init__(self, read_at: ReadAt, size: int) -> None:
        self._read_at = read_at
        prolog = read_at(0, _PROLOG.size)
        if len(prolog) < _PROLOG.size or not prolog.startswith(MAGIC):
            raise FactsDamagedError("at 0: the words 'krepair facts' were expected; this is another file")
        _, version, head_size = _PROLOG.unpack(prolog)
        if version != VERSION:
            raise FactsVersionError(f"the file has version {version}, this krepair reads version {VERSION}")
        if size < _PROLOG.size + _TRAILER.size + head_size or head_size > _HEADER_AT_MOST:
            raise FactsDamagedError(
                f"a header of {head_size} bytes was expected, the file has {size}: it is cut"
            )
        position, digest, end = _TRAILER.unpack(read_at(size - _TRAILER.size, _TRAILER.size))
        if end != END:
            raise FactsDamagedError(f"at {size - len(END)}: the end mark was expected; the file is cut")
        self.digest = digest.hex()
        if self._digest_of(size - len(END) - len(digest)) != digest:
            raise FactsDamagedError("its digest is not that of its bytes: it was changed or damaged")
        if not _PROLOG.size + head_size <= position <= size - _TRAILER.size:
            raise FactsDamagedError(f"the table of sections is said to be at {position}, outside of the file")
        try:
            self.header = msgspec.json.decode(read_at(_PROLOG.size, head_size), type=FactsHeader)
            table = read_at(position, size - _TRAILER.size - position)
            places = msgspec.json.decode(table, type=list[SectionPlace])
        except BAD_CONTENT as error:
            raise FactsDamagedError(f"its header or table cannot be read: {error}") from None
        for place in places:
            _check_place(place, _PROLOG.size + head_size, position)
        self.sections = {place.name: place for place in places}

    def _digest_of(self, size: int) -> bytes:
        digest, position = hashlib.sha256(), 0
        while position < size and (piece := self._read_at(position, min(_PIECE, size - position))):
            digest.update(piece)
            position += len(piece)
        return digest.digest()

    def blocks(self, name: str) -> Iterator[bytes]:
        """Unpack the blocks of a section in order; none if there is no such section.

        Raises:
            FactsDamagedError: a block does not match the table.
        """
        place = self.sections.get(name)
        if place is None:
            return
        unpacker = zstandard.ZstdDecompressor()
        position, end, remaining = place.position, place.position + place.packed_bytes, place.bytes
        for _ in range(place.blocks):
            data, packed = self._block(unpacker, position, end)
            remaining -= len(data)
            if remaining < 0:
                break
            yield data
            position += _BLOCK.size + packed
        if remaining or position != end:
            raise FactsDamagedError(
                f"at {place.position}: section {name!r} was expected with {place.bytes} bytes up to {end}; "
                "its blocks have another size"
            )

    def whole(self, name: str, at_most: int = LIST_AT_MOST) -> bytes:
        """Read a section that is small enough to be held in memory; empty if there is no such section.

        Args:
            at_most: largest accepted size in bytes.

        Raises:
            FactsDamagedError: the section is too large, or a block does not match the table.
        """
        place = self.sections.get(name)
        if place is not None and place.bytes > at_most:
            raise FactsDamagedError(
                f"at {place.position}: section {name!r} was expected with at most {at_most} bytes, "
                f"found {place.bytes}"
            )
        return b"".join(self.blocks(name))

    def _block(self, unpacker: zstandard.ZstdDecompressor, position: int, end: int) -> tuple[bytes, int]:
        """Read and unpack one block; return its bytes and its packed size."""
        head = self._read_at(position, min(_BLOCK.size, end - position))
        if len(head) < _BLOCK.size:
            raise FactsDamagedError(f"at {position}: a block was expected; its section ends at {end}")
        packed, size = _BLOCK.unpack(head)
        if size > BLOCK_BYTES:
            raise FactsDamagedError(
                f"at {position}: a block of at most {BLOCK_BYTES} bytes was expected, found {size}"
            )
        if packed > end - position - _BLOCK.size:
            raise FactsDamagedError(
                f"at {position}: a block of {packed} packed bytes does not end before {end}"
            )
        raw = self._read_at(position + _BLOCK.size, packed)
        try:
            # Checked first: zstandard allocates the size that the frame claims, whatever max_output_size says.
            claimed = zstandard.frame_content_size(raw)
            if claimed != size:
                raise FactsDamagedError(
                    f"at {position}: a block of {size} bytes was expected, its frame says {claimed}"
                )
            data = unpacker.decompress(raw, max_output_size=size)
        except zstandard.ZstdError as error:
            raise FactsDamagedError(f"at {position}: a block cannot be unpacked: {error}") from None
        if len(data) != size:
            raise FactsDamagedError(f"at {position}: a block of {size} bytes was expected, found {len(data)}")
        return data, packed


def _check_place(place: SectionPlace, first: int, table: int) -> None:
    """Refuse a section that lies outside of header and table, or whose sizes are impossible."""
    end = place.position + place.packed_bytes
    if not first <= place.position <= end <= table:
        raise FactsDamagedError(
            f"section {place.name!r}: a place from {first} to {table} was expected, found "
            f"{place.position} with {place.packed_bytes} bytes"
        )
    blocks_fit = 0 <= place.blocks * _BLOCK.size <= place.packed_bytes
    if not blocks_fit or not 0 <= place.bytes <= place.blocks * BLOCK_BYTES:
        raise FactsDamagedError(
            f"at {place.position}: section {place.name!r} cannot have {place.blocks} blocks and {place.bytes} bytes"
        )
