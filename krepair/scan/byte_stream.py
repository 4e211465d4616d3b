"""Byte streams that arrive in pieces, for records that are larger than the memory that krepair uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import overload

from krepair.formats.damage import Damage
from krepair.formats.varint import INT_BYTES, LONG_BYTES, read_varint, read_varlong
from krepair.kernels.scan import ReadInto

PIECE_BYTES = 1 << 20


class StoredBytes:
    """Range of a file that is read on demand; see ``compression.Stored``.

    Args:
        read_into: function that fills a buffer from a file position and returns the number of bytes read, 0 at the end;
            it may raise ``OSError``.
        start: position of the first byte.
        end: position after the last byte.
    """

    def __init__(self, read_into: ReadInto, start: int, end: int) -> None:
        self._read_into = read_into
        self._start = start
        self._size = end - start
        self._piece = b""
        self._piece_at = 0

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, place: int, /) -> int: ...

    @overload
    def __getitem__(self, place: slice, /) -> bytes: ...

    def __getitem__(self, place: int | slice, /) -> int | bytes:
        if isinstance(place, int):
            return self[place : place + 1][0]
        start, stop, _ = place.indices(self._size)
        if not self._piece_at <= start <= stop <= self._piece_at + len(self._piece):
            self._piece = self._read(start, max(stop - start, min(PIECE_BYTES, self._size - start)))
            self._piece_at = start
        return self._piece[start - self._piece_at : stop - self._piece_at]

    def _read(self, start: int, size: int) -> bytes:
        piece = bytearray(size)
        view, done = memoryview(piece), 0
        while done < size and (got := self._read_into(view[done:], self._start + start + done)):
            done += got
        return bytes(view[:done])


class ByteStream:
    """Reader of bytes that arrive in pieces.

    Args:
        pieces: pieces in order; a ``Damage`` ends them.

    Attributes:
        damage: damage that ended the pieces; None if there was none.
        on_bytes: function called with all bytes that are taken or skipped from now on, in order.
    """

    def __init__(self, pieces: Iterator[bytes | Damage]) -> None:
        self.damage: Damage | None = None
        self.on_bytes: Callable[[memoryview], None] | None = None
        self._pieces = pieces
        self._held = memoryview(b"")
        self._behind = memoryview(b"")
        self._at_end = False

    def _more(self) -> bool:
        """Fetch the next piece if none is held; return False at the end."""
        if not self._held:
            self._held, self._behind = self._behind, memoryview(b"")
        while not self._held and not self._at_end:
            piece = next(self._pieces, None)
            if isinstance(piece, Damage):
                self.damage = piece
            if piece is None or isinstance(piece, Damage):
                self._at_end = True
            else:
                self._held = memoryview(piece)
        return bool(self._held)

    def some(self, most: int) -> memoryview:
        """Take the available bytes, at most ``most``; empty only at the end."""
        self._more()
        piece = self._held[:most]
        self._held = self._held[most:]
        if self.on_bytes is not None and piece:
            self.on_bytes(piece)
        return piece

    def put_back(self, data: bytes) -> None:
        """Put back the bytes that were taken last; they must be taken again before the next call."""
        self._held, self._behind = memoryview(data), self._held

    def take(self, size: int) -> bytes:
        """Take ``size`` bytes, fewer only at the end."""
        parts = []
        while size > 0 and (part := self.some(size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def skip(self, size: int) -> int:
        """Skip up to ``size`` bytes; return the number of skipped bytes."""
        done = 0
        while done < size and (part := self.some(size - done)):
            done += len(part)
        return done

    def varint(self) -> int | None:
        """Take the next 32-bit varint; None if it is truncated or too long."""
        varint = read_varint(data := self._varint_bytes(INT_BYTES), 0, len(data))
        return None if varint is None else varint.value

    def varlong(self) -> int | None:
        """Take the next 64-bit varint; None if it is truncated or too long."""
        varlong = read_varlong(data := self._varint_bytes(LONG_BYTES), 0, len(data))
        return None if varlong is None else varlong.value

    def _varint_bytes(self, most: int) -> bytearray:
        data = bytearray()
        while len(data) < most:
            byte = self.take(1)
            data += byte
            if not byte or byte[0] < 0x80:
                break
        return data
