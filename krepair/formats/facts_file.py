"""The container of a facts file: a header, named sections of bytes, a table of them, and a digest of everything.

It knows nothing of what is in a section. Everything is written once, front to back, and a section is read in blocks, so
that neither side ever holds a whole file.

Layout, all integers little-endian: ``MAGIC``, version (4 bytes), size of the header (4), header (JSON), blocks of the
sections (each: size packed (4), size unpacked (4), bytes packed with zstd), table of the sections (JSON), position of
the table (8), SHA-256 of everything before (32), ``END``.
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
"""Bytes of a section that is held whole: a list with a million partition folders is smaller."""
_PIECE: Final = 1 << 20

ReadAt = Callable[[int, int], bytes]
"""(position, size) -> bytes of a file, fewer at its end. It may raise ``OSError``."""


class FactsDamagedError(Exception):
    """The file is no facts file, is cut, or its digest is not that of its bytes."""


class FactsVersionError(Exception):
    """The file is of a version that this krepair does not know."""


BAD_CONTENT: Final = (
    FactsDamagedError,
    msgspec.MsgspecError,
    struct.error,
    ValueError,
    OverflowError,
    RecursionError,
)
"""What reading of a file can raise that somebody else has made. A bad UTF-8 text is a ``ValueError``."""


class SectionPlace(Struct, frozen=True, kw_only=True):
    """Where a section is.

    Attributes:
        name: of the section.
        position: of its first block.
        blocks: how many there are.
        packed_bytes: bytes in the file.
        bytes: bytes unpacked.
    """

    name: str
    position: int
    blocks: int
    packed_bytes: int
    bytes: int


class FactsHeader(Struct, frozen=True, kw_only=True):
    """What a facts file begins with.

    Attributes:
        tool_version: of the krepair that wrote it.
        made_ms: when its reading began, epoch milliseconds.
        broker: the broker's state as JSON (``krepair.logdir.view.BrokerState``).
        secret: key of its hashes, hex digits.
    """

    tool_version: str
    made_ms: int
    broker: Raw
    secret: str


class FactsWriter:
    """Writes a facts file front to back.

    Args:
        write: takes the next bytes of the file; it may raise ``OSError``.
        header: what the file begins with.
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
            name: unique in the file.
            pieces: its bytes; each piece is cut into blocks of at most ``BLOCK_BYTES``, and no block spans two pieces.
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
        """Write the table and the digest; the digest as hex digits."""
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
    """Reads a facts file.

    Args:
        read_at: reads from the file.
        size: bytes of the file.

    Raises:
        FactsDamagedError: it begins with other bytes, is cut or was changed.
        FactsVersionError: its version is another.
        OSError: it cannot be read.

    Attributes:
        header: what it begins with.
        digest: of the file, hex digits.
        sections: name -> where it is.
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
        """The blocks of a section, unpacked, in order; none if there is no such section.

        Raises:
            FactsDamagedError: a block is not as the table says.
        """
        place = self.sections.get(name)
        if place is None:
            return
        unpacker = zstandard.ZstdDecompressor()
        position, end, left = place.position, place.position + place.packed_bytes, place.bytes
        for _ in range(place.blocks):
            data, packed = self._block(unpacker, position, end)
            left -= len(data)
            if left < 0:
                break
            yield data
            position += _BLOCK.size + packed
        if left or position != end:
            raise FactsDamagedError(
                f"at {place.position}: section {name!r} was expected with {place.bytes} bytes up to {end}; "
                "its blocks have another size"
            )

    def whole(self, name: str, at_most: int = LIST_AT_MOST) -> bytes:
        """A section that is small enough to be held in memory; empty if there is no such section.

        Args:
            name: of the section.
            at_most: so many bytes may it have.

        Raises:
            FactsDamagedError: it is too large, or a block is not as the table says.
        """
        place = self.sections.get(name)
        if place is not None and place.bytes > at_most:
            raise FactsDamagedError(
                f"at {place.position}: section {name!r} was expected with at most {at_most} bytes, "
                f"found {place.bytes}"
            )
        return b"".join(self.blocks(name))

    def _block(self, unpacker: zstandard.ZstdDecompressor, position: int, end: int) -> tuple[bytes, int]:
        """The bytes of a block, and its packed size."""
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
            # The unpacker reserves the size that the frame claims, whatever max_output_size says.
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
    """Refuse a section that does not lie between the header and the table, or whose sizes cannot be."""
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
