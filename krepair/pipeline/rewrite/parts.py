"""What each source gave to a new log, known by its CRC-32C from the copying to the last reading.

The CRC of a batch does not cover its base offset and its leader epoch. So while a source is copied, the bytes that are
written are summed, and whoever reads the new log later sums them again.
"""

from __future__ import annotations

from collections.abc import Callable

from krepair.formats.castagnoli import crc32c

Parts = tuple[tuple[int, int], ...]
"""(bytes, CRC-32C) of each source's part of the new log, in order."""
ReadInto = Callable[[memoryview, int], int]


class PartsCheck:
    """Sums a log while somebody reads it from its beginning to its end.

    Args:
        parts: what is expected; empty if that is not known, then nothing is checked.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._found: list[int] = [0]
        self._summed = 0
        self._in_part = 0

    def watching(self, read_into: ReadInto) -> ReadInto:
        """A reader that does as the given one, and sums every byte once, also where windows overlap."""

        def read(buffer: memoryview, position: int) -> int:
            got = read_into(buffer, position)
            fresh = self._summed - position
            if 0 <= fresh < got:
                self._sum(buffer[fresh:got])
            return got

        return read if self._parts else read_into

    def _sum(self, piece: memoryview) -> None:
        self._summed += len(piece)
        while len(piece) and len(self._found) <= len(self._parts):
            room = self._parts[len(self._found) - 1][0] - self._in_part
            taken = piece[:room]
            self._found[-1] = crc32c(taken, self._found[-1])
            self._in_part += len(taken)
            piece = piece[len(taken) :]
            if len(taken) == room:
                self._found.append(0)
                self._in_part = 0

    def problem(self) -> str:
        """What is not as it was written, or empty; to be asked after the last byte was read."""
        position = 0
        for number, (size, expected) in enumerate(self._parts):
            found = self._found[number] if number < len(self._found) else 0
            if found != expected:
                return (
                    f"the bytes from position {position} to {position + size} are not those that were written"
                )
            position += size
        return ""
