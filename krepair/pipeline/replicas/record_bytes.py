"""The hashes of one record of any size, from its bytes as they come: no more than 64 MiB of them are held.

A body is what lies in a record from its key to its last header, a message of v0 or v1 from its key on. A body that fits
has the hashes that the kernel gives it. A larger one never lies in a window, so that the kernel never sees it: it is
hashed in pieces of 1 MiB, each under a secret that the pieces before it have changed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from krepair.formats.arrays import Uint8s, Uint64s
from krepair.kernels.compact_records import SLACK, key_hash
from krepair.kernels.replica_rows import body_hash
from krepair.pipeline.compaction.content import LARGEST_RECORD_BYTES

_FIRST_BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 1 << 20
assert LARGEST_RECORD_BYTES % _PIECE_BYTES == 0


class Hashed(NamedTuple):
    """Hashes of a record's bytes.

    Attributes:
        key: both halves of the hash of its key, zeros without one.
        body: both halves of the hash of its body.
    """

    key: tuple[int, int]
    body: tuple[int, int]


class RecordBytes:
    """Takes the bodies of records, one after the other.

    Args:
        secret: uint64[2], the key of the hashes.
        most: bytes that are held, a multiple of 1 MiB. It decides how a body is hashed, so it has to be the same on
            all sides.
    """

    def __init__(self, secret: Uint64s, most: int = LARGEST_RECORD_BYTES) -> None:
        self._secret = secret
        self._most = most
        self._held: Uint8s = np.empty(_FIRST_BYTES + SLACK, np.uint8)
        self.begin(-1)

    def begin(self, key_size: int) -> None:
        """The next body begins.

        Args:
            key_size: bytes of its key, negative without one.
        """
        self._key_size = key_size
        self._end = 0
        self._done = 0
        self._key = self._body = (0, 0)

    def take(self, piece: memoryview) -> None:
        """Take the next bytes of the body."""
        taken = 0
        while taken < len(piece):
            room = self._room(len(piece) - taken)
            count = min(room, len(piece) - taken)
            self._held[self._end : self._end + count] = np.frombuffer(piece, np.uint8, count, taken)
            self._end += count
            taken += count

    def hashed(self) -> Hashed:
        """Hashes of the body that was taken."""
        if self._done:
            self._put_pieces()
            return Hashed(self._key, self._body)
        key = self._halves(key_hash, 0, self._key_size, (0, 0)) if self._key_size >= 0 else (0, 0)
        return Hashed(key, self._halves(body_hash, 0, self._end, (0, 0)))

    def _room(self, wanted: int) -> int:
        """How many bytes more can be held now, at least one."""
        size = _PIECE_BYTES if self._done else self._most
        if self._end == size:
            self._put_pieces()
            size = _PIECE_BYTES
        if self._end + wanted > len(self._held) - SLACK < size:
            larger: Uint8s = np.empty(size + SLACK, np.uint8)
            larger[: self._end] = self._held[: self._end]
            self._held = larger
        return min(size, len(self._held) - SLACK) - self._end

    def _put_pieces(self) -> None:
        """Hash what is held, piece by piece."""
        for start in range(0, self._end, _PIECE_BYTES):
            count = min(_PIECE_BYTES, self._end - start)
            of_key = min(self._key_size - self._done, count)
            if of_key > 0:
                self._key = self._halves(key_hash, start, of_key, self._key)
            self._body = self._halves(body_hash, start, count, self._body)
            self._done += count
        self._end = 0

    def _halves(self, kernel: object, start: int, count: int, before: tuple[int, int]) -> tuple[int, int]:
        one, other = (self._secret[half] ^ np.uint64(before[half]) for half in (0, 1))
        first, second = kernel(self._held, start, count, one, other)  # type: ignore[operator]
        return int(first), int(second)
